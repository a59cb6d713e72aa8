"""`mcp-trio serve`: the catalog service as one process and one nursery.

With several processes each of them is that, and `several` has their parent.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import attrs
import click
import trio

from mcp_trio.catalog.actor import CatalogActor
from mcp_trio.catalog.registries.opening import shown
from mcp_trio.catalog.searching import SearchableTools
from mcp_trio.catalog.toolsets import Fan
from mcp_trio.cli import collector
from mcp_trio.cli.admin import admin_app
from mcp_trio.cli.demo import DEMO_VALUES, DemoUpstream, demo_settings
from mcp_trio.cli.exporting import exporting
from mcp_trio.cli.interrupts import raise_again
from mcp_trio.cli.journals import Journals
from mcp_trio.cli.lifecycle import Lifecycle
from mcp_trio.cli.several import Several
from mcp_trio.cli.streams import hold_standard_streams, say
from mcp_trio.config import (
    AdminSection,
    Draft,
    Fault,
    Origin,
    Override,
    ServerSection,
    Settings,
    SettingsError,
    check_settings,
    draft_file,
    make_connections,
    overridden,
)
from mcp_trio.errors import ConfigurationError
from mcp_trio.http.binding import Place
from mcp_trio.http.options import HTTPOptions
from mcp_trio.http.serving import HTTPService
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.secrets import SecretSource
from mcp_trio.server.providers import ToolProvider
from mcp_trio.server.server import MCPServer, until_signalled
from mcp_trio.session.limits import LoadLimits
from mcp_trio.session.middleware import RequiresScopes
from mcp_trio.telemetry.logging import configure_logging
from mcp_trio.wire import REVISIONS, JSONObject
from mcp_trio.wire.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from mcp_trio.workers.member import Member

logger = logging.getLogger("mcp_trio.cli")


@click.command()
@click.argument("config", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--demo", is_flag=True, help="Serve a demo: its own upstream, its own registry.")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 picks one.  [default: 8000]")
@click.option(
    "--admin-port",
    type=click.IntRange(0, 65535),
    help="Port of the admin listener; 0 picks one.  [default: none, unless CONFIG has one]",
)
@click.option("--workers", type=click.IntRange(1, 64), help="Processes.  [default: 1]")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Least severe level that is logged.  [default: info, unless CONFIG has one]",
)
def serve(  # noqa: PLR0917 - options of one command
    config: Path | None,
    demo: bool,
    host: str | None,
    port: int | None,
    admin_port: int | None,
    workers: int | None,
    log_level: str | None,
) -> None:
    """Publish the operations of a registry as MCP tools, over Streamable HTTP.

    CONFIG is a TOML file with the registry and the connections. SIGTERM and Ctrl-C drain
    and exit with 0; a second one exits at once.
    """
    if demo == (config is not None):
        raise click.UsageError("give either a CONFIG file or --demo")
    hold_standard_streams()
    configure_logging(level=log_level or "info")
    collector.relax()
    # There is something to close from now on.
    raise_again()
    options = [
        Override(path=path, value=value, origin=Origin(source=option))
        for option, path, value in (
            ("--host", ("server", "host"), host),
            ("--port", ("server", "port"), port),
            ("--admin-port", ("admin", "port"), admin_port),
            ("--workers", ("server", "workers"), workers),
            ("--log-level", ("logging", "level"), log_level),
        )
        if value is not None
    ]
    try:
        with explained():
            if config is None:
                trio.run(_serve_demo, _settings(_demo_draft(options)))
            else:
                asked = _settings(draft_file(config, os.environ, options))
                trio.run(_serve, asked, config.parent)
    except SettingsError as error:
        _explain(error.faults)
        sys.exit(1)
    except ExplainedError as error:
        raise click.ClickException(error.text) from None


EXPLAINED = (ConfigurationError, OSError)
"""What a user can mend, so it is told without a traceback."""


class ExplainedError(Exception):
    """Something that a user can mend keeps the service from running."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


@contextlib.contextmanager
def explained() -> Generator[None]:
    """Turn what a user can mend into words.

    Raises:
        ExplainedError: in place of `EXPLAINED`, alone or in groups of nothing else.
        SettingsError: as it was.
    """
    try:
        yield
    except SettingsError:
        raise
    except EXPLAINED as error:
        raise ExplainedError("; ".join(_messages(error))) from None
    except BaseExceptionGroup as group:
        known, rest = group.split(EXPLAINED)
        if known is None or rest is not None:
            raise
        raise ExplainedError("; ".join(_messages(known))) from None


def _messages(error: BaseException) -> list[str]:
    inner: Any = getattr(error, "exceptions", ())
    found = [text for each in inner for text in _messages(each)]
    if found:
        return found
    # The number of an OSError says nothing to a person.
    told = str(getattr(error, "strerror", None) or error)
    file = getattr(error, "filename", None)
    return [told if file is None else f"{told}: {file}"]


def _demo_draft(options: Iterable[Override]) -> Draft:
    return overridden(Draft.of("--demo", Path(), DEMO_VALUES), os.environ, options)


