import json
import logging
import socket

import pytest
import trio
import trio.testing

from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import TransportClosedError, TransportError
from mcp_trio.jsonrpc.messages import Malformed, Notification, Request, Result
from mcp_trio.testing import check_transport
from mcp_trio.transports.lines import LineTransport, ProgramLine


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

    await check_transport(make, half_close=half_close)


async def half_close(end):
    await end._outgoing.aclose()


async def _unix():
    ours, theirs = map(trio.socket.from_stdlib_socket, socket.socketpair())
    return trio.SocketStream(ours), trio.SocketStream(theirs)


async def _tcp():
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        ours = await trio.testing.open_stream_to_socket_listener(listener)
        return ours, await listener.accept()


async def stop_sending(end):
    await end._outgoing.send_eof()


@pytest.mark.parametrize("connect", [_unix, _tcp])
@pytest.mark.parametrize("swapped", [False, True])
async def test_lines_on_sockets_pass_the_battery(connect, swapped):
    """As `serve_lines` makes them: the server's end ends what is not our protocol."""

    async def make():
        ours, theirs = await connect()
        pair = LineTransport(ours, ours), LineTransport(theirs, theirs, only_our_protocol=True)
        return pair[::-1] if swapped else pair

    await check_transport(make, half_close=stop_sending)


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


@pytest.mark.parametrize("turns", range(6))
async def test_closing_writes_out_what_was_sent_also_when_the_writer_was_cancelled(turns):
    left, right = _pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(left.pump)
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        await left.send(Envelope(Notification("n")))
        nursery.cancel_scope.cancel()
    await left.aclose()
    assert (await right.receive()).message == Notification("n")
    await right.aclose()


# -- answers that are too large ----------------------------------------------------------


def answer_of(size, order):
    """An answer to request 7 with its fields in this order."""
    fields = {"jsonrpc": "2.0", "id": 7, "result": {"text": "x" * size}}
    return json.dumps({name: fields[name] for name in order}).encode() + b"\n"


@pytest.mark.parametrize(
    "order", [("jsonrpc", "id", "result"), ("result", "jsonrpc", "id"), ("id", "result", "jsonrpc")]
)
@pytest.mark.parametrize("make", ["lines", "program"])
async def test_an_answer_that_is_too_long_is_lost_by_name(order, make):
    good = b'{"jsonrpc":"2.0","method":"n"}\n'
    data = answer_of(70_000, order) + good + answer_of(20_000, order)
    if make == "program":
        noise = []
        line, _ = _program(data, max_line=50_000, on_noise=noise.append)
    else:
        line = await _reader(data, max_line=50_000)
    lost = (await line.receive()).message
    assert (lost.lost, lost.answer) == (7, None)
    assert lost.reason == "it is longer than 50000 bytes"
    assert (await line.receive()).message == Notification("n")
    assert (await line.receive()).message.id == 7
    await line.aclose()


async def test_a_request_that_is_too_long_is_refused_under_its_id():
    data = b'{"jsonrpc":"2.0","id":"a","method":"m","params":{"x":"%s"}}\n' % (b"x" * 200)
    line = await _reader(data, max_line=100)
    refusal = (await line.receive()).message
    assert refusal.lost is None
    assert (refusal.answer.id, refusal.answer.code) == ("a", -32600)
    with pytest.raises(trio.EndOfChannel):
        await line.receive()
    await line.aclose()


@pytest.mark.parametrize("make", ["lines", "program"])
async def test_a_line_without_end_ends_the_line_and_says_why(monkeypatch, make):
    monkeypatch.setattr("mcp_trio.transports.lines.ENDLESS", 1_000_000)
    data = b'{"jsonrpc":"2.0","method":"n"}\n' + b"x" * 3_000_000
    line = (
        _program(data, max_line=100)[0] if make == "program" else await _reader(data, max_line=100)
    )
    assert (await line.receive()).message == Notification("n")
    if make == "lines":
        assert isinstance((await line.receive()).message, Malformed)
    with pytest.raises(trio.EndOfChannel, match="a line did not end within 1"):
        await line.receive()
    await line.aclose()


# -- the line of a program -------------------------------------------------------------


async def fate():
    await trio.lowlevel.checkpoint()
    return "it has had its day"


def _program(data=b"", **options):
    """A line to a program that has printed this and ended."""
    printed = trio.testing.MemoryReceiveStream()
    reading, read = trio.testing.memory_stream_one_way_pair()
    printed.put_data(data)
    printed.put_eof()
    return ProgramLine(printed, reading, fate=fate, **options), read


async def test_the_line_of_a_program_passes_the_battery(autojump_clock):
    async def make():
        left_out, right_in = trio.testing.lockstep_stream_one_way_pair()
        right_out, left_in = trio.testing.lockstep_stream_one_way_pair()
        left = ProgramLine(left_in, left_out, fate=fate)
        return left, ProgramLine(right_in, right_out, fate=fate)

    await check_transport(make, half_close=half_close)


