"""What an HTTP/2 peer may send beside its requests: so much passes, and one more ends it.

Whatever it sends, nothing of it is kept: see the last tests.
"""

import logging
import struct

import h2.settings
import pytest
import trio
import trio.testing
from h2.errors import ErrorCodes
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.http.asgi_call import Receive, Scope, Send
from mcp_trio.http.http2_floods import FrameMeter
from mcp_trio.http.serving import HTTPService, ServingSettings

from .serving_tools import H2Client, MemoryListener, answer, echo, hello, served_in_memory

CALM = ErrorCodes.ENHANCE_YOUR_CALM


def priority() -> PriorityFrame:
    return PriorityFrame(3, depends_on=0, stream_weight=5, exclusive=False)


def padded() -> DataFrame:
    frame = DataFrame(1, b"", pad_length=9)
    frame.flags.add("PADDED")
    return frame


def acked(frame: Frame) -> Frame:
    frame.flags.add("ACK")
    return frame


class Unknown(Frame):
    """A frame of a type that nobody has defined."""

    type = 0x42
    stream_association = None

    def serialize_body(self) -> bytes:
        return b"x"


IDLE = {
    "ping": lambda: PingFrame(0, b"12345678"),
    "ping ack": lambda: acked(PingFrame(0, b"12345678")),
    "settings": lambda: SettingsFrame(0, settings={3: 100}),
    "empty settings": lambda: SettingsFrame(0),
    "window update": lambda: WindowUpdateFrame(0, window_increment=1),
    "window update of a stream": lambda: WindowUpdateFrame(1, window_increment=1),
    "priority": priority,
    "empty data": lambda: DataFrame(1, b""),
    "padding": padded,
    "unknown": lambda: Unknown(1),
}


async def reaches(client: H2Client) -> bool:
    """Whether the connection still answers."""
    asked = await client.ask(b"alive")
    while asked not in client.ended:
        if client.gone_away or not await client.pump():
            return False
    return True


async def ended_by(client: H2Client) -> int:
    while not client.gone_away:
        assert await client.pump()
    assert client.farewell is not None
    return client.farewell[0]


