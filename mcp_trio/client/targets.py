"""From a target to a transport: which kind is which line, and the opening of it.

The only place of the client that opens connections. `unix` and `tcp` carry one message per
line (D5), `ws` and `wss` one per text frame, `http` and `https` are Streamable HTTP, or HTTP+SSE
where that is asked for; a list is a program. What a line needs is imported when a target has
it: a program pays for the lines that it uses.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable
from urllib.parse import SplitResult, unquote, urlsplit

import trio
import trio.lowlevel

from mcp_trio.abc import Transport
from mcp_trio.client.options import ClientOptions, Identified
from mcp_trio.errors import ConfigurationError, TransportError
from mcp_trio.session.session import Dispatcher
from mcp_trio.transports.lines import LineTransport
from mcp_trio.transports.memory import MemoryTransport
from mcp_trio.transports.stdio_client import Command, program_line

if TYPE_CHECKING:
    import httpx2

CONNECT_TIMEOUT = 10.0
"""Seconds to reach a server."""
KEEP_ALIVE = 3.0
"""Seconds that a connection is kept for the next message. Node, uvicorn and Hypercorn close one
after five: with as much here, a message could meet the end of its connection, and nobody may
say whether it was read."""
SESSIONS = 5
"""Sessions in a row, each shorter than a minute, that an HTTP server may forget."""
_HTTP = frozenset({"http", "https"})
_HOSTED = {"http": 80, "https": 443, "ws": 80, "wss": 443, "tcp": None}
"""Schemes with a host, and the port that goes without saying."""


def check_url(url: str) -> SplitResult:
    """Read a URL.

    Raises:
        ConfigurationError: of a scheme we do not know, or without what the scheme needs.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"not a URL: {url[:100]!r}") from error
    if parts.scheme == "unix":
        if not parts.path.startswith("/") or parts.netloc:
            raise ConfigurationError(f"not of the form unix:///path: {url[:100]!r}")
    elif parts.scheme not in _HOSTED:
        known = ", ".join([*_HOSTED, "unix"])
        raise ConfigurationError(
            f"not a URL of a scheme we know ({known}), and a command is a list: {url[:100]!r}"
        )
    elif not parts.hostname or (port is None and _HOSTED[parts.scheme] is None):
        raise ConfigurationError(f"the URL lacks a host or a port: {url[:100]!r}")
    return parts


