"""One connection: what is written when, who is told of a lost peer, how it closes.

Sockets are real and so is their clock, except where a test only waits for a limit: those run over
memory streams on the autojump clock.
"""

import logging
import math
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import h2.config
import h2.connection
import h2.events
import h11
import pytest
import trio
import trio.testing
import trustme
import wsproto
import wsproto.events

from mcp_trio.http.asgi_call import ConnectionHandle, Message, Receive, Scope, Send
from mcp_trio.http.serving import HTTPService, ServingSettings

App = Callable[[Scope, Receive, Send], Awaitable[None]]

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


# Helpers: a service, and applications to serve.


class MemoryListener(trio.abc.Listener[trio.abc.Stream]):
    """A listener whose connections are memory streams."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[trio.abc.Stream](1)

    async def connect(self) -> trio.StapledStream:
        client, server = trio.testing.memory_stream_pair()
        await self._send.send(server)
        return client

    async def connect_watched(self, hook: Callable[[], None]) -> trio.StapledStream:
        client, server = trio.testing.memory_stream_pair()
        pump = server.send_stream.send_all_hook

        async def watch() -> None:
            hook()
            await pump() if pump is not None else None

        server.send_stream.send_all_hook = watch
        await self._send.send(server)
        return client

    async def accept(self) -> trio.abc.Stream:
        return await self._receive.receive()

    async def aclose(self) -> None:
        await self._receive.aclose()


@asynccontextmanager
async def served(app: App, **limits: float) -> AsyncIterator[int]:
    """Serve ``app`` on a loopback port until the block ends; then nothing may be left."""
    service = HTTPService(app, settings=ServingSettings(**limits))
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(service.run, "127.0.0.1", 0)
        with trio.fail_after(10):
            yield int(urls[0].rpartition(":")[2])
        nursery.cancel_scope.cancel()
    assert service.statistics().connections == 0
    assert service.statistics().requests_in_flight == 0


@asynccontextmanager
async def served_in_memory(app: App, **limits: float) -> AsyncIterator[MemoryListener]:
    service = HTTPService(app, settings=ServingSettings(**limits))
    listener = MemoryListener()
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run_listeners, [listener])
        yield listener
        nursery.cancel_scope.cancel()
    assert service.statistics().connections == 0


def handle_of(scope: Scope) -> ConnectionHandle:
    extensions = scope["extensions"]
    assert isinstance(extensions, dict)
    return extensions["mcp_trio.connection"]


async def read_body(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        assert message["type"] == "http.request"
        body += message["body"]
        if not message["more_body"]:
            return body


async def answer(send: Send, body: bytes, status: int = 200) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [(b"content-length", b"%d" % len(body))],
        }
    )
    await send({"type": "http.response.body", "body": body})


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(send, await read_body(receive))


async def start_events(send: Send) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-type", b"text/event-stream")],
        }
    )


class Waiter:
    """An application that says when it runs, and waits until its peer is lost or it may answer."""

    def __init__(self, *, events: bool = False, kind: bytes = b"text/plain") -> None:
        self.running = trio.Event()
        self.lost = trio.Event()
        self.may_answer = trio.Event()
        self.send_raised = trio.Event()
        self.handle: ConnectionHandle | None = None
        self._stream = events
        self._kind = b"text/event-stream" if events else kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        self.handle = handle_of(scope)
        self.handle.on_disconnect(self.lost.set)
        if self._stream or self._kind != b"text/plain":
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [(b"content-type", self._kind)],
                }
            )
            await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        self.running.set()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._leave, nursery.cancel_scope, self.lost)
            nursery.start_soon(self._leave, nursery.cancel_scope, self.may_answer)
        if self.lost.is_set():
            with pytest.raises(trio.BrokenResourceError):
                await answer(send, b"too late")
            self.send_raised.set()
        elif self._stream:
            await send({"type": "http.response.body", "body": b"data: 2\n\n"})
        else:
            await answer(send, b"late answer")

    async def _leave(self, scope: trio.CancelScope, event: trio.Event) -> None:
        await event.wait()
        scope.cancel()


# Helpers: clients.


async def connect(port: int) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", port)


async def read_all(stream: trio.abc.ReceiveStream) -> bytes:
    return b"".join([bytes(chunk) async for chunk in stream])


async def read_until(stream: trio.abc.ReceiveStream, end: bytes) -> bytes:
    data = b""
    while end not in data:
        chunk = await stream.receive_some()
        assert chunk, f"end of file before {end!r} in {data!r}"
        data += chunk
    return data


class Client:
    """An HTTP/1.1 client on any stream, parsing with h11."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._h11 = h11.Connection(h11.CLIENT)

    async def ask(self, method: str = "POST", body: bytes = b"", **headers: str) -> None:
        fields = [("host", "x"), *((k.replace("_", "-"), v) for k, v in headers.items())]
        if body or method == "POST":
            fields.append(("content-length", str(len(body))))
        data = self._h11.send(h11.Request(method=method, target="/", headers=fields))
        data += self._h11.send(h11.Data(data=body)) if body else b""
        data += self._h11.send(h11.EndOfMessage())
        await self.stream.send_all(data)

    async def read(self) -> tuple[h11.Response, bytes]:
        """Return the final response, then be ready for the next exchange if there may be one."""
        response: h11.Response | None = None
        body = b""
        while True:
            event = self._h11.next_event()
            if event is h11.NEED_DATA:
                self._h11.receive_data(await self.stream.receive_some())
            elif isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
        if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()
        assert response is not None
        return response, body


