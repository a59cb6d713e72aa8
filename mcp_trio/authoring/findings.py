"""What is found wrong with operations: where, why, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

import attrs

from mcp_trio.json_schema import pointer
from mcp_trio.wire import JSONObject


@attrs.frozen(kw_only=True)
class Finding:
    """One thing to mend, or to think about."""

    severity: str
    """`fault`: it cannot be published. `warning`: it can, and may not do what was meant."""
    source: str
    """The file or registry."""
    line: int | None = None
    """From 1; None where there are no lines."""
    path: tuple[str | int, ...] = ()
    """Where in the document, or in the view if it is no document's."""
    operation_id: str = ""
    reason: str
    """What is wrong."""
    advice: str
    """What to do."""

    @property
    def pointer(self) -> str:
        """The place as a JSON Pointer (RFC 6901)."""
        return pointer(self.path)

    def as_json(self) -> JSONObject:
        """For programs."""
        return {
            "severity": self.severity,
            "file": self.source,
            "line": self.line,
            "pointer": self.pointer,
            "operation_id": self.operation_id or None,
            "reason": self.reason,
            "advice": self.advice,
        }

    def as_text(self) -> str:
        """For people, the first line in the form that editors jump to."""
        where = self.source if self.line is None else f"{self.source}:{self.line}"
        whose = f" ({self.operation_id})" if self.operation_id else ""
        place = f" {self.pointer}:" if self.path else ""
        return f"{where}: {self.severity}:{place} {self.reason}{whose}\n    {self.advice}"


def path_of(view: object, place: str) -> tuple[str | int, ...]:
    """Where in a view a place such as `retry.on[0]` is. Keys may hold dots themselves."""
    path: list[str | int] = []
    node, rest = view, place
    while rest:
        index = re.match(r"\[([0-9]{1,9})\]", rest)
        if index is not None and isinstance(node, list):
            path.append(int(index[1]))
            items = cast("list[object]", node)
            node = items[int(index[1])] if int(index[1]) < len(items) else None
            rest = rest[index.end() :]
        elif isinstance(node, dict):
            held = cast("JSONObject", node)
            key = _first_key(held, rest)
            if key is None:
                break
            path.append(key)
            node, rest = held[key], rest[len(key) :]
        else:
            break
        rest = rest.removeprefix(".")
    return tuple(path)


def _first_key(held: JSONObject, rest: str) -> str | None:
    """The longest key that the rest begins with."""
    keys = [k for k in held if k and rest.startswith(k) and rest[len(k) : len(k) + 1] in "[."]
    return max(keys, key=len, default=None)


_ADVICE: Sequence[tuple[str, str]] = (
    (r"^unknown key", "Remove the key, or mend its spelling."),
    (r"^misses 'expr'", "Add the expression."),
    (r"^misses '", "Add the key."),
    (r"^must be one of", "Use one of the values that are listed."),
    (r"JSON Schema", "Write it as JSON Schema 2020-12."),
    (r"\$ref", "Put what it refers to under $defs of the same schema."),
    (r"of target\.path is not mapped", "Add it to input_mapping.path."),
    (r"is not in target\.path", "Remove it, or add the {name} to target.path."),
    (r"there is no connection", "Add [connections.NAME] to the settings, or mend the name."),
    (r"^args\..* is used but", "Add the argument to input_schema.properties, or mend the name."),
    (r"^there is no '", "Read only the names that are listed."),
    (r"there is no function", "Use a function of JMESPath."),
    (
        r"not a JMESPath expression",
        (
            "Mend the expression: a number in it stands in backticks, as in status == `200`, and a "
            "text in quotes, as in args.kind == 'a'. What is no expression has no '=' before it."
        ),
    ),
    (r"not supported by this version", "Leave it out."),
    (
        r"is not available in this installation",
        "Mend the name, or install the package or extra that brings it.",
    ),
    (r"needs the extra", "Install the extra."),
    (r"header is not for an operation", "Set it in the connection, or leave it out."),
    (r"claims the (name|operation_id) too", "Rename one of the two."),
    (r"more than|longer than|too deep|too large|levels", "Make it smaller; split the operation."),
    (r"^must ", "Change the value so that it does."),
)


def advice_for(reason: str) -> str:
    """What to do about a fault that the format or the compiler told."""
    for pattern, advice in _ADVICE:
        if re.search(pattern, reason):
            return advice
    return "Mend this place; nothing is published until then."
