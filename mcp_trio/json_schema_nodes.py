"""A schema as its costs need it: what judges a place, and what judges the places within it.

Each object of the schema becomes a node, once, with what one look costs; references are followed
here. Nothing is known of values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import attrs

from mcp_trio.json_schema_effort import Effort, effort
from mcp_trio.json_schema_looks import Parts
from mcp_trio.wire.basic import JSONObject

FAR = 1e20
"""A number that is so large, or so small, takes long to divide."""
FAR_COST = 1_000
"""What that costs."""
_DIVIDED = 30
"""What dividing any number costs."""
LARGE = 1 << 256
"""With an integer that is as large an engine calculates slowly."""
_BITS = 12
"""Such an integer costs the square of its bits, divided by two this many times."""
_ENDLESS = 1 << 60
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_SEVERAL = {"allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "dependencies", "contains",
            "patternProperties", "$ref", "$dynamicRef", "$recursiveRef"}  # fmt: skip
"""What may have one place judged by several schemas."""

OTHERS = object()
"""The values below names that no schema at a place knows."""
NAMES = object()
"""The names themselves."""
Kind = str | int | object
"""Which values within a place: those below one name, those at one number, or one of the above."""


def read(parts: Parts, schema: JSONObject) -> list[Node]:
    """All that a schema leads to, itself first."""
    return _Reader(parts).read(schema)


def slow(value: int) -> int:
    """What calculating with an integer costs beyond a look."""
    bits = value.bit_length()
    return (bits * bits) >> _BITS if not -LARGE < value < LARGE else 0


@attrs.define(eq=False)
class Node:
    """One schema, with what it leads to."""

    rank: int = 0
    """Less than that of each schema that it stands beside."""
    weight: int = 1
    faults: int = 1
    """Rules that may be broken at one place."""
    efforts: list[Effort] = attrs.Factory(list[Effort])
    """Of the patterns that texts are held to."""
    named: list[Effort] = attrs.Factory(list[Effort])
    """Of the patterns that names are held to."""
    numbers: int = 0
    """Rules for which an engine calculates with a number."""
    divides: bool = False
    unique: bool = False
    unevaluated: bool = False
    """Whether what is beside it is looked at a second time, for what it has judged."""
    several: bool = False
    beside: list[Node] = attrs.Factory(list["Node"])
    """The schemas that judge the same place."""
    properties: dict[str, Node | None] = attrs.Factory(dict[str, "Node | None"])
    patterned: list[Node] = attrs.Factory(list["Node"])
    """For names that fit a pattern."""
    any_name: list[Node] = attrs.Factory(list["Node"])
    """For names that are not among the properties."""
    names: list[Node] = attrs.Factory(list["Node"])
    """For the names themselves."""
    first: list[Node | None] = attrs.Factory(list["Node | None"])
    """For the first items, one each."""
    items: list[Node] = attrs.Factory(list["Node"])
    """For the items after those."""
    every_item: list[Node] = attrs.Factory(list["Node"])

    @property
    def leads(self) -> bool:
        """Whether it says something of what is within a value."""
        names = self.properties or self.patterned or self.any_name
        return bool(names or self.first or self.items or self.every_item)

    def inner(self) -> Iterator[Node]:
        """All that judges what is within."""
        yield from known([*self.properties.values(), *self.first])
        yield from (*self.patterned, *self.any_name, *self.names, *self.items, *self.every_item)


def known(nodes: list[Node | None]) -> Iterator[Node]:
    """Those that are there."""
    return (node for node in nodes if node is not None)


class _Reader:
    """Makes nodes of schemas, each once."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._nodes: dict[int, Node] = {}
        self._unread: list[tuple[Node, JSONObject]] = []

    def read(self, schema: JSONObject) -> list[Node]:
        """All that a schema leads to, itself first."""
        self._node(schema)
        while self._unread:
            self._fill(*self._unread.pop())
        nodes = [*self._nodes.values()]
        _rank(nodes)
        return nodes

    def _node(self, schema: JSONObject) -> Node:
        node = self._nodes.get(id(schema))
        if node is None:
            node = self._nodes[id(schema)] = Node()
            self._unread.append((node, schema))
        return node

    def _of(self, found: object) -> Node | None:
        return self._node(cast("JSONObject", found)) if isinstance(found, dict) else None

    def _list(self, schema: JSONObject, *keys: str) -> list[Node]:
        return [*known([self._of(schema.get(key)) for key in keys])]

    def _fill(self, node: Node, schema: JSONObject) -> None:
        node.beside = [self._node(other) for other in self._parts.beside(schema)]
        properties, patterned = _dict(schema, "properties"), _dict(schema, "patternProperties")
        node.properties = {name: self._of(found) for name, found in properties.items()}
        node.patterned = [*known([self._of(found) for found in patterned.values()])]
        node.any_name = self._list(schema, "additionalProperties", "unevaluatedProperties")
        node.names = self._list(schema, "propertyNames")
        node.every_item = self._list(schema, "contains")
        node.items = self._list(schema, "items", "additionalItems", "unevaluatedItems")
        # Up to 2019-09 a list of items was what prefixItems is now.
        for found in (schema.get("prefixItems"), schema.get("items")):
            if isinstance(found, list):
                node.first = [self._of(each) for each in cast("list[object]", found)]
        pattern = schema.get("pattern")
        node.efforts = [effort(pattern)] if isinstance(pattern, str) else []
        node.named = [effort(name) for name in patterned]
        node.numbers = sum(key in schema for key in _NUMBERS)
        node.divides = "multipleOf" in schema
        node.unique = schema.get("uniqueItems") is True
        node.unevaluated = any(key.startswith("unevaluated") for key in schema)
        node.several = not schema.keys().isdisjoint(_SEVERAL)
        node.faults += len(schema) + _listed(schema)
        node.weight += _weight(schema) + node.divides * _DIVIDED


