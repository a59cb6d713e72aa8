"""What a catalog asks of the place its operations are kept in.

A registry answers two questions: "is anything new?", cheaply, and "what changed since?",
at the cost of what changed. It knows lifecycle states; a catalog only ever sees what is
published. It judges no view: broken text is handed over as a fault of that one entry.
"""

from __future__ import annotations

import enum
from typing import Protocol

import attrs

from mcp_trio.wire import JSONObject


class Trouble(enum.StrEnum):
    """Why a registry could not be read."""

    MISSING = "missing"
    """Nothing stands at its address."""
    LOCKED = "locked"
    """Somebody holds it, longer than the bounded wait."""
    CORRUPT = "corrupt"
    """It is there and it is not a sound registry."""
    SCHEMA = "schema"
    """It is sound, and not laid out as a registry of this format."""
    UNREADABLE = "unreadable"
    """The system refuses: permissions, input and output errors."""


class RegistryError(Exception):
    """The registry could not be read; the catalog keeps what it has and tries again."""

    def __init__(self, trouble: Trouble, message: str) -> None:
        super().__init__(message)
        self.trouble = trouble
        """The kind."""


@attrs.frozen(kw_only=True)
class RawEntry:
    """One published operation as the registry holds it."""

    operation_id: str
    """Its identity, also when the view cannot be read."""
    fingerprint: bytes
    """Equal exactly when view and fault are equal; lets unchanged entries be skipped."""
    view: JSONObject | None = None
    """The view, not judged yet; None when there is a fault."""
    fault: str | None = None
    """Why there is no view, such as a column that is not JSON."""


@attrs.frozen(kw_only=True)
class Reading:
    """What one read found."""

    token: str
    """The change token this read belongs to."""
    entries: tuple[RawEntry, ...]
    """Published entries: all of them in a complete reading, else those changed since."""
    removed: tuple[str, ...] = ()
    """Ids that are no longer published; always empty in a complete reading."""
    complete: bool
    """True: what is not among `entries` is not published."""


class Registry(Protocol):
    """A place that keeps published operations.

    One task at a time uses it, the catalog's actor. Every method may raise RegistryError.
    """

    async def change_token(self) -> str:
        """Tell the state of the registry by an opaque token.

        Constant cost. Equal tokens mean that nothing published has changed.
        """
        ...

    async def read(self, since: str | None) -> Reading:
        """Read what changed since a token, or everything for None.

        A registry that does not recognise the token answers with a complete reading.
        """
        ...

    async def aclose(self) -> None:
        """Let go of files and connections. The registry can be used again afterwards."""
        ...
