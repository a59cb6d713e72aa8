"""What waits to be written to a peer: bounded, whole messages only, one writer.

The piece that byte transports share. It knows no stream: who pumps it says how to write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio
import trio.lowlevel

from mcp_trio.errors import TransportClosedError, TransportError

MAX_BUFFER = 1024 * 1024
FLUSH_TIMEOUT = 2.0
"""Seconds that closing waits for a peer to read what was sent."""

Write: TypeAlias = Callable[[list[bytes]], Awaitable[None]]
"""Writes messages out, in order. Raises when the peer is gone."""


class Outbox:
    """Messages on their way out, each of them written whole or never.

    `put` only queues, so a sender that is cancelled has sent all of its message or none;
    one task runs `pump` and writes. After `close` nothing more is taken and the pump ends
    once it has written what is there.
    """

    def __init__(self, max_buffer: int = MAX_BUFFER) -> None:
        """Make one.

        Args:
            max_buffer: bytes that may wait for a peer that reads slowly; then senders wait.
        """
        self._max_buffer = max_buffer
        self._items: deque[bytes] = deque()
        self._waiting = 0
        """Bytes queued or being written."""
        self._room = trio.lowlevel.ParkingLot()
        self._work = trio.lowlevel.ParkingLot()
        self._pumped: trio.Event | None = None
        """Set when the pump has ended; None while there is none, and nothing half written."""
        self._broken: BaseException | None = None
        self.closed = False
        """True once `close` was called."""

    @property
    def full(self) -> bool:
        """Whether senders have to wait."""
        return self._waiting >= self._max_buffer

    @property
    def empty(self) -> bool:
        """Whether nothing waits and nothing is being written."""
        return not self._waiting

    @property
    def broken(self) -> bool:
        """Whether writing has failed; nothing reaches the peer any more."""
        return self._broken is not None

    async def put(self, data: bytes) -> None:
        """Queue one message; waits while too much is queued already.

        Raises:
            TransportClosedError: `close` was called.
            TransportError: writing has failed.
        """
        await trio.lowlevel.checkpoint()
        while self.full and not self.closed and self._broken is None:
            await self._room.park()
        if self.closed:
            raise TransportClosedError("the line is closed")
        if self._broken is not None:
            raise TransportError("the peer is gone") from self._broken
        self._append(data)

    def offer(self, data: bytes, *, last: bool = False) -> bool:
        """Queue a message if there is room for it now; True if so.

        Args:
            data: the message.
            last: it is the farewell, for which there is always room.
        """
        if (self.full and not last) or self.closed or self._broken is not None:
            return False
        self._append(data)
        return True

    def _append(self, data: bytes) -> None:
        self._items.append(data)
        self._waiting += len(data)
        self._work.unpark_all()

    def fail(self, reason: BaseException) -> None:
        """Give up: nothing more is written, and senders are told why."""
        if self._broken is None:
            self._broken = reason
        self._items.clear()
        self._room.unpark_all()
        self._work.unpark_all()

    async def pump(self, write: Write) -> None:
        """Write what is queued until the box is closed and empty, or writing fails.

        Being cancelled between two writes loses nothing: `flush` still writes the rest.
        """
        pumped = self._pumped = trio.Event()
        writing = False
        try:
            while self._broken is None and (self._items or not self.closed):
                if not self._items:
                    await self._work.park()
                    continue
                await trio.lowlevel.checkpoint_if_cancelled()  # while they are still here
                batch = list(self._items)
                self._items.clear()
                writing = True
                await write(batch)
                writing = False
                self._waiting -= sum(map(len, batch))
                self._room.unpark_all()
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            self.fail(error)
        finally:
            self._room.unpark_all()
            pumped.set()
            if self._pumped is pumped and not writing:
                self._pumped = None

    def close(self) -> None:
        """Take nothing more; what is queued is still written."""
        self.closed = True
        self._work.unpark_all()
        self._room.unpark_all()

    async def flush(self, write: Write, timeout: float = FLUSH_TIMEOUT) -> bool:  # noqa: ASYNC109 - giving up is no error here
        """Close the box and wait until the peer has taken what was queued.

        Args:
            write: used when no pump runs.
            timeout: seconds.

        Returns:
            True when everything was written.
        """
        self.close()
        with trio.move_on_after(timeout) as limit:
            if self._pumped is None:
                await self.pump(write)
            else:
                await self._pumped.wait()
        return not limit.cancelled_caught and self._broken is None and not self._items
