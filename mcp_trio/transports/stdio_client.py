"""A program whose standard streams are the line: starting it, and the certain end of it.

Only processes are dealt with here; the messages are those of `ProgramLine`. A program has a
process group of its own, and when it is left nothing of that group is left: its input is
closed, then it is given time, then SIGTERM, time again, and SIGKILL. A child of the program
that has made itself a session of its own, as a daemon does, is out of reach.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, cast

import attrs
import trio
import trio.lowlevel

from mcp_trio.errors import ConfigurationError, TransportError
from mcp_trio.framing.lines import LineDecoder, Oversized
from mcp_trio.transports.lines import CHUNK, MAX_LINE, ProgramLine

logger = logging.getLogger("mcp_trio.transports")

INHERITED = (
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
)
"""Variables of our own environment that a program gets. No other: they may hold secrets."""
KILL_GRACE = 5.0
"""Seconds for the kernel to end what was sent SIGKILL."""
EXIT_PATIENCE = 1.0
"""Seconds between the end of a program's output and its exit, and the other way round."""
KEPT_LINES = 20
MAX_STDERR_LINE = 64 * 1024
TOLD_LINES = 5
"""Lines of standard error that an error quotes, the last ones."""
TOLD_LENGTH = 500

Stderr: TypeAlias = 'Literal["pass", "drop"] | Callable[[str], object]'


def _arguments(given: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Take a command line.

    Raises:
        ConfigurationError: it is no list of text, or empty.
    """
    what = "a command is a list of text, the program first"
    if isinstance(given, str | bytes) or not given:
        raise ConfigurationError(f"{what}: {given!r:.100}")
    try:
        arguments = tuple(os.fspath(item) for item in given)
    except TypeError as error:
        raise ConfigurationError(f"{what}: {given!r:.100}") from error
    if any("\0" in item for item in arguments):
        raise ConfigurationError(f"{what}, without null characters")
    return arguments


@attrs.frozen
class Command:
    """A program that serves on its standard streams, and how it is run."""

    arguments: tuple[str, ...] = attrs.field(converter=_arguments)
    """The program and its arguments; no shell reads them."""
    env: Mapping[str, str] = attrs.field(factory=dict[str, str], kw_only=True, repr=False)
    """Variables beside the inherited ones: home, path, user, shell, language, time zone. For
    all of ours give `os.environ`."""
    cwd: str | Path | None = attrs.field(default=None, kw_only=True)
    """Working directory; None for ours."""
    stderr: Stderr = attrs.field(default="pass", kw_only=True)
    """What becomes of its standard error: `"pass"` prints it on ours, `"drop"` does nothing, a
    function is called with each line. It must not block; what it raises is logged."""
    on_noise: Callable[[str], object] | None = attrs.field(default=None, kw_only=True)
    """Called with each line on its standard output that is no message."""
    restarts: int = attrs.field(default=0, kw_only=True)
    """Times that it is started again after it has died, since it last ran for a minute."""
    grace: float = attrs.field(default=2.0, kw_only=True)
    """Seconds to end by itself once its input is closed, and again after SIGTERM."""
    max_line: int = attrs.field(default=MAX_LINE, kw_only=True)
    """Bytes of its longest message."""


class Program:
    """A running program. See `running`."""

    def __init__(self, process: trio.Process, command: Command) -> None:
        self._process = process
        self._command = command
        self._pidfd = os.pidfd_open(process.pid)
        self._exited = trio.Event()
        self._quiet = trio.Event()
        """Set when standard error has ended."""
        # Until the program has ended: what it says on its way out is heard.
        self._hearing = trio.CancelScope(shield=True)
        self._printing = trio.CapacityLimiter(1)
        self._last: deque[str] = deque(maxlen=KEPT_LINES)
        self.pid = process.pid
        """Of the program, and of its process group."""
        self.stdin = cast("trio.abc.SendStream", process.stdin)
        self.stdout = cast("trio.abc.ReceiveStream", process.stdout)
        self._stderr = cast("trio.abc.ReceiveStream", process.stderr)

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The last lines on standard error, `KEPT_LINES` at most."""
        return tuple(self._last)

    # -- what it says ----------------------------------------------------------------

    async def fate(self) -> str:
        """Say how the program ended, once it has closed its output; bounded in time."""
        with trio.move_on_after(EXIT_PATIENCE):
            await self._exited.wait()
            await self._quiet.wait()
        name = Path(self._command.arguments[0]).name
        text = f"{name} {self._ending()}"
        told = [line[:TOLD_LENGTH] for line in self.last_lines[-TOLD_LINES:]]
        return "\n".join([f"{text}; it said:" if told else text, *told])

    def _ending(self) -> str:
        # Without reaping it: its number has to stay its own, see `_stop`.
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended is None:
            return "has closed its output"
        if ended.si_code == os.CLD_EXITED:
            return f"has ended with exit status {ended.si_status}"
        what = signal.strsignal(ended.si_status) or "unknown"
        return f"was ended by signal {ended.si_status} ({what})"

    async def hear(self) -> None:
        """Take what it says on standard error, and notice its end. Runs until `stop` has."""
        with self._hearing:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read_stderr)
                nursery.start_soon(self._watch)

    async def _read_stderr(self) -> None:
        decoder = LineDecoder(MAX_STDERR_LINE)
        try:
            while data := await self._stderr.receive_some(CHUNK):
                await self._take(data, decoder)
            if (rest := decoder.end()) is not None:
                self._note(rest)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._quiet.set()

    async def _take(self, data: bytes | bytearray, decoder: LineDecoder) -> None:
        for line in decoder.receive(data):
            self._note(line)
        if self._command.stderr == "pass":
            # A terminal that is stopped must not stop us: a thread writes.
            await trio.to_thread.run_sync(
                _print, bytes(data), abandon_on_cancel=True, limiter=self._printing
            )

    def _note(self, line: bytes | Oversized) -> None:
        if not isinstance(line, bytes):
            return
        text = line.decode(errors="replace")
        self._last.append(text)
        if callable(self._command.stderr):
            try:
                self._command.stderr(text)
            except Exception:
                logger.exception("the callback for standard error failed")

    async def wait(self) -> None:
        """Wait until the program has ended. Some of its children may not have."""
        await self._exited.wait()

    # -- its end ---------------------------------------------------------------------

    async def _watch(self) -> None:
        await trio.lowlevel.wait_readable(self._pidfd)
        self._exited.set()
        # What it wrote last is still in the pipe. A child of its own may hold that open, which
        # is no reason to wait for more.
        await trio.sleep(EXIT_PATIENCE)
        await self.stdout.aclose()

    async def stop(self) -> None:
        """End the program and its process group, in bounded time, also when cancelled."""
        with trio.CancelScope(shield=True):
            await self._stop()
            with trio.move_on_after(EXIT_PATIENCE):
                await self._quiet.wait()
            self._hearing.cancel()
            for stream in (self.stdout, self._stderr):
                await stream.aclose()
            os.close(self._pidfd)

    async def _stop(self) -> None:
        await self.stdin.aclose()
        grace = self._command.grace
        for patience, sign in ((grace, signal.SIGTERM), (grace, signal.SIGKILL)):
            with trio.move_on_after(patience):
                await self._group_is_gone()
                break
            # The program is not reaped yet, so this cannot be somebody else's group by now.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, sign)
        with trio.move_on_after(KILL_GRACE) as limit:
            await self._group_is_gone()
            await self._process.wait()
        if limit.cancelled_caught:
            logger.error("process %d does not end", self.pid)

    async def _group_is_gone(self) -> None:
        await self._exited.wait()
        while (descriptor := _open_one_of(self.pid)) is not None:
            try:
                await trio.lowlevel.wait_readable(descriptor)
            finally:
                os.close(descriptor)


