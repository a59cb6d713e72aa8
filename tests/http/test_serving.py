"""The service: how many connections, how it accepts, and how it ends."""

import errno
import gc
import logging
import math
import os
import socket
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from mcp_trio.http.asgi_call import ConnectionHandle, Receive, Scope, Send
from mcp_trio.http.connection import Connection
from mcp_trio.http.serving import HTTPService, ServingSettings

from .serving_tools import (
    GET,
    Gate,
    H2Client,
    MemoryListener,
    connect,
    hello,
    read_all,
    read_until,
    start_events,
    started,
)

# Starting.


async def test_run_reports_the_base_url_it_has_bound() -> None:
    service = HTTPService(hello)
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(service.run, "127.0.0.1", 0)
        assert len(urls) == 1
        host, _, port = urls[0].rpartition(":")
        assert host == "http://127.0.0.1"
        async with await connect(int(port)) as stream:
            await stream.send_all(GET)
            assert await read_until(stream, b"hello")
        nursery.cancel_scope.cancel()


async def test_an_ipv6_address_is_bracketed() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(HTTPService(hello).run, "::1", 0)
        assert urls[0].startswith("http://[::1]:")
        nursery.cancel_scope.cancel()


async def test_an_address_in_use_is_an_error_of_run() -> None:
    async with started(HTTPService(hello)) as (port, _):
        with pytest.raises(OSError, match="in use"):
            await HTTPService(hello).run("127.0.0.1", port)


async def test_a_service_runs_only_once() -> None:
    service = HTTPService(hello)
    async with started(service):
        service.drain()
    with pytest.raises(RuntimeError, match="once"):
        await service.run("127.0.0.1", 0)


# Accepting.


async def test_connections_over_the_limit_are_told_503_and_closed() -> None:
    gate = Gate()
    service = HTTPService(gate, settings=ServingSettings(max_connections=2))
    async with started(service) as (port, _), AsyncExitStack() as stack:
        served = [await stack.enter_async_context(await connect(port)) for _ in range(2)]
        for stream in served:
            await stream.send_all(GET)
        await gate.wait_running(2)
        async with await connect(port) as stream:
            await stream.send_all(GET)
            data = await read_all(stream)
            assert data.startswith(b"HTTP/1.1 503 ")
            assert b"Retry-After: 1\r\n" in data
            assert b"Connection: close\r\n" in data
        assert service.statistics().connections == 2
        assert service.statistics().requests_in_flight == 2
        assert service.statistics().connections_refused == 1
        gate.open.set()
        for stream in served:
            await read_until(stream, b"hello")
            await stream.aclose()
        while service.statistics().connections:
            await trio.testing.wait_all_tasks_blocked()
        async with await connect(port) as stream:
            await stream.send_all(GET)
            assert await read_until(stream, b"hello")


class FaultyListener(trio.abc.Listener[trio.abc.Stream]):
    """Fails with each of some errors, then brings one connection."""

    def __init__(self, errors: list[int]) -> None:
        self._errors = errors
        self.client, self._server = trio.testing.memory_stream_pair()
        self.closed = False

    async def accept(self) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        if self._errors:
            number = self._errors.pop(0)
            raise OSError(number, os.strerror(number))
        if self._server is None:
            await trio.sleep_forever()
        server, self._server = self._server, None
        return server

    async def aclose(self) -> None:
        self.closed = True


