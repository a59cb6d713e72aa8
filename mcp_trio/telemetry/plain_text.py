"""Texts of others on a terminal or in a log: shown, and nothing else."""

from __future__ import annotations

import json
import re
from typing import overload

MAX_TEXT = 128
"""Characters of anything that a client, a tool or an upstream has chosen."""

# Control characters, marks that turn the direction of writing, other ends of lines, tags that
# nobody sees, and what no encoding has.
STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
"""What does more to a terminal than show itself."""


@overload
def cut(text: str, limit: int = MAX_TEXT) -> str: ...
@overload
def cut(text: str | None, limit: int = MAX_TEXT) -> str | None: ...
def cut(text: str | None, limit: int = MAX_TEXT) -> str | None:
    """The beginning of a text; None for none."""
    return None if text is None else text[:limit]


def printable(text: str) -> str:
    """A text that a terminal only shows: all but tabs and ends of lines is escaped."""
    return STEERING.sub(_escape, text.replace("\r\n", "\n"))


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "backslashreplace").decode()


def json_line(value: object) -> str:
    """One line of ASCII that is JSON; what JSON has no form for is shown as text."""
    return json.dumps(value, default=repr).replace("\x7f", "\\u007f")
