"""Arrays and objects in a path, a query, a header, a cookie or a form, as OpenAPI writes them.

`style` and `explode` are OpenAPI's own words, and what they make is its table, with the
percent-encoding of RFC 6570: values are encoded, the marks between them are not. Every value
stays in its place, because each is encoded before it meets a mark. What is written here comes
from `defined`, so it has no nulls, and no array or object is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast
from urllib.parse import quote

import attrs

from mcp_trio.runtime.mapping import MappingError, plain_text

MAX_PAIRS = 10_000
"""Pairs that one value may become."""


@attrs.frozen
class Style:
    """How one parameter is written."""

    style: str
    explode: bool

    @classmethod
    def read(cls, view: Mapping[str, object]) -> Style:
        """Read it; `explode` is OpenAPI's default where it is not said."""
        style = cast("str", view["style"])
        return cls(style, cast("bool", view.get("explode", style == "form")))


def defined(value: object) -> object:
    """A value without its nulls; None for an array or object with nothing in it (RFC 6570, 2.3).

    What stands deeper is the business of `deepObject`, the one style that has anything deeper.
    """
    match value:
        case list():
            items = cast("list[object]", value)
            return [item for item in items if item is not None] or None
        case dict():
            held = cast("Mapping[str, object]", value)
            return {key: part for key, part in held.items() if part is not None} or None
        case _:
            return value


def path_text(style: Style, name: str, value: object, place: str) -> str:
    """The text of a `{name}`, encoded, with the marks that belong to its style."""
    match style.style:
        case "label":
            return "." + _joined(style, value, "." if style.explode else ",", place)
        case "matrix":
            return _matrix(style, quote(name, safe=""), value, place)
        case _:
            return _joined(style, value, ",", place)


def _matrix(style: Style, name: str, value: object, place: str) -> str:
    if style.explode and isinstance(value, dict):
        held = cast("Mapping[str, object]", value)
        return "".join(_matrix_pair(_one(key, place), _one(held[key], place)) for key in held)
    if style.explode and isinstance(value, list):
        items = [_one(item, place) for item in cast("list[object]", value)]
        return "".join(_matrix_pair(name, item) for item in items)
    return _matrix_pair(name, _joined(style, value, ",", place))


def _matrix_pair(name: str, text: str) -> str:
    # Nothing is told by the name alone (RFC 6570, 3.2.7).
    return f";{name}={text}" if text else f";{name}"


def query_pairs(style: Style, name: str, value: object, place: str) -> Iterator[str]:
    """The `name=value` parts of one parameter of a query or a form, encoded."""
    key = quote(name, safe="")
    if style.style == "deepObject":
        yield from _deep(key, value, place)
        return
    if style.explode:
        if isinstance(value, dict):
            yield from _members(cast("Mapping[str, object]", value), "=", place)
            return
        if isinstance(value, list):
            for item in cast("list[object]", value):
                yield f"{key}={_one(item, place)}"
            return
    mark = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}.get(style.style, ",")
    yield f"{key}={_joined(style, value, mark, place)}"


def line_text(style: Style, value: object, place: str) -> str:
    """The value of a header, not encoded: what may stand in one is the caller's question."""

    def plain(part: object) -> str:
        text = _scalar(part, place)
        if "," in text:
            raise MappingError("an item of a list in a header holds a comma", path=place)
        return text

    if isinstance(value, list):
        return ",".join(plain(item) for item in cast("list[object]", value))
    if isinstance(value, dict):
        mark = "=" if style.explode else ","
        held = cast("Mapping[str, object]", value)
        return ",".join(f"{plain(key)}{mark}{plain(part)}" for key, part in held.items())
    return _scalar(value, place)


def cookie_text(value: object, place: str) -> str:
    """The value of a cookie: the parts of an array or an object, joined by an encoded comma."""
    if isinstance(value, list | dict):
        return _joined(Style("form", explode=False), cast("object", value), "%2C", place)
    return _scalar(value, place)


def _joined(style: Style, value: object, mark: str, place: str) -> str:
    if isinstance(value, list):
        return mark.join(_one(item, place) for item in cast("list[object]", value))
    if isinstance(value, dict):
        held = cast("Mapping[str, object]", value)
        return mark.join(_members(held, "=" if style.explode else mark, place))
    return _one(value, place)


def _members(held: Mapping[str, object], mark: str, place: str) -> Iterator[str]:
    for key, part in held.items():
        yield f"{_one(key, place)}{mark}{_one(part, place)}"


def _deep(key: str, value: object, place: str) -> Iterator[str]:
    """Without recursion: the depth is the caller's."""
    waiting = [(key, value)]
    made = 0
    while waiting:
        made += 1
        if made > MAX_PAIRS:
            raise MappingError(f"becomes more than {MAX_PAIRS} parts", path=place)
        name, part = waiting.pop()
        if isinstance(part, dict):
            named = [(_one(k, place), v) for k, v in cast("dict[str, object]", part).items()]
        elif isinstance(part, list):
            named = [(str(i), v) for i, v in enumerate(cast("list[object]", part))]
        else:
            if part is not None:
                yield f"{name}={_one(part, place)}"
            continue
        waiting.extend((f"{name}%5B{k}%5D", v) for k, v in reversed(named))


def _one(value: object, place: str) -> str:
    return quote(_scalar(value, place), safe="")


def _scalar(value: object, place: str) -> str:
    try:
        return plain_text(value)
    except ValueError as error:
        raise MappingError(str(error), path=place) from error
