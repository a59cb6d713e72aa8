"""Tools: how they are listed, checked, called, and what comes back."""

import json
from dataclasses import dataclass

import pytest
import trio

from mcp_trio import MCPServer, ToolError
from mcp_trio.json_schema import SchemaError
from mcp_trio.server.signature import SignatureError
from mcp_trio.wire import AudioContent, CallToolResult, ImageContent, TextContent
from mcp_trio.wire.content import EmbeddedResource, ResourceContents, ResourceLink
from mcp_trio.wire.revisions import R2025_03_26, R2025_06_18
from tests.http.tools import make_server
from tests.scenarios.manifest import scenario
from tests.scenarios.peers import house, peer_of


async def listed(peer):
    return (await peer.result("tools/list"))["tools"]


@scenario("T1")
async def test_the_list_of_tools_is_the_same_for_everybody(transport, revision):
    server, record = make_server()
    async with house(server, transport) as place:
        one, two = await place.connect(revision), await place.connect(revision, {"roots": {}})
        first = await listed(one)
        assert [tool["name"] for tool in first][:3] == ["add", "wait", "report"]
        record.release.set()
        for tool in ("wait", "fail"):
            await one.call(tool)
        assert await listed(one) == await listed(two) == first
        assert "tools" in (await two.offer())["capabilities"]


@scenario("T2")
async def test_names_of_tools_are_short_plain_and_unique(transport, revision):
    server = MCPServer("named")
    good = ["a", "A", "get_user-2.x", "x" * 128]
    for name in good:
        server.add_tool(lambda: "x", name=name)
    for name in ("", "x" * 129, "a b", "a/b", "\u00fc", "a\n"):
        with pytest.raises(SignatureError):
            server.add_tool(lambda: "x", name=name)
    async with peer_of(server, transport, revision) as peer:
        assert [tool["name"] for tool in await listed(peer)] == good
        assert (await peer.error("tools/call", {"name": "GET_USER-2.X"}))["code"] == -32602


@scenario("T3")
async def test_every_tool_has_a_schema_of_an_object(transport, revision):
    server, _ = make_server()
    server.add_tool(lambda: "x", name="no_arguments")
    for schema in ({"type": "string"}, {"anyOf": [{"type": "object"}]}, {"type": ["object"]}):
        with pytest.raises(SchemaError):
            server.add_tool(lambda: "x", name="bad", input_schema=schema)
    async with peer_of(server, transport, revision) as peer:
        tools = {tool["name"]: tool for tool in await listed(peer)}
        assert "bad" not in tools
        for tool in tools.values():
            assert tool["inputSchema"]["type"] == "object"
            output = tool.get("outputSchema")
            assert output is None or output["type"] == "object"
        none = tools["no_arguments"]["inputSchema"]
        assert (none["type"], none["additionalProperties"]) == ("object", False)
        assert not none.get("properties")
        assert (await peer.call("no_arguments"))["content"][0]["text"] == "x"
        assert (await peer.call("no_arguments", {"more": 1}))["isError"] is True


@dataclass
class Place:
    city: str
    size: int


@scenario("T4")
async def test_structured_results_fit_their_schema_and_stand_in_text_too(transport, revision):
    server = MCPServer("structured")

    @server.tool
    async def place(wrong: bool = False) -> Place:
        return Place("Rome", "large" if wrong else 3)

    @server.tool
    async def number() -> int:
        return 7

    @server.tool
    async def refuse() -> Place:
        raise ToolError("no place")

    @server.tool
    async def by_hand() -> CallToolResult:
        return CallToolResult(structured_content={"x": 1})

    async with peer_of(server, transport, revision) as peer:
        schema = {tool["name"]: tool for tool in await listed(peer)}["place"]["outputSchema"]
        assert schema["type"] == "object"
        assert schema["properties"]["city"] == {"type": "string"}
        result = await peer.call("place")
        assert result["structuredContent"] == {"city": "Rome", "size": 3}
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        assert (await peer.call("number"))["structuredContent"] == {"result": 7}
        made = await peer.call("by_hand")
        assert made["structuredContent"] == {"x": 1}
        assert json.loads(made["content"][0]["text"]) == {"x": 1}
        for tool, arguments in (("place", {"wrong": True}), ("refuse", {})):
            failed = await peer.call(tool, arguments)
            assert failed["isError"] is True
            assert "structuredContent" not in failed


@scenario("T5")
async def test_content_comes_in_every_kind_or_in_words(transport, revision):
    server = MCPServer("content")

    @server.tool
    async def everything():
        return [
            TextContent(text="words"),
            ImageContent(data="AAAA", mime_type="image/png"),
            AudioContent(data="AAAA", mime_type="audio/wav"),
            EmbeddedResource(resource=ResourceContents(uri="test://x", text="x")),
            ResourceLink(uri="test://y", name="y"),
        ]

    async with peer_of(server, transport, revision) as peer:
        blocks = (await peer.call("everything"))["content"]
        has_audio, has_links = revision >= R2025_03_26, revision >= R2025_06_18
        assert [block["type"] for block in blocks] == [
            "text",
            "image",
            "audio" if has_audio else "text",
            "resource",
            "resource_link" if has_links else "text",
        ]
        assert blocks[1] == {"type": "image", "data": "AAAA", "mimeType": "image/png"}
        assert blocks[3]["resource"] == {"uri": "test://x", "text": "x"}
        if not has_links:
            assert "test://y" in blocks[4]["text"]


