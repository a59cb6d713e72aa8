"""Several processes that serve one endpoint: who they are, and how they reach each other.

Each one listens on a Unix socket in a folder that only their user may enter, and speaks HTTP there.
What is said on it is written in `relay`; who starts the processes is not known here.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs

import attrs
import httpcore2
import trio

from mcp_trio.framing.headers import SESSION_ID
from mcp_trio.http.legacy_sse import SESSION
from mcp_trio.http.responses import Application
from mcp_trio.transports.http_endpoint import reading
from mcp_trio.transports.socket_file import SocketFile

ORIGIN = httpcore2.Origin(b"http", b"localhost", 80)
"""What requests to another process are said to be for; they go where its socket is."""
MAX_PAGE = 32 * 1024 * 1024
"""Bytes of the answer that `ask` takes."""
CONNECT_TIMEOUT = 5.0
"""Seconds to connect to a process: longer than that its queue of connections is full."""

_BACKEND = cast("httpcore2.AsyncNetworkBackend", httpcore2.TrioBackend())
_ID = re.compile(r"([1-9][0-9]{0,3})\.[A-Za-z0-9_-]+")


@attrs.frozen(kw_only=True, eq=False)
class Seat:
    """The place of this process among those that serve one endpoint together."""

    number: int
    """From 1."""
    count: int
    """Of processes."""
    folder: Path
    """Where they have their sockets; nobody else may enter it."""
    listeners: Sequence[trio.SocketListener]
    """Where clients connect; all processes accept from the same ones."""
    pages: Application
    """What the others may ask for, beside requests of sessions: the admin pages of this process."""

    accept_pause: float = 0.001
    """Seconds for which it leaves the next connection to the others."""

    @property
    def prefix(self) -> str:
        """What the ids of the sessions of this process begin with."""
        return f"{self.number}."

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[Sequence[trio.SocketListener]]:
        """Where clients connect, while the block runs; closed in the end."""
        try:
            yield self.listeners
        finally:
            for listener in self.listeners:
                listener.socket.close()

    @contextmanager
    def door(self, backlog: int) -> Generator[trio.SocketListener]:
        """Listen for the other processes while the block runs.

        Raises:
            OSError: that cannot be.
        """
        with SocketFile(socket_path(self.folder, self.number), 0o600, backlog) as file:
            yield trio.SocketListener(trio.socket.from_stdlib_socket(file.socket))

    def owner_of(self, scope: Mapping[str, Any], messages_path: str) -> int | None:
        """The process that has the session of a request; None if that is this one, or nobody.

        Args:
            scope: of the request.
            messages_path: where clients of HTTP+SSE POST to.
        """
        found = _ID.fullmatch(_session_of(scope, messages_path))
        number = 0 if found is None else int(found[1])
        return number if 0 < number <= self.count and number != self.number else None


def socket_path(folder: Path, number: int) -> Path:
    """Where a process listens for the others."""
    return folder / str(number)


def _session_of(scope: Mapping[str, Any], messages_path: str) -> str:
    if str(scope["path"]).endswith(messages_path):
        query: bytes = scope.get("query_string", b"")
        return parse_qs(query.decode("latin-1")).get(SESSION, [""])[0]
    name = SESSION_ID.encode()
    values = [value for field, value in scope["headers"] if field.lower() == name]
    return cast("bytes", values[0]).decode("latin-1").strip() if len(values) == 1 else ""


@asynccontextmanager
async def connected(
    path: Path,
) -> AsyncGenerator[tuple[httpcore2.AsyncHTTP11Connection, trio.socket.SocketType]]:
    """A connection to a process, for one exchange. Leaving the block closes it, at any time.

    Yields:
        The connection, and its socket, to wait for; what is said on it is the connection's.

    Raises:
        httpcore2.ConnectError: there is no such process; its cause says more.
        httpcore2.ConnectTimeout: too many wait for it.
    """
    stream = await _BACKEND.connect_unix_socket(str(path), CONNECT_TIMEOUT)
    connection = httpcore2.AsyncHTTP11Connection(ORIGIN, stream)
    try:
        yield connection, stream.get_extra_info("socket")
    finally:
        await connection.aclose()  # also when it is cancelled: the socket closes before any wait


async def ask(path: Path, target: str) -> tuple[int, bytes]:
    """Ask a process for a page; put it into a scope with a deadline.

    Returns:
        The status and the body.

    Raises:
        OSError: nobody answers, or no such thing as an answer; not if the process just hangs.
    """
    url = httpcore2.URL(scheme=b"http", host=b"localhost", port=None, target=target.encode())
    headers = [(b"host", b"localhost"), (b"connection", b"close")]
    try:
        async with connected(path) as (connection, _):
            request = httpcore2.Request(b"GET", url, headers=headers)
            response = await connection.handle_async_request(request)
            body = bytearray()
            async with reading(response.aiter_stream()) as pieces:
                async for piece in pieces:
                    body += piece
                    if len(body) > MAX_PAGE:
                        raise OSError(f"{target}: more than {MAX_PAGE} bytes")
            return response.status, bytes(body)
    except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
        raise OSError(f"{target}: {type(error).__name__}") from error
