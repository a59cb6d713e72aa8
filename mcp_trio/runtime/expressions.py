"""JMESPath as mappings use it: compiled once, bounded, and silent about values.

Errors say what kind of thing went wrong and never repeat data, because arguments and
upstream bodies may hold what must not be logged. Trees of expressions are `mapping`'s, the
other language is `jsonata`'s.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, Protocol, cast

import attrs
import jmespath
import jmespath.exceptions
import jmespath.functions
import jmespath.visitor
import msgspec

MAX_SOURCE = 4_096
"""Characters in one expression."""
MAX_SYNTAX_DEPTH = 64
"""Levels in the syntax tree of one expression."""
MAX_TEXT = 4 << 20
"""Characters a function may produce at once."""
MAX_STEPS = 1_000_000
"""Steps that the expressions of one side of a call may take together: about a second."""
MAX_MILLISECONDS = 1_000
"""What those in JSONata may take together."""


class ExpressionError(Exception):
    """An expression that does not compile, or failed on the data; no values in the text."""


class Scope(dict[str, object]):
    """What the expressions of one side of a call see, and the effort they have together.

    Any other mapping is a context too; then each expression has all of the effort for itself.
    """

    def __init__(self, held: Mapping[str, object]) -> None:
        super().__init__(held)
        self.steps = MAX_STEPS
        """Steps of JMESPath that are left."""
        self.milliseconds: float = MAX_MILLISECONDS
        """Time of JSONata that is left."""


class _Functions(jmespath.functions.Functions):  # type: ignore[misc]  # the library has no types
    """The built-in functions, with those that can multiply text bounded."""

    @jmespath.functions.signature({"types": []})  # type: ignore[untyped-decorator]
    def _func_to_string(self, arg: object) -> str:
        if isinstance(arg, str):
            return arg
        # Aliased sub-trees multiply when written out, so count before writing.
        if measure(arg, MAX_TEXT // 8) is None:
            raise ExpressionError("to_string() of too large a value")
        unfit = unfit_for_json(arg, MAX_TEXT)
        if unfit is not None:
            raise ExpressionError(f"to_string() of what {unfit}")
        return msgspec.json.encode(arg).decode()

    @jmespath.functions.signature({"types": []})  # type: ignore[untyped-decorator]
    def _func_to_number(self, arg: object) -> int | float | None:
        # What the specification says; the library takes `nan`, `1_0` and digits of all scripts.
        if isinstance(arg, str):
            return as_number(arg)
        return arg if isinstance(arg, int | float) and not isinstance(arg, bool) else None

    @jmespath.functions.signature({"types": ["string"]}, {"types": ["array-string"]})  # type: ignore[untyped-decorator]
    def _func_join(self, separator: str, array: list[str]) -> str:
        if sum(map(len, array)) + len(separator) * len(array) > MAX_TEXT:
            raise ExpressionError("join() makes too long a text")
        return separator.join(array)


_OPTIONS = jmespath.Options(custom_functions=_Functions())


class _Interpreter(jmespath.visitor.TreeInterpreter):  # type: ignore[misc]  # the library has no types
    """Evaluates, and counts the steps.

    Values share their parts, so a short expression can make something that is enormous to walk
    over, to compare or to flatten.
    """

    def __init__(self, scope: Scope) -> None:
        super().__init__(_OPTIONS)
        self._scope = scope

    def _spend(self, steps: int) -> None:
        self._scope.steps -= steps
        if self._scope.steps < 0:
            raise ExpressionError("takes too many steps on this data")

    def _spend_on_all(self, value: object) -> None:
        """For what looks at every part of a value."""
        waiting = [value]
        while waiting:
            node = waiting.pop()
            # Before its parts are waiting, so there are never more than steps.
            self._spend(_length(node))
            if isinstance(node, dict):
                held = cast("dict[str, object]", node)
                self._spend(sum(map(_length, held)))
                waiting.extend(held.values())
            elif isinstance(node, list):
                waiting.extend(cast("list[object]", node))

    def visit(self, node: Any, *args: Any, **more: Any) -> Any:
        self._spend(1)
        made: Any = super().visit(node, *args, **more)
        if isinstance(made, str):
            # Whatever is next done with it, as with a key to sort by, looks at it.
            self._spend(len(made) >> 10)
        return made

    def visit_flatten(self, node: Any, value: Any) -> Any:
        base: object = self.visit(node["children"][0], value)
        if _is_tree(base):
            self._spend(sum(map(_length, cast("list[object]", base))))
        return super().visit_flatten(_parent_of(base, of=node), value)

    def visit_slice(self, node: Any, value: Any) -> Any:
        self._spend(_length(value))
        return super().visit_slice(node, value)

    def visit_comparator(self, node: Any, value: Any) -> Any:
        left, right = [cast("object", self.visit(child, value)) for child in node["children"]]
        if _is_tree(right):
            self._spend_on_all(left)
        self._spend(min(_length(left), _length(right)))
        return super().visit_comparator(_parent_of(left, right, of=node), value)

    def visit_function_expression(self, node: Any, value: Any) -> Any:
        given = [cast("object", self.visit(child, value)) for child in node["children"]]
        for each in given:
            self._spend(_length(each))
            if isinstance(each, list):
                parts = cast("list[object]", each)
                self._spend(sum(_length(part) for part in parts if isinstance(part, str)))
        if node["value"] in {"contains", "to_string"}:
            self._spend_on_all(given[0] if given else None)
        made: Any = super().visit_function_expression(_parent_of(*given, of=node), value)
        self._spend(_length(made))
        return made


def _parent_of(*values: object, of: Any) -> Any:
    """A node whose children were evaluated already."""
    children: list[object] = [{"type": "literal", "value": v, "children": []} for v in values]
    return {**of, "children": children}


def _is_tree(value: object) -> bool:
    return isinstance(value, list | dict)


def _length(value: object) -> int:
    """Steps for going over a value once: much more text than values is done in one."""
    match value:
        case str():
            return len(value) >> 6
        case list() | dict():
            return len(cast("list[object]", value))
        case _:
            return 0


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


def unfit_for_json(value: object, most: int) -> str | None:
    """Say what is in a value, already measured, that JSON does not have; None if all is well.

    Args:
        value: the value.
        most: characters that it may have.
    """
    waiting = [value]
    left = most
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            left -= len(node)
            if not node.isascii() and _has_half_a_character(node):
                return "holds half a character"
            if left < 0:
                return f"has more than {most} characters"
        elif isinstance(node, dict):
            held = cast("dict[str, object]", node)
            waiting.extend(held)
            waiting.extend(held.values())
        elif isinstance(node, list):
            waiting.extend(cast("list[object]", node))
        elif isinstance(node, float) and not math.isfinite(node):
            return "holds a number that JSON does not have"
    return None


def _has_half_a_character(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def as_number(text: str) -> int | float | None:
    """The number that a text is in JSON; None if it is none."""
    try:
        number: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return cast("float", number) if type(number) in {int, float} else None


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
            scope = context if isinstance(context, Scope) else Scope(context)
            return cast("object", _Interpreter(scope).visit(self._parsed.parsed, context))
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
    if kind == "literal" and unfit_for_json(node["value"], MAX_SOURCE) is not None:
        raise ExpressionError("has a literal that is no JSON")
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
