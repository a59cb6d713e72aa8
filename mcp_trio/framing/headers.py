"""The HTTP headers that mirror a message, and the encoding of their values (N8, N9, N15).

Header names are lower case here; ASGI and HTTP/2 have them so, and names compare
without case anyway.
"""

from __future__ import annotations

import base64
import binascii
import re

VERSION = "mcp-protocol-version"
SESSION_ID = "mcp-session-id"
METHOD = "mcp-method"
NAME = "mcp-name"
PARAM_PREFIX = "mcp-param-"
LAST_EVENT_ID = "last-event-id"

_OPEN, _CLOSE = "=?base64?", "?="
_PLAIN = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
"""What is sent as it is. A tab is a control character, whatever HTTP thinks of it."""
_READABLE = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?")
"""What is read as it is: what HTTP lets stand in a field."""
_SESSION = re.compile(r"[\x21-\x7e]+")

TCHARS = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
"""A pattern of a token: names of fields, methods and much else (RFC 9110, section 5.6.2)."""
_FIELD_NAME = re.compile(TCHARS)
_PARAM = re.compile(PARAM_PREFIX + r"[!#$%&'*+\-.^_`|~0-9a-z]+")


def is_session_id(value: str) -> bool:
    """Whether a value may be the id of a session (H9)."""
    return _SESSION.fullmatch(value) is not None


def is_param(name: str) -> bool:
    """Tell whether a header is one that mirrors an argument of a tool."""
    return _PARAM.fullmatch(name.lower()) is not None


def is_field_name(name: str) -> bool:
    """Whether a text may be the name of a field (RFC 9110, section 5.6.2)."""
    return _FIELD_NAME.fullmatch(name) is not None


def is_printable(value: str) -> bool:
    """Whether a value is printable ASCII, spaces included: what may be sent in a field as it is."""
    return value.isascii() and value.isprintable()


class HeaderValueError(ValueError):
    """A header value that cannot be decoded."""


def encode_value(value: str) -> str:
    """Write a value so that any HTTP hop carries it unchanged."""
    looks_encoded = value.startswith(_OPEN) and value.endswith(_CLOSE)
    if not value or (_PLAIN.fullmatch(value) and not looks_encoded):
        return value
    return f"{_OPEN}{base64.b64encode(value.encode()).decode('ascii')}{_CLOSE}"


def decode_value(value: str) -> str:
    """Read a header value, with or without the base64 sentinel.

    White space around it is not part of it (RFC 9110, section 5.5).

    Raises:
        HeaderValueError: characters that no header may have, or bad base64 or UTF-8.
    """
    value = value.strip(" \t")
    if value and not _READABLE.fullmatch(value):
        raise HeaderValueError("invalid characters")
    if not (value.startswith(_OPEN) and value.endswith(_CLOSE) and len(value) >= 11):
        return value
    try:
        return base64.b64decode(value[len(_OPEN) : -len(_CLOSE)], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise HeaderValueError("invalid base64") from error
