"""How long does one `tools/call` take in memory, client and server in one process?

Ours goes through the real codec in both eras. The official SDK's client has two ways in memory: a
stream transport with messages, and a direct path that hands Python objects over unencoded; both
are shown, on asyncio, its default, and on Trio, where it has to run within a Trio application.
FastMCP has streams in both eras, the TypeScript SDK a pair of transports that hand objects over.
Rounds are interleaved, each in a fresh process. Last, what a call costs with what the server has
and with what is handed over: ours alone.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import trio

from benchmarks.calls import HANDSHAKE, STATELESS
from benchmarks.findings import Finding, Growth, Rounds
from benchmarks.peers import FASTMCP, peer_node, peer_python
from benchmarks.processes import ProgramError
from benchmarks.workers.results import samples

WORKERS = Path(__file__).resolve().parent / "workers"


async def contenders() -> dict[str, list[str | Path]]:
    """The commands of everybody who can be measured in memory, but for the count.

    Each starts with ours in the era that the name says.
    """
    others = WORKERS / "memory_official.py"
    ours: list[str | Path] = [sys.executable, "-m", "benchmarks.workers.memory_ours"]
    peer = await trio.to_thread.run_sync(peer_python)
    official: list[str | Path] = [peer, others, "{count}", "official"]
    other = await trio.to_thread.run_sync(peer_python, FASTMCP)
    fastmcp: list[str | Path] = [other, others, "{count}", "fastmcp"]
    return {
        f"mcp_trio, {STATELESS}": [*ours, "{count}", STATELESS],
        f"mcp_trio, {HANDSHAKE}": [*ours, "{count}", HANDSHAKE],
        "official, streams": [*official, "legacy", "asyncio"],
        "official, streams, on Trio": [*official, "legacy", "trio"],
        "official, direct (no messages)": [*official, "auto", "asyncio"],
        "official, direct, on Trio": [*official, "auto", "trio"],
        f"FastMCP, {STATELESS}": [*fastmcp, "auto", "asyncio"],
        f"FastMCP, {HANDSHAKE}": [*fastmcp, "legacy", "asyncio"],
        "TypeScript": [*(await peer_node()).command("memory.mjs"), "{count}"],
    }


async def grown(title: str, size: str, sizes: tuple[int, ...], most: float, place: int) -> Growth:
    """Call with growing sizes.

    Args:
        title: of the finding.
        size: what grows.
        sizes: of it.
        most: power with which the cost may grow.
        place: of the size among the arguments of the worker.
    """
    figures: dict[str, list[tuple[float, float]]] = {}
    for revision in (STATELESS, HANDSHAKE):
        points = figures[f"mcp_trio, {revision}"] = []
        for number in sizes:
            more = ["0", "0"]
            more[place] = str(number)
            command: list[str | Path] = [sys.executable, "-m", "benchmarks.workers.memory_ours"]
            taken = await samples([*command, "{count}", revision, *more], 500)
            points.append((number, 1e6 * statistics.median(taken)))
    return Growth(
        title=title, unit="µs a call", size=size, figures=figures, most=dict.fromkeys(figures, most)
    )


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """Call and call again, round by round."""
    commands = await contenders()
    figures: dict[str, list[float]] = {name: [] for name in commands}
    failures: dict[str, str] = {}
    rounds, count = (1, 300) if quick else (5, 4000)
    for _ in range(rounds):
        for name, command in commands.items():
            if name in failures:
                continue
            try:
                taken = await samples(command, count)
            except ProgramError as error:
                failures[name] = error.reason
                figures[name].clear()
            else:
                figures[name].append(1e6 * statistics.mean(taken))
    title = "tools/call in memory, one after the other"
    tools = (10, 100, 1_000) if quick else (10, 1_000, 10_000)
    characters = (10, 1_000, 10_000) if quick else (10, 1_000, 100_000)
    return [
        Rounds(title=title, unit="µs a call", better="less", figures=figures, failures=failures),
        await grown("A call, by tools of the server", "tools", tools, 0.1, 0),
        await grown("A call, by the text it hands over", "characters", characters, 1.1, 1),
    ]