NOISE = [
    (b"Listening on port 3000", "Listening on port 3000"),
    (b"\xff\xfe", "\ufffd\ufffd"),
    (b'{"level": "info", "text": "hello"}', '{"level": "info", "text": "hello"}'),
    (b"[]", "[]"),
    (b"null", "null"),
    (b'{"jsonrpc": "2.0", "result": {}}', '{"jsonrpc": "2.0", "result": {}}'),
    (b"x" * 200, "Invalid request: a line is longer than 100 bytes"),
]


async def test_what_is_no_message_is_skipped_logged_and_reported(caplog):
    good = b'{"jsonrpc":"2.0","method":"n"}'
    printed = b"".join(noise + b"\n" + good + b"\n" for noise, _ in NOISE)
    heard = []
    line, _ = _program(printed, on_noise=heard.append, max_line=100)
    for _ in NOISE:
        assert (await line.receive()).message == Notification("n")
    with pytest.raises(trio.EndOfChannel, match="had its day"):
        await line.receive()
    assert heard == [text for _, text in NOISE]
    logged = [r.levelno for r in caplog.records if "is no message" in r.getMessage()]
    assert logged == [logging.WARNING] * len(NOISE)
    await line.aclose()


async def test_a_failing_callback_for_noise_ends_nothing(caplog):
    def fail(text):
        raise KeyError(text)

    line, _ = _program(b'what?\n{"jsonrpc":"2.0","id":1,"result":{}}\n', on_noise=fail)
    assert (await line.receive()).message == Result(1, {})
    assert "KeyError" in caplog.text
    await line.aclose()


async def test_a_broken_answer_is_no_noise_for_somebody_waits_for_it():
    line, _ = _program(b'{"jsonrpc":"2.0","id":1,"result":7}\n')
    message = (await line.receive()).message
    assert isinstance(message, Malformed)
    assert message.lost == 1
    await line.aclose()


async def test_a_message_that_cannot_be_written_says_how_the_program_ended(autojump_clock):
    line, read = _program()
    await read.aclose()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(line.pump)
        await line.send(Envelope(Notification("n")))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(TransportError, match="had its day"):
            await line.send(Envelope(Notification("n")))
    await line.aclose()
    with pytest.raises(TransportClosedError):
        await line.send(Envelope(Notification("n")))


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1,"result":{"x":"%s"}}',
        b'{"result":{"x":"%s"},"jsonrpc":"2.0","id":1}',
        b'{"result":{"x":"%s","y":NaN},"jsonrpc":"2.0","id":1}',
    ],
)
@pytest.mark.parametrize("size", [2000, 300_000])
async def test_an_answer_that_is_too_long_fails_the_call_that_waits_for_it(line, size):
    good = b'{"jsonrpc":"2.0","id":2,"result":{}}\n'
    line, _ = _program(line % (b"x" * size) + b"\n" + good, max_line=1000)
    message = (await line.receive()).message
    assert isinstance(message, Malformed)
    assert (message.lost, message.answer) == (1, None)
    assert "longer than 1000 bytes" in message.reason
    assert (await line.receive()).message == Result(2, {})
    await line.aclose()


async def test_an_answer_that_never_ends_fails_its_call_at_once():
    send, receive = trio.testing.memory_stream_one_way_pair()
    nowhere, _ = trio.testing.memory_stream_one_way_pair()
    line = LineTransport(receive, nowhere, max_line=1000)
    await send.send_all(b'{"jsonrpc":"2.0","id":1,"result":{"x":"' + b"x" * 2000)
    assert (await line.receive()).message.lost == 1
    await line.aclose()


@pytest.mark.parametrize(
    "request_",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":"%s"}}',
        b'{"method":"m","params":{"x":"%s"},"jsonrpc":"2.0","id":1}',
    ],
)
async def test_a_request_that_is_too_long_is_answered_under_its_id(request_):
    line = await _reader(request_ % (b"x" * 2000) + b"\n", max_line=1000)
    assert (await line.receive()).message.answer.id == 1
    with pytest.raises(trio.EndOfChannel):
        await line.receive()
    await line.aclose()


# -- closing ---------------------------------------------------------------------------


async def test_a_close_that_is_cancelled_closes_both_streams():
    incoming, outgoing = trio.testing.MemoryReceiveStream(), trio.testing.MemorySendStream()
    line = LineTransport(incoming, outgoing)
    with trio.CancelScope() as scope:
        scope.cancel()
        await line.aclose()
    for use in (outgoing.send_all(b"x"), incoming.receive_some()):
        with pytest.raises(trio.ClosedResourceError):
            await use


async def test_a_program_is_not_asked_how_it_ended_when_we_have_closed_the_line():
    async def never():
        raise AssertionError("it has not ended")

    reading, _ = trio.testing.memory_stream_one_way_pair()
    line = ProgramLine(trio.testing.MemoryReceiveStream(), reading, fate=never)
    await line.aclose()
    with pytest.raises(trio.EndOfChannel):
        await line.receive()
