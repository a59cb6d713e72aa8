"""Which characters a piece of a regular expression may stand for.

Never fewer than it does stand for: what is not known for certain may be all.
"""

from __future__ import annotations

from collections.abc import Mapping

from mcp_trio.json_schema_patterns import members

Characters = frozenset[int]
_BEYOND = 128
"""All characters that are not ASCII."""
ALL: Characters = frozenset(range(_BEYOND + 1))


def characters(text: str) -> Characters:
    """What one piece of a pattern may stand for: ASCII, and all that is beyond it as one."""
    if text == ".":
        return ALL
    if text[0] != "[" or len(text) == 1:
        return _ESCAPES.get(text, ALL) if text[0] == "\\" else _code(text)
    held = members(text)
    if text[1] != "^":
        return _all(held, _ESCAPES, ALL)
    # Only what is excluded for certain is left out; a number after its escape is not.
    numbered = any(each[:2] in {r"\u", r"\x", r"\c"} or each[1:].isdecimal() for each in held)
    return ALL if numbered else ALL - _all(held, _SURE, frozenset()) | {_BEYOND}


def _all(held: list[str], escapes: Mapping[str, Characters], unknown: Characters) -> Characters:
    found: Characters = frozenset()
    place = 0
    while place < len(held):
        low, dash, high = [*held[place : place + 3], "", ""][:3]
        if dash == "-" and high:
            single = len(low) == len(high) == 1
            ends = (min(_code(low)), max(_code(high)) + 1)
            found |= frozenset(range(*ends)) if single else unknown
            place += 3
            continue
        found |= escapes.get(low, unknown) if low[0] == "\\" else _code(low)
        place += 1
    return found


def _code(text: str) -> Characters:
    return frozenset([min(ord(text[0]), _BEYOND)])


def _codes(text: str) -> Characters:
    return frozenset(map(ord, text))


_DIGITS = _codes("0123456789")
_LETTERS = _codes("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_") | _DIGITS
_BLANKS = _codes("\t\n\v\f\r ")
_SELF = {f"\\{each}": _codes(each) for each in "^$\\.*+?()[]{}|/-,:;=!<>@#%&'\"~` _"}
_ESCAPES: dict[str, Characters] = {
    **_SELF,
    r"\d": _DIGITS | {_BEYOND},
    r"\w": _LETTERS | {_BEYOND},
    r"\s": _BLANKS | {_BEYOND},
    r"\D": ALL - _DIGITS,
    r"\W": ALL - _LETTERS,
    r"\S": ALL - _BLANKS,
}
_SURE: dict[str, Characters] = {**_SELF, r"\d": _DIGITS, r"\w": _LETTERS, r"\s": _BLANKS}
"""What an escape stands for at least."""
