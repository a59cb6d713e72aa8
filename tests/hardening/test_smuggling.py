"""Requests that two parties could read in two ways: one reading, or none."""

import re

import pytest
import trio

from tests.hardening.attackers import call, connect, head, is_served, post, read_all
from tests.hardening.target import back_to_baseline

HIDDEN = post(call("keep", {"smuggled": True}))
"""Within the body of another request. If it is ever answered, or reaches the upstream, the other
was read in another way than a proxy in front would have read it."""
LINE = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
ZERO = b"0\r\n\r\n"
CHUNKED = (
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding: identity, chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding:\tchunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
    b"Transfer-Encoding: \x0bchunked",
    b"Transfer-Encoding: chunked;a=b",
    b'Transfer-Encoding: "chunked"',
    b"Transfer-Encoding:\r\n chunked",
    b"X: y\r\n Transfer-Encoding: chunked",
    b"X: y\rTransfer-Encoding: chunked",
    b"X: y\nTransfer-Encoding: chunked",
    b" Transfer-Encoding: chunked",
    b"Transfer\xadEncoding: chunked",
)
LENGTHS = (
    b"Content-Length: 5\r\nContent-Length: 0",
    b"Content-Length: 5, 0",
    b"Content-Length: +5",
    b"Content-Length: -5",
    b"Content-Length: 0x5",
    b"Content-Length: 5_0",
    b"Content-Length: 5 0",
    b"Content-Length : 5",
    b"Content-Length: \xd9\xa5",
    b"Content-Length:",
    b"Content-Length: 5\nX: y",
    b"Content-Length: 99999999999999999999",
    b"X: y\r\n Content-Length: 5",
)
BODIES = (
    b"5;x\n\r\nhello\r\n" + ZERO,
    b"+5\r\nhello\r\n" + ZERO,
    b"0x5\r\nhello\r\n" + ZERO,
    b"5_\r\nhello\r\n" + ZERO,
    b"5\nhello\n0\n\n",
    b"5\r\nhelloX\r\n" + ZERO,
    b"5\r\nhello\r\n\r\n" + ZERO,
    b"-1\r\n" + ZERO,
    b"fffffffffffffffff\r\n" + ZERO,
    b"00000000000000000000000000000005\r\nhello\r\n" + ZERO,
    b'5;a="\r\n"\r\nhello\r\n' + ZERO,
    b"5\r\nhello\r\n0\r\nbroken trailer\r\n\r\n",
    b"5\r\nhello\r\n0\r\nX: y\n\n",
    b"5\r\nhello\r\n0\r\nX: y\r\n z\r\n\r\n",
    b"5\r\nhello\r\n0\r\n\n",
)
HEADS = (
    b"POST http://evil.example/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
    b"POST /mcp  HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n",
    b"POST /mcp HTTP/1.1 \r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n",
    b"POST /mcp HTTP/9.9\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n",
    b"POST /mcp\r\n\r\n",
    b"POST\t/mcp\tHTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"POST /mcp\x00 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX\x00: y\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n: y\r\n\r\n",
    b"POST /mcp HTTP/1.1\nHost: 127.0.0.1\nContent-Length: 0\n\n",
)
WHOLE = {
    "another name": LINE + b"Transfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello",
    "tab": LINE + b"Transfer-Encoding:\tchunked\r\n\r\n" + ZERO,
    "capitals": LINE + b"TRANSFER-ENCODING: CHUNKED\r\n\r\n" + ZERO,
    **{
        name: LINE + b"Transfer-Encoding: chunked\r\n\r\n" + body
        for name, body in {
            "blank behind a size": b"5 \r\nhello\r\n" + ZERO,
            "long extension": b"5;" + b"a" * 20_000 + b"\r\nhello\r\n" + ZERO,
            "framing in trailers": b"5\r\nhello\r\n0\r\nContent-Length: 400\r\n\r\n",
            "long trailers": b"5\r\nhello\r\n0\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        }.items()
    },
    "absolute": b"GET http://127.0.0.1/x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "user": b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1@evil.example\r\n\r\n",
    "connect": b"CONNECT evil.example:80 HTTP/1.1\r\nHost: evil.example:80\r\n\r\n",
}
"""No doubt where they end; none of them is served."""
SHAPES = {
    **{
        f"TE.CL {line!r}": LINE + line + b"\r\nContent-Length: 5\r\n\r\n" + ZERO for line in CHUNKED
    },
    **{
        f"TE {line!r}": LINE + line + b"\r\n\r\n" + ZERO
        for line in CHUNKED
        if line not in {b"Transfer-Encoding: chunked", b"Transfer-Encoding:\tchunked"}
    },
    **{f"CL {line!r}": LINE + line + b"\r\n\r\nhello" for line in LENGTHS},
    **{
        f"body {body[:40]!r}": LINE + b"Transfer-Encoding: chunked\r\n\r\n" + body
        for body in BODIES
    },
    **{f"head {text[:60]!r}": text for text in HEADS},
}


async def said_to(target, data):
    """What a connection is answered to these bytes, and an end."""
    with trio.fail_after(20):
        async with await connect(target) as stream:
            try:
                await stream.send_all(data)
                await stream.send_eof()
            except trio.BrokenResourceError:
                pass
            return await read_all(stream)


def finals(heard):
    """The statuses of all answers but interim ones."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", heard) if status > b"199"]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
async def test_a_request_of_two_readings_is_refused_and_nothing_behind_it_is_read(
    target, upstream, shape
):
    """What stands behind it may be within its body, by the reading of a proxy in front."""
    before = upstream.counts().get("/keep", 0)
    heard = finals(await said_to(target, shape + HIDDEN))
    assert len(heard) == 1
    assert heard[0] in {400, 413, 414, 431, 501, 505}
    assert upstream.counts().get("/keep", 0) == before


@pytest.mark.parametrize("shape", WHOLE.values(), ids=WHOLE)
async def test_a_request_of_one_reading_ends_where_it_ends(target, upstream, shape):
    """The next one is read from there, and answered for itself."""
    before = upstream.counts().get("/keep", 0)
    heard = finals(await said_to(target, shape + HIDDEN))
    assert len(heard) == 2
    assert heard[0] >= 400
    assert heard[1] == 200
    assert upstream.counts()["/keep"] == before + 1


async def test_what_is_pipelined_is_answered_in_order_and_once(target):
    before = target.footprint()
    count = 200
    requests = b"".join(post(call("hello", id_=number)) for number in range(count))
    heard = await said_to(target, requests)
    places = [heard.index(b'"id":%d,' % number) for number in range(count)]
    assert places == sorted(places)
    assert heard.count(b"HTTP/1.1 200") == count
    await is_served(target)
    await back_to_baseline(target, before)


async def test_chunks_with_extensions_and_trailers_are_one_body(target):
    body = post(call("hello")).partition(b"\r\n\r\n")[2]
    lines = ("Transfer-Encoding: chunked", "MCP-Protocol-Version: 2026-07-28")
    begin = head(None, *lines, "Mcp-Method: tools/call", "Mcp-Name: hello")
    middle = len(body) // 2
    pieces = b"".join(
        b'%x;name="v";flag\r\n%s\r\n' % (len(part), part) for part in (body[:middle], body[middle:])
    )
    heard = await said_to(target, begin + pieces + b"0\r\nX-Trailer: 1\r\n\r\n")
    assert finals(heard) == [200]
