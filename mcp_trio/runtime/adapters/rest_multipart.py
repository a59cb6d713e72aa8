"""Bodies of `multipart/form-data` (RFC 7578): fields, and files that come as base64.

    {"title": "Q3", "report": {"file": "=args.data", "filename": "=args.name",
                               "content_type": "application/pdf"}}

A scalar is a field, an array several parts of one name. An object is one part with exactly one
of `file` (base64), `text` or `json` (any value), and if wanted `filename` and `content_type`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from typing import cast

import msgspec

from mcp_trio.runtime.adapters.http_headers import from_base64, scalar
from mcp_trio.runtime.mapping import MappingError

_MEDIA_TYPE = re.compile(
    r"[A-Za-z0-9!#$&^_.+-]{1,60}/[A-Za-z0-9!#$&^_.+-]{1,100}(; ?charset=[A-Za-z0-9_-]{1,40})?"
)
_KINDS = {"file": "application/octet-stream", "text": None, "json": "application/json"}
"""What a part may hold, and its type if none is told."""
_IN_QUOTES = str.maketrans({'"': "%22", "\\": "%5C"})


def write_multipart(fields: Mapping[str, object], place: str) -> tuple[str, bytes]:
    """Write the fields; give the boundary and the body.

    The boundary is new each time, so that no value can have been made to hold it.

    Raises:
        MappingError: a value is none of the forms above, or cannot be sent.
    """
    boundary = uuid.uuid4().hex
    parts: list[bytes] = []
    for name, value in fields.items():
        spot = f"{place}.{name}"
        items = cast("list[object]", value) if isinstance(value, list) else [value]
        for item in items:
            if item is not None:
                parts += [f"--{boundary}\r\n".encode(), *_part(name, item, spot), b"\r\n"]
    return boundary, b"".join([*parts, f"--{boundary}--\r\n".encode()])


def _part(name: str, value: object, place: str) -> Iterator[bytes]:
    part: Mapping[str, object] = {"text": value}
    if isinstance(value, dict):
        part = cast("Mapping[str, object]", value)
        kinds = part.keys() & _KINDS.keys()
        if len(kinds) != 1 or part.keys() - {*_KINDS, "filename", "content_type"}:
            raise MappingError(
                "a part is a scalar, or an object with one of file, text and json, and if "
                "wanted filename and content_type",
                path=place,
            )
    kind = next(iter(part.keys() & _KINDS.keys()))
    content = _content(kind, part[kind], f"{place}.{kind}" if "file" in part else place)
    disposition = f'form-data; name="{_quoted(name, place)}"'
    filename = part.get("filename", "file" if kind == "file" else None)
    if filename is not None:
        disposition += f'; filename="{_filename(filename, f"{place}.filename")}"'
    media_type = part.get("content_type", _KINDS[kind])
    yield f"Content-Disposition: {disposition}\r\n".encode()
    if media_type is not None:
        if not isinstance(media_type, str) or _MEDIA_TYPE.fullmatch(media_type) is None:
            raise MappingError("is not a media type", path=f"{place}.content_type")
        yield f"Content-Type: {media_type}\r\n".encode()
    yield b"\r\n"
    yield content


def _content(kind: str, value: object, place: str) -> bytes:
    if kind == "file":
        return from_base64(value, place)
    return msgspec.json.encode(value) if kind == "json" else scalar(value, place).encode()


def _filename(value: object, place: str) -> str:
    text = scalar(value, place)
    if not text or "/" in text or "\\" in text or text in {".", ".."}:
        raise MappingError("a file name must not be empty or a path", path=place)
    return _quoted(text, place)


def _quoted(text: str, place: str) -> str:
    """A name between quotes, as browsers write it."""
    if any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise MappingError("holds a control character", path=place)
    return text.translate(_IN_QUOTES)
