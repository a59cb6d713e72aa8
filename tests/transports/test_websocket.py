"""The client's end of WebSocket, against our server's end and against hostile servers."""

import contextlib

import pytest
import trio
import trio.testing
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    Request,
    TextMessage,
)

from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import TransportClosedError, TransportError
from mcp_trio.http.serving import HTTPService
from mcp_trio.http.websocket import ASGIWebSocket
from mcp_trio.jsonrpc.messages import Malformed, Notification
from mcp_trio.testing import check_transport
from mcp_trio.transports.websocket import WebSocketTransport
from tests.http.serving_tools import LockstepListener

NOTE = '{"jsonrpc":"2.0","method":"n"}'


HALVES = ("half_close", "peer_half_close")
NO_HALVES = (
    "a WebSocket closes both ways at once: whoever gets a close frame answers it and is done"
)


class Server:
    """A WebSocket server that does what the test says."""

    def __init__(self, stream):
        self.stream = stream
        self.ws = WSConnection(ConnectionType.SERVER)
        self.request = None

    async def say(self, *events):
        await self.stream.send_all(b"".join(map(self.ws.send, events)))

    async def hear(self):
        while True:
            for event in self.ws.events():
                return event
            self.ws.receive_data(bytes(await self.stream.receive_some()) or None)

    async def accept(self):
        self.request = await self.hear()
        assert isinstance(self.request, Request)
        await self.say(AcceptConnection(subprotocol="mcp"))


@contextlib.asynccontextmanager
async def connected(**options):
    """A client that has shaken hands with a scripted server."""
    ours, theirs = trio.testing.memory_stream_pair()
    transport, server = WebSocketTransport(ours, "x:1", "/mcp?a=b", **options), Server(theirs)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(transport.pump)
        await server.accept()
        with trio.fail_after(20):
            yield transport, server
        await transport.aclose()
        await theirs.aclose()
        nursery.cancel_scope.cancel()


class ServerEnd(ASGIWebSocket):
    """Our server's end; closing it lets its ASGI call return, as a session does."""

    done = None

    async def aclose(self):
        try:
            await super().aclose()
        finally:
            self.done.set()


async def _pair(nursery):
    """Our client and our server's end, through the real connection loop."""
    accepted = []
    ready = trio.Event()

    async def app(scope, receive, send):
        line = ServerEnd(receive, send, max_message=2**24)
        line.done = trio.Event()
        assert await line.accept(scope["subprotocols"])
        accepted.append(line)
        ready.set()
        await line.done.wait()

    listener = LockstepListener()
    await nursery.start(HTTPService(app).run_listeners, [listener])
    client = WebSocketTransport(await listener.connect(), "x", "/mcp")
    await client.open()
    await ready.wait()
    return client, accepted[0]


@pytest.mark.parametrize("left", ["client", "server"])
async def test_both_ends_pass_the_battery(autojump_clock, left):
    async with trio.open_nursery() as nursery:

        async def make():
            pair = await _pair(nursery)
            return pair if left == "client" else pair[::-1]

        await check_transport(make, without=dict.fromkeys(HALVES, NO_HALVES))
        nursery.cancel_scope.cancel()


async def test_the_handshake_names_host_path_subprotocol_and_headers(autojump_clock):
    async with connected(headers={"authorization": "Bearer x"}) as (_, server):
        assert (server.request.host, server.request.target) == ("x:1", "/mcp?a=b")
        assert server.request.subprotocols == ["mcp"]
        assert (b"authorization", b"Bearer x") in server.request.extra_headers
        assert not server.request.extensions


async def test_a_message_in_fragments_is_one_message(autojump_clock):
    async with connected() as (client, server):
        text = '{"jsonrpc":"2.0","method":"n","params":{"t":"\u20ac"}}'
        for part in text[:-1]:
            await server.say(TextMessage(data=part, message_finished=False))
            await server.say(Ping(payload=b"between"))
        await server.say(TextMessage(data=text[-1]))
        assert (await client.receive()).message == Notification("n", {"t": "\u20ac"})


async def test_pings_are_answered_with_their_payload(autojump_clock):
    async with connected() as (client, server):
        await server.say(Ping(payload=b"a"), TextMessage(data=NOTE))
        await client.receive()
        pong = await server.hear()
        assert isinstance(pong, Pong)
        assert bytes(pong.payload) == b"a"


