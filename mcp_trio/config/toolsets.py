"""`[toolsets.NAME]`: parts of the catalog at paths of their own."""

from __future__ import annotations

import re
from typing import NewType

import attrs

from mcp_trio.catalog.toolsets import Choice
from mcp_trio.errors import ConfigurationError
from mcp_trio.setting_rules import NOT_NEGATIVE

ToolsetName = NewType("ToolsetName", str)
"""Name of a toolset: a part of a path."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def toolset_name(value: object) -> ToolsetName:
    """Take a name.

    Raises:
        ConfigurationError: it cannot be a part of a path.
    """
    if isinstance(value, str) and _NAME.fullmatch(value):
        return ToolsetName(value)
    raise ConfigurationError(f"the name of a toolset must match ^{_NAME.pattern}$")


@attrs.frozen(kw_only=True)
class ToolsetSection:
    """`[toolsets.NAME]`: some of the tools, at a path of their own, `server.path` and the name."""

    names: list[str] = attrs.field(factory=list[str])
    """Names of tools that belong to it; `*` stands for anything."""
    tags: list[str] = attrs.field(factory=list[str])
    """Tags of operations that belong to it."""
    required_scopes: list[str] = attrs.field(factory=list[str])
    """Scopes that a caller needs for anything at that path."""
    instructions: str | None = None
    """Advice for the model, in place of `server.instructions`."""
    search_above: int | None = attrs.field(default=None, validator=NOT_NEGATIVE)
    """As `catalog.search_above`, which counts if this is none."""

    def __attrs_post_init__(self) -> None:
        if not self.names and not self.tags:
            raise ConfigurationError("has neither names nor tags")

    def choice(self) -> Choice:
        """The rule that says what belongs to it."""
        return Choice(names=tuple(self.names), tags=frozenset(self.tags))