def header(response: h11.Response, name: bytes) -> bytes | None:
    return dict(response.headers).get(name)


def reset(stream: trio.SocketStream) -> None:
    """Close with RST."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


# Writing.


async def test_head_and_body_leave_in_one_write() -> None:
    writes: list[int] = []
    async with served_in_memory(echo) as listener:
        client = Client(await listener.connect_watched(lambda: writes.append(1)))
        await client.ask(body=b"hello")
        response, body = await client.read()
        assert (response.status_code, body) == (200, b"hello")
        assert len(writes) == 1


async def test_each_event_of_a_stream_is_written_at_once() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await start_events(send)
        for number in range(3):
            body = b"data: %d\n\n" % number
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await seen[number].wait()
        await send({"type": "http.response.body", "body": b""})

    seen = [trio.Event() for _ in range(3)]
    async with served(app) as port, await connect(port) as stream:
        await stream.send_all(GET)
        for number in range(3):
            # The application does not go on before this event has been read.
            await read_until(stream, b"data: %d\n\n" % number)
            seen[number].set()
        assert (await read_until(stream, b"0\r\n\r\n")).endswith(b"0\r\n\r\n")


async def test_a_send_can_be_cancelled_by_the_applications_own_deadline() -> None:
    left = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        with trio.move_on_after(0.2) as limit:
            await answer(send, bytes(50_000_000))
        assert limit.cancelled_caught
        # A part is on the wire: nothing may follow it.
        with pytest.raises(trio.BrokenResourceError):
            await send({"type": "http.response.body", "body": b"more"})
        left.set()

    async with served(app, write_timeout=60) as port, await connect(port) as stream:
        await stream.send_all(GET)
        with trio.fail_after(2):  # real sockets, real clock: 0.2 s and some air
            await left.wait()
        with pytest.raises(trio.BrokenResourceError):
            await read_all(stream)


async def test_a_peer_that_stops_reading_is_dropped_after_the_write_timeout() -> None:
    lost, raised = trio.Event(), trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        handle_of(scope).on_disconnect(lost.set)
        with pytest.raises(trio.BrokenResourceError):
            await answer(send, bytes(50_000_000))
        raised.set()

    async with served(app, write_timeout=0.2) as port, await connect(port) as stream:
        await stream.send_all(GET)
        await lost.wait()
        await raised.wait()


async def test_a_slow_peer_that_reads_on_is_not_dropped() -> None:
    size = 8_000_000

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, bytes(size))

    async with served(app, write_timeout=0.5) as port, await connect(port) as stream:
        await stream.send_all(GET)
        await read_until(stream, b"\r\n\r\n")
        await trio.sleep(0.3)  # most of the limit, not all of it
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        got = 0
        while got < size - 200_000:
            got += len(await stream.receive_some(1_000_000))
        assert got > size - 200_000


# A lost peer.


async def close_fully(stream: trio.SocketStream) -> None:
    await stream.aclose()


async def close_with_reset(stream: trio.SocketStream) -> None:
    reset(stream)


# The limits of 100 ms below are loose: the answer to the probe takes less than 1 ms on loopback.
@pytest.mark.parametrize("leave", [close_fully, close_with_reset])
@pytest.mark.parametrize("events", [False, True])
async def test_a_peer_that_has_closed_is_noticed_promptly(
    leave: Callable[[trio.SocketStream], Awaitable[None]], events: bool
) -> None:
    app = Waiter(events=events)
    async with served(app) as port:
        stream = await connect(port)
        await stream.send_all(GET)
        await app.running.wait()
        if events:
            await read_until(stream, b"data: 1\n\n")
        await leave(stream)
        with trio.fail_after(0.1):
            await app.lost.wait()
        await app.send_raised.wait()
        assert app.handle is not None
        assert app.handle.client is not None
        assert app.handle.client[0] == "127.0.0.1"


async def test_receive_says_disconnect_when_the_peer_has_gone() -> None:
    messages: list[Message] = []
    waiting, done = trio.Event(), trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        waiting.set()
        messages.append(await receive())
        messages.append(await receive())
        done.set()

    async with served(app) as port:
        async with await connect(port) as stream:
            await stream.send_all(GET)
            await waiting.wait()
        await done.wait()
        assert [message["type"] for message in messages] == ["http.disconnect"] * 2


async def test_a_callback_registered_too_late_runs_at_once() -> None:
    app_done = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        assert (await receive())["type"] == "http.disconnect"
        calls: list[int] = []
        handle_of(scope).on_disconnect(lambda: calls.append(1))
        assert calls == [1]
        app_done.set()

    async with served(app) as port:
        async with await connect(port) as stream:
            await stream.send_all(GET)
        await app_done.wait()


async def test_no_disconnect_is_reported_after_a_complete_answer() -> None:
    calls: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        handle_of(scope).on_disconnect(lambda: calls.append("lost"))
        await answer(send, b"whole")
        assert (await receive())["type"] == "http.request"
        assert (await receive())["type"] == "http.disconnect"
        calls.append("answered")

    async with served(app) as port:
        async with await connect(port) as stream:
            client = Client(stream)
            await client.ask()
            await client.read()
            await client.ask()
            await client.read()
    assert calls == ["answered", "answered"]


async def test_an_application_that_ignores_disconnect_is_cancelled_after_the_grace() -> None:
    running, ended = trio.Event(), trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        running.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    async with served(app, disconnect_grace=0.1) as port:
        async with await connect(port) as stream:
            await stream.send_all(GET)
            await running.wait()
        with trio.fail_after(2):
            await ended.wait()


# Half close.


async def test_a_half_closing_client_gets_an_answer_that_comes_later() -> None:
    app = Waiter()
    async with served(app) as port, await connect(port) as stream:
        await stream.send_all(GET)
        await stream.send_eof()
        assert (await read_until(stream, b"\r\n\r\n")).startswith(b"HTTP/1.1 102 ")
        assert app.handle is not None
        assert app.handle.half_closed
        app.may_answer.set()
        rest = await read_all(stream)  # to the end of file: the connection closes after it
        assert rest.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in rest.lower()
        assert rest.endswith(b"late answer")
        assert not app.lost.is_set()


async def test_a_half_closing_client_gets_the_rest_of_its_event_stream() -> None:
    app = Waiter(events=True)
    async with served(app) as port, await connect(port) as stream:
        await stream.send_all(GET)
        await read_until(stream, b"data: 1\n\n")
        await stream.send_eof()
        await read_until(stream, b":\n\n")
        app.may_answer.set()
        rest = await read_all(stream)
        assert b"data: 2\n\n" in rest
        assert rest.endswith(b"0\r\n\r\n")
        assert not app.lost.is_set()


async def test_a_half_closing_client_that_pipelined_gets_every_answer() -> None:
    async with served(echo) as port, await connect(port) as stream:
        await stream.send_all(GET * 3)
        await stream.send_eof()
        assert (await read_all(stream)).count(b"HTTP/1.1 200 ") == 3


async def test_a_half_closing_client_gets_a_big_answer_whole() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, bytes(20_000_000))

    async with served(app) as port, await connect(port) as stream:
        await stream.send_all(GET)
        await stream.send_eof()
        assert len(await read_all(stream)) > 20_000_000


async def test_a_peer_that_half_closes_first_and_resets_later_is_noticed() -> None:
    app = Waiter()
    async with served(app) as port:
        stream = await connect(port)
        await stream.send_all(GET)
        await stream.send_eof()
        await read_until(stream, b"102")
        reset(stream)
        with trio.fail_after(0.1):
            await app.lost.wait()


async def test_end_of_file_is_disconnect_within_a_stream_that_cannot_be_probed() -> None:
    app = Waiter(kind=b"application/octet-stream")
    async with served(app) as port, await connect(port) as stream:
        await stream.send_all(GET)
        await read_until(stream, b"data: 1\n\n")
        await stream.send_eof()
        await app.lost.wait()


async def test_no_interim_response_is_sent_to_a_client_of_http_1_0() -> None:
    app = Waiter()
    async with served(app) as port, await connect(port) as stream:
        await stream.send_all(b"GET / HTTP/1.0\r\n\r\n")
        await app.running.wait()
        await stream.send_eof()
        await app.lost.wait()
        with pytest.raises(trio.BrokenResourceError):
            assert await read_all(stream) == b""
            raise trio.BrokenResourceError  # a clean end is as good as a reset


# Closing.


async def too_large(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(send, b"too large", 413)


async def test_an_answer_before_the_body_reaches_a_client_that_sends_it_all_first() -> None:
    async with served(too_large) as port, await connect(port) as stream:
        body = bytes(5_000_000)
        await stream.send_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5000000\r\n\r\n")
        await stream.send_all(body)
        data = await read_all(stream)
        assert data.startswith(b"HTTP/1.1 413 ")
        assert b"connection: close" in data.lower()
        assert data.endswith(b"too large")


async def test_an_answer_before_the_body_reaches_a_client_that_sends_slowly() -> None:
    async with served(too_large) as port, await connect(port) as stream:
        await stream.send_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5000000\r\n\r\n")
        for _ in range(5):
            await stream.send_all(bytes(1_000_000))
            await trio.sleep(0.02)  # a slow client, not a wait for anything
        assert (await read_all(stream)).startswith(b"HTTP/1.1 413 ")


async def test_the_lingering_close_ends_although_the_client_never_does(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with served_in_memory(too_large, linger_timeout=2) as listener:
        client = await listener.connect()
        await client.send_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5000000\r\n\r\n")
        await read_until(client, b"too large")
        assert await client.receive_some() == b""
        with pytest.raises(trio.BrokenResourceError):
            while True:
                await client.send_all(b"x")
                await trio.sleep(0.5)
        assert trio.current_time() <= 3


# Limits, on the autojump clock.


async def test_a_head_that_comes_byte_by_byte_is_answered_408(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with served_in_memory(echo, header_timeout=10) as listener:
        client = await listener.connect()
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def drip() -> None:
                for byte in GET:
                    await client.send_all(bytes([byte]))
                    await trio.sleep(1)

            data = await read_all(client)
            assert trio.current_time() == pytest.approx(10)
            nursery.cancel_scope.cancel()
        assert data.startswith(b"HTTP/1.1 408 ")
        assert b"connection: close" in data.lower()


async def test_the_limit_of_a_later_head_starts_with_its_first_byte(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with served_in_memory(echo, header_timeout=10, keep_alive_timeout=60) as listener:
        stream = await listener.connect()
        client = Client(stream)
        await client.ask()
        await client.read()
        await trio.sleep(50)
        await stream.send_all(b"GET")
        assert (await read_all(stream)).startswith(b"HTTP/1.1 408 ")
        assert trio.current_time() == pytest.approx(60)


@pytest.mark.parametrize(("asked", "limit"), [(False, 10), (True, 60)])
async def test_a_connection_without_a_request_is_closed_quietly(
    autojump_clock: trio.testing.MockClock, asked: bool, limit: float
) -> None:
    async with served_in_memory(echo, header_timeout=10, keep_alive_timeout=60) as listener:
        stream = await listener.connect()
        if asked:
            client = Client(stream)
            await client.ask()
            await client.read()
        assert await read_all(stream) == b""
        assert trio.current_time() == pytest.approx(limit)


async def test_a_body_that_comes_byte_by_byte_is_answered_408(
    autojump_clock: trio.testing.MockClock,
) -> None:
    heard: list[object] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                heard.append(message["type"])
                return

    async with served_in_memory(app, header_timeout=10, body_timeout=30) as listener:
        client = await listener.connect()
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def drip() -> None:
                await client.send_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n")
                while True:
                    await client.send_all(b"x")
                    await trio.sleep(1)

            data = await read_all(client)
            assert trio.current_time() == pytest.approx(30)
            nursery.cancel_scope.cancel()
        assert data.startswith(b"HTTP/1.1 408 ")
        assert heard == ["http.disconnect"]


async def test_a_request_in_flight_has_no_read_deadline(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await trio.sleep(100_000)
        await echo(scope, receive, send)

    async with served_in_memory(app) as listener:
        client = Client(await listener.connect())
        await client.ask(body=b"x")
        assert (await client.read())[1] == b"x"


# What is refused.


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\nbig: " + bytes([65]) * 40_000, b"431"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nbig: " + bytes([65]) * 40_000 + b"\r\n\r\n", b"431"),
        (b"\x16\x03\x01 this is not HTTP\r\n\r\n", b"400"),
        (b"GET /\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),  # no Host
        (b"GET / HTTP/3.0\r\nhost: x\r\n\r\n", b"505"),
        (
            b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n"
            b"transfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n",
            b"400",
        ),
        (b"POST / HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n", b"501"),
        (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", b"400"),
    ],
)
async def test_a_request_that_cannot_be_served_gets_one_readable_answer(
    request_bytes: bytes, status: bytes
) -> None:
    async with served(echo) as port, await connect(port) as stream:
        await stream.send_all(request_bytes)
        data = await read_all(stream)
        assert data.startswith(b"HTTP/1.1 " + status + b" ")
        assert data.count(b"HTTP/1.1") == 1


async def test_a_body_that_ends_too_early_is_answered_400_and_told_to_the_application() -> None:
    lost = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        handle_of(scope).on_disconnect(lost.set)
        while (await receive())["type"] == "http.request":
            pass

    async with served(app) as port, await connect(port) as stream:
        await stream.send_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc")
        await stream.send_eof()
        assert (await read_all(stream)).startswith(b"HTTP/1.1 400 ")
        await lost.wait()


# HTTP/1.1 manners.


async def test_a_connection_serves_one_request_after_another() -> None:
    async with served(echo) as port, await connect(port) as stream:
        client = Client(stream)
        for number in range(5):
            await client.ask(body=b"%d" % number)
            response, body = await client.read()
            assert body == b"%d" % number
            assert header(response, b"connection") is None
            assert header(response, b"date") is not None
            assert header(response, b"server") is None


async def test_pipelined_requests_are_answered_in_order_and_one_at_a_time() -> None:
    running = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal running
        running += 1
        assert running == 1
        body = await read_body(receive)
        await trio.testing.wait_all_tasks_blocked()
        running -= 1
        await answer(send, body)

    ask = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n%d"
    async with served(app) as port, await connect(port) as stream:
        await stream.send_all(b"".join(ask % number for number in range(5)))
        for number in range(5):
            answer_bytes = await read_until(stream, b"\r\n\r\n%d" % number)
            assert answer_bytes.count(b"200") == 1


async def test_pipelining_far_ahead_is_not_read_ahead_without_bound() -> None:
    release = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        await release.wait()
        await answer(send, b"x")

    count = 200_000
    async with served(app) as port, await connect(port) as stream:
        with trio.move_on_after(0.5) as limit:
            await stream.send_all(GET * count)  # 5 MB, of which loopback buffers hold a part
        stalled = limit.cancelled_caught
        release.set()
        assert stalled or len(GET) * count < 4_000_000
        assert (await read_until(stream, b"200")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("head", "closes"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", True),
        (b"GET / HTTP/1.0\r\n\r\n", True),
    ],
)
async def test_a_client_that_wants_the_connection_closed_sees_it_close(
    head: bytes, closes: bool
) -> None:
    async with served(echo) as port, await connect(port) as stream:
        await stream.send_all(head)
        data = await read_all(stream)
        assert data.startswith(b"HTTP/1.1 200 ")
        assert (b"connection: close" in data.lower()) is closes


async def test_continue_is_said_when_the_application_asks_for_the_body() -> None:
    async with served(echo) as port, await connect(port) as stream:
        await stream.send_all(
            b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n"
        )
        assert (await read_until(stream, b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        await stream.send_all(b"hello")
        assert (await read_until(stream, b"hello")).startswith(b"HTTP/1.1 200 ")


async def test_continue_is_not_said_when_the_application_refuses_by_the_head() -> None:
    async with served(too_large) as port, await connect(port) as stream:
        await stream.send_all(
            b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n"
        )
        data = await read_all(stream)
        assert data.startswith(b"HTTP/1.1 413 ")
        assert b" 100 " not in data


async def test_head_gets_the_headers_without_the_body() -> None:
    async with served(too_large) as port, await connect(port) as stream:
        client = Client(stream)
        for _ in range(2):
            await client.ask("HEAD")
            response, body = await client.read()
            assert header(response, b"content-length") == b"9"
            assert body == b""


async def test_a_body_the_application_does_not_read_stops_the_client() -> None:
    release = trio.Event()
    size = 20_000_000

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await release.wait()
        await answer(send, b"%d" % len(await read_body(receive)))

    async with served(app) as port, await connect(port) as stream:
        head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size
        async with trio.open_nursery() as nursery:
            sent = trio.Event()

            @nursery.start_soon
            async def upload() -> None:
                await stream.send_all(head + bytes(size))
                sent.set()

            with trio.move_on_after(0.2):
                await sent.wait()
            assert not sent.is_set()
            release.set()
            assert (await read_until(stream, b"%d" % size)).startswith(b"HTTP/1.1 200 ")


async def test_a_reset_is_noticed_although_the_inbox_of_the_application_is_full() -> None:
    lost = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        handle_of(scope).on_disconnect(lost.set)
        await lost.wait()

    async with served(app) as port:
        stream = await connect(port)
        with trio.move_on_after(0.2):
            await stream.send_all(
                b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 20000000\r\n\r\n"
                + bytes(20_000_000)
            )
        reset(stream)
        await lost.wait()


# Faults of the application.


async def test_an_application_that_fails_before_its_answer_gives_500(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # A held start is not on the wire yet.
        await send({"type": "http.response.start", "status": 200, "headers": []})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(explode)

    async def explode() -> None:
        raise ZeroDivisionError("a fault of the application")

    async with served(app) as port, await connect(port) as stream:
        client = Client(stream)
        await client.ask()
        response, body = await client.read()
        assert (response.status_code, body) == (500, b"")
        assert header(response, b"content-length") == b"0"
        async with await connect(port) as other:  # the service lives on
            await Client(other).ask()
    assert [record.levelno for record in caplog.records if record.name == "mcp_trio.http"][
        0
    ] == logging.ERROR
    assert "a fault of the application" in caplog.text


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_an_answer_cut_by_a_fault_cannot_be_taken_for_complete(
    version: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ZeroDivisionError

    async with served(app) as port, await connect(port) as stream:
        await stream.send_all(b"GET / HTTP/" + version + b"\r\nhost: x\r\n\r\n")
        data = b""
        if version == b"1.0":  # no framing: only a reset tells
            with pytest.raises(trio.BrokenResourceError):
                await read_all(stream)
        else:
            data = await read_all(stream)
        assert not data.endswith(b"0\r\n\r\n")
    assert "application failed" in caplog.text


@pytest.mark.parametrize("body", [b"short", b"much too long for what was said"])
async def test_a_body_that_belies_its_content_length_is_a_fault(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-length", b"10")],
            }
        )
        await send({"type": "http.response.body", "body": body})

    async with served(app) as port, await connect(port) as stream:
        await stream.send_all(GET)
        data = await read_all(stream)
        assert len(data.partition(b"\r\n\r\n")[2]) < 10
    assert "application failed" in caplog.text


async def test_a_fault_in_a_disconnect_callback_ends_only_its_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            await echo(scope, receive, send)
            return
        handle_of(scope).on_disconnect(lambda: 1 / 0)
        running.set()
        await trio.sleep_forever()

    async with served(app) as port:
        async with await connect(port) as stream:
            await stream.send_all(GET)
            await running.wait()
        async with await connect(port) as stream:
            client = Client(stream)
            await client.ask(body=b"alive")
            assert (await client.read())[1] == b"alive"
    assert "ZeroDivisionError" in caplog.text


# HTTP/2.


class H2Client:
    """A small HTTP/2 client."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.h2 = h2.connection.H2Connection(
            config=h2.config.H2Configuration(client_side=True, header_encoding="ascii")
        )
        self.h2.initiate_connection()
        self.status: dict[int, str] = {}
        self.bodies: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.resets: dict[int, int] = {}
        self.refuse_data = False
        self.gone_away = False

    async def ask(
        self, body: bytes = b"", *, method: str = "POST", end: bool = True, path: str = "/"
    ) -> int:
        stream_id = self.h2.get_next_available_stream_id()
        fields = [
            (":method", method),
            (":path", path),
            (":scheme", "http"),
            (":authority", "x"),
        ]
        self.h2.send_headers(stream_id, fields, end_stream=end and not body)
        if body:
            self.h2.send_data(stream_id, body, end_stream=end)
        await self.flush()
        return stream_id

    async def flush(self) -> None:
        await self.stream.send_all(self.h2.data_to_send())

    async def pump(self) -> bool:
        """Take what the server sends next; False at the end of file."""
        data = await self.stream.receive_some()
        if not data:
            return False
        for event in self.h2.receive_data(data):
            match event:
                case h2.events.ResponseReceived():
                    self.status[event.stream_id] = dict(event.headers)[":status"]
                case h2.events.DataReceived():
                    self.bodies[event.stream_id] = (
                        self.bodies.get(event.stream_id, b"") + event.data
                    )
                    if not self.refuse_data:
                        self.h2.acknowledge_received_data(
                            event.flow_controlled_length, event.stream_id
                        )
                case h2.events.StreamEnded():
                    self.ended.add(event.stream_id)
                case h2.events.StreamReset():
                    self.resets[event.stream_id] = event.error_code
                case h2.events.ConnectionTerminated():
                    self.gone_away = True
        await self.flush()
        return True

    async def read(self, stream_id: int) -> tuple[str, bytes]:
        while stream_id not in self.ended:
            assert await self.pump()
        return self.status[stream_id], self.bodies.get(stream_id, b"")


