"""Each limit of the socket layer: what is just under it passes, what is just over it is refused.

Those on frames of HTTP/2 are in `test_http2_floods`, those on addresses in `test_arrival`.
"""

import json
import re
from contextlib import nullcontext
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
import wsproto
import wsproto.connection
import wsproto.events
from h2.errors import ErrorCodes
from hyperframe.frame import Frame, HeadersFrame, RstStreamFrame

from mcp_trio import HTTPOptions
from mcp_trio.http.allowance import Allowance
from mcp_trio.http.asgi_call import Receive, Scope, Send
from mcp_trio.http.byte_pipe import LEAST_PROGRESS, Stall
from mcp_trio.http.serving import ServingSettings
from mcp_trio.http.ws_bounds import SocketMeter
from tests.programs import ROOT

from .asgi import META, serving
from .serving_tools import (
    GET,
    Client,
    H2Client,
    answer,
    connect,
    echo,
    header,
    read_all,
    read_until,
    served,
    served_in_memory,
)
from .test_http_websocket import SocketClient, echo_socket
from .tools import make_server


def head(*fields: bytes, target: bytes = b"/") -> bytes:
    return b"GET " + target + b" HTTP/1.1\r\n" + b"".join(f + b"\r\n" for f in fields) + b"\r\n"


async def status(port: int, request: bytes) -> int:
    async with await connect(port) as stream:
        await stream.send_all(request)
        return int((await read_until(stream, b"\r\n\r\n")).split()[1])


# Heads.


async def test_a_head_may_be_so_large_and_no_larger() -> None:
    async with served(echo, max_header_bytes=1000) as port:
        # What counts is the target, and of each field its name, its value and four bytes.
        filler = 1000 - len("/") - len("hostx") - len("big") - 2 * 4
        assert await status(port, head(b"host: x", b"big: " + b"y" * filler)) == 200
        assert await status(port, head(b"host: x", b"big: " + b"y" * (filler + 1))) == 431


async def test_a_head_may_have_so_many_fields_and_no_more() -> None:
    async with served(echo, max_header_fields=10) as port:
        assert await status(port, head(b"host: x", *[b"a: b"] * 9)) == 200
        assert await status(port, head(b"host: x", *[b"a: b"] * 10)) == 431


async def test_a_url_may_be_so_long_and_no_longer() -> None:
    async with served(echo, max_url_bytes=100, max_header_bytes=1000) as port:
        assert await status(port, head(b"host: x", target=b"/?" + b"a" * 98)) == 200
        assert await status(port, head(b"host: x", target=b"/?" + b"a" * 99)) == 414
        # Also one that does not end within what is read of a head.
        assert await status(port, b"GET /" + b"a" * 2000) == 414
        assert await status(port, b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"a" * 2000) == 431


async def test_a_head_may_take_so_long_and_no_longer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with served_in_memory(echo, header_timeout=10) as listener:
        for pause, answered in ((9.9, b"HTTP/1.1 200 "), (10.1, b"HTTP/1.1 408 ")):
            stream = await listener.connect()
            await stream.send_all(GET[:-2])
            await trio.sleep(pause)
            if pause < 10:
                await stream.send_all(GET[-2:])
            assert (await read_until(stream, b"\r\n\r\n")).startswith(answered)


async def test_a_body_may_take_so_long_and_no_longer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    begin = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\na"
    async with served_in_memory(echo, body_timeout=30) as listener:
        for pause, answered in ((29.9, b"HTTP/1.1 200 "), (30.1, b"HTTP/1.1 408 ")):
            stream = await listener.connect()
            await stream.send_all(begin)
            await trio.sleep(pause)
            if pause < 30:
                await stream.send_all(b"b")
            assert (await read_until(stream, b"\r\n\r\n")).startswith(answered)


async def test_a_connection_may_idle_so_long_and_no_longer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with served_in_memory(echo, keep_alive_timeout=60) as listener:
        stream = await listener.connect()
        client = Client(stream)
        for _ in range(2):
            await client.ask(body=b"x")
            assert (await client.read())[1] == b"x"
            await trio.sleep(59.9)
        assert await stream.receive_some() == b""
        assert trio.current_time() == pytest.approx(119.8 + 0.1)


