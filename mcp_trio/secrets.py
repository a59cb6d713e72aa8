"""A secret value that does not show itself.

Whoever needs the value calls `reveal` where it goes onto the wire. It has no text form, is
not copied into anything that is logged, and `mask` takes it out of other people's text.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable
from typing import NoReturn
from urllib.parse import quote

MASK = "***"
SHORTEST = 4
"""A shorter secret is not searched for in text: it would mask half of every word."""


class Secret:
    """A string that is shown as `***` wherever it is not revealed on purpose."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value. Call it where it goes onto the wire, and nowhere else."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, format_spec: str) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled or copied")


def mask(text: str, secrets: Iterable[Secret]) -> str:
    """Replace every secret in a text, also where it is base64 or percent-encoded."""
    forms: set[str] = set()
    for secret in secrets:
        value = secret.reveal()
        if len(value) >= SHORTEST:
            forms |= {value, quote(value, safe=""), base64.b64encode(value.encode()).decode()}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, MASK)
    return text
