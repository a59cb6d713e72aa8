"""The battery catches what it is there to catch: a broken transport for each of its checks."""

import contextlib
import re
from collections import deque

import pytest
import trio

from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import TransportClosedError, TransportError
from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.messages import Error
from mcp_trio.testing import MemoryTransport, check_transport
from mcp_trio.testing.battery import CHECKS
from mcp_trio.transports.memory import BUFFER
from tests.programs import ROOT


class Forgetful(MemoryTransport):
    """Leaves the data of an error out."""

    async def send(self, envelope):
        message = envelope.message
        if isinstance(message, Error):
            message = Error(message.id, message.code, message.message)
        await super().send(Envelope(message))


class Overtaking(MemoryTransport):
    """Sends two messages in the order opposite to theirs."""

    waiting = None

    async def send(self, envelope):
        if self.waiting is None:
            self.waiting = envelope
            return
        first, self.waiting = self.waiting, None
        await super().send(envelope)
        await super().send(first)


class Doubling(MemoryTransport):
    async def send(self, envelope):
        await super().send(envelope)
        await super().send(envelope)


class Mixing(MemoryTransport):
    """Writes a message in two pieces, and others may come between."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.text = b""

    async def send(self, envelope):
        data = codec.encode(envelope.message)
        self.text += data[:50]
        if len(data) > 1000:
            await trio.lowlevel.checkpoint()
        self.text += data[50:]
        whole, self.text = self.text, b""
        await self._outgoing.send(whole)


class Limited(MemoryTransport):
    """Drops what is large."""

    async def send(self, envelope):
        if len(codec.encode(envelope.message)) < 1_000_000:
            await super().send(envelope)


def unbounded():
    return MemoryTransport.pair(buffer=10**6)


class Stubborn(MemoryTransport):
    """Once somebody had to wait, nothing is sent any more."""

    async def send(self, envelope):
        if self._outgoing.statistics().current_buffer_used == BUFFER:
            await trio.sleep_forever()
        await super().send(envelope)


class Hoarding(MemoryTransport):
    """Reads ahead without any bound."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._read = deque()
        self._more = trio.Event()
        self._over = False

    async def pump(self):
        while not self._over:
            try:
                self._read.append(await super().receive())
            except trio.EndOfChannel:
                self._over = True
            self._more.set()
            self._more = trio.Event()

    async def receive(self):
        while not self._read:
            if self._over:
                raise trio.EndOfChannel
            await self._more.wait()
        return self._read.popleft()


