"""A server that forgets its sessions costs a client one more handshake, and no call (H9)."""

import contextlib
import itertools
import json

import httpx2
import pytest
import trio

from mcp_trio import ClientOptions, MCPClient, RequestTimeoutError
from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import RemoteError, SessionExpiredError, TransportError
from mcp_trio.http.serving import HTTPService
from mcp_trio.jsonrpc.messages import Notification, Request
from mcp_trio.transports.streamable_http import StreamableHTTPTransport
from tests.transports.web import Web, answering, connected, opened, result


class Forgetful:
    """A server of sessions over real HTTP. `answers` says what a method is met with, in turn.

    A number is a status; `...` is a stream that stays open. It keeps what it was asked, and in
    which session.
    """

    def __init__(self, **answers):
        self.answers = {name.replace("_", "/"): list(each) for name, each in answers.items()}
        self.asked = []
        self.known = set()
        self._numbers = itertools.count(1)
        self.holding = trio.Event()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            return
        body = b""
        more = scope["method"] == "POST"
        while more:
            piece = await receive()
            body += piece["body"]
            more = piece["more_body"]
        message = json.loads(body) if body else {}
        what = message.get("method", scope["method"])
        headers = dict(scope["headers"])
        session = headers.get(b"mcp-session-id", b"").decode()
        self.asked.append((what, session))
        status, answer, extra = self._judge(what, session, message)
        fields = [(b"content-type", b"application/json"), *extra]
        if answer is ...:
            data, fields = b":\n\n", [(b"content-type", b"text/event-stream")]
        else:
            data = b"" if answer is None else json.dumps(answer).encode()
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": data, "more_body": answer is ...})
        if answer is ...:
            self.holding.set()
            await receive()

    def _judge(self, what, session, message):
        id_ = message.get("id")
        said = self.answers.get(what) or []
        next_ = said.pop(0) if said else None
        if isinstance(next_, int):
            return next_, None, []
        if next_ is ...:
            return 200, ..., []
        if isinstance(next_, dict):
            return 404, {"jsonrpc": "2.0", "id": id_, "error": next_}, []
        if what == "initialize":
            new = f"s-{next(self._numbers)}"
            self.known.add(new)
            about = {"protocolVersion": "2025-11-25", "capabilities": {"resources": {}}}
            body = {**about, "serverInfo": {"name": "f", "version": "1"}}
            extra = [(b"mcp-session-id", new.encode())]
            return 200, {"jsonrpc": "2.0", "id": id_, "result": body}, extra
        if session not in self.known:
            # As the official server refuses it, with an id that is nobody's.
            fault = {"code": -32600, "message": "Session not found"}
            return 404, {"jsonrpc": "2.0", "id": "server-error", "error": fault}, []
        if what == "GET":
            return 405, None, []
        if id_ is None:
            return 202, None, []
        return 200, {"jsonrpc": "2.0", "id": id_, "result": {"content": [], "tools": []}}, []

    def of(self, what):
        return [session for method, session in self.asked if method == what]


@contextlib.asynccontextmanager
async def serving(server, **options):
    """A client of a forgetful server."""
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(HTTPService(server).run, "127.0.0.1", 0)
        settings = ClientOptions(**{"revisions": ("2025-11-25",), **options})
        with trio.fail_after(60):
            async with MCPClient(f"{url}/mcp", options=settings) as client:
                yield client
        nursery.cancel_scope.cancel()


async def test_one_new_session_is_opened_and_the_call_is_made_once_more():
    server = Forgetful()
    async with serving(server) as client:
        await client.call_tool("x")
        server.known.clear()
        await client.call_tool("x")
        await client.call_tool("x")
    assert server.of("initialize") == ["", ""]
    assert server.of("notifications/initialized") == ["s-1", "s-2"]
    assert server.of("tools/call") == ["s-1", "s-1", "s-2", "s-2"]
    assert server.of("DELETE") == ["s-2"]  # there is no leave to take of what is forgotten


@pytest.mark.parametrize(
    "refusal", [404, {"code": -32600, "message": "x"}, {"code": -32001, "message": "x"}]
)
async def test_however_the_server_says_it(refusal):
    server = Forgetful(tools_call=[refusal])
    async with serving(server) as client:
        await client.call_tool("x")
    assert server.of("tools/call") == ["s-1", "s-2"]


async def test_a_second_time_is_a_plain_error_and_the_client_goes_on():
    server = Forgetful(tools_call=[404, 404])
    async with serving(server) as client:
        with pytest.raises(SessionExpiredError, match="no answer to tools/call: the server has"):
            await client.call_tool("x")
        await client.call_tool("x")
    assert server.of("initialize") == ["", "", ""]
    assert server.of("tools/call") == ["s-1", "s-2", "s-3"]


async def test_a_server_that_remembers_nothing_is_not_asked_for_ever(monkeypatch):
    monkeypatch.setattr("mcp_trio.client.targets.SESSIONS", 2)
    server = Forgetful(tools_call=[404] * 50)
    async with serving(server) as client:
        for _ in range(8):
            with pytest.raises(TransportError, match="forgotten the session"):
                await client.call_tool("x", timeout=20)
    assert len(server.of("initialize")) == 3
    assert len(server.of("tools/call")) <= 6