@pytest.mark.parametrize("name", IDLE)
async def test_so_many_frames_that_carry_nothing_pass_and_one_more_ends_the_connection(
    autojump_clock: trio.testing.MockClock, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    held = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/held":
            held.set()
            await trio.sleep_forever()
        await echo(scope, receive, send)

    caplog.set_level(logging.INFO, "mcp_trio.http")
    async with served_in_memory(app, max_idle_frames=100, flood_window=30) as listener:
        stream = await listener.connect()
        client = H2Client(stream)
        await client.ask(path="/held", end=False)
        await held.wait()
        frame = IDLE[name]().serialize()
        # What the client of the test has sent for itself: settings, their acknowledgement.
        for _ in range(98):
            await stream.send_all(frame)
        assert await reaches(client)
        await trio.sleep(15)  # half of them come back
        for _ in range(50):
            await stream.send_all(frame)
        assert not client.gone_away
        paid = 4 if name.startswith("window") else 0  # an answer accounts for so many updates
        for _ in range(paid + 1):
            await stream.send_all(frame)
        assert await ended_by(client) == CALM
        assert not await client.pump()
    assert [record.levelno for record in caplog.records] == [logging.INFO]


async def test_of_requests_that_come_all_at_once_no_more_are_read_than_may_be_refused() -> None:
    """Each one that is open makes the next one dearer."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await trio.sleep_forever()

    async with served_in_memory(app, max_concurrent_streams=10, max_resets=50) as listener:
        client = H2Client(await listener.connect())
        head = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "x")]
        await client.flush()
        block = client.h2.encoder.encode(head)
        heads = []
        for number in range(3000):
            frame = HeadersFrame(2 * number + 1, block)
            frame.flags.add("END_HEADERS")
            heads.append(frame.serialize())
        await client.stream.send_all(b"".join(heads))
        data = b""
        while part := await client.stream.receive_some():
            data += part
        last, code = struct.unpack(">II", data[-8:])
        assert code == CALM
        assert 2 * (10 + 50) < last < 1000


async def test_window_updates_that_answers_account_for_are_no_flood() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, bytes(3_000_000))

    async with served_in_memory(app, max_idle_frames=50) as listener:
        client = H2Client(await listener.connect())
        status, body = await client.read(await client.ask())
        assert (status, len(body)) == ("200", 3_000_000)


async def test_window_updates_that_open_nothing_are_one() -> None:
    """An update makes the server look whether there is something to send; no more than that."""
    async with served_in_memory(hello, max_idle_frames=50) as listener:
        stream = await listener.connect()
        client = H2Client(stream)
        await client.read(await client.ask())
        for _ in range(60):
            await stream.send_all(WindowUpdateFrame(0, window_increment=1).serialize())
            await trio.testing.wait_all_tasks_blocked()
        assert await ended_by(client) == CALM


async def test_so_many_streams_may_be_reset_and_one_more_ends_the_connection(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with served_in_memory(echo, max_resets=20, flood_window=30) as listener:
        client = H2Client(await listener.connect())

        async def resets(count: int) -> None:
            for _ in range(count):
                client.h2.reset_stream(await client.ask(end=False))
                await client.flush()
                await trio.testing.wait_all_tasks_blocked()

        await resets(20)
        assert await reaches(client)
        await trio.sleep(15.1)
        await resets(10)
        assert await reaches(client)
        await resets(1)
        assert await ended_by(client) == CALM


async def test_a_stream_that_the_peer_makes_the_server_reset_counts_like_one_it_resets() -> None:
    """CVE-2025-8671: a window that overflows, again and again, on a stream that does work."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/held":
            await trio.sleep_forever()
        await echo(scope, receive, send)

    async with served_in_memory(app, max_resets=20) as listener:
        stream = await listener.connect()
        client = H2Client(stream)
        for number in range(21):
            if number == 20:
                assert await reaches(client)
            asked = await client.ask(path="/held", end=False)
            await stream.send_all(WindowUpdateFrame(asked, window_increment=2**31 - 1).serialize())
            while asked not in client.resets and not client.gone_away:
                assert await client.pump()
        assert await ended_by(client) == CALM


async def test_a_stream_that_cannot_be_served_counts_too() -> None:
    async with served_in_memory(echo, max_resets=5) as listener:
        client = H2Client(await listener.connect())
        for _ in range(5):
            asked = await client.ask(path="/\xff")
            while asked not in client.resets:
                assert await client.pump()
        assert await reaches(client)
        await client.ask(path="/\xff")
        assert await ended_by(client) == CALM


# Header blocks.


async def test_a_header_block_in_pieces_may_be_so_large_and_no_larger() -> None:
    async with served_in_memory(hello, max_header_bytes=2000) as listener:
        for extra, passes in ((0, True), (1, False)):
            stream = await listener.connect()
            client = H2Client(stream)
            await client.flush()
            # GET, /, http, an authority, then table size updates, which are of no size decoded.
            head = b"\x82\x84\x86\x01\x01x"
            await stream.send_all(HeadersFrame(1, data=b"\x20" * 1000).serialize())
            rest = b"\x3f\xe1\x1f" + b"\x20" * (1000 - 3 - len(head) + extra) + head
            last = ContinuationFrame(1, data=rest)
            last.flags.add("END_HEADERS")
            await stream.send_all(last.serialize())
            if passes:
                assert not await hears(stream, CALM)
            else:
                assert await hears(stream, CALM)


async def hears(stream: trio.abc.Stream, code: int) -> bool:
    """Whether a GOAWAY with this code comes before an answer or the end."""
    data = b""
    while True:
        while len(data) < 9 or len(data) < 9 + int.from_bytes(data[:3], "big"):
            piece = await stream.receive_some()
            if not piece:
                return False
            data += piece
        length = int.from_bytes(data[:3], "big")
        kind, body, data = data[3], data[9 : 9 + length], data[9 + length :]
        if kind == 7:
            return int.from_bytes(body[4:8], "big") == code
        if kind in {0, 1, 3}:
            return False


async def test_continuations_without_end_are_not_kept() -> None:
    async with served_in_memory(hello, max_header_bytes=30_000) as listener:
        stream = await listener.connect()
        await H2Client(stream).flush()
        await stream.send_all(HeadersFrame(1, data=b"\x00" * 100).serialize())
        sent = 0
        with pytest.raises(trio.BrokenResourceError):
            while sent < 100:
                await stream.send_all(ContinuationFrame(1, data=b"\x00" * 1000).serialize())
                await trio.testing.wait_all_tasks_blocked()
                sent += 1
                if sent == 31:
                    assert await hears(stream, CALM)
                    await stream.aclose()
                    raise trio.BrokenResourceError
        assert sent == 31


async def test_empty_continuations_are_counted() -> None:
    async with served_in_memory(hello, max_idle_frames=30) as listener:
        stream = await listener.connect()
        await H2Client(stream).flush()
        await stream.send_all(HeadersFrame(1, data=b"\x82").serialize())
        for _ in range(31):
            await stream.send_all(ContinuationFrame(1).serialize())
        assert await hears(stream, CALM)


async def test_a_small_block_that_becomes_large_is_a_bomb() -> None:
    async with served_in_memory(hello, max_header_bytes=10_000) as listener:
        for times, bomb in ((3, False), (10, True)):
            stream = await listener.connect()
            client = H2Client(stream)
            await client.flush()
            # A field of 2000 bytes, put into the table, and named again and again.
            field = b"\x40\x01a\x7f" + bytes([0x80 | (2000 - 127) & 0x7F, (2000 - 127) >> 7])
            block = b"\x82\x84\x86\x01\x01x" + field + b"b" * 2000 + b"\xbe" * times
            frame = HeadersFrame(1, data=block)
            frame.flags |= {"END_HEADERS", "END_STREAM"}
            await stream.send_all(frame.serialize())
            assert await hears(stream, CALM) == bomb


# Nothing is kept.


async def test_settings_that_nobody_knows_are_forgotten() -> None:
    service, listener = HTTPService(hello), MemoryListener()
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run_listeners, [listener])
        stream = await listener.connect()
        client = H2Client(stream)
        await client.read(await client.ask())
        for first in range(100, 20_000, 2000):
            body = b"".join(struct.pack("!HL", name, 1) for name in range(first, first + 2000))
            await stream.send_all(len(body).to_bytes(3, "big") + b"\x04\0\0\0\0\0" + body)
        assert await reaches(client)
        (connection,) = service._connections
        known = connection._protocol.connection.remote_settings
        assert set(known) <= set(h2.settings.SettingCodes)
        nursery.cancel_scope.cancel()


