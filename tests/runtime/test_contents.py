"""Text by template, and content of every kind."""

import base64

import pytest

from mcp_trio.wire.content import AudioContent, ImageContent, ResourceLink, TextContent

PIXEL = base64.b64encode(b"\x89PNG\r\n").decode()


async def test_a_template_is_filled_with_values_as_they_are_written(bench, upstream):
    upstream.says({"id": 7, "ok": True, "tags": ["a", "b"], "name": "{{args.id}}", "none": None})
    result = await bench.call(
        {"id": "1"},
        output_mapping={
            "text": "Lead {{ body.id }}/{{args.id}} {{body.ok}} {{body.tags}} {{body.name}}"
            " {{body.none}}{{body.away}}{x} {{ length(body.tags) }}"
        },
    )
    assert result.content[0].text == 'Lead 7/1 true ["a","b"] {{args.id}} {x} 2'


async def test_text_without_braces_is_itself(bench, upstream):
    result = await bench.call(output_mapping={"text": "Done."})
    assert result.content[0].text == "Done."


async def test_content_of_every_kind(bench, upstream):
    upstream.says({"data": PIXEL, "type": "image/png; charset=binary", "uri": "note:///1"})
    result = await bench.call(
        output_mapping={
            "text": "none",
            "result": {"n": 1},
            "content": [
                {"kind": "image", "data": "=body.data", "mime_type": "=body.type"},
                {"kind": "audio", "data": "=body.data", "mime_type": "audio/wav"},
                {
                    "kind": "resource_link",
                    "uri": "=body.uri",
                    "name": "note",
                    "title": "=body.away",
                },
                {"kind": "text", "text": "=body.uri"},
                {"kind": "text", "text": "=body.away"},
                {"kind": "image", "data": "=body.away", "mime_type": "image/png"},
            ],
        }
    )
    assert result.content == [
        ImageContent(data=PIXEL, mime_type="image/png"),
        AudioContent(data=PIXEL, mime_type="audio/wav"),
        ResourceLink(uri="note:///1", name="note"),
        TextContent(text="note:///1"),
    ]
    assert result.structured_content == {"n": 1}


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ({"kind": "image", "data": "no base64!", "mime_type": "image/png"}, "is not base64"),
        ({"kind": "image", "data": PIXEL, "mime_type": "png\r\nx: y"}, "not a media type"),
        ({"kind": "image", "data": PIXEL, "mime_type": "=body.away"}, "must give a string"),
        ({"kind": "text", "text": "=body"}, "must give a string"),
        ({"kind": "resource_link", "uri": "no uri", "name": "x"}, "is not a URI"),
    ],
)
async def test_what_is_no_content_fails_in_the_mapping(bench, upstream, failure, block, told):
    text, details = failure(await bench.call(output_mapping={"content": [block]}))
    assert details["stage"] == "mapping"
    assert "output_mapping.content[0]" in text
    assert told in text