async def test_http2_with_prior_knowledge_serves_streams_side_by_side() -> None:
    waiting = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["http_version"] == "2"
        body = await read_body(receive)
        if body == b"slow":
            await waiting.wait()
        await answer(send, body)

    async with served(app) as port, await connect(port) as stream:
        client = H2Client(stream)
        slow = await client.ask(b"slow")
        fast = await client.ask(b"fast")
        assert await client.read(fast) == ("200", b"fast")
        waiting.set()
        assert await client.read(slow) == ("200", b"slow")


async def test_a_big_http2_exchange_is_flow_controlled_both_ways() -> None:
    size = 1_000_000

    async with served(echo) as port, await connect(port) as stream:
        client = H2Client(stream)
        stream_id = await client.ask(end=False, body=b"x")
        sent = 1
        while sent < size:
            window = client.h2.local_flow_control_window(stream_id)
            chunk = min(window, client.h2.max_outbound_frame_size, size - sent)
            if chunk:
                client.h2.send_data(stream_id, bytes(chunk))
                sent += chunk
                await client.flush()
            else:
                assert await client.pump()
        client.h2.end_stream(stream_id)
        await client.flush()
        status, body = await client.read(stream_id)
        assert (status, len(body)) == ("200", size)


async def test_an_http2_body_nobody_reads_stops_its_stream_only() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/stuck":
            await trio.sleep_forever()
        await echo(scope, receive, send)

    async with served(app) as port, await connect(port) as stream:
        client = H2Client(stream)
        await client.ask(b"a" * 16_000, end=False, path="/stuck")
        fast = await client.ask(b"fast")
        assert await client.read(fast) == ("200", b"fast")


