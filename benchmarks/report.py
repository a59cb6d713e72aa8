"""Words for figures: medians, ratios and tables, the same in every benchmark.

Pure; what is measured comes in as numbers.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path


def percentile(values: Sequence[float], part: float) -> float:
    """The value that `part` of the sorted values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def rates(title: str, figures: Mapping[str, Sequence[float]], unit: str) -> str:
    """Rounds of each contender: the ratio to the others first, then the rounds themselves.

    The first contender is ours. One without rounds failed and says so. Larger is better.
    """
    ours, *others = figures
    lines = [f"## {title}", ""]
    base = statistics.median(figures[ours]) if figures[ours] else None
    for name in others:
        peer = figures[name]
        if base is None or not peer:
            lines.append(f"- {ours} against {name}: FAILED, no ratio")
        else:
            lines.append(f"- {ours} against {name}: {base / statistics.median(peer):.2f}x")
    lines += ["", f"| | median {unit} | rounds |", "|---|---|---|"]
    for name, rounds in figures.items():
        middle = f"{statistics.median(rounds):,.0f}" if rounds else "FAILED"
        lines.append(f"| {name} | {middle} | {', '.join(f'{r:,.0f}' for r in rounds)} |")
    return "\n".join([*lines, ""])


def latencies(title: str, figures: Mapping[str, Sequence[float | None]]) -> str:
    """Milliseconds of each contender; None is a wait that was given up. Smaller is better."""
    ours, *others = figures
    lines = [f"## {title}", ""]
    known = {name: [v for v in values if v is not None] for name, values in figures.items()}
    for name in others:
        if not known[ours] or not known[name]:
            lines.append(f"- {ours} against {name}: no ratio, one of them never came")
            continue
        p50, p99 = (
            percentile(known[name], part) / percentile(known[ours], part) for part in (0.5, 0.99)
        )
        lines.append(f"- {name} takes {p50:.1f}x as long as {ours} (p50), {p99:.1f}x (p99)")
    lines += ["", "| | p50 ms | p99 ms | never | of |", "|---|---|---|---|---|"]
    for name, values in figures.items():
        came = known[name]
        cells = [f"{percentile(came, part):.3f}" if came else "-" for part in (0.5, 0.99)]
        lines.append(
            f"| {name} | {' | '.join(cells)} | {len(values) - len(came)} | {len(values)} |"
        )
    return "\n".join([*lines, ""])


def machine() -> str:
    """What the figures were measured on, and how busy it was."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores, {models[0] if models else 'unknown'}, load {load:.2f} at start\n"
    )
