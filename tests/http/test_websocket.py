"""MCP over WebSocket: who may connect, what a frame may be, and what ends a session."""

import contextlib
import json

import pytest
import trio
import trio.testing
import wsproto.events as ws
from wsproto.utilities import RemoteProtocolError

from mcp_trio import ClientOptions, HTTPOptions, MCPClient, RemoteError
from mcp_trio.errors import TransportError
from mcp_trio.http.app import HTTPApp
from mcp_trio.http.serving import HTTPService
from mcp_trio.http.websocket import ASGIWebSocket
from mcp_trio.transports.websocket import WebSocketTransport
from mcp_trio.wire import REVISIONS
from tests.http.asgi import META
from tests.http.serving_tools import LockstepListener, MemoryListener
from tests.http.test_http_websocket import SocketClient
from tests.http.tools import make_server
from tests.messages import PING, PONG, initialize

HOST = "127.0.0.1:8000"
INITIALIZE = initialize()


class Peer(SocketClient):
    """A WebSocket client that says anything."""

    async def open(self, *, host=HOST, target="/mcp", subprotocols=(), **headers):
        fields = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.say(
            ws.Request(
                host=host, target=target, subprotocols=list(subprotocols), extra_headers=fields
            )
        )
        return await self.hear()

    async def tell(self, message):
        text = message if isinstance(message, str) else json.dumps(message)
        await self.say(ws.TextMessage(data=text))

    async def ask(self, message):
        await self.tell(message)
        return await self.answer()

    async def answer(self):
        text = ""
        while True:
            event = await self.hear()
            assert isinstance(event, ws.TextMessage), event
            text += event.data
            if event.message_finished:
                return json.loads(text)

    async def call(self, name, *, id_=1, **arguments):
        await self.tell(
            {
                "jsonrpc": "2.0",
                "id": id_,
                "method": "tools/call",
                "params": {"name": name, "arguments": arguments},
            }
        )


class World:
    """An endpoint behind the real connection loop, reached over memory streams."""

    def __init__(self, app, listener, service):
        self.app, self.listener, self.service = app, listener, service

    async def peer(self):
        return Peer(await self.listener.connect())

    async def session(self, **options):
        """A client in an open handshake session."""
        peer = await self.peer()
        accepted = await peer.open(**options)
        assert isinstance(accepted, ws.AcceptConnection), accepted
        assert (await peer.ask(INITIALIZE))["result"]
        await peer.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return peer


@contextlib.asynccontextmanager
async def serving(server, options=None, listener=None):
    app = HTTPApp(server, options)
    service = HTTPService(app, on_drain=app.drain)
    listener = listener or MemoryListener()
    async with trio.open_nursery() as nursery:
        await nursery.start(app.run)
        await nursery.start(service.run_listeners, [listener])
        with trio.fail_after(5000):
            yield World(app, listener, service)
        nursery.cancel_scope.cancel()
    assert app.statistics().sessions == 0
    assert app.statistics().in_flight == 0


@pytest.mark.parametrize("revision", REVISIONS, ids=str)
async def test_every_revision_is_spoken(revision):
    server, _ = make_server()
    async with serving(server) as world:
        line = WebSocketTransport(await world.listener.connect(), HOST, "/mcp")
        options = ClientOptions(revisions=(revision,))
        async with MCPClient(line, options=options) as client:
            assert client.revision is revision
            assert (await client.call_tool("add", {"a": 1, "b": 2})).content[0].text == "3"


async def test_both_eras_share_one_connection():
    server, _ = make_server()
    async with serving(server) as world:
        peer = await world.session()
        assert await peer.ask(PING) == PONG
        answer = await peer.ask(
            {"jsonrpc": "2.0", "id": 2, "method": "server/discover", "params": {"_meta": META}}
        )
        assert answer["result"]["resultType"] == "complete"
        assert await peer.ask(PING) == PONG


@pytest.mark.parametrize(
    ("offered", "chosen"), [((), None), (("mcp",), "mcp"), (("x", "mcp"), "mcp"), (("x",), None)]
)
async def test_the_subprotocol_is_chosen_where_it_is_offered(offered, chosen):
    server, _ = make_server()
    async with serving(server) as world:
        accepted = await (await world.peer()).open(subprotocols=offered)
        assert accepted.subprotocol == chosen


@pytest.mark.parametrize(
    ("status", "request_"),
    [
        (403, {"host": "evil.example"}),
        (403, {"origin": "http://evil.example"}),
        (403, {"origin": "null"}),
        (404, {"target": "/other"}),
        (404, {"target": "/mcp/x"}),
        (404, {"target": "/other", "host": "evil.example"}),
    ],
)
async def test_who_may_not_connect_is_refused_before_the_handshake(status, request_):
    server, _ = make_server()
    async with serving(server) as world:
        peer = await world.peer()
        refused = await peer.open(**request_)
        assert isinstance(refused, ws.RejectConnection)
        assert refused.status_code == status
        assert world.app.statistics().sessions == 0