@runtime_checkable
class Server(Protocol):
    """A server of this process, such as an `MCPServer`."""

    async def serve(
        self,
        transport: Transport,
        *,
        task_status: trio.TaskStatus[Dispatcher] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve one client until it closes the line."""
        ...


Target: TypeAlias = "str | Sequence[str | os.PathLike[str]] | Command | Server | Transport"


class Lines:
    """The way to one server: opens the lines to it, one at a time."""

    def __init__(self, target: Target, options: ClientOptions) -> None:
        """Make one; nothing is opened yet.

        Args:
            target: what the client was made for.
            options: of the client.

        Raises:
            ConfigurationError: a target of a kind we do not know, or one that takes no tokens.
        """
        if isinstance(target, str):
            check_url(target)
        elif isinstance(target, Sequence):
            target = Command(target)
        elif not _has_lines(target):
            raise ConfigurationError(f"not a URL, a command, a server or a transport: {target!r}")
        self._target = target
        self._auth = auth = options.auth
        self._http = options.http or _http_client
        self._max_message = options.max_message
        self._bound: object = None
        self._used = False
        if auth is not None and not self.older:
            raise ConfigurationError("`auth` needs a target that is an http or https URL")

    @property
    def key(self) -> str | None:
        """What the server is remembered by; None for one that lives as long as its line."""
        match self._target:
            case str() as url:
                return urlsplit(url)._replace(query="", fragment="").geturl()
            case Command() as command:
                return repr((command.arguments, command.cwd))
            case _:
                return None

    @property
    def again(self) -> bool:
        """Whether another line can be opened: a transport of the caller's is used up."""
        return not self._used or not isinstance(self._target, Transport)

    @property
    def older(self) -> bool:
        """Whether there is the older transport of HTTP beside the newer one."""
        return isinstance(self._target, str) and urlsplit(self._target).scheme in _HTTP

    @property
    def restarts(self) -> int:
        """Times in a row that a line is opened again: to a program, or for another session."""
        if isinstance(self._target, Command):
            return self._target.restarts
        return SESSIONS if self.older else 0

    @property
    def identity(self) -> object:
        """Stands for who asks at present; equal to no other where that cannot be known."""
        if self._bound is None:
            return None
        return self._bound.identity if isinstance(self._bound, Identified) else object()

    async def settle(self) -> object:
        """Find out as whom the next request would be sent; the `identity` afterwards."""
        if isinstance(self._bound, Identified):
            return await self._bound.settle()
        await trio.lowlevel.checkpoint()
        return self.identity

    @contextlib.asynccontextmanager
    async def open(self, *, older: bool = False) -> AsyncGenerator[Transport, None]:
        """Open a line; afterwards everything that it needed is closed.

        Args:
            older: HTTP+SSE instead of Streamable HTTP.

        Raises:
            TransportError: the server cannot be reached in time, refuses a WebSocket, or is
                a program that cannot be started.
        """
        self._used = True
        async with contextlib.AsyncExitStack() as exits:
            match self._target:
                case str() as url:
                    if self.older:
                        auth = self._bound = None if self._auth is None else self._auth.bind(url)
                        yield await self._open_http(url, exits, auth, older=older)
                    else:
                        yield await self._open_url(url, exits)
                case Command() as command:
                    yield await exits.enter_async_context(program_line(command))
                case Transport() as transport:
                    yield transport
                case server:
                    yield await exits.enter_async_context(_served(server))

    async def _open_url(self, url: str, exits: contextlib.AsyncExitStack) -> Transport:
        parts = urlsplit(url)
        stream = await _connect(parts, exits)
        if parts.scheme not in {"ws", "wss"}:
            return LineTransport(stream, stream, max_line=self._max_message)
        from mcp_trio.transports.websocket import WebSocketTransport  # noqa: PLC0415 - on demand

        path = parts.path or "/"
        socket = WebSocketTransport(
            stream,
            parts.netloc.rpartition("@")[2],
            f"{path}?{parts.query}" if parts.query else path,
            max_message=self._max_message,
        )
        await socket.open()
        return socket

    async def _open_http(
        self, url: str, exits: contextlib.AsyncExitStack, auth: httpx2.Auth | None, *, older: bool
    ) -> Transport:
        from mcp_trio.transports.http_endpoint import NOTICE_TIMEOUT  # noqa: PLC0415 - on demand

        client = await exits.enter_async_context(self._http(auth))
        limit = self._max_message
        patience = NOTICE_TIMEOUT + (0.0 if self._auth is None else self._auth.patience)
        if older:
            from mcp_trio.transports.http_sse import HTTPSSETransport  # noqa: PLC0415 - on demand

            return HTTPSSETransport(url, client, max_event=limit, notice_timeout=patience)
        from mcp_trio.transports.streamable_http import StreamableHTTPTransport  # noqa: PLC0415

        return StreamableHTTPTransport(url, client, max_event=limit, notice_timeout=patience)


def _has_lines(target: object) -> bool:
    return isinstance(target, Command | Server | Transport)


@contextlib.asynccontextmanager
async def _served(server: Server) -> AsyncGenerator[Transport, None]:
    ours, theirs = MemoryTransport.pair()
    async with trio.open_nursery() as nursery:
        await nursery.start(_serve, server, theirs)
        yield ours
        nursery.cancel_scope.cancel()


async def _serve(
    server: Server,
    transport: Transport,
    *,
    task_status: trio.TaskStatus[Dispatcher] = trio.TASK_STATUS_IGNORED,
) -> None:
    await server.serve(transport, task_status=task_status)


def _http_client(auth: httpx2.Auth | None) -> httpx2.AsyncClient:
    import httpx2  # noqa: PLC0415 - on demand

    return httpx2.AsyncClient(
        auth=auth,
        timeout=httpx2.Timeout(None, connect=CONNECT_TIMEOUT),
        limits=httpx2.Limits(
            max_connections=None, max_keepalive_connections=20, keepalive_expiry=KEEP_ALIVE
        ),
        follow_redirects=False,
        trust_env=False,  # no proxies and no passwords of others, but the authorities they trust
        verify=httpx2.create_ssl_context(),
    )


async def _connect(parts: SplitResult, exits: contextlib.AsyncExitStack) -> trio.abc.Stream:
    host, port = parts.hostname or "", parts.port or _HOSTED.get(parts.scheme) or 0
    try:
        with trio.fail_after(CONNECT_TIMEOUT):
            stream = (
                await trio.open_unix_socket(unquote(parts.path))
                if parts.scheme == "unix"
                else await trio.open_tcp_stream(host, port)
            )
            # Whoever takes it over closes it too; this is for one that is given up half way.
            exits.push_async_callback(trio.aclose_forcefully, stream)
            if parts.scheme != "wss":
                return stream
            import ssl  # noqa: PLC0415 - on demand

            secure = trio.SSLStream(
                stream, ssl.create_default_context(), server_hostname=host, https_compatible=True
            )
            await secure.do_handshake()
            return secure
    except (OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
        where = parts.path if parts.scheme == "unix" else parts.netloc
        from mcp_trio.transports.handshakes import handshake_reason  # noqa: PLC0415 - on demand

        why = handshake_reason(error) or error
        raise TransportError(f"cannot connect to {where}: {why}".rstrip(": ")) from error
