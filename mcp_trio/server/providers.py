"""The contract between a server and whoever gives it tools: code, a catalog, or a user's own.

A provider owns its tools and swaps them as one immutable `ToolSet`; the server merges
the sets of all providers into one listing. Nothing here knows where tools come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

import attrs

from mcp_trio.events import Event
from mcp_trio.session.context import Context
from mcp_trio.session.middleware import Authorizer
from mcp_trio.wire import CallToolResult, JSONObject, Tool


class ToolEntry(Protocol):
    """One callable tool. Immutable: a changed tool is a new entry."""

    @property
    def definition(self) -> Tool:
        """The tool as it is listed, in the newest revision's terms."""
        ...

    @property
    def authorize(self) -> Authorizer | None:
        """Says who may call it and sees it listed; None for everybody. Asked before `call`."""
        ...

    async def call(self, context: Context, arguments: JSONObject) -> CallToolResult:
        """Run the tool.

        The entry validates the arguments itself. It runs inside the request's cancel
        scope, so a deadline, a disconnect and `notifications/cancelled` all arrive as
        `trio.Cancelled`.

        Raises:
            ToolError: the text is for the model.
            MCPError: becomes a JSON-RPC error.
        """
        ...


@attrs.frozen(kw_only=True)
class ToolSet:
    """All tools of one provider at one moment."""

    revision: str
    """Changes exactly when what is listed changes, or for whom."""
    entries: Mapping[str, ToolEntry]
    """By name, in listing order."""
    guarded: bool | None = None
    """Whether some entries have an authorizer; None to have all of them looked at."""


class ProviderHost(Protocol):
    """What a provider may ask of the server that took it in."""

    @property
    def authorizer(self) -> Authorizer | None:
        """The server's own rules; None if it has none.

        They have been asked about the call that runs. A provider that calls one tool for another
        asks them about that one.
        """
        ...

    def place(self, entry: ToolEntry, context: Context, /) -> AbstractContextManager[object]:
        """Let one call of a tool in, for the block, as far as the tool has limits of its own.

        That has been done for the call that runs. A provider that calls one tool for another does
        it for that one.

        Raises:
            OverloadedError: it may not run now.
        """
        ...

    def owns(self, name: str, /) -> bool:
        """Tell whether the name is taken by somebody else than this provider."""
        ...

    def changed(self) -> None:
        """Say that `tools` is a new set. Synchronous.

        One call is one `list_changed`, if the set has another revision, and none if it has not.
        """
        ...

    def emit(self, event: Event, /) -> None:
        """Tell the server's observers of something. Never waits and never raises."""
        ...


class ToolProvider(Protocol):
    """Somebody who gives tools to a server."""

    @property
    def tools(self) -> ToolSet:
        """The current set. Never waits; a call keeps the entry it took from here."""
        ...

    @property
    def ttl(self) -> float:
        """For how many seconds the current set can be taken as fresh, 0 if unknown."""
        ...

    def bind(self, host: ProviderHost) -> None:
        """Take the host. Called once, before the first use of `tools`."""
        ...

    async def freshen(self) -> None:
        """Ask for a refresh if the set is older than it should be; waits a bounded time only."""
        ...
