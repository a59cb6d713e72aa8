"""JSON Schema validation: a fast yes, and a careful no.

`jsonschema_rs` answers whether an instance fits; only when it does not, `jsonschema`
is asked to say where and why. Neither may fetch anything: a `$ref` to the network is
refused when the schema is compiled (J2).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, cast

import attrs
import jsonschema
import jsonschema.exceptions
import jsonschema.validators
import jsonschema_rs
import referencing
import referencing.exceptions

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


def _refuse_resource(uri: str) -> referencing.Resource[Any]:
    raise referencing.exceptions.NoSuchResource(ref=uri)


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
        level = [child for node in level for child in _children(node)]


def _children(node: object) -> Iterator[object]:
    values: Any = ()
    if isinstance(node, dict):
        values = cast("dict[str, object]", node).values()
    elif isinstance(node, list):
        values = cast("list[object]", node)
    return (value for value in values if isinstance(value, dict | list))


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
        self._careful: Any = None

    def is_valid(self, instance: object) -> bool:
        """Tell whether the instance fits."""
        return self._fast.is_valid(instance)

    def violations(self, instance: object) -> list[Violation]:
        """Say where the instance does not fit, at most `MAX_VIOLATIONS` places; empty if it does."""
        if self._fast.is_valid(instance):
            return []
        found = [_violation(error) for error in self._slow_errors(instance)]
        return found or [Violation(pointer="", rule="schema", message="does not fit the schema")]

    def _slow_errors(self, instance: object) -> list[jsonschema.exceptions.ValidationError]:
        if self._careful is None:
            cls = jsonschema.validators.validator_for(
                self.schema, default=jsonschema.Draft202012Validator
            )
            registry: Any = referencing.Registry(retrieve=_refuse_resource)  # type: ignore[call-arg]
            self._careful = cls(self.schema, registry=registry)
        errors: list[jsonschema.exceptions.ValidationError] = []
        for error in self._careful.iter_errors(instance):
            errors.append(error)
            if len(errors) == MAX_VIOLATIONS:
                break
        return errors


def pointer(path: Iterator[str | int]) -> str:
    """Write a path as a JSON Pointer."""
    return "".join(
        "/" + str(part).replace("~", "~0").replace("/", "~1") for part in path
    )


_PLAIN: dict[str, str] = {
    "additionalProperties": "has arguments that are not allowed",
    "pattern": "does not match the pattern",
    "format": "does not have the required format",
    "uniqueItems": "has items that are not unique",
    "anyOf": "fits none of the alternatives",
    "oneOf": "does not fit exactly one of the alternatives",
    "not": "must not fit the excluded schema",
}


def _violation(error: jsonschema.exceptions.ValidationError) -> Violation:
    rule = str(error.validator)
    expected: Any = error.validator_value
    match rule:
        case "required":
            # The library names the first missing property only inside its message.
            named = re.match(r"'(.*)' is a required property", error.message)
            message = f"misses {named[1]}" if named else "misses a required property"
        case "additionalProperties":
            allowed = cast("Mapping[str, object]", error.schema).get("properties", {})
            instance = cast("Mapping[str, object]", error.instance)
            extra = sorted(set(instance) - set(cast("Mapping[str, object]", allowed)))
            message = f"has unknown keys: {', '.join(extra[:5])[:200]}"
        case "type":
            kinds = expected if isinstance(expected, list) else [expected]
            message = f"is not of type {' or '.join(str(kind) for kind in kinds)}"
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf":
            message = f"breaks {rule} {expected}"
        case "minLength" | "maxLength" | "minItems" | "maxItems":
            message = f"breaks {rule} {expected}"
        case "enum" | "const":
            # The allowed values stand in the listed schema, so they are no secret.
            message = f"is not {'one of ' if rule == 'enum' else ''}{str(expected)[:200]}"
        case _:
            message = _PLAIN.get(rule, f"breaks {rule}")
    return Violation(pointer=pointer(iter(error.absolute_path)), rule=rule, message=message)