async def test_accepting_goes_on_after_running_out_of_descriptors(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    listener = FaultyListener([errno.EMFILE, errno.ECONNABORTED, errno.ENFILE, errno.EMFILE])
    async with trio.open_nursery() as nursery:
        await nursery.start(HTTPService(hello).run_listeners, [listener])
        await listener.client.send_all(GET)
        assert await read_until(listener.client, b"hello")
        assert 0.3 <= trio.current_time() < 1  # it did not spin
        nursery.cancel_scope.cancel()
    assert listener.closed
    # Once: it may last for hours.
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_what_became_of_one_connection_before_it_was_accepted_ends_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Linux says it in the place of the connection; accept(2) has the list."""
    listener = FaultyListener([errno.EPROTO, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EPERM])
    async with trio.open_nursery() as nursery:
        await nursery.start(HTTPService(hello).run_listeners, [listener])
        await listener.client.send_all(GET)
        assert await read_until(listener.client, b"hello")
        nursery.cancel_scope.cancel()


async def test_an_unknown_error_of_a_listener_ends_the_service() -> None:
    listener = FaultyListener([errno.EINVAL])
    with pytest.raises(ExceptionGroup) as caught:
        await HTTPService(hello).run_listeners([listener])
    assert caught.group_contains(OSError)
    assert listener.closed


# Ending.


async def test_drain_of_an_idle_service_closes_everything_at_once() -> None:
    drained: list[str] = []
    service = HTTPService(hello, on_drain=lambda: drained.append("called"))
    async with started(service) as (port, returned):
        async with await connect(port) as used, await connect(port) as unused:
            await used.send_all(GET)
            await read_until(used, b"hello")
            with trio.fail_after(1):
                service.drain()
                service.drain()
                assert await used.receive_some() == b""
                assert await unused.receive_some() == b""
                await returned.wait()
        assert drained == ["called"]
        assert service.statistics().draining
        with pytest.raises(OSError, match="connect"):
            await connect(port)


async def test_drain_lets_a_request_finish_and_then_closes_its_connection() -> None:
    gate = Gate()
    service = HTTPService(gate)
    async with started(service) as (port, returned), await connect(port) as stream:
        await stream.send_all(GET)
        await gate.wait_running(1)
        service.drain()
        await trio.testing.wait_all_tasks_blocked()
        assert not returned.is_set()
        gate.open.set()
        data = await read_all(stream)
        assert data.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in data.lower()
        await stream.aclose()
        await returned.wait()


async def test_on_drain_lets_the_application_end_its_streams() -> None:
    stop = trio.Event()

    async def events(scope: Scope, receive: Receive, send: Send) -> None:
        kind = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        await stop.wait()
        await send({"type": "http.response.body", "body": b"data: bye\n\n"})

    service = HTTPService(events, on_drain=stop.set)
    async with started(service) as (port, returned), await connect(port) as stream:
        await stream.send_all(GET)
        await read_until(stream, b"data: 1\n\n")
        service.drain()
        assert b"data: bye\n\n" in await read_all(stream)
        await stream.aclose()
        await returned.wait()


async def test_drain_cancels_what_outlives_the_grace_period() -> None:
    gate = Gate()
    service = HTTPService(gate, settings=ServingSettings(grace_period=0.2))
    async with started(service) as (port, returned), await connect(port) as stream:
        await stream.send_all(GET)
        await gate.wait_running(1)
        service.drain()
        with trio.fail_after(1.2):
            await returned.wait()
        assert gate.ended == 1


async def test_drain_before_run_makes_run_return_at_once() -> None:
    service = HTTPService(hello)
    service.drain()
    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            urls = await nursery.start(service.run, "127.0.0.1", 0)
    assert len(urls) == 1


async def test_drain_closes_an_http2_connection_with_a_goodbye() -> None:
    import h2.connection
    import h2.events

    client = h2.connection.H2Connection()
    client.initiate_connection()
    service = HTTPService(hello)
    async with started(service) as (port, returned), await connect(port) as stream:
        await stream.send_all(client.data_to_send())
        client.receive_data(await stream.receive_some())
        service.drain()
        events = client.receive_data(await read_all(stream))
        assert any(isinstance(event, h2.events.ConnectionTerminated) for event in events)
        await stream.aclose()
        await returned.wait()


STALLED = 200


@asynccontextmanager
async def stalled(service: HTTPService) -> AsyncIterator[trio.Event]:
    """Connect 200 clients that ask for much and read nothing, until all writes have stalled."""
    async with started(service) as (port, returned), AsyncExitStack() as stack:
        for _ in range(STALLED):
            stream = await stack.enter_async_context(await connect(port))
            await stream.send_all(GET)
        while service.statistics().requests_in_flight < STALLED:
            await trio.testing.wait_all_tasks_blocked()
        await trio.testing.wait_all_tasks_blocked()
        yield returned


class Flood:
    """An application that sends several megabytes."""

    def __init__(self) -> None:
        self.told = 0
        self._body = bytes(6_000_000)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        extensions = scope["extensions"]
        assert isinstance(extensions, dict)
        handle: ConnectionHandle = extensions["mcp_trio.connection"]
        handle.on_disconnect(self._count)
        # With a length and not in chunks, all 200 share one copy of the body.
        length = [(b"content-length", b"%d" % len(self._body))]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": self._body})

    def _count(self) -> None:
        self.told += 1


async def test_drain_ends_in_time_with_200_peers_that_do_not_read() -> None:
    flood = Flood()
    service = HTTPService(flood, settings=ServingSettings(grace_period=0.3))
    async with stalled(service) as returned:
        service.drain()
        with trio.fail_after(1.3):
            await returned.wait()
    assert flood.told == STALLED


async def test_cancelling_run_ends_at_once_with_200_peers_that_do_not_read() -> None:
    flood = Flood()
    service = HTTPService(flood)
    async with stalled(service):
        begun = trio.current_time()
    assert trio.current_time() - begun < 2
    assert flood.told == STALLED


async def test_a_hard_stop_runs_the_callbacks_and_cancels_the_requests() -> None:
    gate = Gate()
    told = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        extensions = scope["extensions"]
        assert isinstance(extensions, dict)
        extensions["mcp_trio.connection"].on_disconnect(told.set)
        await gate(scope, receive, send)

    # The client outlives the service.
    async with AsyncExitStack() as clients, started(HTTPService(app)) as (port, _):
        stream = await clients.enter_async_context(await connect(port))
        await stream.send_all(GET)
        await gate.wait_running(1)
        assert not told.is_set()
    assert told.is_set()
    assert gate.ended == 1


class Kept:
    """Something that lives as long as the scope of a request."""


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
async def test_what_a_request_had_is_free_at_its_end_without_the_collector(version: str) -> None:
    """A service runs the collector rarely: what waited for it would be much."""
    kept: list[weakref.ref[Kept]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        extensions = scope["extensions"]
        assert isinstance(extensions, dict)
        extensions["kept"] = mine = Kept()
        kept.append(weakref.ref(mine))
        await hello(scope, receive, send)

    gc.collect()
    gc.disable()
    try:
        async with started(HTTPService(app)) as (port, _), await connect(port) as stream:
            if version == "HTTP/2":
                client = H2Client(stream)
                for _ in range(3):
                    await client.read(await client.ask())
            else:
                for _ in range(3):
                    await stream.send_all(GET)
                    await read_until(stream, b"hello")
            await trio.testing.wait_all_tasks_blocked()
            assert [each() for each in kept] == [None] * 3
    finally:
        gc.enable()


async def leave_idle(port: int) -> None:
    async with await connect(port) as stream:
        await stream.send_all(GET)
        await read_until(stream, b"hello")


async def leave_a_request(port: int) -> None:
    async with await connect(port) as stream:
        await stream.send_all(GET.replace(b" / ", b" /wait "))


async def leave_an_event_stream(port: int) -> None:
    async with await connect(port) as stream:
        await stream.send_all(GET.replace(b" / ", b" /events "))
        await read_until(stream, b": begun")


async def leave_http2(port: int) -> None:
    async with await connect(port) as stream:
        client = H2Client(stream)
        await client.read(await client.ask())
        await client.ask(path="/wait")


@pytest.mark.parametrize("leave", [leave_idle, leave_a_request, leave_an_event_stream, leave_http2])
async def test_a_connection_is_free_at_its_end_without_the_collector(
    leave: Callable[[int], Awaitable[None]],
) -> None:
    """Each one has sixty objects: the collector would hold up others every dozen of them."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path == "/events":
            await start_events(send)
            await send({"type": "http.response.body", "body": b": begun\n\n", "more_body": True})
        if path != "/":
            while (await receive())["type"] != "http.disconnect":
                pass
        else:
            await hello(scope, receive, send)

    gc.collect()
    gc.disable()
    try:
        service = HTTPService(app)
        async with started(service) as (port, _):
            for _ in range(3):
                await leave(port)
            while service.statistics().connections or not service.statistics().connections_accepted:
                await trio.testing.wait_all_tasks_blocked()
                await trio.lowlevel.checkpoint()
            # Whoever accepts has the last one in his hand until the next one comes.
            assert sum(isinstance(each, Connection) for each in gc.get_objects()) <= 1
    finally:
        gc.enable()


def open_descriptors() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


async def test_nothing_is_left_when_run_has_returned() -> None:
    before = open_descriptors()
    tasks = trio.lowlevel.current_statistics().tasks_living
    gate = Gate()
    service = HTTPService(gate, settings=ServingSettings(grace_period=0.1))
    async with started(service) as (port, returned), AsyncExitStack() as stack:
        for number in range(10):
            stream = await stack.enter_async_context(await connect(port))
            await stream.send_all(GET)
            if number % 2:
                await stream.send_eof()  # an epoll set watches it now
        await gate.wait_running(10)
        await trio.testing.wait_all_tasks_blocked()
        service.drain()
        await returned.wait()
    assert trio.lowlevel.current_statistics().tasks_living == tasks
    assert open_descriptors() == before


def test_the_settings_have_a_limit_for_every_wait() -> None:
    limits = [
        getattr(ServingSettings(), name)
        for name in ServingSettings.__slots__
        if name.endswith(("timeout", "grace", "period"))
    ]
    assert len(limits) >= 7
    assert all(0 < limit < math.inf for limit in limits)


async def test_one_of_several_leaves_the_next_connection_to_the_others(
    autojump_clock: trio.testing.MockClock,
) -> None:
    began = trio.current_time()
    times: list[float] = []

    class Timed(MemoryListener):
        async def accept(self) -> trio.abc.Stream:
            stream = await super().accept()
            times.append(trio.current_time() - began)
            return stream

    settings = ServingSettings(max_connections=3, keep_alive_timeout=1000, header_timeout=1000)
    service = HTTPService(hello, settings=settings, accept_pause=0.5)
    listener = Timed()
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run_listeners, [listener])
        for _ in range(4):
            await listener.connect()
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    # It can only refuse the last one, so it waits long: somebody else may have room.
    assert times == [0.5, 1.0, 1.5, 1.5 + 25]
