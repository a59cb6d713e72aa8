"""Three tools in place of very many: search, describe, call.

A model cannot read a list of thousands. Above a size the list of a provider is replaced by three
tools, through which the others are found and called, with the same rules as if they were listed:
who may not call a tool does not find it either.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing
from typing import TypeAlias, cast

import attrs
import trio

from mcp_trio.catalog.tool_index import ToolIndex
from mcp_trio.catalog.toolsets import tags_of
from mcp_trio.errors import ToolError, UnauthorizedError
from mcp_trio.events import Event
from mcp_trio.json_schema import Validator
from mcp_trio.server.invoke import argument_fault
from mcp_trio.server.providers import ProviderHost, ToolEntry, ToolProvider, ToolSet
from mcp_trio.session.context import Context
from mcp_trio.session.middleware import (
    Authorizer,
    demand,
    naming,
    question,
    scopes_of,
    shows,
)
from mcp_trio.wire import (
    REVISIONS,
    CallToolResult,
    JSONObject,
    TextContent,
    Tool,
    ToolAnnotations,
)
from mcp_trio.wire.converter import to_wire

SEARCH, DESCRIBE, CALL = "search_tools", "describe_tool", "call_tool"
CANDIDATES = 500
"""Hits that are looked at first; some of them may not be for the caller."""
WIDER = 8
"""So many times more are looked at next, as long as too few of them were."""

Work: TypeAlias = Callable[[Context, JSONObject], Awaitable[CallToolResult]]


@attrs.frozen(kw_only=True, eq=False)
class _Own:
    """One of the three. A `ToolEntry`."""

    definition: Tool
    work: Work
    validator: Validator
    behind: Callable[[JSONObject], tuple[str, ToolEntry | None]] | None = None
    """The tool that a call with these arguments is for, where it is for another one."""

    @property
    def authorize(self) -> Authorizer | None:
        """Everybody may; what they lead to has rules of its own."""
        return None

    async def call(self, context: Context, arguments: JSONObject) -> CallToolResult:
        """Run it."""
        violations = self.validator.violations(arguments)
        if violations:
            return argument_fault(violations)
        try:
            return await self.work(context, arguments)
        except ToolError as error:
            return CallToolResult(content=[TextContent(text=str(error))], is_error=True)


class SearchableTools:
    """A provider with a short list. A `ToolProvider`.

    Args:
        provider: whose tools are found; it must not have a host yet.
        above: up to so many tools are listed as they are.
    """

    def __init__(
        self, provider: ToolProvider, *, above: int, list_beyond_scopes: bool = False
    ) -> None:
        self._provider = provider
        self._above = above
        self._beyond_scopes = list_beyond_scopes
        self._host: ProviderHost | None = None
        own = (self._make_search(), self._make_describe(), self._make_call())
        self._short = ToolSet(revision=SEARCH, entries={each.definition.name: each for each in own})
        self._index = ToolIndex()
        self._indexed: ToolSet | None = None
        self._indexing = trio.CapacityLimiter(1)
        """Of threads with the index; one whose search was given up counts until it ends."""
        self._shown = ""

    @property
    def tools(self) -> ToolSet:
        """All tools while they are few, else the three."""
        whole = self._provider.tools
        return whole if len(whole.entries) <= self._above else self._short

    @property
    def ttl(self) -> float:
        """As the provider's."""
        return self._provider.ttl

    def bind(self, host: ProviderHost) -> None:
        """Take the server. Once.

        Raises:
            RuntimeError: it has one already.
        """
        if self._host is not None:
            raise RuntimeError("these tools already belong to a server")
        self._host = host
        self._shown = self.tools.revision
        self._provider.bind(_Relay(self._owns, self._changed, host))

    async def freshen(self) -> None:
        """Have the provider freshen itself."""
        await self._provider.freshen()

    def _owns(self, name: str) -> bool:
        return name in self._short.entries or (self._host is not None and self._host.owns(name))

    def _changed(self) -> None:
        shown = self.tools.revision
        if shown != self._shown and self._host is not None:
            self._shown = shown
            self._host.changed()

    # -- search ----------------------------------------------------------------------

    def _make_search(self) -> _Own:
        return _own(
            SEARCH,
            "Find tools by what they do. Gives names and descriptions, the best first.",
            {
                "query": {"type": "string", "minLength": 1, "maxLength": 1000},
                "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
                "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 20},
            },
            ("query",),
            self._search,
            read_only=True,
        )

    async def _search(self, context: Context, arguments: JSONObject) -> CallToolResult:
        wanted = int(cast("float", arguments.get("limit", 10)))
        tags = frozenset(cast("list[str]", arguments.get("tags") or []))
        found: list[JSONObject] = []
        async with aclosing(self._ranked(cast("str", arguments["query"]))) as ranked:
            async for entry in ranked:
                if not tags <= set(tags_of(entry)) or not await self._may(entry, context):
                    continue
                shown = entry.definition
                told = {"title": shown.title, "description": shown.description}
                found.append({"name": shown.name, **{k: v for k, v in told.items() if v}})
                if len(found) == wanted:
                    break
        lines = [f"{each['name']}: {each.get('description', '')}" for each in found]
        text = "\n".join(lines) or "No tool fits. Try other words."
        return CallToolResult(
            content=[TextContent(text=text)], structured_content={"tools": list(found)}
        )

    async def _ranked(self, asked: str) -> AsyncGenerator[ToolEntry, None]:
        """Every tool that fits, the best first. The caller may see only some of them."""
        whole, told, limit = self._provider.tools, set[str](), CANDIDATES
        while True:
            names = await self._find(whole, asked, limit)
            for name in names:
                entry = whole.entries.get(name)
                if entry is not None and name not in told:
                    told.add(name)
                    await trio.lowlevel.checkpoint()
                    yield entry
            if len(names) < limit:
                return
            limit *= WIDER

    async def _find(self, whole: ToolSet, asked: str, limit: int) -> list[str]:
        def look() -> list[str]:
            if self._indexed is not whole:
                self._index.update(whole.entries)
                self._indexed = whole
            return self._index.find(asked, limit)

        # In a thread, because a change of many tools takes a while to take in.
        return await trio.to_thread.run_sync(look, abandon_on_cancel=True, limiter=self._indexing)

    # -- describe --------------------------------------------------------------------

    def _make_describe(self) -> _Own:
        return _own(
            DESCRIBE,
            f"Tell all about a tool found by {SEARCH}: its arguments and its result.",
            {"name": {"type": "string"}},
            ("name",),
            self._describe,
            read_only=True,
        )

    async def _describe(self, context: Context, arguments: JSONObject) -> CallToolResult:
        entry = await self._found(context, cast("str", arguments["name"]))
        told = to_wire(entry.definition, REVISIONS[0])
        text = f"{entry.definition.name}: {entry.definition.description or ''}"
        return CallToolResult(content=[TextContent(text=text)], structured_content=told)

    # -- call ------------------------------------------------------------------------

    def _make_call(self) -> _Own:
        made = _own(
            CALL,
            f"Call a tool found by {SEARCH}, with arguments as {DESCRIBE} tells them.",
            {"name": {"type": "string"}, "arguments": {"type": "object"}},
            ("name",),
            self._call,
            read_only=False,
        )
        return attrs.evolve(made, behind=self._behind)

    def _behind(self, arguments: JSONObject) -> tuple[str, ToolEntry | None]:
        name = str(arguments.get("name"))
        return name, self._provider.tools.entries.get(name)

    async def _call(self, context: Context, arguments: JSONObject) -> CallToolResult:
        name = cast("str", arguments["name"])
        entry = self._provider.tools.entries.get(name)
        if entry is None:
            raise _unknown()
        # The refusal is that of the tool itself, so a client can ask for the scopes.
        try:
            for rule in self._rules(entry):
                await demand(rule, question(context, "tools/call", name))
        except UnauthorizedError as error:
            raise naming(error, scopes_of(entry.authorize)) from None
        inner = cast("JSONObject", arguments.get("arguments") or {})
        if self._host is None:
            return await entry.call(context, inner)
        with self._host.place(entry, context):
            return await entry.call(context, inner)

    async def _found(self, context: Context, name: str) -> ToolEntry:
        entry = self._provider.tools.entries.get(name)
        if entry is None or not await self._may(entry, context):
            raise _unknown()
        return entry

    def _rules(self, entry: ToolEntry) -> tuple[Authorizer, ...]:
        server = None if self._host is None else self._host.authorizer
        return tuple(rule for rule in (server, entry.authorize) if rule is not None)

    async def _may(self, entry: ToolEntry, context: Context) -> bool:
        for rule in self._rules(entry):
            asked = question(context, "tools/call", entry.definition.name)
            if not await shows(rule, asked, beyond_scopes=self._beyond_scopes):
                return False
        return True


