"""HTTP/2: streams side by side, flow control both ways, and what ends one stream only."""

import h2.connection
import h2.events
import pytest
import trio
import trio.testing
import wsproto
import wsproto.events
from hypercorn.protocol.h2 import BUFFER_HIGH_WATER

from mcp_trio.http.asgi_call import Receive, Scope, Send
from mcp_trio.http.serving import HTTPService

from .serving_tools import (
    H2Client,
    MemoryListener,
    Waiter,
    answer,
    connect,
    echo,
    handle_of,
    read_body,
    served,
    served_in_memory,
    too_large,
)


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


class HastyClient(trio.abc.Stream):
    """The server's end of a connection whose client leaves at the end of the first answer."""

    def __init__(self) -> None:
        self._client = h2.connection.H2Connection()
        self._client.initiate_connection()
        head = [(":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "x")]
        self._client.send_headers(1, head, end_stream=True)
        self._answered = trio.Event()
        self.gone = trio.Event()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        said = self._client.data_to_send()
        if not said:
            await self._answered.wait()
        return said

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        events = self._client.receive_data(bytes(data))
        if any(isinstance(event, h2.events.StreamEnded) for event in events):
            self._answered.set()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        self.gone.set()
        await trio.lowlevel.checkpoint()


async def test_who_answered_hears_so_though_the_peer_leaves_before_he_has_his_turn() -> None:
    heard: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        handle_of(scope).on_disconnect(lambda: heard.append("lost"))
        await answer(send, b"hello")
        heard.append("whole")

    async with served_in_memory(app) as listener:
        for _ in range(20):  # who has his turn first is chance
            client = HastyClient()
            await listener.connect_by(client)
            await client.gone.wait()
    assert heard == ["whole"] * 20


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


async def test_no_more_than_a_piece_of_an_answer_waits_for_a_window() -> None:
    """The rest is the application's alone, and not held a second time for each stream."""
    size = 1_000_000

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, bytes(size))

    service, listener = HTTPService(app), MemoryListener()
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run_listeners, [listener])
        client = H2Client(await listener.connect())
        client.refuse_data = True
        big = await client.ask()
        while len(client.bodies.get(big, b"")) < 65535:
            assert await client.pump()
        await trio.testing.wait_all_tasks_blocked()
        (connection,) = service._connections
        assert 0 < len(connection._protocol.stream_buffers[big].buffer) <= 2 * BUFFER_HIGH_WATER
        client.refuse_data = False
        client.h2.acknowledge_received_data(65535, big)
        await client.flush()
        assert await client.read(big) == ("200", bytes(size))
        nursery.cancel_scope.cancel()


async def test_a_stream_that_is_reset_behind_a_shut_window_ends_at_once(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    ended = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await answer(send, bytes(1_000_000))
        finally:
            ended.set()

    async with served_in_memory(app) as listener:
        client = H2Client(await listener.connect())
        client.refuse_data = True
        big = await client.ask()
        while len(client.bodies.get(big, b"")) < 65535:
            assert await client.pump()
        client.h2.reset_stream(big)
        await client.flush()
        await ended.wait()
        assert trio.current_time() < 1
    assert caplog.records == []


async def test_a_window_that_stays_shut_is_no_fault_of_the_application(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, bytes(1_000_000))

    async with served_in_memory(app) as listener:
        client = H2Client(await listener.connect())
        client.refuse_data = True
        big = await client.ask()
        while big not in client.resets:
            assert await client.pump()
    assert caplog.records == []


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


@pytest.mark.parametrize(
    "head",
    [
        {b":path": b"/a b"},
        {b":path": b"/a\x01"},
        {b":path": b"/a\x7f"},
        {b":path": b"http://other/a"},
        {b":path": b"a"},
        {b":method": b"GE T"},
        {b":method": b"G\x01"},
        {b":method": b"GET/"},
        {b":method": b""},
    ],
    ids=repr,
)
async def test_a_head_that_http1_could_not_say_resets_its_stream_only(
    head: dict[bytes, bytes],
) -> None:
    """Whoever passes it on would say something else."""
    async with served(echo) as port, await connect(port) as stream:
        client = H2Client(stream)
        client.h2.config.validate_outbound_headers = False
        stream_id = client.h2.get_next_available_stream_id()
        whole = {b":method": b"POST", b":path": b"/", b":scheme": b"http", b":authority": b"x"}
        client.h2.send_headers(stream_id, [*{**whole, **head}.items()])
        await client.flush()
        while stream_id not in client.resets:
            assert await client.pump()
        assert await client.read(await client.ask(b"body", path="/?a=b*")) == ("200", b"body")


async def test_an_http2_websocket_handshake_that_is_not_ascii_resets_its_stream_only() -> None:
    async with served(echo) as port, await connect(port) as stream:
        client = H2Client(stream)
        stream_id = client.h2.get_next_available_stream_id()
        headers = [
            (b":method", b"CONNECT"),
            (b":protocol", b"websocket"),
            (b":scheme", b"http"),
            (b":path", b"/"),
            (b":authority", b"x"),
            (b"sec-websocket-version", b"13"),
            (b"sec-websocket-protocol", b"\xff"),
        ]
        client.h2.send_headers(stream_id, headers)
        await client.flush()
        assert await client.read(await client.ask(b"body")) == ("200", b"body")


async def test_an_http2_websocket_whose_message_is_too_big_loses_its_stream_only() -> None:
    left: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await echo(scope, receive, send)
            return
        await receive()
        await send({"type": "websocket.accept"})
        left.append((await receive())["type"])

    async with (
        served(app, max_websocket_message_bytes=1000) as port,
        await connect(port) as stream,
    ):
        client = H2Client(stream)
        stream_id = client.h2.get_next_available_stream_id()
        headers = [
            (b":method", b"CONNECT"),
            (b":protocol", b"websocket"),
            (b":scheme", b"http"),
            (b":path", b"/"),
            (b":authority", b"x"),
            (b"sec-websocket-version", b"13"),
        ]
        client.h2.send_headers(stream_id, headers)
        await client.flush()
        while stream_id not in client.status:
            await client.pump()
        socket = wsproto.Connection(wsproto.ConnectionType.CLIENT)
        piece = socket.send(wsproto.events.TextMessage(data="x" * 1001, message_finished=False))
        client.h2.send_data(stream_id, piece)
        await client.flush()
        while stream_id not in client.resets:
            await client.pump()
        assert await client.read(await client.ask(b"body")) == ("200", b"body")
        assert left == ["websocket.disconnect"]
