"""A whole answer of HTTP/1.1 as one piece of bytes, where nothing about it is in doubt.

Most answers are a head with a length and a body that is all there. For those the way through
h11's events costs more than the rest of the answer, and says nothing that is not known. What is
made here is what h11 would write; whatever it would have an opinion on (no length or a wrong one,
a status without a body, fields about the connection, anything that is no header field) is left to
it. Pure: nothing here knows a connection.
"""

import re
from collections.abc import Iterable
from typing import Final

_WORD = rb"[\x21-\x7e\x80-\xff]+"
_FIELDS: Final = re.compile(
    rb"(?:[-!#$%%&'*+.^_`|~0-9A-Za-z]+: (?:%b(?:[ \t]+%b)*)?\r\n)+" % (_WORD, _WORD)
)
"""Header fields of RFC 9110, sections 5.1 and 5.5."""
_DOUBTFUL: Final = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
_BODILESS: Final = frozenset({204, 205, 304})


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
            elif known in _DOUBTFUL:
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
