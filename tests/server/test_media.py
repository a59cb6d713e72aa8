"""Pictures, sounds, files and links: from a value of a handler to the wire."""

import base64
import os

import pytest
import trio
import trio.testing

from mcp_trio import Audio, File, Image, Link, MCPClient, MCPServer
from mcp_trio.wire import REVISIONS
from mcp_trio.wire.content import Annotations
from tests.scenarios.worlds import world

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
WAV = b"RIFF\x00\x00\x00\x00WAVEfmt "


def b64(data):
    return base64.b64encode(data).decode()


async def content_of(value, revision=REVISIONS[0]):
    server = MCPServer("s")

    @server.tool
    async def give():
        return value

    async with world(server, "memory", revision) as client:
        answer = await client.call("tools/call", {"name": "give"})
    return answer["content"]


async def test_pictures_and_sounds_from_bytes_and_files(tmp_path):
    (tmp_path / "x.jpg").write_bytes(b"no signature")
    (tmp_path / "y.png").write_bytes(PNG)
    assert await content_of(Image(PNG)) == [
        {"type": "image", "data": b64(PNG), "mimeType": "image/png"}
    ]
    assert (await content_of(Image(path=tmp_path / "x.jpg")))[0]["mimeType"] == "image/jpeg"
    assert (await content_of(Image(path=str(tmp_path / "y.png"))))[0]["data"] == b64(PNG)
    assert (await content_of(Image(b"?", mime_type="image/x-own")))[0]["mimeType"] == "image/x-own"
    assert await content_of(
        [Audio(WAV), "and", Image(PNG, annotations=Annotations(priority=1))]
    ) == [
        {"type": "audio", "data": b64(WAV), "mimeType": "audio/wav"},
        {"type": "text", "text": "and"},
        {
            "type": "image",
            "data": b64(PNG),
            "mimeType": "image/png",
            "annotations": {"priority": 1.0},
        },
    ]


@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBP", "image/webp"),
    ],
)
async def test_a_picture_shows_what_it_is(data, mime_type):
    assert (await content_of(Image(data)))[0]["mimeType"] == mime_type


async def test_files_are_text_where_they_are_and_base64_elsewhere(tmp_path):
    (tmp_path / "a b.txt").write_text("héllo")
    (tmp_path / "c.bin").write_bytes(b"\xff\x00")
    (tmp_path / "d.json").write_text("{}")
    (text,) = await content_of(File(path=tmp_path / "a b.txt"))
    assert text["type"] == "resource"
    assert text["resource"]["text"] == "héllo"
    assert text["resource"]["mimeType"] == "text/plain"
    assert text["resource"]["uri"] == (tmp_path / "a b.txt").as_uri()
    (binary,) = await content_of(File(path=tmp_path / "c.bin"))
    assert binary["resource"]["blob"] == b64(b"\xff\x00")
    assert binary["resource"]["mimeType"] == "application/octet-stream"
    (json,) = await content_of(File(path=tmp_path / "d.json", uri="test://d"))
    assert json["resource"] == {"uri": "test://d", "mimeType": "application/json", "text": "{}"}
    (given,) = await content_of(File(PNG, uri="test://p.png"))
    assert (given["resource"]["mimeType"], given["resource"]["blob"]) == ("image/png", b64(PNG))


async def test_links_have_a_name_and_a_type():
    (link,) = await content_of(Link("file:///a/b%20c.md", title="Notes", size=3))
    assert link == {
        "type": "resource_link",
        "uri": "file:///a/b%20c.md",
        "name": "b c.md",
        "title": "Notes",
        "mimeType": "text/markdown",
        "size": 3,
    }
    assert (await content_of(Link("note:///")))[0]["name"] == "note:///"


@pytest.mark.parametrize("revision", REVISIONS, ids=str)
async def test_revisions_that_do_not_know_them_get_a_line_of_text(revision):
    kinds = [
        block["type"]
        for block in await content_of([Image(PNG), Audio(WAV), Link("note:///a")], revision)
    ]
    assert kinds == {
        "2024-11-05": ["image", "text", "text"],
        "2025-03-26": ["image", "audio", "text"],
    }.get(revision.date, ["image", "audio", "resource_link"])


async def test_prompts_and_resources_take_them_too(tmp_path):
    (tmp_path / "n.txt").write_text("note")
    server = MCPServer("s")
    server.add_prompt(lambda: ["look:", Image(PNG)], name="look")
    server.add_resource("test://n", lambda: File(path=tmp_path / "n.txt"), name="n")
    server.add_resource("test://p", lambda: Image(PNG), name="p")
    server.add_resource(
        "test://both", lambda: [File(b"1", uri="test://1"), File(b"2", uri="test://2")], name="b"
    )
    async with MCPClient(server) as client:
        got = await client.call("prompts/get", {"name": "look"})
        assert [message["content"]["type"] for message in got["messages"]] == ["text", "image"]

        async def read(uri):
            return (await client.call("resources/read", {"uri": uri}))["contents"]

        # What is read has the URI it was read by.
        assert await read("test://n") == [
            {"uri": "test://n", "mimeType": "text/plain", "text": "note"}
        ]
        assert await read("test://p") == [
            {"uri": "test://p", "mimeType": "image/png", "blob": b64(PNG)}
        ]
        assert [contents["uri"] for contents in await read("test://both")] == [
            "test://1",
            "test://2",
        ]


async def test_a_return_annotation_promises_no_structured_content():
    server = MCPServer("s")

    @server.tool
    async def chart() -> Image:
        return Image(PNG)

    @server.tool
    async def several() -> list[Image | str]:
        return [Image(PNG), "x"]

    async with MCPClient(server) as client:
        for tool in [tool async for tool in client.tools()]:
            assert tool.output_schema is None
            assert not (await client.call_tool(tool.name)).is_error


@pytest.mark.parametrize(
    "value", [Image(b"unknown"), Audio(PNG), Image(path="/nowhere/x.png"), File(path="/nowhere")]
)
async def test_what_cannot_be_sent_is_a_failure_of_the_tool_without_its_reasons(value, caplog):
    server = MCPServer("s")
    server.add_tool(lambda: value, name="give")
    async with MCPClient(server) as client:
        result = await client.call_tool("give")
    assert result.is_error
    assert "nowhere" not in result.content[0].text


@pytest.mark.parametrize("kind", [Image, Audio, File])
def test_it_is_either_bytes_or_a_file(kind):
    with pytest.raises(ValueError, match="either"):
        kind()
    with pytest.raises(ValueError, match="either"):
        kind(b"", path="x")


def test_bytes_need_a_uri_to_be_a_file():
    with pytest.raises(ValueError, match="uri"):
        File(b"")


async def test_a_file_that_cannot_be_read_now_does_not_hold_a_cancelled_call(tmp_path):
    pipe, began = tmp_path / "pipe", trio.Event()
    os.mkfifo(pipe)  # opening it waits for somebody who writes
    server, ended = MCPServer("s"), trio.Event()

    @server.tool
    async def give():
        began.set()
        return File(path=pipe)

    @server.middleware
    async def watch(context, call_next):
        try:
            return await call_next(context)
        finally:
            if began.is_set():
                ended.set()

    async with MCPClient(server) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "give")
        await began.wait()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        try:
            with trio.CancelScope(shield=True), trio.fail_after(5):
                await ended.wait()
        finally:
            # The thread that was left behind, or the call that still waits, can go.
            os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))
