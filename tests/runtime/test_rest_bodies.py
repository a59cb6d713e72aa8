"""Bodies of rest operations other than JSON: multipart and XML out, XML and bytes in."""

from __future__ import annotations

import base64
import email
import email.policy

import pytest

from mcp_trio.catalog.operation import OperationError

MULTIPART = {"connection": "crm", "method": "POST", "path": "/up", "content_type": "multipart"}
XML = {"connection": "crm", "method": "POST", "path": "/up", "content_type": "xml"}


def parts_of(seen):
    """The parts as another program reads them: (name, filename, type, bytes)."""
    head = f"Content-Type: {seen.header('content-type')}\r\n\r\n".encode()
    message = email.message_from_bytes(head + seen.body, policy=email.policy.HTTP)
    assert message.is_multipart()
    return [
        (
            part.get_param("name", header="content-disposition"),
            part.get_filename(),
            part["content-type"],
            part.get_payload(decode=True),
        )
        for part in message.iter_parts()
    ]


async def upload(bench, value, **changes):
    mapping = {"body": {"f": "=args.q"}}
    return await bench.call(
        {"q": value}, **{"target": MULTIPART, "input_mapping": mapping, **changes}
    )


async def test_fields_and_files_are_parts(bench, upstream):
    data = bytes(range(256))
    body = {
        "id": "=args.id",
        "n": "=args.n",
        "yes": True,
        "none": None,
        "report": {"file": "=args.q", "filename": "Q3.pdf", "content_type": "application/pdf"},
        "meta": {"json": {"tags": "=args.n"}},
        "page": {"text": "<p>", "content_type": "text/html; charset=utf-8"},
        "raw": {"file": "=args.q"},
    }
    await bench.call(
        {"id": "3", "q": base64.b64encode(data).decode(), "n": ["a", "b"]},
        target=MULTIPART,
        input_mapping={"body": body},
    )
    assert parts_of(upstream.last) == [
        ("id", None, None, b"3"),
        ("n", None, None, b"a"),
        ("n", None, None, b"b"),
        ("yes", None, None, b"true"),
        ("report", "Q3.pdf", "application/pdf", data),
        ("meta", None, "application/json", b'{"tags":["a","b"]}'),
        ("page", None, 'text/html; charset="utf-8"', b"<p>"),
        ("raw", "file", "application/octet-stream", data),
    ]


async def test_a_value_cannot_end_its_part(bench, upstream):
    evil = 'x\r\n--boundary--\r\nContent-Disposition: form-data; name="admin"\r\n\r\n1'
    await upload(bench, evil)
    first = upstream.last.header("content-type")
    assert parts_of(upstream.last) == [("f", None, None, evil.encode())]
    # Having seen a boundary helps nobody with the next one.
    boundary = first.partition("boundary=")[2]
    evil = evil.replace("boundary", boundary)
    await upload(bench, evil)
    assert boundary not in upstream.last.header("content-type")
    assert parts_of(upstream.last) == [("f", None, None, evil.encode())]


async def test_names_stay_between_their_quotes(bench, upstream):
    part = {"file": "eA==", "filename": 'a"; name="admin'}
    await upload(bench, part)
    assert upstream.last.body.count(b'filename="a%22; name=%22admin"') == 1
    mapping = {"body": "=args.q"}
    await upload(bench, {'n"; filename="x': "1"}, input_mapping=mapping)
    assert b'name="n%22; filename=%22x"\r\n' in upstream.last.body
    await upload(bench, {"file": "eA==", "filename": "bericht-\u00fc.txt"})
    assert 'filename="bericht-\u00fc.txt"'.encode() in upstream.last.body


@pytest.mark.parametrize(
    "value",
    [
        {"file": "not base64!"},
        {"file": "eA"},
        {"file": "e\u00e9=="},
        {"file": 3, "filename": []},
        {"file": "eA==", "filename": "../etc/passwd"},
        {"file": "eA==", "filename": "a\\b"},
        {"file": "eA==", "filename": ".."},
        {"file": "eA==", "filename": ""},
        {"file": "eA==", "filename": "a\r\nContent-Type: text/html"},
        {"file": "eA==", "filename": "a\x00.png"},
        {"file": "eA==", "filename": "\ud800"},
        {"file": "eA==", "content_type": "text/html\r\nX-Evil: 1"},
        {"file": "eA==", "content_type": "nonsense"},
        {"file": "eA==", "content_type": 3},
        {"file": "eA==", "text": "x"},
        {"file": "eA==", "more": "x"},
        {"filename": "x"},
        {},
        {"text": {"a": 1}},
        {"json": "\ud800"},
        "\ud800",
        [["nested"]],
    ],
)
async def test_a_part_that_cannot_be_sent_is_a_mapping_error(bench, upstream, failure, value):
    text, told = failure(await upload(bench, value))
    assert told["stage"] == "mapping"
    assert "input_mapping.body.f" in text
    assert upstream.seen == []


async def test_multipart_needs_an_object_and_has_the_limit_of_all_bodies(bench, upstream, failure):
    text, _ = failure(await upload(bench, "x", input_mapping={"body": "=args.q"}))
    assert "a form needs an object" in text
    _, told = failure(await upload(bench, {"\n": "x"}, input_mapping={"body": "=args.q"}))
    assert told["stage"] == "mapping"
    config = {"limits": {"request_bytes": 100}}
    text, _ = failure(await upload(bench, "x" * 100, execution_config=config))
    assert "larger than 100 bytes" in text
    assert upstream.seen == []


