"""Lines that go wrong on purpose do so just as they were told."""

import contextlib

import pytest
import trio
import trio.testing

from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import ConfigurationError, TransportClosedError, TransportError
from mcp_trio.jsonrpc.messages import Malformed, Notification
from mcp_trio.testing import (
    Fault,
    Faults,
    FaultyStream,
    FaultyTransport,
    MemoryTransport,
    check_transport,
)
from mcp_trio.transports.lines import LineTransport

EACH = {fault: 0.15 for fault in Fault if fault is not Fault.CUT}


def note(number):
    return Notification("n", {"number": number})


def pair(faults=None):
    ours, theirs = MemoryTransport.pair()
    return FaultyTransport(ours, faults), theirs


async def heard(line):
    """The messages of a line until its end, with the seconds at which they came."""
    began = trio.current_time()
    found = []
    with contextlib.suppress(trio.EndOfChannel):
        while True:
            message = (await line.receive()).message
            found.append((round(trio.current_time() - began, 6), message))
    return found


async def told(faults, count):
    """What arrives of so many messages."""
    line, peer = pair(faults)

    async def tell():
        with contextlib.suppress(TransportError):  # the line was cut
            for number in range(count):
                await peer.send(Envelope(note(number)))
        await peer.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tell)
        found = await heard(line)
        await line.aclose()
    return found


def injected(*faults, **options):
    made = Faults(**options)
    made.inject(*faults)
    return made


@pytest.mark.parametrize("swapped", [False, True])
async def test_without_faults_it_is_a_transport_like_others(autojump_clock, swapped):
    async def make():
        ends = pair()
        return ends[::-1] if swapped else ends

    async def half_close(end):
        await getattr(end, "_inner", end)._outgoing.aclose()

    await check_transport(make, half_close=half_close)


async def test_a_stream_without_faults_is_a_stream_like_others(autojump_clock):
    async def make():
        ours, theirs = trio.testing.lockstep_stream_pair()
        ours, theirs = FaultyStream(ours), FaultyStream(theirs)
        return LineTransport(ours, ours), LineTransport(theirs, theirs)

    async def half_close(end):
        await end._outgoing.send_eof()

    await check_transport(make, half_close=half_close)

    async def make_streams():
        ours, theirs = trio.testing.lockstep_stream_pair()
        return FaultyStream(ours), theirs

    await trio.testing.check_half_closeable_stream(make_streams, None)


@pytest.mark.parametrize(
    ("fault", "arrives"),
    [
        (None, [0, 1, 2]),
        (Fault.DROP, [0, 2]),
        (Fault.DUPLICATE, [0, 1, 1, 2]),
        (Fault.DELAY, [0, 2, 1]),
        (Fault.CUT, [0]),
    ],
)
async def test_what_is_injected_happens_to_that_message(autojump_clock, fault, arrives):
    faults = injected(None, fault)
    found = await told(faults, 3)
    assert [message.params["number"] for _, message in found] == arrives
    assert faults.happened == ({} if fault is None else {fault: 1})


async def test_a_delay_is_as_long_as_it_may_be_and_the_end_waits_for_it(autojump_clock):
    found = await told(injected(*[Fault.DELAY] * 50, longest=8.0), 50)
    waited = [seconds for seconds, _ in found]
    assert len(waited) == 50
    assert waited == sorted(waited)
    assert 7 < waited[-1] <= 8
    assert 0 <= waited[0] < 1


async def test_a_corrupted_message_is_read_from_its_bytes():
    found = [message for _, message in await told(Faults(1, rates={Fault.CORRUPT: 1}), 200)]
    assert len(found) == 200
    assert all(message != note(number) for number, message in enumerate(found))
    # Some can be read and say something else; most are no message any more.
    kinds = {type(message) for message in found}
    assert kinds >= {Malformed, Notification}


async def test_what_is_no_message_already_stays_as_it_is():
    ours, theirs = MemoryTransport.pair(encode=False)
    line = FaultyTransport(ours, injected(Fault.CORRUPT))
    broken = Malformed("no message", None)
    await theirs.send(Envelope(broken))
    assert (await line.receive()).message == broken
    await line.aclose()


async def test_the_seed_says_what_happens(autojump_clock):
    async def run(seed):
        faults = Faults(seed, rates=EACH)
        return await told(faults, 60), faults.happened

    first, happened = await run(7)
    assert (first, happened) == await run(7)
    assert first != (await run(8))[0]
    assert set(happened) == set(EACH)


