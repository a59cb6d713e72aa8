"""The two engines behind `json_schema`: the fast one, and the one that runs everywhere.

`jsonschema_rs` is used where it is installed, which is wherever it has a wheel;
`jsonschema`, in plain Python, where it is not. Both get schemas of the same dialects, fetch
nothing, and describe a fault by place and rule without its value. Neither is imported before
the first schema is compiled: a client may never see one.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, cast

import attrs

from mcp_trio.json_schema_patterns import patterns_in
from mcp_trio.wire.basic import JSONObject

FAST = importlib.util.find_spec("jsonschema_rs") is not None
"""Whether the fast engine is installed."""


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


class Engine(Protocol):
    """A compiled schema."""

    def is_valid(self, instance: object) -> bool:
        """Tell whether the instance fits."""
        ...

    def faults(self, instance: object) -> Iterator[Violation]:
        """Give every place where it does not."""
        ...


def _refusal(uri: str) -> SchemaError:
    return SchemaError(f"$ref to {uri[:200]} is not followed: schemas must be self-contained")


class FastEngine:
    """`jsonschema_rs`."""

    def __init__(self, schema: JSONObject, dialect: str) -> None:
        import jsonschema_rs as fast  # noqa: PLC0415 - on demand

        checkers: dict[str, Any] = {
            "2020-12": fast.Draft202012Validator,
            "2019-09": fast.Draft201909Validator,
            "draft-07": fast.Draft7Validator,
            "draft-06": fast.Draft6Validator,
            "draft-04": fast.Draft4Validator,
        }

        def refuse(uri: str) -> None:
            raise _refusal(uri)

        try:
            self._checker: Any = checkers[dialect](schema, retriever=refuse)
        except fast.ValidationError as error:
            # Where in the schema it is: a large one says the same word many times.
            where = pointer(error.instance_path)
            said = error.message.split("\n", 1)[0]
            raise SchemaError(f"{where}: {said}"[:400] if where else said[:400]) from error
        except ValueError as error:
            raise SchemaError(str(error).split("\n", 1)[0][:400]) from error

    def is_valid(self, instance: object) -> bool:
        """Tell whether the instance fits."""
        return bool(self._checker.is_valid(instance))

    def faults(self, instance: object) -> Iterator[Violation]:
        """Give every place where it does not."""
        for error in self._checker.iter_errors(instance):
            yield _violation(error, instance)


class PortableEngine:
    """`jsonschema`, over an empty registry.

    Patterns are Python's, so one that only ECMA 262 has is refused when the schema is compiled.
    """

    def __init__(self, schema: JSONObject, dialect: str) -> None:
        import jsonschema  # noqa: PLC0415 - on demand, and so is the next one
        import referencing.jsonschema  # noqa: PLC0415

        # Their types are not complete, so they are taken as they come.
        portable: Any = jsonschema
        checkers: dict[str, Any] = {
            "2020-12": portable.Draft202012Validator,
            "2019-09": portable.Draft201909Validator,
            "draft-07": portable.Draft7Validator,
            "draft-06": portable.Draft6Validator,
            "draft-04": portable.Draft4Validator,
        }
        checker = checkers[dialect]
        try:
            checker.check_schema(schema)
        except portable.SchemaError as error:
            raise SchemaError(f"{pointer(error.absolute_path)}: {error.message}"[:400]) from error
        # It holds nothing and fetches nothing.
        registry: Any = cast("Any", referencing.Registry)()
        specification = referencing.jsonschema.specification_with(checker.META_SCHEMA["$schema"])
        _check_parts(schema, registry.resolver_with_root(specification.create_resource(schema)))
        self._checker: Any = checker(schema, registry=registry)

    def is_valid(self, instance: object) -> bool:
        """Tell whether the instance fits."""
        return bool(self._checker.is_valid(instance))

    def faults(self, instance: object) -> Iterator[Violation]:
        """Give every place where it does not."""
        for error in self._checker.iter_errors(instance):
            yield _portable_violation(error)


def _check_parts(schema: object, resolver: Any) -> None:
    """Refuse at compile time what would only fail when an instance comes."""
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - on demand

    queue = [schema]
    while queue:
        node = queue.pop()
        if isinstance(node, list):
            queue.extend(cast("list[object]", node))
        if not isinstance(node, dict):
            continue
        fields = cast("JSONObject", node)
        queue.extend(fields.values())
        reference = fields.get("$ref")
        if isinstance(reference, str):
            try:
                resolver.lookup(reference)
            except Unresolvable as error:
                raise _refusal(reference) from error
        for pattern in patterns_in(fields):
            try:
                re.compile(pattern)
            except re.error as error:
                raise SchemaError(f"pattern {pattern[:80]!r}: {error}") from error


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
    "type": lambda kind: f"is not of type {' or '.join(sorted(kind.value))}",
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


def _violation(error: Any, instance: object) -> Violation:
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


@attrs.frozen
class _Kind:
    """The part of a fast engine's error that the messages use."""

    name: str
    value: Any


def _portable_violation(error: Any) -> Violation:
    rule = str(error.validator)
    value: Any = error.validator_value
    instance: Any = error.instance
    match rule:
        case "required":
            value = next((name for name in value if name not in instance), "a property")
        case "additionalProperties" | "unevaluatedProperties":
            value = _strangers(error)
        case "type":
            value = cast("list[str]", value) if isinstance(value, list) else [value]
        case _:
            pass
    write = _MESSAGES.get(rule)
    message = write(_Kind(rule, value)) if write else f"breaks {rule}"
    return Violation(pointer=pointer(error.absolute_path), rule=rule, message=message)


def _strangers(error: Any) -> list[str]:
    schema = cast("Mapping[str, Any]", error.schema)
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    return [
        name
        for name in cast("Mapping[str, object]", error.instance)
        if name not in known and not any(re.search(pattern, name) for pattern in patterns)
    ]
