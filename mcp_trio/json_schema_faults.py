"""What is wrong with a schema, or with a value that does not fit one.

Both engines of `json_schema` describe a fault in these words: by place and rule, without its value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs

from mcp_trio.wire.basic import JSONObject


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


def pointer(path: Iterable[str | int]) -> str:
    """Write a path as a JSON Pointer."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def refusal(uri: str) -> SchemaError:
    """The error for a reference that leads out of the schema."""
    return SchemaError(f"$ref to {uri[:200]} is not followed: schemas must be self-contained")


def message(rule: str, kind: Any) -> str:
    """Say what is wrong.

    Args:
        rule: the keyword.
        kind: with the `value` that the message needs, and the keyword as `name`.
    """
    write = _MESSAGES.get(rule)
    return write(kind) if write else f"breaks {rule}"


def unknown(names: Iterable[str]) -> str:
    """Say that there are keys that must not be there."""
    return f"has unknown keys: {', '.join(sorted(names)[:5])[:200]}"


def _limit(kind: Any) -> str:
    return f"breaks {kind.name} {kind.value}"


# The limits and allowed values stand in the listed schema, so they are no secret.
_MESSAGES: dict[str, Callable[[Any], str]] = {
    "required": lambda kind: f"misses {kind.value}",
    "additionalProperties": lambda kind: unknown(kind.value),
    "unevaluatedProperties": lambda kind: unknown(kind.value),
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


TOO_COSTLY = Violation(
    pointer="",
    rule="cost",
    message="takes too long to check: it is too deep, too long or too large for its schema",
)
"""Of a value that would keep the process busy; whether it fits is not known."""
UNTOLD = Violation(
    pointer="", rule="schema", message="does not fit its schema, and is too large to tell where"
)
"""Of a value that does not fit and has too many places to look for it."""
