"""Serving clients on sockets, one message per line: Unix sockets, TCP, any listener (D5).

Setup: a connection is a session, from the first byte to the last. Framing is that of stdio.
Cancellation: `notifications/cancelled`; a connection that ends cancels what still runs after
`LineOptions.eof_grace`. There is no authentication here: the permissions of a Unix socket
are one, a TCP port on loopback is open to every user of the machine.
"""

from __future__ import annotations

import abc
import logging
import os
from collections.abc import Sequence
from typing import Protocol, cast
from urllib.parse import quote

import attrs
import trio

from mcp_trio.eras.admission import error_message
from mcp_trio.errors import OverloadedError
from mcp_trio.http.crowd import place_of
from mcp_trio.jsonrpc import codec
from mcp_trio.session.dispatch import Service
from mcp_trio.session.limits import SessionLimits
from mcp_trio.session.line_session import LineSession
from mcp_trio.transports.lines import LineTransport
from mcp_trio.transports.socket_file import SocketFile

logger = logging.getLogger("mcp_trio.server")

MAX_REFUSALS = 64
"""Refused connections that are told why at the same time; further ones are just closed."""
REFUSAL_TIMEOUT = 2.0
"""Seconds for a refused client to read why."""


@attrs.frozen(kw_only=True)
class LineOptions:
    """What a server of lines allows. Every bound has a clear refusal."""

    max_sessions: int = 1000
    """Connections at once; one more gets a JSON-RPC error without id and is closed."""
    max_line: int = 4 * 1024 * 1024
    """Bytes of a message; a longer one is skipped and answered with an error."""
    idle_timeout: float = float("inf")
    """Seconds without a message and without a running request, then a session ends."""
    eof_grace: float = 0.5
    """Seconds that running requests may go on once the client has stopped sending. A client
    that closes only its own half still reads their answers."""
    grace_period: float = 10.0
    """Seconds that running requests may go on after a drain."""
    backlog: int = 512
    """Connections the kernel holds until they are accepted."""


class Drainable(Protocol):
    """A service that can be told to go down gently."""

    def drain(self) -> None:
        """Accept nothing more, let running requests finish, end. Idempotent."""
        ...


