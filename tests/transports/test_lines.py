import trio
import trio.testing

from mcp_trio.engine.envelope import Envelope
from mcp_trio.jsonrpc.messages import Malformed, Notification, Request
from mcp_trio.testing import check_transport
from mcp_trio.transports.lines import LineTransport


def _pair(**options):
    (left_out, right_in) = trio.testing.memory_stream_one_way_pair()
    (right_out, left_in) = trio.testing.memory_stream_one_way_pair()
    return LineTransport(left_in, left_out, **options), LineTransport(right_in, right_out)


def _lockstep_pair():
    left_out, right_in = trio.testing.lockstep_stream_one_way_pair()
    right_out, left_in = trio.testing.lockstep_stream_one_way_pair()
    return LineTransport(left_in, left_out), LineTransport(right_in, right_out)


async def test_lines_pass_the_battery(autojump_clock):
    async def make():
        return _lockstep_pair()

    await check_transport(make)


async def _reader(data, **options):
    send, receive = trio.testing.memory_stream_one_way_pair()
    nowhere, _ = trio.testing.memory_stream_one_way_pair()
    await send.send_all(data)
    await send.aclose()
    return LineTransport(receive, nowhere, **options)


async def test_bad_lines_are_messages_of_their_own_and_the_next_line_is_read():
    good = b'{"jsonrpc":"2.0","method":"n"}\n'
    bad = [b"{not json}\n", b'"\xff"\n', b"\xef\xbb\xbf{}\n", b"[]\n", b"x" * 200 + b"\n"]
    line = await _reader(b"".join(item + good for item in bad), max_line=100)
    for _ in bad:
        assert isinstance((await line.receive()).message, Malformed)
        assert (await line.receive()).message == Notification("n")
    await line.aclose()


async def test_a_last_line_without_a_line_feed_is_a_line():
    line = await _reader(b'{"jsonrpc":"2.0","id":1,"method":"m"}')
    assert (await line.receive()).message == Request(1, "m")
    await line.aclose()


async def test_only_a_line_feed_is_written_after_each_message():
    send, receive = trio.testing.memory_stream_one_way_pair()
    nothing, incoming = trio.testing.memory_stream_one_way_pair()
    line = LineTransport(incoming, send)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(line.pump)
        await line.send(Envelope(Notification("n", {"text": "a\r\nb\u2028c"})))
        await line.aclose()
    written = bytearray()
    while chunk := await receive.receive_some(1000):
        written += chunk
    assert written.count(b"\n") == 1
    assert written.endswith(b"}\n")
    assert b"\r" not in written
    await nothing.aclose()


async def test_closing_writes_out_what_was_sent():
    left, right = _lockstep_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(left.pump)
        for number in range(20):
            await left.send(Envelope(Notification("n", {"number": number})))
        nursery.start_soon(left.aclose)
        for number in range(20):
            assert (await right.receive()).message.params == {"number": number}
    await right.aclose()
