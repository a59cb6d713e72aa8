"""`MCPServer`: the methods of the protocol over what is offered, and the ways to serve them.

How things come to be offered is written in `offers`.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import secrets
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypedDict, cast

import attrs
import msgspec
import trio

from mcp_trio.abc import Transport
from mcp_trio.engine.envelope import Principal
from mcp_trio.engine.paging import CursorKey
from mcp_trio.engine.subscriptions import MAX_WATCHED, honoured
from mcp_trio.eras.admission import ServerFacts
from mcp_trio.eras.rounds import KeyRing, RoundSettings
from mcp_trio.errors import (
    ConfigurationError,
    InvalidParamsError,
    NotFoundError,
    ResourceNotFoundError,
    sole_cause,
)
from mcp_trio.events import Reporter
from mcp_trio.server.http_serving import HTTPServing, RunningHTTP
from mcp_trio.server.invoke import FunctionTool
from mcp_trio.server.line_servers import Drainable, LineServing
from mcp_trio.server.listing import Listed
from mcp_trio.server.offers import Offers
from mcp_trio.server.providers import ToolEntry
from mcp_trio.server.resources import ResourceEntry, TemplateEntry
from mcp_trio.server.shelf import Page, Shelf, page_for, page_of
from mcp_trio.server.telling import Telling
from mcp_trio.session.admission import Admission, caller_of
from mcp_trio.session.context import Context
from mcp_trio.session.dispatch import Handler, handler_failed
from mcp_trio.session.limits import LoadLimits, SessionLimits, ToolLimits
from mcp_trio.session.middleware import allows, demand, question, shows
from mcp_trio.session.serving import serve_line
from mcp_trio.session.session import Dispatcher
from mcp_trio.wire import (
    REVISIONS,
    CallToolParams,
    CallToolResult,
    EmptyResult,
    Implementation,
    ListToolsResult,
    ServerCapabilities,
)
from mcp_trio.wire.completion import CompleteParams, CompleteResult
from mcp_trio.wire.notices import ListenParams
from mcp_trio.wire.prompts import GetPromptParams, GetPromptResult, ListPromptsResult
from mcp_trio.wire.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceParams,
    ReadResourceResult,
)
from mcp_trio.wire.tools import PageParams

logger = logging.getLogger("mcp_trio.server")

CODE_TTL = 60.0
"""Seconds for which a listing without providers is announced as fresh."""
CODE_TTL_MS = int(1000 * CODE_TTL)


_NO_LIMITS = ToolLimits()
_NOTHING = contextlib.nullcontext()


@attrs.frozen(kw_only=True)
class ServerOptions:
    """Rarely needed settings of a server, the same on every transport."""

    request_timeout: float = math.inf
    """Seconds a request may take; then its scope is cancelled and the client told so."""
    page_size: int = 200
    """Entries on one page of a listing."""
    max_threads: int = 40
    """Worker threads for synchronous tools."""
    cleanup_timeout: float = 5.0
    """Seconds a cancelled request may shield itself for cleanup."""
    load: LoadLimits = attrs.field(factory=LoadLimits)
    """How many requests may run, and how often they may come."""
    state_keys: tuple[bytes, ...] = ()
    """32 bytes each; they seal what a question remembers. The first one seals, every one
    opens. Share them between replicas; by default each process has one of its own."""
    state_ttl: float = 900.0
    """Seconds in which a question of the stateless era has to be answered."""
    max_rounds: int = 8
    """Questions in a row with which one call of the stateless era may be answered."""
    listener_patience: float = 30.0
    """Seconds a `subscriptions/listen` client may leave a notice untaken. Then its stream ends
    with an error that says so; nobody else waits for it meanwhile."""
    list_beyond_scopes: bool = False
    """List also what a caller cannot use only for want of scopes, so that a client calls it, hears
    which ones it takes, and asks for them. Otherwise it is as if it were not there."""
    cursor_secret: bytes | None = None
    """Seals cursors. Share it between replicas; by default each process has its own."""

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(ServerOptions):
            value: object = getattr(self, field.name)
            if isinstance(value, bool):
                continue
            # A time of nothing is for whoever wants to see every state expire.
            if isinstance(value, int | float) and field.name != "state_ttl" and not value > 0:
                raise ConfigurationError(f"{field.name} must be greater than 0")
        if not isinstance(cast("object", self.state_keys), tuple):
            raise ConfigurationError("state_keys is a tuple of keys, also if there is one")


class MCPServer(Offers, LineServing, HTTPServing):
    """Tools, prompts and resources, and the means to serve them.

    Nothing runs until one of the `serve` methods does; one server may be served over
    several transports at once. What is offered can change at any time; see `Offers`.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "0",
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        options: ServerOptions | None = None,
    ) -> None:
        """Make a server.

        Args:
            name: how the program calls itself on the wire.
            version: its version.
            title: a name for people.
            description: one sentence about it.
            instructions: advice for the model that uses it.
            options: rarely needed settings.
        """
        self.options = options or ServerOptions()
        super().__init__(
            max_threads=self.options.max_threads,
            listener_patience=self.options.listener_patience,
        )
        self.admission = Admission(self.options.load)
        """Decides what may run. Servers that have the same one share its limits; replace it
        before anything is served."""
        self._reporter = Reporter(self.events, "server")
        self.info = Implementation(name=name, version=version, title=title, description=description)
        self.instructions = instructions
        self.rounds = RoundSettings(
            keys=KeyRing(self.options.state_keys),
            ttl=self.options.state_ttl,
            max_rounds=self.options.max_rounds,
        )
        """How handlers ask in the stateless era."""
        self._cursors = CursorKey(self.options.cursor_secret or secrets.token_bytes(32))
        self._facts: ServerFacts | None = None
        self._services: list[Drainable] = []
        self._http: list[RunningHTTP] = []
        self.handlers: Mapping[str, Handler] = {
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "completion/complete": self._complete,
            "subscriptions/listen": self._listen,
        }

    def _stale(self) -> None:
        self._facts = None

    # -- what the layers below ask (session.dispatch.Service) ---------------------

    @property
    def facts(self) -> ServerFacts:
        """What the server says about itself; the same object until something changes."""
        if self._facts is None:
            offers_resources = self.resources.in_use or self.templates.in_use
            self._facts = ServerFacts(
                info=self.info,
                capabilities=ServerCapabilities(
                    tools={"listChanged": True} if self.tools.in_use else None,
                    prompts={"listChanged": True} if self.prompts.in_use else None,
                    resources=(
                        {"subscribe": True, "listChanged": True} if offers_resources else None
                    ),
                    completions={} if len(self.completions) else None,
                    logging={},
                ),
                revisions=REVISIONS,
                instructions=self.instructions,
                tool_headers=self.listing.tool_headers,
            )
        return self._facts

    def timeout_of(self, method: str, target: str | None) -> float:
        """Seconds a request may take: those of the server, or of the tool that is called."""
        if method == "tools/call" and target is not None:
            entry = self.tools.find(target)
            if entry is not None and (own := self._limits_of(entry).timeout) is not None:
                return own
        return self.options.request_timeout

    async def _page(
        self, context: Context, shelf: Shelf[Any], method: str
    ) -> tuple[msgspec.Raw, _Paged]:
        """One page of a listing: the encoded array and the fields every listing has.

        Args:
            context: of the request.
            shelf: what is listed.
            method: which the entries are listed for; who may not call it sees none of them.
        """
        cursor = cast("PageParams", context.params).cursor
        listing, start = shelf.place(cursor, self._cursors)
        where = (start, self.options.page_size, context.revision, self._cursors)
        # An older listing may hide what the one of now has not got.
        if self.authorizer is None and not listing.guarded:
            # The same for every caller (K4).
            return _listed(page_of(listing, *where), "public")

        failures, beyond = 0, self.options.list_beyond_scopes

        async def listed(name: str, entry: Listed) -> bool:
            nonlocal failures
            asked = question(context, method, name)
            try:
                for rule in (self.authorizer, entry.authorize):
                    if not await shows(rule, asked, beyond_scopes=beyond):
                        return False
                return True
            except Exception as error:  # noqa: BLE001 - one bad rule hides what it is about, no more
                failures += 1
                if failures == 1:  # one line for a listing is enough
                    handler_failed(f"the authorizer of {name[:128]}", sole_cause(error))
                return False

        return _listed(await page_for(listing, *where, listed), "private")

    async def _list_tools(self, context: Context) -> ListToolsResult:
        for provider in self.tools.providers:
            await provider.freshen()
        items, page = await self._page(context, self.tools, "tools/call")
        ttl = min([CODE_TTL, *(provider.ttl for provider in self.tools.providers)])
        page["ttl_ms"] = int(1000 * ttl)
        return ListToolsResult(tools=items, **page)

    async def _call_tool(self, context: Context) -> CallToolResult:
        params = cast("CallToolParams", context.params)
        with Telling(self.events, context, params.name) as telling:
            entry = self.tools.find(params.name)
            if entry is None:
                raise NotFoundError(f"Unknown tool: {params.name[:128]}")
            await self._demand_entry(entry, context)
            with self._place_of(entry, context):
                telling.result = await entry.call(context, params.arguments or {})
            return telling.result

    def _limits_of(self, entry: ToolEntry) -> ToolLimits:
        own = entry.limits if isinstance(entry, FunctionTool) else _NO_LIMITS
        return self.admission.limits.of_tool(entry.definition.name, own)

    def _place_of(self, entry: ToolEntry, context: Context) -> AbstractContextManager[object]:
        limits = self._limits_of(entry)
        if limits.timeout is not None:
            # That of the tool which was asked for counts already; this may be another one.
            scope = context.scope
            scope.deadline = min(scope.deadline, context.began + limits.timeout)
        if limits.rate is None and limits.max_in_flight is None:
            return _NOTHING
        who = caller_of(context.principal, None) or context.caller
        return self.admission.enter_tool(entry.definition.name, limits, who, self._reporter)

    async def _list_prompts(self, context: Context) -> ListPromptsResult:
        items, page = await self._page(context, self.prompts, "prompts/get")
        return ListPromptsResult(prompts=items, **page)

    async def _get_prompt(self, context: Context) -> GetPromptResult:
        params = cast("GetPromptParams", context.params)
        entry = self.prompts.find(params.name)
        if entry is None:
            raise NotFoundError(f"Unknown prompt: {params.name[:128]}")
        await self._demand_entry(entry, context)
        return await entry.get(context, params.arguments or {})

    async def _list_resources(self, context: Context) -> ListResourcesResult:
        items, page = await self._page(context, self.resources, "resources/read")
        return ListResourcesResult(resources=items, **page)

    async def _list_templates(self, context: Context) -> ListResourceTemplatesResult:
        items, page = await self._page(context, self.templates, "resources/read")
        return ListResourceTemplatesResult(resource_templates=items, **page)

    def _find_resource(
        self, context: Context, uri: str
    ) -> tuple[ResourceEntry | TemplateEntry, dict[str, str]]:
        """The entry a URI belongs to, and the values of its template's variables."""
        entry, variables = self._resource_at(uri)
        if entry is None:
            raise ResourceNotFoundError(uri, rpc_code=context.revision.resource_not_found)
        return entry, variables

    async def _read_resource(self, context: Context) -> ReadResourceResult:
        uri = cast("ReadResourceParams", context.params).uri
        entry, variables = self._find_resource(context, uri)
        await self._demand_entry(entry, context)
        try:
            return await entry.read(context, uri, variables)
        except (NotFoundError, ExceptionGroup) as error:
            missing = sole_cause(error)
            if not isinstance(missing, NotFoundError):
                raise
            code, data = context.revision.resource_not_found, missing.data
            raise ResourceNotFoundError(uri, missing.message, rpc_code=code, data=data) from error

    async def _demand_use(self, context: Context, method: str, target: str, entry: Listed) -> None:
        """Refuse who may not make the call that this request prepares (X4, O5)."""
        asked = question(context, method, target)
        await demand(self.authorizer, asked)
        await self._demand_entry(entry, asked)

    async def _subscribe(self, context: Context) -> EmptyResult:
        uri = cast("ReadResourceParams", context.params).uri
        entry, _ = self._find_resource(context, uri)
        await self._demand_use(context, "resources/read", uri, entry)
        if context.watcher is not None:
            context.watcher.watch(uri)
        return EmptyResult()

    async def _unsubscribe(self, context: Context) -> EmptyResult:
        if context.watcher is not None:
            context.watcher.unwatch(cast("ReadResourceParams", context.params).uri)
        return EmptyResult()

    async def _complete(self, context: Context) -> CompleteResult:
        params = cast("CompleteParams", context.params)
        entry = self._completed(params)
        target = context.target or ""
        if entry is None:
            raise InvalidParamsError(f"Unknown reference: {target[:128]}")
        method = "prompts/get" if params.ref.type == "ref/prompt" else "resources/read"
        await self._demand_use(context, method, target, entry)
        return CompleteResult(completion=await self.completions.complete(params))

    def _completed(self, params: CompleteParams) -> Listed | None:
        """The prompt, resource or template that a completion is for."""
        ref = params.ref
        if ref.type == "ref/prompt" and ref.name is not None:
            return self.prompts.find(ref.name)
        if ref.type == "ref/resource" and ref.uri is not None:
            return self.templates.find(ref.uri) or self.resources.find(ref.uri)
        raise InvalidParamsError("ref must be a ref/prompt with a name or a ref/resource")

    async def _listen(self, context: Context) -> EmptyResult:
        params = cast("ListenParams", context.params)
        wanted = params.notifications
        if wanted.resource_subscriptions:
            # Nobody is told of changes to what he may not read.
            watched: list[str] = []
            for uri in list(dict.fromkeys(wanted.resource_subscriptions))[:MAX_WATCHED]:
                await trio.lowlevel.checkpoint()
                if await self._may_read(context, uri):
                    watched.append(uri)
            wanted = attrs.evolve(wanted, resource_subscriptions=watched)
        return await self.notices.listen(context, honoured(wanted, self.facts.capabilities))

    async def _may_read(self, context: Context, uri: str) -> bool:
        asked = question(context, "resources/read", uri)
        try:
            entry, _ = self._find_resource(context, uri)
        except ResourceNotFoundError:
            # It may be there one day; then it is the server's authorizers who decide.
            return await allows(self.authorizer, asked)
        return await allows(self.authorizer, asked) and await allows(entry.authorize, asked)

    # -- serving -----------------------------------------------------------------

    def _limits(self, *, drain_on_eof: float = 0.0) -> SessionLimits:
        return SessionLimits(
            max_in_flight=self.admission.limits.most_of_session,
            cleanup_timeout=self.options.cleanup_timeout,
            drain_on_eof=drain_on_eof,
        )

    async def serve(
        self,
        transport: Transport,
        *,
        principal: Principal | None = None,
        address: str | None = None,
        eof_grace: float = 0.0,
        task_status: trio.TaskStatus[Dispatcher] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve one client over a transport until it closes the line.

        Takes the transport over. Cancelling ends every request of the client.

        Args:
            transport: the line.
            principal: who the client is, if whoever made the line knows.
            address: where it comes from; what it counts as against limits of each caller if
                nobody in particular.
            eof_grace: seconds that running requests may go on once the client has stopped
                sending, for lines whose two directions close apart.
            task_status: reports the running session.
        """
        await serve_line(
            self,
            transport,
            limits=self._limits(drain_on_eof=eof_grace),
            principal=principal,
            address=address,
            task_status=task_status,
        )

    async def serve_stdio(self) -> None:
        """Serve the process that started this one, until it closes standard input.

        While this runs, descriptors 0 and 1 are the null device and standard error.
        Requests that run when the input ends have half a second to finish, as long as somebody
        can read their answers: when the other end of the output is gone, all are cancelled.
        """
        from mcp_trio.http.half_close import wait_hangup  # noqa: PLC0415 - with what it is for
        from mcp_trio.transports.stdio_server import stdio_transport  # noqa: PLC0415 - Linux only

        async with stdio_transport() as transport, trio.open_nursery() as nursery:

            async def until_unread(output: int) -> None:
                await wait_hangup(output)
                nursery.cancel_scope.cancel()

            if transport.output is not None:
                nursery.start_soon(until_unread, transport.output)
            await self.serve(transport, eof_grace=EOF_GRACE)
            nursery.cancel_scope.cancel()

    def drain(self) -> None:
        """Go down gently.

        Every HTTP service stops accepting, ends its endless streams, lets running requests
        finish within its grace period, and its `serve_http` returns. Idempotent and final:
        a drained server is not served again.
        """
        self.notices.drain()
        for service in self._services:
            service.drain()

    def run(self, transport: str = "stdio", **options: Any) -> None:
        """Run the server as the whole program, until its input ends or SIGTERM or SIGINT.

        Over HTTP the first signal drains, the second one ends at once.

        Args:
            transport: "stdio" or "http".
            **options: for "http" the keyword arguments of `serve_http`.

        Raises:
            ConfigurationError: an unknown transport.
            OSError: an address that cannot be bound.
        """
        match transport:
            case "stdio":
                trio.run(until_signalled, self.serve_stdio, None)
            case "http":
                serve = functools.partial(self._announce, **options)
                try:
                    trio.run(until_signalled, serve, self.drain)
                except BaseExceptionGroup as group:
                    raise sole_cause(group) from None
            case _:
                raise ConfigurationError(f"transport must be 'stdio' or 'http', not {transport!r}")

    async def _announce(self, **options: Any) -> None:
        async with trio.open_nursery() as nursery:
            serve = functools.partial(self.serve_http, **options)
            urls = await nursery.start(serve)
            print(f"{self.info.name} serves MCP on {' '.join(urls)}", file=sys.stderr)  # noqa: T201 - the program's own line


class _Paged(TypedDict):
    """What every listing has beside its entries."""

    next_cursor: str | None
    ttl_ms: int
    cache_scope: str


def _listed(page: Page, scope: str) -> tuple[msgspec.Raw, _Paged]:
    return page.items, _Paged(next_cursor=page.next_cursor, ttl_ms=CODE_TTL_MS, cache_scope=scope)


EOF_GRACE = 0.5
"""Seconds that running requests may go on after standard input has ended."""


async def until_signalled(
    serve: Callable[[], Awaitable[object]],
    drain: Callable[[], None] | None,
    reload: Callable[[], object] | None = None,
) -> None:
    """Run a service until it returns; SIGTERM and SIGINT end it.

    Args:
        serve: the service.
        drain: what the first signal does; None cancels at once. A second signal always
            cancels.
        reload: what SIGHUP does, each time; None leaves it alone.
    """
    watched = {signal.SIGTERM, signal.SIGINT, *([] if reload is None else [signal.SIGHUP])}
    with trio.open_signal_receiver(*watched) as signals:
        async with trio.open_nursery() as nursery:

            async def obey() -> None:
                first = True
                async for received in signals:
                    if received == signal.SIGHUP and reload is not None:
                        reload()
                    elif first and drain is not None:
                        first = False
                        drain()
                    else:
                        nursery.cancel_scope.cancel()

            nursery.start_soon(obey)
            await serve()
            nursery.cancel_scope.cancel()
