"""The `mcp-trio` command. Each subcommand has a module; this one only gathers them."""

from __future__ import annotations

import click

from mcp_trio.cli.catalog import catalog
from mcp_trio.cli.client import COMMANDS
from mcp_trio.cli.serve import serve


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mcp-trio", prog_name="mcp-trio")
def main() -> None:
    """Publish operations as MCP tools, and talk to MCP servers."""


main.add_command(serve)
main.add_command(catalog)
for _command in COMMANDS:
    main.add_command(_command)