def _dict(schema: JSONObject, key: str) -> JSONObject:
    found = schema.get(key)
    return cast("JSONObject", found) if isinstance(found, dict) else {}


def _weight(schema: JSONObject) -> int:
    """What one look costs beyond the usual."""
    weight = 0
    # Texts are looked up; numbers are gone through, and what is nested is compared as a whole.
    options = _items(schema.get("enum"))
    if any(isinstance(each, (dict, list)) for each in options):
        weight += size(options, _ENDLESS)
    elif not all(isinstance(each, str) for each in options):
        weight += len(options) // 8
    weight += size(schema.get("const"), _ENDLESS) - 1
    divisor = schema.get("multipleOf")
    if isinstance(divisor, (int, float)):
        small = 0 < abs(divisor) < 1 / FAR
        weight += FAR_COST if small else slow(divisor) if isinstance(divisor, int) else 0
    limits = [schema.get(key) for key in _NUMBERS]
    weight += sum(slow(limit) for limit in limits if isinstance(limit, int))
    return weight + _listed(schema) // 4


def _listed(schema: JSONObject) -> int:
    """Names that are asked for."""
    required = len(_items(schema.get("required")))
    dependent = _dict(schema, "dependentRequired").values()
    return required + sum(1 + len(_items(each)) for each in dependent)


def _items(found: object) -> list[object]:
    return cast("list[object]", found) if isinstance(found, list) else []


def within(values: list[object]) -> list[object]:
    """All that is in the lists and objects among the values, one level deep."""
    found: list[object] = []
    for value in values:
        if isinstance(value, list):
            found += cast("list[object]", value)
        elif isinstance(value, dict):
            found += cast("JSONObject", value).values()
    return found


def size(value: object, most: int) -> int:
    """How many values there are in one; where there are more than asked for, some more."""
    found, level = 0, [value]
    while level and found <= most:
        found += len(level)
        level = within(level)
    return found


def _rank(nodes: list[Node]) -> None:
    """Number the schemas so that each has a higher rank than those beside it."""
    done: set[Node] = set()
    for start in nodes:
        stack = [(start, False)]
        while stack:
            node, ready = stack.pop()
            if ready:
                node.rank = 1 + max((other.rank for other in node.beside), default=0)
            elif node not in done:
                done.add(node)
                stack.append((node, True))
                stack.extend((other, False) for other in node.beside)
