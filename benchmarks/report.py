"""Findings as text: ratios first, then the numbers behind them.

Pure; what was measured comes in as `findings`.
"""

from __future__ import annotations

import os
import platform
import statistics
from pathlib import Path

from benchmarks.findings import Cell, Finding, Grid, Growth, Outcome, Rounds, Waits, percentile

PARTS = (0.5, 0.99, 0.999)
"""Of waits, that are told."""


def text_of(outcome: Outcome) -> str:
    """One benchmark as Markdown."""
    lines = [f"# {outcome.name}", "", outcome.question, ""]
    for finding in outcome.findings:
        lines += [f"## {finding.title}", "", *lines_of(finding), ""]
    lines += [f"FAULT: {fault}" for fault in outcome.faults]
    return "\n".join(lines)


def lines_of(finding: Finding) -> list[str]:
    """One finding as Markdown, ratios first."""
    match finding:
        case Rounds():
            return _rounds(finding)
        case Waits():
            return _waits(finding)
        case Growth():
            return _growth(finding)
        case Grid():
            return _grid(finding)


def _rounds(finding: Rounds) -> list[str]:
    ours = next(iter(finding.figures))
    lines: list[str] = []
    for name, ratio in finding.ratios().items():
        told = "no ratio, one of them failed" if ratio is None else f"{ratio:.2f}x"
        lines.append(f"- {ours} against {name}: {told}")
    lines += ["", f"| | median {finding.unit} | from | to |", "|---|---|---|---|"]
    for name, values in finding.figures.items():
        if values:
            cells = (statistics.median(values), min(values), max(values))
            lines.append(f"| {name} | {' | '.join(map(number, cells))} |")
        else:
            lines.append(f"| {name} | FAILED: {finding.failures.get(name, 'no answer')} | | |")
    return lines


def _waits(finding: Waits) -> list[str]:
    ours, *others = finding.figures
    mine = finding.came(ours)
    lines: list[str] = []
    for name in others:
        theirs = finding.came(name)
        if mine and theirs:
            told = (
                f"{percentile(theirs, part) / percentile(mine, part):.2f}x (p{100 * part:g})"
                for part in PARTS[:2]
            )
            lines.append(f"- {name} takes, against {ours}: {', '.join(told)} of its time")
        elif finding.failures.keys() & {ours, name}:
            lines.append(f"- {name}: no ratio, one of them failed")
        else:
            lines.append(f"- {name}: no ratio, one of them never came")
    heads = " | ".join(f"p{100 * part:g}" for part in PARTS)
    lines += ["", f"| {finding.unit} | {heads} | never | of |", "|---" * 6 + "|"]
    for name, values in finding.figures.items():
        if name in finding.failures:
            lines.append(f"| {name} | FAILED: {finding.failures[name]} | | | | |")
            continue
        came = finding.came(name)
        cells = [number(percentile(came, part)) if came else "-" for part in PARTS]
        never = len(values) - len(came)
        lines.append(f"| {name} | {' | '.join(cells)} | {never} | {len(values)} |")
    return lines


def _growth(finding: Growth) -> list[str]:
    sizes = sorted({size for points in finding.figures.values() for size, _ in points})
    heads = " | ".join(f"{size:,.0f}" for size in sizes)
    lines = [f"| {finding.unit} by {finding.size} | {heads} | power |"]
    lines.append("|---" * (len(sizes) + 2) + "|")
    powers = finding.exponents()
    for name, points in finding.figures.items():
        costs = dict(points)
        cells = [number(costs[size]) if size in costs else "-" for size in sizes]
        power = f"{powers[name]:.2f}" if name in powers else "-"
        lines.append(f"| {name} | {' | '.join(cells)} | {power} |")
    return lines


def _grid(finding: Grid) -> list[str]:
    lines = [f"| {finding.unit} | {' | '.join(finding.columns)} |"]
    lines.append("|---" * (len(finding.columns) + 1) + "|")
    for name, cells in finding.figures.items():
        lines.append(f"| {name} | {' | '.join(map(cell, cells))} |")
    for name, why in finding.failures.items():
        lines.append(f"| {name} | FAILED: {why} {'| ' * len(finding.columns)}|")
    return lines


def cell(value: Cell) -> str:
    """A figure of a grid, as text."""
    if value is None:
        return "never"
    return value if isinstance(value, str) else number(value)


def number(value: float) -> str:
    """A figure with as many digits as mean something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def machine() -> str:
    """What was measured on, and how busy it was at the start."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    load = os.getloadavg()[0]
    model = models[0] if models else "unknown"
    python = platform.python_version()
    return f"{os.cpu_count()} cores, {model}, Python {python}, load {load:.2f} at start"
