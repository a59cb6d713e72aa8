"""Small parts of ours, each timed alone: `codec`, `converter` or `schema`. Prints JSON.

For each size of what they work on, seconds of the processor that one piece of work took: the best
of some rounds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from mcp_trio.json_schema import Validator
from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.messages import Request, Result
from mcp_trio.wire import CallToolResult
from mcp_trio.wire.content import TextContent
from mcp_trio.wire.converter import from_wire, to_wire
from mcp_trio.wire.revisions import REVISIONS

ROUNDS, LEAST = 7, 0.02
"""Rounds, and the seconds that each one takes at least."""


def best(work: Callable[[], object]) -> float:
    """Seconds of the processor for one piece of work."""
    work()
    count, found = 1, float("inf")
    while True:
        began = time.process_time()
        for _ in range(count):
            work()
        taken = time.process_time() - began
        if taken >= LEAST:
            break
        count *= 2
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(count):
            work()
        found = min(found, (time.process_time() - began) / count)
    return found


def arguments(size: int) -> dict[str, Any]:
    """Arguments with so many members."""
    return {f"field_{n}": n if n % 2 else f"text {n}" for n in range(size)}


def of_codec(size: int) -> dict[str, Callable[[], object]]:
    """A request read, and an answer written."""
    params = {"name": "add", "arguments": arguments(size)}
    read = codec.encode(Request(1, "tools/call", params))
    answer = Result(1, {"content": [], "structuredContent": arguments(size)})
    limits = codec.CodecLimits()
    return {
        "read a request": lambda: codec.decode(read, limits),
        "write an answer": lambda: codec.encode(answer),
    }


def of_converter(size: int) -> dict[str, Callable[[], object]]:
    """A result of so many blocks of text, to and from JSON."""
    result = CallToolResult(content=[TextContent(text=f"text {n}") for n in range(size)])
    told = to_wire(result, REVISIONS[0])
    return {
        "object to JSON": lambda: to_wire(result, REVISIONS[0]),
        "JSON to object": lambda: from_wire(told, CallToolResult, REVISIONS[0]),
    }


def of_schema(size: int) -> dict[str, Callable[[], object]]:
    """Arguments with so many members, judged by a schema of as many."""
    members = arguments(size)
    kinds = {int: "integer", str: "string"}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: {"type": kinds[type(value)]} for name, value in members.items()},
        "required": list(members),
        "additionalProperties": False,
    }
    validator = Validator(schema)
    return {
        "compile a schema": lambda: Validator(schema),
        "judge a value": lambda: validator.violations(members),
    }


PARTS = {"codec": of_codec, "converter": of_converter, "schema": of_schema}


def main(part: str, sizes: list[int]) -> None:
    """Measure and print."""
    found = {size: {k: best(work) for k, work in PARTS[part](size).items()} for size in sizes}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], [int(size) for size in sys.argv[2:]])
