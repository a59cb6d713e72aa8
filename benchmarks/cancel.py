"""How long it takes from giving a call up until the `finally` of its handler runs.

Three ways to give up: the caller's scope in memory, `notifications/cancelled` of the handshake era
over HTTP, and a dropped connection of the stateless era, whose answer may or may not have begun
as a stream. Over HTTP both ends are separate processes; they share the clock of the machine. A
handler that has not ended after two seconds counts as never. Last, ten thousand calls in flight
are cancelled at once and nothing of them may stay.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import sys
import time
from pathlib import Path

import attrs
import click
import trio

from benchmarks import report
from benchmarks.calls import HANDSHAKE, STATELESS, Dialect, Line, WrongAnswerError
from benchmarks.peers import peer_python
from benchmarks.processes import output_of, serving
from benchmarks.tools_call_memory import contenders
from benchmarks.workers.results import samples

HERE = Path(__file__).resolve().parent
BLOCK = 25
"""Cancellations of one contender before the next one has its turn."""
GIVE_UP = 5
"""Calls that never end, in a row, after which a contender is not waited for any more."""
STORM = 10_000
ALLOWED_GROWTH = 0.05


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


def compare(title: str, rivals: list[Contender], count: int) -> None:
    """Measure block by block in turn, and print."""
    for rival in rivals:
        rival.block(5, judged=False)
    for _ in range(count // BLOCK):
        for rival in rivals:
            rival.block(BLOCK)
    figures = {rival.name: [v and v * 1000 for v in rival.taken] for rival in rivals}
    click.echo(report.latencies(title, figures))


async def in_memory(peer: Path, rounds: int, count: int) -> None:
    """The caller's scope is cancelled; both ends in one process."""
    commands = contenders(peer, "cancel")
    figures: dict[str, list[float | None]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            figures[name] += [1000 * taken for taken in await samples(command, count)]
    click.echo(report.latencies("Scope cancelled, in memory", figures))


async def over_http(peer: Path, count: int) -> None:
    """A notification, or a dropped connection."""
    official = HERE / "servers" / "official.py"
    commands = {
        "mcp_trio": [sys.executable, HERE / "servers" / "ours.py"],
        "official, JSON answers": [peer, official, "uvicorn", "json"],
        "official, SSE answers": [peer, official, "uvicorn", "sse"],
    }
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
            await trio.to_thread.run_sync(compare, title, rivals, count)


async def storm(size: int) -> int:
    """Cancel everything at once; the number of things left that must not be."""
    click.echo(f"## {size:,} calls in flight in memory, cancelled at once\n")
    faults = 0
    for revision in (STATELESS, HANDSHAKE):
        command = [sys.executable, "-m", "benchmarks.workers.storm", str(size), revision]
        left = json.loads(await output_of(command, within=180, what="the storm"))
        growth = left["blocks_after"] / left["blocks_before"] - 1
        faults += left["orphan_tasks"] + left["pending"] + left["in_flight"]
        faults += growth > ALLOWED_GROWTH
        click.echo(
            f"- {revision}: all ended after {left['seconds']:.2f} s; left over: "
            f"{left['orphan_tasks']} tasks, {left['pending']} pending, "
            f"{left['in_flight']} in flight; memory blocks {growth:+.2%}, resident "
            f"{left['bytes_before'] / 1e6:.0f} -> {left['bytes_after'] / 1e6:.0f} MB"
        )
    return faults


async def main(*, quick: bool) -> int:
    """Run everything; the number of faults."""
    click.echo(report.machine())
    peer = await trio.to_thread.run_sync(peer_python)
    await in_memory(peer, *((1, 50) if quick else (5, 400)))
    await over_http(peer, BLOCK if quick else 300)
    return await storm(STORM // 10 if quick else STORM)


@click.command()
@click.option("--quick", is_flag=True, help="A few samples: does it run at all?")
def command(*, quick: bool) -> None:
    """Measure cancellation; fails when a storm left something behind."""
    # The servers run on the first core; this process must not get in their way.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    try:
        sys.exit(min(trio.run(lambda: main(quick=quick)), 1))
    except http.client.HTTPException as error:
        sys.exit(f"a server broke off: {error!r}")


if __name__ == "__main__":
    command()
