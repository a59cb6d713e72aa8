"""What is asked of a field: a selection set of bounded depth and size, and what it answers.

Level by level, so that what stands near the root comes first: plain fields of a level, then
the objects below. Fields that need arguments are left out; lists that take `first` are asked
for a few. Of unions and interfaces each type gives its plain fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import attrs
import graphql

from mcp_trio.authoring.graphql_types import (
    GraphQLMember,
    GraphQLType,
    Scalars,
    inner,
    named,
    nullable,
    or_null,
)
from mcp_trio.authoring.imports import NotImportableError
from mcp_trio.wire import JSONObject

FIRST = 10
"""Items of a list that takes `first`."""
SHARE = 20
"""Plain fields of one type at one place, so that none takes all the room."""
MAX_TYPES = 12
"""Types of a union or an interface that are asked for."""


@attrs.define(eq=False)
class _Node:
    """A selection set in the making."""

    kind: GraphQLType
    depth: int
    fields: dict[str, _Field] = attrs.field(factory=dict[str, "_Field"])
    branches: dict[str, _Node] = attrs.field(factory=dict[str, "_Node"])
    """Inline fragments, by the name of their type."""

    @property
    def is_empty(self) -> bool:
        return not self.fields and all(branch.is_empty for branch in self.branches.values())


@attrs.frozen(eq=False)
class _Field:
    kind: GraphQLType
    arguments: str
    below: _Node | None


class Selection:
    """The selection set of one root field.

    Args:
        schema: of the upstream.
        kind: of the field.
        scalars: what scalars are.
        depth: levels of objects below the field's own.
        budget: fields in all.
    """

    def __init__(
        self,
        schema: graphql.GraphQLSchema,
        kind: GraphQLType,
        scalars: Scalars,
        *,
        depth: int,
        budget: int,
    ) -> None:
        self._schema = schema
        self._scalars = scalars
        self._kind = kind
        self._depth = depth
        self._left = budget
        self.cut = False
        """Whether there would have been more."""
        below = named(kind)
        self._root = None if graphql.is_leaf_type(below) else _Node(below, 0)
        if self._root is not None:
            self._grow(self._root)

    @property
    def text(self) -> str:
        """In the language of GraphQL; empty for a field without any."""
        return "" if self._root is None else _text(self._root, 1)

    @property
    def schema(self) -> JSONObject:
        """What the field answers."""
        return self._answer(self._kind, self._root)

    def _grow(self, root: _Node) -> None:
        waiting = [root]
        while waiting:
            node = waiting.pop(0)
            deeper = list(self._plain(node))
            for kind in self._branches(node.kind):
                branch = _Node(kind, node.depth)
                list(self._plain(branch, beside=node))
                if branch.fields:
                    node.branches[kind.name] = branch
            if deeper and node.depth >= self._depth:
                self.cut = True
                continue
            # Where a list goes on is of more use than one more item of it.
            for name, field, arguments in sorted(deeper, key=lambda each: each[0] != "pageInfo"):
                if self._left <= 0:
                    self.cut = True
                    break
                below = _Node(named(field.type), node.depth + 1)
                node.fields[name] = _Field(field.type, arguments, below)
                waiting.append(below)
        _prune(root)

    def _plain(
        self, node: _Node, beside: _Node | None = None
    ) -> Iterator[tuple[str, GraphQLMember, str]]:
        """Take the plain fields of a type; give those that hold objects."""
        fields: Mapping[str, GraphQLMember] = getattr(node.kind, "fields", {})
        share = SHARE
        for name, field in fields.items():
            arguments = _arguments(field)
            if arguments is None or field.deprecation_reason is not None:
                continue
            if not graphql.is_leaf_type(named(field.type)):
                yield name, field, arguments
                continue
            if beside is not None and not _agrees(beside, name, field):
                continue
            if self._left <= 0 or share <= 0:
                self.cut = True
                continue
            self._left -= 1
            share -= 1
            node.fields[name] = _Field(field.type, arguments, None)

    def _branches(self, kind: GraphQLType) -> list[GraphQLType]:
        if not isinstance(kind, graphql.GraphQLUnionType | graphql.GraphQLInterfaceType):
            return []
        possible: list[GraphQLType] = list(self._schema.get_possible_types(kind))
        self.cut = self.cut or len(possible) > MAX_TYPES
        return possible[:MAX_TYPES]

    def _answer(self, kind: GraphQLType, node: _Node | None) -> JSONObject:
        if isinstance(kind, graphql.GraphQLNonNull):
            return self._not_null(inner(cast("GraphQLType", kind)), node)
        return or_null(self._not_null(kind, node))

    def _not_null(self, kind: GraphQLType, node: _Node | None) -> JSONObject:
        match kind:
            case graphql.GraphQLList():
                return {
                    "type": "array",
                    "items": self._answer(inner(cast("GraphQLType", kind)), node),
                }
            case graphql.GraphQLEnumType():
                # A type may get more values without notice.
                return {"type": "string"}
            case graphql.GraphQLScalarType():
                try:
                    return self._scalars.schema(kind.name)
                except NotImportableError:
                    return {}
            case _:
                return self._object(cast("_Node", node))

    def _object(self, node: _Node) -> JSONObject:
        properties: JSONObject = {}
        if node.branches or not node.fields:
            properties["__typename"] = {"type": "string"}
        for each in (node, *node.branches.values()):
            for name, field in each.fields.items():
                properties.setdefault(name, self._answer(field.kind, field.below))
        return {"type": "object", "properties": properties}


def _arguments(field: GraphQLMember) -> str | None:
    """What is handed to a field inside a selection; None if it needs more than is known."""
    if any(graphql.is_required_argument(each) for each in field.args.values()):
        return None
    first = field.args.get("first")
    if first is not None and nullable(first.type) is graphql.GraphQLInt:
        return f"(first: {FIRST})"
    return ""


def _agrees(beside: _Node, name: str, field: GraphQLMember) -> bool:
    """Whether a field may be asked for under its name: no other there may be of another type."""
    others = [each.fields.get(name) for each in (beside, *beside.branches.values())]
    if beside.fields.get(name) is not None:
        return False  # asked for already
    return all(each is None or str(each.kind) == str(field.type) for each in others)


def _prune(node: _Node) -> None:
    for field in node.fields.values():
        if field.below is not None:
            _prune(field.below)
    node.fields = {
        name: field
        for name, field in node.fields.items()
        if field.below is None or not field.below.is_empty
    }


def _text(node: _Node, level: int) -> str:
    pad = "  " * level
    lines: list[str] = []
    if node.branches or not node.fields:
        lines.append(f"{pad}  __typename")
    for name, field in node.fields.items():
        below = "" if field.below is None else _text(field.below, level + 1)
        lines.append(f"{pad}  {name}{field.arguments}{below}")
    for name, branch in node.branches.items():
        inner = " ".join(f"{n}{field.arguments}" for n, field in branch.fields.items())
        lines.append(f"{pad}  ... on {name} {{ {inner} }}")
    return " {\n" + "\n".join(lines) + f"\n{pad}}}"
