"""How often an engine may look at one place of an instance, told from the schema.

`allOf` of two references to a schema that is the same with the next one, thirty times, is a page of
text, and a billion looks: an engine follows each reference anew. So looks are counted before any
engine sees the schema. What is below a place (`properties`, `items`) is another place.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import cast
from urllib.parse import unquote

from mcp_trio.json_schema_patterns import patterns_in
from mcp_trio.wire.basic import JSONObject

MAX_LOOKS = 10_000
"""At one place."""
MAX_LED = 400_000
"""Places that all references together lead to; several where one name stands for several."""

_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("not", "if", "then", "else")
_NAMED = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_IDS = ("$id", "id")
_ANCHORS = ("$anchor", "$dynamicAnchor", *_IDS)
_RECURSIVE = "#recursive"
_Chain = tuple[JSONObject, ...]


def looks(parts: Parts) -> int | None:
    """The most looks at one place, wherever; None if a schema refers to itself at the same place.

    Without references it is 1: a tree is no larger than its text. More than `MAX_LOOKS` is as good
    as any, and so is it where there are more than `MAX_LED` ways to follow.
    """
    if not parts.refers:
        return 1  # a tree, and no larger than its text
    counted: dict[int, int] = {}
    for start in parts.all:
        stack: list[tuple[JSONObject, list[JSONObject] | None]] = [(start, None)]
        open_: set[int] = set()
        while stack:
            node, children = stack.pop()
            if children is not None:
                open_.discard(id(node))
                below = sum(counted[id(child)] for child in children)
                counted[id(node)] = min(1 + below, MAX_LOOKS + 1)
            elif id(node) in open_:
                return None
            elif id(node) not in counted:
                open_.add(id(node))
                children = list(parts.beside(node))
                if parts.led > MAX_LED:
                    return MAX_LOOKS + 1
                stack.append((node, children))
                stack.extend((child, None) for child in children)
    return max(counted.values(), default=1)


class Parts:
    """The objects of a schema, and where its references lead."""

    def __init__(self, schema: JSONObject) -> None:
        self._root = schema
        self.all: list[JSONObject] = []
        self.refers = False
        self.led = 0
        """Places that the references followed until now led to."""
        self._named: dict[str, list[JSONObject]] = {}
        self._within: dict[int, _Chain] = {}
        """For each object, what a reference to the whole may mean there."""
        told = isinstance(said := schema.get("$schema"), str) and "draft-04" not in said
        self.dialects = False
        """Whether a part says a dialect of its own."""
        self._certain = told or said is None
        """Whether an object that has `$id` is the whole of what is in it, and no other is."""
        queue: list[tuple[object, _Chain]] = [(schema, (schema,))]
        while queue:
            node, around = queue.pop()
            if isinstance(node, list):
                queue.extend((each, around) for each in cast("list[object]", node))
            elif isinstance(node, dict):
                held = cast("JSONObject", node)
                self.all.append(held)
                self.refers = self.refers or not held.keys().isdisjoint(_REFERENCES)
                around = self._around(held, around)
                self._within[id(held)] = around
                queue.extend((each, around) for each in held.values())
                for name in (held.get(key) for key in _ANCHORS):
                    if isinstance(name, str):
                        self._named.setdefault(name.rpartition("/")[2].strip("#"), []).append(held)
                if held.get("$recursiveAnchor") is True:
                    self._named.setdefault(_RECURSIVE, []).append(held)

    def _around(self, held: JSONObject, around: _Chain) -> _Chain:
        if held is self._root:
            return around
        if isinstance(held.get("$schema"), str):
            self.dialects, self._certain = True, False
        own = held.get("$id")
        if self._certain and isinstance(own, str) and "$ref" not in held and own[:1] != "#":
            return (held,)
        return (held, *around) if any(isinstance(held.get(key), str) for key in _IDS) else around

    def patterns(self) -> Iterator[str]:
        """The regular expressions."""
        return itertools.chain.from_iterable(map(patterns_in, self.all))

    def beside(self, node: JSONObject) -> Iterator[JSONObject]:
        """The schemas that judge the same place as this one does."""
        for key in _LISTS:
            found = node.get(key)
            if isinstance(found, list):
                yield from objects(cast("list[object]", found))
        yield from objects([node.get(key) for key in _SINGLE])
        for key in _NAMED:
            found = node.get(key)
            if isinstance(found, dict):
                yield from objects(list(cast("JSONObject", found).values()))
        for key in _REFERENCES:
            found = node.get(key)
            if isinstance(found, str):
                led = self._led_to(found, node)
                yield from led
                if key == "$recursiveRef":
                    known = {id(each) for each in led}
                    others = self._named.get(_RECURSIVE, ())
                    yield from (each for each in others if id(each) not in known)

    def _led_to(self, reference: str, node: JSONObject) -> list[JSONObject]:
        """Where a reference leads; to all that it may mean. An engine refuses one to nothing."""
        base, _, fragment = reference.partition("#")
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            roots = self._by_name(fragment)
        elif base:
            roots = self._by_name(base)
        else:
            roots = self._within[id(node)]
        self.led += len(roots)
        if not fragment.startswith("/"):
            return list(roots)
        steps = [raw.replace("~1", "/").replace("~0", "~") for raw in fragment.split("/")[1:]]
        return list(objects([_at(root, steps) for root in roots]))

    def _by_name(self, name: str) -> Sequence[JSONObject]:
        """All that a name may mean: all that have any, if it is written in an uncommon way."""
        found = self._named.get(name.rpartition("/")[2])
        if found is None or not found or "%" in name or "?" in name or name.endswith("."):
            return [each for several in self._named.values() for each in several]
        return found


def _at(root: object, steps: list[str]) -> object:
    place = root
    for name in steps:
        if isinstance(place, dict):
            place = cast("JSONObject", place).get(name)
        elif isinstance(place, list) and name.isdecimal() and len(name) < 10:
            items = cast("list[object]", place)
            place = items[int(name)] if int(name) < len(items) else None
        else:
            return None
    return place


def objects(found: list[object]) -> Iterator[JSONObject]:
    """The schemas among them; `true` and `false` cost nothing."""
    for each in found:
        if isinstance(each, dict):
            yield cast("JSONObject", each)
