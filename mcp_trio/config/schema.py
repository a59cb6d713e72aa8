"""Which keys there can be: read off the classes of sections, at any place of a settings file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin

import attrs

from mcp_trio.config.faults import Path
from mcp_trio.errors import ConfigurationError
from mcp_trio.runtime.connections import ConnectionSection
from mcp_trio.runtime.plugins import HTTP, connection_section


def plain(kind: Any) -> Any:
    """A type without the None that says that a key may be left out."""
    origin: object = get_origin(kind)
    if origin is Union or origin is UnionType:
        others = [each for each in get_args(kind) if each is not NoneType]
        return others[0] if len(others) == 1 else kind
    return kind


def keys_of(kind: Any, held: object) -> Mapping[str, Any] | None:
    """The keys of a table, with their types; None if its type is no section.

    Args:
        kind: the type of the table.
        held: what it holds: the kind of a connection decides about its keys.
    """
    kind = plain(kind)
    if kind is ConnectionSection:
        return {"kind": str, **_fields(_connection(held))}
    return _fields(kind) if attrs.has(kind) else None


def element_of(kind: Any) -> Any:
    """The section that each key of a table of names has; None if it is no such table."""
    origin: object = get_origin(kind)
    if origin is not dict:
        return None
    element: Any = get_args(kind)[1]
    return element if attrs.has(element) else None


def kind_at(kind: Any, held: object, path: Path) -> tuple[Any, object] | None:
    """The type of a key, and what is there; None if there can be no such key."""
    for part in path:
        keys = keys_of(kind, held)
        kind = element_of(kind) if keys is None else keys.get(part)
        if kind is None:
            return None
        held = member(held, part)
    return kind, held


def member(held: object, key: str) -> object:
    """What a table holds under a key; None if it is no table or has no such key."""
    return cast("dict[str, object]", held).get(key) if isinstance(held, dict) else None


def names_of(held: object) -> list[str]:
    """The keys of a table; none of anything else."""
    return list(cast("dict[str, object]", held)) if isinstance(held, dict) else []


def leaves(kind: Any, held: object, path: Path = ()) -> Iterator[Path]:
    """Every key that there can be, below the names that there are."""
    keys = keys_of(kind, held)
    if keys is None and element_of(kind) is not None:
        keys = dict.fromkeys(names_of(held), element_of(kind))
    for name, inner in (keys or {}).items():
        yield (*path, name)
        yield from leaves(inner, member(held, name), (*path, name))


def _fields(cls: type) -> dict[str, Any]:
    attrs.resolve_types(cls)
    return {field.name: field.type for field in attrs.fields(cls)}


def _connection(held: object) -> type[ConnectionSection]:
    kind = member(held, "kind")
    try:
        return connection_section(kind if isinstance(kind, str) else HTTP)
    except ConfigurationError:
        # That is told by whoever reads the section; what all have is known anyway.
        return ConnectionSection