@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://app.example"])
async def test_an_origin_that_is_allowed_may_connect(origin):
    server, _ = make_server()
    options = HTTPOptions(allowed_origins=frozenset({"https://app.example"}))
    async with serving(server, options) as world:
        assert isinstance(await (await world.peer()).open(origin=origin), ws.AcceptConnection)


async def test_a_server_without_the_denial_extension_closes_before_accepting():
    server, _ = make_server()
    sent = []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(event):
        sent.append(event)

    app = HTTPApp(server)
    scope = {"type": "websocket", "path": "/mcp", "headers": [(b"host", b"evil.example")]}
    await app(scope, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008, "reason": "Host is not allowed"}]


async def test_a_client_that_leaves_before_it_was_accepted_opens_no_session():
    server, _ = make_server()

    async def receive():
        return {"type": "websocket.disconnect", "code": 1006}

    async def send(event):
        raise AssertionError(event)

    app = HTTPApp(server)
    scope = {"type": "websocket", "path": "/mcp", "headers": [(b"host", b"localhost")]}
    await app(scope, receive, send)
    assert app.statistics().sessions == 0


@pytest.mark.parametrize("text", ["", "no json", "[]", "{}", "7", '"' * 10, "[" * 100])
async def test_text_that_is_no_message_is_answered_and_the_session_goes_on(text):
    server, _ = make_server()
    async with serving(server) as world:
        peer = await world.session()
        assert (await peer.ask(text))["error"]["code"] in {-32700, -32600}
        assert await peer.ask(PING) == PONG


@pytest.mark.parametrize(
    ("event", "code", "reason"),
    [
        (ws.BytesMessage(data=b"{}"), 1003, "text frame"),
        (ws.TextMessage(data="x" * 200), 1009, "100 bytes"),
        (ws.TextMessage(data="\u20ac" * 40), 1009, "100 bytes"),
    ],
)
async def test_frames_that_are_not_allowed_close_the_connection(event, code, reason):
    server, _ = make_server()
    async with serving(server, HTTPOptions(max_body=100)) as world:
        peer = await world.peer()
        await peer.open()
        await peer.tell({"jsonrpc": "2.0", "id": 1, "method": "nothing"})
        await peer.answer()
        await peer.say(event)
        farewell = await peer.hear()
        assert isinstance(farewell, ws.CloseConnection)
        assert farewell.code == code
        assert reason in farewell.reason
        await trio.testing.wait_all_tasks_blocked()
        assert world.app.statistics().sessions == 0


async def test_a_message_in_fragments_is_one_message():
    server, _ = make_server()
    async with serving(server) as world:
        peer = await world.session()
        text = json.dumps(PING)
        for char in text[:-1]:
            await peer.say(ws.TextMessage(data=char, message_finished=False))
        await peer.say(ws.TextMessage(data=text[-1]))
        assert await peer.answer() == PONG


async def test_a_call_is_cancelled_by_its_notification_and_gets_no_answer():
    server, record = make_server()
    async with serving(server) as world:
        peer = await world.session()
        await peer.call("wait", id_=5)
        await record.until("wait started")
        await peer.tell(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
        )
        await record.until("wait started", "wait over")
        assert await peer.ask(PING) == PONG


@pytest.mark.parametrize("polite", [True, False])
async def test_a_client_that_leaves_ends_its_calls(polite):
    server, record = make_server()
    async with serving(server) as world:
        peer = await world.session()
        await peer.call("wait")
        await record.until("wait started")
        if polite:
            await peer.say(ws.CloseConnection(code=1000))
        else:
            await peer.stream.aclose()
        await record.until("wait started", "wait over")
        await trio.testing.wait_all_tasks_blocked()
        assert world.app.statistics().sessions == 0


async def test_changes_are_told():
    server, _ = make_server()
    async with serving(server) as world:
        peer = await world.session()
        assert await peer.ask(PING) == PONG
        server.remove_tool("add")
        assert (await peer.answer())["method"] == "notifications/tools/list_changed"


async def test_sockets_count_as_sessions_and_one_too_many_is_refused():
    server, _ = make_server()
    async with serving(server, HTTPOptions(max_sessions=2)) as world:
        first = await world.session()
        await world.session()
        refused = await (await world.peer()).open()
        assert isinstance(refused, ws.RejectConnection)
        assert refused.status_code == 503
        assert (b"retry-after", b"1") in list(refused.headers)
        statistics = world.app.statistics()
        assert (statistics.sessions, statistics.refused) == (2, 1)
        await first.say(ws.CloseConnection(code=1000))
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(await (await world.peer()).open(), ws.AcceptConnection)


async def test_a_silent_socket_ends_and_a_busy_one_does_not(autojump_clock):
    server, record = make_server()
    async with serving(server, HTTPOptions(session_idle_timeout=10)) as world:
        peer = await world.session()
        await peer.call("wait")
        await trio.sleep(100)
        assert world.app.statistics().sessions == 1
        record.release.set()
        await peer.answer()
        await trio.sleep(9)
        assert await peer.ask(PING) == PONG
        await trio.sleep(9)
        assert world.app.statistics().sessions == 1
        farewell = await peer.hear()
        assert isinstance(farewell, ws.CloseConnection)
        assert farewell.code == 1001


