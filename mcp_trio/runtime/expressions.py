"""JMESPath as mappings use it: compiled once, bounded, and silent about values.

Errors say what kind of thing went wrong and never repeat data, because arguments and
upstream bodies may hold what must not be logged. Trees of expressions are `mapping`'s, the
other language is `jsonata`'s.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Protocol, cast

import attrs
import jmespath
import jmespath.exceptions
import jmespath.functions
import msgspec

MAX_SOURCE = 4_096
"""Characters in one expression."""
MAX_SYNTAX_DEPTH = 64
"""Levels in the syntax tree of one expression."""
MAX_TEXT = 4 << 20
"""Characters a function may produce at once."""


class ExpressionError(Exception):
    """An expression that does not compile, or failed on the data; no values in the text."""


class _Functions(jmespath.functions.Functions):  # type: ignore[misc]  # the library has no types
    """The built-in functions, with those that can multiply text bounded."""

    @jmespath.functions.signature({"types": []})  # type: ignore[untyped-decorator]
    def _func_to_string(self, arg: object) -> str:
        if isinstance(arg, str):
            return arg
        # Aliased sub-trees multiply when written out, so count before writing.
        if measure(arg, MAX_TEXT // 8) is None:
            raise ExpressionError("to_string() of too large a value")
        return msgspec.json.encode(arg).decode()

    @jmespath.functions.signature({"types": ["string"]}, {"types": ["array-string"]})  # type: ignore[untyped-decorator]
    def _func_join(self, separator: str, array: list[str]) -> str:
        if sum(map(len, array)) + len(separator) * len(array) > MAX_TEXT:
            raise ExpressionError("join() makes too long a text")
        return separator.join(array)


_OPTIONS = jmespath.Options(custom_functions=_Functions())
_KNOWN_FUNCTIONS = frozenset(cast("Mapping[str, object]", _Functions.FUNCTION_TABLE))


def measure(value: object, most: int, depth: int = 200) -> int | None:
    """Count the values in a tree; None if there are more than `most` or it is too deep."""
    level: list[object] = [value]
    nodes = 0
    while level:
        nodes += len(level)
        depth -= 1
        if nodes > most or depth < 0:
            return None
        below: list[object] = []
        for node in level:
            if isinstance(node, dict):
                below.extend(cast("dict[str, object]", node).values())
            elif isinstance(node, list):
                below.extend(cast("list[object]", node))
            if nodes + len(below) > most:
                return None
        level = below
    return nodes


class Expression(Protocol):
    """A compiled expression. Immutable; evaluating it has no side effects."""

    @property
    def names(self) -> frozenset[tuple[str, str | None]]:
        """What it reads of its context: the name, and the key below it where that is plain."""
        ...

    def evaluate(self, context: Mapping[str, object]) -> object:
        """Evaluate; null where there is nothing.

        Raises:
            ExpressionError: it failed on this data, or a bound was hit.
        """
        ...


@attrs.frozen(kw_only=True, eq=False)
class JMESPath:
    """A compiled JMESPath expression. Implements `Expression`."""

    source: str
    names: frozenset[tuple[str, str | None]]
    """What it reads of its context: the name, and the key below it where that is plain."""
    _parsed: Any = attrs.field(alias="parsed")

    def evaluate(self, context: Mapping[str, object]) -> object:
        """Evaluate.

        Raises:
            ExpressionError: a function got a value of the wrong type, or a bound was hit.
        """
        try:
            return cast("object", self._parsed.search(context, _OPTIONS))
        except jmespath.exceptions.JMESPathTypeError as error:
            # Its own text repeats the value.
            raise ExpressionError(
                f"{error.function_name}() cannot take a value of type {error.actual_type}"
            ) from error
        except RecursionError as error:
            raise ExpressionError("the data is nested too deep") from error
        except (
            jmespath.exceptions.JMESPathError,
            TypeError,
            ValueError,
            LookupError,
            ArithmeticError,
            AttributeError,
        ) as error:
            raise ExpressionError(f"failed on this data ({type(error).__name__})") from error


@functools.lru_cache(maxsize=4_096)
def compile_expression(source: str) -> JMESPath:
    """Compile. Operations say the same things over and over, so the latest are kept.

    Raises:
        ExpressionError: not JMESPath, too long, or it calls a function that does not exist.
    """
    if len(source) > MAX_SOURCE:
        raise ExpressionError(f"expression is longer than {MAX_SOURCE} characters")
    try:
        parsed = jmespath.compile(source)
    except jmespath.exceptions.JMESPathError as error:
        # The first line names the position; the others draw the source again.
        raise ExpressionError(f"not a JMESPath expression: {str(error).splitlines()[0]}") from error
    except RecursionError as error:
        raise ExpressionError("expression is nested too deep") from error
    names: set[tuple[str, str | None]] = set()
    _walk(parsed.parsed, names, at_root=True, depth=0)
    return JMESPath(source=source, names=frozenset(names), parsed=parsed)


_REST_IS_RELATIVE = {
    "subexpression",
    "index_expression",
    "pipe",
    "projection",
    "value_projection",
    "filter_projection",
}
"""Nodes whose first child sees what the node sees, and whose others see its value."""


def _walk(
    node: Mapping[str, Any], names: set[tuple[str, str | None]], *, at_root: bool, depth: int
) -> None:
    """Collect what is read of the context, and refuse unknown functions."""
    if depth > MAX_SYNTAX_DEPTH:
        raise ExpressionError(f"expression is nested more than {MAX_SYNTAX_DEPTH} levels deep")
    kind = node["type"]
    children: list[Mapping[str, Any]] = [c for c in node["children"] if isinstance(c, Mapping)]
    if kind == "function_expression" and node["value"] not in _KNOWN_FUNCTIONS:
        raise ExpressionError(f"there is no function {str(node['value'])[:40]}()")
    if kind == "field" and at_root:
        names.add((str(node["value"]), None))
    if kind == "subexpression" and at_root and children[0]["type"] == "field":
        names.add((str(children[0]["value"]), _first_field(children[1])))
        children = [{"type": "current", "children": []}, *children[1:]]
    for index, child in enumerate(children):
        sees_root = at_root and kind != "expref" and (index == 0 or kind not in _REST_IS_RELATIVE)
        _walk(child, names, at_root=sees_root, depth=depth + 1)


def _first_field(node: Mapping[str, Any]) -> str | None:
    while node["type"] != "field":
        if node["type"] not in {*_REST_IS_RELATIVE, "flatten"} or not node["children"]:
            return None
        node = node["children"][0]
    return str(node["value"])
