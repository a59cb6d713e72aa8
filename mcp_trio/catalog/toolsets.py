"""Parts of a provider's tools, for several servers: one catalog, many lists.

A provider knows one host; `Fan` is that host and passes everything on. A `Part` is a provider
of its own, which shows what its rule lets through.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TypeAlias

import attrs

from mcp_trio.events import Event
from mcp_trio.server.providers import ProviderHost, ToolEntry, ToolProvider, ToolSet
from mcp_trio.session.context import Context
from mcp_trio.session.middleware import Authorizer

Rule: TypeAlias = Callable[[ToolEntry], bool]
"""Whether a tool belongs to a part. Cheap: it is asked for every tool after every change."""


def tags_of(entry: ToolEntry) -> tuple[str, ...]:
    """The tags of a tool; none for one that has none."""
    return tuple(getattr(entry, "tags", ()))


@attrs.frozen(kw_only=True)
class Choice:
    """A rule made of names and tags: what matches any of them belongs to the part."""

    names: tuple[str, ...] = ()
    """Names of tools; `*` stands for anything."""
    tags: frozenset[str] = frozenset()
    """Tags of operations."""

    def __call__(self, entry: ToolEntry) -> bool:
        """Tell whether a tool belongs to it."""
        if not self.tags.isdisjoint(tags_of(entry)):
            return True
        name = entry.definition.name
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.names)


class Fan:
    """The host of one provider, in front of many."""

    def __init__(self, provider: ToolProvider) -> None:
        """Take a provider, which must not have a host yet."""
        self.provider = provider
        self._parts: list[Part] = []
        provider.bind(self)

    def part(self, rule: Rule) -> Part:
        """Make a part, for one server."""
        made = Part(self, rule)
        self._parts.append(made)
        return made

    @property
    def authorizer(self) -> Authorizer | None:
        """None: each server has rules of its own."""
        return None

    def place(self, _entry: ToolEntry, _context: Context, /) -> AbstractContextManager[object]:
        """Let it in: each server has limits of its own."""
        return contextlib.nullcontext()

    def owns(self, name: str, /) -> bool:
        """Tell whether a name is taken on any of the servers."""
        return any(host.owns(name) for host in self._hosts())

    def changed(self) -> None:
        """Tell the servers whose part has changed."""
        for part in self._parts:
            part.look()

    def emit(self, event: Event, /) -> None:
        """Tell the observers of every server."""
        for host in self._hosts():
            host.emit(event)

    def _hosts(self) -> Iterable[ProviderHost]:
        return (part.host for part in self._parts if part.host is not None)


class Part:
    """What a rule lets through of a provider's tools. A `ToolProvider`; made by `Fan.part`."""

    def __init__(self, fan: Fan, rule: Rule) -> None:
        self._fan = fan
        self._rule = rule
        self._seen: ToolSet | None = None
        self._tools = ToolSet(revision="", entries={})
        self.host: ProviderHost | None = None

    @property
    def tools(self) -> ToolSet:
        """The tools now. Never waits; the first look after a change asks the rule for each."""
        whole = self._fan.provider.tools
        if whole is not self._seen:
            entries = {name: entry for name, entry in whole.entries.items() if self._rule(entry)}
            same = _definitions(entries) == _definitions(self._tools.entries)
            known = same and self._seen is not None
            revision = self._tools.revision if known else _revision(whole.revision, entries)
            self._seen, self._tools = whole, ToolSet(revision=revision, entries=entries)
        return self._tools

    @property
    def ttl(self) -> float:
        """As the provider's."""
        return self._fan.provider.ttl

    def bind(self, host: ProviderHost) -> None:
        """Take the server. Once.

        Raises:
            RuntimeError: it has one already.
        """
        if self.host is not None:
            raise RuntimeError("this part already belongs to a server")
        self.host = host

    async def freshen(self) -> None:
        """Have the provider freshen itself."""
        await self._fan.provider.freshen()

    def look(self) -> None:
        """Look at the provider's tools, and tell the server if ours are others."""
        before = self._tools.revision
        if self.tools.revision != before and self.host is not None:
            self.host.changed()


def _revision(whole: str, names: Iterable[str]) -> str:
    # The rule may choose others of the same tools: tags are in no listing.
    return hashlib.sha256("\0".join([whole, *names]).encode()).hexdigest()


def _definitions(entries: Mapping[str, ToolEntry]) -> dict[str, object]:
    # Who may see a tool is part of how it is listed.
    return {name: (entry.definition, entry.authorize) for name, entry in entries.items()}