async def test_an_http2_reset_ends_that_request_only() -> None:
    app = Waiter()
    survivor = trio.Event()

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/waiter":
            await app(scope, receive, send)
        else:
            await survivor.wait()
            await echo(scope, receive, send)

    async with served(route) as port, await connect(port) as stream:
        client = H2Client(stream)
        doomed = await client.ask(path="/waiter")
        other = await client.ask(b"other")
        await app.running.wait()
        client.h2.reset_stream(doomed)
        await client.flush()
        await app.lost.wait()
        await app.send_raised.wait()
        survivor.set()
        assert await client.read(other) == ("200", b"other")


async def test_every_http2_request_is_told_when_the_connection_closes() -> None:
    apps = [Waiter(), Waiter()]

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        await apps[int(str(scope["path"])[1:])](scope, receive, send)

    async with served(route) as port:
        async with await connect(port) as stream:
            client = H2Client(stream)
            await client.ask(path="/0")
            await client.ask(path="/1")
            for app in apps:
                await app.running.wait()
        for app in apps:
            await app.lost.wait()


async def test_an_http2_peer_that_keeps_its_window_shut_loses_the_stream() -> None:
    raised = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/big":
            with pytest.raises(trio.BrokenResourceError):
                await answer(send, bytes(1_000_000))
            raised.set()
        else:
            await echo(scope, receive, send)

    async with served(app, write_timeout=0.2) as port, await connect(port) as stream:
        client = H2Client(stream)
        client.refuse_data = True
        big = await client.ask(path="/big")
        while big not in client.resets:
            assert await client.pump()
        await raised.wait()
        client.h2.increment_flow_control_window(65535)
        other = await client.ask(b"other")
        assert await client.read(other) == ("200", b"other")


