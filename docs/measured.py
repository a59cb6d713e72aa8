"""The measured pictures and tables of the documentation, made of what the benchmarks wrote.

`python -m benchmarks --json numbers.json` measures, and `python docs/measured.py numbers.json` puts
what was found into the pages, also what stands in several files. A place for a finding looks as
`<!-- measured: cancel_waste-1 -->` and ends with `<!-- end -->`: the name of the benchmark, and the
place of the finding in it, as `--png` names its pictures. The name of a benchmark alone is a place
for the numbers of all its findings that have no place of their own on the page, `machine` one for
the machine that was measured on.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import page, report  # noqa: E402 - the checkout is found first
from benchmarks.findings import Finding, Outcome  # noqa: E402

PAGES = (ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "cancellation.md")
PICTURES = "pictures"
PLACE = re.compile(r"(<!-- measured: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def found(told: dict[str, Any]) -> dict[str, Finding]:
    """All findings, by the names of their places."""
    outcomes = [Outcome.from_json(each) for each in told["outcomes"]]
    return {
        f"{outcome.name}-{number}": finding
        for outcome in outcomes
        for number, finding in enumerate(outcome.findings, 1)
    }


def block(name: str, finding: Finding) -> str:
    """One finding: its picture, how to measure it again, and its numbers."""
    benchmark = name.rpartition("-")[0]
    lines = [
        f"![{finding.title}]({PICTURES}/{name}.png)",
        "",
        f"`python -m benchmarks {benchmark} --png pictures` measures it again: `{name}.png`.",
        "",
        "<details><summary>Numbers</summary>",
        "",
        *report.lines_of(finding),
        "",
        "</details>",
    ]
    return "\n".join(lines) + "\n"


def rest(name: str, findings: dict[str, Finding], placed: set[str]) -> str:
    """The numbers of what a benchmark has found beside what has places of its own."""
    lines: list[str] = []
    for place, finding in findings.items():
        if place.rpartition("-")[0] == name and place not in placed:
            lines += [f"**{finding.title}**", "", *report.lines_of(finding), ""]
    return "\n".join(lines)


def page_with_numbers(text: str, told: dict[str, Any]) -> str:
    """The page with what was found in its places; a place of which nothing is known stays."""
    findings = found(told)
    measured = {outcome["name"] for outcome in told["outcomes"]}
    placed = {name for _, name, _ in PLACE.findall(text)}

    def filled(match: re.Match[str]) -> str:
        name = match[2]
        if name == "machine":
            return f"{match[1]}{told['machine']}{', quick' if told['quick'] else ''}.\n{match[3]}"
        if name in measured:
            return match[1] + rest(name, findings, placed) + match[3]
        if name not in findings:
            return match[0]
        return match[1] + block(name, findings[name]) + match[3]

    return PLACE.sub(filled, text)


def main(file: str, *others: str) -> None:
    """Rewrite the pages and their pictures; the machine is that of the first file."""
    page.need_pictures()
    told = json.loads(Path(file).read_text())
    for other in others:
        told["outcomes"] += json.loads(Path(other).read_text())["outcomes"]
    folder = ROOT / "docs" / PICTURES
    folder.mkdir(exist_ok=True)
    findings = found(told)
    for path in PAGES:
        text = path.read_text()
        for _, name, _ in PLACE.findall(text):
            if name in findings:
                (folder / f"{name}.png").write_bytes(page.picture(findings[name]))
        path.write_text(page_with_numbers(text, told))


if __name__ == "__main__":
    main(*sys.argv[1:])
