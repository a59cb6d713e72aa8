"""Types of GraphQL as JSON Schema: arguments on the way in, selections on the way out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import graphql

from mcp_trio.authoring.imports import NotImportableError, shortened, words
from mcp_trio.wire import JSONObject

GraphQLType: TypeAlias = Any
"""A type of the library, whose own types leave generic arguments open."""
GraphQLMember: TypeAlias = Any
"""A field or an argument of the library."""
BUILT_IN: Mapping[str, JSONObject] = {
    "Int": {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
    "Float": {"type": "number"},
    "String": {"type": "string"},
    "Boolean": {"type": "boolean"},
    "ID": {"type": "string"},
}
CUSTOM: Mapping[str, JSONObject] = {
    "Any": {},
    "BigDecimal": {"type": ["string", "number"]},
    "BigInt": {"type": ["string", "integer"]},
    "Cursor": {"type": "string"},
    "Date": {"type": "string", "format": "date"},
    "DateTime": {"type": "string", "format": "date-time"},
    "Decimal": {"type": ["string", "number"]},
    "Duration": {"type": "string"},
    "Email": {"type": "string", "format": "email"},
    "EmailAddress": {"type": "string", "format": "email"},
    "HTML": {"type": "string"},
    "ISO8601DateTime": {"type": "string", "format": "date-time"},
    "JSON": {},
    "JSONObject": {"type": "object"},
    "Long": {"type": ["string", "integer"]},
    "LocalDate": {"type": "string", "format": "date"},
    "LocalTime": {"type": "string"},
    "Object": {"type": "object"},
    "PositiveInt": {"type": "integer", "minimum": 1},
    "NonNegativeInt": {"type": "integer", "minimum": 0},
    "Time": {"type": "string"},
    "Timestamp": {"type": ["string", "integer"]},
    "UInt64": {"type": ["string", "integer"]},
    "Int64": {"type": ["string", "integer"]},
    "URI": {"type": "string"},
    "URL": {"type": "string"},
    "UUID": {"type": "string", "format": "uuid"},
}
"""What scalars of these names mean by habit. Big numbers may be texts, so that none is rounded."""
_UPLOAD = "Upload"


def inner(kind: GraphQLType) -> GraphQLType:
    """What a list or a non-null type is of."""
    return kind.of_type


def nullable(kind: GraphQLType) -> GraphQLType:
    """The type without its mark that null is not allowed."""
    return inner(kind) if isinstance(kind, graphql.GraphQLNonNull) else kind


def named(kind: GraphQLType) -> GraphQLType:
    """The type that lists and marks are about in the end."""
    while isinstance(kind, graphql.GraphQLNonNull | graphql.GraphQLList):
        kind = inner(cast("GraphQLType", kind))
    return kind


class Scalars:
    """What each scalar is in JSON.

    Args:
        given: by name, what somebody said; it comes before everything else.
    """

    def __init__(self, given: Mapping[str, JSONObject]) -> None:
        self._given = given
        self.unknown: set[str] = set()
        """Scalars that nobody knows anything of; anything is taken for them."""

    def schema(self, name: str) -> JSONObject:
        """The schema of a scalar.

        Raises:
            NotImportableError: its values do not travel in JSON.
        """
        for table in (self._given, BUILT_IN, CUSTOM):
            if name in table:
                return dict(table[name])
        if name == _UPLOAD:
            raise NotImportableError("it takes a file, which does not travel in JSON")
        self.unknown.add(name)
        return {}


class InputWriter:
    """Writes the arguments of one field, with the input types they need.

    Args:
        scalars: what scalars are.
        budget: bytes that all together may take, about.
    """

    def __init__(self, scalars: Scalars, budget: int) -> None:
        self._scalars = scalars
        self._left = budget
        self._definitions: JSONObject = {}
        self._waiting: list[GraphQLType] = []
        self.cut = False
        """Whether something was left unsaid for want of room."""

    def write(self, arguments: Mapping[str, GraphQLMember]) -> JSONObject:
        """The schema of an object with all arguments.

        Raises:
            NotImportableError: an argument that is needed cannot travel.
        """
        properties: JSONObject = {}
        required: list[str] = []
        for name, argument in arguments.items():
            needed = graphql.is_required_argument(argument)
            # Left out and null are nearly the same to a field; a model needs one of them.
            kind = nullable(argument.type)
            try:
                written = self._named(kind)
            except NotImportableError:
                if needed:
                    raise
                continue
            properties[name] = _described(written, argument.description)
            if needed:
                required.append(name)
        made: JSONObject = {"type": "object", "properties": properties}
        if required:
            made["required"] = required
        made["additionalProperties"] = False
        while self._waiting:
            kind = self._waiting.pop(0)
            self._definitions[kind.name] = self._input_object(kind)
        return {**made, "$defs": self._definitions} if self._definitions else made

    def _named(self, kind: GraphQLType) -> JSONObject:
        match kind:
            case graphql.GraphQLList():
                return {"type": "array", "items": self._nullable(inner(cast("GraphQLType", kind)))}
            case graphql.GraphQLEnumType():
                self._left -= sum(len(value) + 3 for value in kind.values)
                return {"type": "string", "enum": list(kind.values)}
            case graphql.GraphQLInputObjectType():
                return self._referred(kind)
            case graphql.GraphQLScalarType():
                return self._scalars.schema(kind.name)
            case _:  # pragma: no cover  # there is no other input type
                return {}

    def _nullable(self, kind: GraphQLType) -> JSONObject:
        """A type inside of another one, where null is a value of its own."""
        if isinstance(kind, graphql.GraphQLNonNull):
            return self._named(inner(cast("GraphQLType", kind)))
        return or_null(self._named(kind))

    def _referred(self, kind: GraphQLType) -> JSONObject:
        if kind.name not in self._definitions:
            size = 60 + sum(len(n) + 40 for n in kind.fields)
            if self._left < size:
                self.cut = True
                return {"type": "object"}
            self._left -= size
            self._definitions[kind.name] = {}
            self._waiting.append(kind)
        return {"$ref": f"#/$defs/{kind.name}"}

    def _input_object(self, kind: GraphQLType) -> JSONObject:
        properties: JSONObject = {}
        required: list[str] = []
        for name, field in kind.fields.items():
            needed = graphql.is_required_input_field(field)
            try:
                written = self._nullable(field.type)
            except NotImportableError:
                if needed:
                    raise
                continue
            described = _described(written, field.description)
            self._left -= len(str(described.get("description", "")))
            properties[name] = described
            if needed:
                required.append(name)
        made: JSONObject = {"type": "object", "properties": properties}
        if required:
            made["required"] = required
        if kind.is_one_of:
            made["minProperties"] = made["maxProperties"] = 1
        made["additionalProperties"] = False
        return made


def _described(schema: JSONObject, description: str | None) -> JSONObject:
    text = shortened(words(description).partition("\n\n")[0], 300)
    return {**schema, "description": text} if text else schema


def or_null(schema: JSONObject) -> JSONObject:
    """The schema, with null allowed."""
    if not schema:
        return schema
    kind = schema.get("type")
    if "$ref" in schema or kind is None:
        return {"anyOf": [schema, {"type": "null"}]}
    types = cast("list[object]", kind) if isinstance(kind, list) else [kind]
    made = {**schema, "type": [*types, "null"]}
    if "enum" in schema:
        made["enum"] = [*cast("list[object]", schema["enum"]), None]
    return made
