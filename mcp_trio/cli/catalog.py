"""`mcp-trio catalog`: what an operator asks a running service about its catalog."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

import click
import httpx2

from mcp_trio.cli.showing import as_json, one_line
from mcp_trio.config import load_settings
from mcp_trio.errors import ConfigurationError
from mcp_trio.wire import JSONObject

TIMEOUT = 10.0
"""Seconds in which the listener has to answer."""
PATH = "/catalog"
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - an address that is read here
"""Where to find what is bound to every address."""


@click.group()
def catalog() -> None:
    """Ask a running service about its catalog."""


@catalog.command()
@click.argument("where", metavar="URL|CONFIG")
@click.option("--json", is_flag=True, help="Print JSON for scripts.")
def status(where: str, *, json: bool) -> None:
    """Say how fresh a catalog is, and what it does not serve and why.

    Give the URL of the admin listener, or the settings file that names it. Exits with 1 unless
    the catalog is ready and the last look at the registry went well.
    """
    try:
        told = fetch(admin_url(where))
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from None
    click.echo(as_json(told) if json else describe(told))
    sys.exit(0 if told["state"] == "fresh" else 1)


def admin_url(where: str) -> str:
    """The URL of the status, from that of the listener or from the settings.

    Raises:
        ConfigurationError: the settings cannot be read, or name no admin listener.
    """
    if where.startswith(("http://", "https://")):
        return where.rstrip("/").removesuffix(PATH) + PATH
    admin = load_settings(Path(where)).admin
    if admin is None or admin.port == 0:
        raise ConfigurationError(f"{where} names no admin listener: it has no [admin] with a port")
    host = EVERYWHERE.get(admin.host, admin.host)
    return f"http://{bracketed(host)}:{admin.port}{PATH}"


def bracketed(host: str) -> str:
    """A host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def fetch(url: str) -> JSONObject:
    """Get the status.

    Raises:
        ConfigurationError: nobody answers there, or not what an admin listener answers.
    """
    try:
        answer = httpx2.get(url, timeout=TIMEOUT, trust_env=False)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise ConfigurationError(f"cannot reach {url}: {error}") from error
    try:
        told = cast("object", answer.json()) if answer.status_code == 200 else None
    except ValueError:
        told = None
    if not isinstance(told, dict) or "state" not in told:
        raise ConfigurationError(
            f"{url} is no admin listener of a catalog (status {answer.status_code})"
        )
    return cast("JSONObject", told)


def describe(told: JSONObject) -> str:
    """The status for people."""
    counts = cast("dict[str, int]", told["counts"])
    doubt = ", an unlikely reading waits to be read again"
    seen, due = _ago(told["age_seconds"]), _within(told["next_refresh_seconds"])
    revision, listing = _short(told["revision"]), _short(told["listing_revision"])
    lines = [
        f"state       {told['state']}{doubt if told['awaiting_confirmation'] else ''}",
        f"served      {counts['served']} of {counts['published']} published operations",
        f"revision    {revision}, listing {listing}, {told['swaps']} swaps",
        f"seen        {seen}, next look {due}",
    ]
    if told["last_error"] is not None:
        lines.append(f"failures    {told['consecutive_failures']}: {told['last_error']}")
    lines.append(f"quarantine  {counts['quarantined'] or 'empty'}")
    records = cast("list[dict[str, str | None]]", told["quarantine"])
    lines += [f"  {_record(record)}" for record in records]
    left = counts["quarantined"] - len(records)
    if left:
        lines.append(f"  and {left} more")
    # Reasons repeat what stands in the registry.
    return "\n".join(map(one_line, lines))


def _short(revision: object) -> str:
    return str(revision)[:12]


def _ago(seconds: object) -> str:
    return "never" if seconds is None else f"{seconds:.0f} s ago"


def _within(seconds: object) -> str:
    return "never" if seconds is None else f"in {seconds:.0f} s"


def _record(record: dict[str, str | None]) -> str:
    serving = record["serving"]
    kept = "not served" if serving is None else f"serving {_short(serving)}"
    return f"{record['operation_id']} ({record['fault']}, {kept}): {record['reason']}"


COMMANDS = {"catalog": catalog}
"""By name."""