async def test_a_connection_serves_so_many_requests_and_no_more() -> None:
    async with served(echo, max_requests_per_connection=3) as port, await connect(port) as stream:
        client = Client(stream)
        for last in (False, False, True):
            await client.ask(body=b"x")
            response, body = await client.read()
            assert body == b"x"
            assert (header(response, b"connection") == b"close") == last
        assert await read_all(stream) == b""


async def test_a_connection_of_http2_serves_so_many_requests_and_finishes_them() -> None:
    slow = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            await slow.wait()
        await answer(send, b"done")

    async with served(app, max_requests_per_connection=3) as port, await connect(port) as stream:
        client = H2Client(stream)
        await client.ask(path="/slow")
        assert await client.read(await client.ask()) == ("200", b"done")
        assert not client.gone_away
        third = await client.ask()
        while not client.gone_away:
            assert await client.pump()
        assert client.farewell == (0, third)
        assert (client.status[third], client.bodies[third]) == ("200", b"done")
        # h2 reads no more after that; other clients do.
        await stream.send_all(headers_frame(third + 2))
        refused = await read_frame(stream)
        assert (type(refused), refused.stream_id) == (RstStreamFrame, third + 2)
        assert refused.error_code == ErrorCodes.REFUSED_STREAM
        slow.set()
        assert b"done" in await read_all(stream)


def headers_frame(stream_id: int, *fields: tuple[bytes, bytes]) -> bytes:
    """A whole request without a body, its fields written so that no state is needed."""
    literal = b"".join(
        b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in fields
    )
    # :method GET, :path /, :scheme http and an :authority, by number.
    frame = HeadersFrame(stream_id, data=b"\x82\x84\x86\x01\x01x" + literal)
    frame.flags |= {"END_HEADERS", "END_STREAM"}
    return frame.serialize()


async def read_frame(stream: trio.abc.ReceiveStream) -> Frame:
    data = b""
    while len(data) < 9:
        data += await stream.receive_some(9 - len(data))
    frame, length = Frame.parse_frame_header(memoryview(data))
    body = b""
    while len(body) < length:
        body += await stream.receive_some(length - len(body))
    frame.parse_body(memoryview(body))
    return frame


async def test_a_connection_of_http2_whose_requests_are_all_given_up_ends_in_time() -> None:
    async with (
        served(echo, max_requests_per_connection=3, max_concurrent_streams=5) as port,
        await connect(port) as stream,
    ):
        client = H2Client(stream)
        for _ in range(8):
            client.h2.reset_stream(await client.ask(end=False))
        await client.flush()
        while not client.gone_away:
            assert await client.pump()
        assert client.farewell == (0, 15)


async def test_http2_takes_so_many_fields_and_so_long_a_url_and_no_more() -> None:
    limits = {"max_header_fields": 10, "max_url_bytes": 100}
    async with served(echo, **limits) as port, await connect(port) as stream:
        client = H2Client(stream)
        for fields, path, code in (
            (10, "/", "200"),
            (11, "/", "431"),
            (0, "/" + "a" * 99, "200"),
            (0, "/" + "a" * 100, "414"),
        ):
            asked = await client.ask(path=path, fields=[("a", "b")] * fields)
            assert (await client.read(asked))[0] == code
        # One that has yet to send its body is told, and spared it.
        early = await client.ask(b"part", end=False, path="/" + "a" * 100)
        assert (await client.read(early))[0] == "414"
        assert (await client.read(await client.ask(b"x"))) == ("200", b"x")


async def test_http2_takes_so_large_a_header_list_and_no_larger() -> None:
    async with served(echo, max_header_bytes=1000) as port, await connect(port) as stream:
        client = H2Client(stream)
        # Of each field its name, its value and 32 bytes (RFC 9113, section 6.5.2).
        base = sum(len(n) + len(v) + 32 for n, v in FIELDS)
        filler = 1000 - base - len("big") - 32
        asked = await client.ask(fields=[("big", "y" * filler)])
        assert (await client.read(asked))[0] == "200"
        await client.ask(fields=[("big", "y" * (filler + 1))])
        while not client.gone_away:
            assert await client.pump()
        assert client.farewell == (ErrorCodes.ENHANCE_YOUR_CALM, asked)


FIELDS = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "x")]


