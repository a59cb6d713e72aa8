"""One connection: what is written when, who is told of a lost peer, how it closes.

Sockets are real and so is their clock, except where a test only waits for a limit: those run over
memory streams on the autojump clock.
"""

import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
import trustme

from mcp_trio.http.asgi_call import Message, Receive, Scope, Send
from mcp_trio.http.serving import HTTPService, ServingSettings

from .serving_tools import (
    GET,
    App,
    Client,
    H2Client,
    Waiter,
    answer,
    connect,
    echo,
    handle_of,
    header,
    read_all,
    read_body,
    read_until,
    reset,
    served,
    served_in_memory,
    start_events,
    too_large,
)

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
        stream = await app.ask(port)
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

    async with served(app) as port, await connect(port) as stream:
        client = Client(stream)
        for _ in range(2):
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


@pytest.mark.parametrize("first", [GET, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"])
@pytest.mark.parametrize("more", [0, 2])
async def test_a_half_closing_client_gets_its_event_stream_and_what_it_asked_for_behind_it(
    first: bytes, more: int
) -> None:
    streaming = Waiter(events=True)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await (echo if streaming.running.is_set() else streaming)(scope, receive, send)

    async with served(app) as port, await connect(port) as stream:
        await stream.send_all(first)
        await read_until(stream, b"data: 1\n\n")
        await stream.send_all(GET * more)
        await stream.send_eof()
        await read_until(stream, b":\n\n")
        streaming.may_answer.set()
        with trio.fail_after(2):
            rest = await read_all(stream)
        assert b"data: 2\n\n\r\n0\r\n\r\n" in rest
        assert rest.count(b"HTTP/1.1 200 ") == more
        assert not streaming.lost.is_set()


@pytest.mark.parametrize(
    ("asked", "most"),
    [
        (GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), 100),
        (b"GET / HTTP/1.0\r\n\r\n", 100),
        (GET, 1),
    ],
)
async def test_a_half_closing_client_gets_its_event_stream_where_that_ends_the_connection(
    asked: bytes, most: int
) -> None:
    app = Waiter(events=True)
    async with (
        served(app, max_requests_per_connection=most) as port,
        await connect(port) as stream,
    ):
        await stream.send_all(asked)
        await read_until(stream, b"data: 1\n\n")
        await stream.send_eof()
        await read_until(stream, b":\n\n")
        app.may_answer.set()
        with trio.fail_after(2):
            assert b"data: 2\n\n" in await read_all(stream)
        assert not app.lost.is_set()


async def test_a_half_closing_client_that_asked_for_an_upgrade_sees_its_connection_close() -> None:
    app = Waiter()
    async with served(app) as port, await connect(port) as stream:
        # h11 looks at nothing behind such a head until the answer is known.
        await stream.send_all(GET[:-2] + b"connection: upgrade\r\nupgrade: other\r\n\r\n")
        await stream.send_eof()
        await read_until(stream, b"102")
        app.may_answer.set()
        with trio.fail_after(2):
            assert b"late answer" in await read_all(stream)


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


async def test_who_answered_the_last_request_hears_so_though_another_task_wrote_the_end() -> None:
    """The large answer is still being written when the small one is ready to follow it."""
    heard: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope["path"])
        handle_of(scope).on_disconnect(lambda: heard.append(f"{path} is lost"))
        await answer(send, bytes(5_000_000) if path == "/large" else b"small")
        heard.append(f"{path} is whole")

    async with served(app) as port, await connect(port) as stream:
        await stream.send_all(
            b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n"
            b"GET /small HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        said = await read_all(stream)
        assert said.endswith(b"small")
    assert heard == ["/large is whole", "/small is whole"]


async def test_a_peer_that_pipelined_and_then_closed_is_noticed() -> None:
    app = Waiter()
    async with served(app) as port:
        async with await connect(port) as stream:
            await stream.send_all(GET * 2)
            await app.running.wait()
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
            await read_all(stream)


# Closing.


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
        assert trio.current_time() < 1
        await client.send_all(b"x")  # still read, and discarded
        await trio.sleep(2)
        with pytest.raises(trio.BrokenResourceError):
            await client.send_all(b"x")


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
        await trio.sleep(80_000)
        await echo(scope, receive, send)

    async with served_in_memory(app) as listener:
        client = Client(await listener.connect())
        await client.ask(body=b"x")
        assert (await client.read())[1] == b"x"


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
    assert ("mcp_trio.http", logging.ERROR) in [
        (record.name, record.levelno) for record in caplog.records
    ]
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


async def connect_with_tls(port: int, context: ssl.SSLContext) -> trio.SSLStream[trio.SocketStream]:
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
    async with (
        served_with_tls(app, ["http/1.1"]) as (port, context),
        await connect_with_tls(port, context) as stream,
    ):
        client = Client(stream)
        for _ in range(2):
            await client.ask(body=body)
            assert (await client.read())[1] == body


async def test_http2_works_over_tls() -> None:
    async with (
        served_with_tls(echo, ["h2"]) as (port, context),
        await connect_with_tls(port, context) as stream,
    ):
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
    async with (
        served_with_tls(echo, ["h2"], header_timeout=0.2) as (port, _),
        await connect(port) as stream,
    ):
        assert await stream.receive_some() == b""