def _print(data: bytes) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # there may be none
        sys.stderr.write(data.decode(errors="replace"))
        sys.stderr.flush()


def _open_one_of(group: int) -> int | None:
    """Open a descriptor that tells the end of a process of this group; None if none lives."""
    for pid in _living(group):
        with contextlib.suppress(ProcessLookupError):
            return os.pidfd_open(pid)
    return None


def _living(group: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            # The name, in parentheses, may hold anything: state, parent and group follow it.
            state, _, its_group = stat.rpartition(")")[2].split()[:3]
            if its_group == str(group) and state not in {"Z", "X"}:
                yield int(entry.name)


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program: what is inherited, and what was given."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {**inherited, **given}


async def _start(command: Command) -> trio.Process:
    try:
        return await trio.lowlevel.open_process(
            command.arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(command.env),
            cwd=command.cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise TransportError(f"cannot start {command.arguments[0]}: {error}") from error


@contextlib.asynccontextmanager
async def running(command: Command) -> AsyncGenerator[Program, None]:
    """Run a program while the block runs; afterwards nothing of it is left, also if cancelled.

    Raises:
        TransportError: it cannot be started.
    """
    program = Program(await _start(command), command)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(program.hear)
        try:
            yield program
        finally:
            await program.stop()


@contextlib.asynccontextmanager
async def program_line(command: Command) -> AsyncGenerator[ProgramLine, None]:
    """Run a program and give the line to it."""
    async with running(command) as program:
        yield ProgramLine(
            program.stdout,
            program.stdin,
            fate=program.fate,
            on_noise=command.on_noise,
            max_line=command.max_line,
        )
