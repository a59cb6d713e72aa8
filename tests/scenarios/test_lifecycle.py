"""The handshake, pings, deadlines, and how a server goes down."""

import trio
import trio.testing

from mcp_trio import Context, ServerOptions
from mcp_trio.session.limits import LoadLimits
from mcp_trio.wire.revisions import HANDSHAKE
from tests.http.tools import make_server
from tests.messages import initialize
from tests.scenarios.manifest import NETWORK, scenario
from tests.scenarios.peers import INITIALIZED, house, peer_of
from tests.scenarios.servers import FORM, full_server


@scenario("LC2")
async def test_nothing_but_a_ping_is_answered_before_the_handshake(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision, opened=False) as peer:
        for method in ("tools/list", "tools/call", "logging/setLevel"):
            assert (await peer.error(method, {"name": "add"}))["code"] == -32600
        server.remove_tool("add")
        server.notify_resource_updated("test://note")
        await trio.testing.wait_all_tasks_blocked()
        assert peer.notes() == []
        assert peer.questions() == []
        await peer.open()
        await peer.result("tools/list")
        assert (await peer.error("initialize", initialize()["params"]))["code"] == -32600


@scenario("LC3")
async def test_nothing_is_sent_that_was_not_agreed(transport, revision):
    server, _ = make_server()

    @server.tool
    async def ask(ctx: Context, what: str) -> str:
        match what:
            case "form":
                await ctx.elicit("?", FORM)
            case "url":
                await ctx.elicit_url("?", "https://example.com")
            case "model":
                await ctx.sample("?", max_tokens=1)
            case "roots":
                await ctx.list_roots()
        return "asked"

    @server.tool
    async def tell(ctx: Context) -> str:
        await ctx.progress(1, message="begun")
        await ctx.elicitation_completed("x")
        return "told"

    async with peer_of(server, transport, revision) as peer:
        for what in ("form", "url", "model", "roots"):
            error = await peer.error("tools/call", {"name": "ask", "arguments": {"what": what}})
            assert error["code"] in {-32601, -32602, -32021}
        await peer.call("tell")
        assert peer.questions() == []
        assert peer.notes() == []
    async with peer_of(server, transport, revision, {"elicitation": {}}) as peer:
        # It means forms only, also where there is more than forms.
        for what in ("url", "model", "roots"):
            assert await peer.error("tools/call", {"name": "ask", "arguments": {"what": what}})
        assert peer.questions() == []


@scenario("LC5")
async def test_a_request_over_its_time_is_told_so(transport, revision, autojump_clock):
    server, record = make_server(request_timeout=2)
    async with peer_of(server, transport, revision) as peer:
        error = await peer.error("tools/call", {"name": "wait"})
        assert (error["code"], error["data"]) == (-32603, {"code": "MCP.TIMEOUT"})
        assert record.events == ["wait started", "wait over"]
        assert trio.current_time() < 3
        await peer.result("tools/list")


@scenario("LC6")
async def test_a_ping_is_answered_at_once(transport, revision):
    server, _ = make_server(load=LoadLimits(max_in_flight=2))
    async with peer_of(server, transport, revision, opened=False) as peer:
        if transport != "http":
            # There nobody is known before the handshake.
            assert await peer.result("ping") == {}
        await peer.open()
        assert await peer.result("ping") == {}
        assert await peer.result("ping", {"_meta": {"x": 1}}) == {}
        await peer.start_call("wait")
        assert await peer.result("ping") == {}


@scenario("X12", transports=("memory", "stdio"))
async def test_a_client_that_leaves_ends_its_session(transport, revision, autojump_clock):
    server, record = make_server()
    async with peer_of(server, transport, revision) as peer:
        await peer.start_call("wait")
        await record.until("wait started")
        await peer.hang_up()
        await peer.closed()
        assert record.events == ["wait started", "wait over"]


@scenario("X12", transports=NETWORK)
async def test_a_server_that_goes_down_lets_what_runs_finish(transport, revision):
    server, record = make_server()
    async with house(server, transport) as place:
        busy, idle = await place.connect(revision), await place.connect(revision)
        if revision.stateless:
            listen = await idle.start(
                "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
            )
            await idle.note("notifications/subscriptions/acknowledged")
        waiting = await busy.start_call("wait")
        await record.until("wait started")
        place.app.drain()
        if revision.stateless:
            assert (await idle.answer(listen))["result"]["resultType"] == "complete"
        if transport == "http" and not revision.stateless:
            await idle.standalone.ended.wait()
        elif transport != "http":
            await idle.closed()
            assert (await place.http.websocket()).status == 503
        record.release.set()
        assert (await busy.answer(waiting))["result"]["content"][0]["text"] == "wait"
        if transport != "http":
            await busy.closed()


@scenario("V1", revisions=HANDSHAKE)
async def test_a_call_may_follow_the_handshake_without_waiting(transport, revision):
    server, _ = make_server()
    assert server.options == ServerOptions()
    async with peer_of(server, transport, revision, opened=False) as peer:
        await peer.say(initialize(revision.date, id_="i"))
        await peer.say(INITIALIZED)
        await peer.say(peer.request("tools/list", id_="l"))
        assert (await peer.answer("i"))["result"]["protocolVersion"] == revision.date
        assert (await peer.answer("l"))["result"]["tools"]