def tool_behind(entry: ToolEntry, arguments: JSONObject) -> tuple[str, ToolEntry | None] | None:
    """Which tool a call is for that is made through `call_tool`, for who writes down calls.

    Args:
        entry: what is called.
        arguments: as they came; they may not fit.

    Returns:
        Its name and what it is, if there is such a tool; None if the call is for `entry` itself.
    """
    if not isinstance(entry, _Own) or entry.behind is None:
        return None
    return entry.behind(arguments)


def _unknown() -> ToolError:
    return ToolError(f"There is no such tool. Find one with {SEARCH}.")


def _own(  # the parts of one tool
    name: str,
    description: str,
    properties: JSONObject,
    required: tuple[str, ...],
    work: Work,
    *,
    read_only: bool,
) -> _Own:
    schema: JSONObject = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    hints = ToolAnnotations(read_only_hint=True) if read_only else None
    tool = Tool(name=name, description=description, input_schema=schema, annotations=hints)
    return _Own(definition=tool, work=work, validator=Validator(schema))


@attrs.frozen
class _Relay:
    """The host as the provider sees it."""

    owns: Callable[[str], bool]
    changed: Callable[[], None]
    host: ProviderHost

    @property
    def authorizer(self) -> Authorizer | None:
        return self.host.authorizer

    def place(self, entry: ToolEntry, context: Context, /) -> AbstractContextManager[object]:
        return self.host.place(entry, context)

    def emit(self, event: Event, /) -> None:
        self.host.emit(event)