@scenario("T7")
async def test_an_unknown_tool_is_an_error_and_a_failing_one_a_result(transport, revision):
    server, _ = make_server()

    @server.tool
    async def full() -> str:
        raise ToolError("the disk is full")

    async with peer_of(server, transport, revision) as peer:
        for wrong in (
            {"name": "nope"},
            {},
            {"name": 7},
            {"name": "add", "arguments": 7},
            {"name": "add", "arguments": [1, 2]},
        ):
            answer = await peer.ask("tools/call", wrong)
            assert answer["error"]["code"] == -32602, wrong
        result = await peer.call("full")
        assert (result["isError"], result["content"][0]["text"]) == (True, "the disk is full")
        assert (await peer.call("fail"))["isError"] is True
        assert not (await peer.call("add", {"a": 1, "b": 1})).get("isError")


@scenario("T8")
async def test_a_tool_never_sees_arguments_that_do_not_fit(transport, revision):
    server, record = make_server()

    @server.tool
    async def strict(number: int, text: str = "") -> str:
        record.add("ran")
        return "ran"

    async with peer_of(server, transport, revision) as peer:
        for wrong in (
            {},
            {"number": "1"},
            {"number": 1.5},
            {"number": True},
            {"number": None},
            {"number": 1, "text": 2},
            {"number": 1, "other": 2},
        ):
            assert (await peer.call("strict", wrong))["isError"] is True, wrong
        assert record.events == []
        await peer.call("strict", {"number": 1})
        assert record.events == ["ran"]


@scenario("A4")
async def test_the_model_is_told_which_argument_does_not_fit(transport, revision):
    server, _ = make_server()
    async with peer_of(server, transport, revision) as peer:
        result = await peer.call("add", {"a": "secret"})
        assert result["isError"] is True
        text = result["content"][0]["text"]
        assert "/a" in text
        assert "b" in text
        assert "secret" not in text


DIALECT = "https://json-schema.org/draft/2020-12/schema"
OLDER = "http://json-schema.org/draft-07/schema#"
PAIR = {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}


@scenario("J1")
async def test_schemas_are_2020_12_unless_they_say_otherwise(transport, revision):
    server = MCPServer("schemas")

    async def take(pair: object = None) -> str:
        return "taken"

    new = {
        "type": "object",
        "properties": {"pair": {"$ref": "#/$defs/pair"}},
        "$defs": {"pair": {"$anchor": "here", **PAIR}},
        "unevaluatedProperties": False,
        "x-unknown": {"kept": [1, None]},
    }
    items = [{"type": "string"}, {"type": "integer"}]
    old = {
        "$schema": OLDER,
        "type": "object",
        "properties": {"pair": {"type": "array", "items": items, "additionalItems": False}},
    }
    named = {"$schema": DIALECT, **new}
    for name, schema in (("new", new), ("named", named), ("old", old)):
        server.add_tool(take, name=name, input_schema=schema)
    with pytest.raises(SchemaError, match="schema"):
        server.add_tool(
            take, name="odd", input_schema={"$schema": "https://example.com/x", "type": "object"}
        )
    with pytest.raises(SchemaError):
        server.add_tool(
            take, name="bad", input_schema={"type": "object", "properties": {"a": {"type": "no"}}}
        )
    async with peer_of(server, transport, revision) as peer:
        schemas = {tool["name"]: tool["inputSchema"] for tool in await listed(peer)}
        assert schemas == {"new": new, "named": named, "old": old}
        for name in schemas:
            assert not (await peer.call(name, {"pair": ["a", 1]})).get("isError"), name
            for wrong in ([1, "a"], ["a", 1, 2], "a"):
                assert (await peer.call(name, {"pair": wrong}))["isError"] is True, (name, wrong)


@scenario("J2")
async def test_no_schema_is_fetched(transport, revision):
    server = MCPServer("schemas")

    async def take(x: object = None) -> str:
        return "taken"

    async with trio.open_nursery() as nursery:
        asked = []

        async def web(stream):
            asked.append(await stream.receive_some())
            await stream.aclose()

        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, web, listeners)
        url = f"http://127.0.0.1:{port}/schema.json"
        for part in ({"$ref": url}, {"$dynamicRef": url}, {"items": {"$ref": f"{url}#/x"}}):
            with pytest.raises(SchemaError):
                server.add_tool(
                    take, name="far", input_schema={"type": "object", "properties": {"x": part}}
                )
        server.add_tool(take, name="near", input_schema={"$id": url, "type": "object"})
        async with peer_of(server, transport, revision) as peer:
            assert [tool["name"] for tool in await listed(peer)] == ["near"]
            await peer.call("near", {"x": 1})
        assert asked == []
        nursery.cancel_scope.cancel()


@scenario("J3")
async def test_schemas_are_bounded(transport, revision):
    server, _ = make_server()

    async def take(x: object = None) -> str:
        return "taken"

    deep = {"type": "object"}
    for _ in range(100):
        deep = {"type": "object", "properties": {"x": deep}}
    wide = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(30_000)}}
    for schema in (deep, wide):
        with pytest.raises(SchemaError):
            server.add_tool(take, name="huge", input_schema=schema)
    async with peer_of(server, transport, revision) as peer:
        assert "huge" not in [tool["name"] for tool in await listed(peer)]
        wrong = {f"w{number}": number for number in range(1000)}
        text = (await peer.call("add", wrong))["content"][0]["text"]
        assert len(text) < 10_000
