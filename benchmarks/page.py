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
.picture { overflow-x: auto; }
img { min-width: 40rem; max-width: 100%; height: auto; background: #fff; }
pre { overflow-x: auto; font-size: 13px; background: #f4f5f8; padding: 1rem; }
.fault { color: #a11; font-weight: 600; }
"""
BAD, NEVER = "#a11", "#e58a86"
FEW_STEPS = 1000
"""Times by which values on an axis differ at most, that has numbers between the tens."""
ONE_STEP = 5
"""The same of one that has all of them."""
OURS, OTHERS = (
    "#c2410c",
    ("#1d4ed8", "#0f766e", "#6d28d9", "#4b5563", "#a16207", "#be185d", "#0891b2", "#65a30d"),
)


READING = """
<details open><summary>How to read the pictures</summary><ul>
<li>Orange is mcp_trio, other colours are other packages: &ldquo;official&rdquo; is the official
SDK for Python, TypeScript the official one for that language; a <em>floor</em> is a program that
knows nothing of the protocol, so nobody can do better.</li>
<li>A bar ends at the median of the rounds, the thin line in it goes from the lowest to the highest
of them. &ldquo;Ratio 1.5&rdquo; beside it: mcp_trio did one and a half times as well as this one;
less than 1: worse.</li>
<li>Where each dot is a call, the words at the right tell within which time half of the calls (p50)
and 99 of 100 of them (p99) had ended. Never: it had not ended when measuring gave up on it.</li>
<li>On a logarithmic axis it is as far from 1 to 10 as from 10 to 100. A line that &ldquo;grows with
power 1&rdquo; grows as its size does; 0: not at all; 2: with its square.</li>
<li>2025-11-25 and 2026-07-28 are revisions of the protocol: in the first a client opens a session
with a handshake, in the second each request stands alone.</li>
<li>Whoever did not do the work, or gave a wrong answer, is shown as failed, and why.</li>
</ul></details>
"""


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
    parts.append(READING)
    if quick:
        parts.append("<p class=fault>A quick run: it shows that everything works, and no more.</p>")
    links = ", ".join(
        f"<a href='#{outcome.name}'>{outcome.name}</a>{' (failures)' if outcome.faults else ''}"
        for outcome in outcomes
    )
    parts.append(f"<p>On this page: {links}</p>")
    for outcome in outcomes:
        parts.append(f"<h2 id='{outcome.name}'>{outcome.name}</h2>")
        parts.append(f"<p>{html.escape(outcome.question)}</p>")
        parts += [f"<p class=fault>{html.escape(fault)}</p>" for fault in outcome.faults]
        for finding in outcome.findings:
            data = base64.b64encode(picture(finding)).decode()
            told = html.escape(finding.title, quote=True)
            shown = f"<img alt='{told}' src='data:image/png;base64,{data}'>"
            parts.append(f"<p class=picture>{shown}</p>")
        numbers = html.escape(text_of(outcome))
        parts.append(f"<details><summary>Numbers</summary><pre>{numbers}</pre></details>")
    return "\n".join(parts) + "\n"


def write_pictures(outcomes: list[Outcome], machine: str, folder: Path, *, quick: bool) -> None:
    """Write each picture to a file of its own, with the machine and the command under it."""
    told = f"{machine}{', quick: no figures to rely on' if quick else ''}"
    folder.mkdir(parents=True, exist_ok=True)
    for outcome in outcomes:
        for place, finding in enumerate(outcome.findings, 1):
            (folder / f"{outcome.name}-{place}.png").write_bytes(
                picture(finding, under=f"mcp_trio: python -m benchmarks {outcome.name}. {told}")
            )


def picture(finding: Finding, *, under: str = "") -> bytes:
    """One finding, as PNG, with a line under it for those who have nothing but the picture."""
    from matplotlib.figure import Figure
    from PIL import Image

    rows = 8 if isinstance(finding, Growth) else len(finding.figures) + len(finding.failures) / 2
    figure: Any = Figure(figsize=(9, 1.6 + 0.36 * max(rows, 3)), dpi=100, layout="constrained")
    axes: Any = figure.add_subplot()
    if under:
        figure.supxlabel(under, x=0.01, ha="left", fontsize=7, color="#667")
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
        told = f" {number(middle)}" if finding.figures[name] else " FAILED"
        if (ratio := ratios.get(name)) and not name.startswith("mcp_trio"):
            told += f"   (ratio {ratio:.2f})"
        axes.text(
            max([middle, *finding.figures[name]]),
            place,
            told,
            va="center",
            fontsize=9,
            color="black" if finding.figures[name] else BAD,
        )
    # Room for the words behind the longest bar, and something where all have failed.
    longest = max([*middles, *itertools.chain(*finding.figures.values())])
    axes.set_xlim(left=min([0.0, *middles]), right=1.3 * longest if longest > 0 else 1)
    label = f"{finding.unit}: {finding.better} is better"
    if any(ratios.values()):
        label += f"\nratio: how many times as good as this one {ours} is"
    axes.set_xlabel(label)


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
            words.append("FAILED")
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
        f"{finding.unit}, each dot one call, on a logarithmic scale: further left is better\n"
        "line: half of them had ended (p50); dotted: 99 of 100 (p99)"
    )


def _logarithmic(axis: Any, values: list[float]) -> None:
    """Give an axis steps of tens, with plain numbers, and some between them if there is room."""
    from matplotlib.ticker import LogLocator

    if not any(value > 0 for value in values):
        axis.set_ticks([])
        return
    axis.axes.set_xscale("log") if axis.axis_name == "x" else axis.axes.set_yscale("log")
    width = max(values) / max(min(values), 1e-9)
    parts = (1, 2, 3, 4, 5, 6, 7, 8, 9) if width < ONE_STEP else (1, 2, 5)
    axis.set_major_locator(LogLocator(subs=(1,) if width > FEW_STEPS else parts))
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
    axes.set_ylabel(f"{said} is better (logarithmic)")
    axes.grid(color="#dde", linewidth=0.8)
    axes.set_xlabel(f"{finding.size} (logarithmic)")
    if not finding.figures:
        axes.text(0.5, 0.5, "all FAILED", transform=axes.transAxes, ha="center", color=BAD)
        return
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)


def _cells(axes: Any, finding: Grid) -> None:
    """A table whose cells are the darker the more there is in them."""
    failed: dict[str, list[Cell]] = {
        name: ["FAILED" for _ in finding.columns] for name in finding.failures
    }
    names = [*finding.figures, *failed]
    numbers = [c for cells in finding.figures.values() for c in cells if isinstance(c, float | int)]
    most = max([1.0, *numbers])
    for place, name in enumerate(names):
        for column, value in enumerate((finding.figures | failed)[name]):
            colour = NEVER if name in failed else _shade(value, most)
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
