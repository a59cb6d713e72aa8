"""How often an engine may look at one place of an instance, told from the schema.

`allOf` of two references to a schema that is the same with the next one, thirty times, is a page of
text, and a billion looks: an engine follows each reference anew. So looks are counted before any
engine sees the schema. What is below a place (`properties`, `items`) is another place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast
from urllib.parse import unquote

from mcp_trio.wire.basic import JSONObject

MAX_LOOKS = 10_000
"""At one place."""
MAX_LED = 400_000
"""Places that all references together lead to; several where one name stands for several."""

_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("not", "if", "then", "else")
_NAMED = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor", "$id", "id")


def looks(schema: JSONObject) -> int | None:
    """The most looks at one place, wherever; None if a schema refers to itself at the same place.

    Without references it is 1: a tree is no larger than its text. More than `MAX_LOOKS` is as good
    as any, and so is it where there are more than `MAX_LED` ways to follow.
    """
    parts = _Parts(schema)
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


class _Parts:
    """The objects of a schema, and where its references lead."""

    def __init__(self, schema: JSONObject) -> None:
        self._root = schema
        self.all: list[JSONObject] = []
        self.refers = False
        self.led = 0
        """Places that the references followed until now led to."""
        self._named: dict[str, list[JSONObject]] = {}
        queue: list[object] = [schema]
        while queue:
            node = queue.pop()
            if isinstance(node, list):
                queue.extend(cast("list[object]", node))
            elif isinstance(node, dict):
                held = cast("JSONObject", node)
                self.all.append(held)
                self.refers = self.refers or not held.keys().isdisjoint(_REFERENCES)
                queue.extend(held.values())
                for name in (held.get(key) for key in _ANCHORS):
                    if isinstance(name, str):
                        self._named.setdefault(name.rpartition("/")[2].strip("#"), []).append(held)

    def beside(self, node: JSONObject) -> Iterator[JSONObject]:
        """The schemas that judge the same place as this one does."""
        for key in _LISTS:
            found = node.get(key)
            if isinstance(found, list):
                yield from _objects(cast("list[object]", found))
        yield from _objects([node.get(key) for key in _SINGLE])
        for key in _NAMED:
            found = node.get(key)
            if isinstance(found, dict):
                yield from _objects(list(cast("JSONObject", found).values()))
        for key in _REFERENCES:
            found = node.get(key)
            if isinstance(found, str):
                yield from self._led_to(found)

    def _led_to(self, reference: str) -> list[JSONObject]:
        """Where a reference leads; to all that it may mean. An engine refuses one to nothing."""
        base, _, fragment = reference.partition("#")
        roots = self._named.get(base.rpartition("/")[2], []) if base else [self._root]
        if fragment and not fragment.startswith("/"):
            roots = self._named.get(fragment, [])
        self.led += len(roots)
        if not fragment.startswith("/"):
            return roots
        steps = [
            unquote(raw).replace("~1", "/").replace("~0", "~") for raw in fragment.split("/")[1:]
        ]
        return list(_objects([_at(root, steps) for root in roots]))


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


def _objects(found: list[object]) -> Iterator[JSONObject]:
    for each in found:
        if isinstance(each, dict):
            yield cast("JSONObject", each)
