"""How long does one `tools/call` take in memory, client and server in one process?

Ours goes through the real codec in both eras. The official SDK's client has two ways in memory: a
stream transport with messages, and a direct path that hands Python objects over unencoded; both
are shown, on asyncio, its default. Rounds are interleaved, each in a fresh process.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import trio

from benchmarks.calls import HANDSHAKE, STATELESS
from benchmarks.findings import Finding, Rounds
from benchmarks.peers import peer_python
from benchmarks.workers.results import samples

WORKERS = Path(__file__).resolve().parent / "workers"


def contenders(peer: Path) -> dict[str, list[str | Path]]:
    """The commands of everybody who can be measured in memory, but for the count.

    Each starts with ours in the era that the name says.
    """
    ours: list[str | Path] = [sys.executable, "-m", "benchmarks.workers.memory_ours"]
    official: list[str | Path] = [peer, WORKERS / "memory_official.py"]
    return {
        f"mcp_trio, {STATELESS}": [*ours, "{count}", STATELESS],
        f"mcp_trio, {HANDSHAKE}": [*ours, "{count}", HANDSHAKE],
        "official, streams": [*official, "{count}", "legacy", "asyncio"],
        "official, direct (no messages)": [*official, "{count}", "auto", "asyncio"],
    }


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """Call and call again, round by round."""
    commands = contenders(await trio.to_thread.run_sync(peer_python))
    figures: dict[str, list[float]] = {name: [] for name in commands}
    rounds, count = (1, 300) if quick else (5, 4000)
    for _ in range(rounds):
        for name, command in commands.items():
            taken = await samples(command, count)
            figures[name].append(1e6 * statistics.mean(taken))
    title = "tools/call in memory, one after the other"
    return [Rounds(title=title, unit="µs a call", better="less", figures=figures)]
