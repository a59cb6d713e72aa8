"""How long does it take from giving a call up until the `finally` of its handler runs?

The same plain client for everybody, on every transport: it sends `notifications/cancelled`, or
drops the connection. It runs on the second core, the servers on the first. "Idle" is a server that
does nothing else. "Busy" is one with eight other calls of `add` in flight all the time, one more as
soon as one is answered: over HTTP from wrk, on eight connections of their own; on other lines from
the same client, on the same line, as a program does that makes many calls. A handler that has not
ended after two seconds counts as never. Over HTTP, the floor is a bare socket server on Trio that
tells of the end of a call as soon as it hears of it: what it takes is for the machine, the kernel
and the client. What the clients of the packages make of it themselves is asked by `cancel_client`.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import itertools
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import trio

from benchmarks.calls import (
    FAILURES,
    HANDSHAKE,
    STATELESS,
    Dialect,
    Line,
    WrongAnswerError,
    cancelled,
)
from benchmarks.contenders import FLOOR, Programs, programs
from benchmarks.findings import Finding, Waits
from benchmarks.moments import Moments
from benchmarks.processes import ProgramError, need
from benchmarks.servers.telling import BEGAN, ENDED
from benchmarks.tools_call_http import ARGUMENTS, wrk
from benchmarks.wires import EventStream, Pipes, Session, Socket, WebSocket, Wire, session

BLOCK = 25
"""Calls given up by one contender before the next one has its turn."""
LONG_BLOCK = 250
"""The same where a program is started for each turn."""
GIVE_UP = 3
"""Calls that never end, in a row, after which a contender is not waited for any more."""
PATIENCE = 2.0
"""Seconds to wait for the end of a call; then it counts as never ended."""
OTHERS = 8
"""Calls in flight beside the one that is given up, where the server is busy."""
WARM_UP = 2
SECONDS, QUICK_SECONDS = 12.0, 3.0
"""For one contender and one way, at most."""
QUICK = 10
"""Calls, if it only has to run."""
LONG = 600
"""Seconds that other calls would go on, longer than anybody is measured."""

GiveUp = Callable[[str], "float | None"]
"""Makes a call of a name and gives it up: seconds until its end, None for never."""


@attrs.define(kw_only=True)
class Rival(abc.ABC):
    """One server under one way of giving up."""

    name: str
    moments: Moments
    others: int
    """Calls that run beside the one given up."""
    seconds: float
    """How long it is measured for at most."""
    at_once: int = BLOCK
    """Calls given up before the next one has its turn."""
    taken: list[float | None] = attrs.field(factory=list)
    failure: str | None = None
    spent: float = 0.0
    """Seconds that it has been measured for."""
    _names: Iterator[int] = attrs.field(factory=itertools.count)

    @property
    def hopeless(self) -> bool:
        """Whether waiting for it longer would only cost time."""
        never = len(self.taken) >= GIVE_UP and all(v is None for v in self.taken[-GIVE_UP:])
        return never or self.failure is not None

    def block(self, count: int, *, judged: bool = True) -> None:
        """Give up so many calls, one after the other, or fewer if it has had its time by then."""
        try:
            with self.connected() as give_up:
                began = time.monotonic()
                for _ in range(count):
                    if self.hopeless or self.spent > self.seconds:
                        break
                    name = f"held-{id(self)}-{next(self._names)}"
                    waited = give_up(name)
                    self.moments.forget(name)
                    if judged:
                        self.taken.append(waited)
                        self.spent += time.monotonic() - began
                    began = time.monotonic()
        except ProgramError as error:
            self.failure = error.reason
        except FAILURES as error:
            self.failure = f"{type(error).__name__}: {error}"

    def turn(self, count: int) -> bool:
        """Give up some of so many calls; whether there are more to come."""
        self.block(min(self.at_once, count - len(self.taken)))
        return len(self.taken) < count and not self.hopeless and self.spent < self.seconds

    @abc.abstractmethod
    def connected(self) -> contextlib.AbstractContextManager[GiveUp]:
        """Be connected for as long as the block runs."""

    def see_begun(self, name: str) -> None:
        """Wait until a call runs."""
        if self.moments.wait(name, BEGAN, PATIENCE) is None:
            raise WrongAnswerError("the call never began")

    def since(self, given_up: float, name: str) -> float | None:
        """How long after it a call ended."""
        ended = self.moments.wait(name, ENDED, PATIENCE)
        return None if ended is None else ended - given_up


@attrs.define(kw_only=True)
class OverHTTP(Rival):
    """Streamable HTTP: a notification in the handshake era, a dropped connection without one."""

    url_of: Callable[[], str]
    revision: str
    talk: bool = False
    """Whether the answer has begun as a stream before the call is given up."""

    @contextlib.contextmanager
    def connected(self) -> Iterator[GiveUp]:
        url = self.url_of()
        control = Line(url)
        try:
            dialect = control.open(self.revision)
            with self._busy(url, control, dialect):
                yield lambda name: self._one(url, control, dialect, name)
        finally:
            control.close()

    @contextlib.contextmanager
    def _busy(self, url: str, control: Line, dialect: Dialect) -> Iterator[None]:
        if not self.others:
            yield
            return
        command = wrk(url, dialect, "add", connections=self.others, seconds=LONG)
        with subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL) as process:
            try:
                for _ in range(2 * self.others):
                    control.call(dialect, "add", ARGUMENTS)
                yield
            finally:
                process.kill()

    def _one(self, url: str, control: Line, dialect: Dialect, name: str) -> float | None:
        held = Line(url)
        arguments = {"name": name, "port": self.moments.port, "talk": self.talk}
        body = dialect.call(name, "hold", arguments, token=name if self.talk else None)
        held.connection.request("POST", held.path, body, dialect.headers("hold"))
        if self.talk:
            # Holds on to the response: its reader keeps the socket open.
            response = held.connection.getresponse()
            while not (line := response.readline()).startswith(b"data:"):
                if not line:
                    raise WrongAnswerError("no stream began")
        self.see_begun(name)
        if dialect.session is None:
            given_up = time.monotonic()
            if self.talk:
                response.close()
            held.close()
        else:
            given_up = cancel(control, dialect, name)
        taken = self.since(given_up, name)
        held.close()
        return taken


def cancel(control: Line, dialect: Dialect, request_id: str) -> float:
    """Send `notifications/cancelled`; when that was."""
    send = control.prepared(dialect.headers(), cancelled(request_id))
    given_up = time.monotonic()
    with send() as response:
        response.read()
    return given_up


@attrs.define(kw_only=True)
class OnLine(Rival):
    """A line that carries many calls: a notification, or the end of the line."""

    make: Callable[[], Wire]
    drop: bool = False

    @contextlib.contextmanager
    def connected(self) -> Iterator[GiveUp]:
        if self.drop:
            yield self._dropped
            return
        with session(self.make(), self.moments, self.others) as line:
            yield lambda name: self._cancelled(line, name)

    def _begun(self, line: Session, name: str) -> None:
        line.call("hold", {"name": name, "port": self.moments.port, "talk": False}, name)
        if not line.until(lambda: bool(self.moments.all(name, BEGAN)), PATIENCE):
            raise WrongAnswerError("the call never began")
        answered = line.answered + 2 * self.others
        line.until(lambda: line.answered >= answered, PATIENCE)

    def _cancelled(self, line: Session, name: str) -> float | None:
        self._begun(line, name)
        given_up = time.monotonic()
        line.cancel(name)
        line.until(lambda: bool(self.moments.all(name, ENDED)), PATIENCE)
        return self.since(given_up, name)

    def _dropped(self, name: str) -> float | None:
        with session(self.make(), self.moments, self.others) as line:
            self._begun(line, name)
            given_up = time.monotonic()
        return self.since(given_up, name)


def compare(title: str, rivals: Sequence[Rival], count: int) -> Finding:
    """Measure block by block in turn."""
    for rival in rivals:
        rival.block(WARM_UP, judged=False)
    waiting = list(rivals)
    while waiting:
        waiting = [rival for rival in waiting if rival.turn(count)]
    figures = {rival.name: [v and v * 1000 for v in rival.taken] for rival in rivals}
    failures = {rival.name: rival.failure for rival in rivals if rival.failure is not None}
    return Waits(title=title, figures=figures, failures=failures)


def over_http(there: Programs, **shared: Any) -> dict[str, list[Rival]]:
    """Ways to give up over Streamable HTTP, and who takes part."""

    def rivals(revision: str, names: dict[str, str], *, talk: bool = False) -> list[Rival]:
        return [
            OverHTTP(
                name=name,
                url_of=functools.partial(there.url, program),
                revision=revision,
                talk=talk,
                **shared,
            )
            for name, program in names.items()
        ]

    streams = {
        "mcp_trio": "mcp_trio",
        "official, SSE answers": "official, SSE",
        "official, SSE answers, Hypercorn/Trio": "official, SSE, Hypercorn",
        "FastMCP": "FastMCP",
        "TypeScript": f"TypeScript {STATELESS}",
        FLOOR: FLOOR,
    }
    silent = {
        "mcp_trio": "mcp_trio",
        "official, JSON answers": "official, JSON",
        "official, SSE answers": "official, SSE",
        "official, SSE answers, Hypercorn/Trio": "official, SSE, Hypercorn",
        "FastMCP": "FastMCP",
        "TypeScript": f"TypeScript {STATELESS}",
        FLOOR: FLOOR,
    }
    sessions = {
        "mcp_trio": "mcp_trio",
        "official, JSON answers": "official, JSON",
        "official, SSE answers": "official, SSE",
        "FastMCP": "FastMCP",
        "TypeScript": f"TypeScript {HANDSHAKE}",
        FLOOR: FLOOR,
    }
    return {
        f"notifications/cancelled, {HANDSHAKE} over HTTP": rivals(HANDSHAKE, sessions),
        f"Connection dropped, {STATELESS} over HTTP, no answer begun": rivals(STATELESS, silent),
        f"Connection dropped, {STATELESS} over HTTP, stream begun": rivals(
            STATELESS, streams, talk=True
        ),
    }


def on_lines(there: Programs, **shared: Any) -> dict[str, list[Rival]]:
    """Ways to give up on other lines, and who takes part."""

    def rival(name: str, make: Callable[[], Wire], **more: Any) -> Rival:
        return OnLine(name=name, make=make, **shared, **more)

    def sse(program: str) -> Callable[[], Wire]:
        return lambda: EventStream(there.url(program).removesuffix("/mcp") + "/sse")

    stdio = [
        rival(
            name, lambda command=there.commands.on_stdio[name]: Pipes(command), at_once=LONG_BLOCK
        )
        for name in there.commands.on_stdio
    ]
    lines = {
        "mcp_trio, Unix socket": lambda: Socket(there.url("mcp_trio, Unix")),
        "mcp_trio, TCP": lambda: Socket(there.url("mcp_trio, TCP")),
        "mcp_trio, WebSocket": lambda: WebSocket(there.url("mcp_trio")),
        "mcp_trio, HTTP+SSE": sse("mcp_trio"),
        "official, HTTP+SSE": sse("official, HTTP+SSE"),
        "FastMCP, HTTP+SSE": sse("FastMCP, HTTP+SSE"),
    }
    return {
        f"notifications/cancelled, {HANDSHAKE} over stdio": stdio,
        f"notifications/cancelled, {HANDSHAKE} on other lines": [
            rival(name, make) for name, make in lines.items()
        ],
        f"Line dropped, {HANDSHAKE}": [
            rival(name, make, drop=True) for name, make in lines.items()
        ],
    }


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """Give up in every way."""
    need("wrk", "taskset")
    before = os.sched_getaffinity(0)
    # The servers run on the first core; this process must not get in their way.
    os.sched_setaffinity(0, {max(before)})
    moments = Moments()
    findings: list[Finding] = []
    try:
        async with programs() as there:
            for others, told, count in (
                (0, "idle", QUICK if quick else 1000),
                (OTHERS, f"busy with {OTHERS} other calls", QUICK if quick else 200),
            ):
                shared = {
                    "moments": moments,
                    "others": others,
                    "seconds": QUICK_SECONDS if quick else SECONDS,
                }
                for title, rivals in (
                    over_http(there, **shared) | on_lines(there, **shared)
                ).items():
                    found = await trio.to_thread.run_sync(
                        compare, f"{title}, {told}", rivals, count
                    )
                    findings.append(found)
    finally:
        moments.close()
        os.sched_setaffinity(0, before)
    return findings
