"""Small parts at growing sizes, for the benchmarks of each."""

from __future__ import annotations

import json
import sys

from benchmarks.findings import Growth
from benchmarks.processes import output_of

SIZES = (10, 100, 1_000, 10_000)
TIMEOUT = 300.0
"""Seconds one part may take."""


async def grown(part: str, size: str, most: dict[str, float], *, quick: bool) -> Growth:
    """Measure a part that the worker knows, in a process of its own."""
    sizes = SIZES[:3] if quick else SIZES
    command = [sys.executable, "-m", "benchmarks.workers.small", part, *map(str, sizes)]
    found = json.loads(await output_of(command, within=TIMEOUT, what=part))
    figures = {
        name: [(number, 1e6 * found[str(number)][name]) for number in sizes]
        for name in found[str(sizes[0])]
    }
    return Growth(title=f"{part}: time", unit="µs", size=size, figures=figures, most=most)
