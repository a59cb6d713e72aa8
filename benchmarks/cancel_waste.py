"""What is wasted after a client gave its calls up, and what is left over of them in the server?

Each client calls its own server five times at once. The handlers work in steps of a millisecond,
each beside a task and a program of its own. Then the client cancels the scope of the calls, or the
timeout it gave them passes, or its block is left while they run, or it is killed with SIGKILL. The
steps that are done all the same are counted, and some seconds later the tasks and programs in the
server that were not there before. A handler that still works after two seconds counts as never
ended, and its steps are those of the two seconds.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import trio

from benchmarks.calls import STATELESS
from benchmarks.clients import Client, children, client
from benchmarks.contenders import PAIRS, Commands, Pair, commands
from benchmarks.findings import Cell, Finding, Grid
from benchmarks.moments import Moments
from benchmarks.processes import ProgramError, need, serving
from benchmarks.servers.telling import BEGAN, ENDED, GAVE_UP, STEP, TASKS

CALLS = 5
STEPS = 10_000
"""Steps a handler would take: far more than anybody waits for."""
BEFORE = 30
"""Steps that each handler has done when it is given up: its program runs by then."""
SECONDS = 0.5
"""The timeout of a call."""
PATIENCE = 2.0
"""Seconds to wait for the end of the calls; then they count as never ended."""
SETTLE = 1.0
"""Seconds from then until what is left is counted."""
PAUSE = 0.3
"""Seconds after a call that ended well, until it has left nothing."""
START = 10.0
"""Seconds that calls may take to begin."""

Count = Callable[[], int]


@attrs.frozen
class Left:
    """What came of the calls of one client that gave them up."""

    seconds: list[float | None]
    """Until each handler ended."""
    steps: list[int]
    """That each did in spite of it."""
    tasks: int
    programs: int

    @property
    def clean(self) -> bool:
        """Whether the server is as it was before."""
        return not self.tasks and not self.programs and None not in self.seconds


def cancel(connected: Client) -> None:
    """The scope of the calls is cancelled."""
    connected.order("cancel")


def time_out(connected: Client) -> None:
    """Their timeout passes by itself."""
    del connected


def leave(connected: Client) -> None:
    """The client's block is left."""
    connected.order("leave")


def kill(connected: Client) -> None:
    """The client is killed."""
    connected.process.kill()


WAYS = {"cancel": cancel, "timeout": time_out, "disconnect": leave, "death": kill}


@attrs.define
class Watch:
    """The process with the server, looked at from outside."""

    process: int
    moments: Moments

    def tasks(self) -> int:
        """Tasks that live in it; none if it has ended."""
        if not alive(self.process):
            return 0
        self.moments.forget(TASKS)
        os.kill(self.process, signal.SIGUSR2)
        told = self.moments.wait(TASKS, TASKS, START)
        if told is None:
            raise ProgramError("a server does not tell how many tasks it has")
        return int(told)

    def programs(self) -> list[int]:
        """Programs that its handlers have started and that have not ended."""
        return [child for child in children(self.process) if alive(child)]


