"""The `mcp-trio` command. Each subcommand has a module, which is loaded when it is run."""

from __future__ import annotations

from importlib import import_module
from typing import NoReturn

import click

from mcp_trio.cli.extras import missing_extra

_HOMES = {
    "call": "client",
    "catalog": "catalog",
    "check": "check",
    "diff": "author",
    "import": "author",
    "list": "client",
    "listen": "client",
    "new-key": "keys",
    "probe": "client",
    "prompt": "client",
    "publish": "author",
    "read": "client",
    "serve": "serve",
}
"""The module of each subcommand."""


class _Commands(click.Group):
    """Loads a subcommand when it is asked for: a client does without the server."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the contract
        return list(_HOMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the contract
        if cmd_name not in _HOMES:
            return None
        try:
            module = import_module(f"mcp_trio.cli.{_HOMES[cmd_name]}")
        except ModuleNotFoundError as error:
            return _missing(cmd_name, missing_extra(cmd_name, error))
        found: click.Command = module.COMMANDS[cmd_name]
        return found


def _missing(name: str, why: click.ClickException) -> click.Command:
    """A command that says what it lacks, and is listed with the others."""

    def tell() -> NoReturn:
        raise why

    settings: dict[str, object] = {
        "ignore_unknown_options": True,
        "allow_extra_args": True,
        "help_option_names": list[str](),
    }
    return click.Command(name, callback=tell, help=why.message, context_settings=settings)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mcp-trio", prog_name="mcp-trio")
def main() -> None:
    """Publish operations as MCP tools, and talk to MCP servers."""
