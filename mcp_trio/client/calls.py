"""The methods of the protocol as methods of a client, typed.

How a call travels is written in `client`; what is sent and read is written here.
"""

from __future__ import annotations

import abc
import logging
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import TypeVar, cast

import attrs

from mcp_trio.errors import HEADER_MISMATCH, MCPError, ProtocolError, RemoteError
from mcp_trio.framing.param_headers import ParamHeader, ParamHeaderError, param_headers
from mcp_trio.session.call import ProgressCallback
from mcp_trio.wire import CallToolResult, JSONObject, ListToolsResult, Revision, Tool
from mcp_trio.wire.converter import from_wire

logger = logging.getLogger("mcp_trio.client")
T = TypeVar("T")


class Calls(abc.ABC):
    """The part of `MCPClient` that knows the methods."""

    def __init__(self) -> None:
        self._annotations: dict[str, tuple[ParamHeader, ...]] = {}

    @property
    @abc.abstractmethod
    def revision(self) -> Revision:
        """The revision in use."""

    @abc.abstractmethod
    async def call(
        self,
        method: str,
        params: JSONObject | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the server has to be told
        on_progress: ProgressCallback | None = None,
    ) -> JSONObject:
        """Call any method and get its result as it came."""

    def _mirrored(self, tool: str) -> tuple[ParamHeader, ...]:
        """The arguments of a tool that are headers, too; none for one that was not listed."""
        return self._annotations.get(tool, ())

    def _read(self, answer: JSONObject, cls: type[T]) -> T:
        kind = answer.pop("resultType", "complete")
        if kind != "complete":
            raise ProtocolError("the server sent a result of a type that was not asked for")
        return from_wire(answer, cls, self.revision, where="result")

    async def ping(self) -> None:
        """Ask for a sign of life; in the stateless era that is `server/discover`."""
        await self.call("server/discover" if self.revision.stateless else "ping")

    async def list_tools(self, cursor: str | None = None) -> ListToolsResult:
        """Get one page of tools.

        A tool whose definition breaks the rules is left out, with a warning, and so costs
        nobody the others.

        Raises:
            RemoteError: a cursor the server does not know.
        """
        answer = await self.call("tools/list", None if cursor is None else {"cursor": cursor})
        listed = answer.get("tools")
        if isinstance(listed, list):
            tools = [tool for item in cast("list[object]", listed) if (tool := self._tool(item))]
            result = self._read({**answer, "tools": []}, ListToolsResult)
            return attrs.evolve(result, tools=tools)
        return self._read(answer, ListToolsResult)

    def _tool(self, item: object) -> Tool | None:
        try:
            tool = from_wire(cast("JSONObject", item), Tool, self.revision, where="tool")
            self._annotations[tool.name] = param_headers(tool.input_schema)
        except (MCPError, ParamHeaderError) as error:
            name = cast("JSONObject", item).get("name") if isinstance(item, dict) else None
            logger.warning("tool %.100r is left out: %s", name, error)
            return None
        return tool

    async def tools(self) -> AsyncIterator[Tool]:
        """Walk over all tools, page by page.

        Raises:
            ProtocolError: the server gives the same cursor twice.
        """
        cursor: str | None = None
        seen: set[str] = set()
        while True:
            page = await self.list_tools(cursor)
            for tool in cast("list[Tool]", page.tools):
                yield tool
            cursor = page.next_cursor
            if cursor is None:
                return
            if cursor in seen:
                raise ProtocolError("the server's pages go round in circles")
            seen.add(cursor)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the server has to be told
        on_progress: ProgressCallback | None = None,
    ) -> CallToolResult:
        """Call a tool.

        Leaving early cancels the call on the server, whatever the transport. A call that the
        server refuses for its headers never ran: the tools are listed, in which it says which
        arguments are mirrored, and the call is sent once more (N17).

        Args:
            name: of the tool.
            arguments: by name.
            timeout: seconds to wait, each time.
            on_progress: called with progress, total and message.

        Returns:
            What the tool answered; `is_error` when it failed.

        Raises:
            RemoteError: no such tool, or a fault of the protocol.
            RequestTimeoutError: no answer in time.
            TransportError: the line broke first.
        """
        params: JSONObject = {"name": name, "arguments": dict(arguments or {})}
        send = partial(self.call, "tools/call", params, timeout=timeout, on_progress=on_progress)
        try:
            answer = await send()
        except RemoteError as error:
            if error.rpc_code != HEADER_MISMATCH:
                raise
            async for _ in self.tools():
                pass  # each page is taken note of
            answer = await send()
        return self._read(answer, CallToolResult)
