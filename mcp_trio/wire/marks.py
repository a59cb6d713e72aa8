"""How a wire class says what travels, under which name and in which revisions.

One attrs class serves all five revisions; what differs is written on the field or
class: `since` (first revision that has it), `until` (last one), `before` (what older
ones make of a field's value) and `words` (what ones without a block are told instead).
Only `converter` reads the marks.
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
BEFORE = "mcp_trio.before"


class Absent(enum.Enum):
    """The value of a nullable field that is not there; null itself is a value then."""

    ABSENT = enum.auto()


ABSENT = Absent.ABSENT


@attrs.frozen
class Before:
    """Revisions older than this one take only some values of a field.

    They are sent what `shape` makes of the value; ABSENT leaves the field out.
    """

    revision: Revision
    shape: Callable[[Any], object]


KIND = "__mcp_trio_kind__"
KIND_SINCE = "__mcp_trio_since__"
WORDS = "__mcp_trio_words__"


def required(*, before: Before) -> Any:
    """A field that is always there. One without marks needs none of this."""
    return attrs.field(metadata={BEFORE: before})


def optional(
    *,
    name: str | None = None,
    since: Revision | None = None,
    until: Revision | None = None,
    before: Before | None = None,
    nullable: bool = False,
) -> Any:
    """A field that is left out of the message while it is None.

    A `nullable` one is left out while it is ABSENT, and None travels as null.
    """
    return attrs.field(
        default=ABSENT if nullable else None,
        metadata={NAME: name, SINCE: since, UNTIL: until, BEFORE: before},
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


def kind(
    tag: str, words: Callable[[Any], str], *, since: Revision | None = None
) -> Callable[[type[T]], type[T]]:
    """Mark a member of a union that is told apart by its `type` key.

    Args:
        tag: the value of the key.
        words: says in a text what a peer is told that cannot be sent the block itself.
        since: the first revision that has it; in older ones it travels as that text.
    """

    def mark(cls: type[T]) -> type[T]:
        setattr(cls, KIND, tag)
        setattr(cls, KIND_SINCE, since)
        setattr(cls, WORDS, words)
        return cls

    return mark


def in_words(block: object) -> str:
    """What a block says to a peer that cannot be sent it."""
    words: Callable[[object], str] = getattr(type(block), WORDS)
    return words(block)
