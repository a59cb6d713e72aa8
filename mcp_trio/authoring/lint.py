"""What compiles and still looks unwise: for a model, for a client, or for its author."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import cast

import attrs
import msgspec

from mcp_trio.catalog.operation import Operation
from mcp_trio.runtime.pipeline import CompiledOperation
from mcp_trio.wire import JSONObject

MAX_NAME = 64
"""Characters of a name that every client takes."""
MAX_TEXT = 1_024
"""Characters of a description that a model can be expected to weigh."""
MAX_LISTED = 32_768
"""Bytes of one tool in a listing, about 8,000 tokens."""

_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_ARGUMENT = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SECRET = re.compile(
    r"(?i)\bbearer [A-Za-z0-9._~+/-]{16,}|\b(sk|pk|rk)_(live|test)_\w{10,}|\bgh[pousr]_\w{20,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\bxox[abprs]-[\w-]{10,}|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|\beyJ[\w-]{10,}\.[\w-]{10,}\."
)
_EXPRESSION = re.compile(
    r"(args|principal|request|vars|body|status|headers|data|errors|rows|message|messages|content)"
    r"((\.[A-Za-z_]\w*|\[\d*\])+)"
)
"""What a text is that was to be an expression; words of prose are not."""
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_ROOT_COMBINERS = ("oneOf", "anyOf", "allOf")
_LITERALS = {"json", "none"}


@attrs.frozen
class Warned:
    """One warning, at a place in the view."""

    path: tuple[str | int, ...]
    reason: str
    advice: str


def lint(compiled: CompiledOperation) -> Iterator[Warned]:
    """Look at one sound operation."""
    operation = compiled.operation
    yield from _names(operation)
    yield from _description(operation)
    yield from _arguments(operation, compiled)
    yield from _results(operation)
    yield from _behaviour(operation, compiled)
    yield from _secrets(operation)
    yield from _forgotten(operation)


def _names(operation: Operation) -> Iterator[Warned]:
    name = operation.name
    if len(name) > MAX_NAME:
        yield Warned(
            ("name",), f"has {len(name)} characters; some clients take {MAX_NAME}", "Shorten it."
        )
    if _SNAKE.fullmatch(name) is None:
        yield Warned(("name",), "is not in snake_case", "Write it like list_open_orders.")
    for argument in _properties(operation.input_schema):
        if _ARGUMENT.fullmatch(argument) is None:
            yield Warned(
                ("input_schema", "properties", argument),
                "some clients take only letters, digits, '_', '.' and '-' in names of arguments",
                "Rename the argument; the mapping keeps the upstream's name.",
            )


def _description(operation: Operation) -> Iterator[Warned]:
    said = operation.tool_description
    text = said if isinstance(said, str) else cast("str", said["text"])
    if not text.strip():
        yield Warned(
            ("tool_description",),
            "is empty: a model cannot tell when to use the tool",
            "Say what it does and when to use it, in a sentence or two.",
        )
    elif len(text) > MAX_TEXT:
        yield Warned(
            ("tool_description",),
            f"has {len(text)} characters, which every listing pays for",
            f"Say it in {MAX_TEXT}.",
        )
    weight = len(msgspec.json.encode([operation.input_schema, operation.output_schema]))
    if weight > MAX_LISTED:
        yield Warned(
            ("input_schema",),
            f"the schemas weigh {weight} bytes, about {weight // 4} tokens, in every listing",
            "Leave out what a model will not use, or publish several narrower operations.",
        )


def _arguments(operation: Operation, compiled: CompiledOperation) -> Iterator[Warned]:
    schema = operation.input_schema
    for keyword in _ROOT_COMBINERS:
        if keyword in schema:
            yield Warned(
                ("input_schema", keyword),
                f"some clients refuse {keyword} at the root of input_schema",
                "Describe one object; let the upstream refuse what does not go together.",
            )
    if not operation.input_mapping:
        if _properties(schema) and operation.protocol != "static":
            yield Warned(
                ("input_mapping",),
                "is empty, so arguments go where their names say",
                "Write the mapping out; a renamed argument then changes nothing upstream.",
            )
        return
    reads = set(compiled.plan.reads)
    output = compiled.output
    for mapper in (output.success_when, output.result, output.text, *output.errors.values()):
        reads |= set() if mapper is None else mapper.names
    if ("args", None) in reads:
        return
    used = {key for name, key in reads if name == "args"}
    required = cast("list[str]", schema.get("required") or [])
    for argument in _properties(schema):
        if argument not in used:
            must = "required and " if argument in required else ""
            yield Warned(
                ("input_schema", "properties", argument),
                f"is {must}never used by a mapping",
                "Map it, or remove it: a model would fill it in for nothing.",
            )


def _results(operation: Operation) -> Iterator[Warned]:
    schema, result = operation.output_schema, operation.output_mapping.get("result")
    if schema is None or not isinstance(result, dict) or "expr" in result:
        return
    made = cast("JSONObject", result)
    known = _properties(schema)
    closed = schema.get("additionalProperties") is False
    for key in made:
        if known and key not in known and not schema.keys() & {*_ROOT_COMBINERS, "$ref"}:
            broken = (
                "which output_schema forbids" if closed else "which output_schema does not name"
            )
            yield Warned(
                ("output_mapping", "result", key),
                f"makes {key[:80]!r}, {broken}",
                "Add it to output_schema.properties, or leave it out.",
            )
    for key in cast("list[str]", schema.get("required") or []):
        if key not in made:
            yield Warned(
                ("output_mapping", "result"),
                f"never makes {key[:80]!r}, which output_schema requires",
                "Make it, or do not require it.",
            )


def _behaviour(operation: Operation, compiled: CompiledOperation) -> Iterator[Warned]:
    config = operation.execution_config
    method = operation.target.get("method")
    writes = operation.protocol == "rest" and method in _WRITES
    idempotent = compiled.plan.idempotent or config.get("idempotent") is True
    if "retry" in config and not idempotent:
        yield Warned(
            ("execution_config", "retry"),
            "has no effect: what may not be sent twice is sent once",
            "Say idempotent: true if sending twice does no harm, or leave retry out.",
        )
    said = operation.tool_description
    hints = {} if isinstance(said, str) else cast("JSONObject", said.get("annotations") or {})
    if writes and hints.get("readOnlyHint") is True:
        yield Warned(
            ("tool_description", "annotations", "readOnlyHint"),
            f"says read-only, and the method is {method}",
            "Remove the hint unless the request changes nothing.",
        )
    if method == "DELETE" and hints.get("destructiveHint") is False:
        yield Warned(
            ("tool_description", "annotations", "destructiveHint"),
            "says that nothing is destroyed, and the method is DELETE",
            "Remove the hint unless that is so.",
        )


def _secrets(operation: Operation) -> Iterator[Warned]:
    waiting: list[tuple[tuple[str | int, ...], object]] = [((), dict(operation.view()))]
    while waiting:
        path, node = waiting.pop()
        if isinstance(node, dict):
            held = cast("JSONObject", node)
            waiting += [((*path, key), child) for key, child in held.items()]
        elif isinstance(node, list):
            items = cast("list[object]", node)
            waiting += [((*path, index), child) for index, child in enumerate(items)]
        elif isinstance(node, str) and path[:1] != ("tool_description",) and _SECRET.search(node):
            yield Warned(
                path,
                "looks like a secret, and everybody who may read the registry can read it",
                "Take it out, replace it upstream, and let the connection hold the new one.",
            )


def _forgotten(operation: Operation) -> Iterator[Warned]:
    """Texts in mappings that lack the sign of an expression."""
    waiting: list[tuple[tuple[str | int, ...], object]] = [
        (("input_mapping",), dict(operation.input_mapping)),
        (("output_mapping",), dict(operation.output_mapping)),
    ]
    while waiting:
        path, node = waiting.pop()
        if isinstance(node, dict):
            held = cast("JSONObject", node)
            # With `expr` it is an expression already.
            waiting += [((*path, key), child) for key, child in held.items() if key != "expr"]
        elif isinstance(node, list):
            items = cast("list[object]", node)
            waiting += [((*path, index), child) for index, child in enumerate(items)]
        elif isinstance(node, str) and _EXPRESSION.fullmatch(node):
            yield Warned(
                path,
                f"is the text {node[:80]!r}, and reads like an expression",
                f"Write '={node[:80]}' if its value is meant.",
            )


def _properties(schema: Mapping[str, object]) -> JSONObject:
    found = schema.get("properties")
    return cast("JSONObject", found) if isinstance(found, dict) else {}
