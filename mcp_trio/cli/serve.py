"""`mcp-trio serve`: its options, its settings judged, and what it says once it is up.

What one process does is `service`'s; with several, `several` has their parent.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterable
from pathlib import Path
from urllib.parse import unquote

import click
import trio

from mcp_trio.catalog.registries.opening import shown
from mcp_trio.cli import collector, descriptors
from mcp_trio.cli.catalog import EVERYWHERE, bracketed
from mcp_trio.cli.demo import DEMO_VALUES, DemoUpstream, demo_settings
from mcp_trio.cli.explaining import ExplainedError, explained
from mcp_trio.cli.interrupts import raise_again
from mcp_trio.cli.journals import Journals
from mcp_trio.cli.lifecycle import Lifecycle
from mcp_trio.cli.service import make_server, run_service
from mcp_trio.cli.several import Several
from mcp_trio.cli.streams import hold_standard_streams, say
from mcp_trio.config import (
    Draft,
    Fault,
    Origin,
    Override,
    Settings,
    SettingsError,
    check_settings,
    draft_file,
    overridden,
)
from mcp_trio.http.serving import HTTPService
from mcp_trio.server.server import until_signalled
from mcp_trio.telemetry.logging import configure_logging
from mcp_trio.wire import REVISIONS, JSONObject
from mcp_trio.wire.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION


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
    descriptors.allow_all()
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
        several = Several(asked, folder)

        async def run_several() -> None:
            # Within the watch over signals, so that none leaves anything behind.
            async with around(asked) as (settings, note):
                notes = [f"{asked.server.workers} workers", note]
                await several.run(settings, functools.partial(_announce, settings, notes))

        async with several.journals.running():
            await until_signalled(run_several, several.drain, several.reload)
        return
    journals = Journals.open(asked, folder)
    server = make_server(asked.server, asked.load, folder)
    life = Lifecycle(server, drain_delay=asked.server.drain_delay)

    async def run() -> None:
        async with around(asked) as (settings, note):
            tell = functools.partial(_announce, settings, [note])
            await run_service(server, settings, folder, journals, life, tell)

    async with journals.running():
        await until_signalled(run, life.leave, life.reload)


def _announce(settings: Settings, notes: list[str], urls: list[str], admin: list[str]) -> None:
    where = f"MCP on {' '.join(urls)}, registry {shown(settings.catalog.registry)}"
    told = [f"admin on {' '.join(admin)}"] if admin else []
    parts = [where, *notes, *told, f"try: {curl_line(settings, urls[0])}"]
    say("; ".join(filter(None, parts)))


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


def curl_line(settings: Settings, url: str) -> str:
    """A command that lists the tools, for whoever reads the line: with a token where one is asked.

    Args:
        settings: of the service.
        url: where it listens.
    """
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
    for everywhere, here in EVERYWHERE.items():
        # What stands for all addresses is none that a certificate or `Host` names.
        url = url.replace(f"://{bracketed(everywhere)}:", f"://{bracketed(here)}:")
    if settings.auth is not None:
        url = settings.auth.resource
        fields += ' -H "Authorization: Bearer $TOKEN"'
    scheme, _, rest = url.partition("+unix://")
    if rest:
        socket, _, path = rest.partition("/")
        url = f"--unix-socket {shlex.quote(unquote(socket))} {scheme}://localhost/{path}"
    return f"curl -s {url} {fields} -d '{json.dumps(body, separators=(',', ':'))}'"


COMMANDS = {"serve": serve}
"""By name."""
