"""Heads, bodies and WebSocket frames that no client sends, cut anywhere, at the connection loop.

Whatever comes, no fault is logged, nothing of it stays, and the next client is served.
"""

import json
import logging

import hypothesis
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio import HTTPOptions
from tests.http.asgi import META
from tests.http.test_websocket import serving
from tests.http.tools import make_server
from tests.messages import PING, PONG, initialize

HANDSHAKE = (
    b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
OFFERS = [
    b"",
    b"Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=x\r\n",
    b"Sec-WebSocket-Extensions: ;;;=\r\n",
    b"Sec-WebSocket-Protocol: \r\n",
    b"Sec-WebSocket-Protocol: x, mcp\r\nSec-WebSocket-Protocol: y\r\n",
]
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "report", "arguments": {}, "_meta": {**META, "progressToken": 1}},
}
LISTEN = {
    "jsonrpc": "2.0",
    "id": 2,
    "method": "subscriptions/listen",
    "params": {"notifications": {"toolsListChanged": True}, "_meta": META},
}
SAYINGS = [json.dumps(each).encode() for each in (PING, CALL, LISTEN, [PING, CALL], initialize())]
PAYLOADS = st.one_of(
    st.sampled_from(
        [*SAYINGS, b"\x03\xe8bye", b"\x03\xed", b"\x03", b"\xff\xff", b"\xf0\x9f", b"a" * 3000]
    ),
    st.binary(max_size=130),
)
VALUES = st.sampled_from(
    [
        b"",
        b"x",
        b"\xff\xfe",
        b"a" * 9000,
        b"=?base64?!!?=",
        b"=?base64?gA==?=",
        b"2026-07-28",
        b"2025-11-25",
        b"1-1",
        b"0-9999999999999999999",
        b"*/*;q=0",
        b"text/event-stream;q=0.0001",
        b"a/b,,;;q=,text/*;q=1",
        b"tools/call",
        b"report",
        b"100-continue",
        b"chunked",
        b"http://evil.example",
        b"[::1]",
        b"upgrade, close",
        b"h2c",
        b"folded\r\n value",
    ]
)
NAMES = st.sampled_from(
    b"Accept CONTENT-TYPE mcp-session-id MCP-Protocol-Version Last-Event-ID Mcp-Method Mcp-Name "
    b"Mcp-Param-X Origin Host Authorization Content-Length Transfer-Encoding Expect Connection "
    b"Upgrade Content-Encoding Access-Control-Request-Headers".split()
)


@st.composite
def frames(draw):
    """One frame of any kind, with any flags, masked or not, and sometimes of a false length."""
    opcode = draw(st.sampled_from([1, 1, 1, 0, 2, 8, 9, 10, 3, 15]))
    flags = draw(st.sampled_from([0x80, 0x80, 0x80, 0x00, 0xC0, 0xA0, 0x90, 0x40]))
    payload = draw(PAYLOADS)
    length = draw(st.sampled_from([len(payload)] * 9 + [2**63, 2**40, 5]))
    masked = draw(st.sampled_from([0x80] * 9 + [0]))
    if length < 126:
        head = bytes([flags | opcode, masked | length])
    elif length < 65536:
        head = bytes([flags | opcode, masked | 126]) + length.to_bytes(2, "big")
    else:
        head = bytes([flags | opcode, masked | 127]) + length.to_bytes(8, "big")
    mask = b"\x11\x22\x33\x44"
    body = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
    return head + (mask + body if masked else payload)


@st.composite
def sockets(draw):
    """A WebSocket handshake, and what follows once it is answered; at times a flood of pings."""
    flood = draw(st.sampled_from([0, 0, 0, 200])) * b"\x89\x80\x00\x00\x00\x00"
    sent = b"".join(draw(st.lists(frames(), max_size=8)))
    return HANDSHAKE + draw(st.sampled_from(OFFERS)) + b"\r\n", flood + sent


@st.composite
def requests(draw):
    """A few requests on one connection, each with fields that it should not have."""
    sent = b""
    for _ in range(draw(st.integers(1, 3))):
        method = draw(st.sampled_from(["POST", "POST", "POST", "GET", "DELETE", "OPTIONS", "X"]))
        path = draw(st.sampled_from(["/mcp", "/mcp", "/mcp/", "/sse", "/messages", "/%ff", "*"]))
        body = draw(st.sampled_from([*SAYINGS, b"", b"\xff"])) if method == "POST" else b""
        fields = [(b"Host", b"localhost"), (b"Content-Type", b"application/json")]
        if draw(st.booleans()):
            fields += [(b"MCP-Protocol-Version", b"2026-07-28"), (b"Mcp-Method", b"tools/call")]
            fields += [(b"Mcp-Name", b"report")]
        fields += draw(st.lists(st.tuples(NAMES, VALUES), max_size=3))
        wrong = draw(st.sampled_from([0] * 9 + [1, -1, 10**9]))
        fields.append((b"Content-Length", b"%d" % (len(body) + wrong)))
        sent += f"{method} {path} HTTP/1.1\r\n".encode()
        sent += b"".join(name + b": " + value + b"\r\n" for name, value in fields) + b"\r\n" + body
    return b"", sent


async def listen(stream):
    """Read all there is, and throw it away."""
    try:
        while await stream.receive_some():
            pass
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


async def trial(first, sent, cuts, polite):
    """Send bytes, the rest of them cut in pieces, go away `polite` or not; see what is left."""
    server, _ = make_server()
    options = HTTPOptions(max_body=2000, session_idle_timeout=5)
    async with serving(server, options) as world:
        stream = await world.listener.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen, stream)
            ends = sorted({cut % (len(sent) + 1) for cut in cuts} | {len(sent)})
            if first:
                await stream.send_all(first)
                await trio.testing.wait_all_tasks_blocked()
            start = 0
            for end in ends:
                await stream.send_all(sent[start:end])
                await trio.testing.wait_all_tasks_blocked()
                start = end
            if polite:
                await stream.send_stream.aclose()
                await trio.testing.wait_all_tasks_blocked()
            await stream.aclose()
        await trio.sleep(15)
        assert world.app.statistics().sessions == world.app.statistics().in_flight == 0
        assert world.service.statistics().connections == 0
        assert len(server.notices) == 0
        peer = await world.session()
        assert await peer.ask(PING) == PONG


@pytest.mark.parametrize("traffic", [requests(), sockets()], ids=["requests", "sockets"])
def test_bytes_that_no_client_sends_leave_nothing_behind(traffic, caplog):
    @hypothesis.settings(max_examples=30, derandomize=True, database=None)
    @given(traffic, st.lists(st.integers(0, 10_000), max_size=5), st.booleans())
    def run(sent, cuts, polite):
        clock = trio.testing.MockClock(autojump_threshold=0)
        trio.run(trial, *sent, cuts, polite, clock=clock)
        assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []

    run()
