"""The client's end of Streamable HTTP, without a socket where that is enough."""

import contextlib
import json

import httpx2
import pytest
import trio
import trio.testing

import mcp_trio
from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import TransportClosedError, TransportError
from mcp_trio.http.budget import Budget
from mcp_trio.http.replay import ReplayBuffer
from mcp_trio.http.requests import HTTPRequest, PeerGoneError
from mcp_trio.http.responses import respond
from mcp_trio.http.serving import HTTPService
from mcp_trio.http.session_streams import SessionStreams
from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.messages import Notification, Request
from mcp_trio.testing import check_transport
from mcp_trio.transports.streamable_http import StreamableHTTPTransport


async def test_closing_at_the_moment_an_answer_arrives_is_no_fault():
    may_answer = trio.Event()

    async def answer(request):
        await may_answer.wait()
        return httpx2.Response(200, json={"jsonrpc": "2.0", "id": 1, "result": {}})

    # Trio takes the tasks that are ready in random order, so the moment has to come often.
    for _ in range(20):
        may_answer = trio.Event()
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
            transport = StreamableHTTPTransport("http://x/mcp", client)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(transport.pump)
                await transport.send(Envelope(Request(1, "ping")))
                await trio.testing.wait_all_tasks_blocked()
                may_answer.set()
                await transport.aclose()


@pytest.mark.parametrize(("date", "kept"), [("2026-07-28", False), ("2025-11-25", True)])
async def test_an_id_of_a_session_means_nothing_where_there_are_no_sessions(date, kept):
    """A server may send one all the same; nothing of ours may depend on it."""
    seen = []

    async def answer(request):
        seen.append((request.method, request.headers.get("mcp-session-id")))
        if request.method != "POST":
            return httpx2.Response(405)
        message = json.loads(request.content)
        if "id" not in message:
            return httpx2.Response(202)
        revision = {"protocolVersion": date, "supportedVersions": [date], "resultType": "complete"}
        about = {"capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
        result = {**revision, **about, "ttlMs": 0, "cacheScope": "private", "tools": []}
        return httpx2.Response(
            200,
            json={"jsonrpc": "2.0", "id": message["id"], "result": result},
            headers={"mcp-session-id": "theirs"},
        )

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        transport = StreamableHTTPTransport("http://x/mcp", client)
        options = mcp_trio.ClientOptions(revisions=(date,))
        async with mcp_trio.MCPClient(transport, options=options) as connected:
            await connected.list_tools()
    assert (("POST", "theirs") in seen) is kept
    assert (("DELETE", "theirs") in seen) is kept


@pytest.mark.parametrize("alone", [True, False])
async def test_giving_a_request_up_says_whether_the_server_knows_by_that(alone):
    # A handshake without a session is no cancellation by closing either: the peer has to be told.
    closed = trio.Event()

    async def never(_request):
        try:
            await trio.sleep_forever()
        finally:
            closed.set()

    headers = {"mcp-method": "m"} if alone else {"mcp-protocol-version": "2025-11-25"}
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(never)) as http:
        transport = StreamableHTTPTransport("http://x/mcp", http)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.pump)
            await transport.send(Envelope(Request(1, "m"), headers=headers))
            await trio.testing.wait_all_tasks_blocked()
            assert transport.abandon(1) is alone
            await closed.wait()
            await transport.aclose()


async def _never(_request):
    await trio.sleep_forever()


async def test_closing_ends_a_post_that_is_under_way():
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(_never)) as http:
        transport = StreamableHTTPTransport("http://x/mcp", http)

        async def send():
            with pytest.raises(TransportClosedError):
                await transport.send(Envelope(Notification("n")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.pump)
            nursery.start_soon(send)
            await trio.testing.wait_all_tasks_blocked()
            await transport.aclose()


async def test_a_request_after_the_pump_was_cancelled_is_refused_as_transports_refuse():
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(_never)) as http:
        transport = StreamableHTTPTransport("http://x/mcp", http)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.pump)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        with pytest.raises(TransportError):
            await transport.send(Envelope(Request(1, "m")))
        await transport.aclose()


# -- the battery -----------------------------------------------------------------------


class ServerEnd(SessionStreams):
    """The streams of one of our sessions; what POSTs bring is received here, not dispatched."""

    def __init__(self):
        super().__init__(ReplayBuffer(256, 2**20))
        self._posted, self._arrived = trio.open_memory_channel(16)
        self._listened = trio.Event()

    async def __call__(self, scope, receive, send):
        request = HTTPRequest.read(scope, receive)
        responder = request.responder(send, ())
        match scope["method"]:
            case "GET":
                await self._carry(self.standalone, request, responder)
            case "DELETE":
                await self.aclose()
                await respond(send, 200)
            case _:
                await self._post(request, responder)

    async def _post(self, request, responder):
        assert request.headers["mcp-session-id"] == "ours"
        with contextlib.suppress(PeerGoneError):
            message = codec.decode(await request.body(2**24, 30, Budget(2**30).claim()))
            stream = self.open((message.id,)) if isinstance(message, Request) else None
            try:
                await self._posted.send(Envelope(message))
            except (trio.ClosedResourceError, trio.BrokenResourceError):
                await respond(responder.send, 404)
                return
            if stream is None:
                await respond(responder.send, 202)
            else:
                await self._carry(stream, request, responder)

    async def _carry(self, stream, request, responder):
        owner = stream.attach()
        self._listened.set()

        async def carry():
            await responder.begin()
            while (event := await stream.take(owner)) is not None:
                await responder.event(event.data)
            await responder.end()

        with trio.CancelScope() as scope:
            await request.watched(scope.cancel, carry)
        stream.detach(owner)

    async def send(self, envelope):
        # What is said before the client listens would be thrown away, if it is much.
        await self._listened.wait()
        await super().send(envelope)

    async def receive(self):
        try:
            return await self._arrived.receive()
        except trio.ClosedResourceError as error:
            raise trio.EndOfChannel from error

    def close(self):
        super().close()
        self._posted.close()


NO_LINE = "HTTP has no line whose end could be heard: who calls in an ended session gets a 404"
WITHOUT = {
    "kinds": "each request is a POST of its own, so nothing orders it and other messages",
    "peer_close": NO_LINE,
    "half_close": NO_LINE,
    "peer_half_close": NO_LINE,
    "cancelled_close_is_heard": "the DELETE is cancelled; the session ends by its idle time",
}


@contextlib.asynccontextmanager
async def pairs():
    """A function that makes pairs, joined by the real connection loop and the real HTTP client."""
    async with trio.open_nursery() as nursery:
        limits = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(timeout=None, trust_env=False, limits=limits) as http:

            async def make():
                server = ServerEnd()
                (url,) = await nursery.start(HTTPService(server).run, "127.0.0.1", 0)
                client = StreamableHTTPTransport(f"{url}/mcp", http)
                client.session_id = "ours"  # as if `initialize` had been answered
                nursery.start_soon(client.listen, {})
                return client, server

            yield make
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("checked", ["client", "server"])
async def test_both_ends_of_a_session_pass_the_battery(checked):
    async with pairs() as make_pair:

        async def make():
            pair = await make_pair()
            return pair if checked == "client" else pair[::-1]

        more = {} if checked == "client" else {"close_is_heard": NO_LINE, "cancelled_pump": NO_LINE}
        await check_transport(make, without={**WITHOUT, **more})
