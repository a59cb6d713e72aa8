"""What a benchmark has found: numbers of contenders in words of four kinds, and nothing of paper.

Pure. How findings look is for `report` (text) and `page` (HTML and pictures).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import attrs


@attrs.frozen(kw_only=True)
class Rounds:
    """One number of each contender, round by round. The first contender is ours."""

    title: str
    unit: str
    better: Literal["more", "less"]
    figures: dict[str, list[float]]
    """Empty for a contender that failed."""
    failures: dict[str, str] = attrs.field(factory=dict[str, str])
    """Why, by contender."""
    rivals: bool = True
    """Whether they are contenders, and no parts of one thing."""

    def ratios(self) -> dict[str, float | None]:
        """How many times better ours is than each other one; None where one of them failed."""
        if not self.rivals:
            return {}
        ours, *others = self.figures.values()
        names = list(self.figures)[1:]
        return {
            name: ratio(ours, other, more=self.better == "more")
            for name, other in zip(names, others, strict=True)
        }


@attrs.frozen(kw_only=True)
class Waits:
    """How long each contender took, wait by wait; None is one that was given up."""

    title: str
    unit: str = "ms"
    figures: dict[str, list[float | None]]
    failures: dict[str, str] = attrs.field(factory=dict[str, str])

    def came(self, name: str) -> list[float]:
        """Those that had an end, in order of length."""
        return sorted(wait for wait in self.figures[name] if wait is not None)


@attrs.frozen(kw_only=True)
class Growth:
    """What something costs at growing sizes."""

    title: str
    unit: str
    size: str
    """What grows."""
    figures: dict[str, list[tuple[float, float]]]
    """Sizes and costs, by what or who."""
    rate: str = ""
    """What comes in a second where cost is microseconds for each: a picture shows that then."""
    most: dict[str, float] = attrs.field(factory=dict[str, float])
    """The exponent that is still all right, for those that are judged."""

    def exponents(self) -> dict[str, float]:
        """By how much cost grows with size: 0 not at all, 1 in proportion, 2 with its square."""
        return {name: exponent(points) for name, points in self.figures.items() if len(points) > 1}

    def faults(self) -> list[str]:
        """What grows faster than it may."""
        return [
            f"{self.title}: {name} grows with power {found:.2f}, not {self.most[name]:g} at most"
            for name, found in self.exponents().items()
            if name in self.most and found > self.most[name]
        ]


Cell: TypeAlias = float | str | None
"""A number; in words why there is none; or None for what never came."""


@attrs.frozen(kw_only=True)
class Grid:
    """One number of each contender for each of several things that may happen; less is better."""

    title: str
    unit: str
    columns: list[str]
    """What happens."""
    figures: dict[str, list[Cell]]
    """By contender, in the order of the columns."""
    failures: dict[str, str] = attrs.field(factory=dict[str, str])


Finding: TypeAlias = Rounds | Waits | Growth | Grid


@attrs.frozen(kw_only=True)
class Outcome:
    """One benchmark that was run."""

    name: str
    question: str
    findings: list[Finding]
    seconds: float
    failure: str | None = None
    """Why there are no findings."""

    @property
    def faults(self) -> list[str]:
        """What failed, of anybody, and what grows too fast."""
        whole = [] if self.failure is None else [f"{self.name} failed: {self.failure}"]
        failed = [
            f"{name} failed: {why}"
            for finding in self.findings
            if not isinstance(finding, Growth)
            for name, why in finding.failures.items()
        ]
        grown = [
            fault
            for finding in self.findings
            if isinstance(finding, Growth)
            for fault in finding.faults()
        ]
        # Who fails does so in all findings of a benchmark, mostly: once is enough.
        return list(dict.fromkeys(whole + failed + grown))

    def as_json(self) -> dict[str, Any]:
        """All of it, for machines."""
        findings = [
            {"kind": type(finding).__name__.lower(), **attrs.asdict(finding)}
            for finding in self.findings
        ]
        return {
            "name": self.name,
            "question": self.question,
            "seconds": round(self.seconds, 1),
            "failure": self.failure,
            "faults": self.faults,
            "findings": findings,
        }

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Outcome:
        """What `as_json` made of one."""
        findings = [
            KINDS[each["kind"]](**{key: each[key] for key in each if key != "kind"})
            for each in told["findings"]
        ]
        return cls(
            name=told["name"],
            question=told["question"],
            findings=findings,
            seconds=told["seconds"],
            failure=told.get("failure"),
        )


KINDS: dict[str, Callable[..., Finding]] = {
    "rounds": Rounds,
    "waits": Waits,
    "growth": Growth,
    "grid": Grid,
}
"""By their name in JSON."""


def percentile(ordered: Sequence[float], part: float) -> float:
    """The value that `part` of the values do not exceed; they are in order."""
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def ratio(ours: Sequence[float], theirs: Sequence[float], *, more: bool) -> float | None:
    """How many times better the median of ours is."""
    if not ours or not theirs:
        return None
    mine, other = statistics.median(ours), statistics.median(theirs)
    return mine / other if more else other / mine


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """The slope of cost against size, both as logarithms: a least squares fit."""
    usable = [(math.log(size), math.log(max(cost, 1e-12))) for size, cost in points]
    return statistics.linear_regression(*zip(*usable, strict=True)).slope
