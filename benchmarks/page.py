"""Findings as a page that stands by itself, and as pictures.

The pictures are drawn by matplotlib, which is an extra (`bench`): everything else runs without.
"""

from __future__ import annotations

import base64
import html
import importlib.util
import io
import itertools
import math
import random
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from benchmarks.findings import Cell, Finding, Grid, Growth, Outcome, Rounds, Waits, percentile
from benchmarks.report import cell, number, text_of

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1d2433; background: #fff; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 3rem; border-bottom: 1px solid #ccd; }
img { max-width: 100%; height: auto; background: #fff; }
pre { overflow-x: auto; font-size: 13px; background: #f4f5f8; padding: 1rem; }
.fault { color: #a11; font-weight: 600; }
"""
BAD, NEVER = "#a11", "#e58a86"
FEW_STEPS = 1000
"""Times by which values on an axis differ at most, that has numbers between the tens."""
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
    from PIL import Image

    rows = 8 if isinstance(finding, Growth) else len(finding.figures) + len(finding.failures) / 2
    figure: Any = Figure(figsize=(9, 1.6 + 0.36 * max(rows, 3)), dpi=100, layout="constrained")
    axes: Any = figure.add_subplot()
    axes.set_title(finding.title, loc="left", fontsize=11, pad=10, wrap=True)
    axes.spines[["top", "right"]].set_visible(False)
    match finding:
        case Rounds():
            _bars(axes, finding)
        case Waits():
            _distributions(axes, finding)
        case Growth():
            _curves(axes, finding)
        case Grid():
            _cells(axes, finding)
    drawn, file = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", metadata={"Software": None})
    # A few dozen colours are a third of the size; Pillow is what matplotlib writes files with.
    Image.open(drawn).convert("RGB").quantize(128, method=Image.Quantize.FASTOCTREE).save(
        file, format="png", optimize=True
    )
    return file.getvalue()


def _colours() -> Iterator[str]:
    yield OURS
    while True:
        yield from OTHERS


def _colour(name: str, finding: Rounds | Waits) -> str:
    ours = next(iter(finding.figures))
    return OURS if name == ours or name.startswith("mcp_trio") else OTHERS[0]


def _bars(axes: Any, finding: Rounds) -> None:
    names = list(finding.figures)[::-1]
    middles = [statistics.median(finding.figures[name] or [0.0]) for name in names]
    spreads = [
        (middle - min(values), max(values) - middle)
        if (values := finding.figures[name])
        else (0, 0)
        for name, middle in zip(names, middles, strict=True)
    ]
    colours = [_colour(name, finding) for name in names]
    axes.barh(names, middles, xerr=list(zip(*spreads, strict=True)), color=colours, capsize=3)
    ours, ratios = next(iter(finding.figures)), finding.ratios()
    for place, (name, middle) in enumerate(zip(names, middles, strict=True)):
        told = f" {number(middle)}" if finding.figures[name] else " failed"
        if ratio := ratios.get(name):
            told += f"   ({ours} is {ratio:.2f} times as good)"
        axes.text(max([middle, *finding.figures[name]]), place, told, va="center", fontsize=9)
    # Room for the words behind the longest bar.
    axes.set_xlim(right=1.45 * max([*middles, *itertools.chain(*finding.figures.values())]))
    axes.set_xlabel(f"{finding.unit}: {finding.better} is better")


def _distributions(axes: Any, finding: Waits) -> None:
    """A row of dots for each contender, one dot for each wait, and its percentiles in words."""
    names = list(finding.figures)[::-1]
    scatter = random.Random(1)
    for place, name in enumerate(names):
        came, colour = finding.came(name), _colour(name, finding)
        rows = [place + scatter.uniform(-0.26, 0.26) for _ in came]
        axes.scatter(came, rows, s=9, color=colour, alpha=0.45, linewidths=0)
        for part, style in ((0.5, "-"), (0.99, ":")):
            if came:
                value = percentile(came, part)
                axes.plot([value, value], [place - 0.38, place + 0.38], style, color="black")
        never = len(finding.figures[name]) - len(came)
        words: list[str] = []
        if came:
            middle, late = (number(percentile(came, part)) for part in (0.5, 0.99))
            words.append(f"p50 {middle}, p99 {late}")
        if never:
            words.append(f"NEVER: {never} of {len(finding.figures[name])}")
        if name in finding.failures:
            words.append("failed")
        axes.text(
            1.01,
            place,
            "\n".join(words),
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=9,
            color=BAD if never or name in finding.failures else "black",
        )
    _logarithmic(axes.xaxis, [wait for name in names for wait in finding.came(name)])
    axes.grid(axis="x", color="#dde", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_xlabel(
        f"{finding.unit}, each dot one call: further left is better\n"
        "line: half of them had ended (p50); dotted: 99 of 100 (p99)"
    )


def _logarithmic(axis: Any, values: list[float]) -> None:
    """Give an axis steps of tens, with plain numbers, and some between them if there is room."""
    from matplotlib.ticker import LogLocator

    axis.axes.set_xscale("log") if axis.axis_name == "x" else axis.axes.set_yscale("log")
    wide = bool(values) and max(values) > FEW_STEPS * max(min(values), 1e-9)
    axis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(lambda value, _: number(value))
    axis.set_minor_formatter("")


def _curves(axes: Any, finding: Growth) -> None:
    powers, heights = finding.exponents(), list[float]()
    for (name, points), colour in zip(finding.figures.items(), _colours(), strict=False):
        told = name
        if name in powers and not finding.rate:
            told = f"{name}\n(grows with power {powers[name]:.2f})"
        shown = [(size, 1e6 / cost if finding.rate else cost) for size, cost in points]
        heights += [height for _, height in shown]
        axes.plot(*zip(*shown, strict=True), marker="o", color=colour, label=told)
    axes.set_xscale("log")
    sizes = sorted({size for points in finding.figures.values() for size, _ in points})
    axes.set_xticks(sizes, [f"{size:,.0f}" for size in sizes])
    axes.xaxis.set_minor_formatter("")
    _logarithmic(axes.yaxis, heights)
    said = f"{finding.rate}: higher" if finding.rate else f"{finding.unit}: lower"
    axes.set_ylabel(f"{said} is better")
    axes.grid(color="#dde", linewidth=0.8)
    axes.set_xlabel(finding.size)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)


def _cells(axes: Any, finding: Grid) -> None:
    """A table whose cells are the darker the more there is in them."""
    names = list(finding.figures)
    numbers = [c for cells in finding.figures.values() for c in cells if isinstance(c, float | int)]
    most = max([1.0, *numbers])
    for place, name in enumerate(names):
        for column, value in enumerate(finding.figures[name]):
            colour = _shade(value, most)
            axes.add_patch(_square(column, place, colour))
            axes.text(
                column, place, cell(value), ha="center", va="center", fontsize=9, color="black"
            )
    axes.set_xlim(-0.5, len(finding.columns) - 0.5)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xticks(range(len(finding.columns)), finding.columns)
    axes.set_yticks(range(len(names)), names)
    for label in axes.get_yticklabels():
        label.set_color(OURS if label.get_text().startswith("mcp_trio") else "black")
    axes.tick_params(length=0)
    axes.xaxis.tick_top()
    axes.spines[:].set_visible(False)
    axes.set_xlabel(f"{finding.unit}: less is better")


def _shade(value: Cell, most: float) -> str:
    if value is None:
        return NEVER
    if isinstance(value, str):
        return "#eef0f4"
    if value == 0:
        return "#e3f1e5"
    # By its logarithm: what counts is the order of size.
    part = math.log1p(value) / math.log1p(most)
    return f"#{255:02x}{int(240 - 85 * part):02x}{int(222 - 130 * part):02x}"


def _square(column: int, row: int, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle(
        (column - 0.5, row - 0.5), 1, 1, facecolor=colour, edgecolor="white", linewidth=2
    )
