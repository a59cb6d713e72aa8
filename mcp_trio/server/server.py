"""`MCPServer`: tools in one place, served over any transport and in every revision."""

from __future__ import annotations

import functools
import itertools
import logging
import math
import secrets
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast, overload

import attrs
import trio

from mcp_trio.abc import Transport
from mcp_trio.engine.paging import CursorKey
from mcp_trio.engine.subscriptions import TOOLS_CHANGED, Notice
from mcp_trio.eras.admission import ServerFacts
from mcp_trio.errors import (
    ConfigurationError,
    DuplicateRegistrationError,
    InvalidParamsError,
    NotFoundError,
)
from mcp_trio.http.app import HTTPApp
from mcp_trio.http.options import HTTPOptions
from mcp_trio.http.serving_settings import ServingSettings
from mcp_trio.server.invoke import Threads, ToolOptions, function_tool
from mcp_trio.server.listing import Listing
from mcp_trio.server.providers import ToolEntry, ToolProvider
from mcp_trio.session.context import Context
from mcp_trio.session.dispatch import Handler
from mcp_trio.session.notices import NoticeHub
from mcp_trio.session.serving import serve_line
from mcp_trio.session.session import Dispatcher, SessionLimits
from mcp_trio.wire import (
    REVISIONS,
    CallToolParams,
    CallToolResult,
    Implementation,
    ListToolsResult,
    ServerCapabilities,
    Tool,
)
from mcp_trio.wire.tools import PageParams

if TYPE_CHECKING:
    from mcp_trio.http.serving import HTTPService

logger = logging.getLogger("mcp_trio.server")
F = TypeVar("F", bound=Callable[..., Any])

CODE_TTL = 60.0
"""Seconds for which a listing without providers is announced as fresh."""
KEPT_LISTINGS = 3
"""Old listings kept, so that a walk over the pages survives a change."""


@attrs.frozen(kw_only=True)
class ServerOptions:
    """Rarely needed settings of a server, the same on every transport."""

    request_timeout: float = math.inf
    """Seconds a request may take; then its scope is cancelled and the client told so."""
    page_size: int = 200
    """Tools on one page of a listing."""
    max_threads: int = 40
    """Worker threads for synchronous tools."""
    cleanup_timeout: float = 5.0
    """Seconds a cancelled request may shield itself for cleanup."""
    max_in_flight: int = 1000
    """Requests of one session that run at once."""
    cursor_secret: bytes | None = None
    """Signs cursors. Share it between replicas; by default each process has its own."""