async def test_http2_has_so_many_streams_open_and_no_more() -> None:
    slow = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            await slow.wait()
        await answer(send, b"done")

    async with served(app, max_concurrent_streams=3) as port, await connect(port) as stream:
        client = H2Client(stream)
        held = [await client.ask(path="/slow") for _ in range(3)]
        # A client that has yet to be told loses that stream only, and may ask again.
        over = await client.ask()
        while over not in client.resets:
            assert await client.pump()
        assert client.resets == {over: ErrorCodes.REFUSED_STREAM}
        assert client.h2.remote_settings.max_concurrent_streams == 3
        slow.set()
        for each in held:
            assert await client.read(each) == ("200", b"done")
        assert await client.read(await client.ask()) == ("200", b"done")


# Reading.


async def test_a_write_that_moves_too_little_in_its_time_is_given_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    for size, given_up in ((LEAST_PROGRESS // 2, False), (LEAST_PROGRESS // 2 - 1, True)):
        stall = Stall(30)
        with stall.scope:
            for _ in range(10):
                for _ in range(2):  # so much within a timeout
                    await trio.sleep(14.9)
                    stall.moved(size)
        assert stall.scope.cancelled_caught == given_up


async def test_a_window_that_opens_byte_by_byte_is_not_read(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        with pytest.raises(trio.BrokenResourceError) if scope["path"] == "/drip" else nullcontext():
            await answer(send, bytes(150_000))

    async with served_in_memory(app, write_timeout=30) as listener:
        for path, step, whole in (("/steady", 10_000, True), ("/drip", 1, False)):
            client = H2Client(await listener.connect())
            client.refuse_data = True
            asked = await client.ask(path=path)
            with trio.move_on_after(2000):
                async with trio.open_nursery() as nursery:

                    @nursery.start_soon
                    async def open_slowly(client=client, asked=asked, step=step) -> None:
                        while True:
                            await trio.sleep(20)
                            client.h2.increment_flow_control_window(step)
                            if asked not in client.resets and asked not in client.ended:
                                client.h2.increment_flow_control_window(step, asked)
                            await client.flush()

                    while asked not in client.resets and asked not in client.ended:
                        assert await client.pump()
                    nursery.cancel_scope.cancel()
            assert (asked in client.resets) != whole
            assert (len(client.bodies[asked]) == 150_000) == whole


# Bodies.


async def test_a_body_in_tiny_pieces_makes_few_messages() -> None:
    """A piece of one byte would be an object of hundreds."""
    taken: list[int] = []
    may_read = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await may_read.wait()
        body = b""
        while True:
            message = await receive()
            body += message["body"]
            taken.append(len(message["body"]))
            if not message["more_body"]:
                break
        await answer(send, body)

    async with served(app) as port, await connect(port) as stream:
        client = H2Client(stream)
        asked = await client.ask(end=False)
        for number in range(100):
            for _ in range(100):
                client.h2.send_data(asked, b"%d" % (number % 10))
            await client.flush()
        client.h2.end_stream(asked)
        client.h2.ping(b"12345678")
        await client.flush()
        await client.pump()
        may_read.set()
        _, body = await client.read(asked)
        assert body == b"".join(b"%d" % (number % 10) * 100 for number in range(100))
    assert max(taken) == 1024
    assert len(taken) < 15


# WebSocket.


async def opened(stream: trio.abc.Stream) -> SocketClient:
    client = SocketClient(stream)
    await client.say(wsproto.events.Request(host="x", target="/"))
    assert isinstance(await client.hear(), wsproto.events.AcceptConnection)
    return client


def pieces(text: str, count: int) -> list[wsproto.events.TextMessage]:
    size = len(text) // count
    parts = [text[at * size : (at + 1) * size] for at in range(count)]
    return [
        wsproto.events.TextMessage(data=part, message_finished=number == count - 1)
        for number, part in enumerate(parts)
    ]


async def test_a_websocket_message_may_be_so_large_and_no_larger() -> None:
    limits = {"max_websocket_message_bytes": 1000, "linger_timeout": 0.1}
    async with served(echo_socket, **limits) as port, await connect(port) as stream:
        client = await opened(stream)
        await client.say(wsproto.events.TextMessage(data="x" * 1000))
        assert isinstance(await client.hear(), wsproto.events.TextMessage)
        await client.say(wsproto.events.TextMessage(data="x" * 1001))
        closed = await client.hear()
        assert (type(closed), closed.code) == (wsproto.events.CloseConnection, 1009)
        assert await stream.receive_some() == b""


async def test_all_websocket_messages_under_way_may_be_so_large_and_no_larger() -> None:
    half = wsproto.events.TextMessage(data="x" * 500, message_finished=False)
    limits = {"max_total_websocket_bytes": 1000, "linger_timeout": 0.1}
    async with served(echo_socket, **limits) as port:
        async with await connect(port) as first, await connect(port) as third:
            client, other = await opened(first), await opened(third)
            await client.say(half)
            async with await connect(port) as second:
                gone = await opened(second)
                await gone.say(half)
                await gone.say(wsproto.events.Ping())
                assert isinstance(await gone.hear(), wsproto.events.Pong)
                await other.say(wsproto.events.TextMessage(data="x"))
                closed = await other.hear()
                assert (type(closed), closed.code) == (wsproto.events.CloseConnection, 1009)
            # Who leaves in the middle of a message leaves nothing of it behind.
            for _ in range(3):
                await trio.testing.wait_all_tasks_blocked(0.01)
            await client.say(wsproto.events.TextMessage(data="x" * 500))
            assert (await client.hear()).data == "x" * 1000
            await client.say(wsproto.events.TextMessage(data="x" * 1000))
            assert (await client.hear()).data == "x" * 1000


async def test_a_websocket_message_may_have_so_many_fragments_and_no_more() -> None:
    limits = {"max_websocket_fragments": 10, "linger_timeout": 0.1}
    async with served(echo_socket, **limits) as port, await connect(port) as stream:
        client = await opened(stream)
        for _ in range(2):
            for part in pieces("x" * 10, 10):
                await client.say(part)
            reply = await client.hear()
            assert reply.data == "x" * 10
        for part in pieces("x" * 11, 11):
            await client.say(part)
        closed = await client.hear()
        assert (type(closed), closed.code) == (wsproto.events.CloseConnection, 1009)
        assert await stream.receive_some() == b""


@pytest.mark.parametrize("kind", [wsproto.events.Ping, wsproto.events.Pong])
async def test_a_websocket_takes_so_many_pings_and_pongs_in_a_while_and_no_more(
    autojump_clock: trio.testing.MockClock, kind: type
) -> None:
    limits = {"max_websocket_pings": 10, "flood_window": 30, "linger_timeout": 1}
    async with served_in_memory(echo_socket, **limits) as listener:
        client = await opened(await listener.connect())

        async def pings(count: int) -> None:
            for _ in range(count):
                await client.say(kind(payload=b"x"))
                if kind is wsproto.events.Ping:
                    assert isinstance(await client.hear(), wsproto.events.Pong)

        await pings(10)
        await trio.sleep(30.1)
        await pings(10)
        await trio.sleep(3.1)
        await pings(1)
        await client.say(wsproto.events.TextMessage(data="x"))
        assert isinstance(await client.hear(), wsproto.events.TextMessage)
        await client.say(kind())
        closed = await client.hear()
        assert (type(closed), closed.code) == (wsproto.events.CloseConnection, 1008)


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_frames_are_counted_however_their_bytes_come(step: int) -> None:
    settings = ServingSettings(max_websocket_pings=3, max_websocket_fragments=4)
    ws = wsproto.connection.Connection(wsproto.ConnectionType.CLIENT)
    text, ping = wsproto.events.TextMessage, wsproto.events.Ping
    sent = b"".join(
        ws.send(event)
        for event in (
            text(data="x" * 70_000, message_finished=False),
            ping(payload=b"\x89\x80" * 60),
            text(data="y" * 200, message_finished=False),
            text(data="", message_finished=False),
            ping(),
            text(data="z" * 70_000),
            text(data="whole"),
            ping(),
        )
    )
    meter = SocketMeter(settings, 0.0)
    for at in range(0, len(sent), step):
        assert meter.take(sent[at : at + step], 0.0) is None
    over = ws.send(ping())
    assert [meter.take(over[at : at + 1], 0.0) for at in range(len(over))].count(1008) == 1


async def test_a_flood_of_pings_over_http2_does_not_stop_who_could_open_the_window(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "x" * 100_000})
        await receive()
        await send({"type": "websocket.send", "text": "heard"})
        await trio.sleep_forever()

    async with served_in_memory(app, max_websocket_pings=1000) as listener:
        client = H2Client(await listener.connect())
        client.refuse_data = True
        stream_id = client.h2.get_next_available_stream_id()
        fields = [(":method", "CONNECT"), (":protocol", "websocket"), *FIELDS[1:]]
        client.h2.send_headers(stream_id, [*fields, ("sec-websocket-version", "13")])
        await client.flush()
        while len(client.bodies.get(stream_id, b"")) < 65535:
            assert await client.pump()
        ws = wsproto.connection.Connection(wsproto.ConnectionType.CLIENT)
        flood = b"".join(ws.send(wsproto.events.Ping(payload=b"x" * 100)) for _ in range(500))
        flood += ws.send(wsproto.events.TextMessage(data="go on"))
        for at in range(0, len(flood), 10_000):
            client.h2.send_data(stream_id, flood[at : at + 10_000])
        await client.flush()
        await trio.testing.wait_all_tasks_blocked()
        client.h2.increment_flow_control_window(10**6)
        client.h2.increment_flow_control_window(10**6, stream_id)
        await client.flush()
        while not client.bodies[stream_id].endswith(b"heard"):
            assert await client.pump()
        assert trio.current_time() < 1


# JSON.


async def asked(options: HTTPOptions, value: object) -> int:
    server, _ = make_server()
    async with serving(server, options) as client:
        params = {"name": "echo", "arguments": {"value": value}, "_meta": META}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": "echo",
        }
        return (await client.post(json.dumps(call).encode(), headers)).status


async def test_a_message_may_have_so_many_values_and_no_more() -> None:
    # The message and what it has beside the array are eleven, and its empty object counts twice.
    assert await asked(HTTPOptions(max_nodes=100), [0] * 88) == 200
    assert await asked(HTTPOptions(max_nodes=100), [0] * 89) == 400


async def test_all_bodies_together_may_be_so_large_and_no_larger() -> None:
    server, record = make_server()
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    body = json.dumps({**call, "params": {"name": "wait", "_meta": META}}).encode()
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "wait"}
    async with serving(server, HTTPOptions(max_total_body=2 * len(body))) as client:
        running = [client.start_post(body, headers) for _ in range(2)]
        await record.until("wait started", "wait started")
        over = await client.post(body, headers)
        assert (over.status, over.headers["retry-after"]) == (503, "1")
        assert client.app.statistics().refused == 1
        running[0].disconnect()
        await record.until_last("wait over")
        running[0] = client.start_post(body, headers)
        await record.until_last("wait started")
        record.release.set()
        for each in running:
            await each.ended.wait()
            assert each.status == 200


