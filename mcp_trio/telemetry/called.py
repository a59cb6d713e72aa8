"""Which tool a request calls, also where it is called through another one."""

from __future__ import annotations

import attrs

from mcp_trio.catalog.operation import Operation
from mcp_trio.catalog.searching import tool_behind
from mcp_trio.runtime.pipeline import CompiledOperation
from mcp_trio.server.server import MCPServer
from mcp_trio.session.context import Context
from mcp_trio.telemetry.plain_text import cut
from mcp_trio.wire.tools import CallToolParams


@attrs.frozen(kw_only=True)
class Called:
    """What is called."""

    tool: str
    """Its name, as it was asked for, cut: there may be no such tool."""
    through: str | None
    """The tool that it is called through, such as `call_tool` of a list that is searched."""
    operation: Operation | None
    """What is run, if that is a published operation."""

    @classmethod
    def of(cls, context: Context) -> Called | None:
        """Look at a request; None if it calls no tool."""
        params, server = context.params, context.server
        if context.method != "tools/call" or not isinstance(params, CallToolParams):
            return None
        name, through = params.name, None
        entry = server.tools.find(name) if isinstance(server, MCPServer) else None
        behind = None if entry is None else tool_behind(entry, params.arguments or {})
        if behind is not None:
            through = name
            name, entry = behind
        operation = entry.operation if isinstance(entry, CompiledOperation) else None
        return cls(tool=cut(name), through=through, operation=operation)
