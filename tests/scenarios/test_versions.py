"""Which version is spoken, what is offered, and two eras beside each other."""

import trio.testing

from mcp_trio import MCPServer
from mcp_trio.wire import REVISIONS
from mcp_trio.wire.revisions import HANDSHAKE
from tests.http.tools import make_server
from tests.messages import initialize
from tests.scenarios.manifest import scenario
from tests.scenarios.peers import CAPABILITIES, CLIENT, VERSION, peer_of
from tests.scenarios.servers import MODEL, full_server

UNKNOWN = ("3000-01-01", "1999-01-01", "2026-07-29", "zzzz", "", "2025-11-25 ", "\u0662")
"""Newer, older and stranger than every known one: none may be ordered among them."""


@scenario("V1")
async def test_the_version_asked_for_is_spoken(transport, revision):
    server, _ = make_server()
    async with peer_of(server, transport, revision) as peer:
        assert peer.welcome["protocolVersion"] == revision.date
        assert peer.welcome["serverInfo"]["name"] == "test"
        await peer.result("tools/list")


@scenario("V1", "X9", revisions=HANDSHAKE)
async def test_another_version_is_offered_for_one_that_nobody_speaks(transport, revision):
    server, _ = make_server()
    for asked in (*UNKNOWN, "2026-07-28"):
        async with peer_of(server, transport, revision, opened=False) as peer:
            await peer.say(initialize(asked, id_="i"))
            welcome = (await peer.answer("i"))["result"]
            assert welcome["protocolVersion"] == HANDSHAKE[0].date


@scenario("V2", "X9", revisions=(REVISIONS[0],))
async def test_a_version_that_nobody_speaks_is_refused_with_those_that_are(transport, revision):
    server, _ = make_server()
    async with peer_of(server, transport, revision) as peer:
        for asked in (*UNKNOWN[:5], "2025-11-25", "2024-11-05"):
            if transport == "http":
                peer.headers = {"mcp-protocol-version": asked}
            answer = await peer.ask("tools/list", meta={VERSION: asked})
            assert answer["error"]["code"] == -32022
            assert answer["error"]["data"] == {
                "supported": [revision.date for revision in REVISIONS],
                "requested": asked,
            }
            assert peer.status(answer["id"]) == (400 if transport == "http" else None)


@scenario("V3")
async def test_the_server_tells_what_it_speaks_and_offers(transport, revision):
    server = MCPServer("told", version="7", instructions="Be kind.")
    server.add_tool(lambda: "x", name="x")
    async with peer_of(server, transport, revision) as peer:
        told = await peer.result("server/discover")
        error = await peer.error("tools/list", meta={VERSION: "3000-01-01"})
        if transport != "http":
            assert told["supportedVersions"] == error["data"]["supported"]
        assert told["supportedVersions"] == [revision.date for revision in REVISIONS]
        assert told["instructions"] == "Be kind."
        assert told["capabilities"] == {"tools": {"listChanged": True}, "logging": {}}
        assert told["_meta"]["io.modelcontextprotocol/serverInfo"]["version"] == "7"


PARTS = {
    "tools": ("tools/list", "tools/call"),
    "prompts": ("prompts/list", "prompts/get"),
    "resources": ("resources/list", "resources/read", "resources/templates/list"),
    "completions": ("completion/complete",),
}


@scenario("V4")
async def test_what_is_not_declared_does_not_exist(transport, revision):
    bare = MCPServer("bare")
    full, _ = full_server()
    for server, present in ((bare, False), (full, True)):
        async with peer_of(server, transport, revision) as peer:
            declared = (await peer.offer())["capabilities"]
            for capability, methods in PARTS.items():
                if capability == "completions" and revision is REVISIONS[-1]:
                    continue  # the first revision has no name for it
                assert (capability in declared) is present
                for method in methods:
                    answer = await peer.ask(method, {})
                    code = answer.get("error", {}).get("code")
                    assert (code == -32601) is not present, method
                    if transport == "http" and revision.stateless and not present:
                        assert peer.status(answer["id"]) == 404


