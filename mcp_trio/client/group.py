"""`ClientGroup`: several servers as one, each under a name that the caller gives it.

Every client lives in a task of its own, so one that cannot be reached, or breaks, takes nobody
down. Names are the caller's and never what a server says of itself (T2).
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Self, TypeVar

import attrs
import trio

from mcp_trio.client.answers import ClientCallbacks
from mcp_trio.client.block import leave
from mcp_trio.client.client import MCPClient
from mcp_trio.client.options import ClientOptions
from mcp_trio.client.targets import Target
from mcp_trio.errors import (
    AlreadyConnectedError,
    ConfigurationError,
    MCPError,
    NotFoundError,
    TransportError,
    sole_cause,
)
from mcp_trio.session.call import ProgressCallback, TimeLimit
from mcp_trio.wire import CallToolResult, Tool
from mcp_trio.wire.prompts import GetPromptResult, Prompt

logger = logging.getLogger("mcp_trio.client")
Named = TypeVar("Named", Tool, Prompt)
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


@attrs.define(eq=False)
class _Member:
    """One server of the group."""

    client: MCPClient
    release: trio.Event = attrs.field(factory=trio.Event)
    """Set to let it go."""
    over: trio.Event = attrs.field(factory=trio.Event)
    """It is closed, or never opened."""


class ClientGroup:
    """Connections to several MCP servers, used as one.

    Use it as `async with ClientGroup({"files": target, ...}) as group`. Entering connects to all
    of them at the same time and waits until each is connected or has failed; who failed stands in
    `failures`. Leaving closes them one after the other, the last one first. Cancelling the block
    cancels every call and every connection.
    """

    def __init__(
        self,
        servers: Mapping[str, Target | MCPClient],
        *,
        separator: str = "__",
        callbacks: ClientCallbacks | None = None,
        options: ClientOptions | None = None,
    ) -> None:
        """Make a group; nothing is opened yet.

        Args:
            servers: by the name that goes before the names of what they offer: targets, or
                clients that are not connected yet, with callbacks and options of their own.
            separator: between the name of a server and that of a tool or prompt.
            callbacks: of the clients that are made here.
            options: likewise.

        Raises:
            ConfigurationError: a name that no tool may begin with, two names that cannot be
                told apart, or a target that is none.
        """
        for name in servers:
            if not _NAME.fullmatch(name):
                raise ConfigurationError(f"a server cannot be called {name[:64]!r}")
        prefixes = {name: name + separator for name in servers}
        for prefix in prefixes.values():
            if sum(prefix.startswith(other) for other in prefixes.values()) > 1:
                raise ConfigurationError(f"{prefix!r} begins like the names of another server")
        if separator and not _NAME.fullmatch(separator):
            raise ConfigurationError(f"names cannot be joined by {separator!r}")
        self._prefixes = prefixes
        self._members = {
            name: _Member(
                target
                if isinstance(target, MCPClient)
                else MCPClient(target, callbacks=callbacks, options=options)
            )
            for name, target in servers.items()
        }
        self._clients: dict[str, MCPClient] = {}
        self._failures: dict[str, Exception] = {}
        self._exits = contextlib.AsyncExitStack()
        self._entered = False

    @property
    def clients(self) -> Mapping[str, MCPClient]:
        """Those that are connected, by name, for whatever the group does not do itself."""
        return {name: self._clients[name] for name in self._members if name in self._clients}

    @property
    def failures(self) -> Mapping[str, Exception]:
        """Why the others are not connected, or could not be asked at last, by name."""
        return MappingProxyType(self._failures)

    async def __aenter__(self) -> Self:
        """Connect to all servers.

        Raises:
            AlreadyConnectedError: the object has been entered before.
        """
        if self._entered:
            raise AlreadyConnectedError("this group has been entered before; make another one")
        self._entered = True
        await self._exits.__aenter__()
        nursery = await self._exits.enter_async_context(trio.open_nursery())
        self._exits.push_async_callback(self._let_go)
        try:
            async with trio.open_nursery() as connecting:
                for name, member in self._members.items():
                    hold = partial(self._hold, name, member)
                    connecting.start_soon(nursery.start, hold)
        except BaseException as error:
            await leave(self._exits, type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        """Close the connections, the last one first; each is bounded in time."""
        return await leave(self._exits, kind, error, traceback)

    async def _hold(
        self,
        name: str,
        member: _Member,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Keep one server connected until it is let go."""
        connected = False
        try:
            async with member.client:
                self._clients[name] = member.client
                connected = True
                task_status.started()
                await member.release.wait()
        except Exception as error:  # noqa: BLE001 - a server may fail in any way: it concerns nobody else
            if not member.release.is_set():
                self._failed(name, error)
        finally:
            self._clients.pop(name, None)
            member.over.set()
        if not connected:
            task_status.started()

    def _failed(self, name: str, error: Exception) -> None:
        cause = sole_cause(error)
        self._failures[name] = cause if isinstance(cause, Exception) else error
        logger.warning("server %s has failed: %s", name, cause)

    async def _let_go(self) -> None:
        for member in reversed(self._members.values()):
            member.release.set()
            await member.over.wait()

    # -- what they offer -----------------------------------------------------------

    async def tools(
        self,
        *,
        timeout: float | TimeLimit | None = None,  # noqa: ASYNC109 - the servers have to be told
        cache: bool = True,
    ) -> AsyncGenerator[Tool, None]:
        """Walk over the tools of all servers, under their long names, server by server.

        All servers are asked at the same time, before the first tool is given. One that does not
        answer is left out with a warning, and stands in `failures`.

        Args:
            timeout: for each page of each server.
            cache: False asks the servers even for what is kept.
        """
        for tool in await self._gather(lambda c: c.tools(timeout=timeout, cache=cache)):
            yield tool

    async def prompts(
        self,
        *,
        timeout: float | TimeLimit | None = None,  # noqa: ASYNC109 - the servers have to be told
        cache: bool = True,
    ) -> AsyncGenerator[Prompt, None]:
        """Walk over the prompts of all servers; see `tools`."""
        for prompt in await self._gather(lambda c: c.prompts(timeout=timeout, cache=cache)):
            yield prompt

    async def _gather(
        self, listing: Callable[[MCPClient], AsyncGenerator[Named, None]]
    ) -> list[Named]:
        found: dict[str, list[Named]] = {}

        async def ask(name: str, client: MCPClient) -> None:
            prefix = self._prefixes[name]
            try:
                found[name] = [
                    attrs.evolve(item, name=prefix + item.name) async for item in listing(client)
                ]
            except MCPError as error:
                self._failed(name, error)
            else:
                self._failures.pop(name, None)

        async with trio.open_nursery() as nursery:
            for name, client in self._clients.items():
                nursery.start_soon(ask, name, client)
        return [item for name in self._members for item in found.get(name, ())]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        timeout: float | TimeLimit | None = None,  # noqa: ASYNC109 - the server has to be told
        on_progress: ProgressCallback | None = None,
    ) -> CallToolResult:
        """Call a tool by its long name; see `MCPClient.call_tool`.

        Raises:
            NotFoundError: no server of this group has such names.
            TransportError: the server is not connected; what it failed of is the cause.
        """
        server, client, own = self._route(name)
        with self._asking(server):
            return await client.call_tool(own, arguments, timeout=timeout, on_progress=on_progress)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | TimeLimit | None = None,  # noqa: ASYNC109 - the server has to be told
    ) -> GetPromptResult:
        """Fill in a prompt by its long name; see `MCPClient.get_prompt` and `call_tool`."""
        server, client, own = self._route(name)
        with self._asking(server):
            return await client.get_prompt(own, arguments, timeout=timeout)

    @contextlib.contextmanager
    def _asking(self, name: str) -> Generator[None]:
        """Take down whether a server could be asked; its answer may be an error all the same."""
        try:
            yield
        except TransportError as error:
            self._failed(name, error)
            raise
        else:
            self._failures.pop(name, None)

    def _route(self, long: str) -> tuple[str, MCPClient, str]:
        """The server that a name belongs to, its client, and the name as it knows it."""
        for name, prefix in self._prefixes.items():
            if long.startswith(prefix):
                client = self._clients.get(name)
                if client is None:
                    cause = self._failures.get(name)
                    raise TransportError(f"server {name} is not connected") from cause
                return name, client, long.removeprefix(prefix)
        raise NotFoundError(f"no server of this group has names like {long[:64]!r}")
