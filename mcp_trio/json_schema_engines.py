"""The fast engine behind `json_schema`, and what makes its time bounded.

`jsonschema_rs` is used where it is installed, which is wherever it has a wheel; elsewhere
`PortableEngine` does all. It follows each reference anew and describes every fault it finds, so a
value is weighed first where its schema calls for that: what costs too much goes to the portable
engine, which looks at each place once for each reference and stops at a limit.
Neither library is imported before the first schema is compiled: a client may never see one.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

from mcp_trio.json_schema_effort import effort
from mcp_trio.json_schema_faults import (
    TOO_COSTLY,
    UNTOLD,
    SchemaError,
    Violation,
    message,
    pointer,
    refusal,
    unknown,
)
from mcp_trio.json_schema_looks import Parts
from mcp_trio.json_schema_nodes import size
from mcp_trio.json_schema_portable import PortableEngine
from mcp_trio.json_schema_work import Costs, Work
from mcp_trio.wire.basic import JSONObject

FAST = importlib.util.find_spec("jsonschema_rs") is not None
"""Whether the fast engine is installed."""

MAX_UNITS = 1_000_000
"""Units that one value may cost beyond what is fair for its size; about 40 ms."""
MAX_TOLD = 500_000
"""Rules times values up to which the fast engine tells all faults: each has a copy of its place."""
_AGAIN = 10
"""How often it may look again at what it tells faults of."""


class Engine(Protocol):
    """A compiled schema, which takes a bounded time for any value."""

    def is_valid(self, instance: object) -> bool:
        """Tell whether the instance fits; one that costs too much is said not to."""
        ...

    def faults(self, instance: object, most: int) -> list[Violation]:
        """Give the places where it does not, or `TOO_COSTLY`; so many at most."""
        ...


class FastEngine:
    """`jsonschema_rs`."""

    def __init__(self, schema: JSONObject, dialect: str, parts: Parts) -> None:
        import jsonschema_rs as fast  # noqa: PLC0415 - on demand

        checkers: dict[str, Any] = {
            "2020-12": fast.Draft202012Validator,
            "2019-09": fast.Draft201909Validator,
            "draft-07": fast.Draft7Validator,
            "draft-06": fast.Draft6Validator,
            "draft-04": fast.Draft4Validator,
        }

        def refuse(uri: str) -> None:
            raise refusal(uri)

        backtracks = min((effort(each).backtracks for each in parts.patterns()), default=None)
        self._options = fast.FancyRegexOptions(backtrack_limit=backtracks)
        self._class: Any = checkers[dialect]
        self._schema, self._dialect, self._parts = schema, dialect, parts
        try:
            self._checker: Any = self._class(
                schema, retriever=refuse, pattern_options=self._options
            )
        except fast.ValidationError as error:
            # Where in the schema it is: a large one says the same word many times.
            where = pointer(error.instance_path)
            said = error.message.split("\n", 1)[0]
            raise SchemaError(f"{where}: {said}"[:400] if where else said[:400]) from error
        except ValueError as error:
            raise SchemaError(str(error).split("\n", 1)[0][:400]) from error

    def is_valid(self, instance: object) -> bool:
        """Tell whether the instance fits; one that costs too much is said not to."""
        if self._is_costly(self._weigh(instance)):
            return self._careful is not None and self._careful.is_valid(instance)
        return bool(self._checker.is_valid(instance))

    def faults(self, instance: object, most: int) -> list[Violation]:
        """Give the places where it does not, or `TOO_COSTLY`; so many at most."""
        work = self._weigh(instance)
        if self._is_costly(work):
            return [TOO_COSTLY] if self._careful is None else self._careful.faults(instance, most)
        if self._checker.is_valid(instance):
            return []
        work = work or self._costs.of(instance, MAX_UNITS)
        copied = work.faults * size(instance, MAX_TOLD)
        if copied <= MAX_TOLD and work.units <= MAX_UNITS // _AGAIN + work.fair:
            errors = itertools.islice(self._checker.iter_errors(instance), most)
            return [_violation(error, instance) for error in errors]
        found = [] if self._careful is None else self._careful.faults(instance, most)
        return [UNTOLD] if found in ([], [TOO_COSTLY]) else found

    @cached_property
    def _costs(self) -> Costs:
        return Costs(self._parts, self._schema)

    @cached_property
    def _careful(self) -> PortableEngine | None:
        held = str(self._schema)
        if "patternProperties" in held and "unevaluatedProperties" in held:
            return None  # there the library would match patterns in its own way
        try:
            return PortableEngine(self._schema, self._dialect, self._parts, matcher=self._matcher)
        except SchemaError:
            return None

    def _matcher(self, pattern: str) -> Callable[[str], bool]:
        checker: Any = self._class({"pattern": pattern}, pattern_options=self._options)
        matches: Callable[[str], bool] = checker.is_valid
        return matches

    def _weigh(self, instance: object) -> Work | None:
        costs = self._costs
        return None if costs.are_low(instance) else costs.of(instance, MAX_UNITS)

    def _is_costly(self, work: Work | None) -> bool:
        return work is not None and work.units > MAX_UNITS + work.fair


def _violation(error: Any, instance: object) -> Violation:
    rule = error.kind.name
    said = message(rule, error.kind)
    if rule == "falseSchema" and error.schema_path[-1] == "additionalProperties":
        # An object that allows no property at all; the library does not say which it has.
        place: Any = instance
        for part in error.instance_path:
            place = place[part]
        if place != error.instance:
            rule, said = "additionalProperties", unknown(place)
    return Violation(pointer=pointer(error.instance_path), rule=rule, message=said)
