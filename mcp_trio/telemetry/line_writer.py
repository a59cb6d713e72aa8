"""Lines on their way to a file or a stream: taken at once, written by a thread, never in the way.

Whoever has a line hands it over and goes on; a slow disk, a full one and a pipe that nobody reads
hold up nothing but the lines. What waits is bounded, what does not fit is counted, and both are
told. What the lines say is decided elsewhere.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import attrs
import trio
import trio.lowlevel

from mcp_trio.errors import ConfigurationError

logger = logging.getLogger("mcp_trio.telemetry")

MAX_LINES = 20_000
"""Lines that wait; further ones are dropped."""
MAX_BYTES = 32 * 1024 * 1024
"""Bytes of the lines that wait."""
BATCH_BYTES = 256 * 1024
"""What is written at once."""
MODE = 0o640
"""Of a file that is made."""
FLUSH_TIMEOUT = 5.0
"""Seconds that what waits at the end may take."""
PAUSES = (1.0, 2.0, 5.0, 15.0, 30.0)
"""Seconds between attempts while nothing can be written, the last one for ever."""

STREAMS = {"stderr": 2, "stdout": 1}
"""Places that are no files, by the name that settings have for them."""


class LineWriter:
    """Writes lines to one place, in order.

    Outside of `running` a line is written by whoever puts it, so that nothing is lost before the
    service is up and after it has gone.
    """

    def __init__(
        self,
        place: Path | int,
        name: str,
        *,
        report: Callable[[str], object] | None = None,
    ) -> None:
        """Open the place.

        Args:
            place: a file, which is appended to, or a descriptor, which is not closed.
            name: what it is called in reports.
            report: takes a report of trouble; by default a warning is logged.

        Raises:
            ConfigurationError: the file cannot be opened.
        """
        self.name = name
        self.dropped = 0
        """Lines lost so far, because too many waited or the end came while they could not be
        written."""
        self.trouble: str | None = None
        """Why nothing can be written just now."""
        self._path = place if isinstance(place, Path) else None
        self._fd = place if isinstance(place, int) else _open(place)
        self._report = report or _warn
        self._lock = threading.Lock()
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._put = self._done = 0  # lines taken, and of these lines written
        self._told = 0  # of the dropped ones
        self._token: trio.lowlevel.TrioToken | None = None  # while it runs
        self._wake = trio.Event()
        self._written = trio.lowlevel.ParkingLot()
        self._attempts = 0  # in vain, so far
        self._ending = self._reopen = self._stuck = False

    # -- taking lines --------------------------------------------------------------

    def put(self, line: bytes) -> bool:
        """Take a line with its end. From any thread; never waits while `running`.

        Returns:
            Whether it was taken: False if it is lost.
        """
        with self._lock:
            token = self._token
            if token is None:
                return self._write_directly(line)
            if len(self._lines) >= MAX_LINES or self._size + len(line) > MAX_BYTES:
                self.dropped += 1
                return False
            self._lines.append(line)
            self._size += len(line)
            self._put += 1
            first = len(self._lines) == 1
        if first:
            self._nudge(token)
        return True

    async def put_and_wait(self, line: bytes, patience: float) -> bool:
        """Take a line, and wait until it is written.

        Args:
            line: with its end.
            patience: seconds to wait.

        Returns:
            Whether it is written. If not it may still be, later.
        """
        if not self.put(line):
            await trio.lowlevel.checkpoint()
            return False
        mine = self._put
        with trio.move_on_after(patience):
            while self._done < mine and self._token is not None:
                await self._written.park()
        return self._done >= mine

    def reopen(self) -> None:
        """Open the file anew before the next line, as after it was renamed. A stream stays."""
        self._reopen = self._path is not None
        self._wake.set()

    def _nudge(self, token: trio.lowlevel.TrioToken) -> None:
        try:
            here = trio.lowlevel.current_trio_token() is token
        except RuntimeError:
            here = False
        if here:
            self._wake.set()
        else:
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(self._wake_up)

    def _wake_up(self) -> None:
        self._wake.set()

    def _write_directly(self, line: bytes) -> bool:
        done = False
        if not self._stuck:
            sent, _ = _write(self._fd, line)
            done = sent == len(line)
        self.dropped += not done
        self._put += done
        self._done += done
        return done

    # -- writing them --------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Write in the background while the block runs; at its end what waits is written.

        That may take `FLUSH_TIMEOUT`; what cannot be written by then is lost and reported.
        Cancelling does not cut it short.
        """
        # Shielded, so that lines of what is cancelled are written, too; the block's end bounds it.
        guard = trio.CancelScope(shield=True)
        async with trio.open_nursery() as nursery:
            self._token = trio.lowlevel.current_trio_token()
            self._ending = False
            self._put = self._done  # what an earlier run has lost will not be written
            nursery.start_soon(self._run, guard)
            try:
                yield
            finally:
                self._ending = True
                guard.deadline = trio.current_time() + FLUSH_TIMEOUT
                self._wake.set()

    def close(self) -> None:
        """Close the file; nothing can be put any more. For who is done before the process is."""
        self._stuck = True
        if self._path is not None:
            os.close(self._fd)

    async def _run(self, guard: trio.CancelScope) -> None:
        batch = _Batch()
        try:
            with guard:
                while await self._step(batch):
                    pass
        finally:
            with self._lock:
                self._token = None
                self._stuck = guard.cancelled_caught
                left = len(self._lines) + batch.lines
                self._lines.clear()
                self._size = 0
            self.dropped += left
            self._written.unpark_all()
            self._tell_losses()

    async def _step(self, batch: _Batch) -> bool:
        """Write once, or wait for a reason to; return whether to go on."""
        if self._reopen:
            self._reopen = False
            await trio.to_thread.run_sync(self._open_again, limiter=_threads())
            batch.begin_line_again()
        if batch.left or self._take(batch):
            write = trio.to_thread.run_sync
            sent, error = await write(
                _write, self._fd, batch.left, abandon_on_cancel=True, limiter=_threads()
            )
            batch.position += sent
            if error is not None:
                return await self._wait_out(error)
            self._done += batch.lines
            batch.clear()
            self._written.unpark_all()
            if self.trouble is not None:
                self.trouble, self._attempts = None, 0
                self._report(f"{self.name} is written again")
            self._tell_losses()
            return True
        if self._ending:
            return False
        await self._wait()
        return True

    async def _wait_out(self, error: OSError) -> bool:
        """Wait before another attempt, unless this was the last one."""
        if self.trouble is None:
            self._report(f"{self.name} cannot be written: {error.strerror}")
        self.trouble = error.strerror or "it cannot be written"
        self._written.unpark_all()
        pause = PAUSES[min(self._attempts, len(PAUSES) - 1)]
        self._attempts += 1
        if not self._ending:
            with trio.move_on_after(pause):
                await self._wait()
            return True
        return False

    async def _wait(self) -> None:
        await self._wake.wait()
        self._wake = trio.Event()

    def _take(self, batch: _Batch) -> bool:
        """Move lines that wait into a batch; return whether there were any."""
        taken: list[bytes] = []
        size = 0
        with self._lock:
            while self._lines and size < BATCH_BYTES:
                line = self._lines.popleft()
                taken.append(line)
                size += len(line)
            self._size -= size
        batch.data, batch.position, batch.lines = b"".join(taken), 0, len(taken)
        return bool(taken)

    def _open_again(self) -> None:
        if self._path is None:
            return
        try:
            new = _open(self._path)
        except ConfigurationError as error:
            self._report(f"{error}; it goes on in the file that was open")
            return
        os.close(self._fd)
        self._fd = new

    def _tell_losses(self) -> None:
        lost = self.dropped - self._told
        if lost:
            self._told = self.dropped
            self._report(f"{self.name} has lost {lost} lines")


@attrs.define
class _Batch:
    """Whole lines, some of which may be written already."""

    data: bytes = b""
    position: int = 0
    lines: int = 0

    @property
    def left(self) -> memoryview:
        """What is not written."""
        return memoryview(self.data)[self.position :]

    def begin_line_again(self) -> None:
        """Go back to the beginning of a line of which only a part is written."""
        self.position = self.data.rfind(b"\n", 0, self.position) + 1

    def clear(self) -> None:
        """Forget everything."""
        self.data, self.position, self.lines = b"", 0, 0


def _warn(text: str) -> None:
    logger.warning("%s", text)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error


def _write(fd: int, data: bytes | memoryview) -> tuple[int, OSError | None]:
    """Write as much as can be; give the number of bytes, and what was in the way of the rest."""
    view = memoryview(data)
    sent = 0
    try:
        while sent < len(view):
            sent += os.write(fd, view[sent:])
    except OSError as error:
        return sent, error
    return sent, None


def _threads() -> trio.CapacityLimiter:
    """Of its own: tools that occupy all of Trio's usual threads must not stop the log."""
    return trio.CapacityLimiter(1)
