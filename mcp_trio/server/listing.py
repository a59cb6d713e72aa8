"""The entries of one kind as one immutable listing, paged and encoded once per revision.

Entries stand in the order of their contributors, and in each contributor's own. The cost
of a page does not grow with the listing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from mcp_trio.framing.param_headers import ParamHeader, ParamHeaderError, param_headers
from mcp_trio.jsonrpc import codec
from mcp_trio.session.middleware import Authorizer
from mcp_trio.wire import Revision, Tool
from mcp_trio.wire.converter import to_wire


class Listed(Protocol):
    """Anything that can be listed."""

    @property
    def definition(self) -> object:
        """The entry as it is listed."""
        ...

    @property
    def authorize(self) -> Authorizer | None:
        """Says who may use it and sees it listed; None for everybody."""
        ...


L = TypeVar("L", bound=Listed)


class Listing(Generic[L]):
    """One state of a list."""

    def __init__(
        self,
        parts: Iterable[tuple[str, Mapping[str, L]]],
        kind: str = "tool",
        *,
        guarded: bool | None = None,
    ) -> None:
        """Merge.

        Args:
            parts: revision and entries of each contributor. On a name that comes twice
                the first contributor wins; a provider was told before that it is taken.
            kind: of the entries; a cursor of one kind is none of another.
            guarded: whether some entries are not for everybody, if that is known.
        """
        digest = hashlib.sha256(kind.encode())
        self.entries: dict[str, L] = {}
        for revision, entries in parts:
            digest.update(revision.encode())
            digest.update(b"\0")
            # Without a loop, for the sake of large parts: what came first keeps place and value.
            first = self.entries
            self.entries = {**first, **entries, **first} if first else dict(entries)
        self.revision = digest.hexdigest()[:16]
        self.names = tuple(self.entries)
        if guarded is None:
            guarded = any(entry.authorize is not None for entry in self.entries.values())
        self.guarded = guarded
        """Whether some entries are not for everybody."""
        self._pages: dict[tuple[Revision, int, int], msgspec.Raw] = {}
        self._headers: dict[str, tuple[ParamHeader, ...]] = {}

    def __len__(self) -> int:
        return len(self.names)

    def page(self, revision: Revision, start: int, size: int) -> msgspec.Raw:
        """The encoded array of up to `size` entries from `start`, in a revision's terms."""
        key = (revision, start, size)
        page = self._pages.get(key)
        if page is None:
            page = self.encoded(revision, self.names[start : start + size])
            self._pages[key] = page
        return page

    def encoded(self, revision: Revision, names: Iterable[str]) -> msgspec.Raw:
        """The encoded array of these entries, in a revision's terms. Not kept."""
        return codec.raw([to_wire(self.entries[name].definition, revision) for name in names])

    def tool_headers(self, name: str) -> tuple[ParamHeader, ...]:
        """The mirrored arguments of a tool; none for an unknown one."""
        found = self._headers.get(name)
        if found is None:
            entry = self.entries.get(name)
            if entry is None:
                return ()
            if not isinstance(entry.definition, Tool):
                return ()
            try:
                found = param_headers(entry.definition.input_schema)
            except ParamHeaderError:
                found = ()  # clients drop such a tool; a call that comes anyway has no headers
            self._headers[name] = found
        return found
