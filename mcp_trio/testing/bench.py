"""Where a transport is put to be checked: fresh pairs, and what may be done with their ends."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import TypeAlias

import trio
import trio.testing

from mcp_trio.abc import Transport
from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import TransportClosedError, TransportError
from mcp_trio.jsonrpc.messages import Message, Notification

Pair: TypeAlias = Callable[[], Awaitable[tuple[Transport, Transport]]]
HalfClose: TypeAlias = Callable[[Transport], Awaitable[None]]

CLOSING = 10.0
"""Seconds that closing may take, whatever the peer does."""
STEADY = 10
"""Looks in a row at which nothing has moved before a sender counts as waiting."""
FLOOD = 400
"""Messages of `HEAVY` bytes, 80 MB of them, that no peer takes without reading."""
HEAVY = 200_000
LAST = -1
"""The number of the message after which no other is waited for."""
PROBE = -2
"""The number of a message that need not arrive."""


def expect(condition: object, what: str) -> None:
    """Fail with a sentence unless the condition holds."""
    if not condition:
        raise AssertionError(what)


def note(number: int, size: int = 0) -> Notification:
    """A message that can be told from others, of so many bytes and a few more."""
    return Notification("a/notification", {"number": number, "pad": "x" * size})


def brief(message: object) -> str:
    """A message as a text that can be read."""
    text = repr(message)
    return text if len(text) < 200 else f"{text[:150]}... ({len(text)} characters)"


class Line:
    """A connected pair: the end that is checked, its peer, and the pumps of both."""

    def __init__(self, end: Transport, peer: Transport) -> None:
        self.end = end
        self.peer = peer
        self.pumped = trio.Event()
        """Set when the pump of `end` has returned by itself."""

    async def pump(self) -> None:
        """Run the pump of the end that is checked."""
        await self.end.pump()
        self.pumped.set()


class Bench:
    """Makes pairs, and closes and forgets them."""

    def __init__(self, make: Pair, half_close: HalfClose | None, huge: int) -> None:
        self._make = make
        self.half_close = half_close
        self.huge = huge

    @contextlib.asynccontextmanager
    async def line(self, *, pump: bool = True) -> AsyncGenerator[Line, None]:
        """Make a pair with its pumps running; afterwards both ends are closed.

        Args:
            pump: run the pump of the end that is checked; False leaves that to the check.
        """
        line = Line(*await self._make())
        async with trio.open_nursery() as nursery:
            if pump:
                nursery.start_soon(line.pump)
            nursery.start_soon(line.peer.pump)
            try:
                yield line
            finally:
                with trio.move_on_after(CLOSING, shield=True):
                    async with trio.open_nursery() as closing:
                        closing.start_soon(line.end.aclose)
                        closing.start_soon(line.peer.aclose)
            nursery.cancel_scope.cancel()


async def send_all(sender: Transport, *messages: Message) -> None:
    """Send messages one after the other."""
    for message in messages:
        await sender.send(Envelope(message))


async def hear(receiver: Transport) -> Message:
    """Receive one message; the end of the line is a failure."""
    try:
        return (await receiver.receive()).message
    except trio.EndOfChannel as end:
        raise AssertionError("the line ended while messages were on their way") from end


async def expect_messages(receiver: Transport, *messages: Message) -> None:
    """Receive just these, in this order."""
    for message in messages:
        got = await hear(receiver)
        expect(got == message, f"sent {brief(message)}, received {brief(got)}")


async def exchange(sender: Transport, receiver: Transport, *messages: Message) -> None:
    """Send messages while they are received, just these, in this order."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(send_all, sender, *messages))
        await expect_messages(receiver, *messages)


async def expect_end(receiver: Transport, when: str) -> None:
    """The line has ended for this receiver, and stays so."""
    for _ in range(2):
        try:
            got = await receiver.receive()
        except trio.EndOfChannel:
            continue
        raise AssertionError(f"{when}, receive gives {brief(got.message)} and no EndOfChannel")


async def expect_refusal(sender: Transport, when: str) -> None:
    """Nothing can be sent on an end that was closed."""
    try:
        await sender.send(Envelope(note(0)))
    except TransportClosedError:
        return
    except Exception as error:
        raise AssertionError(
            f"{when}, send raises {error!r} and no TransportClosedError"
        ) from error
    raise AssertionError(f"{when}, send works")


async def close_in_time(end: Transport, when: str) -> None:
    """Close an end, which may not take long."""
    with trio.move_on_after(CLOSING) as limit:
        await end.aclose()
    expect(not limit.cancelled_caught, f"{when}, closing takes longer than {CLOSING:.0f} s")


class Flood:
    """A sender that sends more than any buffer may hold, to a peer that does not read."""

    def __init__(self, sender: Transport) -> None:
        self._sender = sender
        self.sent = 0
        """Messages that `send` has taken."""
        self.scope = trio.CancelScope()
        self.refused = False
        """Whether sending ended because the line was closed."""
        self.over = trio.Event()

    async def run(self) -> None:
        """Send until cancelled or closed."""
        try:
            with self.scope:
                while self.sent < FLOOD:
                    await self._sender.send(Envelope(note(self.sent, HEAVY)))
                    self.sent += 1
        except TransportClosedError:
            self.refused = True
        finally:
            self.over.set()

    async def stuck(self) -> None:
        """Wait until the sender waits, which it has to do sooner or later."""
        same, before = 0, -1
        while same < STEADY:
            await trio.testing.wait_all_tasks_blocked()
            same = same + 1 if self.sent == before else 0
            before = self.sent
        size = self.sent * HEAVY // 1_000_000
        expect(
            not self.over.is_set(), f"a peer that does not read was sent {size} MB without waiting"
        )


async def refused_or_waiting(sender: Transport, when: str) -> None:
    """Sending may fail as sending fails, wait or work, but not break in a way of its own."""
    with trio.move_on_after(1):
        try:
            await sender.send(Envelope(note(PROBE)))
        except TransportError:
            pass
        except Exception as error:
            raise AssertionError(f"{when}, send raises {error!r} and no TransportError") from error
