"""JSON Schema validation by `jsonschema_rs`: a fast yes, and a no that says where and why.

Nothing is ever fetched: a `$ref` to the network is refused when the schema is compiled (J2).
What does not fit is described by place and rule; the offending value is never repeated.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn, cast

import attrs
import jsonschema_rs

from mcp_trio.wire.basic import JSONObject

MAX_DEPTH = 64
"""Nesting of a schema (J3)."""
MAX_NODES = 20_000
"""Objects and arrays in a schema (J3)."""
MAX_VIOLATIONS = 20
"""Violations reported for one instance."""

DIALECTS = {
    "https://json-schema.org/draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
    "http://json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
    "http://json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
    "http://json-schema.org/draft-04/schema": jsonschema_rs.Draft4Validator,
}
"""Supported dialects by `$schema`, without the empty fragment (J1)."""
DEFAULT_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class SchemaError(Exception):
    """The schema itself cannot be used; the text says why."""


@attrs.frozen(kw_only=True)
class Violation:
    """One place where an instance breaks its schema."""

    pointer: str
    """JSON Pointer (RFC 6901) into the instance; empty for the whole."""
    rule: str
    """The schema keyword that was broken, such as `required`."""
    message: str
    """What is wrong, without the offending value."""

    def as_json(self) -> JSONObject:
        """The form in which violations travel in `_meta`."""
        return {"pointer": self.pointer, "rule": self.rule, "message": self.message}


def _refuse(uri: str) -> NoReturn:
    raise SchemaError(f"$ref to {uri[:200]} is not followed: schemas must be self-contained")


def _measure(schema: object) -> None:
    """Refuse schemas that are too deep or too large, without recursion."""
    level: list[object] = [schema]
    nodes = depth = 0
    while level:
        depth += 1
        nodes += len(level)
        if depth > MAX_DEPTH:
            raise SchemaError(f"schema is nested more than {MAX_DEPTH} levels deep")
        if nodes > MAX_NODES:
            raise SchemaError(f"schema has more than {MAX_NODES} parts")
        children = (child for node in level for child in _children(node))
        level = [child for child in children if isinstance(child, (dict, list))]


def _children(node: object) -> Iterator[object]:
    if isinstance(node, dict):
        yield from cast("JSONObject", node).values()
    elif isinstance(node, list):
        yield from cast("list[object]", node)


class Validator:
    """A compiled schema. Immutable, usable from any task and from worker threads."""

    def __init__(self, schema: Mapping[str, object]) -> None:
        """Compile.

        Raises:
            SchemaError: not a valid schema of a supported dialect, too large, or it
                refers to something outside itself.
        """
        _measure(schema)
        dialect = schema.get("$schema", DEFAULT_DIALECT)
        checker = DIALECTS.get(dialect.removesuffix("#")) if isinstance(dialect, str) else None
        if checker is None:
            raise SchemaError(f"unsupported $schema; supported are {', '.join(DIALECTS)}")
        self.schema: JSONObject = dict(schema)
        try:
            self._fast = checker(self.schema, retriever=_refuse)
        except (ValueError, jsonschema_rs.ValidationError) as error:
            raise SchemaError(str(error).split("\n", 1)[0][:400]) from error

    def is_valid(self, instance: object) -> bool:
        """Tell whether the instance fits."""
        return self._fast.is_valid(instance)

    def violations(self, instance: object) -> list[Violation]:
        """Say where the instance does not fit, `MAX_VIOLATIONS` places at most."""
        errors = itertools.islice(self._fast.iter_errors(instance), MAX_VIOLATIONS)
        return [_violation(error, instance) for error in errors]


def pointer(path: Iterable[str | int]) -> str:
    """Write a path as a JSON Pointer."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _unknown(names: Iterable[str]) -> str:
    return f"has unknown keys: {', '.join(sorted(names)[:5])[:200]}"


def _limit(kind: Any) -> str:
    return f"breaks {kind.name} {kind.value}"


# The limits and allowed values stand in the listed schema, so they are no secret.
_MESSAGES: dict[str, Callable[[Any], str]] = {
    "required": lambda kind: f"misses {kind.value}",
    "additionalProperties": lambda kind: _unknown(kind.value),
    "unevaluatedProperties": lambda kind: _unknown(kind.value),
    "type": lambda kind: f"is not of type {' or '.join(kind.value)}",
    "enum": lambda kind: f"is not one of {str(kind.value)[:200]}",
    "const": lambda kind: f"is not {str(kind.value)[:200]}",
    "falseSchema": lambda _: "must not be there",
    "pattern": lambda _: "does not match the pattern",
    "format": lambda _: "does not have the required format",
    "uniqueItems": lambda _: "has items that are not unique",
    "anyOf": lambda _: "fits none of the alternatives",
    "oneOf": lambda _: "does not fit exactly one of the alternatives",
    "not": lambda _: "must not fit the excluded schema",
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _limit),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "multipleOf"), _limit),
    **dict.fromkeys(("minProperties", "maxProperties"), _limit),
}


def _violation(error: jsonschema_rs.ValidationError, instance: object) -> Violation:
    kind: Any = error.kind
    rule = kind.name
    write = _MESSAGES.get(rule)
    message = write(kind) if write else f"breaks {rule}"
    if rule == "falseSchema" and error.schema_path[-1] == "additionalProperties":
        # An object that allows no property at all; the library does not say which it has.
        place: Any = instance
        for part in error.instance_path:
            place = place[part]
        if place != error.instance:
            rule, message = "additionalProperties", _unknown(place)
    return Violation(pointer=pointer(error.instance_path), rule=rule, message=message)
