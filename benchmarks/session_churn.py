"""What does a short session of the handshake era cost over HTTP, and what is left of many of them?

Each is opened, used for one call and deleted, one after the other over one connection. Servers run
on the first core, whoever opens the sessions on the second. What the server's process holds is read
at growing numbers of sessions, all of them closed: it should not grow.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import attrs
import trio

from benchmarks.calls import HANDSHAKE
from benchmarks.findings import Finding, Growth, Rounds
from benchmarks.peers import FASTMCP, peer_node, peer_python
from benchmarks.processes import (
    Program,
    ProgramError,
    need,
    output_of,
    processor_seconds,
    serving_all,
)
from benchmarks.session_memory import held

SERVERS = Path(__file__).resolve().parent / "servers"
SIZES = (500, 1_000, 2_000, 4_000)
"""Sessions that have been, by then."""
TIMEOUT = 300.0
"""Seconds that one step may take."""


@attrs.define
class Contender:
    """One server, and what it showed."""

    program: Program | None
    """None if it did not start."""
    sessions: int = 0
    """That have been."""
    rates: list[float] = attrs.field(factory=list[float])
    """Sessions in a second."""
    costs: list[float] = attrs.field(factory=list[float])
    """Microseconds of the processor for each."""
    memory: list[tuple[float, float]] = attrs.field(factory=list[tuple[float, float]])
    """MiB held, by the number of sessions."""
    failure: str | None = None

    async def step(self, size: int) -> None:
        """Open and close sessions until there have been so many."""
        if self.program is None or self.failure is not None:
            return
        count = size - self.sessions
        worker = [sys.executable, "-m", "benchmarks.workers.churn", self.program.url, str(count)]
        used = processor_seconds(self.program.process.pid)
        try:
            said = await output_of(["taskset", "-c", "1", *worker], within=TIMEOUT, what="churn")
        except ProgramError as error:
            self.failure = error.reason
            return
        self.costs.append(1e6 * (processor_seconds(self.program.process.pid) - used) / count)
        self.rates.append(count / json.loads(said))
        self.sessions = size
        self.memory.append((size, held(self.program) / 1024**2))


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """Open and close with everybody."""
    need("taskset")
    peer = await trio.to_thread.run_sync(peer_python)
    fastmcp = await trio.to_thread.run_sync(peer_python, FASTMCP)
    official: list[str | Path] = [peer, SERVERS / "official.py"]
    commands: dict[str, list[str | Path]] = {
        "mcp_trio": [sys.executable, SERVERS / "ours.py"],
        "official on uvicorn": [*official, "uvicorn", "json"],
        "official on uvicorn, uvloop": [*official, "uvicorn-fast", "json"],
        "official on Hypercorn/Trio": [*official, "hypercorn", "json"],
        "FastMCP": [fastmcp, SERVERS / "with_fastmcp.py", "uvicorn", "json"],
        "TypeScript": [*(await peer_node()).command("server.mjs"), "sessions", "json"],
    }
    sizes = (50, 100, 200) if quick else SIZES
    pinned = {name: ["taskset", "-c", "0", *command] for name, command in commands.items()}
    async with serving_all(pinned) as crew:
        rivals = {
            name: Contender(crew.running.get(name), failure=crew.failures.get(name))
            for name in commands
        }
        for size in sizes:
            for rival in rivals.values():
                await rival.step(size)
    failures = {name: each.failure for name, each in rivals.items() if each.failure is not None}
    # The first step is for caches and pools to fill.
    rates = {name: [] if each.failure else each.rates[1:] for name, each in rivals.items()}
    costs = {name: [] if each.failure else each.costs[1:] for name, each in rivals.items()}
    left = {
        name: [] if each.failure else [1024 * grown(each.memory)] for name, each in rivals.items()
    }
    title = f"Sessions of {HANDSHAKE}, opened, used once and deleted"
    return [
        Rounds(
            title=title, unit="sessions a second", better="more", figures=rates, failures=failures
        ),
        Rounds(
            title=f"{title}, processor time of the server",
            unit="µs a session",
            better="less",
            figures=costs,
            failures=failures,
        ),
        Rounds(
            title=f"Memory left of each, from {sizes[0]:,} to {sizes[-1]:,} of them",
            unit="KiB",
            better="less",
            figures=left,
            failures=failures,
            rivals=False,
        ),
        Growth(
            title="Memory of the server after so many sessions, none of them open",
            unit="MiB",
            size="sessions",
            figures={name: each.memory for name, each in rivals.items() if each.memory},
            most={"mcp_trio": 0.03},
        ),
    ]


def grown(memory: list[tuple[float, float]]) -> float:
    """By how much it grew for each session."""
    (first, before), (last, after) = memory[0], memory[-1]
    return (after - before) / (last - first)
