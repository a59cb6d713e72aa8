"""Programs that serve at a URL: start them, wait until they say where, stop them.

Shared by the benchmarks, the interop tests and the conformance run. A program under this care
prints its URL on standard error once it accepts connections. Nothing here looks inside it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs
import trio

ROOT = Path(__file__).resolve().parent.parent
"""The checkout."""
CACHE = ROOT / ".cache"
"""What the checks install for themselves."""
START_TIMEOUT = 30.0
"""Seconds a program may take until it says where it serves."""
STOP_TIMEOUT = 5.0
"""Seconds a program may take to stop after SIGTERM; then it is killed."""

_URL = re.compile(r"(?:https?|tcp|unix)://[^\s'\"),;]+")


class ProgramError(Exception):
    """A program that did not start, or ended while it was needed; holds what it said last."""

    @property
    def reason(self) -> str:
        """The last line of it: of a traceback, the error."""
        return str(self).strip().rpartition("\n")[2]


@attrs.define(eq=False)
class Program:
    """A running program."""

    process: trio.Process
    url: str = ""
    """Where it serves."""
    said: deque[str] = attrs.field(factory=lambda: deque[str](maxlen=200))
    """The last lines of its standard error."""
    _news: trio.Condition = attrs.field(factory=trio.Condition)
    _ended: bool = False

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    async def wait_for(self, text: str, *, within: float = START_TIMEOUT) -> str:
        """Wait until a line of its standard error contains a text, and return the line.

        Raises:
            ProgramError: it ended, or the time passed, without such a line.
        """
        with trio.move_on_after(within):
            async with self._news:
                while True:
                    for line in self.said:
                        if text in line:
                            return line
                    if self._ended:
                        break
                    await self._news.wait()
        tail = "\n".join(self.said)
        raise ProgramError(f"{self.process.args!r} never said {text!r}; it said:\n{tail}")

    async def listen(self) -> None:
        """Take in standard error until it ends, so that the program never waits for a reader."""
        if self.process.stderr is None:
            raise RuntimeError("the program was started without a pipe for standard error")
        rest = ""
        async for chunk in self.process.stderr:
            *lines, rest = (rest + chunk.decode(errors="replace")).split("\n")
            async with self._news:
                self.said.extend(lines)
                self._news.notify_all()
        async with self._news:
            self.said.append(rest)
            self._ended = True
            self._news.notify_all()


@contextlib.asynccontextmanager
async def serving(
    command: Sequence[str | Path], *, env: Mapping[str, str] | None = None
) -> AsyncIterator[Program]:
    """Run a program for as long as the block runs; inside, it serves at `.url`.

    Args:
        command: the program and its arguments; it runs in the checkout's root.
        env: its whole environment, by default this process's own.

    Raises:
        ProgramError: it could not be started, or did not say in time where it serves.
    """
    _find(str(command[0]))
    failure: ProgramError | None = None
    async with trio.open_nursery() as nursery:
        run = partial(
            trio.run_process,
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
            cwd=ROOT,
            env=env,
            deliver_cancel=_stop,
        )
        program = Program(await nursery.start(run))
        nursery.start_soon(program.listen)
        try:
            line = await program.wait_for("://")
            found = _URL.search(line)
            if found is None:
                raise ProgramError(f"no URL in {line!r}")
        except ProgramError as error:
            # Raised below: out of the nursery it would come in a group.
            failure = error
        else:
            program.url = found[0]
            yield program
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


@attrs.frozen
class Crew:
    """Programs that were started together."""

    running: dict[str, Program]
    failures: dict[str, str]
    """Why the others do not run."""


@contextlib.asynccontextmanager
async def serving_all(commands: Mapping[str, Sequence[str | Path]]) -> AsyncIterator[Crew]:
    """Run programs for as long as the block runs; those that do not start hold up nobody."""
    running: dict[str, Program] = {}
    failures: dict[str, str] = {}
    async with contextlib.AsyncExitStack() as stack:
        for name, command in commands.items():
            try:
                running[name] = await stack.enter_async_context(serving(command))
            except ProgramError as error:
                failures[name] = error.reason
        yield Crew(running, failures)


async def _stop(process: trio.Process) -> None:
    """End a process by its own handle: SIGTERM, then SIGKILL."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        with trio.move_on_after(STOP_TIMEOUT):
            await process.wait()
            return
        process.kill()


def need(*programs: str) -> None:
    """See that programs can be started, and for `taskset` that there are the two cores.

    Called before anything is measured, and before this process is bound to one core.

    Raises:
        ProgramError: one of them is missing.
    """
    for program in programs:
        _find(program)
    if "taskset" in programs and not {0, 1} <= os.sched_getaffinity(0):
        raise ProgramError("servers and load need a core each, 0 and 1, which are not there")


def _find(program: str) -> None:
    if shutil.which(program) is None:
        raise ProgramError(f"{program} is not on the PATH")


def processor_seconds(pid: int) -> float:
    """Processor time that a process has used so far."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    used = stat.rpartition(")")[2].split()[11:13]
    return sum(int(ticks) for ticks in used) / os.sysconf("SC_CLK_TCK")


async def output_of(command: Sequence[str | Path], *, within: float, what: str) -> str:
    """Run a program to its end and return its standard output.

    Raises:
        ProgramError: it could not be started, failed, or took longer than `within` seconds.
    """
    _find(str(command[0]))
    with trio.move_on_after(within):
        done = await trio.run_process(
            [str(part) for part in command],
            stdin=b"",
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            cwd=ROOT,
            deliver_cancel=_stop,
        )
        if done.returncode:
            said = (done.stdout + done.stderr).decode(errors="replace")[-4000:]
            raise ProgramError(f"{what} failed with status {done.returncode}:\n{said}")
        return done.stdout.decode()
    raise ProgramError(f"{what} took longer than {within} s")