class LineService:
    """Serves listeners. One `run` per object."""

    def __init__(self, service: Service, options: LineOptions, limits: SessionLimits) -> None:
        """Prepare the service; nothing is opened.

        Args:
            service: the server.
            options: the limits of this service.
            limits: the limits of each session.
        """
        self._service = service
        self._options = options
        self._limits = attrs.evolve(limits, drain_on_eof=options.eof_grace)
        self._sessions: set[LineSession] = set()
        self._refusing = 0
        self._draining = False
        self._accepting = trio.CancelScope()
        self._serving = trio.CancelScope()
        self.refused = 0
        """Connections turned away so far."""

    def __len__(self) -> int:
        return len(self._sessions)

    async def run(
        self,
        listeners: Sequence[trio.abc.Listener[trio.abc.Stream]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until drained or cancelled; closes the listeners in the end."""
        with self._serving:
            async with trio.open_nursery() as connections:
                task_status.started()
                with self._accepting:
                    await trio.serve_listeners(
                        self._connection, list(listeners), handler_nursery=connections
                    )

    def drain(self) -> None:
        """Accept nothing more; each session ends when nothing runs in it. Idempotent.

        After `LineOptions.grace_period` what is left is cancelled.
        """
        if self._draining:
            return
        self._draining = True
        self._serving.deadline = trio.current_time() + self._options.grace_period
        self._accepting.cancel()
        for session in self._sessions:
            session.drain()

    async def _connection(self, stream: trio.abc.Stream) -> None:
        try:
            if len(self._sessions) >= self._options.max_sessions:
                await self._refuse(stream)
            else:
                await self._session(stream)
        except* Exception as fault:
            logger.exception("a session failed", exc_info=fault)
        finally:
            await trio.aclose_forcefully(stream)

    async def _session(self, stream: trio.abc.Stream) -> None:
        line = LineTransport(
            stream, stream, max_line=self._options.max_line, only_our_protocol=True
        )
        session = LineSession(
            self._service,
            line,
            limits=self._limits,
            idle_timeout=self._options.idle_timeout,
            address=_peer(stream),
        )
        self._sessions.add(session)
        try:
            if self._draining:
                session.drain()
            await session.run()
        finally:
            self._sessions.discard(session)

    async def _refuse(self, stream: trio.abc.Stream) -> None:
        """Say why, and wait a moment for the client to read it: closing at once may lose it."""
        self.refused += 1
        if self._refusing >= MAX_REFUSALS:
            return
        self._refusing += 1
        fault = error_message(None, OverloadedError("Too many sessions"))
        try:
            with trio.move_on_after(REFUSAL_TIMEOUT):
                await stream.send_all(codec.encode(fault) + b"\n")
                if isinstance(stream, trio.abc.HalfCloseableStream):
                    await stream.send_eof()
                    while await stream.receive_some():
                        pass
        except (trio.BrokenResourceError, OSError):
            pass
        finally:
            self._refusing -= 1


class LineServing(abc.ABC):
    """The part of `MCPServer` that serves clients on sockets."""

    _services: list[Drainable]

    @abc.abstractmethod
    def _limits(self, *, drain_on_eof: float = 0.0) -> SessionLimits:
        """What a session of this server may use."""

    async def serve_lines(
        self,
        listeners: Sequence[trio.abc.Listener[trio.abc.Stream]],
        *,
        options: LineOptions | None = None,
        task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve what listeners accept, one message per line, one session per connection.

        Takes the listeners over. Cancelling ends every session at once; `drain` lets
        requests finish first, then this returns.

        Args:
            listeners: of sockets, of TLS over sockets, or any others.
            options: bounds.
            task_status: reports the URLs of the listeners that have a socket.
        """
        # MCPServer is the only subclass, and a Service.
        server = cast("Service", self)
        service = LineService(server, options or LineOptions(), self._limits())
        self._services.append(service)
        if server.notices.draining:
            service.drain()  # told to go down before it was up
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(service.run, listeners)
                task_status.started([url for each in listeners if (url := _url(each))])
        finally:
            self._services.remove(service)

    async def serve_tcp(
        self,
        host: str,
        port: int,
        *,
        options: LineOptions | None = None,
        task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve clients on a TCP port; see `serve_lines`.

        Whoever reaches the port is served: bind loopback, or listen behind something that
        asks who it is. A connection whose first line is no message is closed, which keeps
        web pages out.

        Args:
            host: address to bind.
            port: port to bind, 0 picks a free one.
            options: bounds.
            task_status: reports the URLs, such as `tcp://127.0.0.1:4000`.

        Raises:
            OSError: the address cannot be bound.
        """
        options = options or LineOptions()
        listeners = await trio.open_tcp_listeners(port, host=host, backlog=options.backlog)
        for listener in listeners:
            # Accepted sockets inherit it: a peer that vanished without a word is found in time.
            listener.socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_KEEPALIVE, 1)
        await self.serve_lines(listeners, options=options, task_status=task_status)

    async def serve_unix(
        self,
        path: str | os.PathLike[str],
        *,
        mode: int = 0o600,
        options: LineOptions | None = None,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve clients on a Unix socket; see `serve_lines`.

        A socket file that nobody serves any more is replaced. In the end the file is
        removed, unless somebody else has replaced it.

        Args:
            path: of the socket file; its folder has to exist.
            mode: permissions of the file. Nobody can connect before they are set.
            options: bounds.
            task_status: reports the URL, such as `unix:///run/tools.sock`.

        Raises:
            OSError: somebody serves that path, the file is no socket, or the path cannot
                be bound.
        """
        options = options or LineOptions()
        with SocketFile(path, mode, options.backlog) as file:
            async with trio.open_nursery() as nursery:
                listener = trio.SocketListener(trio.socket.from_stdlib_socket(file.socket))
                await nursery.start(self._serve_one, listener, options)
                task_status.started(f"unix://{quote(file.path)}")

    async def _serve_one(
        self,
        listener: trio.SocketListener,
        options: LineOptions,
        *,
        task_status: trio.TaskStatus[list[str]],
    ) -> None:
        await self.serve_lines([listener], options=options, task_status=task_status)


def _peer(stream: object) -> str | None:
    """Where a client comes from, as it counts against limits; None if that is not known."""
    if isinstance(stream, trio.SSLStream):
        stream = cast("trio.SSLStream[trio.abc.Stream]", stream).transport_stream
    if not isinstance(stream, trio.SocketStream) or stream.socket.family == trio.socket.AF_UNIX:
        return None
    try:
        return place_of(stream.socket.getpeername()[:2])
    except OSError:
        return None  # it has left already


def _url(listener: object) -> str | None:
    """The URL of a listener that has a socket."""
    if isinstance(listener, trio.SSLListener):
        listener = cast("trio.SSLListener[trio.abc.Stream]", listener).transport_listener
    if not isinstance(listener, trio.SocketListener):
        return None
    name = listener.socket.getsockname()
    if listener.socket.family == trio.socket.AF_UNIX:
        return f"unix://{quote(name)}"
    host, port = name[:2]
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