async def test_a_media_type_of_multipart_keeps_its_boundary(bench, upstream):
    await upload(bench, "x", target={**MULTIPART, "media_type": "multipart/mixed"})
    assert upstream.last.header("content-type").startswith("multipart/mixed; boundary=")
    for target in ({**MULTIPART, "media_type": "text/plain"}, {**XML, "media_type": "multipart/x"}):
        with pytest.raises(OperationError, match=r"target\.media_type"):
            bench.compile(target=target, input_mapping={"body": {"a": 1}})


async def test_an_xml_body_is_written_from_a_tree(bench, upstream):
    upstream.says(b'<r ok="1"><id>7</id></r>', kind="application/xml; charset=utf-8")
    result = await bench.call(
        {"q": "<b>&", "n": ["1", "2"]},
        target=XML,
        input_mapping={"body": {"order": {"@n": "=args.q", "item": "=args.n", "t": "=args.q"}}},
        output_mapping={"result": {"id": "=body.r.id", "ok": '=body.r."@ok"'}},
    )
    assert upstream.last.body.decode() == (
        '<?xml version="1.0" encoding="UTF-8"?><order n="&lt;b&gt;&amp;">'
        "<item>1</item><item>2</item><t>&lt;b&gt;&amp;</t></order>"
    )
    assert upstream.last.header("content-type") == "application/xml"
    assert upstream.last.header("accept").startswith("application/xml, ")
    assert result.structured_content == {"id": "7", "ok": "1"}
    await bench.call(
        {"q": "x"},
        target={**XML, "media_type": "application/soap+xml"},
        input_mapping={"body": {"a": "=args.q"}},
    )
    assert upstream.last.header("content-type") == "application/soap+xml"


async def test_a_value_cannot_become_markup(bench, upstream, failure):
    mapping = {"body": {"a": "=args.q"}}
    for value in ({"b><evil/><b": "x"}, {"!ENTITY x": "1"}, "\x00", "\ud800", [1, 2], {"@a": {}}):
        text, told = failure(await bench.call({"q": value}, target=XML, input_mapping=mapping))
        assert told["stage"] == "mapping"
        assert "input_mapping.body" in text
    assert upstream.seen == []


def test_a_tree_that_is_no_xml_is_refused_when_compiled(make_bench):
    bench = make_bench("http://127.0.0.1:1")
    for body in ({"a": 1, "b": 2}, {"a": {"b c": 1}}):
        with pytest.raises(OperationError, match=r"input_mapping\.body"):
            bench.compile(target=XML, input_mapping={"body": body})


@pytest.mark.parametrize(
    "body",
    [
        b"<a>",
        b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
        b"<a>" * 500 + b"</a>" * 500,
    ],
)
async def test_an_xml_answer_that_is_not_safe_to_read_is_a_malformed_reply(
    bench, upstream, failure, body
):
    upstream.says(body, kind="text/xml")
    text, told = failure(await bench.call())
    assert text.startswith("[adapter_execution] the upstream's answer is not usable XML: it ")
    assert told["code"] == "malformed_reply"


async def test_an_xml_failure_is_the_service_failing(bench, upstream, failure):
    upstream.says(b"<message>no such lead</message>", status=404, kind="application/problem+xml")
    text, _ = failure(await bench.call())
    assert "answered 404: no such lead." in text
    upstream.says(b"<broken", status=500, kind="application/xml")
    assert failure(await bench.call())[1]["stage"] == "external_service"


async def test_a_page_for_people_is_no_answer_even_as_xml(bench, upstream, failure):
    upstream.says(b"<html/>", kind="application/xhtml+xml")
    assert failure(await bench.call())[1]["code"] == "unexpected_content_type"


@pytest.mark.parametrize(("kind", "block"), [("image/png", "image"), ("audio/wav", "audio")])
async def test_a_picture_or_sound_is_what_it_is(bench, upstream, kind, block):
    data = b"\x89PNG\r\n\x00\xff"
    upstream.says(data, kind=kind)
    result = await bench.call()
    assert result.is_error is None
    [content] = result.content
    assert type(content).__name__.lower() == f"{block}content"
    assert base64.b64decode(content.data) == data
    assert content.mime_type == kind


async def test_a_picture_that_is_mapped_is_not_shown_twice(bench, upstream):
    upstream.says(b"GIF", kind="image/gif")
    block = {"kind": "image", "data": "=body", "mime_type": '=headers."content-type"'}
    result = await bench.call(output_mapping={"content": [block]})
    assert [(block.data, block.mime_type) for block in result.content] == [("R0lG", "image/gif")]


@pytest.mark.parametrize("kind", ["application/octet-stream", "application/pdf", "image/svg+xml"])
async def test_bytes_reach_mappings_as_base64_with_their_type(bench, upstream, kind):
    upstream.says(b"\x00\xff<", kind=kind)
    mapping = {"result": {"data": "=body", "kind": '=headers."content-type"'}}
    result = await bench.call(output_mapping=mapping)
    assert result.structured_content == {"data": "AP88", "kind": kind}


async def test_a_failure_in_bytes_is_still_a_failure(bench, upstream, failure):
    upstream.says(b"\x89", status=500, kind="image/png")
    assert failure(await bench.call())[1]["upstream_status"] == 500
