"""A catalog as one process serves it: what the settings name, put together in one nursery.

The command is `serve`'s, and what is said to people is theirs who call.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import trio

from mcp_trio.catalog.actor import CatalogActor
from mcp_trio.catalog.searching import SearchableTools
from mcp_trio.catalog.toolsets import Fan
from mcp_trio.cli import collector
from mcp_trio.cli.admin import admin_app
from mcp_trio.cli.exporting import exporting
from mcp_trio.cli.journals import Journals
from mcp_trio.cli.lifecycle import Lifecycle
from mcp_trio.config import AdminSection, ServerSection, Settings, make_connections
from mcp_trio.http.options import HTTPOptions
from mcp_trio.http.serving import HTTPService
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.secrets import SecretSource
from mcp_trio.server.providers import ToolProvider
from mcp_trio.server.server import MCPServer
from mcp_trio.session.limits import LoadLimits
from mcp_trio.session.middleware import RequiresScopes
from mcp_trio.workers.member import Member

logger = logging.getLogger("mcp_trio.cli")

FIRST_LOOK = 10.0
"""Seconds that a service waits for the end of the first look at its registry before it listens."""


def make_server(
    section: ServerSection, load: LoadLimits, folder: Path, member: Member | None = None
) -> MCPServer:
    """Make a server that offers nothing yet.

    Args:
        section: who it is.
        load: what requests may take.
        folder: what relative paths are relative to.
        member: this process among several.

    Raises:
        ConfigurationError: a key cannot be had.
    """
    options = section.server_options(folder, load=load)
    return MCPServer(
        section.name,
        version=section.version,
        instructions=section.instructions,
        options=options if member is None else member.keyed(options),
    )


async def run_service(
    server: MCPServer,
    settings: Settings,
    folder: Path,
    journals: Journals,
    life: Lifecycle,
    tell: Callable[[list[str], list[str]], object],
    *,
    member: Member | None = None,
) -> None:
    """Serve a registry until the server is drained or this is cancelled.

    Args:
        server: a fresh server; the catalog becomes its provider.
        settings: where everything is.
        folder: what relative paths of secrets are relative to.
        journals: what is written down, and where; they run.
        life: what signals do; it is run here.
        tell: told the URLs of the service, and of the admin listener, once it is up.
        member: this process among several; the admin listener is its parent's.

    Raises:
        ConfigurationError: a connection or secret that cannot be.
        OSError: the address cannot be bound.
    """
    connections = _connections(settings, folder, journals)
    registry, interval = settings.catalog.open_registry(folder), settings.catalog.interval
    actor = CatalogActor(registry, Compiler(connections), interval=interval)
    options = _options(server, settings, folder, member)
    toolsets = _offer(server, actor, settings, folder, member)
    servers = [server, *toolsets.values()]
    journals.watch(servers)
    life.on_reload(journals.reopen)
    life.on_reload(actor.look_soon)

    def ready() -> bool:
        return actor.ready.is_set() and not life.leaving

    async with (
        exporting(settings, servers),
        connections,
        contextlib.AsyncExitStack() as stack,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(life.run)
        await nursery.start(actor.run)
        nursery.start_soon(collector.settle, actor.ready)
        nursery.start_soon(collector.give_back)
        admin: list[str] = []
        seat = None
        section = settings.admin if member is None else AdminSection()
        if section is not None:
            made = admin_app(section, servers, actor, journals.writers, ready)
            pages = stack.enter_context(made)
            if member is not None:
                obeying = member.obeying(server, life.leave, life.reload, actor.look_soon, ready)
                seat = stack.enter_context(obeying).seat(pages)
            else:
                # Up for as long as anything is to be seen: also while the server drains.
                admin = await nursery.start(HTTPService(pages).run, section.host, section.port)
        # Others serve the port of a worker meanwhile: it must not be the one without tools.
        await until_looked(actor, life, FIRST_LOOK if member is None else math.inf)
        async with trio.open_nursery() as serving:
            serve_http = functools.partial(
                _serving(server, settings, folder),
                options=options,
                ready=ready,
                others=toolsets,
                seat=seat,
                tell=journals.access,
            )
            urls: list[str] = await serving.start(serve_http)
            tell(urls, admin)
        logger.info("drained")
        nursery.cancel_scope.cancel()


async def until_looked(actor: CatalogActor, life: Lifecycle, seconds: float) -> None:
    """Wait for the end of the first look, so that whoever connects finds the tools.

    Args:
        actor: the catalog; it runs.
        life: ends the wait when the service is told to go down.
        seconds: how long at most; after them a registry in trouble keeps nobody waiting.
    """
    with trio.move_on_after(seconds) as waiting:
        life.on_leave(waiting.cancel)
        await actor.looked.wait()


def _connections(settings: Settings, folder: Path, journals: Journals) -> Connections:
    """Make the connections; their secrets are kept out of the log."""
    made = make_connections(settings.connections, folder)
    for connection in made:
        journals.redactor.add(connection.secrets)
    return Connections(made)


def _options(
    server: MCPServer, settings: Settings, folder: Path, member: Member | None
) -> HTTPOptions:
    """The options of the endpoint, with who says who calls."""
    options = settings.server.http_options(settings.limits)
    if settings.auth is None:
        return options
    _require(server, settings.auth.required_scopes)
    shared = None if member is None else member.nonce_key
    guard = settings.auth.resource_server(SecretSource(folder=folder), shared)
    return attrs.evolve(options, auth=guard)


def _serving(server: MCPServer, settings: Settings, folder: Path) -> Callable[..., Awaitable[None]]:
    """The server's `serve_http`, where the settings have it listen."""
    section, tls = settings.server, settings.tls
    place = section.place(folder)
    return functools.partial(
        server.serve_http,
        host=place.host,
        port=place.port,
        unix_socket=place.unix,
        unix_mode=place.unix_mode,
        inherited=place.inherited,
        tls=None if tls is None else tls.options(folder),
        settings=section.serving_settings(settings.limits),
    )


def _offer(
    server: MCPServer, actor: CatalogActor, settings: Settings, folder: Path, member: Member | None
) -> dict[str, MCPServer]:
    """Give the server the catalog's tools, and make the servers of the toolsets, by path."""
    above = settings.catalog.search_above
    if not settings.toolsets:
        server.add_provider(_listed(actor, above, settings))
        return {}
    fan = Fan(actor)
    server.add_provider(_listed(fan.part(lambda _entry: True), above, settings))
    made: dict[str, MCPServer] = {}
    for name, section in settings.toolsets.items():
        who = attrs.evolve(
            settings.server,
            name=f"{settings.server.name}/{name}",
            instructions=section.instructions or settings.server.instructions,
        )
        toolset = make_server(who, settings.load, folder, member)
        toolset.admission = server.admission  # the limits are those of all together
        own = section.search_above
        few = above if own is None else own
        toolset.add_provider(_listed(fan.part(section.choice()), few, settings))
        _require(toolset, section.required_scopes)
        if settings.auth is not None:
            _require(toolset, settings.auth.required_scopes)
        made[f"{settings.server.path.rstrip('/')}/{name}"] = toolset
    return made


def _require(server: MCPServer, scopes: list[str]) -> None:
    """Demand scopes for anything that a server does."""
    if scopes:
        server.add_authorizer(RequiresScopes(scopes))


def _listed(provider: ToolProvider, above: int | None, settings: Settings) -> ToolProvider:
    if above is None:
        return provider
    beyond = settings.server.list_beyond_scopes
    return SearchableTools(provider, above=above, list_beyond_scopes=beyond)
