"""Whose message it is, from the ends of one that is too large to be read.

So that a call whose answer is too large fails at once, by name, and nobody else's. Only the
orders are known in which libraries write the fields of a message; of others nothing is told.
"""

from __future__ import annotations

import re

import attrs

from mcp_trio.jsonrpc import codec
from mcp_trio.wire.basic import RequestId

_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_ID = rb'"id"\s*:\s*(?P<id>-?\d{1,40}|"(?:[^"\\]|\\.){0,512}")'
_HEAD = re.compile(
    rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*)?(?:" + _ID + rb"\s*,\s*)?"
    rb"(?:" + _VERSION + rb'\s*,\s*)?"(?P<kind>result|error|method|params)"\s*:',
    re.DOTALL,
)
# Inside of something else it would be followed by the end of that, too.
_TAIL = re.compile(rb",\s*" + _ID + rb"\s*(?:,\s*" + _VERSION + rb"\s*)?\}\s*\Z", re.DOTALL)


@attrs.frozen
class Glimpse:
    """What the beginning of a message tells."""

    is_answer: bool = False
    id: RequestId | None = None


def begins(head: bytes) -> Glimpse:
    """Look at the first bytes of a message."""
    found = _HEAD.match(head)
    if found is None:
        return Glimpse()
    return Glimpse(found["kind"] in {b"result", b"error"}, _read(found))


def ends(tail: bytes) -> RequestId | None:
    """Look for the id in the last bytes of a message whose first ones did not tell."""
    found = _TAIL.search(tail)
    return None if found is None else _read(found)


def _read(found: re.Match[bytes]) -> RequestId | None:
    try:
        value = codec.decode_value(found["id"] or b"null")
    except ValueError:
        return None
    return value if isinstance(value, int | str) else None
