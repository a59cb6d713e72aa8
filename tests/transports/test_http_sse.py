"""Both ends of HTTP+SSE as transports; sessions over them are tested in `tests/http`."""

import httpx2
import pytest
import trio
import trio.testing

from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import TransportClosedError
from mcp_trio.http.budget import Budget
from mcp_trio.http.legacy_sse import EventLine
from mcp_trio.http.requests import HTTPRequest, PeerGoneError
from mcp_trio.http.responses import respond
from mcp_trio.http.serving import HTTPService
from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.messages import Notification
from mcp_trio.testing import check_transport
from mcp_trio.transports.http_sse import HTTPSSETransport
from tests.transports.late import Late


class ServerEnd(EventLine):
    """Our server's end; closing it lets its ASGI call return, as a session does."""

    def __init__(self, responder):
        super().__init__(responder)
        self.done = trio.Event()

    async def aclose(self):
        try:
            await super().aclose()
        finally:
            self.done.set()


async def _pair(nursery, http):
    """Both ends, joined by the real connection loop and the real HTTP client."""
    server = Late()

    async def app(scope, receive, send):
        request = HTTPRequest.read(scope, receive)
        if scope["method"] == "GET":
            line = ServerEnd(request.responder(send, ()))

            async def serve():
                await line.accept("/in")
                server.has_come(line)
                await line.done.wait()

            await request.watched(line.leave, serve)
        else:
            try:
                message = codec.decode(await request.body(2**24, 30, Budget(2**30).claim()))
            except PeerGoneError:
                return
            taken = await server.end.put(message, None)
            await respond(send, 202 if taken else 404)

    (url,) = await nursery.start(HTTPService(app).run, "127.0.0.1", 0)
    return HTTPSSETransport(f"{url}/sse", http), server


NO_HALVES = "a stream that has ended is the end of the session, and each POST stands alone"
WITHOUT = {"half_close": NO_HALVES, "peer_half_close": NO_HALVES}


@pytest.mark.parametrize("checked", ["client", "server"])
async def test_both_ends_pass_the_battery(checked):
    async with trio.open_nursery() as nursery:
        limits = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(timeout=None, trust_env=False, limits=limits) as http:

            async def make():
                client, server = await _pair(nursery, http)
                if checked == "client":
                    return client, server
                pump, client.pump = client.pump, _nothing
                nursery.start_soon(pump)
                return await server.come(), client

            await check_transport(make, without=WITHOUT)
        nursery.cancel_scope.cancel()


async def _nothing():
    """The pump runs already."""


class Events(httpx2.AsyncByteStream):
    """An endless stream of messages."""

    async def __aiter__(self):
        yield b"event: endpoint\ndata: /in\n\n"
        while True:
            await trio.lowlevel.checkpoint()
            yield b'data: {"jsonrpc":"2.0","method":"n"}\n\n'


async def _endless(request):
    if request.method == "POST":
        await trio.sleep_forever()
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Events())


async def test_closing_while_messages_come_in_is_no_fault():
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(_endless)) as http:
        line = HTTPSSETransport("http://x/sse", http, buffer=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(line.pump)
            await trio.testing.wait_all_tasks_blocked()  # nobody receives, so the buffer is full
            await line.aclose()


async def test_closing_ends_a_post_that_is_under_way():
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(_endless)) as http:
        line = HTTPSSETransport("http://x/sse", http, buffer=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(line.pump)
            nursery.start_soon(_refused, line)
            await trio.testing.wait_all_tasks_blocked()
            await line.aclose()


async def _refused(line):
    with pytest.raises(TransportClosedError):
        await line.send(Envelope(Notification("n")))