def _settings(draft: Draft) -> Settings:
    """Judge settings before anything starts; warnings are told.

    Raises:
        SettingsError: they have faults.
    """
    # The registry may come later: the catalog waits for it, and tells.
    checked = check_settings(draft, os.environ, offline=True)
    if checked.settings is None:
        raise SettingsError(checked.findings)
    _explain(checked.findings)
    return checked.settings


def _explain(faults: Iterable[Fault]) -> None:
    for each in faults:
        say(each.as_text())


@contextlib.asynccontextmanager
async def _as_given(settings: Settings) -> AsyncGenerator[tuple[Settings, str]]:
    yield settings, ""


async def _serve_demo(asked: Settings) -> None:
    await _serve(asked, Path(), _demo)


async def _serve(
    asked: Settings,
    folder: Path,
    around: Callable[
        [Settings], contextlib.AbstractAsyncContextManager[tuple[Settings, str]]
    ] = _as_given,
) -> None:
    """Serve, by one process or several, until signals end it.

    Args:
        asked: the settings.
        folder: what relative paths are relative to.
        around: lives as long as the service; gives the settings to use and a note.
    """
    if asked.server.workers > 1:
        several = Several(asked, folder, place=_several_place(asked, folder))

        async def run_several() -> None:
            # Within the watch over signals, so that none leaves anything behind.
            async with around(asked) as (settings, note):
                notes = [f"{asked.server.workers} workers", *([note] if note else [])]
                await several.run(settings, functools.partial(_announce, settings, notes))

        async with several.journals.running():
            await until_signalled(run_several, several.drain, several.reload)
        return
    journals = Journals.open(asked, folder)
    server = make_server(asked.server, asked.load, folder)
    life = Lifecycle(server, drain_delay=asked.server.drain_delay)

    async def run() -> None:
        async with around(asked) as (settings, note):
            await run_service(server, settings, folder, journals, life, note)

    async with journals.running():
        await until_signalled(run, life.leave, life.reload)


def _several_place(settings: Settings, folder: Path) -> Place:
    listens = _place(settings, folder)
    del listens["tls"]  # which is the workers' affair
    return Place(unix=listens.pop("unix_socket"), **listens)


def _announce(settings: Settings, notes: list[str], urls: list[str], admin: list[str]) -> None:
    where = f"MCP on {' '.join(urls)}, registry {shown(settings.catalog.registry)}"
    told = [f"admin on {' '.join(admin)}"] if admin else []
    parts = [where, *notes, *told, f"try: {curl_line(urls[0])}"]
    say("; ".join(parts))


@contextlib.asynccontextmanager
async def _demo(asked: Settings) -> AsyncGenerator[tuple[Settings, str], None]:
    """Run the upstream of the demo, and keep its registry for as long."""
    folder = Path(tempfile.mkdtemp(prefix="mcp-trio-demo-"))
    try:
        async with trio.open_nursery() as nursery:
            (upstream,) = await nursery.start(HTTPService(DemoUpstream()).run, "127.0.0.1", 0)
            yield demo_settings(folder, upstream, asked), f"demo upstream {upstream}"
            nursery.cancel_scope.cancel()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
    note: str = "",
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
        note: more to say in the opening line.
        member: this process among several; admin listener and opening line are its parent's.

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
                obeying = member.obeying(server, life.leave, life.reload, actor.look_soon)
                seat = stack.enter_context(obeying).seat(pages)
            else:
                # Up for as long as anything is to be seen: also while the server drains.
                admin = await nursery.start(HTTPService(pages).run, section.host, section.port)
        async with trio.open_nursery() as serving:
            serve_http = functools.partial(
                server.serve_http,
                **_place(settings, folder),
                options=options,
                settings=settings.server.serving_settings(settings.limits),
                ready=ready,
                others=toolsets,
                seat=seat,
                tell=journals.access,
            )
            urls: list[str] = await serving.start(serve_http)
            tell = functools.partial(_announce, settings, [note] if note else [], admin=admin)
            (tell if member is None else member.started)(urls)
        logger.info("drained")
        nursery.cancel_scope.cancel()


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


def _place(settings: Settings, folder: Path) -> dict[str, Any]:
    """Where to listen, and with which certificate."""
    section, tls = settings.server, settings.tls
    socket = section.unix_socket
    return {
        "host": section.host,
        "port": section.port,
        "unix_socket": None if socket is None else folder / socket,
        "unix_mode": int(section.unix_mode, 8),
        "inherited": section.socket_activation,
        "tls": None if tls is None else tls.options(folder),
    }


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


def curl_line(url: str) -> str:
    """A command that lists the tools of an endpoint."""
    revision = REVISIONS[0].date
    body: JSONObject = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/list",
        "params": {"_meta": {PROTOCOL_VERSION: revision, CLIENT_CAPABILITIES: {}}},
    }
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": revision,
        "Mcp-Method": "tools/list",
    }
    fields = " ".join(f"-H '{name}: {value}'" for name, value in headers.items())
    scheme, _, rest = url.partition("+unix://")
    if rest:
        socket, _, path = rest.partition("/")
        url = f"--unix-socket {shlex.quote(unquote(socket))} {scheme}://localhost/{path}"
    return f"curl -s {url} {fields} -d '{json.dumps(body, separators=(',', ':'))}'"


COMMANDS = {"serve": serve}
"""By name."""
