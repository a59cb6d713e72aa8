"""Plain messages of HTTP/1.1, read from one piece of bytes or written as one, without h11.

Most requests are a POST whose head comes in one read, with its body or before it, and most answers
a head with a length and a body that is all there. For those the way through h11's events costs more
than all else, and says nothing that is not known. Read is less than h11 reads, and as it reads it:
one version, one `Host`, one length in digits, no coding, nothing about the connection but that it
lasts, the whole head and nothing beyond the body. Written is what h11 would write. Whatever else a
message is, wrong or only rare, is left to h11, and so is saying what is wrong with it. Pure:
nothing here knows a connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import attrs

from mcp_trio.framing.headers import TCHARS

_TEXT = rb"[\x21-\x7e\x80-\xff]++"
_VALUE = rb"(?:%b(?:[ \t]++%b)*+)?+" % (_TEXT, _TEXT)
_NAME = b"(?>%b)" % TCHARS.encode()
_GIVEN = rb"%b:[ \t]*+%b[ \t]*+\r\n" % (_NAME, _VALUE)
_HEAD: Final = re.compile(rb"POST (/[\x21-\x7e]*+) HTTP/1\.1\r\n((?:%b)++)\r\n" % _GIVEN)
"""RFC 9112, section 3, and RFC 9110, section 5; stricter than both. It never looks back, so no
bytes make it slow."""
_FIELDS: Final = re.compile(rb"(?:%b: %b\r\n)++" % (_NAME, _VALUE))
"""Header fields of RFC 9110, sections 5.1 and 5.5."""
_LENGTH: Final = re.compile(rb"[0-9]{1,9}")
_DOUBTFUL: Final = frozenset(
    {
        b"expect",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_CLOSING: Final = _DOUBTFUL | {b"connection"}
_BODILESS: Final = frozenset({204, 205, 304})
_LARGEST: Final = 65536
"""Bytes of a body that may come behind its head: h11 may have to be told all of them again."""


@attrs.frozen
class Head:
    """The head of a request."""

    method: bytes
    target: bytes
    headers: list[tuple[bytes, bytes]]
    """Names in lower case, as ASGI has them."""
    version: bytes
    """Digits and dot."""


@attrs.frozen
class Plain:
    """A request that leaves no doubt."""

    head: Head
    body: bytes
    """As much as has come."""
    missing: int
    """Bytes of it that have yet to come."""


def plain_request(data: bytes) -> Plain | None:
    """Read the head of a request, and what has come of its body; None if h11 has to.

    Args:
        data: all that has come of it, from its first byte on.
    """
    end = data.find(b"\r\n\r\n") + 4
    if end < 4 or (head := _HEAD.fullmatch(data, 0, end)) is None:
        return None
    headers: list[tuple[bytes, bytes]] = []
    hosts, length = 0, None
    for line in head[2].split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        headers.append((name, value))
        if name == b"content-length":
            if length is not None or not _LENGTH.fullmatch(value):
                return None
            length = int(value)
        elif name == b"host":
            hosts += 1
        elif name in _DOUBTFUL or (name == b"connection" and value.lower() != b"keep-alive"):
            return None
    if hosts != 1 or length is None:
        return None
    missing = length - (len(data) - end)
    if missing < 0 or (missing and length > _LARGEST):
        return None
    return Plain(Head(b"POST", head[1], headers, b"1.1"), data[end:], missing)


def whole_answer(
    status: int,
    fields: Iterable[tuple[bytes, bytes]],
    more: Iterable[tuple[bytes, bytes]],
    body: bytes,
) -> bytes | None:
    """Write a final answer down; None if h11 has to.

    Args:
        status: of the answer.
        fields: of its head, as the application gave them.
        more: fields to add, which are known to be right.
        body: all of it.
    """
    if not 200 <= status <= 599 or status in _BODILESS:
        return None
    if not isinstance(fields, (list, tuple)):
        return None  # it may be read once only, and h11 may have to
    lengths: list[bytes] = []
    try:
        for name, value in fields:
            known = name.lower()
            if known == b"content-length":
                lengths.append(value)
            elif known in _CLOSING:
                return None
        lines = [b"%b: %b\r\n" % field for field in fields]
        told = b"".join(lines)
        if lengths != [b"%d" % len(body)] or _FIELDS.fullmatch(told) is None:
            return None
        if told.count(b"\n") != len(lines):
            return None  # a value that has a line end in it, and looks like two fields
        added = b"".join([b"%b: %b\r\n" % field for field in more])
        return b"HTTP/1.1 %d \r\n%b%b\r\n%b" % (status, told, added, body)
    except (TypeError, ValueError, AttributeError):
        return None  # not what ASGI asks for; Hypercorn tells