async def test_an_unfinished_http2_answer_resets_its_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ZeroDivisionError

    async with served(app) as port, await connect(port) as stream:
        client = H2Client(stream)
        stream_id = await client.ask()
        while stream_id not in client.resets:
            assert await client.pump()
        assert stream_id not in client.ended
    assert "application failed" in caplog.text


async def test_a_late_http2_body_resets_its_stream(
    autojump_clock: trio.testing.MockClock,
) -> None:
    heard = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        heard.set()

    async with served_in_memory(app, body_timeout=30) as listener:
        client = H2Client(await listener.connect())
        stream_id = await client.ask(b"part", end=False)
        while stream_id not in client.resets:
            assert await client.pump()
        await heard.wait()
        assert trio.current_time() == pytest.approx(30)


async def test_an_idle_http2_connection_says_goodbye_and_closes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with served_in_memory(echo, keep_alive_timeout=60) as listener:
        client = H2Client(await listener.connect())
        await client.read(await client.ask(b"x"))
        while await client.pump():
            pass
        assert client.gone_away
        assert trio.current_time() == pytest.approx(60)


async def test_data_for_an_answered_http2_stream_is_harmless() -> None:
    async with served(too_large) as port, await connect(port) as stream:
        client = H2Client(stream)
        early = await client.ask(b"some", end=False)
        assert await client.read(early) == ("413", b"too large")
        for _ in range(4):
            client.h2.send_data(early, bytes(10_000))
            await client.flush()
        other = await client.ask(b"x")
        assert await client.read(other) == ("413", b"too large")


