"""Findings as a page that stands by itself, and as pictures.

The pictures are drawn by matplotlib, which is an extra (`bench`): everything else runs without.
"""

from __future__ import annotations

import base64
import html
import importlib.util
import io
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from benchmarks.findings import Finding, Growth, Outcome, Rounds, Waits
from benchmarks.report import number, text_of

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1d2433; background: #fff; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 3rem; border-bottom: 1px solid #ccd; }
img { max-width: 100%; height: auto; background: #fff; }
pre { overflow-x: auto; font-size: 13px; background: #f4f5f8; padding: 1rem; }
.fault { color: #a11; font-weight: 600; }
"""
OURS, OTHERS = "#c2410c", ("#1d4ed8", "#0f766e", "#6d28d9", "#4b5563", "#a16207")


def need_pictures() -> None:
    """See that pictures can be drawn.

    Raises:
        click.ClickException: matplotlib is missing.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise click.ClickException("pictures need matplotlib: python -m pip install matplotlib")


def html_of(outcomes: list[Outcome], machine: str, *, quick: bool) -> str:
    """The page."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width'><title>mcp_trio: benchmarks</title>",
        f"<style>{STYLE}</style><h1>mcp_trio: benchmarks</h1><p>{html.escape(machine)}</p>",
        "<p>mcp_trio serves and calls the Model Context Protocol. Each part below asks one",
        "question, of it and of others that can do the same work, in turns and on one machine.",
        "Only what was measured in one run may be compared.</p>",
    ]
    if quick:
        parts.append("<p class=fault>A quick run: it shows that everything works, and no more.</p>")
    for outcome in outcomes:
        parts.append(f"<h2>{html.escape(outcome.name)}</h2>")
        parts.append(f"<p>{html.escape(outcome.question)}</p>")
        parts += [f"<p class=fault>{html.escape(fault)}</p>" for fault in outcome.faults]
        for finding in outcome.findings:
            data = base64.b64encode(picture(finding)).decode()
            told = html.escape(finding.title, quote=True)
            parts.append(f"<p><img alt='{told}' src='data:image/png;base64,{data}'></p>")
        numbers = html.escape(text_of(outcome))
        parts.append(f"<details><summary>Numbers</summary><pre>{numbers}</pre></details>")
    return "\n".join(parts) + "\n"


def write_pictures(outcomes: list[Outcome], folder: Path) -> None:
    """Write each picture to a file of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    for outcome in outcomes:
        for place, finding in enumerate(outcome.findings, 1):
            (folder / f"{outcome.name}-{place}.png").write_bytes(picture(finding))


def picture(finding: Finding) -> bytes:
    """One finding, as PNG."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(8.5, 4.2), dpi=110, layout="constrained")
    axes: Any = figure.add_subplot()
    axes.set_title(finding.title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    match finding:
        case Rounds():
            _bars(axes, finding)
        case Waits():
            _distributions(axes, finding)
        case Growth():
            _curves(axes, finding)
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def _colours() -> Iterator[str]:
    yield OURS
    while True:
        yield from OTHERS


def _bars(axes: Any, finding: Rounds) -> None:
    names = list(finding.figures)[::-1]
    middles = [statistics.median(finding.figures[name] or [0.0]) for name in names]
    spreads = [
        (middle - min(values), max(values) - middle)
        if (values := finding.figures[name])
        else (0, 0)
        for name, middle in zip(names, middles, strict=True)
    ]
    ours = next(iter(finding.figures))
    colours = [OURS if name == ours else OTHERS[0] for name in names]
    axes.barh(names, middles, xerr=list(zip(*spreads, strict=True)), color=colours, capsize=3)
    for place, (name, middle) in enumerate(zip(names, middles, strict=True)):
        told = f" {number(middle)}" if finding.figures[name] else " failed"
        axes.text(max([middle, *finding.figures[name]]), place, told, va="center", fontsize=9)
    axes.set_xlabel(f"{finding.unit}: {finding.better} is better")


def _distributions(axes: Any, finding: Waits) -> None:
    for (name, every), colour in zip(finding.figures.items(), _colours(), strict=False):
        came = finding.came(name)
        if not came:
            axes.plot([], [], color=colour, label=f"{name}: never")
            continue
        parts = [100 * (place + 1) / len(every) for place in range(len(came))]
        axes.plot(came, parts, color=colour, label=name, drawstyle="steps-post")
    axes.set_xscale("log")
    axes.set_xlabel(f"{finding.unit}: further left is better")
    axes.set_ylabel("% that had ended by then")
    axes.set_ylim(0, 101)
    axes.legend(fontsize=8, loc="lower right")


def _curves(axes: Any, finding: Growth) -> None:
    powers = finding.exponents()
    for (name, points), colour in zip(finding.figures.items(), _colours(), strict=False):
        told = f"{name} (power {powers[name]:.2f})" if name in powers else name
        axes.plot(*zip(*points, strict=True), marker="o", color=colour, label=told)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(finding.size)
    axes.set_ylabel(f"{finding.unit}: lower is better")
    axes.legend(fontsize=8)
