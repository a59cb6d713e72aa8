"""`x-mcp-header`: which arguments of a tool are mirrored into `Mcp-Param-*` (N12 to N16)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import cast

import attrs

from mcp_trio.framing.headers import (
    PARAM_PREFIX,
    HeaderValueError,
    decode_value,
    encode_value,
    is_field_name,
)
from mcp_trio.wire.basic import JSONObject

KEYWORD = "x-mcp-header"
_TYPES = ("string", "integer", "boolean")
SAFE_INTEGER = 2**53 - 1
"""The largest integer that a header may carry, either sign."""
_NUMBER = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?")
_DATA = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose value is an instance and no schema."""
_NAMED = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}
)
"""Keywords whose value maps names to schemas."""


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
    if not isinstance(name, str) or not is_field_name(name):
        raise ParamHeaderError(f"{KEYWORD} of {'.'.join(path)} is not a header token")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ParamHeaderError(f"{KEYWORD} of {'.'.join(path)} needs type {' or '.join(_TYPES)}")
    return ParamHeader(header=PARAM_PREFIX + name.lower(), path=path, type=kind)


def _count(schema: Mapping[str, object]) -> int:
    """Count annotations in every subschema, so that one in a forbidden place is noticed."""
    total, queue = 0, [schema]
    while queue:
        node = queue.pop()
        total += KEYWORD in node
        for name, value in node.items():
            if name not in _DATA:
                queue.extend(_subschemas(name, value))
    return total


def _subschemas(name: str, value: object) -> Iterator[JSONObject]:
    """The schemas under one keyword of a schema."""
    found: Iterable[object] = (value,)
    if isinstance(value, list):
        found = cast("list[object]", value)
    elif isinstance(value, dict) and name in _NAMED:
        found = cast("JSONObject", value).values()
    return (cast("JSONObject", item) for item in found if isinstance(item, dict))


def _lookup(arguments: Mapping[str, object], path: tuple[str, ...]) -> object:
    *parents, last = path
    for name in parents:
        child = arguments.get(name)
        if not isinstance(child, dict):
            return None
        arguments = cast("JSONObject", child)
    return arguments.get(last)


def _text(value: object) -> str | None:
    """The text of an argument; None for what no header can carry, which the schema refuses."""
    match value:
        case bool():
            return "true" if value else "false"
        case float() if value.is_integer():
            return str(int(value))
        case int() | float() | str():
            return _readable(value)
        case _:
            return None


def _readable(value: float | str) -> str | None:
    try:
        text = str(value)
        text.encode()
    except ValueError:  # thousands of digits, half a surrogate pair
        return None
    return text


def build(annotations: tuple[ParamHeader, ...], arguments: Mapping[str, object]) -> dict[str, str]:
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
        fault = _fault(item, _lookup(arguments, item.path), headers.get(item.header))
        if fault is not None:
            return f"{item.header} {fault}"
    return None


def _fault(item: ParamHeader, value: object, received: str | None) -> str | None:
    expected = _text(value)
    if expected is None:
        return None if received is None else "is present, its argument is not"
    if received is None:
        return "is missing"
    if item.type == "integer" and isinstance(value, int | float) and abs(value) > SAFE_INTEGER:
        return f"cannot carry integers beyond {SAFE_INTEGER}"
    try:
        text = decode_value(received)
    except HeaderValueError as error:
        return f"has {error}"
    if text == expected or (item.type == "integer" and _equal(value, text)):
        return None
    return "does not match the argument"


def _equal(value: object, text: str) -> bool:
    """Compare as numbers: `42`, `042` and `42.0` are one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return bool(_NUMBER.fullmatch(text)) and Decimal(text) == Decimal(value)