async def test_an_array_may_have_so_many_messages_and_no_more() -> None:
    server, _ = make_server()
    async with serving(server, HTTPOptions(max_batch=3)) as client:
        session = await client.open_session("2025-03-26")
        for count, status in ((3, 200), (4, 400)):
            batch = [{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in range(count)]
            assert (await session.post(batch)).status == status


# The page.


def test_the_page_has_every_limit_with_its_default_and_its_test() -> None:
    """Its defaults are compared by `test_documentation`."""
    page = (ROOT / "docs" / "connections.md").read_text()
    rows = re.findall(r"^\| `(\w+)\.(\w+)` \| .* \| ([^|]+) \|$", page, re.MULTILINE)
    written = {(cls, name) for cls, name, _ in rows}
    for made in (HTTPOptions(), ServingSettings()):
        cls = type(made)
        for field in attrs.fields(cls):
            if type(getattr(made, field.name)) in {int, float} and field.name not in NO_LIMITS:
                assert (cls.__name__, field.name) in written, field.name
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    for *_, named in rows:
        names = re.findall(r"`(test_\w+)`", named)
        assert names
        for name in names:
            assert f"def {name}(" in tests, name


NO_LIMITS = {
    "backlog",
    "cleanup_timeout",
    "disconnect_grace",
    "flood_window",
    "grace_period",
    "linger_timeout",
    "replay_bytes",
    "replay_events",
    "sse_after",
}
"""Numbers that no client goes beyond: how long we wait for ourselves, and what we keep."""


# The bucket.


def test_an_allowance_comes_back_in_its_window_and_no_further() -> None:
    allowance = Allowance(3, 30.0, now=0.0)
    assert [allowance.take(0.0) for _ in range(4)] == [True, True, True, False]
    assert not allowance.take(9.9)
    assert allowance.take(10.1)
    assert not allowance.take(10.2)
    assert [allowance.take(1000.0) for _ in range(4)] == [True, True, True, False]


def test_silence_allows_no_more_at_once() -> None:
    allowance = Allowance(3, 30.0, now=0.0)
    assert [allowance.take(1000.0) for _ in range(4)] == [True, True, True, False]