class MCPServer:
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
        self._tools: dict[str, ToolEntry] = {}
        self._providers: list[ToolProvider] = []
        self._stamp = itertools.count(1)
        self._code_revision = "0"
        self._cursors = CursorKey(self.options.cursor_secret or secrets.token_bytes(32))
        self._listings: list[Listing] = [Listing(())]
        self._facts: ServerFacts | None = None
        self._services: list[HTTPService] = []
        self.handlers: Mapping[str, Handler] = {
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "subscriptions/listen": self.notices.listen,
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
        name = entry.definition.name
        if name in self.listing.entries:
            raise DuplicateRegistrationError(f"a tool named {name!r} is registered already")
        self._tools[name] = entry
        self._code_changed()

    def remove_tool(self, name: str) -> None:
        """Take a tool of this program away. Running calls go on.

        Raises:
            NotFoundError: there is none of that name.
        """
        if self._tools.pop(name, None) is None:
            raise NotFoundError(f"no tool named {name!r} was registered here")
        self._code_changed()

    def add_provider(self, provider: ToolProvider) -> None:
        """Take in a provider's tools, now and whenever they change."""
        provider.bind(
            _Host(owns=lambda name: self._owned_beside(provider, name), changed=self._changed)
        )
        self._providers.append(provider)
        self._changed()

    def _owned_beside(self, provider: ToolProvider, name: str) -> bool:
        """Tell whether the name belongs to somebody else than this provider."""
        return name in self._tools or any(
            name in other.tools.entries for other in self._providers if other is not provider
        )

    def _code_changed(self) -> None:
        self._code_revision = str(next(self._stamp))
        self._changed()

    def _changed(self) -> None:
        parts = [(self._code_revision, self._tools)]
        parts += [(tools.revision, tools.entries) for tools in (p.tools for p in self._providers)]  # type: ignore[misc]  # Mapping and dict of the same
        listing = Listing(parts)
        if listing.revision == self.listing.revision:
            return
        self._listings = [listing, *self._listings[: KEPT_LISTINGS - 1]]
        self._facts = None
        self.notices.tell(Notice(TOOLS_CHANGED))

    @property
    def listing(self) -> Listing:
        """The tools as they are now. Immutable; a later change makes a new one."""
        return self._listings[0]

    # -- what the layers below ask (session.dispatch.Service) ---------------------

    @property
    def facts(self) -> ServerFacts:
        """What the server says about itself; the same object until something changes."""
        if self._facts is None:
            offers_tools = bool(self._tools or self._providers)
            self._facts = ServerFacts(
                info=self.info,
                capabilities=ServerCapabilities(
                    tools={"listChanged": True} if offers_tools else None, logging={}
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

    async def _list_tools(self, context: Context, params: object) -> ListToolsResult:
        params = cast("PageParams", params)
        for provider in self._providers:
            await provider.freshen()
        listing, start = self.listing, 0
        if params.cursor is not None:
            revision, start = self._cursors.read(params.cursor)
            found = next((old for old in self._listings if old.revision == revision), None)
            if found is None:
                raise InvalidParamsError("Invalid cursor: the list has changed, start again")
            listing = found
        size = self.options.page_size
        end = start + size
        return ListToolsResult(
            tools=listing.page(context.revision, start, size),
            next_cursor=self._cursors.make(listing.revision, end) if end < len(listing) else None,
            ttl_ms=int(1000 * min([CODE_TTL, *(provider.ttl for provider in self._providers)])),
            cache_scope="public",
        )

    async def _call_tool(self, context: Context, params: object) -> CallToolResult:
        params = cast("CallToolParams", params)
        entry = self._find(params.name)
        if entry is None:
            raise NotFoundError(f"Unknown tool: {params.name[:128]}")
        return await entry.call(context, params.arguments or {})

    def _find(self, name: str) -> ToolEntry | None:
        """The entry that runs a call now; the call keeps it.

        Asks the providers and not the listing, because a provider may change how a tool
        runs without changing how it is listed.
        """
        entry = self._tools.get(name)
        for provider in self._providers:
            if entry is not None:
                break
            entry = provider.tools.entries.get(name)
        return entry

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
        task_status: trio.TaskStatus[Dispatcher] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve one client over a transport until it closes the line.

        Takes the transport over. Cancelling ends every request of the client.
        """
        await serve_line(self, transport, limits=self._limits(), task_status=task_status)

    async def serve_stdio(self) -> None:
        """Serve the process that started this one, until it closes standard input.

        While this runs, descriptors 0 and 1 are the null device and standard error.
        Requests that run when the input ends have half a second to finish.
        """
        from mcp_trio.transports.stdio_server import stdio_transport  # noqa: PLC0415 - Linux only

        async with stdio_transport() as transport:
            await serve_line(self, transport, limits=self._limits(drain_on_eof=EOF_GRACE))

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
        self._services.append(service)
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(app.run)
                async with trio.open_nursery() as serving:
                    urls = await serving.start(service.run, host, port)
                    task_status.started([url + app.options.path for url in urls])
                nursery.cancel_scope.cancel()
        finally:
            self._services.remove(service)

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
                trio.run(until_signalled, functools.partial(self._announce, **options), self.drain)
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


@attrs.frozen(kw_only=True)
class _Host:
    """The server as one provider sees it; see `ProviderHost`."""

    owns: Callable[[str], bool]
    changed: Callable[[], None]