class HalfSending(MemoryTransport):
    """Sends a message in two steps, and half of it if cancelled between them."""

    async def send(self, envelope):
        data = codec.encode(envelope.message)
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            self._outgoing.send_nowait(data[: len(data) // 2])
            raise
        await super().send(envelope)


class SendingTwice(MemoryTransport):
    """A cancelled send is repeated by itself."""

    async def send(self, envelope):
        try:
            await super().send(envelope)
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await super().send(envelope)
            raise


class HalfWaiting(MemoryTransport):
    """Sends half a message when it is cancelled while it waits for room."""

    async def send(self, envelope):
        try:
            await super().send(envelope)
        except trio.Cancelled:
            if (
                self._outgoing.statistics().tasks_waiting_receive == 0
                and len(codec.encode(envelope.message)) > 150_000
            ):
                self._outgoing._state.data.append(b'{"half":')
            raise


class LosingReceive(MemoryTransport):
    """A message in hand is lost when the receiver is cancelled at the wrong moment."""

    async def receive(self):
        envelope = await super().receive()
        await trio.lowlevel.checkpoint()
        return envelope


class SlowToClose(MemoryTransport):
    async def aclose(self):
        await trio.sleep(60)
        await super().aclose()


class ClosedByPump(MemoryTransport):
    """Has a pump, without which it can neither send nor close."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._runs = trio.Event()
        self._idle = trio.Event()
        self._closing = trio.Event()

    async def pump(self):
        self._runs.set()
        await self._closing.wait()
        self._idle.set()

    async def aclose(self):
        self._closing.set()
        if self._runs.is_set():
            await self._idle.wait()
        await super().aclose()


class PumpBreaks(MemoryTransport):
    """After its pump has been cancelled, sending fails in a way of its own."""

    over = False

    async def pump(self):
        try:
            await trio.sleep_forever()
        finally:
            self.over = True

    async def send(self, envelope):
        if self.over:
            raise RuntimeError("no pump")
        await super().send(envelope)


class HalfClosed(MemoryTransport):
    """Closes one of its channels after the other, which a cancellation may prevent."""

    async def aclose(self):
        await self._outgoing.aclose()
        await self._incoming.aclose()


class Unheard(MemoryTransport):
    """Says goodbye first, and only then closes what the peer listens to."""

    gone = False

    async def send(self, envelope):
        if self.gone:
            raise TransportClosedError("closed")
        await super().send(envelope)

    async def receive(self):
        if self.gone:
            raise trio.EndOfChannel
        return await super().receive()

    async def aclose(self):
        if not self.gone:
            self.gone = True
            await trio.lowlevel.checkpoint()
            await super().aclose()


class OpenForEver(MemoryTransport):
    """Sends although it was closed."""

    async def send(self, envelope):
        with contextlib.suppress(TransportClosedError):
            await super().send(envelope)


class OtherError(MemoryTransport):
    """Refuses with the error of the layer below."""

    async def send(self, envelope):
        await self._outgoing.send(codec.encode(envelope.message))


class ClosesOnce(MemoryTransport):
    closed = False

    async def aclose(self):
        if self.closed:
            raise trio.ClosedResourceError
        self.closed = True
        await super().aclose()


class EndlessPump(MemoryTransport):
    async def pump(self):
        await trio.sleep_forever()


class DeafToClose(MemoryTransport):
    """A receiver that waits does not notice that its end was closed."""

    async def receive(self):
        try:
            return Envelope(codec.decode(await self._incoming.receive()))
        except trio.ClosedResourceError:
            await trio.sleep_forever()


class Unsaid(MemoryTransport):
    """Closing tells nothing to a sender that waits."""

    async def send(self, envelope):
        try:
            await self._outgoing.send(codec.encode(envelope.message))
        except trio.ClosedResourceError as error:
            if len(codec.encode(envelope.message)) > 150_000:
                await trio.sleep_forever()
            raise TransportClosedError("closed") from error
        except trio.BrokenResourceError as error:
            raise TransportError("broken") from error


class Hasty(MemoryTransport):
    """Throws away, on closing, what the peer has not read yet."""

    async def aclose(self):
        self._outgoing._state.data.clear()
        await super().aclose()


class Restarting(MemoryTransport):
    """The end comes once, then receiving waits as if nothing had happened."""

    ended = False

    async def receive(self):
        if self.ended:
            await trio.sleep_forever()
        try:
            return await super().receive()
        except trio.EndOfChannel:
            self.ended = True
            raise


class Loud(MemoryTransport):
    """Sending to a peer that is gone raises what trio raises."""

    async def send(self, envelope):
        try:
            await super().send(envelope)
        except TransportError as error:
            raise trio.BrokenResourceError from error


class Oblivious(MemoryTransport):
    """Sends to nobody for ever."""

    async def send(self, envelope):
        with contextlib.suppress(TransportError):
            await super().send(envelope)


class OneEnd(MemoryTransport):
    """Takes the end of what it hears for the end of everything."""

    async def receive(self):
        try:
            return await super().receive()
        except trio.EndOfChannel:
            self._outgoing.close()
            raise


class Speechless(MemoryTransport):
    def abandon(self, request_id):
        return None


class Raising(MemoryTransport):
    def abandon(self, request_id):
        raise KeyError(request_id)


def first_is(kind):
    """Pairs whose first end is broken, and whose second end works."""

    def make():
        left, right = MemoryTransport.pair()
        return kind(left._outgoing, left._incoming), right

    return make


def second_is(kind):
    return lambda: first_is(kind)()[::-1]


BROKEN = [
    ("kinds", first_is(Forgetful), "received Error"),
    ("kinds", second_is(Forgetful), "received Error"),
    ("order", first_is(Overtaking), "received"),
    ("order", first_is(Doubling), "received"),
    ("order", second_is(Doubling), "received"),
    ("senders", first_is(Mixing), "mixed up"),
    ("senders", first_is(Doubling), "twice"),
    ("huge", first_is(Limited), "received"),
    ("back_pressure", unbounded, "without waiting"),
    ("back_pressure", first_is(Stubborn), "did not get that far"),
    ("bounded_inbox", first_is(Hoarding), "without waiting"),
    ("cancelled_send", first_is(HalfSending), "left Malformed"),
    ("cancelled_send", first_is(SendingTwice), "twice"),
    ("cancelled_waiting_send", first_is(HalfWaiting), "left Malformed"),
    ("cancelled_receive", first_is(LosingReceive), "did not get that far"),
    ("cancelled_pump", first_is(SlowToClose), "longer than 10 s"),
    ("cancelled_pump", first_is(ClosedByPump), "longer than 10 s"),
    ("cancelled_pump", first_is(PumpBreaks), "RuntimeError"),
    ("cancelled_close", first_is(HalfClosed), "did not get that far"),
    ("cancelled_close_is_heard", first_is(Unheard), "did not get that far"),
    ("close", first_is(SlowToClose), "longer than 10 s"),
    ("close", first_is(OpenForEver), "send works"),
    ("close", first_is(OtherError), "ClosedResourceError"),
    ("close", first_is(ClosesOnce), "ClosedResourceError"),
    ("close", first_is(EndlessPump), "pump of a closed end goes on"),
    ("close_ends_waiting", first_is(DeafToClose), "did not get that far"),
    ("close_ends_waiting", first_is(Unsaid), "not told"),
    ("close_is_heard", first_is(Hasty), "the line ended"),
    ("peer_close", first_is(Restarting), "did not get that far"),
    ("peer_close", first_is(Loud), "BrokenResourceError"),
    ("peer_close", first_is(Oblivious), "sending goes on"),
    ("half_close", second_is(OneEnd), "the line ended"),
    ("peer_half_close", first_is(OneEnd), "the line ended"),
    ("abandon", first_is(Speechless), "abandon gives None"),
    ("abandon", first_is(Raising), "KeyError"),
]


async def half_close(end):
    await end._outgoing.aclose()


@pytest.mark.parametrize(
    ("check", "make", "says"), BROKEN, ids=[f"{n}-{check}" for n, (check, *_) in enumerate(BROKEN)]
)
async def test_a_broken_transport_is_caught(check, make, says, autojump_clock):
    async def pair():
        return make()

    spared = {each.__name__: "looked at elsewhere" for each in CHECKS if each.__name__ != check}
    with pytest.raises(AssertionError, match=says) as caught:
        await check_transport(pair, half_close=half_close, without=spared)
    assert str(caught.value).startswith(f"{check}: ")


def test_there_is_a_broken_transport_for_each_check():
    assert {check for check, *_ in BROKEN} == {check.__name__ for check in CHECKS}


def test_the_page_names_each_check_and_says_what_it_says():
    page = (ROOT / "docs" / "testing.md").read_text()
    rows = dict(
        re.findall(r"^\| `(\w+)` \| (.*) \|$", page.partition("| check |")[2], re.MULTILINE)
    )
    for check in CHECKS:
        rule = check.__doc__.rstrip(".")
        assert rows[check.__name__] == rule[0].lower() + rule[1:]


async def memory():
    return MemoryTransport.pair()


@pytest.mark.parametrize("without", [{"half-close": "a typing error"}, {"half_close": " "}])
async def test_what_is_left_out_is_a_check_and_has_a_reason(without):
    with pytest.raises(ValueError, match="half_close"):
        await check_transport(memory, without=without)


async def test_leaving_the_half_close_out_has_to_be_said(autojump_clock):
    with pytest.raises(AssertionError, match="half_close: say as `half_close`"):
        await check_transport(memory)


async def test_a_pump_that_fails_is_told(autojump_clock):
    class Failing(MemoryTransport):
        async def pump(self):
            raise KeyError("pump")

    async def make():
        return first_is(Failing)()

    with pytest.raises(AssertionError, match="kinds: the transport raised KeyError"):
        await check_transport(make)
