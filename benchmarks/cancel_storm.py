"""What is left of thousands of calls that are cancelled at once, and how long does it take?

Client and server in memory, in a process of their own for each size. Nobody else is measured: the
question is what is left over, and how the time grows. Anything left over is a failure.
"""

from __future__ import annotations

import json
import sys

from benchmarks.calls import HANDSHAKE, STATELESS
from benchmarks.findings import Finding, Growth, Rounds
from benchmarks.processes import output_of

SIZES = (1_000, 10_000, 100_000)
TIMEOUT = 900.0
"""Seconds one storm may take."""
ALLOWED_GROWTH = 0.05
"""Part of the memory blocks in use by which they may have grown."""
MOST = 1.2
"""The power with which the time may grow."""


async def storms(what: str, sizes: tuple[int, ...], verb: str) -> list[Finding]:
    """Run storms of a kind and of growing size.

    Args:
        what: kind that the worker knows.
        sizes: calls in flight.
        verb: how they end, in words.
    """
    taken: dict[str, list[tuple[float, float]]] = {STATELESS: [], HANDSHAKE: []}
    collected: dict[str, list[tuple[float, float]]] = {}
    growth: dict[str, list[float]] = {}
    failures: dict[str, str] = {}
    for size in sizes:
        for revision, points in taken.items():
            name = f"{size:,} calls, {revision}"
            command = [sys.executable, "-m", "benchmarks.workers.storm", what, str(size), revision]
            left = json.loads(await output_of(command, within=TIMEOUT, what="the storm"))
            points.append((size, 1000 * left["seconds"]))
            beside = collected.setdefault(f"Python's collector, beside {revision}", [])
            if left["collector"]:
                beside.append((size, 1000 * left["collector"]))
            grown = left["blocks_after"] / left["blocks_before"] - 1
            growth[name] = [100 * grown]
            kept = {key: left[key] for key in ("orphan_tasks", "pending", "in_flight") if left[key]}
            if grown > ALLOWED_GROWTH:
                kept["memory blocks"] = f"{grown:+.1%}"
            if kept:
                failures[name] = f"left over: {kept}"
                growth[name] = []
    return [
        Growth(
            title=f"Processor time until all calls have ended that {verb}",
            unit="ms",
            size="calls in flight",
            figures=taken | collected,
            most=dict.fromkeys(taken, MOST),
        ),
        Rounds(
            title="Memory blocks in use afterwards, against before",
            unit="% more",
            better="less",
            figures=growth,
            failures=failures,
            rivals=False,
        ),
    ]


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """Cancel everything at once."""
    sizes = (100, 300, 1_000) if quick else SIZES
    return await storms("cancel", sizes, "were cancelled at once")
