"""Mappings: JSON trees whose leaves are literals or expressions, compiled to a callable.

    "text"                     the text itself
    "=args.email"              an expression
    "==text"                   the text "=text"
    {"expr": "args.n", ...}    an expression with lang, default, required or as; lang is
                               jmespath, or jsonata where that extra is installed
    null, or a value of null   the key is left out of its object

Structure comes from the tree and never from text, so a value cannot break out of its
place. The expression language itself is in `expressions`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, cast

import attrs
import msgspec

from mcp_trio.runtime.expressions import (
    Expression,
    ExpressionError,
    as_number,
    compile_expression,
    measure,
    unfit_for_json,
)

MAX_TREE_NODES = 2_000
"""Values in the tree of one mapping."""
MAX_TREE_DEPTH = 32
"""Levels in the tree of one mapping."""
MAX_INPUT_NODES = 500_000
"""Values in the context a mapping is applied to."""
MAX_OUTPUT_NODES = 200_000
"""Values a mapping may produce."""
MAX_OUTPUT_TEXT = 1 << 28
"""Characters a mapping may produce, what stands there many times counted each time."""

_DIGITS = re.compile(r"-?[0-9]{1,1000}")

Node: TypeAlias = Callable[[Mapping[str, object]], object]


class MappingError(Exception):
    """A mapping that does not compile, or cannot be applied to this data.

    The text never repeats a value of the data.
    """

    def __init__(self, reason: str, *, path: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.reason = reason
        self.path = path
        """Where inside the mapping, such as `input_mapping.body.note`."""


@attrs.frozen(kw_only=True, eq=False)
class Mapper:
    """A compiled mapping. Immutable; applying it has no side effects."""

    path: str
    """Where the mapping stands, for errors."""
    names: frozenset[tuple[str, str | None]]
    """What its expressions read of the context; see `Expression.names`."""
    literal: bool
    """Whether it has no expression at all, so gives the same value always."""
    _node: Node = attrs.field(alias="node")
    _tree: object = attrs.field(alias="tree", default=None)

    def __call__(self, context: Mapping[str, object]) -> object:
        """Apply to a context.

        All texts in what it gives can be encoded, and all numbers are finite.

        Raises:
            MappingError: a required value is missing, one has the wrong type, an
                expression failed, or input or output are larger than the bounds.
        """
        value = self._node(context)
        if measure(value, MAX_OUTPUT_NODES) is None:
            raise MappingError(
                f"makes more than {MAX_OUTPUT_NODES} values or nests too deep", path=self.path
            )
        unfit = unfit_for_json(value, MAX_OUTPUT_TEXT)
        if unfit is not None:
            raise MappingError(f"makes what {unfit}", path=_culprit(self._tree, value, self.path))
        return value


def _culprit(tree: object, value: object, path: str) -> str:
    """The place in a mapping that made what JSON does not have; keys of data are not told."""
    while isinstance(tree, dict) and "expr" not in tree and isinstance(value, dict):
        inner, made = cast("dict[str, object]", tree), cast("dict[str, object]", value)
        unfit = (k for k in inner if unfit_for_json(made.get(k), MAX_OUTPUT_TEXT) is not None)
        key = next(unfit, None)
        if key is None:
            break
        path, tree, value = f"{path}.{key}", inner[key], made[key]
    return path


def check_context(context: Mapping[str, object], path: str) -> None:
    """Refuse data too large to map; once for all mappings applied to it.

    Raises:
        MappingError: it is.
    """
    if measure(context, MAX_INPUT_NODES) is None:
        raise MappingError(
            f"the data has more than {MAX_INPUT_NODES} values or nests too deep", path=path
        )


def compile_mapping(tree: object, path: str, known: Iterable[str]) -> Mapper:
    """Compile a tree.

    Args:
        tree: JSON.
        path: where it stands in the view, for errors.
        known: the names a context has; an expression may read no others.

    Raises:
        MappingError: it does not compile; the error names the place.
    """
    if measure(tree, MAX_TREE_NODES, MAX_TREE_DEPTH) is None:
        raise MappingError(
            f"has more than {MAX_TREE_NODES} values or {MAX_TREE_DEPTH} levels", path=path
        )
    builder = _Builder(frozenset(known))
    node = builder.build(tree, path)
    return Mapper(
        path=path,
        names=frozenset(builder.names),
        literal=not builder.expressions,
        node=node,
        tree=tree,
    )


class _Builder:
    """Builds one mapping; lives as long as `compile_mapping` runs."""

    def __init__(self, known: frozenset[str]) -> None:
        self.known = known
        self.names: set[tuple[str, str | None]] = set()
        self.expressions = 0

    def build(self, tree: object, path: str) -> Node:
        match tree:
            case str() if tree.startswith("=="):
                return _literal(tree[1:])
            case str() if tree.startswith("="):
                return self._leaf({"expr": tree[1:]}, path)
            case dict():
                held = cast("dict[str, object]", tree)
                if "expr" in held:
                    return self._leaf(held, path)
                return _object_of(
                    {key: self.build(child, f"{path}.{key}") for key, child in held.items()}
                )
            case list():
                items = cast("list[object]", tree)
                return _array_of(
                    [self.build(child, f"{path}[{index}]") for index, child in enumerate(items)]
                )
            case _:
                return _literal(tree)

    def _leaf(self, leaf: Mapping[str, object], path: str) -> Node:
        unknown = sorted(leaf.keys() - {"expr", "lang", "default", "required", "as"})
        if unknown:
            raise MappingError(f"unknown key {unknown[0][:80]!r} beside 'expr'", path=path)
        required = leaf.get("required", False)
        if not isinstance(required, bool):
            raise MappingError("'required' must be true or false", path=path)
        source, form = leaf["expr"], leaf.get("as")
        if not isinstance(source, str):
            raise MappingError("'expr' must be a string", path=path)
        convert = _FORMS.get(form) if isinstance(form, str) else None
        if form is not None and convert is None:
            raise MappingError(f"'as' must be one of {', '.join(_FORMS)}", path=path)
        try:
            expression = self._expression(source, leaf.get("lang", "jmespath"))
        except ExpressionError as error:
            raise MappingError(str(error), path=path) from error
        strangers = sorted({name for name, _ in expression.names} - self.known)
        if strangers:
            raise MappingError(
                f"there is no {strangers[0][:80]!r} here, only {', '.join(sorted(self.known))}",
                path=path,
            )
        self.names |= expression.names
        self.expressions += 1
        return _expression_node(expression, path, leaf.get("default"), convert, required=required)

    def _expression(self, source: str, language: object) -> Expression:
        match language:
            case "jmespath":
                return compile_expression(source)
            case "jsonata":
                try:
                    from mcp_trio.runtime.jsonata import compile_jsonata  # noqa: PLC0415 - an extra
                except ImportError as error:
                    raise ExpressionError(
                        "jsonata needs the extra: pip install 'mcp-trio[jsonata]'"
                    ) from error
                return compile_jsonata(source, self.known)
            case _:
                raise ExpressionError("'lang' must be jmespath or jsonata")


def _literal(value: object) -> Node:
    return lambda _context: value


def _object_of(children: Mapping[str, Node]) -> Node:
    def make(context: Mapping[str, object]) -> object:
        made = {key: child(context) for key, child in children.items()}
        return {key: value for key, value in made.items() if value is not None}

    return make


def _array_of(children: list[Node]) -> Node:
    return lambda context: [child(context) for child in children]


def _expression_node(
    expression: Expression,
    path: str,
    default: object,
    convert: Callable[[object], object] | None,
    *,
    required: bool,
) -> Node:
    def evaluate(context: Mapping[str, object]) -> object:
        try:
            value = expression.evaluate(context)
        except ExpressionError as error:
            raise MappingError(str(error), path=path) from error
        if value is None:
            value = default
        if value is None:
            if required:
                raise MappingError("the required value is missing", path=path)
            return None
        if convert is None:
            return value
        try:
            return convert(value)
        except ValueError as error:
            raise MappingError(str(error), path=path) from error

    return evaluate


def plain_text(value: object) -> str:
    """Write a scalar the way JSON does, without quotes.

    Raises:
        ValueError: it is an object, an array or null, or no number of JSON.
    """
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case float() if not math.isfinite(value):
            raise ValueError("must be a number that JSON has")
        case int() | float():
            return msgspec.json.encode(value).decode()
        case _:
            raise ValueError("must be a string, a number or a boolean")


def _as_integer(value: object) -> int:
    if isinstance(value, str):
        # int() alone also takes underscores, spaces and other scripts' digits.
        if _DIGITS.fullmatch(value) is not None:
            return int(value)
        raise ValueError("is not an integer")
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if type(value) is int:
        return value
    raise ValueError("is not an integer")


def _as_number(value: object) -> int | float:
    if type(value) in {int, float}:
        return cast("float", value)
    number = as_number(value) if isinstance(value, str) else None
    if number is None:
        raise ValueError("is not a number")
    return number


def _as_boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in {"true", "false"}:
        return value == "true"
    raise ValueError("is not a boolean")


def _as_json(value: object) -> str:
    if measure(value, MAX_OUTPUT_NODES) is None:
        raise ValueError("is too large")
    unfit = unfit_for_json(value, MAX_OUTPUT_TEXT)
    if unfit is not None:
        raise ValueError(unfit)
    return msgspec.json.encode(value).decode()


def _as_csv(value: object) -> str:
    if not isinstance(value, list):
        raise ValueError("is not an array")  # one kind of error for all forms
    return ",".join(plain_text(item) for item in cast("list[object]", value))


_FORMS: dict[str, Callable[[object], object]] = {
    "string": plain_text,
    "integer": _as_integer,
    "number": _as_number,
    "boolean": _as_boolean,
    "json": _as_json,
    "csv": _as_csv,
}
