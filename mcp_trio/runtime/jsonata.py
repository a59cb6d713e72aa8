"""JSONata as mappings use it: compiled at load, bounded in time and depth, silent about values.

Needs the extra `jsonata`. What the data could make run for minutes, or take gigabytes, inside one
step of the evaluator, where no bound of its own stops it, is refused: regular expressions, ranges
and `$pad`; and `$eval`, which would bring them back.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, cast

import attrs
from jsonata import Jsonata
from jsonata.jexception import JException

from mcp_trio.runtime.expressions import MAX_SOURCE, ExpressionError, Scope, measure

TIMEOUT = 250
"""Milliseconds that one evaluation may take; nothing else runs meanwhile."""
MAX_DEPTH = 150
"""Levels of evaluation."""
MAX_RESULT_NODES = 200_000
MAX_RESULT_DEPTH = 64
_REFUSED = frozenset({"eval", "pad"})
_WHOLE_TYPES = frozenset({"wildcard", "descendant", "parent"})


@attrs.frozen(kw_only=True, eq=False)
class JSONataExpression:
    """A compiled JSONata expression. Implements `Expression`."""

    source: str
    names: frozenset[tuple[str, str | None]]
    """What it may read of its context. It cannot be told for sure, so this is rather too much."""

    def evaluate(self, context: Mapping[str, object]) -> object:
        """Evaluate; null where there is nothing.

        Raises:
            ExpressionError: it failed on this data, or took too long.
        """
        scope = context if isinstance(context, Scope) else Scope(context)
        if scope.milliseconds <= 0:
            raise ExpressionError("the expressions take too long on this data")
        began = time.monotonic()
        # An evaluator holds the state of its evaluation, and its clock begins when it is made.
        try:
            value: object = _compiled(self.source).evaluate(dict(context))
        except JException as error:
            raise ExpressionError(f"failed on this data (JSONata {error.error})") from error
        except RecursionError as error:
            raise ExpressionError("the data is nested too deep") from error
        except (
            TypeError,
            ValueError,
            LookupError,
            ArithmeticError,
            AttributeError,
            MemoryError,
        ) as error:
            raise ExpressionError(f"failed on this data ({type(error).__name__})") from error
        finally:
            scope.milliseconds -= (time.monotonic() - began) * 1000
        return _plain(value)


def _refuse_regex(_pattern: str, _flags: object) -> NoReturn:
    raise ExpressionError("regular expressions are not allowed in JSONata here")


def _compiled(source: str) -> Any:
    return Jsonata(source, _refuse_regex, timeout=TIMEOUT, stack=MAX_DEPTH)


@functools.lru_cache(maxsize=4_096)
def compile_jsonata(source: str, known: frozenset[str]) -> JSONataExpression:
    """Compile.

    Args:
        source: JSONata.
        known: the names that a context has.

    Raises:
        ExpressionError: not JSONata, too long, or it uses what is refused.
    """
    if len(source) > MAX_SOURCE:
        raise ExpressionError(f"expression is longer than {MAX_SOURCE} characters")
    try:
        ast = _compiled(source).ast
    except JException as error:
        at = "" if error.location < 0 else f" at position {error.location}"
        raise ExpressionError(f"not a JSONata expression: {error.error}{at}") from error
    except RecursionError as error:
        raise ExpressionError("expression is nested too deep") from error
    words: set[str] = set()
    whole = False
    for kind, value in _tokens(ast):
        if kind == "variable" and value in _REFUSED:
            raise ExpressionError(f"there is no function ${value}() here")
        if kind == "binary" and value == "..":
            raise ExpressionError("there are no ranges here")
        if kind == "name":
            words.add(value)
        whole = whole or kind in _WHOLE_TYPES or (kind == "variable" and value in {"", "$"})
    reads = known if whole else known & words
    return JSONataExpression(source=source, names=frozenset((name, None) for name in reads))


def _tokens(ast: object) -> Iterator[tuple[str, str]]:
    """Every node of a syntax tree: its type and its value."""
    seen: set[int] = set()
    waiting: list[object] = [ast]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list | tuple):
            waiting.extend(cast("list[object]", node))
            continue
        if isinstance(node, dict):
            waiting.extend(cast("dict[str, object]", node).values())
            continue
        if not hasattr(node, "type") or id(node) in seen:
            continue
        seen.add(id(node))
        held = cast("dict[str, object]", vars(node))
        yield str(held.get("type")), str(held.get("value"))
        waiting.extend(held.values())


def _plain(value: object) -> object:
    """The value as JSON: sequences of the evaluator are lists, functions are nothing."""
    if measure(value, MAX_RESULT_NODES, MAX_RESULT_DEPTH) is None:
        raise ExpressionError("makes too large a value")
    match value:
        case None | bool() | int() | float() | str():
            return value
        case dict():
            return {str(k): _plain(v) for k, v in cast("dict[object, object]", value).items()}
        case list():
            return [_plain(item) for item in cast("list[object]", value)]
        case _:
            raise ExpressionError("makes something that is no JSON")
