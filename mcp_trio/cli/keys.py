"""`mcp-trio new-key`: an API key, shown once, and the line that makes it known to a server."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import click

from mcp_trio.auth.resource_server.api_keys import new_key, read_keys
from mcp_trio.errors import ConfigurationError


@click.command("new-key")
@click.argument("id_", metavar="ID")
@click.option("--subject", help="Whose it is.  [default: ID]")
@click.option("--scope", multiple=True, help="What it is good for; may be given several times.")
@click.option(
    "--expires",
    type=click.DateTime(["%Y-%m-%d"]),
    help="The first day, in UTC, on which it is good no more.  [default: never]",
)
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append the line to this file (auth.api_keys_file) in place of printing it.",
)
def new_key_command(
    id_: str,
    subject: str | None,
    scope: tuple[str, ...],
    expires: dt.datetime | None,
    file: Path | None,
) -> None:
    """Make an API key for a machine.

    The key is printed on the first line, and kept nowhere: give it to whoever needs it. The second
    line belongs into the file that `auth.api_keys_file` names; it holds a digest, and no secret.
    """
    until = None if expires is None else expires.date()
    try:
        key, line = new_key(id_, subject or id_, scope, until)
        if file is not None:
            _append(file, id_, line)
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"cannot write {file}: {error.strerror}") from None
    click.echo(key.reveal())
    if file is None:
        click.echo(line)


def _append(file: Path, id_: str, line: str) -> None:
    """Add a line. The file is only its owner's if it is new.

    Raises:
        ConfigurationError: it has such an id already, or is broken.
        OSError: it cannot be read or written.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with open(descriptor, "r+", encoding="utf-8") as stream:  # noqa: PTH123 - of a descriptor
        held = stream.read()
        try:
            known = read_keys(held)
        except ConfigurationError as error:
            raise ConfigurationError(f"{file}: {error}") from error
        if id_ in known:
            raise ConfigurationError(f"{file} has a key {id_} already")
        # One write, so that a server that looks meanwhile sees the line whole or not at all.
        stream.write(f"{line}\n" if held.endswith("\n") or not held else f"\n{line}\n")


COMMANDS = {"new-key": new_key_command}
"""By name."""
