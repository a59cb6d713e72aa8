"""HTTP/1.1: what is refused, and the manners of a persistent connection."""

import pytest
import trio
import trio.testing

from mcp_trio.http.asgi_call import Receive, Scope, Send
from mcp_trio.http.http1 import origin_form

from .serving_tools import (
    GET,
    Client,
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
    too_large,
)

# What is refused.


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\nbig: " + bytes([65]) * 40_000, b"431"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nbig: " + bytes([65]) * 40_000 + b"\r\n\r\n", b"431"),
        (b"\x16\x03\x01 this is not HTTP\r\n\r\n", b"400"),
        (b"GET /\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),  # no Host
        (b"GET / HTTP/1.1\nhost: x\n\n", b"400"),
        (b"GET / HTTP/1.1\r\nhost: x\r\na: b\nc: d\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nhost: x\r\na: b\r\n c\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nhost: x\r\na: b\r\n\tc\r\n\r\n", b"400"),
        (b"GET http://y/ HTTP/1.1\r\nhost: x\r\n\r\n", b"400"),
        (b"GET / HTTP/3.0\r\nhost: x\r\n\r\n", b"505"),
        (
            (
                b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n"
                b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n" + GET
            ),
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

    async with served(app) as port, await connect(port) as stream:
        with trio.move_on_after(0.3) as limit:
            await stream.send_all(GET * 800_000)  # 20 MB, several times what loopback buffers
        assert limit.cancelled_caught
        release.set()
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


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/mcp?a=b", b"/mcp?a=b"),
        (b"http://example.com/mcp", b"/mcp"),
        (b"HTTPS://example.com:8000/mcp/x?y", b"/mcp/x?y"),
        (b"http://example.com", b"/"),
        (b"/a://b", b"/a://b"),
    ],
)
def test_a_target_in_absolute_form_is_its_path(target, path):
    assert origin_form(target) == path