async def test_a_method_that_is_not_there_is_no_session_that_is_not_there():
    server = Forgetful(tools_call=[{"code": -32601, "message": "Method not found"}])
    async with serving(server) as client:
        with pytest.raises(RemoteError, match="Method not found"):
            await client.call_tool("x")
    assert server.of("initialize") == [""]


async def test_calls_that_hear_of_it_together_share_one_new_session():
    server = Forgetful()
    async with serving(server) as client:
        server.known.clear()
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(client.call_tool, "x")
    assert len(server.of("initialize")) == 2
    assert server.of("tools/call").count("s-2") == 20


async def test_a_call_whose_fate_is_not_known_is_not_repeated():
    server = Forgetful(tools_call=[..., 404])
    outcomes = []
    async with serving(server) as client:

        async def call():
            try:
                await client.call_tool("pay")
            except TransportError as error:
                outcomes.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await server.holding.wait()
            await client.call_tool("x")
        assert client.session.statistics().pending == 0
    (failure,) = outcomes
    assert not isinstance(failure, SessionExpiredError)
    assert failure.message == "the server has forgotten the session"
    assert server.of("tools/call") == ["s-1", "s-1", "s-2"]


@pytest.mark.parametrize("via", ["notify", "ping"])
async def test_whatever_hears_of_it_the_next_call_has_a_new_session(via):
    server = Forgetful()
    async with serving(server) as client:
        server.known.clear()
        if via == "notify":
            with pytest.raises(SessionExpiredError):
                await client.notify_roots_changed()
        else:
            await client.ping()
        await client.call_tool("x")
    assert server.of("tools/call") == ["s-2"]


async def test_what_was_watched_is_watched_again_and_the_listener_hears_of_it():
    server = Forgetful()
    async with serving(server) as client, client.listen(resource="file:///a") as changes:
        server.known.clear()
        await client.call_tool("x")
        with trio.fail_after(10):
            assert await anext(changes) == "missed"
    assert server.of("resources/subscribe") == ["s-1", "s-2"]
    assert server.of("resources/unsubscribe") == ["s-2"]


@pytest.mark.parametrize("status", [500, 404, 401])
async def test_a_session_that_cannot_be_opened_again_is_a_plain_error_in_bounded_time(status):
    server = Forgetful(initialize=[None, *[status] * 100])
    async with serving(server) as client:
        server.known.clear()
        with pytest.raises(RequestTimeoutError, match="no other session within 1"):
            await client.call_tool("x", timeout=1)
        with trio.CancelScope() as scope:
            scope.cancel()
            await client.call_tool("x")
        assert scope.cancelled_caught
    assert 2 <= len(server.of("initialize")) < 20


async def test_the_caller_may_go_while_a_session_is_opened_and_nothing_is_left():
    server = Forgetful(initialize=[None, ...])
    async with serving(server) as client:
        server.known.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "x")
            await server.holding.wait()
            nursery.cancel_scope.cancel()


async def test_without_sessions_a_404_is_the_answer(autojump_clock):
    web = Web(tools_call=404)
    async with connected(web, "2026-07-28") as client:
        with pytest.raises(TransportError, match="answered 404 without a reply"):
            await client.call("tools/call", {"name": "x"})
        await client.ping()
    assert len(web.of("tools/call")) == 1


async def test_a_server_of_no_sessions_in_the_era_of_sessions_has_none_to_forget(autojump_clock):
    def open_without(asked):
        response = opened(asked)
        del response.headers["mcp-session-id"]
        return response

    web = Web(initialize=open_without, tools_call=404)
    async with connected(web) as client:
        with pytest.raises(TransportError, match="answered 404 without a reply") as caught:
            await client.call("tools/call", {"name": "x"})
        assert type(caught.value) is TransportError
        await client.ping()
    assert web.of("DELETE") == []


async def test_a_transport_of_the_callers_ends_with_its_session(autojump_clock):
    web = Web(tools_call=[404, lambda a: answering(result(a.id))])
    async with connected(web) as client:
        for _ in range(2):
            with pytest.raises(TransportError, match="forgotten the session"):
                await client.call("tools/call", {"name": "x"})
    assert len(web.of("initialize")) == 1
    assert len(web.of("tools/call")) == 1
    assert web.of("DELETE") == []


async def test_the_line_says_why_it_has_ended(autojump_clock):
    web = Web(initialize=opened, n=404)
    async with httpx2.AsyncClient(transport=web) as http:
        transport = StreamableHTTPTransport("http://x/mcp", http)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.pump)
            transport.session_id = "s-1"
            with pytest.raises(SessionExpiredError):
                await transport.send(Envelope(Notification("n")))
            with pytest.raises(trio.EndOfChannel, match="forgotten the session"):
                await transport.receive()
            for message in (Notification("n"), Request(1, "m")):
                with pytest.raises(SessionExpiredError):
                    await transport.send(Envelope(message))
            await transport.aclose()
    assert len(web.asked) == 1
