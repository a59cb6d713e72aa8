"""What every `Transport` has to do, whatever it is made of: one function for each thing.

The first line of a docstring is what the pages and an error say about the check. `line.end` is
the end that is looked at, `line.peer` is only used.
"""

from __future__ import annotations

from functools import partial
from typing import cast

import trio
import trio.testing

from mcp_trio.abc import Transport
from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import TransportError
from mcp_trio.jsonrpc.messages import Error, Malformed, Message, Notification, Request, Result
from mcp_trio.testing.bench import (
    HEAVY,
    LAST,
    PROBE,
    Bench,
    Flood,
    Line,
    brief,
    close_in_time,
    exchange,
    expect,
    expect_end,
    expect_messages,
    expect_refusal,
    hear,
    note,
    refused_or_waiting,
    send_all,
)
from mcp_trio.testing.cancelling import cancelled_after

SAMPLES: tuple[Message, ...] = (
    Request(1, "a/request", {"text": "line\nbreak \u2028 and \U0001f600", "big": 2**80}),
    Request("1", "a/request", None),
    Notification("a/notification", {}),
    Result(7, {"nested": {"list": [1, 2.5, None, True]}}),
    Error("x", -32000, "message", {"detail": 1}),
)
NOTES = tuple(note(number) for number in range(20))
SENDERS = 100
MIDDLING = 100_000
"""Bytes of a message that is read in several pieces."""


async def kinds(bench: Bench) -> None:
    """Every kind of message arrives whole and in order, both ways."""
    async with bench.line() as line:
        await exchange(line.end, line.peer, *SAMPLES)
        await exchange(line.peer, line.end, *SAMPLES)


async def order(bench: Bench) -> None:
    """What one task sends arrives in that order, both ways at once, each message one time."""
    async with bench.line() as line, trio.open_nursery() as nursery:
        nursery.start_soon(partial(exchange, line.end, line.peer, *NOTES))
        nursery.start_soon(partial(exchange, line.peer, line.end, *NOTES))


async def senders(bench: Bench) -> None:
    """Messages of many senders neither mix nor get lost."""
    async with bench.line() as line, trio.open_nursery() as nursery:
        nursery.start_soon(_send_at_once, line.end)
        numbers: list[int] = []
        while (message := await hear(line.peer)) != note(LAST):
            numbers.append(_whole(message, 5000, "mixed up by many senders:"))
        expect(sorted(numbers) == list(range(SENDERS)), "messages got lost or came twice")


async def _send_at_once(end: Transport) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(SENDERS):
            nursery.start_soon(end.send, Envelope(note(number, 5000)))
    await end.send(Envelope(note(LAST)))


async def huge(bench: Bench) -> None:
    """A huge message arrives whole, both ways at once, and the small ones around it."""
    async with bench.line() as line, trio.open_nursery() as nursery:
        messages = (note(0), note(1, bench.huge), note(2))
        nursery.start_soon(partial(exchange, line.end, line.peer, *messages))
        nursery.start_soon(partial(exchange, line.peer, line.end, *messages))


async def back_pressure(bench: Bench) -> None:
    """A peer that does not read makes senders wait; once it reads, all of it arrives."""
    async with bench.line() as line, trio.open_nursery() as nursery:
        flood = Flood(line.end)
        nursery.start_soon(flood.run)
        await flood.stuck()
        stuck = flood.sent
        for number in range(stuck + 5):
            await expect_messages(line.peer, note(number, HEAVY))
        expect(flood.sent > stuck, "the sender still waits although the peer has read")
        nursery.cancel_scope.cancel()


async def bounded_inbox(bench: Bench) -> None:
    """An end that does not read makes its peer wait, and holds no more than a bound."""
    async with bench.line() as line, trio.open_nursery() as nursery:
        flood = Flood(line.peer)
        nursery.start_soon(flood.run)
        await flood.stuck()
        stuck = flood.sent
        for number in range(stuck + 5):
            await expect_messages(line.end, note(number, HEAVY))
        nursery.cancel_scope.cancel()


