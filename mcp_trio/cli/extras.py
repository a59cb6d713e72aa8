"""What a command says where a library of the extra `authoring` is missing."""

from __future__ import annotations

import click


def missing_extra(what: str, error: ModuleNotFoundError) -> click.ClickException:
    """The error for people.

    Raises:
        ModuleNotFoundError: what is missing is a module of ours.
    """
    if (error.name or "mcp_trio").partition(".")[0] == "mcp_trio":
        raise error
    return click.ClickException(f"{what} needs {error.name}: pip install 'mcp-trio[authoring]'")