@scenario("V5")
async def test_both_eras_are_served_beside_each_other(transport, revision):
    server, record = make_server()
    newest = REVISIONS[0]
    meta = {VERSION: newest.date, CAPABILITIES: {}}
    async with peer_of(server, transport, revision) as peer:
        waiting = await peer.start_call("wait", id_="waiting")
        if transport == "http":
            other = await peer.http.stateless("server/discover")
            session = await peer.http.open_session("2025-06-18")
            assert other.json()["result"]["resultType"] == "complete"
            ping = await session.post({"jsonrpc": "2.0", "id": 1, "method": "ping"})
            assert ping.json()["result"] == {}
        elif revision.stateless:
            await peer.say(initialize("2025-06-18", id_="i"))
            assert (await peer.answer("i"))["result"]["protocolVersion"] == "2025-06-18"
            await peer.say({"jsonrpc": "2.0", "id": "l", "method": "tools/list"})
            assert "ttlMs" not in (await peer.answer("l"))["result"]
            assert "ttlMs" in await peer.result("tools/list")
        else:
            assert (await peer.result("tools/list", meta=meta))["resultType"] == "complete"
            assert await peer.result("ping") == {}
            assert (await peer.error("ping", meta=meta))["code"] == -32601
        record.release.set()
        result = (await peer.answer(waiting))["result"]
        assert ("resultType" in result) is revision.stateless


@scenario("V6")
async def test_methods_of_the_other_era_are_unknown(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision) as peer:
        for method, params in {
            "initialize": initialize()["params"],
            "ping": {},
            "logging/setLevel": {"level": "info"},
            "resources/subscribe": {"uri": "test://note"},
            "resources/unsubscribe": {"uri": "test://note"},
        }.items():
            answer = await peer.ask(method, params)
            assert answer["error"]["code"] == -32601, method
            assert peer.status(answer["id"]) == (404 if transport == "http" else None)


@scenario("V11")
async def test_no_extension_is_offered_unasked_and_clients_with_some_are_served(
    transport, revision
):
    server, _ = make_server()
    extensions = {"extensions": {"com.example/x": {"y": 1}, "io.modelcontextprotocol/tasks": {}}}
    async with peer_of(server, transport, revision, extensions) as peer:
        assert "extensions" not in (await peer.offer())["capabilities"]
        assert "tasks" not in (await peer.offer())["capabilities"]
        assert (await peer.call("add", {"a": 1, "b": 2}))["content"][0]["text"] == "3"
        assert (await peer.error("tasks/get", {"taskId": "x"}))["code"] == -32601


@scenario("V12")
async def test_a_capability_that_is_needed_is_named(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision) as peer:
        await peer.call("think", meta={CAPABILITIES: MODEL})
        answer = await peer.ask("tools/call", {"name": "think"})
        assert answer["error"]["code"] == -32021
        assert answer["error"]["data"] == {"requiredCapabilities": MODEL}
        assert peer.status(answer["id"]) == (400 if transport == "http" else None)


@scenario("V13")
async def test_a_client_is_served_whatever_it_calls_itself(transport, revision):
    server, _ = make_server()
    found = []
    for name in ("one", "Claude", "", "\u202e"):
        async with peer_of(server, transport, revision, opened=False) as peer:
            if revision.stateless:
                peer.meta[CLIENT] = {"name": name, "version": "1"}
            else:
                hello = initialize(revision.date, id_="i")
                hello["params"]["clientInfo"]["name"] = name
                await peer.say(hello)
                await peer.answer("i")
            await trio.testing.wait_all_tasks_blocked()
            called = await peer.call("add", {"a": 1, "b": 1})
            found.append((await peer.result("tools/list"), called))
    assert all(each == found[0] for each in found)
