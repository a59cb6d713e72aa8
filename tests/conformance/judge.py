"""Judging a run of the official conformance suite: pure, from what it wrote to a report.

The suite's own ticks and exit status are not trusted: a warning does not lower them, and a
scenario that could check nothing shows a tick. Here checks are counted, a warning or a skipped
check is a fault, and every scenario that is not plainly green has to be explained by
`baseline.toml`. Running the suite is `run.py`'s job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

SCHEMA_CHECK = "wire-schema-valid"
"""Added by the suite to most scenarios; passing it alone shows no behaviour."""
ENDED = "played to the end"
"""What our client says last. The suite does not mind one that fails after its last check."""

SIDES = ("server", "client")
"""What the suite can have in front of it."""

_FOLDER = re.compile(r"(?P<name>.+)-\d{4}-\d{2}-\d{2}T[\d-]+Z")
_PREFIX = {"server": "server-", "client": ""}
"""What stands before the name of a scenario in the name of its folder."""
_LISTED = re.compile(r"^\s+- (?P<name>\S+)(?: \[(?P<tag>[\w,-]+)\])?$")


@attrs.frozen(kw_only=True)
class Outcome:
    """What one scenario showed."""

    passed: int = 0
    """Checks that succeeded."""
    behaviour: int = 0
    """Those of them that are about more than the shape of messages."""
    faults: tuple[str, ...] = ()
    """Checks that failed, warned or were left out, in words."""
    malformed: bool = False
    """Whether a message of ours broke the schema, which no missing feature excuses."""

    @property
    def green(self) -> bool:
        """Whether something was checked and all of it held."""
        return self.behaviour > 0 and not self.faults


@attrs.frozen(kw_only=True)
class Baseline:
    """What is expected of one side in one revision; read from `baseline.toml`."""

    least: Mapping[str, int]
    """Scenarios that must be green, or at least run so many successful checks."""
    unbuilt: Mapping[str, str]
    """Scenarios that fail or check nothing because of a missing feature, with that feature."""
    hollow: Mapping[str, str]
    """Scenarios that are green without a fixture, with the tool that would be the fixture."""


@attrs.frozen(kw_only=True)
class Report:
    """The judgement of one run."""

    run: str
    """Which side, and which revision."""
    passed: int
    """Successful checks of the scenarios that count."""
    green: int
    """Scenarios that count and are green."""
    expected: Mapping[str, str]
    """Scenarios that the baseline explains, with the reason."""
    problems: tuple[str, ...]
    """Everything that must not be; empty when the run is good."""


def read_outcome(checks: Iterable[Mapping[str, Any]]) -> Outcome:
    """Count the checks of one scenario."""
    passed = behaviour = 0
    malformed = False
    faults: list[str] = []
    for check in checks:
        status = check["status"]
        if status == "SUCCESS":
            passed += 1
            behaviour += check["id"] != SCHEMA_CHECK
        elif status in {"FAILURE", "WARNING", "SKIPPED"}:
            malformed |= check["id"] == SCHEMA_CHECK
            faults.append(f"{status} {check['id']}: {check.get('errorMessage', '')}")
    return Outcome(passed=passed, behaviour=behaviour, faults=tuple(faults), malformed=malformed)


def read_results(folder: Path, side: str) -> dict[str, Outcome]:
    """Read what the suite wrote: one folder with `checks.json` for each scenario.

    A name with a slash is a folder in a folder.

    Raises:
        ValueError: a folder with a name that is none of a scenario.
    """
    found: dict[str, Outcome] = {}
    for path in sorted(folder.rglob("checks.json")):
        name = path.parent.relative_to(folder).as_posix()
        match = _FOLDER.fullmatch(name)
        if match is None or not name.startswith(_PREFIX[side]):
            raise ValueError(f"the suite names its folders in a new way: {name}")
        outcome = read_outcome(json.loads(path.read_text()))
        if side == "client" and not _said(path, "stdout.txt").endswith(ENDED):
            fault = f"the client failed: {_said(path, 'stderr.txt')[-400:]}"
            outcome = attrs.evolve(outcome, faults=(*outcome.faults, fault))
        found[match["name"].removeprefix(_PREFIX[side])] = outcome
    return found


def _said(checks: Path, stream: str) -> str:
    """What a client wrote; the suite keeps it beside the checks."""
    path = checks.with_name(stream)
    return path.read_text().strip() if path.exists() else ""


def read_listing(text: str, side: str) -> list[str]:
    """Read the names of one side's scenarios from a list that the suite prints.

    They stand under a heading for their side, or carry it in brackets.
    """
    names: list[str] = []
    section = ""
    for line in text.splitlines():
        match = _LISTED.match(line)
        if match is None:
            section = line if line.strip() else section
            continue
        heading = section.split()[0].lower()
        if (match["tag"] if match["tag"] in SIDES else heading) == side:
            names.append(match["name"])
    return names


def read_baseline(document: Mapping[str, Any], side: str, revision: str) -> Baseline:
    """Take the part of `baseline.toml` that concerns one side in a revision.

    Raises:
        ValueError: a scenario is listed twice, or an entry has no reason.
    """
    part = document[side]
    unbuilt: dict[str, str] = {}
    for entry in part["unbuilt"]:
        if not entry["reason"].strip():
            raise ValueError(f"{entry['feature']}: a reason is missing")
        for name in entry.get(revision, ()):
            if name in unbuilt:
                raise ValueError(f"{name} is listed twice for {side} {revision}")
            unbuilt[name] = entry["feature"]
    hollow = {
        name: entry["needs"]
        for entry in part["hollow"]
        for name in entry.get(revision, ())
        if name not in unbuilt
    }
    return Baseline(least=part["least"][revision], unbuilt=unbuilt, hollow=hollow)


def judge(
    run: str,
    baseline: Baseline,
    *,
    listed: Iterable[str],
    outcomes: Mapping[str, Outcome],
    tools: Iterable[str],
) -> Report:
    """Compare what happened with what was expected.

    Args:
        run: for the report.
        baseline: what was expected.
        listed: the scenarios the suite says it runs.
        outcomes: what it wrote.
        tools: names of the tools the fixture server offers; a client offers none.
    """
    offered = frozenset(tools)
    names = [*dict.fromkeys([*listed, *outcomes])]
    problems = [
        f"{name}: expected by the baseline, unknown to the suite"
        for name in (*baseline.least, *baseline.unbuilt, *baseline.hollow)
        if name not in names
    ]
    passed = green = 0
    expected: dict[str, str] = {}
    for name in names:
        outcome = outcomes.get(name)
        if outcome is None:
            problems.append(f"{name}: the suite wrote no result")
            continue
        least = baseline.least.get(name, 0)
        if outcome.passed < least:
            problems.append(f"{name}: {outcome.passed} checks passed, {least} are expected")
        if name in baseline.unbuilt:
            expected[name] = baseline.unbuilt[name]
            if outcome.green:
                problems.append(f"{name}: green now, take it out of the baseline")
            if outcome.malformed:
                problems.append(f"{name}: {'; '.join(outcome.faults)}")
        elif name in baseline.hollow and outcome.green:
            expected[name] = f"green without its fixture {baseline.hollow[name]}"
            if baseline.hollow[name] in offered:
                problems.append(f"{name}: its fixture exists now, take it out of the baseline")
        elif outcome.green:
            passed += outcome.passed
            green += 1
        else:
            problems += [f"{name}: {fault}" for fault in outcome.faults]
            if not outcome.faults:
                problems.append(f"{name}: nothing was checked")
    return Report(run=run, passed=passed, green=green, expected=expected, problems=tuple(problems))
