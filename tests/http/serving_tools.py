"""What the tests of the HTTP service share: services to run, applications to serve, clients."""

import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import h2.config
import h2.connection
import h2.events
import h11
import pytest
import trio
import trio.testing

from mcp_trio.http.asgi_call import ConnectionHandle, Receive, Scope, Send
from mcp_trio.http.serving import HTTPService, ServingSettings

App = Callable[[Scope, Receive, Send], Awaitable[None]]

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


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

    async def connect_by(self, server: trio.abc.Stream) -> None:
        await self._send.send(server)

    async def accept(self) -> trio.abc.Stream:
        return await self._receive.receive()

    async def aclose(self) -> None:
        await self._receive.aclose()


class LockstepListener(MemoryListener):
    """A listener whose connections hold nothing, so that a peer that does not read is felt."""

    async def connect(self) -> trio.StapledStream:
        client, server = trio.testing.lockstep_stream_pair()
        await self._send.send(server)
        return client


@asynccontextmanager
async def served(app: App, **limits: object) -> AsyncIterator[int]:
    """Serve ``app`` on a loopback port until the block ends; then nothing may be left."""
    service = HTTPService(app, settings=ServingSettings(**limits))
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(service.run, "127.0.0.1", 0)
        with trio.fail_after(10):
            yield int(urls[0].rpartition(":")[2])
        nursery.cancel_scope.cancel()
    assert service.statistics().connections == 0
    assert service.statistics().requests_in_flight == 0
    assert len(service._parts.doorway.crowd) == 0


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

    async def ask(self, port: int) -> trio.SocketStream:
        """Connect to it and ask; once it runs, and its first event has come if it sends any."""
        stream = await connect(port)
        await stream.send_all(GET)
        await self.running.wait()
        if self._stream:
            await read_until(stream, b"data: 1\n\n")
        return stream

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


async def too_large(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(send, b"too large", 413)


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]}
    )
    await send({"type": "http.response.body", "body": b"hello"})


class Gate:
    """An application that answers when it is told to."""

    def __init__(self) -> None:
        self.running = 0
        self.ended = 0
        self.open = trio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.running += 1
        try:
            await self.open.wait()
            await hello(scope, receive, send)
        finally:
            self.ended += 1

    async def wait_running(self, count: int) -> None:
        while self.running < count:
            await trio.testing.wait_all_tasks_blocked()
            await trio.lowlevel.checkpoint()


@asynccontextmanager
async def started(service: HTTPService) -> AsyncIterator[tuple[int, trio.Event]]:
    """Run ``service``; give its port and an event set when `run` has returned."""
    returned = trio.Event()

    async def run(task_status: trio.TaskStatus[list[str]]) -> None:
        await service.run("127.0.0.1", 0, task_status=task_status)
        returned.set()

    async with trio.open_nursery() as nursery:
        urls = await nursery.start(run)
        with trio.fail_after(10):
            yield int(urls[0].rpartition(":")[2]), returned
        nursery.cancel_scope.cancel()
    statistics = service.statistics()
    assert (statistics.connections, statistics.requests_in_flight) == (0, 0)
    assert len(service._parts.doorway.crowd) == 0


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
        self.farewell: tuple[int, int] | None = None
        """Code and last stream of the GOAWAY."""

    async def ask(
        self,
        body: bytes = b"",
        *,
        method: str = "POST",
        end: bool = True,
        path: str = "/",
        authority: str = "x",
        fields: Sequence[tuple[str, str]] = (),
    ) -> int:
        stream_id = self.h2.get_next_available_stream_id()
        head = [
            (":method", method),
            (":path", path),
            (":scheme", "http"),
            (":authority", authority),
            *fields,
        ]
        self.h2.send_headers(stream_id, head, end_stream=end and not body)
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
                    self.farewell = (int(event.error_code), event.last_stream_id)
        await self.flush()
        return True

    async def read(self, stream_id: int) -> tuple[str, bytes]:
        while stream_id not in self.ended:
            assert await self.pump()
        return self.status[stream_id], self.bodies.get(stream_id, b"")
