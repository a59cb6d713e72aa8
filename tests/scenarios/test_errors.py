"""Codes and statuses of what goes wrong, and the `_meta` of what goes right."""

import re

from mcp_trio import MCPServer
from tests.messages import initialize
from tests.scenarios.manifest import scenario
from tests.scenarios.peers import CAPABILITIES, CLIENT, VERSION, peer_of
from tests.scenarios.servers import MODEL, full_server, listen, uses

SERVER = "io.modelcontextprotocol/serverInfo"


async def everything_wrong(peer):
    """Make every kind of mistake; gives code and id of each answer by what was wrong."""
    found = {}
    mistakes = {
        "method": ("no/such", {}, {}),
        "tool": ("tools/call", {"name": "nope"}, {}),
        "prompt": ("prompts/get", {"name": "nope"}, {}),
        "params": ("tools/call", {"name": 7}, {}),
        "cursor": ("tools/list", {"cursor": "x"}, {}),
        "resource": ("resources/read", {"uri": "test://nope"}, {}),
        "internal": ("prompts/get", {"name": "broken"}, {}),
        "capability": ("tools/call", {"name": "think"}, {}),
    }
    if peer.revision.stateless:
        mistakes["no capabilities"] = ("tools/list", {}, {CAPABILITIES: None})
        mistakes["level"] = ("tools/list", {}, {"io.modelcontextprotocol/logLevel": "loud"})
    else:
        mistakes["level"] = ("logging/setLevel", {"level": "loud"}, {})
        mistakes["twice"] = ("initialize", initialize()["params"], {})
    for what, (method, params, meta) in mistakes.items():
        answer = await peer.ask(method, params, meta=meta)
        found[what] = (answer["error"]["code"], answer["id"])
    for what, noise in {"json": b"{", "request": b"7"}.items():
        found[what] = ((await peer.refused(noise))["code"], None)
    return found


def broken_server():
    server, _ = full_server()

    @server.prompt
    async def broken() -> str:
        raise RuntimeError("secret")

    return server


@scenario("19")
async def test_what_goes_wrong_is_said_in_the_code_of_the_era(transport, revision):
    new = revision.stateless
    codes = {
        "method": -32601,
        "tool": -32602,
        "prompt": -32602,
        "params": -32602,
        "cursor": -32602,
        "resource": -32602 if new else -32002,
        "internal": -32603,
        "capability": -32021 if new else -32601,
        "level": -32602,
        "json": -32700,
        "request": -32600,
        **({"no capabilities": -32602} if new else {"twice": -32600}),
    }
    async with peer_of(broken_server(), transport, revision) as peer:
        found = await everything_wrong(peer)
        assert {what: code for what, (code, _) in found.items()} == codes
        if transport != "http":
            return
        statuses = {what: peer.status(id_) for what, (_, id_) in found.items() if id_ is not None}
        before_dispatch = {"method": 404, "capability": 400, "no capabilities": 400}
        for what, status in statuses.items():
            if not new:
                assert status in {200, 400}, what
            elif what in before_dispatch:
                assert status == before_dispatch[what]
            else:
                # A handler's error says nothing about the connection.
                assert status == (400 if what in {"params", "level"} else 200), what
        assert peer.posts[None].status == 400


@scenario("A8")
async def test_no_code_means_something_else(transport, revision):
    standard = {-32700, -32600, -32601, -32602, -32603}
    own = {-32020, -32021, -32022} if revision.stateless else {-32002}
    async with peer_of(broken_server(), transport, revision) as peer:
        await everything_wrong(peer)
        if revision.stateless:
            await peer.error("tools/list", meta={VERSION: "3000-01-01"})
        for message in peer.heard:
            if "error" in message:
                code = message["error"]["code"]
                # Applications have the numbers outside of the reserved block.
                assert code in standard | own or not -32768 <= code <= -32000, message


KEY = re.compile(
    r"([A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?)*/)?"
    r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?"
)


def meta_keys(value):
    """Every key of every `_meta` in a message."""
    if isinstance(value, dict):
        for name, child in value.items():
            if name == "_meta":
                yield from child
            yield from meta_keys(child)
    elif isinstance(value, list):
        for child in value:
            yield from meta_keys(child)


@scenario("ME1")
async def test_meta_keys_are_well_formed_and_reserved_ones_are_the_protocols(transport, revision):
    server = broken_server()
    async with peer_of(server, transport, revision, MODEL) as peer:
        await listen(peer, toolsListChanged=True)
        for method, params in uses(revision).items():
            await peer.ask(method, params)
        for tool in ("fail", "report", "chat"):
            await peer.call(tool, meta={"progressToken": tool})
        await peer.ask("prompts/get", {"name": "broken"})
        keys = set(meta_keys(peer.heard))
        for key in keys:
            assert KEY.fullmatch(key), key
            prefix = key.partition("/")[0].split(".")
            if prefix[1:2] in (["modelcontextprotocol"], ["mcp"]):
                assert key in {SERVER, "io.modelcontextprotocol/subscriptionId"}
        assert (SERVER in keys) is revision.stateless


@scenario("ME2")
async def test_reserved_meta_keys_mean_what_they_mean(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision) as peer:
        keys = {
            "progressToken": "mine",
            "io.modelcontextprotocol/related-task": {"taskId": "x"},
            "io.modelcontextprotocol/model-immediate-response": "soon",
            "io.modelcontextprotocol/subscriptionId": 7,
            "io.modelcontextprotocol/serverInfo": {"name": "me"},
            "io.modelcontextprotocol/future": 1,
        }
        result = await peer.call("report", meta=keys)
        told = peer.notes("notifications/progress")
        assert [note["params"]["progressToken"] for note in told] == ["mine", "mine"]
        assert "mine" not in str(result)
        if revision.stateless:
            assert result["_meta"][SERVER] == {"name": "test", "version": "1"}
        else:
            # There a level in a request means nothing.
            level = {"io.modelcontextprotocol/logLevel": "loud"}
            assert not (await peer.call("add", {"a": 1, "b": 1}, meta=level)).get("isError")


@scenario("ME3")
async def test_a_result_says_who_answers_and_trace_keys_are_taken(transport, revision):
    server, _ = full_server()
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with peer_of(server, transport, revision) as peer:
        for trace in (
            {"traceparent": parent, "tracestate": "a=1,b=2", "baggage": "k=v"},
            {"traceparent": "x", "tracestate": 7, "baggage": {}},
            {"traceparent": None},
            {"traceparent": parent.replace("0af7", "0000").replace("-b7ad", "-0000") * 50},
        ):
            for method, params in uses(revision).items():
                result = await peer.result(method, params, meta=trace)
                assert result["_meta"][SERVER] == {"name": "test", "version": "1"}
        assert (await peer.call("fail"))["_meta"][SERVER]["name"] == "test"


@scenario("A7")
async def test_who_answers_stands_in_meta_and_who_asks_may_be_unsaid(transport, revision):
    server = MCPServer("named", version="3", title="Named", description="It has a name.")
    async with peer_of(server, transport, revision) as peer:
        for client in (None, 7, {}, {"name": 1}):
            peer.meta[CLIENT] = client
            told = await peer.result("server/discover")
            assert "serverInfo" not in told
            assert told["_meta"][SERVER] == {
                "name": "named",
                "version": "3",
                "title": "Named",
                "description": "It has a name.",
            }
        del peer.meta[CLIENT]
        assert await peer.result("server/discover")
