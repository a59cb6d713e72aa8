"""Lines that go wrong on purpose: by a seed, or just when a test says so.

What *arrives* goes wrong; for faults in both directions both ends are wrapped. `FaultyTransport`
works on messages over any transport, `FaultyStream` on the bytes below one.
"""

from __future__ import annotations

import contextlib
import enum
import heapq
import math
import random
from collections import Counter, deque
from collections.abc import Generator, Mapping

import attrs
import trio
import trio.abc
import trio.lowlevel

from mcp_trio.abc import Transport
from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import ConfigurationError, TransportError
from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.messages import Message
from mcp_trio.wire import RequestId

CUT = "the line was cut on purpose"


class Fault(enum.Enum):
    """What may happen to a message, or to a piece of a byte stream."""

    DROP = "drop"
    """It is lost."""
    DELAY = "delay"
    """It is held back. Later messages overtake it; in a byte stream all wait behind it."""
    DUPLICATE = "duplicate"
    """It comes twice."""
    CORRUPT = "corrupt"
    """Some of its bytes are others."""
    CUT = "cut"
    """The line breaks before its end. Of a message nothing arrives, of bytes the first half."""


class Faults:
    """How often what happens: drawn from a seed, so that a run can be repeated.

    The same seed gives the same faults to the same sequence of messages.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        rates: Mapping[Fault, float] | None = None,
        longest: float = 1.0,
    ) -> None:
        """Make them.

        Args:
            seed: of the random numbers.
            rates: for each kind of fault its probability; together one at most. Without any,
                only what is injected happens.
            longest: seconds of the longest delay.

        Raises:
            ConfigurationError: the probabilities are none.
        """
        self._rates = dict(rates or {})
        if any(rate < 0 for rate in self._rates.values()) or sum(self._rates.values()) > 1:
            raise ConfigurationError(f"probabilities are 0 to 1, also together: {self._rates}")
        self._random = random.Random(seed)  # noqa: S311 - it has to be repeatable
        self._longest = longest
        self._injected: deque[Fault | None] = deque()
        self.happened: Counter[Fault] = Counter()
        """How often what has happened so far."""

    def inject(self, *faults: Fault | None) -> None:
        """Say what happens next, one after the other; None lets one pass. Then the seed rules."""
        self._injected.extend(faults)

    def next(self) -> Fault | None:
        """Decide about the next message or piece."""
        fault = self._injected.popleft() if self._injected else self._draw()
        if fault is not None:
            self.happened[fault] += 1
        return fault

    def _draw(self) -> Fault | None:
        drawn = self._random.random()
        for fault, rate in self._rates.items():
            drawn -= rate
            if drawn < 0:
                return fault
        return None

    def pause(self) -> float:
        """Seconds of a delay."""
        return self._random.uniform(0, self._longest)

    def corrupted(self, data: bytes) -> bytes:
        """Bytes of the same length, of which one to three differ."""
        spoilt = bytearray(data)
        for place in self._random.sample(range(len(data)), min(len(data), 3)):
            spoilt[place] ^= self._random.randrange(1, 256)
            if self._random.random() < 0.5:
                break
        return bytes(spoilt)


class _Breakable:
    """A line that can be cut, which ends whoever waits for it."""

    def __init__(self, faults: Faults | None) -> None:
        self.faults = faults or Faults()
        """What happens to what arrives."""
        self._is_cut = False
        self._waiting: set[trio.CancelScope] = set()

    def cut(self) -> None:
        """Break the line now: nothing arrives any more, and sending fails."""
        self._is_cut = True
        for scope in tuple(self._waiting):
            scope.cancel()

    @contextlib.contextmanager
    def _until_cut(self) -> Generator[None, None, None]:
        with trio.CancelScope() as scope:
            self._waiting.add(scope)
            if self._is_cut:
                scope.cancel()
            try:
                yield
            finally:
                self._waiting.discard(scope)


class FaultyTransport(_Breakable):
    """A transport whose messages arrive badly, wrapped around one that works.

    It passes the battery for as long as nothing goes wrong.
    """

    def __init__(self, inner: Transport, faults: Faults | None = None) -> None:
        """Wrap a transport, which is taken over.

        Args:
            inner: works.
            faults: what happens to the messages that arrive; without any, what is injected.
        """
        super().__init__(faults)
        self._inner = inner
        self._held: list[tuple[float, int, Envelope]] = []
        """What has arrived: when it is handed over, and in which order it came."""
        self._arrived = 0
        self._end: trio.EndOfChannel | None = None
        self._stalled: trio.Event | None = None

    def stall(self) -> None:
        """Let every sender wait from now on."""
        if self._stalled is None:
            self._stalled = trio.Event()

    def go_on(self) -> None:
        """Let the senders go on."""
        if self._stalled is not None:
            self._stalled.set()
            self._stalled = None

    async def send(self, envelope: Envelope) -> None:
        """Send as the wrapped transport does, or wait, or fail, as told."""
        with self._until_cut():
            if self._stalled is not None:
                await self._stalled.wait()
            await self._inner.send(envelope)
            return
        raise TransportError(CUT)

    async def receive(self) -> Envelope:
        """Receive what the faults leave over."""
        await trio.lowlevel.checkpoint()
        while not self._is_cut:
            due = self._held[0][0] if self._held else math.inf
            if due <= trio.current_time():
                return heapq.heappop(self._held)[2]
            if self._end is not None and not self._held:
                raise trio.EndOfChannel(*self._end.args) from self._end
            with self._until_cut(), trio.move_on_at(due):
                await self._read()
        raise trio.EndOfChannel(CUT)

    async def _read(self) -> None:
        if self._end is not None:
            await trio.sleep_forever()  # until the next one is due
        try:
            envelope = await self._inner.receive()
        except trio.EndOfChannel as end:
            self._end = end
            return
        self._take(envelope)

    def _take(self, envelope: Envelope) -> None:
        match self.faults.next():
            case Fault.DROP:
                pass
            case Fault.DELAY:
                self._hold(envelope, self.faults.pause())
            case Fault.DUPLICATE:
                self._hold(envelope)
                self._hold(envelope)
            case Fault.CORRUPT:
                self._hold(attrs.evolve(envelope, message=self._corrupted(envelope.message)))
            case Fault.CUT:
                self.cut()
            case None:
                self._hold(envelope)

    def _corrupted(self, message: Message) -> Message:
        try:
            data = codec.encode(message)
        except codec.EncodeError:
            return message  # it was no message before
        return codec.decode(self.faults.corrupted(data))

    def _hold(self, envelope: Envelope, pause: float = 0.0) -> None:
        self._arrived += 1
        heapq.heappush(self._held, (trio.current_time() + pause, self._arrived, envelope))

    def abandon(self, request_id: RequestId) -> bool:
        """Pass it on."""
        return self._inner.abandon(request_id)

    async def pump(self) -> None:
        """Pass it on."""
        await self._inner.pump()

    async def aclose(self) -> None:
        """Close the wrapped transport; senders that were stalled go on, which is in vain."""
        self.go_on()
        await self._inner.aclose()


class FaultyStream(_Breakable, trio.abc.HalfCloseableStream):
    """A byte stream whose bytes arrive badly, to be put below a transport.

    A fault befalls what one call of `receive_some` of the wrapped stream gives.
    """

    def __init__(self, inner: trio.abc.Stream, faults: Faults | None = None) -> None:
        """Wrap a stream, which is taken over.

        Args:
            inner: works. Half-closing needs one that can.
            faults: what happens to the bytes that arrive; without any, what is injected.
        """
        super().__init__(faults)
        self._inner = inner
        self._buffer = b""
        self._due = -math.inf
        """When what is in the buffer may be handed over."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Receive what the faults leave over.

        Raises:
            trio.BrokenResourceError: the line was cut.
        """
        await trio.lowlevel.checkpoint()
        while self._buffer or not self._is_cut:
            if self._buffer and self._due <= trio.current_time():
                size = len(self._buffer) if max_bytes is None else max_bytes
                data, self._buffer = self._buffer[:size], self._buffer[size:]
                return data
            with self._until_cut():
                if self._buffer:
                    await trio.sleep_until(self._due)
                elif not self._take(await self._inner.receive_some(max_bytes)):
                    return b""
        raise trio.BrokenResourceError(CUT)

    def _take(self, data: bytes | bytearray) -> bool:
        """Do to bytes what is to be done; False at the end of the stream."""
        piece = bytes(data)
        if not piece:
            return False
        match self.faults.next():
            case Fault.DROP:
                pass
            case Fault.DELAY:
                self._buffer, self._due = piece, trio.current_time() + self.faults.pause()
            case Fault.DUPLICATE:
                self._buffer = piece + piece
            case Fault.CORRUPT:
                self._buffer = self.faults.corrupted(piece)
            case Fault.CUT:
                self._buffer = piece[: len(piece) // 2]
                self.cut()
            case None:
                self._buffer = piece
        return True

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send as the wrapped stream does.

        Raises:
            trio.BrokenResourceError: the line was cut.
        """
        with self._until_cut():
            await self._inner.send_all(data)
            return
        raise trio.BrokenResourceError(CUT)

    async def wait_send_all_might_not_block(self) -> None:
        """Pass it on."""
        await self._inner.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        """Pass it on."""
        if not isinstance(self._inner, trio.abc.HalfCloseableStream):
            raise ConfigurationError("the wrapped stream cannot be closed by half")
        await self._inner.send_eof()

    async def aclose(self) -> None:
        """Close the wrapped stream."""
        await self._inner.aclose()
