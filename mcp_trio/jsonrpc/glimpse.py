"""What can be told of a message that cannot be read whole: whether it answers, and whom.

A line may be too long to keep, or its JSON broken somewhere. Whoever waits for that answer would
wait in vain, so its id is looked for where others put it: among the short members before the
first long one, and among those after the last. Members of anything inside are never taken for
those of the message.
"""

from __future__ import annotations

import re

import attrs

from mcp_trio.wire.basic import RequestId

REACH = 512
"""Bytes of the beginning and of the end that are looked at."""

_MEMBER = rb'"(jsonrpc|id|method)"\s*:\s*("[^"\\]*"|-?\d+)'
_SHORT = re.compile(_MEMBER)
_START = re.compile(rb"\s*\{\s*((?:" + _MEMBER + rb'\s*,\s*)*)"(result|error|params)"\s*:')
# The brace that ends the line is that of the message, and so are the members right before it.
_END = re.compile(rb"((?:,\s*" + _MEMBER + rb"\s*){1,3})\}\s*\Z")


@attrs.frozen
class Glimpse:
    """What was seen of a message."""

    answers: bool
    """Whether it is an answer; else it is a request or a notification."""
    id: RequestId | None
    """Its id, as far as it was seen."""
    method: str | None = None
    """Its method, as far as it was seen."""


def glimpse(start: bytes, end: bytes = b"") -> Glimpse | None:
    """Look at a message. None if it does not look like one.

    Args:
        start: how it begins; the first `REACH` bytes will do.
        end: how it ends, if that is known.
    """
    found = _START.match(start[:REACH])
    if found is None:
        return None
    members = dict(_SHORT.findall(found[1]))
    if (closing := _END.search(end[-REACH:])) is not None:
        members |= dict(_SHORT.findall(closing[1]))
    answers = found.groups()[-1] != b"params" and b"method" not in members
    method = _value(members.get(b"method"))
    return Glimpse(answers, _value(members.get(b"id")), method if isinstance(method, str) else None)


def _value(token: bytes | None) -> RequestId | None:
    if token is None:
        return None
    if token.startswith(b'"'):
        return token[1:-1].decode(errors="replace")
    return int(token)
