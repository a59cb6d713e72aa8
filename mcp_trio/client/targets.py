"""From a URL to a transport: which scheme is which line, and the opening of it.

The only place of the client that opens connections. `unix` and `tcp` carry one message per
line (D5), `ws` and `wss` one per text frame, `http` and `https` are Streamable HTTP.
"""

from __future__ import annotations

import contextlib
import ssl
from urllib.parse import SplitResult, unquote, urlsplit

import httpx2
import trio

from mcp_trio.abc import Transport
from mcp_trio.client.options import Authorization
from mcp_trio.errors import ConfigurationError, TransportError
from mcp_trio.transports.lines import LineTransport
from mcp_trio.transports.streamable_http import StreamableHTTPTransport
from mcp_trio.transports.websocket import WebSocketTransport

CONNECT_TIMEOUT = 10.0
"""Seconds to reach a server."""
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
        raise ConfigurationError(f"not a URL of a scheme we know ({known}): {url[:100]!r}")
    elif not parts.hostname or (port is None and _HOSTED[parts.scheme] is None):
        raise ConfigurationError(f"the URL lacks a host or a port: {url[:100]!r}")
    return parts


async def open_url(
    url: str, exits: contextlib.AsyncExitStack, auth: Authorization | None = None
) -> Transport:
    """Open the transport of a URL; what it needs is closed by `exits`.

    Raises:
        ConfigurationError: see `check_url`.
        TransportError: the server cannot be reached in time, or refuses a WebSocket.
    """
    parts = check_url(url)
    if parts.scheme in {"http", "https"}:
        client = httpx2.AsyncClient(
            auth=None if auth is None else auth.bind(url),
            timeout=httpx2.Timeout(None, connect=CONNECT_TIMEOUT),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            follow_redirects=False,
            trust_env=False,
        )
        return StreamableHTTPTransport(url, await exits.enter_async_context(client))
    stream = await _connect(parts, exits)
    if parts.scheme not in {"ws", "wss"}:
        return LineTransport(stream, stream)
    path = parts.path or "/"
    socket = WebSocketTransport(
        stream, parts.netloc.rpartition("@")[2], f"{path}?{parts.query}" if parts.query else path
    )
    await socket.open()
    return socket


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
            secure = trio.SSLStream(
                stream, ssl.create_default_context(), server_hostname=host, https_compatible=True
            )
            await secure.do_handshake()
            return secure
    except (OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
        where = parts.path if parts.scheme == "unix" else parts.netloc
        raise TransportError(f"cannot connect to {where}: {error}".rstrip(": ")) from error