async def test_a_server_that_pings_and_never_reads_costs_no_memory(autojump_clock):
    async with connected(max_buffer=1000) as (client, server):
        client._stream.send_stream.send_all_hook = trio.sleep_forever
        await server.say(*[Ping(payload=b"x" * 100)] * 1000, TextMessage(data=NOTE))
        await client.receive()
        await trio.testing.wait_all_tasks_blocked()
        assert client._outbox._waiting < 1200
        client._stream.send_stream.send_all_hook = None
        await client._stream.aclose()


async def test_text_that_is_no_message_is_malformed_and_the_line_goes_on(autojump_clock):
    async with connected() as (client, server):
        for text in ("", "no json", "[]", "{}", '{"jsonrpc":"1.0"}'):
            await server.say(TextMessage(data=text), TextMessage(data=NOTE))
            assert isinstance((await client.receive()).message, Malformed)
            assert (await client.receive()).message == Notification("n")


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (BytesMessage(data=b"{}"), 1003),
        (TextMessage(data="x" * 200), 1009),
        (TextMessage(data="\u20ac" * 40), 1009),
        (TextMessage(data="x" * 200, message_finished=False), 1009),
    ],
)
async def test_frames_that_are_not_allowed_end_the_connection(event, code):
    async with connected(max_message=100) as (client, server):
        await server.say(event)
        for _ in range(2):
            with pytest.raises(trio.EndOfChannel):
                await client.receive()
        farewell = await server.hear()
        assert isinstance(farewell, CloseConnection)
        assert farewell.code == code
        with pytest.raises(TransportError):
            await client.send(Envelope(Notification("n")))


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 50,  # reserved bits, unknown opcode
        b"\x81\x81aaaab",  # a masked frame from a server
        b"\x81\x02\xff\xff",  # text that is not UTF-8
        b"\x80\x01a",  # a continuation of nothing
        b"\x89\x7e\x00\x80" + b"x" * 128,  # a long ping
        b"\x88\x01a",  # a close of one byte
        b"",  # the end without a goodbye
    ],
)
async def test_a_server_that_breaks_the_protocol_is_left(data):
    async with connected() as (client, server):
        await server.say(TextMessage(data=NOTE))
        if data:
            await server.stream.send_all(data)
        else:
            await server.stream.send_stream.aclose()
        assert (await client.receive()).message == Notification("n")
        with pytest.raises(trio.EndOfChannel):
            await client.receive()


async def test_the_servers_close_is_answered_and_ends_the_line():
    async with connected() as (client, server):
        await server.say(TextMessage(data=NOTE), CloseConnection(code=1001))
        await client.receive()
        with pytest.raises(trio.EndOfChannel):
            await client.receive()
        answer = await server.hear()
        assert isinstance(answer, CloseConnection)
        assert answer.code == 1001


async def test_closing_says_goodbye_and_does_not_wait_for_ever(autojump_clock):
    async with connected() as (client, server):
        await client.send(Envelope(Notification("n")))
        began = trio.current_time()
        await client.aclose()
        assert trio.current_time() - began == pytest.approx(2)
        assert isinstance(await server.hear(), TextMessage)
        assert isinstance(await server.hear(), CloseConnection)
        with pytest.raises(TransportClosedError):
            await client.send(Envelope(Notification("n")))
        with pytest.raises(trio.EndOfChannel):
            await client.receive()


async def test_closing_while_somebody_receives_ends_the_receiver(autojump_clock):
    async with connected() as (client, server):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_the_end, client)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(client.aclose)
            farewell = await server.hear()
            assert isinstance(farewell, CloseConnection)
            await server.say(farewell.response())


async def _until_the_end(client):
    with pytest.raises(trio.EndOfChannel):
        await client.receive()


async def _refused(behave, match, **options):
    ours, theirs = trio.testing.memory_stream_pair()
    client, server = WebSocketTransport(ours, "x", "/mcp", **options), Server(theirs)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.pump)
        await server.hear()
        await behave(server)
        with pytest.raises(TransportError, match=match):
            await client.send(Envelope(Notification("n")))
        with pytest.raises(trio.EndOfChannel):
            await client.receive()
        with pytest.raises(TransportError, match=match):
            await client.open()
        await client.aclose()
    await theirs.aclose()


