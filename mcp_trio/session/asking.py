"""How a handler's question reaches the client: a live request, or the end of the round (X1).

A running request has one `Asking`, chosen by its era; handlers see it only through
`Context`. What is remembered between rounds, and how, is written in `eras.rounds`.

When a round ends. A question without an answer cannot be answered in this run, so the
handler has to be ended. Its other tasks may be about to ask, too, and shall do so in the
same round. A task asks "at the same time" if it gets there within `QUIET_TURNS` turns of
the scheduler in which no new question came up and no `once` was at work; tasks that were
started together and ask at once need one. A turn is one `checkpoint`, so this neither
takes a time nor depends on the machine. What a task waits for from outside (an upstream, a
timer) is not waited for: it is cancelled, done again in the next run, and its question
costs another round. A side effect in `once` is always let finish first.
"""

from __future__ import annotations

import contextvars
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

import trio
import trio.lowlevel

from mcp_trio.eras.rounds import Ask, Round
from mcp_trio.errors import MCPError, RequestCancelledError
from mcp_trio.jsonrpc import codec
from mcp_trio.wire.basic import JSONObject


class _RoundOverError(RequestCancelledError):
    """Ends a handler where the cancellation of its round does not reach."""

    def __init__(self) -> None:
        super().__init__("the request was answered with a question")


_INSIDE: contextvars.ContextVar[frozenset[str]] = contextvars.ContextVar(
    "mcp_trio.once", default=frozenset()
)
"""Keys of the `once` calls that this task is inside of."""
QUIET_TURNS = 8
"""Turns of the scheduler without a new question after which a round ends."""


class AskingLine(Protocol):
    """The part of `context.Exchange` that asking needs."""

    async def ask(self, method: str, params: JSONObject) -> JSONObject:
        """Send a request that belongs to the running one, and wait for its result."""
        ...

    def bound_cleanup(self) -> None:
        """Start the clock for the cleanup of a handler that has just been cancelled."""
        ...


class Asking:
    """What both eras share: side effects that happen one time, and the end of it all.

    By itself it is the one of a request that may not ask (R1), or whose client declares nothing
    that could be asked for.
    """

    __slots__ = ("_keys", "_over", "_running", "_values")

    def __init__(self) -> None:
        # Few requests ask, and every one has this: what can be made later is.
        self._values: JSONObject = {}
        self._running: dict[str, trio.Event] = {}
        self._keys: set[str] | None = None
        self._over = False

    def take(self, key: str) -> None:
        """Note the key that a handler gave a question.

        Raises:
            ValueError: it has given it to another one in this run. Two tasks that use one key
                get there in no order that could be repeated, so answers would be mixed up.
        """
        self._keys = set() if self._keys is None else self._keys
        if key in self._keys:
            raise ValueError(f"the key {key!r} names two questions of this call")
        self._keys.add(key)

    @property
    def results(self) -> JSONObject:
        """Of side effects, by key; in the stateless era those of earlier rounds too."""
        return self._values

    async def ask(self, ask: Ask) -> tuple[str, object]:
        """Put a question; give the place of the answer and the answer, unchecked.

        Raises:
            RequestCancelledError: the request is over.
            RemoteError: the client answered with an error.
        """
        await trio.lowlevel.checkpoint()
        self._check_open()
        raise MCPError(f"{ask.method} cannot be asked while this request runs")

    async def once(self, key: str, function: Callable[..., object], *args: object) -> object:
        """Run a function the first time, and give what it returned then ever after."""
        while (running := self._running.get(key)) is not None:
            await running.wait()
        if key in self.results:
            await trio.lowlevel.checkpoint()
            return self.results[key]
        done = self._running[key] = trio.Event()
        around = _INSIDE.set(_INSIDE.get() | {key})
        try:
            made = function(*args)
            if inspect.isawaitable(made):
                made = await cast("Awaitable[object]", made)
            # Written and read, so that the first run sees what every later one will.
            value = self.results[key] = codec.decode_value(codec.encode_value(made))
        finally:
            _INSIDE.reset(around)
            del self._running[key]
            done.set()
        return value

    @property
    def over(self) -> bool:
        """True once the handler has ended, whatever tasks it may have left elsewhere."""
        return self._over

    def close(self) -> None:
        """Say that the request is over: questions that still wait are given up. Idempotent."""
        self._over = True

    def _check_open(self) -> None:
        if self._over:
            raise RequestCancelledError("the request that asks is over")


