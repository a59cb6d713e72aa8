"""The engine that runs everywhere, and that takes care: `jsonschema`, in plain Python.

It fetches nothing. What a reference said of a place is remembered, so that each place is looked
at once for each reference, and what is done is counted: a check that takes more than its steps
ends. It stops at the faults that were asked for.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, cast

import attrs

from mcp_trio.json_schema_effort import Effort, effort
from mcp_trio.json_schema_faults import (
    TOO_COSTLY,
    SchemaError,
    Violation,
    message,
    pointer,
    refusal,
)
from mcp_trio.json_schema_looks import MAX_LOOKS, Parts, looks
from mcp_trio.json_schema_nodes import size
from mcp_trio.json_schema_patterns import cost, patterns_in
from mcp_trio.wire.basic import JSONObject

MAX_STEPS = 200_000
"""Rules that one value may be held to, where this is the only engine."""
MAX_CAREFUL_STEPS = 5_000
"""The same, where it is the careful one; a step takes some 10 µs."""

MAX_NESTED = 140
"""Rules within rules; five calls of Python each, of which there may be a thousand."""

_UNITS = 125
"""Units of `json_schema_effort` in one step."""
_COMPILED = 10
"""Units of `json_schema_patterns` in one step."""
_WRITTEN = 200
"""Characters that the library writes of a value in one step."""
_NAMED = 50
"""Names that are told at most, of which the message has a few."""
_EQUAL = 5
"""Values of the schema that are compared in one step."""
_COMPARED = 50
"""Values that are compared in one step."""

_Matcher = Callable[[str], Callable[[str], bool]]
_Rule = Callable[..., "Iterator[Any] | None"]


class _SpentError(Exception):
    """No steps are left."""


@attrs.define
class _Check:
    """What is known while one value is checked."""

    steps: int
    answers: dict[tuple[int, int], Any] = attrs.Factory(dict[tuple[int, int], Any])
    """By the object that holds a reference, and the place: the first fault; None for none."""

    depth: int = 0
    """Rules within rules that are being run."""

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise _SpentError


_check: ContextVar[_Check] = ContextVar("check")


class PortableEngine:
    """`jsonschema`, over an empty registry.

    Patterns are Python's, so one that only ECMA 262 has is refused when the schema is compiled.
    """

    def __init__(
        self,
        schema: JSONObject,
        dialect: str,
        parts: Parts,
        *,
        matcher: _Matcher | None = None,
    ) -> None:
        """Compile.

        Args:
            schema: to compile.
            dialect: its name.
            parts: of the schema.
            matcher: makes of a pattern what tells whether a text matches. With one, this is the
                careful engine for a schema that another one has compiled.

        Raises:
            SchemaError: it cannot be used.
        """
        if parts.dialects:
            raise SchemaError("$schema is understood at the root only")
        if matcher is None:
            _compile(schema, dialect)
        self._steps = MAX_STEPS if matcher is None else MAX_CAREFUL_STEPS
        self._matcher = matcher or _python
        self._matchers: dict[str, tuple[Callable[[str], bool], Effort]] = {}
        checker = _checkers()[dialect]
        rules: dict[str, _Rule] = {**checker.VALIDATORS, **self._own(checker.VALIDATORS)}
        if "$dynamicRef" in (held := str(schema)) or "$recursiveRef" in held:
            # What a reference means depends on the way to it, so no answer is remembered.
            rules["$ref"] = checker.VALIDATORS["$ref"]
        looked = looks(parts) if parts.refers else len(parts.all)
        marked = (looked or MAX_LOOKS) // _EQUAL
        counted = {name: _counted(name, rule, marked) for name, rule in rules.items()}
        careful: Any = _library().validators.extend(checker, validators=counted)
        # A part that says its dialect would be checked by the library's own class.
        self._checker: Any = careful(
            {key: value for key, value in schema.items() if key != "$schema"}, registry=_registry()
        )

    def is_valid(self, instance: object) -> bool:
        """Tell whether the instance fits; one that costs too much is said not to."""
        return not self.faults(instance, 1)

    def faults(self, instance: object, most: int) -> list[Violation]:
        """Give the places where it does not, or `TOO_COSTLY`; so many at most."""
        found: list[Violation] = []
        token = _check.set(_Check(self._steps))
        try:
            errors = itertools.islice(self._checker.iter_errors(instance), most)
            found.extend(map(self._violation, errors))
        except (_SpentError, ArithmeticError):  # a number may be too large for it
            return found or [TOO_COSTLY]
        finally:
            _check.reset(token)
        return found

    def _own(self, rules: Mapping[str, _Rule]) -> dict[str, _Rule]:
        """The rules that the library has in another way."""
        own: dict[str, _Rule] = {
            "pattern": self._pattern,
            "patternProperties": self._pattern_properties,
            "additionalProperties": self._additional_properties,
            "anyOf": _any_of,
            "oneOf": _one_of,
            "uniqueItems": _unique(rules["uniqueItems"]),
            "$ref": _remembered(rules["$ref"]),
        }
        return {name: rule for name, rule in own.items() if name in rules}

    def _matches(self, pattern: str, text: str) -> bool:
        check, known = _check.get(), self._matchers.get(pattern)
        if known is None:
            weighed = effort(pattern)
            check.spend(1 + (cost(pattern) // _COMPILED) + weighed.of(len(text)) // _UNITS)
            known = self._matchers[pattern] = (self._matcher(pattern), weighed)
        matches, weighed = known
        check.spend(1 + weighed.of(len(text)) // _UNITS)
        return matches(text)

    def _pattern(self, _: Any, pattern: str, instance: object, __: object) -> Iterator[Any]:
        if isinstance(instance, str) and not self._matches(pattern, instance):
            yield _fault()

    def _pattern_properties(
        self, checker: Any, patterns: JSONObject, instance: object, _: object
    ) -> Iterator[Any]:
        if not isinstance(instance, dict):
            return
        for pattern, schema in patterns.items():
            for name, value in cast("JSONObject", instance).items():
                if self._matches(pattern, name):
                    yield from checker.descend(value, schema, path=name, schema_path=pattern)

    def _additional_properties(
        self, checker: Any, allowed: object, instance: object, schema: JSONObject
    ) -> Iterator[Any]:
        if not isinstance(instance, dict):
            return
        held = cast("JSONObject", instance)
        for name in self._strangers(schema, held):
            if allowed is False:
                yield _fault()
                return
            yield from checker.descend(held[name], allowed, path=name)

    def _strangers(self, schema: JSONObject, instance: JSONObject) -> Iterator[str]:
        known = cast("JSONObject", schema.get("properties", {}))
        patterns = cast("JSONObject", schema.get("patternProperties", {}))
        for name in instance:
            if name not in known and not any(self._matches(each, name) for each in patterns):
                yield name

    def _some_strangers(self, error: Any) -> list[str]:
        """A few names that must not be there; fewer if there are no steps for more."""
        found: list[str] = []
        with contextlib.suppress(_SpentError):
            found.extend(itertools.islice(self._strangers(error.schema, error.instance), _NAMED))
        return found

    def _violation(self, error: Any) -> Violation:
        rule = str(error.validator)
        value: Any = error.validator_value
        match rule:
            case "None":
                rule = "falseSchema"
            case "required":
                value = next((name for name in value if name not in error.instance), "a property")
            case "additionalProperties" | "unevaluatedProperties":
                value = self._some_strangers(error)
            case "type":
                value = cast("list[str]", value) if isinstance(value, list) else [value]
            case _:
                pass
        said = message(rule, _Kind(rule, value))
        return Violation(pointer=pointer(error.absolute_path), rule=rule, message=said)


@attrs.frozen
class _Kind:
    """What the messages use of a fault."""

    name: str
    value: Any


def _library() -> Any:
    # Its types are not complete, so they are taken as they come.
    import jsonschema  # noqa: PLC0415 - on demand

    return jsonschema


def _checkers() -> dict[str, Any]:
    library = _library()
    return {
        "2020-12": library.Draft202012Validator,
        "2019-09": library.Draft201909Validator,
        "draft-07": library.Draft7Validator,
        "draft-06": library.Draft6Validator,
        "draft-04": library.Draft4Validator,
    }


def _registry() -> Any:
    """One that holds nothing and fetches nothing."""
    import referencing  # noqa: PLC0415 - on demand

    return cast("Any", referencing.Registry)()


def _compile(schema: JSONObject, dialect: str) -> None:
    """Refuse what cannot be used."""
    import referencing.jsonschema  # noqa: PLC0415 - on demand

    checker = _checkers()[dialect]
    errors: Any = _library().SchemaError
    try:
        checker.check_schema(schema)
    except errors as error:
        raise SchemaError(f"{pointer(error.absolute_path)}: {error.message}"[:400]) from error
    specification = referencing.jsonschema.specification_with(checker.META_SCHEMA["$schema"])
    _check_parts(schema, _registry().resolver_with_root(specification.create_resource(schema)))


def _python(pattern: str) -> Callable[[str], bool]:
    search = re.compile(pattern).search
    return lambda text: search(text) is not None


def _fault() -> Any:
    return _library().ValidationError("")


def _counted(name: str, rule: _Rule, marked: int) -> _Rule:
    """The same rule, with its steps counted; `marked` is what telling what was judged takes."""
    compares, marks = name in {"enum", "const"}, name.startswith("unevaluated")

    def run(checker: Any, value: Any, instance: object, schema: Any) -> Iterator[Any]:
        check = _check.get()
        check.spend(
            1 + (size(value, MAX_STEPS) // _EQUAL if compares else _length(value) // _COMPARED)
        )
        if marks:
            # What is marked is kept in a list, which is gone through for each of them.
            check.spend(marked + _length(instance) ** 2 // (_COMPARED * _COMPARED))
        depth = check.depth
        if depth == MAX_NESTED:
            raise _SpentError
        check.depth = depth + 1
        for error in rule(checker, value, instance, schema) or ():
            check.spend(1 + len(error.message) // _WRITTEN)
            # Whoever asked may not ask for the next one.
            check.depth = depth
            yield error
            check.depth = depth + 1
        check.depth = depth

    return run


def _length(value: object) -> int:
    return len(cast("list[object]", value)) if isinstance(value, (list, dict)) else 0


def _remembered(rule: _Rule) -> _Rule:
    def refer(checker: Any, value: Any, instance: object, schema: Any) -> Iterator[Any]:
        answers = _check.get().answers
        key = (id(schema), id(instance))
        if key in answers:
            # One fault is enough: all of them were told when it was looked at first.
            if answers[key] is not None:
                yield _copy(answers[key])
            return
        errors: Iterator[Any] = iter(rule(checker, value, instance, schema) or ())
        first: Any = next(errors, None)
        answers[key] = None if first is None else _copy(first)
        if first is not None:
            yield first
            yield from errors

    return refer


def _copy(error: Any) -> Any:
    """An error of its own: whoever passes one on adds to where it is."""
    copied: Any = _library().ValidationError.create_from(error)
    return copied


def _any_of(checker: Any, schemas: list[object], instance: object, _: object) -> Iterator[Any]:
    if not any(checker.evolve(schema=each).is_valid(instance) for each in schemas):
        yield _fault()


def _one_of(checker: Any, schemas: list[object], instance: object, _: object) -> Iterator[Any]:
    fits = (1 for each in schemas if checker.evolve(schema=each).is_valid(instance))
    if sum(itertools.islice(fits, 2)) != 1:
        yield _fault()


def _unique(rule: _Rule) -> _Rule:
    def compare(checker: Any, value: Any, instance: object, schema: Any) -> Iterator[Any]:
        if isinstance(instance, list):
            held = cast("list[object]", instance)
            nested = any(isinstance(each, (dict, list)) for each in held)
            # Those that have no order are compared with each other.
            _check.get().spend(len(held) * (len(held) if nested else 1) // _COMPARED)
        yield from rule(checker, value, instance, schema) or ()

    return compare


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
                raise refusal(reference) from error
        for pattern in patterns_in(fields):
            try:
                re.compile(pattern)
            except re.error as error:
                raise SchemaError(f"pattern {pattern[:80]!r}: {error}") from error
