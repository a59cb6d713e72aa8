"""The `mcp-trio` command. Each subcommand has a module, which is loaded when it is run."""

from __future__ import annotations

from importlib import import_module

import click

_HOMES = {
    "call": "client",
    "catalog": "catalog",
    "check": "author",
    "diff": "author",
    "import": "author",
    "list": "client",
    "listen": "client",
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
            if (error.name or "mcp_trio").partition(".")[0] == "mcp_trio":
                raise
            raise click.ClickException(
                f"{cmd_name} needs {error.name}: pip install 'mcp-trio[authoring]'"
            ) from error
        found: click.Command = module.COMMANDS[cmd_name]
        return found


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mcp-trio", prog_name="mcp-trio")
def main() -> None:
    """Publish operations as MCP tools, and talk to MCP servers."""
