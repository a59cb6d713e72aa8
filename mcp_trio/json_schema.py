"""JSON Schema validation: a fast yes, and a no that says where and why.

Nothing is ever fetched: a `$ref` to the network is refused when the schema is compiled (J2).
What does not fit is described by place and rule; the offending value is never repeated.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import cast

from mcp_trio.json_schema_effort import effort
from mcp_trio.json_schema_engines import FAST, Engine, FastEngine
from mcp_trio.json_schema_faults import SchemaError, Violation, pointer
from mcp_trio.json_schema_looks import MAX_LOOKS, Parts, looks
from mcp_trio.json_schema_nodes import slow
from mcp_trio.json_schema_patterns import MAX_COST, cost, patterns_in
from mcp_trio.json_schema_portable import PortableEngine
from mcp_trio.wire.basic import JSONObject

__all__ = ["DIALECTS", "SchemaError", "Validator", "Violation", "pointer"]

ENGINE: Callable[[JSONObject, str, Parts], Engine] = FastEngine if FAST else PortableEngine
"""Chosen once, by what is installed."""

MAX_DEPTH = 64
"""Nesting of a schema (J3)."""
MAX_NODES = 20_000
"""Objects and arrays in a schema (J3)."""
MAX_NUMBERS = 500_000
"""Units that all integers of a schema may cost together: ten of four thousand digits."""
MAX_VIOLATIONS = 20
"""Violations reported for one instance."""

DIALECTS = {
    "https://json-schema.org/draft/2020-12/schema": "2020-12",
    "https://json-schema.org/draft/2019-09/schema": "2019-09",
    "http://json-schema.org/draft-07/schema": "draft-07",
    "http://json-schema.org/draft-06/schema": "draft-06",
    "http://json-schema.org/draft-04/schema": "draft-04",
}
"""Supported dialects by `$schema`, without the empty fragment (J1)."""
DEFAULT_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def _measure(schema: object) -> None:
    """Refuse schemas that are too deep, too large or too slow to compile, without recursion."""
    level: list[object] = [schema]
    nodes = depth = weight = numbers = 0
    while level:
        depth += 1
        nodes += len(level)
        if depth > MAX_DEPTH:
            raise SchemaError(f"schema is nested more than {MAX_DEPTH} levels deep")
        if nodes > MAX_NODES:
            raise SchemaError(f"schema has more than {MAX_NODES} parts")
        for pattern in itertools.chain.from_iterable(map(patterns_in, level)):
            weight += cost(pattern)
            if weight > MAX_COST:
                raise SchemaError(f"patterns such as {pattern[:80]!r} are too large")
            if effort(pattern).endless:
                raise SchemaError(f"the pattern {pattern[:80]!r} may take too long to match")
        children = [child for node in level for child in _children(node)]
        numbers += sum(slow(child) for child in children if isinstance(child, int))
        if numbers > MAX_NUMBERS:
            raise SchemaError("numbers are too large")
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
        known = DIALECTS.get(dialect.removesuffix("#")) if isinstance(dialect, str) else None
        if known is None:
            raise SchemaError(f"unsupported $schema; supported are {', '.join(DIALECTS)}")
        self.schema: JSONObject = dict(schema)
        parts = Parts(self.schema)
        counted = looks(parts)
        if counted is None:
            raise SchemaError("a $ref leads back to where it stands, so checking would not end")
        if counted > MAX_LOOKS:
            raise SchemaError("references multiply: one place would be checked many times")
        self._engine: Engine = ENGINE(self.schema, known, parts)

    def is_valid(self, instance: object) -> bool:
        """Tell whether the instance fits; one that takes too long to check is said not to."""
        return self._engine.is_valid(instance)

    def violations(self, instance: object) -> list[Violation]:
        """Say where the instance does not fit, `MAX_VIOLATIONS` places at most.

        The time is bounded by a small multiple of the size, and where that is not enough the
        one violation says that it takes too long; nothing is known of the instance then.
        """
        return self._engine.faults(instance, MAX_VIOLATIONS)
