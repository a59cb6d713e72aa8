"""The four listings of a server, page by page or as one walk, typed and tolerant.

An entry that breaks the rules is left out with a warning, and so costs nobody the others.
"""

from __future__ import annotations

import abc
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Generic, Protocol, TypeVar, cast

import attrs

from mcp_trio.client.outputs import Outputs
from mcp_trio.errors import MCPError, ProtocolError
from mcp_trio.framing.param_headers import (
    KEYWORD,
    ParamHeader,
    ParamHeaderError,
    param_headers,
)
from mcp_trio.jsonrpc import codec
from mcp_trio.session.call import ProgressCallback, TimeLimit
from mcp_trio.wire import JSONObject, ListToolsResult, Revision, Tool
from mcp_trio.wire.converter import from_wire
from mcp_trio.wire.prompts import ListPromptsResult, Prompt
from mcp_trio.wire.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    Resource,
    ResourceTemplate,
)

logger = logging.getLogger("mcp_trio.client")
T = TypeVar("T")
Item = TypeVar("Item")


class _AnyPage(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


Page = TypeVar("Page", bound=_AnyPage)


@attrs.frozen
class _Listing(Generic[Page, Item]):
    """What is listed by which method."""

    method: str
    page: type[Page]
    item: type[Item]
    key: str
    """Where the entries of a page are, on the wire."""
    entries: Callable[[Page], object]
    """The entries of a page."""
    filled: Callable[[Page, list[Item]], Page]
    """The page with these entries."""


TOOLS = _Listing[ListToolsResult, Tool](
    "tools/list",
    ListToolsResult,
    Tool,
    "tools",
    lambda page: page.tools,
    lambda page, found: attrs.evolve(page, tools=found),
)
PROMPTS = _Listing[ListPromptsResult, Prompt](
    "prompts/list",
    ListPromptsResult,
    Prompt,
    "prompts",
    lambda page: page.prompts,
    lambda page, found: attrs.evolve(page, prompts=found),
)
RESOURCES = _Listing[ListResourcesResult, Resource](
    "resources/list",
    ListResourcesResult,
    Resource,
    "resources",
    lambda page: page.resources,
    lambda page, found: attrs.evolve(page, resources=found),
)
TEMPLATES = _Listing[ListResourceTemplatesResult, ResourceTemplate](
    "resources/templates/list",
    ListResourceTemplatesResult,
    ResourceTemplate,
    "resourceTemplates",
    lambda page: page.resource_templates,
    lambda page, found: attrs.evolve(page, resource_templates=found),
)


MAX_IDLE = 1000
"""Pages in a row without an entry. Whoever walks gets nothing meanwhile and cannot leave."""


async def walk(
    fetch: Callable[[str | None], Awaitable[tuple[Iterable[T], str | None]]],
) -> AsyncGenerator[T, None]:
    """Give the entries of all pages, in order.

    Args:
        fetch: gets one page by its cursor, None for the first: its entries, and the cursor of
            the next page, None after the last.

    Raises:
        ProtocolError: the same cursor comes twice, or too many pages in a row bring nothing.
    """
    cursor: str | None = None
    seen: set[str] = set()
    idle = 0
    while True:
        entries, cursor = await fetch(cursor)
        idle += 1
        for entry in entries:
            idle = 0
            yield entry
        if cursor is None:
            return
        if idle >= MAX_IDLE:
            raise ProtocolError(f"{idle} pages of the server in a row brought nothing")
        if cursor in seen:
            raise ProtocolError("the server's pages go round in circles")
        seen.add(cursor)


class Listings(abc.ABC):
    """The part of `MCPClient` that knows the listings."""

    def __init__(self) -> None:
        self._annotations: dict[str, tuple[ParamHeader, ...]] = {}
        self._outputs = Outputs()

    @property
    @abc.abstractmethod
    def revision(self) -> Revision:
        """The revision in use."""

    @abc.abstractmethod
    async def call(
        self,
        method: str,
        params: JSONObject | None = None,
        *,
        timeout: float | TimeLimit | None = None,  # noqa: ASYNC109 - the server has to be told
        on_progress: ProgressCallback | None = None,
        cache: bool = True,
    ) -> JSONObject:
        """Call any method and get its result as it came."""

    @abc.abstractmethod
    def forget(self, method: str | None = None) -> None:
        """Drop the answers that are kept, or those to one method."""

    def _mirrored(self, tool: str) -> tuple[ParamHeader, ...]:
        """The arguments of a tool that are headers, too; none for one that was not listed."""
        return self._annotations.get(tool, ())

    def _read(self, answer: JSONObject, cls: type[T]) -> T:
        kind = answer.pop("resultType", "complete")
        if kind != "complete":
            raise ProtocolError("the server sent a result of a type that was not asked for")
        return from_wire(answer, cls, self.revision, where="result")

    # -- pages ---------------------------------------------------------------------

    async def list_tools(
        self,
        cursor: str | None = None,
        *,
        timeout: float | TimeLimit | None = None,  # noqa: ASYNC109 - the server has to be told
        cache: bool = True,
    ) -> ListToolsResult:
        """Get one page of tools.

        Args:
            cursor: `next_cursor` of the page before; an empty one is a cursor, too.
            timeout: as for `call`.
            cache: False asks the server even if a fresh page is kept.

        Raises:
            RemoteError: a cursor the server does not know.
        """
        return await self._page(TOOLS, cursor, timeout, cache=cache)

    async def list_prompts(
        self,
        cursor: str | None = None,
        *,
        timeout: float | TimeLimit | None = None,  # noqa: ASYNC109 - the server has to be told
        cache: bool = True,
    ) -> ListPromptsResult:
        """Get one page of prompts; see `list_tools`."""
        return await self._page(PROMPTS, cursor, timeout, cache=cache)

    async def list_resources(
        self,
        cursor: str | None = None,
        *,
        timeout: float | TimeLimit | None = None,  # noqa: ASYNC109 - the server has to be told
        cache: bool = True,
    ) -> ListResourcesResult:
        """Get one page of resources; see `list_tools`."""
        return await self._page(RESOURCES, cursor, timeout, cache=cache)

    async def list_resource_templates(
        self,
        cursor: str | None = None,
        *,
        timeout: float | TimeLimit | None = None,  # noqa: ASYNC109 - the server has to be told
        cache: bool = True,
    ) -> ListResourceTemplatesResult:
        """Get one page of resource templates; see `list_tools`."""
        return await self._page(TEMPLATES, cursor, timeout, cache=cache)

    # -- walks ---------------------------------------------------------------------

    def tools(
        self, *, timeout: float | TimeLimit | None = None, cache: bool = True
    ) -> AsyncGenerator[Tool, None]:
        """Walk over all tools, page by page.

        Args:
            timeout: for each page, as for `call`.
            cache: False asks the server even for pages that are kept.

        Raises:
            ProtocolError: the server gives the same cursor twice, or no entry on page after page.
        """
        return self._walk(TOOLS, timeout, cache=cache)

    def prompts(
        self, *, timeout: float | TimeLimit | None = None, cache: bool = True
    ) -> AsyncGenerator[Prompt, None]:
        """Walk over all prompts; see `tools`."""
        return self._walk(PROMPTS, timeout, cache=cache)

    def resources(
        self, *, timeout: float | TimeLimit | None = None, cache: bool = True
    ) -> AsyncGenerator[Resource, None]:
        """Walk over all resources; see `tools`."""
        return self._walk(RESOURCES, timeout, cache=cache)

    def resource_templates(
        self, *, timeout: float | TimeLimit | None = None, cache: bool = True
    ) -> AsyncGenerator[ResourceTemplate, None]:
        """Walk over all resource templates; see `tools`."""
        return self._walk(TEMPLATES, timeout, cache=cache)

    def _walk(
        self,
        listing: _Listing[Page, Item],
        timeout: float | TimeLimit | None,
        *,
        cache: bool,
    ) -> AsyncGenerator[Item, None]:
        async def fetch(cursor: str | None) -> tuple[list[Item], str | None]:
            page = await self._page(listing, cursor, timeout, cache=cache)
            return cast("list[Item]", listing.entries(page)), page.next_cursor

        return walk(fetch)  # itself, so that closing it early closes all of it

    async def _page(
        self,
        listing: _Listing[Page, Item],
        cursor: str | None,
        timeout: float | TimeLimit | None,  # noqa: ASYNC109 - handed on
        *,
        cache: bool,
    ) -> Page:
        params: JSONObject | None = None if cursor is None else {"cursor": cursor}
        answer = await self.call(listing.method, params, timeout=timeout, cache=cache)
        try:
            listed = answer.get(listing.key)
            if not isinstance(listed, list):
                return self._read(answer, listing.page)
            page = self._read({**answer, listing.key: []}, listing.page)
        except MCPError:
            self.forget(listing.method)  # or the same would come again for as long as it is fresh
            raise
        entries = cast("list[object]", listed)
        # Few tools have headers, and to look for them in each schema costs more than all the rest.
        mirrors = listing.item is Tool and codec.may_mention(entries, KEYWORD)
        found = (self._entry(item, listing, mirrors=mirrors) for item in entries)
        return listing.filled(page, [item for item in found if item is not None])

    def _entry(self, item: object, listing: _Listing[Page, Item], *, mirrors: bool) -> Item | None:
        what = listing.item.__name__
        try:
            entry = from_wire(cast("JSONObject", item), listing.item, self.revision, where=what)
            if isinstance(entry, Tool):
                self._note(entry, mirrors=mirrors)
        except (MCPError, ParamHeaderError) as error:
            known = cast("JSONObject", item) if isinstance(item, dict) else {}
            name = known.get("name") or known.get("uri")
            if listing.item is Tool and isinstance(name, str):
                self._annotations.pop(name, None)
                self._outputs.forget(name)
            logger.warning("%s %.100r is left out: %s", what, name, error)
            return None
        return entry

    def _note(self, tool: Tool, *, mirrors: bool) -> None:
        """Take note of what a call of the tool needs.

        Args:
            tool: as it was listed.
            mirrors: whether arguments of it may be headers, too.

        Raises:
            ParamHeaderError: an argument cannot be the header it is said to be (N13).
        """
        self._annotations[tool.name] = param_headers(tool.input_schema) if mirrors else ()
        self._outputs.note(tool)
