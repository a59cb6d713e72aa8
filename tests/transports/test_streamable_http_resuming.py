"""The client comes back to a stream that ended before its answer (H5, H8)."""

import contextlib

import httpx2
import pytest
import trio

from mcp_trio.engine.envelope import Envelope
from mcp_trio.jsonrpc.messages import Malformed, Notification, Request, Result
from mcp_trio.transports.streamable_http import StreamableHTTPTransport

ANSWER = b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'
NOTE = b'data: {"jsonrpc":"2.0","method":"n"}\n\n'
PRIMED = b"id: 1-0\ndata: \n\n"


class Server:
    """Answers the requests of a client with what the test prepared, one after the other."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def __call__(self, request):
        if request.method == "DELETE":
            return httpx2.Response(204)
        self.asked.append(
            (request.method, request.headers.get("last-event-id"), trio.current_time())
        )
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return httpx2.Response(answer)
        assert request.headers["accept"].endswith("text/event-stream")
        return httpx2.Response(
            200,
            content=answer,
            headers={"content-type": "text/event-stream", "mcp-session-id": "s"},
        )


@contextlib.asynccontextmanager
async def asking(server):
    """A client that has sent request 1."""
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(server)) as http:
        transport = StreamableHTTPTransport("http://x/mcp", http)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.pump)
            await transport.send(Envelope(Request(1, "m")))
            yield transport
            await transport.aclose()


async def test_it_comes_back_with_the_last_id_when_the_server_says(autojump_clock):
    server = Server(
        PRIMED + b"retry: 500\n\n",
        b"id: 1-1\n" + NOTE + b"retry: 2000\n\n",
        b"id: 1-2\n" + ANSWER,
    )
    async with asking(server) as client:
        assert (await client.receive()).message == Notification("n")
        assert (await client.receive()).message == Result(1, {})
    assert [(method, last) for method, last, _ in server.asked] == [
        ("POST", None),
        ("GET", "1-0"),
        ("GET", "1-1"),
    ]
    times = [time for _, _, time in server.asked]
    assert times[1] - times[0] == pytest.approx(0.5)
    assert times[2] - times[1] == pytest.approx(2)


async def test_it_comes_back_however_often_it_is_let_go(autojump_clock):
    server = Server(PRIMED, *[b"retry: 100\n\n"] * 50, ANSWER)
    async with asking(server) as client:
        assert (await client.receive()).message == Result(1, {})
    assert {last for _, last, _ in server.asked[1:]} == {"1-0"}


async def test_a_broken_connection_is_tried_again_and_given_up_in_the_end(autojump_clock):
    server = Server(PRIMED, httpx2.ConnectError("no"), ANSWER)
    async with asking(server) as client:
        assert (await client.receive()).message == Result(1, {})
    for silent in (httpx2.ConnectError("no"), b"", b":\n\n"):
        server = Server(PRIMED, silent)
        async with asking(server) as client:
            lost = await client.receive()
            assert isinstance(lost.message, Malformed)
            assert lost.related == 1
        assert len(server.asked) == 6


@pytest.mark.parametrize("status", [400, 404, 405, 500])
async def test_a_refusal_to_go_on_ends_the_request(autojump_clock, status):
    server = Server(PRIMED, status)
    async with asking(server) as client:
        lost = await client.receive()
        assert isinstance(lost.message, Malformed)
        assert str(status) in lost.message.reason
    assert len(server.asked) == 2


@pytest.mark.parametrize("broken", [b"", NOTE, b"retry: 5\n\n", b"id: 1-0\n"])
async def test_without_an_id_there_is_no_way_back(broken):
    server = Server(broken)
    async with asking(server) as client:
        while not isinstance(message := (await client.receive()).message, Malformed):
            assert message == Notification("n")
    assert len(server.asked) == 1


async def test_a_server_that_wants_us_at_once_does_not_get_a_storm(autojump_clock):
    server = Server(PRIMED + b"retry: 0\n\n")
    async with asking(server) as client:
        with trio.move_on_after(1):
            await client.receive()
    assert len(server.asked) <= 101


async def test_a_call_that_is_given_up_is_not_come_back_for(autojump_clock):
    server = Server(PRIMED + b"retry: 500\n\n")
    async with asking(server) as client:
        await trio.sleep(0.1)
        client.abandon(1)
        await trio.sleep(10)
    assert len(server.asked) == 1


# -- the stream that belongs to no request -----------------------------------------------


@contextlib.asynccontextmanager
async def listening(server):
    """A client that listens on the stream of its session."""
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(server)) as http:
        transport = StreamableHTTPTransport("http://x/mcp", http)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.pump)
            await transport.listen({})
            yield transport
            await transport.aclose()


async def test_the_stream_of_the_session_is_opened_again_from_where_it_ended(autojump_clock):
    server = Server(
        b"id: 1\n" + NOTE + b"retry: 300\n\n",
        NOTE,
        httpx2.ReadError("cut"),
        503,
        b"id: 2\n" + NOTE,
        405,
    )
    async with listening(server) as client:
        for _ in range(3):
            assert (await client.receive()).message == Notification("n")
        await trio.sleep(60)
    assert [last for _, last, _ in server.asked] == [None, "1", "1", "1", "1", "2"]
    assert server.asked[1][2] - server.asked[0][2] == pytest.approx(0.3)


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_a_server_without_such_a_stream_is_not_asked_again(autojump_clock, status):
    server = Server(status)
    async with listening(server):
        await trio.sleep(1000)
    assert len(server.asked) == 1


async def test_a_stream_that_ends_at_once_again_and_again_is_given_up(autojump_clock):
    server = Server(b"")
    async with listening(server):
        await trio.sleep(1000)
    assert len(server.asked) == 5