async def test_draining_lets_calls_finish_and_closes_with_going_away(autojump_clock):
    server, record = make_server()
    async with serving(server) as world:
        idle, busy = await world.session(), await world.session()
        await busy.call("wait", id_=3)
        await record.until("wait started")
        world.service.drain()
        farewell = await idle.hear()
        assert isinstance(farewell, ws.CloseConnection)
        assert farewell.code == 1001
        record.release.set()
        assert (await busy.answer())["id"] == 3
        farewell = await busy.hear()
        assert isinstance(farewell, ws.CloseConnection)
        assert farewell.code == 1001


async def test_draining_gives_a_listener_its_result_and_refuses_newcomers():
    server, _ = make_server()
    async with serving(server) as world:
        peer = await world.peer()
        await peer.open()
        told = await peer.ask(
            {
                "jsonrpc": "2.0",
                "id": 9,
                "method": "subscriptions/listen",
                "params": {"notifications": {"toolsListChanged": True}, "_meta": META},
            }
        )
        assert told["method"] == "notifications/subscriptions/acknowledged"
        late = await world.peer()
        world.app.drain()
        assert (await peer.answer())["id"] == 9
        assert isinstance(await peer.hear(), ws.CloseConnection)
        refused = await late.open()
        assert isinstance(refused, ws.RejectConnection)
        assert refused.status_code == 503


async def test_a_drain_over_its_grace_period_cancels_what_is_left(autojump_clock):
    server, record = make_server()
    async with serving(server) as world:
        peer = await world.session()
        await peer.call("wait")
        await record.until("wait started")
        began = trio.current_time()
        world.service.drain()
        await trio.sleep(9)
        assert record.events == ["wait started"]
        await record.until("wait started", "wait over")
        assert trio.current_time() - began == pytest.approx(10)


async def test_a_client_that_reads_nothing_stops_its_own_calls_only(autojump_clock):
    server, _ = make_server()
    seen = 0

    @server.tool
    async def flood() -> str:
        nonlocal seen
        seen += 1
        return "x" * 400_000

    async with (
        serving(server, listener=LockstepListener()) as world,
        trio.open_nursery() as nursery,
    ):
        slow, quick = await world.session(), await world.session()

        async def ask():
            for id_ in range(20):
                await slow.call("flood", id_=id_)

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert seen < 20
        await quick.call("add", a=1, b=2)
        assert (await quick.answer())["result"]["structuredContent"] == {"result": 3}
        for _ in range(20):
            assert "result" in await slow.answer()
        assert seen == 20


@pytest.mark.parametrize("step", range(1, 40, 2))
async def test_a_connection_lost_at_any_step_leaves_nothing(step):
    server, record = make_server()
    record.release.set()
    async with serving(server) as world:
        peer = await world.session()
        await peer.call("report", steps=3)
        for _ in range(step):
            await trio.lowlevel.checkpoint()
        await peer.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert world.app.statistics().sessions == 0
        assert world.app.statistics().in_flight == 0


@pytest.mark.parametrize("step", range(1, 60, 3))
async def test_the_service_can_be_cancelled_at_any_step(step):
    server, record = make_server()

    async def use(world):
        # How far it comes, and what it sees of the end, depends on the step.
        with contextlib.suppress(AssertionError, trio.BrokenResourceError, RemoteProtocolError):
            peer = await world.session()
            await peer.call("wait")
            await peer.answer()

    async with trio.open_nursery() as clients:
        async with serving(server) as world:
            clients.start_soon(use, world)
            for _ in range(step):
                await trio.lowlevel.checkpoint()
        assert record.events in ([], ["wait started", "wait over"])
        clients.cancel_scope.cancel()


async def test_a_socket_url_connects_and_a_refusal_is_one_plain_error():
    server, _ = make_server()
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(server.serve_http, "127.0.0.1", 0)
        url = url.replace("http://", "ws://")
        async with MCPClient(url) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).content[0].text == "3"
            with pytest.raises(RemoteError):
                await client.call("no/such")
        with pytest.raises(TransportError, match="404"):
            async with MCPClient(url + "/elsewhere"):
                raise AssertionError("connected to nothing")
        nursery.cancel_scope.cancel()
    with pytest.raises(TransportError):
        async with MCPClient(url):
            raise AssertionError("connected to nothing")


async def test_leaving_the_client_tells_the_server():
    server, record = make_server()
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(server.serve_http, "127.0.0.1", 0)
        async with MCPClient(url.replace("http://", "ws://")) as client:
            async with trio.open_nursery() as calls:
                calls.start_soon(client.call_tool, "wait")
                await record.until("wait started")
                calls.cancel_scope.cancel()
            await record.until("wait started", "wait over")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("cancelled", [False, True])
async def test_closing_ends_a_receiver_also_if_the_client_says_nothing(cancelled):
    async def receive():
        await trio.sleep_forever()

    async def send(_event):
        await trio.lowlevel.checkpoint()

    line = ASGIWebSocket(receive, send, max_message=1000)

    async def hear():
        with pytest.raises(trio.EndOfChannel):
            await line.receive()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hear)
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            if cancelled:
                scope.cancel()
            await line.aclose()
    await hear()
