"""What the body of an HTTP answer says: JSON, XML, text, or bytes as base64."""

from __future__ import annotations

import base64

import msgspec

from mcp_trio.runtime.adapters.http_exchange import Reply, malformed
from mcp_trio.runtime.adapters.xml_tree import XmlError, read_xml
from mcp_trio.runtime.expressions import measure
from mcp_trio.runtime.mapping import MAX_INPUT_NODES

_BINARY = frozenset({"application/octet-stream", "application/pdf", "application/zip"})


def is_binary(kind: str) -> bool:
    """Whether bodies of a media type are bytes that no mapping can look into."""
    return kind in _BINARY or kind.startswith(("image/", "audio/", "video/", "font/"))


def _is_xml(kind: str) -> bool:
    # A page for people is no answer, even one that is well-formed.
    return kind != "application/xhtml+xml" and (
        kind in {"application/xml", "text/xml"} or kind.endswith("+xml")
    )


def decode(reply: Reply) -> object:
    """Decode a body; None if there is none. Of a failure, whatever can be read is good enough.

    Raises:
        StageError: a success whose body is not what it says, or of a kind nobody can map.
    """
    raw, ok, kind = reply.body, reply.ok, reply.content_type
    if not raw:
        return None
    if not kind or kind == "application/json" or kind.endswith("+json"):
        try:
            return read_json(raw)
        except ValueError as error:
            if ok:
                raise malformed("the upstream's answer is not valid JSON") from error
            return _text(reply)
    if ok and is_binary(kind):
        return base64.b64encode(raw).decode("ascii")
    if _is_xml(kind):
        try:
            return read_xml(raw, charset=_charset(reply))
        except XmlError as error:
            if ok:
                raise malformed(f"the upstream's answer is not usable XML: {error}") from error
            return _text(reply)
    if ok and (not kind.startswith("text/") or kind == "text/html"):
        raise malformed(
            f"the upstream answered with {_shown(kind)} where JSON, XML or plain text was expected",
            code="unexpected_content_type",
        )
    return _text(reply)


def read_json(raw: bytes) -> object:
    """Decode JSON.

    Raises:
        ValueError: it is none, or has too many values.
    """
    try:
        value: object = msgspec.json.decode(raw.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError("is not JSON") from error
    if measure(value, MAX_INPUT_NODES) is None:
        raise ValueError("too many values")
    return value


def _shown(kind: str) -> str:
    return (
        kind[:60]
        if kind.replace("/", "").replace("-", "").replace("+", "").isalnum()
        else "something"
    )


def _charset(reply: Reply) -> str | None:
    parameters = reply.headers.get("content-type", "").lower().partition(";")[2]
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip() == "charset":
            return value.strip().strip('"')
    return None


def _text(reply: Reply) -> str:
    # Others are rare, and a codec chosen by an upstream may be anything Python knows.
    latin = _charset(reply) in {"iso-8859-1", "windows-1252"}
    return reply.body.decode("cp1252" if latin else "utf-8", "replace")
