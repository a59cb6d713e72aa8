"""What the regular expressions of a schema cost to compile, told from their text.

An engine unfolds counted repetitions, and a class of Unicode is thousands of ranges: a line
of text may keep it busy for minutes, during which nothing else in the process runs. So patterns
are weighed before any engine sees them. A weight of one is about a microsecond. What is wrong
with a pattern is for the engine to tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import cast

from mcp_trio.wire.basic import JSONObject

MAX_COST = 500_000
"""What all patterns of one schema may weigh together."""

_BASE = 30
"""Any pattern at all."""
_WIDE = 500
"""A class of Unicode."""
_OPEN = 20
"""A class that is everything but something."""
_FOLDED = 100
"""A class beyond ASCII without regard to case."""
_ESCAPE = r"\\[pP](?:\{[^}]*\}|.)|\\(?:[xu]\{[^}]*\}|.)"  # a class of Unicode, or any other one
_TOKEN = re.compile(
    r"\[\^?\]?(?:\\.|[^\]\\])*\]"  # a class; it has no classes in it
    rf"|{_ESCAPE}"
    r"|\{\s*(?P<least>\d+)\s*(?P<most>,[\s\d]*)?\}|\{\s*,\s*(?P<upto>\d+)\s*\}"  # a repetition
    r"|\(\?[^:=!>()]*[:=!>)]?"  # what a group begins with if it is none of the plain ones
    r"|.",
    re.DOTALL,
)
_MEMBER = re.compile(rf"{_ESCAPE}|.", re.DOTALL)
_HARD = re.compile(r"\(\?(?!:)|\\[1-9k]")
"""What the engine leaves its fast way for; there `\\w` is a class of Unicode, too."""
_VERBOSE = re.compile(r"\(\?[a-wyzA-Z]*x")
_BLANKS = re.compile(r"(\\.)|#[^\n]*|\s+", re.DOTALL)
"""What a verbose pattern has between its parts, and the escapes it is not part of."""


def patterns_in(part: object) -> Iterator[str]:
    """The regular expressions that stand in one part of a schema, and not below it."""
    if not isinstance(part, dict):
        return
    held = cast("JSONObject", part)
    single, named = held.get("pattern"), held.get("patternProperties")
    if isinstance(single, str):
        yield single
    if isinstance(named, dict):
        yield from cast("JSONObject", named)


def plain(pattern: str) -> str:
    """The same pattern without what a verbose one has between its parts."""
    if not _VERBOSE.search(pattern):
        return pattern
    return _BLANKS.sub(lambda found: found[1] or "", pattern)


def tokens(pattern: str) -> Iterator[re.Match[str]]:
    """The pieces of a pattern; a class is one piece."""
    return _TOKEN.finditer(pattern)


def members(text: str) -> list[str]:
    """What stands in a class."""
    return _MEMBER.findall(text.removeprefix("[").removeprefix("^").removesuffix("]"))


def cost(pattern: str) -> int:
    """The weight of a pattern; more than `MAX_COST` where it is too heavy."""
    if len(pattern) > MAX_COST:
        return len(pattern)
    return _Scale(plain(pattern)).weigh()


class _Scale:
    """Weighs one pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._hard = _HARD.search(pattern) is not None
        self._folds = "i" in "".join(re.findall(r"\(\?([a-zA-Z]+)", pattern))
        self._groups = [0]
        """What has been weighed of each group that is open, the whole pattern first."""
        self._last = 0
        """What a repetition would repeat."""

    def weigh(self) -> int:
        """The sum."""
        for token in tokens(self._pattern):
            text = token[0]
            if token["least"] or token["upto"]:
                self._repeat(token["least"] or "0", token["most"] or token["upto"] or "")
            elif text[0] == "[" and len(text) > 1:
                self._class(text)
            elif text[0] == "(" and not text.endswith(")"):
                self._groups.append(0)
            elif text == ")" and len(self._groups) > 1:
                self._take(self._groups.pop() + 1)
            elif text not in "*+?|^$":
                self._take(self._weight(text))
            if self._groups[-1] > MAX_COST:
                break
        return _BASE + len(self._pattern) + sum(self._groups)

    def _take(self, weight: int) -> None:
        self._last = weight
        self._groups[-1] += weight

    def _class(self, text: str) -> None:
        # A class is one thing to repeat; ranges that lie over each other become one.
        weight = _OPEN if text[1] == "^" else 1
        count = 0
        for member in members(text):
            beyond = not member.isascii() or member[:2] in {r"\u", r"\x"}
            count += 8 if beyond else 1
            wide = self._weight(member) if member[0] == "\\" else 1
            weight = max(weight, wide, _FOLDED if beyond and self._folds else 1)
        self._take(weight + count // 8)

    def _repeat(self, least: str, most: str) -> None:
        bounds = [int(digits[:9]) for digits in (least, most.strip(", \t\n")) if digits]
        times = max(1, *bounds, 1)
        self._groups[-1] += self._last * (times - 1)
        self._last *= times

    def _weight(self, text: str) -> int:
        if text[:2] in {r"\p", r"\P"} or (self._hard and text in {r"\w", r"\W"}):
            return _WIDE
        if text in {r"\W", r"\D", r"\S", "."} or (self._hard and text in {r"\d", r"\s"}):
            return 3 * _OPEN if self._hard else _OPEN
        return 1