async def cancelled_send(bench: Bench) -> None:
    """A send that is cancelled, at whatever step, has sent all of its message or nothing."""
    async with bench.line() as line, trio.open_nursery() as nursery:
        seen: list[Message] = []
        returned: list[int] = []

        async def read() -> None:
            while not seen or seen[-1] != note(LAST):
                seen.append(await hear(line.peer))

        async def send(number: int) -> None:
            await line.end.send(Envelope(note(number, MIDDLING)))
            returned.append(number)

        nursery.start_soon(read)
        step = 1
        while await cancelled_after(step, partial(send, step)):
            step += 1
        await line.end.send(Envelope(note(LAST)))
    numbers = [_whole(message, MIDDLING, "a cancelled send left") for message in seen[:-1]]
    expect(len(set(numbers)) == len(numbers), "a message came twice")
    kept = [number for number in numbers if number in returned]
    expect(kept == returned, f"sent {returned} without being cancelled, received {kept}")


async def cancelled_waiting_send(bench: Bench) -> None:
    """A send that waits for a slow peer and is cancelled leaves nothing half sent."""
    async with bench.line() as line, trio.open_nursery() as nursery:
        flood = Flood(line.end)
        nursery.start_soon(flood.run)
        await flood.stuck()
        flood.scope.cancel()
        await flood.over.wait()
        nursery.start_soon(line.end.send, Envelope(note(LAST)))
        numbers: list[int] = []
        while (message := await hear(line.peer)) != note(LAST):
            numbers.append(_whole(message, HEAVY, "a cancelled send left"))
        got = list(range(flood.sent)), list(range(flood.sent + 1))
        expect(numbers in got, "of the messages before a cancelled send some are missing")


async def cancelled_receive(bench: Bench) -> None:
    """A receive that is cancelled, at whatever step, loses no message and doubles none."""
    async with bench.line() as line:
        step = 1
        while True:
            got: list[Message] = []

            async def receive(into: list[Message] = got) -> None:
                into.append(await hear(line.end))

            sent = note(step, MIDDLING)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(line.peer.send, Envelope(sent))
                again = await cancelled_after(step, receive)
                if not got:
                    await receive()
            expect(
                got[0] == sent, f"after a cancelled receive came {brief(got[0])}, not {brief(sent)}"
            )
            if not again:
                return
            step += 1


async def cancelled_pump(bench: Bench) -> None:
    """A pump that is cancelled, at whatever step, leaves an end that can be closed at once."""
    step = 1
    again = True
    while again:
        async with bench.line(pump=False) as line:
            talk = _Talk(line)
            again = await cancelled_after(step, talk.run)
            await refused_or_waiting(line.end, "after its pump was cancelled")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(close_in_time, line.end, "after its pump was cancelled")
                if talk.sent:
                    await _expect_rest(line.peer, talk.heard, "after a pump was cancelled")
        step += 1