async def test_opening_and_resetting_http2_streams_in_a_row_is_bounded() -> None:
    started = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal started
        started += 1
        await trio.sleep_forever()

    async with served(app, max_concurrent_streams=5) as port, await connect(port) as stream:
        client = H2Client(stream)
        for _ in range(50):
            client.h2.reset_stream(await client.ask())
        await client.flush()
        client.h2.ping(b"01234567")
        await client.flush()
        await client.pump()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert 0 < started <= 10


# WebSocket.


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
            for event in self.ws.events():
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


# TLS.


@asynccontextmanager
async def served_with_tls(
    app: App, protocols: list[str], **limits: float
) -> AsyncIterator[tuple[int, ssl.SSLContext]]:
    authority = trustme.CA()
    server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(server_context)
    server_context.set_alpn_protocols(["h2", "http/1.1"])
    client_context = ssl.create_default_context()
    authority.configure_trust(client_context)
    client_context.set_alpn_protocols(protocols)
    listeners = [
        trio.SSLListener(listener, server_context, https_compatible=True)
        for listener in await trio.open_tcp_listeners(0, host="127.0.0.1")
    ]
    service = HTTPService(app, settings=ServingSettings(**limits))
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(service.run_listeners, listeners)
        assert urls[0].startswith("https://127.0.0.1:")
        with trio.fail_after(10):
            yield int(urls[0].rpartition(":")[2]), client_context
        nursery.cancel_scope.cancel()
    assert service.statistics().connections == 0