def alive(process: int) -> bool:
    """Whether a process has not ended."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2]
    except FileNotFoundError:
        return False
    return state.split()[0] not in "ZX"


@attrs.define
class Trial:
    """One pair of client and server under one way of giving up."""

    known: Commands
    pair: Pair
    way: str
    moments: Moments
    """The same as those of earlier trials with this server, which tells of its tasks there."""

    def run(self, url: str, server: int | None, *, fresh: bool) -> Left:
        """Call, give up, look.

        Args:
            url: where the server is, if it is a program that was started.
            server: that program; None for one that the client starts or is.
            fresh: whether it never had a client. Then one comes, works, and goes first.
        """
        target = self.known.target(self.pair, url)
        command = self.known.clients[self.pair.client]
        if fresh and server is not None:
            with client(command, target, self.pair.revision) as first:
                self._work(first, "first")
            self._pass(PAUSE)
        alone = None if server is None else Watch(server, self.moments).tasks()
        with client(command, target, self.pair.revision) as connected:
            self._work(connected, "second")
            watch = Watch(server or self._server_of(connected), self.moments)
            before = watch.tasks()
            if alone is not None and self.way in {"disconnect", "death"}:
                before = alone
            with self._cleaned(watch):
                return self._given_up(connected, watch, before)

    def _server_of(self, connected: Client) -> int:
        own = connected.process.pid
        return own if self.pair.server == "memory" else connected.children()[0]

    def _work(self, connected: Client, what: str) -> None:
        """Let all calls come to their end, so that as many connections are open as later."""
        names = [f"{what}-{self.way}-{number}" for number in range(CALLS)]
        for name in names:
            arguments = {"name": name, "port": self.moments.port, "steps": BEFORE}
            connected.order("call", tool="work", arguments=arguments)
        if not self._until(lambda: all(self.moments.all(name, ENDED) for name in names), START):
            raise ProgramError("calls of a few steps did not end")
        self._pass(PAUSE)

    def _given_up(self, connected: Client, watch: Watch, before: int) -> Left:
        names = [f"{self.way}-{number}" for number in range(CALLS)]
        more = {"seconds": SECONDS} if self.way == "timeout" else {}
        for name in names:
            arguments = {"name": name, "port": self.moments.port, "steps": STEPS}
            connected.order("call", tool="work", arguments=arguments, **more)
        self._until(lambda: all(len(self.moments.all(n, STEP)) >= BEFORE for n in names), START)
        if not all(self.moments.all(name, BEGAN) for name in names):
            raise ProgramError("a call did not begin")
        killed = time.monotonic()
        WAYS[self.way](connected)
        if self.way == "death":
            given_up = dict.fromkeys(names, killed)
        else:
            given_up = {name: self.moments.wait(name, GAVE_UP, START) or killed for name in names}
        until = max(given_up.values()) + PATIENCE
        left = until - time.monotonic()
        self._until(lambda: all(self.moments.all(name, ENDED) for name in names), left)
        ended = {name: next(iter(self.moments.all(name, ENDED)), None) for name in names}
        steps = [
            sum(given_up[name] < at <= until for at in self.moments.all(name, STEP))
            for name in names
        ]
        seconds = [
            None if (at := ended[name]) is None else max(at - given_up[name], 0.0) for name in names
        ]
        self._pass(SETTLE)
        tasks, programs = max(watch.tasks() - before, 0), len(watch.programs())
        return Left(seconds, steps, tasks, programs)

    def _until(self, done: Callable[[], bool], within: float) -> bool:
        limit = time.monotonic() + within
        while not done() and (left := limit - time.monotonic()) > 0:
            self.moments.take(left)
        return done()

    def _pass(self, seconds: float) -> None:
        self._until(lambda: False, seconds)

    @contextlib.contextmanager
    def _cleaned(self, watch: Watch) -> Iterator[None]:
        """End what outlives the client although it belongs to it."""
        try:
            yield
        finally:
            mine = watch.programs()
            if self.pair.server == "stdio":
                mine.append(watch.process)
            for process in mine:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)


async def tried(known: Commands, pair: Pair) -> dict[str, Left | str]:
    """Give up in every way; where that is not possible, why.

    Raises:
        ProgramError: a program did not do what it has to.
    """
    found: dict[str, Left | str] = {"death": "one process"} if pair.server == "memory" else {}
    moments = Moments()
    try:
        while ways := [way for way in WAYS if way not in found]:
            async with contextlib.AsyncExitStack() as stack:
                url, server = "", None
                if pair.server not in {"memory", "stdio"}:
                    program = await stack.enter_async_context(serving(known.serving[pair.server]))
                    url, server = program.url, program.process.pid
                for way in ways:
                    trial = Trial(known, pair, way, moments)
                    run = functools.partial(trial.run, url, server, fresh=way == ways[0])
                    left = found[way] = await trio.to_thread.run_sync(run)
                    if not left.clean:
                        # It would be taken for what the next client leaves: a new server.
                        break
    except* ProgramError as group:
        raise ProgramError("; ".join(map(str, group.exceptions))) from None
    finally:
        moments.close()
    return found


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """Give up everywhere, in every way."""
    need("taskset")
    known = await commands()
    chosen = {"stdio", f"HTTP, {STATELESS}"} if quick else set(PAIRS)
    found: dict[str, dict[str, Left | str]] = {}
    failures: dict[str, str] = {}
    for between in PAIRS:
        for name, pair in PAIRS[between].items() if between in chosen else ():
            row = name if between == "other lines" else f"{name}; {between}"
            try:
                found[row] = await tried(known, pair)
            except ProgramError as error:
                failures[row] = str(error)

    def grid(title: str, unit: str, value: Callable[[Left], float | None]) -> Grid:
        figures: dict[str, list[Cell]] = {
            row: [told if isinstance(told := ways[way], str) else value(told) for way in WAYS]
            for row, ways in found.items()
        }
        return Grid(title=title, unit=unit, columns=list(WAYS), figures=figures)

    first = grid("Until the handlers end, after their client gave them up", "ms, median", ended)
    return [
        attrs.evolve(first, failures=failures),
        grid("Work done for nobody", "steps of 1 ms a call, median", wasted),
        grid(f"Tasks left in the server, of {CALLS} calls", "tasks", lambda left: left.tasks),
        grid(f"Programs left, of {CALLS} calls", "programs", lambda left: left.programs),
    ]


def ended(left: Left) -> float | None:
    """The middle of the milliseconds that handlers took to end; None if one never did."""
    came = [seconds for seconds in left.seconds if seconds is not None]
    return 1000 * statistics.median(came) if len(came) == len(left.seconds) else None


def wasted(left: Left) -> float:
    """The middle of the steps that were done in vain."""
    return statistics.median(left.steps)
