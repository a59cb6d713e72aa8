"""From plain values to settings, by the types of the fields: every fault is collected.

Nothing is coerced, because TOML and JSON have types, and nothing is opened. What a field demands
beyond its type is its `Rule`, which is declared beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

import attrs
import cattrs
from cattrs import cols
from cattrs.gen import make_dict_structure_fn, override

from mcp_trio.config.faults import Fault, Path
from mcp_trio.config.toolsets import ToolsetName, toolset_name
from mcp_trio.errors import ConfigurationError
from mcp_trio.runtime.connections import ConnectionSection
from mcp_trio.runtime.plugins import HTTP, connection_section
from mcp_trio.setting_rules import Rule

UNKNOWN, MISSING = "unknown key", "missing key"

T = TypeVar("T")
_Hook = Callable[[Any, Any], Any]


class _KindError(Exception):
    """What is wrong with the kind of a connection, which is no field of any class."""


def structure(values: object, cls: type[T]) -> T | list[Fault]:
    """Make an instance of a class of settings, or say everything that is in the way."""
    try:
        return _converter().structure(values, cls)
    except cattrs.BaseValidationError as error:
        return list(_faults(error, ()))


def _faults(error: BaseException, path: Path) -> Iterator[Fault]:
    if isinstance(error, cattrs.BaseValidationError):
        noted, others = cast(
            "tuple[list[tuple[Exception, Any]], list[Exception]]",
            cast("Any", error).group_exceptions(),
        )
        for inner, note in noted:
            name = note.index if isinstance(error, cattrs.IterableValidationError) else note.name
            yield from _faults(inner, (*path, str(name)))
        for inner in others:
            yield from _faults(inner, path)
    elif isinstance(error, cattrs.ForbiddenExtraKeysError):
        for key in sorted(error.extra_fields):
            yield Fault(path=(*path, key), reason=UNKNOWN)
    elif isinstance(error, _KindError):
        yield Fault(path=(*path, "kind"), reason=str(error))
    elif isinstance(error, KeyError):
        yield Fault(path=path, reason=MISSING)
    else:
        yield Fault(path=path, reason=str(error))


def _plain(kind: type, text: str) -> _Hook:
    def structure(value: object, _: object) -> object:
        if type(value) is not kind:
            raise TypeError(f"must be {text}")
        return value

    return structure


def _finite(value: object, _: object) -> float:
    with suppress(OverflowError):  # an integer that no float is as large as
        if type(value) in {int, float} and math.isfinite(cast("float", value)):
            return cast("float", value)
    raise TypeError("must be a finite number")


def _strings(value: object, _: object) -> list[str]:
    if isinstance(value, list) and all(type(item) is str for item in cast("list[object]", value)):
        return cast("list[str]", value)
    raise TypeError("must be a list of strings")


def _one_of(value: object, kind: Any) -> object:
    known: tuple[object, ...] = get_args(kind)
    if value in known:
        return value
    raise TypeError(f"must be one of {', '.join(map(str, known))}")


def _is_literal(kind: Any) -> bool:
    origin: object = get_origin(kind)
    return origin is Literal


def _is_dict(kind: Any) -> bool:
    origin: object = get_origin(kind)
    return origin is dict


def _table(read: _Hook) -> _Hook:
    def structure(value: object, kind: object) -> object:
        if not isinstance(value, dict):
            raise TypeError("must be a table")
        return read(cast("dict[str, object]", value), kind)

    return structure


@cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind, text in ((str, "a string"), (bool, "true or false"), (int, "a whole number")):
        converter.register_structure_hook(kind, _plain(kind, text))
    converter.register_structure_hook(float, _finite)
    converter.register_structure_hook_func(_is_literal, _one_of)
    converter.register_structure_hook(ToolsetName, lambda value, _: toolset_name(value))
    converter.register_structure_hook_func(lambda t: t == list[str], _strings)

    def ruled(rule: Rule) -> _Hook:
        def structure(value: object, kind: Any) -> object:
            made = converter.structure(value, kind)
            rule.check(made)
            return made

        return structure

    def section(cls: type) -> _Hook:
        rules = {f.name: f.validator for f in attrs.fields(cls) if isinstance(f.validator, Rule)}
        make = cast("Callable[..., _Hook]", make_dict_structure_fn)
        overrides = {name: override(struct_hook=ruled(rule)) for name, rule in rules.items()}
        return _table(make(cls, converter, _cattrs_forbid_extra_keys=True, **overrides))

    def connection(value: dict[str, object], _: object) -> object:
        """Read a section as its kind wants it; the kind itself is read by nobody else."""
        held = dict(value)
        kind = held.pop("kind", HTTP)
        if not isinstance(kind, str):
            raise _KindError("must be a string")
        try:
            cls = connection_section(kind)
        except ConfigurationError as error:
            raise _KindError(str(error)) from error
        return converter.structure(held, cls)

    def named(cls: Any) -> _Hook:
        return _table(cast("_Hook", cast("Any", cols).mapping_structure_factory(cls, converter)))

    converter.register_structure_hook_factory(attrs.has, section)
    converter.register_structure_hook_factory(_is_dict, named)
    converter.register_structure_hook_func(lambda t: t is ConnectionSection, _table(connection))
    return converter
