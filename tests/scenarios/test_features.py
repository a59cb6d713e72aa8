"""Resources, prompts and completion."""

import base64

import pytest
import trio.testing

from mcp_trio import MCPServer
from mcp_trio.framing.uri_template import UriTemplateError
from mcp_trio.wire import ImageContent, ResourceContents
from mcp_trio.wire.revisions import R2025_03_26
from tests.http.tools import Record
from tests.scenarios.manifest import scenario
from tests.scenarios.peers import peer_of
from tests.scenarios.servers import full_server


@scenario("O1")
async def test_resources_are_listed_and_read(transport, revision):
    server = MCPServer("resources")
    data = bytes(range(256))
    server.add_resource("test://text", lambda: "words", name="text", mime_type="text/markdown")
    server.add_resource("test://data", lambda: data, name="data")
    server.add_resource("test://empty", lambda: "", name="empty")
    parts = [ResourceContents(uri=f"test://many/{i}", text=str(i)) for i in range(2)]
    server.add_resource("test://many", lambda: parts, name="many")

    @server.resource("test://user/{name}{?full}")
    async def user(name: str, full: bool = False) -> str:
        return f"{name} {full}"

    async with peer_of(server, transport, revision) as peer:
        assert "resources" in (await peer.offer())["capabilities"]
        resources = (await peer.result("resources/list"))["resources"]
        assert [each["uri"] for each in resources] == [
            "test://text",
            "test://data",
            "test://empty",
            "test://many",
        ]
        (template,) = (await peer.result("resources/templates/list"))["resourceTemplates"]
        assert template["uriTemplate"] == "test://user/{name}{?full}"

        async def read(uri):
            return (await peer.result("resources/read", {"uri": uri}))["contents"]

        (text,) = await read("test://text")
        assert text == {"uri": "test://text", "mimeType": "text/markdown", "text": "words"}
        (blob,) = await read("test://data")
        assert base64.b64decode(blob["blob"]) == data
        assert "text" not in blob
        (empty,) = await read("test://empty")
        assert empty["text"] == ""
        assert [each["uri"] for each in await read("test://many")] == [p.uri for p in parts]
        (one,) = await read("test://user/ann%20b?full=true")
        assert (one["uri"], one["text"]) == ("test://user/ann%20b?full=true", "ann b True")


@scenario("O2")
async def test_a_resource_that_does_not_exist_is_an_error(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision) as peer:
        for uri in (
            "test://nope",
            "test://user/",
            "test://user/a/b",
            "file:///etc/passwd",
            "",
            "x",
        ):
            error = await peer.error("resources/read", {"uri": uri})
            assert error["code"] == (-32602 if revision.stateless else -32002), uri
            assert error["data"]["uri"] == uri
        assert (await peer.error("resources/read", {}))["code"] == -32602
        assert (await peer.error("resources/read", {"uri": 7}))["code"] == -32602


@scenario("O3")
async def test_a_uri_does_not_reach_outside_of_its_template(transport, revision):
    server, record = MCPServer("files"), Record()

    @server.resource("file:///data/{name}")
    async def one(name: str) -> str:
        record.add(name)
        return name

    @server.resource("file:///tree/{+path}")
    async def tree(path: str) -> str:
        record.add(path)
        return path

    with pytest.raises(UriTemplateError):
        server.add_resource("file:///{a", lambda a: a, name="broken")
    async with peer_of(server, transport, revision) as peer:
        for uri in (
            "file:///data/..",
            "file:///data/%2e%2e",
            "file:///data/..%2fetc",
            "file:///data/..%5cetc",
            "file:///data/a%00b",
            "file:///data/../etc/passwd",
            "file:///data/a/../../etc",
            "file:///tree/a/../../etc",
            "file:///tree/%2e%2e/etc",
            "file:///tree/a%2f..%2f..%2fetc",
            "file:///tree/..\\etc",
            "file:///other/x",
        ):
            assert await peer.error("resources/read", {"uri": uri}), uri
        assert record.events == []
        for uri in ("file:///data/a..b", "file:///tree/a/b.txt"):
            await peer.result("resources/read", {"uri": uri})
        assert record.events == ["a..b", "a/b.txt"]


@scenario("O4")
async def test_prompts_are_listed_and_filled_with_strings(transport, revision):
    server, _ = full_server()

    @server.prompt
    async def picture() -> object:
        return ["Look:", ImageContent(data="AAAA", mime_type="image/png")]

    async with peer_of(server, transport, revision) as peer:
        greet, second = (await peer.result("prompts/list"))["prompts"]
        assert (greet["name"], second["name"]) == ("greet", "picture")
        wanted = {argument["name"]: argument["required"] for argument in greet["arguments"]}
        assert wanted == {"name": True, "tone": False}
        got = await peer.result("prompts/get", {"name": "greet", "arguments": {"name": "Ann"}})
        assert got["messages"] == [
            {"role": "user", "content": {"type": "text", "text": "Greet Ann, warm"}}
        ]
        seen = (await peer.result("prompts/get", {"name": "picture"}))["messages"][1]["content"]
        assert seen == {"type": "image", "data": "AAAA", "mimeType": "image/png"}
        for wrong in (
            {"name": "nope"},
            {},
            {"name": "greet"},
            {"name": "greet", "arguments": {"tone": "cold"}},
            {"name": "greet", "arguments": {"name": 7}},
            {"name": "greet", "arguments": {"name": "Ann", "other": "x"}},
        ):
            assert (await peer.error("prompts/get", wrong))["code"] == -32602, wrong


@scenario("O5")
async def test_arguments_of_known_prompts_and_templates_are_completed(transport, revision):
    server, _ = full_server()
    asked = []

    @server.completion("name", resource="test://user/{name}")
    async def users(typed, known):
        asked.append(dict(known))
        return [f"{typed}{number}" for number in range(150)]

    def complete(kind, target, argument, value="", **more):
        key = "name" if kind == "ref/prompt" else "uri"
        return {
            "ref": {"type": kind, key: target},
            "argument": {"name": argument, "value": value},
            **more,
        }

    async with peer_of(server, transport, revision) as peer:
        declared = (await peer.offer())["capabilities"]
        assert ("completions" in declared) is (revision >= R2025_03_26)

        async def ask(*args, **more):
            found = await peer.result("completion/complete", complete(*args, **more))
            return found["completion"]

        assert (await ask("ref/prompt", "greet", "name", "An"))["values"] == ["Ann", "Anna"]
        assert (await ask("ref/prompt", "greet", "tone"))["values"] == []
        many = await ask(
            "ref/resource", "test://user/{name}", "name", "u", context={"arguments": {"a": "b"}}
        )
        assert (len(many["values"]), many["total"], many["hasMore"]) == (100, 150, True)
        assert asked == [{"a": "b"}]
        for wrong in (
            complete("ref/prompt", "nope", "name"),
            complete("ref/resource", "test://nope", "name"),
            complete("ref/tool", "add", "a"),
            {"ref": {"type": "ref/prompt"}, "argument": {"name": "name", "value": ""}},
            {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name"}},
            {},
        ):
            assert (await peer.error("completion/complete", wrong))["code"] == -32602, wrong
    bare = MCPServer("bare")
    async with peer_of(bare, transport, revision) as peer:
        assert "completions" not in (await peer.offer())["capabilities"]
        refused = await peer.error("completion/complete", complete("ref/prompt", "greet", "name"))
        assert refused["code"] == -32601
        await trio.testing.wait_all_tasks_blocked()