class _Talk:
    """An end with its pump that says some things to a peer that listens."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.sent = 0
        self.heard = 0

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._line.end.pump)
            for number in range(3):
                await self._line.end.send(Envelope(note(number, MIDDLING)))
                self.sent += 1
            for number in range(3):
                got = await hear(self._line.peer)
                self.heard += 1
                expect(got == note(number, MIDDLING), f"received {brief(got)}")
            nursery.cancel_scope.cancel()


async def _expect_rest(peer: Transport, number: int, when: str) -> None:
    """Receive further messages in order, and the end; the last one may have been cut."""
    try:
        while True:
            message = (await peer.receive()).message
            if message == note(number, MIDDLING):
                number += 1
            else:
                cut = isinstance(message, Malformed) or message == note(PROBE)
                expect(cut, f"{when}, the peer received {brief(message)}")
    except trio.EndOfChannel:
        return


async def cancelled_close(bench: Bench) -> None:
    """A close that is cancelled, at whatever step, has closed this end all the same."""
    await _cancel_closes(bench, heard=False)


async def cancelled_close_is_heard(bench: Bench) -> None:
    """The peer hears of a close that was cancelled, at whatever step."""
    await _cancel_closes(bench, heard=True)


async def _cancel_closes(bench: Bench, *, heard: bool) -> None:
    step = 1
    again = True
    while again:
        async with bench.line() as line, trio.open_nursery() as nursery:
            await line.end.send(Envelope(note(0, MIDDLING)))
            nursery.start_soon(_expect_rest, line.peer, 0, "after a cancelled close")
            again = await cancelled_after(step, line.end.aclose)
            if not heard:
                await expect_refusal(line.end, "after a cancelled close")
                await expect_end(line.end, "after a cancelled close")
                await close_in_time(line.end, "the second time")
                nursery.cancel_scope.cancel()
        step += 1


async def close(bench: Bench) -> None:
    """A closed end refuses to send, receives no more, ends its pump; closing again is harmless."""
    async with bench.line() as line:
        await close_in_time(line.end, "with nothing to do")
        await expect_refusal(line.end, "after close")
        await expect_end(line.end, "after close")
        await close_in_time(line.end, "the second time")
        with trio.move_on_after(1):
            await line.pumped.wait()
        expect(line.pumped.is_set(), "the pump of a closed end goes on")


async def close_ends_waiting(bench: Bench) -> None:
    """Closing ends those who wait on this end to receive or, for a slow peer, to send."""
    async with bench.line() as line, trio.open_nursery() as nursery:
        nursery.start_soon(expect_end, line.end, "closed while somebody receives")
        await trio.testing.wait_all_tasks_blocked()
        await close_in_time(line.end, "while somebody receives")
    async with bench.line() as line, trio.open_nursery() as nursery:
        flood = Flood(line.end)
        nursery.start_soon(flood.run)
        await flood.stuck()
        await close_in_time(line.end, "with a peer that does not read")
        with trio.move_on_after(1):
            await flood.over.wait()
        expect(flood.refused, "a sender that waits is not told that its end was closed")
        nursery.cancel_scope.cancel()


async def close_is_heard(bench: Bench) -> None:
    """What was sent before closing is delivered, then the peer hears the end."""
    async with bench.line() as line, trio.open_nursery() as nursery:
        nursery.start_soon(_send_and_close, line.end)
        await trio.testing.wait_all_tasks_blocked()
        await expect_messages(line.peer, *NOTES)
        await expect_end(line.peer, "after the other end was closed")


async def peer_close(bench: Bench) -> None:
    """When the peer closes, what it sent is received, then the end; sending fails in the end."""
    async with bench.line() as line:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_send_and_close, line.peer)
            await trio.testing.wait_all_tasks_blocked()
            await expect_messages(line.end, *NOTES)
            await expect_end(line.end, "after the peer was closed")
        await _expect_broken(line.end)


async def _send_and_close(end: Transport) -> None:
    await send_all(end, *NOTES)
    await end.aclose()


async def _expect_broken(end: Transport) -> None:
    for _ in range(SENDERS):
        try:
            await end.send(Envelope(note(0, HEAVY)))
        except TransportError:
            return
        except Exception as error:
            raise AssertionError(
                f"after the peer was closed, send raises {error!r} and no TransportError"
            ) from error
    raise AssertionError("sending goes on long after the peer was closed")


async def half_close(bench: Bench) -> None:
    """When this end stops sending, the peer hears the end of it and may still speak."""
    async with bench.line() as line:
        await _stop_half(bench, line.end, line.peer)


async def peer_half_close(bench: Bench) -> None:
    """When the peer stops sending, this end hears the end of it and may still speak."""
    async with bench.line() as line:
        await _stop_half(bench, line.peer, line.end)


async def _stop_half(bench: Bench, quiet: Transport, other: Transport) -> None:
    if bench.half_close is None:
        raise AssertionError(
            "say as `half_close` how an end stops sending, or in `without` why it cannot"
        )
    await exchange(quiet, other, *NOTES)
    await trio.testing.wait_all_tasks_blocked()  # until nobody is writing any more
    await bench.half_close(quiet)
    await expect_end(other, "after the other end has stopped sending")
    await exchange(other, quiet, *NOTES)
    await close_in_time(other, "after a half-close")
    await expect_end(quiet, "after the second half was closed, too")


async def abandon(bench: Bench) -> None:
    """Abandoning a request, also one that is unknown, says True or False and breaks nothing."""
    async with bench.line() as line:
        for id_ in (1, "1"):
            told = cast("object", line.end.abandon(id_))
            expect(isinstance(told, bool), f"abandon gives {told!r}")
        await exchange(line.end, line.peer, *NOTES)


def _number(message: Message) -> int | None:
    params = message.params if isinstance(message, Notification) else None
    number = (params or {}).get("number")
    return number if isinstance(number, int) else None


def _whole(message: Message, size: int, what: str) -> int:
    number = _number(message)
    if number is None or message != note(number, size):
        raise AssertionError(f"{what} {brief(message)}")
    return number


CHECKS = (
    kinds,
    order,
    senders,
    huge,
    back_pressure,
    bounded_inbox,
    cancelled_send,
    cancelled_waiting_send,
    cancelled_receive,
    cancelled_pump,
    cancelled_close,
    cancelled_close_is_heard,
    close,
    close_ends_waiting,
    close_is_heard,
    peer_close,
    half_close,
    peer_half_close,
    abandon,
)
"""All of them, the simple ones first."""
