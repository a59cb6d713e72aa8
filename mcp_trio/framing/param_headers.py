"""`x-mcp-header`: which arguments of a tool are mirrored into `Mcp-Param-*` (N12 to N16)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import cast

import attrs

from mcp_trio.framing.headers import PARAM_PREFIX, HeaderValueError, decode_value, encode_value

KEYWORD = "x-mcp-header"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TYPES = ("string", "integer", "boolean")
SAFE_INTEGER = 2**53 - 1


class ParamHeaderError(ValueError):
    """A tool whose annotations break the rules; the text names the rule."""


@attrs.frozen(kw_only=True)
class ParamHeader:
    """One annotated argument."""

    header: str
    """Whole header name, lower case."""
    path: tuple[str, ...]
    """Chain of property names from the root."""
    type: str
    """string, integer or boolean."""


def param_headers(schema: Mapping[str, object]) -> tuple[ParamHeader, ...]:
    """Read the annotations of an input schema.

    Raises:
        ParamHeaderError: an annotation is empty, no token, doubled, on a wrong type,
            or in a place that cannot be reached through `properties` alone.
    """
    found = tuple(_walk(schema, ()))
    names = [item.header for item in found]
    if len(set(names)) != len(names):
        raise ParamHeaderError(f"{KEYWORD} names must be unique")
    if _count(schema) != len(found):
        raise ParamHeaderError(f"{KEYWORD} is only allowed on properties of plain objects")
    return found


def _walk(schema: Mapping[str, object], path: tuple[str, ...]) -> Iterator[ParamHeader]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    for name, child in cast("dict[str, object]", properties).items():
        if not isinstance(child, dict):
            continue
        node = cast("dict[str, object]", child)
        if KEYWORD in node:
            yield _annotation(node, (*path, name))
        yield from _walk(node, (*path, name))


def _annotation(node: Mapping[str, object], path: tuple[str, ...]) -> ParamHeader:
    name, kind = node[KEYWORD], node.get("type")
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise ParamHeaderError(f"{KEYWORD} of {'.'.join(path)} is not a header token")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ParamHeaderError(f"{KEYWORD} of {'.'.join(path)} needs type {' or '.join(_TYPES)}")
    return ParamHeader(header=PARAM_PREFIX + name.lower(), path=path, type=kind)


def _count(schema: object) -> int:
    """Count annotations anywhere, so that one in a forbidden place is noticed.

    An object under the key is a property that happens to have this name.
    """
    total, queue = 0, [schema]
    while queue:
        node = queue.pop()
        if isinstance(node, dict):
            fields = cast("dict[str, object]", node)
            total += KEYWORD in fields and not isinstance(fields[KEYWORD], dict)
            queue.extend(fields.values())
        elif isinstance(node, list):
            queue.extend(cast("list[object]", node))
    return total


def _lookup(arguments: Mapping[str, object], path: tuple[str, ...]) -> object:
    value: object = arguments
    for name in path:
        if not isinstance(value, dict):
            return None
        value = cast("dict[str, object]", value).get(name)
    return value


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | str):
        return str(value)
    return None


def build(
    annotations: tuple[ParamHeader, ...], arguments: Mapping[str, object]
) -> dict[str, str]:
    """The headers a client sends with a call; absent and null arguments have none."""
    made: dict[str, str] = {}
    for item in annotations:
        text = _text(_lookup(arguments, item.path))
        if text is not None:
            made[item.header] = encode_value(text)
    return made


def mismatch(
    annotations: tuple[ParamHeader, ...],
    arguments: Mapping[str, object],
    headers: Mapping[str, str],
) -> str | None:
    """Say which header contradicts the arguments, or None."""
    for item in annotations:
        received = headers.get(item.header)
        value = _lookup(arguments, item.path)
        if value is None:
            if received is not None:
                return f"{item.header} is present, its argument is not"
            continue
        if received is None:
            return f"{item.header} is missing"
        try:
            text = decode_value(received)
        except HeaderValueError as error:
            return f"{item.header}: {error}"
        if not _same(item, value, text):
            return f"{item.header} does not match the argument"
    return None


def _same(item: ParamHeader, value: object, text: str) -> bool:
    if item.type == "integer" and not isinstance(value, bool) and isinstance(value, int | float):
        return bool(re.fullmatch(r"-?\d{1,40}(\.0{1,20})?", text)) and (
            int(text.partition(".")[0]) == value
        )
    return _text(value) == text
