"""What the commands that judge have in common: their options, and how they print a result.

What is asked for goes to standard output, as text or, with `--json`, as one JSON value.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mcp_trio.cli.showing import BROKEN_PIPE, UnreadError, put
from mcp_trio.cli.showing import as_json as json_line
from mcp_trio.telemetry.plain_text import printable

TROUBLE = 2
"""The exit status where a file, a source or a registry cannot be used."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
secret_option = click.option(
    "--secret-env",
    metavar="NAME",
    help="Environment variable with the token or password of a registry on a server.",
)
config_option = click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Settings of the service: its connections are the only ones.",
)


def told(value: object, text: str, *, as_json: bool) -> None:
    """Print a result in the form that was asked for; exits where nobody reads it."""
    try:
        put(json_line(value) if as_json else text)
    except UnreadError:
        sys.exit(BROKEN_PIPE)
    except OSError as error:
        say(f"mcp-trio: cannot print: {error.strerror}")
        sys.exit(TROUBLE)


def say(text: str) -> None:
    """Say something on standard error; what descriptions hold steers no terminal."""
    click.echo(printable(text), err=True)


def count(number: int, thing: str) -> str:
    """A number of things, in words."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
