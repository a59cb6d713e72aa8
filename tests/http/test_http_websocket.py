"""WebSocket through the connection loop."""

import os

import pytest
import trio
import trio.testing
import wsproto
import wsproto.events

from mcp_trio.http.asgi_call import Receive, Scope, Send
from mcp_trio.http.http1 import FRAMES_SIZE

from .serving_tools import connect, handle_of, read_all, served


async def echo_socket(scope: Scope, receive: Receive, send: Send) -> None:
    assert scope["type"] == "websocket"
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})
        if message["text"] == "please close":
            await send({"type": "websocket.close", "code": 1000})


class SocketClient:
    """A small WebSocket client."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.ws = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)

    async def say(self, event: wsproto.events.Event) -> None:
        await self.stream.send_all(self.ws.send(event))

    async def hear(self) -> wsproto.events.Event:
        while True:
            event = next(iter(self.ws.events()), None)
            if event is not None:
                return event
            data = await self.stream.receive_some()
            self.ws.receive_data(bytes(data) or None)


async def test_a_websocket_echoes_and_closes() -> None:
    async with served(echo_socket) as port, await connect(port) as stream:
        client = SocketClient(stream)
        await client.say(wsproto.events.Request(host="x", target="/"))
        assert isinstance(await client.hear(), wsproto.events.AcceptConnection)
        for text in ("one", "two"):
            await client.say(wsproto.events.TextMessage(data=text))
            reply = await client.hear()
            assert isinstance(reply, wsproto.events.TextMessage)
            assert reply.data == text
        await client.say(wsproto.events.CloseConnection(code=1000))
        assert isinstance(await client.hear(), wsproto.events.CloseConnection)
        assert await stream.receive_some() == b""


async def test_a_websocket_can_be_closed_by_the_application() -> None:
    async with served(echo_socket) as port, await connect(port) as stream:
        client = SocketClient(stream)
        await client.say(wsproto.events.Request(host="x", target="/"))
        await client.hear()
        await client.say(wsproto.events.TextMessage(data="please close"))
        assert isinstance(await client.hear(), wsproto.events.TextMessage)
        farewell = await client.hear()
        assert isinstance(farewell, wsproto.events.CloseConnection)
        await client.say(farewell.response())
        assert await stream.receive_some() == b""


async def test_a_websocket_whose_peer_vanishes_is_told() -> None:
    codes: list[object] = []
    lost, done = trio.Event(), trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        handle_of(scope).on_disconnect(lost.set)
        await receive()
        await send({"type": "websocket.accept"})
        codes.append((await receive())["code"])
        done.set()

    async with served(app) as port:
        async with await connect(port) as stream:
            client = SocketClient(stream)
            await client.say(wsproto.events.Request(host="x", target="/"))
            await client.hear()
        await lost.wait()
        await done.wait()
        assert codes == [1006]


async def test_a_bad_websocket_handshake_is_refused_and_closed() -> None:
    async with served(echo_socket) as port, await connect(port) as stream:
        await stream.send_all(
            b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
        )
        assert (await read_all(stream)).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("field", [b"connection", b"sec-websocket-protocol"])
async def test_a_websocket_handshake_that_is_not_ascii_is_refused(
    field: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(echo_socket) as port, await connect(port) as stream:
        await stream.send_all(
            b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n"
            + field
            + b": \xff\r\n\r\n"
        )
        assert (await read_all(stream)).startswith(b"HTTP/1.1 400 ")
    assert caplog.records == []


@pytest.mark.parametrize(
    "offer",
    [
        "permessage-deflate",
        "permessage-deflate; client_max_window_bits",
        "permessage-deflate; server_max_window_bits=x",
        "permessage-deflate; client_max_window_bits=",
        ";;=, permessage-deflate; server_max_window_bits=99",
    ],
)
async def test_compression_is_never_agreed_to(offer: str, caplog: pytest.LogCaptureFixture) -> None:
    """A small message could hold gigabytes, and Hypercorn inflates without a limit."""
    async with served(echo_socket) as port, await connect(port) as stream:
        client = SocketClient(stream)
        fields = [(b"sec-websocket-extensions", offer.encode())]
        await client.say(wsproto.events.Request(host="x", target="/", extra_headers=fields))
        accepted = await client.hear()
        assert isinstance(accepted, wsproto.events.AcceptConnection)
        assert accepted.extensions == []
    assert caplog.records == []


async def test_a_peer_that_goes_on_after_its_message_was_too_big_is_cut_off() -> None:
    async with (
        served(echo_socket, max_websocket_message_bytes=1000, linger_timeout=0.1) as port,
        await connect(port) as stream,
    ):
        client = SocketClient(stream)
        await client.say(wsproto.events.Request(host="x", target="/"))
        await client.hear()
        piece = wsproto.events.TextMessage(data="x" * 600, message_finished=False)
        await client.say(piece)
        await client.say(piece)
        closed = await client.hear()
        assert isinstance(closed, wsproto.events.CloseConnection)
        assert closed.code == 1009
        assert await stream.receive_some() == b""
        with pytest.raises(trio.BrokenResourceError):
            while True:
                await stream.send_all(b"\x00" * 65536)
                await trio.testing.wait_all_tasks_blocked()


async def test_a_websocket_is_read_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand messages in one piece would be taken apart before anybody else has a turn."""
    read, pieces = os.read, list[int]()

    def spy(descriptor: int, most: int) -> bytes:
        data = read(descriptor, most)
        if data.startswith(MANY[:2]) or pieces:
            pieces.append(len(data))
        return data

    async with served(echo_socket) as port, await connect(port) as stream:
        client = SocketClient(stream)
        await client.say(wsproto.events.Request(host="x", target="/"))
        assert isinstance(await client.hear(), wsproto.events.AcceptConnection)
        monkeypatch.setattr("mcp_trio.http.byte_pipe.os.read", spy)
        await stream.send_all(MANY)
        for _ in range(2000):
            assert isinstance(await client.hear(), wsproto.events.TextMessage)
    assert sum(pieces) == len(MANY)
    assert max(pieces) <= FRAMES_SIZE


MANY = b"\x81\x85mask" + bytes(byte ^ mask for byte, mask in zip(b"hello", b"maskm", strict=True))
MANY *= 2000
"""Small text frames of a client (RFC 6455, section 5.7)."""
