"""The entries of one kind that a server offers, and the listings made of them.

A shelf is the same for tools, prompts, resources and templates: entries have a name and a
`definition`, a change makes a new immutable listing and one notice, pages come from the
listing that the cursor belongs to. Tools alone may come from providers, too.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

import attrs
import msgspec
import trio

from mcp_trio.engine.paging import CursorKey
from mcp_trio.engine.subscriptions import Notice
from mcp_trio.errors import DuplicateRegistrationError, InvalidParamsError, NotFoundError
from mcp_trio.events import Event
from mcp_trio.server.listing import Listed, Listing
from mcp_trio.server.providers import ToolEntry, ToolProvider
from mcp_trio.session.context import Context
from mcp_trio.session.middleware import Authorizer
from mcp_trio.wire import Revision

KEPT_LISTINGS = 3
"""Listings kept, so that a walk over the pages survives a change or two."""


STRIDE = 64
"""Entries asked for in a row before others may run: few may be shown of a long list."""

E = TypeVar("E", bound=Listed)


@attrs.frozen
class Page:
    """One page of a listing."""

    items: msgspec.Raw
    """The encoded array."""
    next_cursor: str | None


class Shelf(Generic[E]):
    """All entries of one kind."""

    def __init__(
        self,
        kind: str,
        changed: Callable[[Notice], None],
        *,
        key: Callable[[str], str] = str,
    ) -> None:
        """Make an empty one.

        Args:
            kind: tool, prompt, resource or template; for error texts.
            changed: told of each new listing, synchronously.
            key: writes every spelling of a name alike.
        """
        self.kind = kind
        self._key = key
        self._notice = Notice(f"notifications/{_LISTS[kind]}/list_changed")
        self._changed = changed
        self._own: dict[str, E] = {}
        self._stamps = itertools.count(1)
        self._stamp = "0"
        self._listings: list[Listing[E]] = [Listing((), kind)]

    def __len__(self) -> int:
        return len(self.listing)

    @property
    def listing(self) -> Listing[E]:
        """The entries as they are now. Immutable; a later change makes a new one."""
        return self._listings[0]

    @property
    def in_use(self) -> bool:
        """Whether there is, or may be, anything to list."""
        return bool(self._own)

    def add(self, name: str, entry: E) -> None:
        """Put an entry on the shelf.

        Raises:
            DuplicateRegistrationError: the name is taken; the first one stays.
        """
        key = self._key(name)
        if key in self.listing.entries:
            raise DuplicateRegistrationError(f"a {self.kind} named {name!r} is registered already")
        self._own[key] = entry
        self._restamp()

    def remove(self, name: str) -> None:
        """Take an entry away. What runs goes on.

        Raises:
            NotFoundError: there is none of that name.
        """
        if self._own.pop(self._key(name), None) is None:
            raise NotFoundError(f"no {self.kind} named {name!r} was registered here")
        self._restamp()

    def _restamp(self) -> None:
        self._stamp = str(next(self._stamps))
        self.renew()

    def contributions(self) -> list[tuple[str, Mapping[str, E]]]:
        """The revision and entries of everybody who contributes."""
        return [(self._stamp, self._own)]

    def guarded(self) -> bool | None:
        """Whether some entries are not for everybody; None if that is not known without looking."""
        return None

    def renew(self) -> None:
        """Make the listing anew; tell of it if it is another one."""
        listing = Listing(self.contributions(), self.kind, guarded=self.guarded())
        if listing.revision != self.listing.revision:
            self._listings = [listing, *self._listings[: KEPT_LISTINGS - 1]]
            self._changed(self._notice)

    def find(self, name: str) -> E | None:
        """The entry of that name, as it is now."""
        return self._own.get(self._key(name))

    def place(self, cursor: str | None, cursors: CursorKey) -> tuple[Listing[E], int]:
        """The listing that a cursor belongs to, and where in it.

        Raises:
            InvalidParamsError: a cursor that is not ours, or whose listing is gone.
        """
        if cursor is None:
            return self.listing, 0
        wanted, start = cursors.read(cursor)
        for listing in self._listings:
            if listing.revision == wanted:
                return listing, start
        raise InvalidParamsError("Invalid cursor: the list has changed, start again")


def page_of(
    listing: Listing[E], start: int, size: int, revision: Revision, cursors: CursorKey
) -> Page:
    """One page of a listing, for everybody."""
    end = start + size
    following = cursors.make(listing.revision, end) if end < len(listing) else None
    return Page(listing.page(revision, start, size), following)


async def page_for(
    listing: Listing[E],
    start: int,
    size: int,
    revision: Revision,
    cursors: CursorKey,
    shows: Callable[[str, E], Awaitable[bool]],
) -> Page:
    """One page of those entries of a listing that `shows` says yes to.

    Full as long as there are entries, and the last one has no cursor: what is hidden leaves
    nothing to count.
    """
    names: list[str] = []
    following = None
    for position in range(start, len(listing)):
        if position % STRIDE == 0:
            await trio.lowlevel.checkpoint()
        name = listing.names[position]
        if not await shows(name, listing.entries[name]):
            continue
        if len(names) == size:
            following = cursors.make(listing.revision, position)
            break
        names.append(name)
    return Page(listing.encoded(revision, names), following)


def _anywhere(_entry: ToolEntry, _context: Context) -> AbstractContextManager[object]:
    return contextlib.nullcontext()


class ToolShelf(Shelf[ToolEntry]):
    """The tools: those of the program, then each provider's."""

    def __init__(
        self,
        changed: Callable[[Notice], None],
        emit: Callable[[Event], None] = lambda _event: None,
        authorizer: Callable[[], Authorizer | None] = lambda: None,
        place: Callable[[ToolEntry, Context], AbstractContextManager[object]] = _anywhere,
    ) -> None:
        """Make an empty one.

        Args:
            changed: told of each new listing, synchronously.
            emit: told what providers have to tell observers.
            authorizer: gives the server's own rules.
            place: lets one call of a tool in; see `ProviderHost.place`.
        """
        super().__init__("tool", changed)
        self._emit = emit
        self._authorizer = authorizer
        self._place = place
        self.providers: list[ToolProvider] = []

    @property
    def in_use(self) -> bool:
        """Whether there is a tool, or a provider that may bring one."""
        return bool(self._own or self.providers)

    def add_provider(self, provider: ToolProvider) -> None:
        """Take in a provider's tools, now and whenever they change."""
        provider.bind(
            _Host(
                owns=lambda name: self._owned_beside(provider, name),
                changed=self.renew,
                emit=self._emit,
                rules=self._authorizer,
                place=self._place,
            )
        )
        self.providers.append(provider)
        self.renew()

    def _owned_beside(self, provider: ToolProvider, name: str) -> bool:
        """Tell whether the name belongs to somebody else than this provider."""
        return name in self._own or any(
            name in other.tools.entries for other in self.providers if other is not provider
        )

    def contributions(self) -> list[tuple[str, Mapping[str, ToolEntry]]]:
        """The program's own tools, then each provider's."""
        sets = [provider.tools for provider in self.providers]
        return [*super().contributions(), *((tools.revision, tools.entries) for tools in sets)]

    def guarded(self) -> bool | None:
        """Whether some tools are not for everybody, as far as the providers know of theirs."""
        if any(entry.authorize is not None for entry in self._own.values()):
            return True
        known = [provider.tools.guarded for provider in self.providers]
        return None if None in known else any(known)

    def find(self, name: str) -> ToolEntry | None:
        """The entry that runs a call now; the call keeps it.

        Asks the providers and not the listing, because a provider may change how a tool
        runs without changing how it is listed.
        """
        entry = self._own.get(name)
        for provider in self.providers:
            if entry is not None:
                break
            entry = provider.tools.entries.get(name)
        return entry


@attrs.frozen(kw_only=True)
class _Host:
    """The server as one provider sees it; see `ProviderHost`."""

    owns: Callable[[str], bool]
    changed: Callable[[], None]
    emit: Callable[[Event], None]
    rules: Callable[[], Authorizer | None]
    place: Callable[[ToolEntry, Context], AbstractContextManager[object]]

    @property
    def authorizer(self) -> Authorizer | None:
        return self.rules()


_LISTS = {"tool": "tools", "prompt": "prompts", "resource": "resources", "template": "resources"}
"""The list that a change of a kind is told about; templates are told as resources (X4)."""
