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

_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("not", "if", "then", "else")
_NAMED = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor", "$id", "id")


def looks(schema: JSONObject) -> int | None:
    """The most looks at one place, wherever; None if a schema refers to itself at the same place.

    Without references it is 1: a tree is no larger than its text.
    """
    parts = _Parts(schema)
    if not parts.refers:
        return 1  # a tree, and no larger than its text
    counted: dict[int, int] = {}
    for start in parts.all:
        stack = [(start, False)]
        open_: set[int] = set()
        while stack:
            node, visited = stack.pop()
            if visited:
                open_.discard(id(node))
                below = sum(counted[id(child)] for child in parts.beside(node))
                counted[id(node)] = min(1 + below, MAX_LOOKS + 1)
            elif id(node) in open_:
                return None
            elif id(node) not in counted:
                open_.add(id(node))
                stack.append((node, True))
                # Once each: what comes twice is counted twice above.
                children = {id(child): child for child in parts.beside(node)}
                if any(key in open_ for key in children):
                    return None
                stack.extend((child, False) for child in children.values())
    return max(counted.values(), default=1)


class _Parts:
    """The objects of a schema, and where its references lead."""

    def __init__(self, schema: JSONObject) -> None:
        self._root = schema
        self.all: list[JSONObject] = []
        self.refers = False
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
        if not fragment:
            return roots
        if not fragment.startswith("/"):
            return self._named.get(fragment, [])
        found = [_at(root, fragment) for root in roots]
        return list(_objects(found))


def _at(root: object, pointer: str) -> object:
    place = root
    for raw in pointer.split("/")[1:]:
        name = unquote(raw).replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict):
            place = cast("JSONObject", place).get(name)
        elif isinstance(place, list) and name.isdecimal():
            items = cast("list[object]", place)
            place = items[int(name)] if int(name) < len(items) else None
        else:
            return None
    return place


def _objects(found: list[object]) -> Iterator[JSONObject]:
    for each in found:
        if isinstance(each, dict):
            yield cast("JSONObject", each)