async def connect_with_tls(
    port: int, context: ssl.SSLContext
) -> trio.SSLStream[trio.SocketStream]:
    stream = trio.SSLStream(
        await connect(port), context, server_hostname="127.0.0.1", https_compatible=True
    )
    await stream.do_handshake()
    return stream


async def test_http_1_1_works_over_tls() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["scheme"] == "https"
        await echo(scope, receive, send)

    body = bytes(3_000_000)
    async with served_with_tls(app, ["http/1.1"]) as (port, context):
        async with await connect_with_tls(port, context) as stream:
            client = Client(stream)
            for _ in range(2):
                await client.ask(body=body)
                assert (await client.read())[1] == body


async def test_http2_works_over_tls() -> None:
    async with served_with_tls(echo, ["h2"]) as (port, context):
        async with await connect_with_tls(port, context) as stream:
            assert stream.selected_alpn_protocol() == "h2"
            client = H2Client(stream)
            assert await client.read(await client.ask(b"secret")) == ("200", b"secret")


async def test_end_of_file_is_disconnect_under_tls() -> None:
    app = Waiter()
    async with served_with_tls(app, ["http/1.1"]) as (port, context):
        stream = await connect_with_tls(port, context)
        await stream.send_all(GET)
        await app.running.wait()
        await stream.aclose()
        await app.lost.wait()


async def test_a_tls_handshake_that_never_comes_is_bounded() -> None:
    async with served_with_tls(echo, ["h2"], header_timeout=0.2) as (port, _):
        async with await connect(port) as stream:
            assert await stream.receive_some() == b""


def test_the_settings_have_a_limit_for_every_wait() -> None:
    limits = [
        getattr(ServingSettings(), name)
        for name in ServingSettings.__slots__
        if name.endswith(("timeout", "grace", "period"))
    ]
    assert len(limits) >= 7
    assert all(0 < limit < math.inf for limit in limits)
