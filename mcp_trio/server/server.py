"""`MCPServer`: tools in one place, served over any transport and in every revision."""

from __future__ import annotations

import functools
import logging
import math
import secrets
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, Unpack, cast, overload

import attrs
import msgspec
import trio

from mcp_trio.abc import Transport
from mcp_trio.engine.paging import CursorKey
from mcp_trio.engine.subscriptions import RESOURCE_UPDATED, Notice
from mcp_trio.eras.admission import ServerFacts
from mcp_trio.eras.rounds import KeyRing, RoundSettings
from mcp_trio.errors import ConfigurationError, NotFoundError, ResourceNotFoundError
from mcp_trio.http.app import HTTPApp
from mcp_trio.http.options import HTTPOptions
from mcp_trio.http.serving_settings import ServingSettings
from mcp_trio.server.completions import Completer, Completions
from mcp_trio.server.invoke import Threads, ToolOptions, function_tool
from mcp_trio.server.line_servers import Drainable, LineServing
from mcp_trio.server.listing import Listing
from mcp_trio.server.prompts import PromptEntry, PromptOptions, function_prompt
from mcp_trio.server.providers import ToolEntry, ToolProvider
from mcp_trio.server.resources import (
    FunctionTemplate,
    ResourceEntry,
    ResourceOptions,
    TemplateEntry,
    function_resource,
)
from mcp_trio.server.shelf import Page, Shelf, ToolShelf
from mcp_trio.session.context import Context
from mcp_trio.session.dispatch import Handler, sole_cause
from mcp_trio.session.notices import NoticeHub
from mcp_trio.session.serving import serve_line
from mcp_trio.session.session import Dispatcher, SessionLimits
from mcp_trio.wire import (
    REVISIONS,
    CallToolParams,
    CallToolResult,
    EmptyResult,
    Implementation,
    ListToolsResult,
    ServerCapabilities,
    Tool,
)
from mcp_trio.wire.completion import CompleteParams, CompleteResult
from mcp_trio.wire.prompts import GetPromptParams, GetPromptResult, ListPromptsResult
from mcp_trio.wire.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceParams,
    ReadResourceResult,
)
from mcp_trio.wire.tools import PageParams

logger = logging.getLogger("mcp_trio.server")
F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=Completer)

CODE_TTL = 60.0
"""Seconds for which a listing without providers is announced as fresh."""
CODE_TTL_MS = int(1000 * CODE_TTL)
PUBLIC: dict[str, Any] = {"cache_scope": "public"}
"""Listings are the same for every caller (K4)."""


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
    max_in_flight: int = 1000
    """Requests of one session that run at once."""
    state_keys: tuple[bytes, ...] = ()
    """32 bytes each; they seal what a question remembers. The first one seals, every one
    opens. Share them between replicas; by default each process has one of its own."""
    state_ttl: float = 900.0
    """Seconds in which a question of the stateless era has to be answered."""
    max_rounds: int = 8
    """Questions in a row with which one call of the stateless era may be answered."""
    cursor_secret: bytes | None = None
    """Signs cursors. Share it between replicas; by default each process has its own."""


