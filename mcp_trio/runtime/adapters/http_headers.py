"""What an operation puts into a request: headers that it may set, scalars as text, bytes."""

from __future__ import annotations

import base64
import binascii
import re

from mcp_trio.catalog.operation import OperationError
from mcp_trio.framing.headers import TCHARS, is_printable
from mcp_trio.runtime.http_connection import HttpConnection
from mcp_trio.runtime.mapping import MappingError, plain_text

NAME = re.compile(TCHARS)
"""The name of a header or a cookie."""
PROTECTED_HEADERS = frozenset(
    {
        "accept-encoding",
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "forwarded",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
    }
)
"""Headers that decide about framing, identity or routing; a mapping may set none of them."""


def check_header(name: str, connection: HttpConnection, place: str) -> None:
    """Refuse the name of a header that an operation may not set.

    Raises:
        OperationError: it is protected, the connection's own, or no name at all.
    """
    if NAME.fullmatch(name) is None:
        raise OperationError("is not the name of a header", place=place)
    if name.lower() in PROTECTED_HEADERS or name.lower() in connection.header_names:
        raise OperationError("this header is not for an operation to set", place=place)


def check_line(text: str, place: str) -> str:
    """Give back the text of a header value.

    Raises:
        MappingError: it could end the line or be read as something else.
    """
    if not is_printable(text) or text != text.strip():
        raise MappingError(
            "a header value must be printable ASCII without spaces at its ends", path=place
        )
    return text


def from_base64(value: object, place: str) -> bytes:
    """Read bytes, which are base64 wherever they stand in JSON.

    Raises:
        MappingError: it is no base64.
    """
    try:
        return base64.b64decode(scalar(value, place).encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise MappingError("is not base64", path=place) from error


def scalar(value: object, place: str) -> str:
    """Write a scalar as text.

    Raises:
        MappingError: it is none.
    """
    try:
        return plain_text(value)
    except ValueError as error:
        raise MappingError(str(error), path=place) from error
