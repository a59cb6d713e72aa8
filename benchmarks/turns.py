"""Workers that call one after the other and then many at a time: taking turns, and what they found.

Each worker prints a JSON object: by the number of calls at a time, calls in a second and
microseconds of the processor for each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.findings import Finding, Rounds
from benchmarks.processes import ProgramError, output_of
from benchmarks.workers.keeping import WIDTHS

TIMEOUT = 120.0
"""Seconds one worker may take."""


async def turns(
    title: str, whose: str, commands: Mapping[str, Sequence[str | Path]], rounds: int
) -> list[Finding]:
    """Run the workers in turn, round by round.

    Args:
        title: of what they do.
        whose: processor is told.
        commands: by contender, ours first.
        rounds: how often each one runs.
    """
    told: dict[str, list[dict[str, tuple[float, float]]]] = {name: [] for name in commands}
    failures: dict[str, str] = {}
    for _ in range(rounds):
        for name, command in commands.items():
            if name not in failures:
                try:
                    told[name].append(
                        json.loads(await output_of(command, within=TIMEOUT, what=name))
                    )
                except ProgramError as error:
                    failures[name] = error.reason
    for name in failures:
        told[name].clear()
    findings: list[Finding] = []
    for width in WIDTHS:
        speeds, costs = (
            {name: [each[str(width)][part] for each in every] for name, every in told.items()}
            for part in (0, 1)
        )
        work = f"{title}, {width} at a time"
        findings += [
            Rounds(
                title=work,
                unit="calls a second",
                better="more",
                figures=speeds,
                failures=failures,
            ),
            Rounds(
                title=f"{work}, processor time of the {whose}",
                unit="µs a call",
                better="less",
                figures=costs,
                failures=failures,
            ),
        ]
    return findings
