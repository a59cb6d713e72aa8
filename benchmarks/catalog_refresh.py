"""What do loading a catalog, one change of it and no change cost, from 10 to 100,000 operations?

Nobody else's product is beside it: what matters is how the figures grow. Each size has a process
of its own, in which everything is set as `mcp-trio serve` sets it.
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

from benchmarks.findings import Finding, Growth, Rounds
from benchmarks.processes import output_of

TIMEOUT = 900.0
"""Seconds one size may take."""
SIZES = (10, 1_000, 10_000, 100_000)
PART = 100
"""A change in the largest catalog may take one in so many of a load."""

Figures: TypeAlias = dict[int, dict[str, Any]]


@functools.cache
def _kept() -> dict[tuple[bool, int], dict[str, Any]]:
    return {}


async def catalogs(*, quick: bool) -> Figures:
    """Measure each size, once for all benchmarks of this process that ask for it."""
    for size in SIZES[:3] if quick else SIZES:
        if (quick, size) not in _kept():
            rounds = 3 if quick else 9
            command = [sys.executable, "-m", "benchmarks.workers.catalog", str(size), str(rounds)]
            said = await output_of(command, within=TIMEOUT, what=f"{size} operations")
            _kept()[quick, size] = json.loads(said)
    return {size: figures for (_, size), figures in _kept().items()}


def middle(rounds: Sequence[Sequence[float]]) -> float:
    """The median of what was used of the processor, in milliseconds."""
    return 1000 * statistics.median(each[1] for each in rounds)


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """Load, change, look."""
    found = await catalogs(quick=quick)
    largest = max(found)
    load = 1000 * found[largest]["load"][1]
    change = middle(found[largest]["changed"])
    failures = {}
    if largest == SIZES[-1] and change * PART > load:
        failures["one change"] = f"takes 1/{load / change:.0f} of a load, not 1/{PART} at most"
    return [
        Growth(
            title="Processor time of a catalog",
            unit="ms",
            size="operations",
            figures={
                "load everything": [(n, 1000 * each["load"][1]) for n, each in found.items()],
                "look, one changed": [(n, middle(each["changed"])) for n, each in found.items()],
                "look, nothing changed": [(n, middle(each["idle"])) for n, each in found.items()],
            },
            most={"load everything": 1.1, "look, one changed": 0.5, "look, nothing changed": 0.1},
        ),
        Growth(
            title="Longest pause of the event loop",
            unit="ms",
            size="operations",
            figures={
                "while it is loaded": [(n, 1000 * each["load_pause"]) for n, each in found.items()],
                "at a change": [(n, 1000 * max(each["pauses"])) for n, each in found.items()],
            },
        ),
        Rounds(
            title=f"{largest:,} operations, processor time",
            unit="ms",
            better="less",
            figures={"one change": [] if failures else [change], "load everything": [load]},
            failures=failures,
        ),
        Growth(
            title="Memory of each operation",
            unit="KiB",
            size="operations",
            figures={
                "resident": [(n, each["held"] / n / 1024) for n, each in found.items() if n >= 1000]
            },
            most={"resident": 0.1},
        ),
    ]