@pytest.mark.parametrize("rates", [{Fault.DROP: -0.1}, {Fault.DROP: 0.6, Fault.DELAY: 0.6}])
def test_probabilities_are_probabilities(rates):
    with pytest.raises(ConfigurationError, match="probabilities"):
        Faults(rates=rates)


async def test_a_cut_ends_everybody_who_waits():
    line, peer = pair()
    async with trio.open_nursery() as nursery:

        async def receive():
            with pytest.raises(trio.EndOfChannel, match="cut on purpose"):
                await line.receive()

        async def send():
            with pytest.raises(TransportError, match="cut on purpose"):
                await line.send(Envelope(note(0)))

        line.stall()
        nursery.start_soon(receive)
        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked()
        line.cut()
    await receive()
    await send()
    await line.aclose()
    with pytest.raises(trio.EndOfChannel):
        await peer.receive()


async def test_stalled_senders_wait_until_they_may_go_on_or_the_line_is_closed():
    line, peer = pair()
    line.stall()
    line.stall()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(line.send, Envelope(note(0)))
        await trio.testing.wait_all_tasks_blocked()
        assert nursery.child_tasks
        line.go_on()
    assert (await peer.receive()).message == note(0)
    line.stall()
    async with trio.open_nursery() as nursery:

        async def send():
            with pytest.raises(TransportClosedError):
                await line.send(Envelope(note(1)))

        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked()
        await line.aclose()


# -- bytes -----------------------------------------------------------------------------


async def read(*faults, data=(b"one\n", b"two\n", b"three\n"), max_bytes=None):
    ours, theirs = trio.testing.memory_stream_pair()
    stream = FaultyStream(ours, injected(*faults))
    found = []
    for piece in data:
        await theirs.send_all(piece)
        with trio.move_on_after(5):
            found.append(await stream.receive_some(max_bytes))
    await theirs.aclose()
    with pytest.raises(trio.BrokenResourceError) if stream._is_cut else contextlib.nullcontext():
        while piece := await stream.receive_some(max_bytes):
            found.append(piece)
    await stream.aclose()
    return b"".join(found)


@pytest.mark.parametrize(
    ("fault", "arrives"),
    [
        (None, b"one\ntwo\nthree\n"),
        (Fault.DROP, b"one\nthree\n"),
        (Fault.DUPLICATE, b"one\ntwo\ntwo\nthree\n"),
        (Fault.DELAY, b"one\ntwo\nthree\n"),
    ],
)
async def test_bytes_suffer_what_is_injected(autojump_clock, fault, arrives):
    assert await read(None, fault) == arrives


async def test_a_delay_of_bytes_holds_up_all_behind_them(autojump_clock):
    began = trio.current_time()
    assert await read(Fault.DELAY, max_bytes=3) == b"one\ntwo\nthree\n"
    assert 0 < trio.current_time() - began <= 1


async def test_bytes_are_corrupted_in_place():
    got = await read(Fault.CORRUPT, data=[b"x" * 100])
    assert len(got) == 100
    assert 97 <= got.count(b"x") < 100


async def test_a_cut_stream_gives_half_and_breaks_both_ways():
    ours, theirs = trio.testing.memory_stream_pair()
    stream = FaultyStream(ours, injected(Fault.CUT))
    await theirs.send_all(b"abcdef")
    assert await stream.receive_some() == b"abc"
    for use in (stream.receive_some, lambda: stream.send_all(b"x")):
        with pytest.raises(trio.BrokenResourceError, match="cut on purpose"):
            await use()
    await stream.aclose()


async def test_lines_over_a_corrupted_stream_are_no_messages_and_the_next_is_read():
    ours, theirs = trio.testing.memory_stream_pair()
    stream = FaultyStream(ours, Faults(3))
    line = LineTransport(stream, stream)
    stream.faults.inject(Fault.CORRUPT)
    await theirs.send_all(b'{"jsonrpc":"2.0","method":"n"}\n')
    assert isinstance((await line.receive()).message, Malformed)
    await theirs.send_all(b'{"jsonrpc":"2.0","method":"n"}\n')
    assert (await line.receive()).message == Notification("n")
    await line.aclose()


async def test_half_closing_needs_a_stream_that_can():
    class Plain(trio.abc.Stream):
        async def send_all(self, data): ...
        async def wait_send_all_might_not_block(self): ...
        async def receive_some(self, max_bytes=None): ...
        async def aclose(self): ...

    with pytest.raises(ConfigurationError):
        await FaultyStream(Plain()).send_eof()
