"""A catalog of 10 to 100,000 operations: what loading, one change, listing and keeping it cost.

Nobody else's product is beside it: what matters is how the figures grow. Each size has a process
of its own, in which everything is set as `mcp-trio serve` sets it.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

import click
import trio

from benchmarks import report
from benchmarks.processes import output_of

TIMEOUT = 900.0
"""Seconds one size may take."""
SIZES = (10, 1_000, 10_000, 100_000)

Figures: TypeAlias = dict[str, Any]


def middle(rounds: Sequence[Sequence[float]], which: int = 0) -> float:
    """The median of what passed (0) or of what was used of the processor (1)."""
    return statistics.median(each[which] for each in rounds)


def rows(figures: Figures, count: int) -> list[str]:
    """The cells of one size."""
    load, changed = figures["load"], figures["changed"]
    return [
        f"{count:,}",
        f"{load[0]:.2f} s",
        f"{load[1]:.2f} s",
        f"{1e3 * figures['load_pause']:.0f} ms",
        f"{1e3 * middle(changed):.1f} ms",
        f"{1e3 * middle(changed, 1):.1f} ms",
        f"1/{load[1] / middle(changed, 1):,.0f}",
        f"{1e3 * max(figures['pauses']):.1f} ms",
        f"{1e3 * middle(figures['idle'], 1):.2f} ms",
        f"{1e6 * figures['cut']:.0f} µs",
        f"{1e3 * middle(figures['page'], 1):.2f} ms",
        f"{figures['walk'][0][1]:.2f} s",
        f"{figures['walk'][1][1]:.2f} s",
        f"{figures['held'] / count / 1024:.1f} KiB" if count >= 1_000 else "-",
    ]


HEADS = (
    "operations",
    "load",
    "load, processor",
    "load, longest pause",
    "one changed",
    "one changed, processor",
    "of a load",
    "one changed, longest pause",
    "nothing changed, processor",
    "a page of 200, found by the server",
    "a page of 200, server and client",
    "first walk, processor",
    "second walk, processor",
    "memory each",
)


async def measure(sizes: Sequence[int], rounds: int) -> None:
    """Measure size by size and print."""
    columns = []
    for count in sizes:
        command = [sys.executable, "-m", "benchmarks.workers.catalog", str(count), str(rounds)]
        said = await output_of(command, within=TIMEOUT, what=f"{count} operations")
        columns.append(rows(json.loads(said), count))
    for row in zip(HEADS, *columns, strict=True):
        click.echo(f"| {' | '.join(row)} |")
        if row[0] == HEADS[0]:
            click.echo("|---" * len(row) + "|")


@click.command()
@click.option("--quick", is_flag=True, help="Small catalogs: does it run at all?")
def command(*, quick: bool) -> None:
    """Measure catalogs of growing size."""
    click.echo(report.machine())
    trio.run(measure, SIZES[:2] if quick else SIZES, 3 if quick else 9)


if __name__ == "__main__":
    command()