class LiveAsking(Asking):
    """The handshake era: a request on the line of the running one (F9, X2)."""

    __slots__ = ("_line", "_open")

    def __init__(self, line: AskingLine) -> None:
        super().__init__()
        self._line = line
        self._open: set[trio.CancelScope] = set()

    async def ask(self, ask: Ask) -> tuple[str, object]:
        """Send the request and wait for its result; leaving early tells the client."""
        self._check_open()
        # A question from a thread, or from a task that is none of the handler's, is in no
        # scope of the request; this one ends it all the same.
        with trio.CancelScope() as scope:
            self._open.add(scope)
            try:
                return "result", await self._line.ask(ask.method, ask.params)
            finally:
                self._open.discard(scope)
        raise RequestCancelledError("the request that asks is over")

    def close(self) -> None:
        """Give up what is still asked."""
        super().close()
        for scope in tuple(self._open):
            scope.cancel()


class RoundAsking(Asking):
    """The stateless era: answers from earlier rounds, or the end of this one (R2)."""

    __slots__ = (
        "_arrivals",
        "_book",
        "_caller",
        "_ended",
        "_line",
        "_open",
        "_scope",
        "_waiting_inside",
    )

    def __init__(self, line: AskingLine, open_book: Callable[[], Round]) -> None:
        """Prepare a run.

        Args:
            line: of the request.
            open_book: opens the books of this run; called when they are first needed.
        """
        super().__init__()
        self._line = line
        self._open = open_book
        self._book: Round | None = None
        self._caller: tuple[str | None] | None = None
        """For whom the handler runs, once the layers around it have settled that."""
        self._scope = trio.CancelScope()
        self._ended: trio.Event | None = None
        """Set at the end; exists while somebody asks."""
        self._arrivals = 0
        self._waiting_inside: frozenset[str] = frozenset()
        """Keys of side effects that have asked something themselves."""

    @property
    def book(self) -> Round:
        """What is answered and what has to be asked.

        Raises:
            InvalidParamsError: the state that the request brought is not valid.
        """
        if self._book is None:
            book = self._open()
            if self._caller is not None:
                book.claim(*self._caller)
            self._book = book
        return self._book

    def settle(self, subject: str | None) -> None:
        """Say for whom the handler runs, by the subject of the principal; None for nobody.

        Raises:
            InvalidParamsError: the state that the request brought is somebody else's. If no
                layer has asked yet, the first use of the books raises it.
        """
        self._caller = (subject,)
        if self._book is not None:
            self._book.claim(subject)

    @property
    def results(self) -> JSONObject:
        """Of side effects, by key; those of earlier rounds too."""
        return self.book.memory.once

    async def run(self, handler: Callable[[], Awaitable[object]]) -> object:
        """Run the handler; its result, or the questions it could not go on without.

        A handler that comes to a result although its round has ended keeps that result.
        """
        try:
            with self._scope:
                return await handler()
        except Exception as error:
            if not (self._scope.cancel_called and _is_the_end(error)):
                raise
        return self.book.question(time.time())

    async def ask(self, ask: Ask) -> tuple[str, object]:
        """Give the recorded answer, or end the round."""
        self._check_open()
        key, answer = self.book.enter(ask)
        if answer is not None:
            await trio.lowlevel.checkpoint()
            return f"inputResponses.{key}", answer
        self._arrivals += 1
        self._waiting_inside |= _INSIDE.get()
        if self._ended is None:
            self._ended = trio.Event()
        try:
            await self._quiet()
            self._end()
            await self._ended.wait()
            await trio.lowlevel.checkpoint()
        finally:
            if not self._scope.cancel_called:
                self.book.withdraw(key)
        # Only where the round's scope does not reach: in a shield, or for a thread.
        raise _RoundOverError

    async def _quiet(self) -> None:
        """Wait until nobody else of the handler is about to ask."""
        seen, quiet = self._arrivals, 0
        while quiet < QUIET_TURNS and not self._over:
            for key, running in tuple(self._running.items()):
                # One that asks itself waits for this round to end, and is run again in the next.
                if key not in self._waiting_inside:
                    await running.wait()
                    quiet = 0
            await trio.lowlevel.checkpoint()
            quiet = quiet + 1 if seen == self._arrivals else 0
            seen = self._arrivals

    def _end(self) -> None:
        if not self._over:
            self.close()
            self._scope.cancel()
            self._line.bound_cleanup()

    def close(self) -> None:
        """Say that the round is over."""
        super().close()
        if self._ended is not None:
            self._ended.set()


def _is_the_end(error: BaseException) -> bool:
    """Tell whether nothing but the end of the round is in an exception."""
    inner: Any = getattr(error, "exceptions", None)
    return isinstance(error, _RoundOverError) if inner is None else all(map(_is_the_end, inner))