class MCPServer(LineServing):
    """A set of tools and the means to serve it.

    Nothing runs until one of the `serve` methods does; one server may be served over
    several transports at once. Tools can be added and removed at any time, and clients
    that listen are told.
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
        self.info = Implementation(name=name, version=version, title=title, description=description)
        self.instructions = instructions
        self.options = options or ServerOptions()
        self.notices = NoticeHub()
        self.threads = Threads(trio.CapacityLimiter(self.options.max_threads))
        self.tools = ToolShelf(self._changed)
        self.prompts: Shelf[PromptEntry] = Shelf("prompt", self._changed)
        self.resources: Shelf[ResourceEntry] = Shelf("resource", self._changed)
        self.templates: Shelf[TemplateEntry] = Shelf("template", self._changed)
        self.completions = Completions()
        self.rounds = RoundSettings(
            keys=KeyRing(self.options.state_keys),
            ttl=self.options.state_ttl,
            max_rounds=self.options.max_rounds,
        )
        """How handlers ask in the stateless era."""
        self._cursors = CursorKey(self.options.cursor_secret or secrets.token_bytes(32))
        self._facts: ServerFacts | None = None
        self._services: list[Drainable] = []
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

    # -- what is offered ---------------------------------------------------------

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(self, /, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...

    def tool(
        self, function: F | None = None, /, **options: Unpack[ToolOptions]
    ) -> F | Callable[[F], F]:
        """Register a function as a tool, with or without parentheses; see `ToolOptions`.

        The function is returned unchanged. Sync functions run in a worker thread.

        Raises:
            SignatureError: the function cannot be called with JSON arguments.
            SchemaError: a schema given by hand cannot be used.
            DuplicateRegistrationError: the name is taken.
        """

        def register(target: F) -> F:
            self.add_tool(target, **options)
            return target

        return register if function is None else register(function)

    def add_tool(self, function: Callable[..., object], **options: Unpack[ToolOptions]) -> Tool:
        """Register a function as a tool and give the tool as it will be listed; see `tool`."""
        entry = function_tool(function, self.threads, **options)
        self.add_entry(entry)
        return entry.definition

    def add_entry(self, entry: ToolEntry) -> None:
        """Register any `ToolEntry`.

        Raises:
            DuplicateRegistrationError: the name is taken, by code or by a provider.
        """
        self.tools.add(entry.definition.name, entry)

    def remove_tool(self, name: str) -> None:
        """Take a tool of this program away. Running calls go on.

        Raises:
            NotFoundError: there is none of that name.
        """
        self.tools.remove(name)

    def add_provider(self, provider: ToolProvider) -> None:
        """Take in a provider's tools, now and whenever they change."""
        self.tools.add_provider(provider)

    @overload
    def prompt(self, function: F, /) -> F: ...

    @overload
    def prompt(self, /, **options: Unpack[PromptOptions]) -> Callable[[F], F]: ...

    def prompt(
        self, function: F | None = None, /, **options: Unpack[PromptOptions]
    ) -> F | Callable[[F], F]:
        """Register a function as a prompt, with or without parentheses; see `PromptOptions`.

        Its parameters are the prompt's arguments, which arrive as strings and are read as
        the annotations say. It returns text, content blocks, `PromptMessage`s, a list of
        these, or a `GetPromptResult`.

        Raises:
            SignatureError: the function cannot be called with named arguments.
            DuplicateRegistrationError: the name is taken.
        """

        def register(target: F) -> F:
            self.add_prompt(target, **options)
            return target

        return register if function is None else register(function)

    def add_prompt(self, function: Callable[..., object], **options: Unpack[PromptOptions]) -> None:
        """Register a function as a prompt; see `prompt`."""
        entry = function_prompt(function, self.threads, **options)
        self.prompts.add(entry.definition.name, entry)

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Register a function as a resource, or as a template if the URI has expressions.

        The function's parameters are the template's variables. It returns text, bytes, any
        JSON value, `ResourceContents`, a list of these, or a `ReadResourceResult`.

        Raises:
            UriTemplateError: the template cannot be matched.
            SignatureError: the parameters are not the variables.
            DuplicateRegistrationError: the URI is taken.
        """

        def register(target: F) -> F:
            self.add_resource(uri, target, **options)
            return target

        return register

    def add_resource(
        self, uri: str, function: Callable[..., object], **options: Unpack[ResourceOptions]
    ) -> None:
        """Register a function as a resource or template; see `resource`."""
        entry = function_resource(uri, function, self.threads, **options)
        if isinstance(entry, FunctionTemplate):
            self.templates.add(uri, entry)
        else:
            self.resources.add(uri, entry)

    def completion(
        self, argument: str, *, prompt: str | None = None, resource: str | None = None
    ) -> Callable[[C], C]:
        """Register a function that suggests values for an argument of a prompt or template.

        It gets what was typed so far and the arguments known already, and returns
        suggestions, best first; it may be async.

        Raises:
            ConfigurationError: not exactly one of `prompt` and `resource` was given.
            DuplicateRegistrationError: the argument is completed already.
        """

        def register(completer: C) -> C:
            self.completions.add(completer, argument, prompt=prompt, resource=resource)
            self._facts = None
            return completer

        return register

    def notify_resource_updated(self, uri: str) -> None:
        """Tell everybody who watches a resource that it changed. Never waits; once each."""
        self.notices.tell(Notice(RESOURCE_UPDATED, uri))

    def _changed(self, notice: Notice) -> None:
        self._facts = None
        self.notices.tell(notice)

    @property
    def listing(self) -> Listing[ToolEntry]:
        """The tools as they are now. Immutable; a later change makes a new one."""
        return self.tools.listing

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

    @property
    def request_timeout(self) -> float:
        """Seconds a request may take."""
        return self.options.request_timeout

    def _page(self, shelf: Shelf[Any], context: Context, params: object) -> Page:
        cursor = cast("PageParams", params).cursor
        return shelf.page(context.revision, cursor, self._cursors, self.options.page_size)

    async def _list_tools(self, context: Context, params: object) -> ListToolsResult:
        for provider in self.tools.providers:
            await provider.freshen()
        page = self._page(self.tools, context, params)
        ttl = min([CODE_TTL, *(provider.ttl for provider in self.tools.providers)])
        return ListToolsResult(
            tools=page.items, next_cursor=page.next_cursor, ttl_ms=int(1000 * ttl), **PUBLIC
        )

    async def _call_tool(self, context: Context, params: object) -> CallToolResult:
        params = cast("CallToolParams", params)
        entry = self.tools.find(params.name)
        if entry is None:
            raise NotFoundError(f"Unknown tool: {params.name[:128]}")
        return await entry.call(context, params.arguments or {})

    async def _list_prompts(self, context: Context, params: object) -> ListPromptsResult:
        page = self._page(self.prompts, context, params)
        return ListPromptsResult(
            prompts=page.items, next_cursor=page.next_cursor, ttl_ms=CODE_TTL_MS, **PUBLIC
        )

    async def _get_prompt(self, context: Context, params: object) -> GetPromptResult:
        params = cast("GetPromptParams", params)
        entry = self.prompts.find(params.name)
        if entry is None:
            raise NotFoundError(f"Unknown prompt: {params.name[:128]}")
        return await entry.get(context, params.arguments or {})

    async def _list_resources(self, context: Context, params: object) -> ListResourcesResult:
        page = self._page(self.resources, context, params)
        return ListResourcesResult(
            resources=page.items, next_cursor=page.next_cursor, ttl_ms=CODE_TTL_MS, **PUBLIC
        )

    async def _list_templates(
        self, context: Context, params: object
    ) -> ListResourceTemplatesResult:
        page = self._page(self.templates, context, params)
        return ListResourceTemplatesResult(
            resource_templates=page.items,
            next_cursor=page.next_cursor,
            ttl_ms=CODE_TTL_MS,
            **PUBLIC,
        )

    def _find_resource(
        self, context: Context, uri: str
    ) -> tuple[ResourceEntry | TemplateEntry, dict[str, str]]:
        """The entry a URI belongs to, and the values of its template's variables."""
        entry = self.resources.find(uri)
        if entry is not None:
            return entry, {}
        for candidate in self.templates.listing.entries.values():
            variables = candidate.template.match(uri)
            if variables is not None:
                return candidate, variables
        raise ResourceNotFoundError(uri, rpc_code=context.revision.resource_not_found)

    async def _read_resource(self, context: Context, params: object) -> ReadResourceResult:
        uri = cast("ReadResourceParams", params).uri
        entry, variables = self._find_resource(context, uri)
        try:
            return await entry.read(context, uri, variables)
        except msgspec.ValidationError:
            # A variable that does not read as its parameter's type names no resource.
            raise ResourceNotFoundError(uri, rpc_code=context.revision.resource_not_found) from None

    async def _subscribe(self, context: Context, params: object) -> EmptyResult:
        uri = cast("ReadResourceParams", params).uri
        self._find_resource(context, uri)
        if context.watcher is not None:
            context.watcher.watch(uri)
        return EmptyResult()

    async def _unsubscribe(self, context: Context, params: object) -> EmptyResult:
        if context.watcher is not None:
            context.watcher.unwatch(cast("ReadResourceParams", params).uri)
        return EmptyResult()

    async def _complete(self, _context: Context, params: object) -> CompleteResult:
        def known(kind: str, target: str) -> bool:
            if kind == "ref/prompt":
                return self.prompts.find(target) is not None
            return (
                target in self.templates.listing.entries or self.resources.find(target) is not None
            )

        completion = await self.completions.complete(cast("CompleteParams", params), known)
        return CompleteResult(completion=completion)

    async def _listen(self, context: Context, params: object) -> EmptyResult:
        return await self.notices.listen(context, params, self.facts.capabilities)

    # -- serving -----------------------------------------------------------------

    def _limits(self, *, drain_on_eof: float = 0.0) -> SessionLimits:
        return SessionLimits(
            max_in_flight=self.options.max_in_flight,
            cleanup_timeout=self.options.cleanup_timeout,
            drain_on_eof=drain_on_eof,
        )

    async def serve(
        self,
        transport: Transport,
        *,
        eof_grace: float = 0.0,
        task_status: trio.TaskStatus[Dispatcher] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve one client over a transport until it closes the line.

        Takes the transport over. Cancelling ends every request of the client.

        Args:
            transport: the line.
            eof_grace: seconds that running requests may go on once the client has stopped
                sending, for lines whose two directions close apart.
            task_status: reports the running session.
        """
        limits = self._limits(drain_on_eof=eof_grace)
        await serve_line(self, transport, limits=limits, task_status=task_status)

    async def serve_stdio(self) -> None:
        """Serve the process that started this one, until it closes standard input.

        While this runs, descriptors 0 and 1 are the null device and standard error.
        Requests that run when the input ends have half a second to finish.
        """
        from mcp_trio.transports.stdio_server import stdio_transport  # noqa: PLC0415 - Linux only

        async with stdio_transport() as transport:
            await self.serve(transport, eof_grace=EOF_GRACE)

    def asgi_app(
        self,
        options: HTTPOptions | None = None,
        *,
        host: str = "127.0.0.1",
        ready: Callable[[], bool] = lambda: True,
    ) -> HTTPApp:
        """The Streamable HTTP endpoint as an ASGI application, for a server that runs on Trio.

        Handshake sessions live in the lifespan of the application, so the ASGI server has
        to run that protocol. `serve_http` does without.

        Args:
            options: bounds and names of the endpoint.
            host: the address the ASGI server binds; decides which Host values are served.
            ready: what `GET /readyz` answers.
        """
        return HTTPApp(self, options, host=host, ready=ready)

    async def serve_http(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        options: HTTPOptions | None = None,
        settings: ServingSettings | None = None,
        ready: Callable[[], bool] = lambda: True,
        task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve Streamable HTTP on Hypercorn's protocols until drained or cancelled.

        Cancelling ends every request at once; `drain` lets them finish first.

        Args:
            host: address to bind.
            port: port to bind, 0 picks a free one.
            options: bounds and names of the endpoint.
            settings: bounds of the socket layer.
            ready: what `GET /readyz` answers.
            task_status: reports the URLs of the endpoint.

        Raises:
            OSError: the address cannot be bound.
        """
        from mcp_trio.http.serving import HTTPService  # noqa: PLC0415 - Hypercorn is slow to import

        app = self.asgi_app(options, host=host, ready=ready)
        service = HTTPService(app, settings=settings, on_drain=app.drain)
        listeners = await service.bind(host, port)
        self._services.append(service)
        if self.notices.draining:
            service.drain()  # told to go down before it was up
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(app.run)
                async with trio.open_nursery() as serving:
                    urls = await serving.start(service.run_listeners, listeners)
                    task_status.started([url + app.options.path for url in urls])
                nursery.cancel_scope.cancel()
        finally:
            self._services.remove(service)
            for listener in listeners:
                listener.socket.close()

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


EOF_GRACE = 0.5
"""Seconds that running requests may go on after standard input has ended."""


async def until_signalled(
    serve: Callable[[], Awaitable[object]], drain: Callable[[], None] | None
) -> None:
    """Run a service until it returns; SIGTERM and SIGINT end it.

    Args:
        serve: the service.
        drain: what the first signal does; None cancels at once. A second signal always
            cancels.
    """
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:

            async def obey() -> None:
                first = True
                async for _ in signals:
                    if first and drain is not None:
                        first = False
                        drain()
                    else:
                        nursery.cancel_scope.cancel()

            nursery.start_soon(obey)
            await serve()
            nursery.cancel_scope.cancel()
