"""HTTP/2 frames that no client sends, cut anywhere, at the connection loop.

Whatever comes, no fault is logged, nothing of it stays, and the next client is served.
"""

import logging

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_trio.http.asgi_call import Receive, Scope, Send
from mcp_trio.http.serving import HTTPService, ServingSettings

from .serving_tools import GET, MemoryListener, answer, read_until

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
STREAMS = st.sampled_from([0, 1, 1, 3, 3, 5, 7, 2, 2**31 - 1, 2**31])
REQUEST = b"\x82\x84\x86\x01\x01x"
SOCKET = (
    b"\x02\x07CONNECT\x84\x86\x01\x01x\x00\x09:protocol\x09websocket"
    b"\x00\x15sec-websocket-version\x0213"
)
POST = b"\x83\x84\x86\x01\x01x"
BLOCKS = st.one_of(
    st.sampled_from(
        [
            REQUEST + b"\x00\x0econtent-length\x015",
            REQUEST + b"\x00\x06expect\x0c100-continue",
            REQUEST + b"\x00\x01\xff\x01x",
            b"\x82\x86\x01\x01x\x04\x03/\xff\xfe",
        ]
    ),
    st.sampled_from([REQUEST, POST, SOCKET]),
)
MASKED = st.sampled_from(
    [
        b"\x81\x81\0\0\0\0x",
        b"\x89\x80\0\0\0\0",
        b"\x88\x82\0\0\0\0\x03\xe8",
        b"\x01\x81\0\0\0\0x",
        b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0",
    ]
)
SETTING = st.tuples(
    st.sampled_from([1, 2, 3, 4, 5, 6, 8, 9, 200]),
    st.sampled_from([0, 1, 100, 16384, 65535, 2**24, 2**31 - 1, 2**31]),
).map(lambda pair: pair[0].to_bytes(2, "big") + pair[1].to_bytes(4, "big"))
NUMBER = st.sampled_from([0, 1, 65535, 2**30, 2**31 - 1, 2**31]).map(
    lambda number: number.to_bytes(4, "big")
)


def frame(kind: int, flags: int, stream: int, body: bytes, lie: int = 0) -> bytes:
    length = max(len(body) + lie, 0)
    return length.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


BODIES = {
    0: st.one_of(st.binary(max_size=50), MASKED),
    1: BLOCKS,
    2: st.sampled_from([b"\0\0\0\0\5", b"\0\0\0\1\5", b"\x80\0\0\3\xff"]),
    3: NUMBER,
    4: st.lists(SETTING, max_size=4).map(b"".join),
    6: st.just(b"12345678"),
    7: st.just(bytes(8)),
    8: NUMBER,
    9: BLOCKS,
}
USUAL = {1: [0x4, 0x5, 0x5], 0: [0, 1], 4: [0, 0, 1], 9: [0x4]}
OF_THE_CONNECTION = {4, 6, 7}


@st.composite
def traffic(draw) -> list[bytes]:
    """Frames of which most make sense where they stand, and some do not at all."""
    sent: list[bytes] = []
    last = -1
    for _ in range(draw(st.integers(1, 25))):
        kind = draw(st.sampled_from([1, 1, 1, 1, 0, 0, 0, 2, 3, 4, 6, 8, 8, 0x42, 7, 5, 9, 10]))
        odd = draw(st.integers(0, 15)) == 0
        if kind == 1 and not odd:
            last += 2
        stream = 0 if kind in OF_THE_CONNECTION else draw(st.sampled_from([last, last, 1]))
        if odd:
            stream = draw(STREAMS)
        rubbish = st.binary(max_size=20)
        body = draw(rubbish if odd else BODIES.get(kind, rubbish))
        flags = draw(st.sampled_from([0, 0x8, 0x20, 0xFF] if odd else USUAL.get(kind, [0])))
        lie = draw(st.sampled_from([0] * 6 + [1, -1, 100_000])) if odd else 0
        sent.append(frame(kind, flags, max(stream, 0), body, lie))
    return sent


class World:
    """An application that reads, answers, waits, or hears a WebSocket."""

    def __init__(self) -> None:
        self.turn = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            while (await receive())["type"] == "websocket.receive":
                await send({"type": "websocket.send", "text": "x" * 50_000})
            return
        self.turn += 1
        if self.turn % 3:
            while (message := await receive())["type"] == "http.request":
                if not message["more_body"]:
                    break
        await answer(send, b"hello" * (20_000 if self.turn % 2 else 1))


async def drink(stream: trio.abc.ReceiveStream) -> None:
    try:
        while await stream.receive_some():
            pass
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


async def trial(sent: list[bytes], cuts: list[int], *, polite: bool) -> None:
    limits = ServingSettings(
        max_idle_frames=15,
        max_resets=5,
        max_concurrent_streams=3,
        max_requests_per_connection=4,
        max_header_bytes=300,
        body_timeout=5,
        write_timeout=5,
        keep_alive_timeout=5,
        linger_timeout=1,
        disconnect_grace=1,
    )
    service, listener = HTTPService(World(), settings=limits), MemoryListener()
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run_listeners, [listener])
        stream = await listener.connect()
        async with trio.open_nursery() as listening:
            listening.start_soon(drink, stream)
            data, at = PREFACE + frame(4, 0, 0, b"") + b"".join(sent), 0
            try:
                for cut in [*cuts, len(data)]:
                    await stream.send_all(data[at : at + cut])
                    at += cut
                    await trio.lowlevel.checkpoint()
                if polite:
                    await trio.sleep(100)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            await stream.aclose()
        await trio.sleep(100)
        assert service.statistics().connections == 0
        assert service.statistics().requests_in_flight == 0
        last = await listener.connect()
        await last.send_all(GET)
        await read_until(last, b"hello")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("polite", [True, False])
def test_whatever_frames_come_the_next_client_is_served(
    polite: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    @settings(max_examples=60, derandomize=True, database=None)
    @given(traffic(), st.lists(st.integers(1, 60), max_size=15))
    def run(sent: list[bytes], cuts: list[int]) -> None:
        caplog.clear()
        clock = trio.testing.MockClock(autojump_threshold=0)
        trio.run(lambda: trial(sent, cuts, polite=polite), clock=clock)
        assert [record.getMessage() for record in caplog.records] == []

    run()
