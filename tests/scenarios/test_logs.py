"""Log lines for the client: which ones, where, and what is never in them."""

import json

import trio.testing

from mcp_trio import Context
from mcp_trio.wire.notices import LOG_LEVELS
from tests.scenarios.manifest import scenario
from tests.scenarios.peers import peer_of
from tests.scenarios.servers import full_server

MESSAGE = "notifications/message"
LEVEL = "io.modelcontextprotocol/logLevel"


async def chat_at(peer, level, tool="chat"):
    """Have a tool log at a level; gives the lines of this call."""
    before = len(peer.notes(MESSAGE))
    if peer.revision.stateless:
        await peer.call(tool, meta={LEVEL: level})
    else:
        assert await peer.result("logging/setLevel", {"level": level}) == {}
        await peer.call(tool)
    return [note["params"] for note in peer.notes(MESSAGE)[before:]]


@scenario("G1")
async def test_log_lines_come_at_the_level_wanted(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision) as peer:
        assert (await peer.offer())["capabilities"]["logging"] == {}
        assert [line["level"] for line in await chat_at(peer, "debug")] == [
            "debug",
            "warning",
            "emergency",
        ]
        lines = await chat_at(peer, "warning")
        assert lines == [
            {"level": "warning", "data": {"bad": True}, "logger": "part"},
            {"level": "emergency", "data": "over"},
        ]
        for wrong in ("loud", "", "WARNING", 3, {}):
            if revision.stateless:
                error = await peer.error("tools/call", {"name": "chat"}, meta={LEVEL: wrong})
            else:
                error = await peer.error("logging/setLevel", {"level": wrong})
            assert error["code"] == -32602, wrong
        if revision.stateless:
            before = len(peer.notes())
            await peer.call("chat")
            assert len(peer.notes()) == before
        if transport == "http":
            call = await peer.start_call(
                "chat", meta={LEVEL: "debug"} if revision.stateless else {}
            )
            await peer.answer(call)
            assert peer.post(call).events()[0]["method"] == MESSAGE


@scenario("G2")
async def test_the_inside_of_a_failure_is_never_sent(transport, revision, caplog):
    server, _ = full_server()
    secret = "hunter2"

    class LeakError(Exception):
        pass

    @server.tool
    async def leak(ctx: Context) -> str:
        await ctx.log("error", "about to fail")
        raise LeakError(secret)

    @server.prompt
    async def leaking() -> str:
        raise LeakError(secret)

    @server.resource("test://leak")
    async def leaky() -> str:
        raise LeakError(secret)

    @server.completion("tone", prompt="greet")
    def tones(typed, known):
        raise LeakError(secret)

    async with peer_of(server, transport, revision) as peer:
        assert await chat_at(peer, "debug", "leak") == [{"level": "error", "data": "about to fail"}]
        for method, params in {
            "prompts/get": {"name": "leaking"},
            "resources/read": {"uri": "test://leak"},
            "completion/complete": {
                "ref": {"type": "ref/prompt", "name": "greet"},
                "argument": {"name": "tone", "value": ""},
            },
        }.items():
            error = await peer.error(method, params)
            assert error["code"] == -32603, method
            assert error["data"]["reference"] in caplog.text
        sent = json.dumps(peer.heard)
        for inside in (secret, "LeakError", "Traceback", ".py"):
            assert inside not in sent
        assert secret in caplog.text


@scenario("X5")
async def test_every_level_lets_itself_and_what_is_worse_through(transport, revision):
    server, _ = full_server()

    @server.tool
    async def scale(ctx: Context) -> str:
        for level in LOG_LEVELS:
            await ctx.log(level, level)
        return "said"

    async with peer_of(server, transport, revision) as peer:
        for number, level in enumerate(LOG_LEVELS):
            lines = await chat_at(peer, level, "scale")
            assert [line["data"] for line in lines] == list(LOG_LEVELS[number:])
        await trio.testing.wait_all_tasks_blocked()
        # A level is one client's own.
    async with peer_of(server, transport, revision) as peer:
        await peer.call("scale")
        seen = [note["params"]["data"] for note in peer.notes(MESSAGE)]
        assert seen == ([] if revision.stateless else list(LOG_LEVELS[1:]))