async def test_a_refused_handshake_says_how_it_was_refused():
    async def refuse(server):
        await server.say(RejectConnection(status_code=403))

    await _refused(refuse, "403")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n",
        b"HTTP/1.1 101 X\r\nupgrade: websocket\r\nconnection: upgrade\r\n%s\r\n\r\n"
        % b"sec-websocket-accept: wrong",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: \xff\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"x" * 100_000,
    ],
)
async def test_a_server_that_speaks_something_else_is_left(autojump_clock, answer):
    async def behave(server):
        await server.stream.send_all(answer)

    await _refused(behave, "handshake")


async def test_a_server_that_hangs_up_during_the_handshake_is_an_error():
    async def hang_up(server):
        await server.stream.send_stream.aclose()

    await _refused(hang_up, "handshake")


async def test_a_server_that_does_not_answer_the_handshake_is_given_up(autojump_clock):
    async def nothing(server):
        pass

    began = trio.current_time()
    await _refused(nothing, "in time")
    assert trio.current_time() - began == pytest.approx(10)


async def test_closing_before_it_is_open_ends_everybody_who_waits(autojump_clock):
    ours, theirs = trio.testing.memory_stream_pair()
    client = WebSocketTransport(ours, "x", "/mcp")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.pump)
        nursery.start_soon(_until_the_end, client)

        async def send():
            with pytest.raises(TransportClosedError):
                await client.send(Envelope(Notification("n")))

        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked()
        await client.aclose()
    await theirs.aclose()


@pytest.mark.parametrize("step", range(1, 20))
async def test_opening_can_be_cancelled_at_any_step(step):
    ours, theirs = trio.testing.memory_stream_pair()
    client, server = WebSocketTransport(ours, "x", "/mcp"), Server(theirs)
    async with trio.open_nursery() as nursery:

        async def accept():
            with contextlib.suppress(trio.BrokenResourceError):
                await server.accept()

        nursery.start_soon(accept)
        with trio.CancelScope() as scope:

            async def stop():
                for _ in range(step):
                    await trio.lowlevel.checkpoint()
                scope.cancel()

            nursery.start_soon(stop)
            await client.open()
        if scope.cancelled_caught:
            with pytest.raises(TransportError):
                await client.send(Envelope(Notification("n")))
        await client._stream.aclose()
        await client.aclose()
        nursery.cancel_scope.cancel()
    await theirs.aclose()


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (BytesMessage(data=b"{}"), "given up: a message is one text frame"),
        (TextMessage(data="x" * 200), "given up: a message is larger than 100 bytes"),
        (CloseConnection(code=1011, reason="out of order"), "closed .* with 1011: out of order"),
        (CloseConnection(code=1008), "closed the connection with 1008$"),
    ],
)
async def test_those_who_wait_hear_why_the_connection_ended(event, why):
    async with connected(max_message=100) as (client, server):
        await server.say(event)
        for _ in range(2):
            with pytest.raises(trio.EndOfChannel, match=why):
                await client.receive()


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"\xff" * 50, "broke the WebSocket protocol"), (b"", "ended without a goodbye")],
)
async def test_those_who_wait_hear_how_it_broke(data, why):
    async with connected() as (client, server):
        if data:
            await server.stream.send_all(data)
        else:
            await server.stream.send_stream.aclose()
        with pytest.raises(trio.EndOfChannel, match=why):
            await client.receive()


async def test_a_frame_that_claims_an_exabyte_is_given_up_at_the_limit():
    """The length in its head is believed by nobody: memory is taken as bytes arrive."""
    async with connected(max_message=100_000) as (client, server):
        await server.stream.send_all(b"\x81\x7f" + (2**60).to_bytes(8, "big"))
        sent = 0

        async def flood():
            nonlocal sent
            while True:
                await server.stream.send_all(b"x" * 1000)
                sent += 1000

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood)
            with pytest.raises(trio.EndOfChannel, match="larger than 100000 bytes"):
                await client.receive()
            nursery.cancel_scope.cancel()
        assert sent < 1_000_000
