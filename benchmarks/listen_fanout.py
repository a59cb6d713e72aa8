"""What does one change cost that thousands of listeners hear of, and what does each listener hold?

Server, client and listeners are in one process, in memory: both ends are paid for.
"""

from __future__ import annotations

import json
import sys

from benchmarks.findings import Finding, Growth
from benchmarks.processes import output_of

SIZES = (100, 1_000, 10_000)
TIMEOUT = 600.0
"""Seconds one size may take."""


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """Tell growing numbers of listeners."""
    taken: list[tuple[float, float]] = []
    collected: list[tuple[float, float]] = []
    held: list[tuple[float, float]] = []
    for size in (30, 100, 300) if quick else SIZES:
        command = [sys.executable, "-m", "benchmarks.workers.fanout", str(size)]
        found = json.loads(await output_of(command, within=TIMEOUT, what=f"{size} listeners"))
        taken.append((size, 1000 * found["seconds"]))
        if found["collector"]:
            collected.append((size, 1000 * found["collector"]))
        held.append((size, found["held"] / 1024))
    return [
        Growth(
            title="From a change until all listeners have heard of it, processor time",
            unit="ms",
            size="listeners",
            figures={"mcp_trio": taken, "Python's collector, beside": collected},
            most={"mcp_trio": 1.15},
        ),
        Growth(
            title="Memory of each listener, both ends",
            unit="KiB",
            size="listeners",
            figures={"mcp_trio": held},
            most={"mcp_trio": 0.1},
        ),
    ]
