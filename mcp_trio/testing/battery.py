"""The battery: what every `Transport` has to do, whatever it is made of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio
import trio.testing

from mcp_trio.abc import Transport
from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import MCPError, TransportClosedError
from mcp_trio.jsonrpc.messages import Error, Message, Notification, Request, Result

Pair: TypeAlias = Callable[[], Awaitable[tuple[Transport, Transport]]]

SAMPLES: tuple[Message, ...] = (
    Request(1, "a/request", {"text": "line\nbreak \u2028 and \U0001f600", "big": 2**80}),
    Request("1", "a/request", None),
    Notification("a/notification", {}),
    Result(7, {"nested": {"list": [1, 2.5, None, True]}}),
    Error("x", -32000, "message", {"detail": 1}),
)


async def check_transport(make: Pair) -> None:
    """Run the battery.

    Args:
        make: makes a fresh connected pair each time it is called.

    Raises:
        AssertionError: naming what the transport does wrong.
    """
    for check in (
        _messages_arrive_whole_and_in_order,
        _many_senders_do_not_mix,
        _a_cancelled_receive_loses_nothing,
        _a_cancelled_send_is_whole_or_nothing,
        _closing_ends_the_other_side,
        _sending_after_close_is_refused,
        _closing_twice_is_harmless,
    ):
        left, right = await make()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(left.pump)
            nursery.start_soon(right.pump)
            with trio.fail_after(30):
                await check(left, right)
            await left.aclose()
            await right.aclose()
            nursery.cancel_scope.cancel()


def _expect(condition: object, what: str) -> None:
    if not condition:
        raise AssertionError(what)


async def _messages_arrive_whole_and_in_order(left: Transport, right: Transport) -> None:
    for sender, receiver in ((left, right), (right, left)):
        for message in SAMPLES:
            await sender.send(Envelope(message))
        for message in SAMPLES:
            got = (await receiver.receive()).message
            _expect(got == message, f"sent {message!r}, received {got!r}")


async def _many_senders_do_not_mix(left: Transport, right: Transport) -> None:
    wanted = 100

    async def one(number: int) -> None:
        await left.send(Envelope(Notification("n", {"number": number, "pad": "x" * 5000})))

    async with trio.open_nursery() as nursery:
        for number in range(wanted):
            nursery.start_soon(one, number)
        seen: set[object] = set()
        for _ in range(wanted):
            message = (await right.receive()).message
            _expect(isinstance(message, Notification), f"received {message!r}")
            if isinstance(message, Notification):
                seen.add((message.params or {}).get("number"))
    _expect(seen == set(range(wanted)), "messages of concurrent senders got lost or mixed")


async def _a_cancelled_receive_loses_nothing(left: Transport, right: Transport) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await right.receive()
    await left.send(Envelope(SAMPLES[0]))
    got = (await right.receive()).message
    _expect(got == SAMPLES[0], "a cancelled receive took a message with it")


async def _a_cancelled_send_is_whole_or_nothing(left: Transport, right: Transport) -> None:
    big = Notification("big", {"pad": "x" * 200_000})
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def cancel_when_stuck() -> None:
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()

            nursery.start_soon(cancel_when_stuck)
            # The other end does not read: sooner or later this waits, and is cancelled.
            for _ in range(500):
                await left.send(Envelope(big))
    _expect(scope.cancelled_caught, "a peer that does not read never makes the sender wait")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(left.send, Envelope(SAMPLES[2]))
        while (message := (await right.receive()).message) != SAMPLES[2]:
            _expect(message == big, "a cancelled send left half a message on the line")


async def _closing_ends_the_other_side(left: Transport, right: Transport) -> None:
    await left.send(Envelope(SAMPLES[0]))
    await left.aclose()
    _expect((await right.receive()).message == SAMPLES[0], "closing lost what was sent before")
    for _ in range(2):
        try:
            await right.receive()
        except trio.EndOfChannel:
            continue
        raise AssertionError("receive goes on after the other side has closed")


async def _sending_after_close_is_refused(left: Transport, right: Transport) -> None:  # noqa: ARG001 - one shape for all checks
    await left.aclose()
    try:
        await left.send(Envelope(SAMPLES[0]))
    except TransportClosedError:
        pass
    except MCPError as error:
        raise AssertionError(f"sending after close raises {error!r}") from error
    else:
        raise AssertionError("sending after close works")


async def _closing_twice_is_harmless(left: Transport, right: Transport) -> None:
    await left.aclose()
    await left.aclose()
    await right.aclose()