async def test_a_table_is_not_made_as_large_as_the_peer_likes() -> None:
    service, listener = HTTPService(hello), MemoryListener()
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run_listeners, [listener])
        stream = await listener.connect()
        client = H2Client(stream)
        await client.read(await client.ask())
        encoder = next(iter(service._connections))._protocol.connection.encoder
        for size in range(500):
            await stream.send_all(SettingsFrame(0, settings={1: 2**31 - size}).serialize())
        await trio.testing.wait_all_tasks_blocked()
        assert encoder.header_table_size == 4096
        assert len(encoder.table_size_changes) <= 2
        nursery.cancel_scope.cancel()


async def test_priorities_of_streams_that_never_come_are_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served_in_memory(echo) as listener:
        stream = await listener.connect()
        client = H2Client(stream)
        await client.flush()
        for number in range(1200):
            frame = PriorityFrame(2 * number + 1, depends_on=0, stream_weight=5)
            await stream.send_all(frame.serialize())
        assert await reaches(client)
    assert caplog.records == []


# The meter.


FRAMES = st.sampled_from(
    [
        *(make().serialize() for make in IDLE.values()),
        DataFrame(1, b"x" * 300).serialize(),
        HeadersFrame(1, data=b"x" * 50).serialize(),
        RstStreamFrame(1).serialize(),
    ]
)


@given(st.lists(FRAMES, max_size=20), st.lists(st.integers(1, 400), max_size=50))
def test_frames_are_counted_however_their_bytes_come(frames: list[bytes], cuts: list[int]) -> None:
    settings = ServingSettings(max_idle_frames=5, max_resets=2)
    data = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"".join(frames)
    whole = FrameMeter(settings, 0.0).take(data, 0.0)
    meter, at, found = FrameMeter(settings, 0.0), 0, None
    for cut in [*cuts, len(data)]:
        found = found or meter.take(data[at : at + cut], 0.0)
        at += cut
    assert found == whole
    resets = sum(frame[3] == 3 for frame in frames)
    idle = sum(frame[3] not in {0, 1, 3} or (len(frame) < 50 and frame[3] == 0) for frame in frames)
    assert (whole is None) == (resets <= 2 and idle <= 5)
