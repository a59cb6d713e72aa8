"""How a wire class says what travels, under which name and in which revisions.

One attrs class serves all five revisions; what differs is written on the field or
class as `since` (first revision that has it) and `until` (last one). Only
`converter` reads the marks.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, TypeVar

import attrs

from mcp_trio.wire.revisions import Revision

T = TypeVar("T")
NAME = "mcp_trio.name"
SINCE = "mcp_trio.since"
UNTIL = "mcp_trio.until"
ALWAYS = "mcp_trio.always"


class Absent(enum.Enum):
    """The value of a nullable field that is not there; null itself is a value then."""

    ABSENT = enum.auto()


ABSENT = Absent.ABSENT
KIND = "__mcp_trio_kind__"
KIND_SINCE = "__mcp_trio_since__"


def optional(
    *,
    name: str | None = None,
    since: Revision | None = None,
    until: Revision | None = None,
    nullable: bool = False,
) -> Any:
    """A field that is left out of the message while it is None.

    A `nullable` one is left out while it is ABSENT, and None travels as null.
    """
    return attrs.field(
        default=ABSENT if nullable else None,
        metadata={NAME: name, SINCE: since, UNTIL: until},
    )


def defaulted(
    default: object = attrs.NOTHING,
    *,
    factory: Callable[[], object] | None = None,
    name: str | None = None,
    since: Revision | None = None,
    until: Revision | None = None,
) -> Any:
    """A field with a default that is sent all the same, because the schema demands it."""
    return attrs.field(
        default=default if factory is None else attrs.Factory(factory),
        metadata={NAME: name, SINCE: since, UNTIL: until, ALWAYS: True},
    )


def kind(tag: str, *, since: Revision | None = None) -> Callable[[type[T]], type[T]]:
    """Mark a member of a union that is told apart by its `type` key."""

    def mark(cls: type[T]) -> type[T]:
        setattr(cls, KIND, tag)
        setattr(cls, KIND_SINCE, since)
        return cls

    return mark
