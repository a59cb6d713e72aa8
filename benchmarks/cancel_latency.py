"""How long does it take from giving a call up until the `finally` of its handler runs?

Three ways to give up: the caller's scope in memory, `notifications/cancelled` of the handshake era
over HTTP, and a dropped connection of the stateless era, whose answer may or may not have begun
as a stream. Over HTTP both ends are separate processes; they share the clock of the machine. A
handler that has not ended after two seconds counts as never.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import time
from pathlib import Path

import attrs
import trio

from benchmarks.calls import HANDSHAKE, STATELESS, Dialect, Line, WrongAnswerError
from benchmarks.findings import Finding, Waits
from benchmarks.peers import peer_python
from benchmarks.processes import serving
from benchmarks.tools_call_memory import contenders
from benchmarks.workers.results import samples

HERE = Path(__file__).resolve().parent
BLOCK = 25
"""Cancellations of one contender before the next one has its turn."""
GIVE_UP = 5
"""Calls that never end, in a row, after which a contender is not waited for any more."""


@attrs.define
class Contender:
    """One server under one way of giving up."""

    name: str
    url: str
    revision: str
    talk: bool
    """Whether the answer has begun as a stream before the call is given up."""
    taken: list[float | None] = attrs.field(factory=list)
    _names: itertools.count[int] = attrs.field(factory=itertools.count)

    @property
    def hopeless(self) -> bool:
        """Whether waiting for it longer would only cost time."""
        return len(self.taken) >= GIVE_UP and all(v is None for v in self.taken[-GIVE_UP:])

    def block(self, count: int, *, judged: bool = True) -> None:
        """Give up so many calls, one after the other."""
        control = Line(self.url)
        try:
            dialect = control.open(self.revision)
            for _ in range(count):
                if not self.hopeless:
                    seconds = self._one(control, dialect)
                    if judged:
                        self.taken.append(seconds)
        finally:
            control.close()

    def _one(self, control: Line, dialect: Dialect) -> float | None:
        name = f"{self.talk}-{self.revision}-{next(self._names)}"
        held = Line(self.url)
        body = dialect.call(
            name, "hold", {"name": name, "talk": self.talk}, token=name if self.talk else None
        )
        held.connection.request("POST", held.path, body, dialect.headers("hold"))
        if self.talk:
            # Holds on to the response: its reader keeps the socket open.
            response = held.connection.getresponse()
            while not response.readline().startswith(b"data:"):
                pass
        if not control.call(dialect, "wait_begun", {"name": name}):
            raise WrongAnswerError(f"{self.name} never began the call")
        if dialect.session is None:
            given_up = time.monotonic()
            if self.talk:
                response.close()
            held.close()
        else:
            given_up = cancel(control, dialect, name)
        ended = control.call(dialect, "wait_ended", {"name": name})
        held.close()
        return ended - given_up if ended else None


def cancel(control: Line, dialect: Dialect, request_id: str) -> float:
    """Send `notifications/cancelled`; when that was."""
    message = {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": request_id},
    }
    body = json.dumps(message)
    headers = dialect.headers()
    given_up = time.monotonic()
    with control.post(headers, body) as response:
        response.read()
    return given_up


def compare(title: str, rivals: list[Contender], count: int) -> Finding:
    """Measure block by block in turn."""
    for rival in rivals:
        rival.block(5, judged=False)
    for _ in range(count // BLOCK):
        for rival in rivals:
            rival.block(BLOCK)
    figures = {rival.name: [v and v * 1000 for v in rival.taken] for rival in rivals}
    return Waits(title=title, figures=figures)


async def in_memory(peer: Path, rounds: int, count: int) -> Finding:
    """The caller's scope is cancelled; both ends in one process."""
    commands = contenders(peer, "cancel")
    figures: dict[str, list[float | None]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            figures[name] += [1000 * taken for taken in await samples(command, count)]
    return Waits(title="Scope cancelled, in memory", figures=figures)


async def over_http(peer: Path, count: int) -> list[Finding]:
    """A notification, or a dropped connection."""
    official = HERE / "servers" / "official.py"
    commands = {
        "mcp_trio": [sys.executable, HERE / "servers" / "ours.py"],
        "official, JSON answers": [peer, official, "uvicorn", "json"],
        "official, SSE answers": [peer, official, "uvicorn", "sse"],
    }
    findings: list[Finding] = []
    async with contextlib.AsyncExitStack() as stack:
        urls = {}
        for name, command in commands.items():
            program = await stack.enter_async_context(serving(["taskset", "-c", "0", *command]))
            urls[name] = program.url
        for title, revision, talk in (
            ("notifications/cancelled, handshake era over HTTP", HANDSHAKE, False),
            ("Connection dropped, stateless era over HTTP, no answer begun", STATELESS, False),
            ("Connection dropped, stateless era over HTTP, stream begun", STATELESS, True),
        ):
            # A stream cannot begin where answers are JSON only.
            names = [name for name in urls if not (talk and "JSON" in name)]
            rivals = [Contender(name, urls[name], revision, talk) for name in names]
            findings.append(await trio.to_thread.run_sync(compare, title, rivals, count))
    return findings


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """Give up in every way."""
    before = os.sched_getaffinity(0)
    # The servers run on the first core; this process must not get in their way.
    os.sched_setaffinity(0, {max(before)})
    try:
        peer = await trio.to_thread.run_sync(peer_python)
        memory = await in_memory(peer, *((1, 50) if quick else (5, 400)))
        return [memory, *await over_http(peer, BLOCK if quick else 1000)]
    finally:
        os.sched_setaffinity(0, before)
