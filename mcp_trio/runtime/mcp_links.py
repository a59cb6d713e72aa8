"""Sessions with an upstream MCP server, kept open between calls: who has which, and for how long.

A session belongs to those who are asked for as the same: one for all callers where they are
asked for as ourselves, one for each caller's token where it is on their behalf, and never one
for two of those. Each lives in a task of its own in the nursery of `Connections`; one that
broke is not used again, and the next call opens another.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import AsyncGenerator, Generator, Hashable
from contextlib import asynccontextmanager

import httpcore2
import httpx2
import trio

from mcp_trio.client.client import MCPClient
from mcp_trio.client.options import ClientOptions
from mcp_trio.client.targets import KEEP_ALIVE, Target
from mcp_trio.engine.envelope import Principal
from mcp_trio.errors import MCPError, UnauthorizedError
from mcp_trio.network_guard import HIDDEN_QUERY, BlockedAddressError, GuardedTransport
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.http_connection import Credentials, HttpClient, HttpConnection, Identity
from mcp_trio.runtime.mcp_connection import McpConnection, Program
from mcp_trio.runtime.stages import Stage, StageError
from mcp_trio.secrets import Secret, mask
from mcp_trio.transports.stdio_client import Command

_log = logging.getLogger("mcp_trio.runtime")


def key_of(connection: McpConnection, as_whom: str, principal: Principal | None) -> Hashable:
    """What tells apart those who must not share a session."""
    if as_whom == "on_behalf_of":
        token = None if principal is None else principal.token
        digest = None if token is None else hashlib.sha256(token.reveal().encode()).digest()
        return as_whom, None if principal is None else principal.identity, digest
    if connection.session_per_caller:
        return as_whom, None if principal is None else principal.identity
    return as_whom


class Link:
    """One session, and the task that keeps it."""

    def __init__(self, connections: Connections, connection: McpConnection, idle: float) -> None:
        self._connections = connections
        self._connection = connection
        self._idle = idle
        self._scope = trio.CancelScope()
        self._settled = trio.Event()
        self._ended = trio.Event()
        self._users = 0
        self._client: MCPClient | None = None
        self._failure: StageError | None = None
        self.over = False
        """Whether it is not to be used any more."""
        self.identity: Identity | None = None
        """As whom it is asked, for the endpoint of a URL."""
        self._sender: _Sender | None = None

    @property
    def busy(self) -> bool:
        """Whether somebody uses it."""
        return self._users > 0

    async def run(self) -> None:
        """Keep the session until it is ended, or nobody has used it for a while."""
        try:
            with self._scope:
                try:
                    async with MCPClient(self._target(), options=self._options()) as client:
                        self._client = client
                        self._settled.set()
                        await trio.sleep_forever()
                except MCPError as error:
                    self._failure = self._meaning(error)
                except Exception as error:  # noqa: BLE001 - one session takes nobody down
                    _log.exception("connection %s: a session failed", self._connection.name)
                    self._failure = self._meaning(MCPError(type(error).__name__))
        finally:
            self.over = True
            self._settled.set()
            self._ended.set()

    async def wait_ended(self) -> None:
        """Wait until nothing is left of it."""
        await self._ended.wait()

    def end(self) -> None:
        """End it now, and what runs in it."""
        self.over = True
        self._scope.cancel()

    def drop(self) -> None:
        """Let nobody else have it, and end it when nobody uses it."""
        self.over = True
        if not self.busy:
            self._scope.cancel()

    @asynccontextmanager
    async def use(self, connect_timeout: float) -> AsyncGenerator[MCPClient]:
        """Wait until it is open, and keep it from ending.

        Raises:
            StageError: it could not be opened, or not in time.
            trio.ClosedResourceError: it was ended meanwhile.
        """
        self._users += 1
        self._scope.deadline = float("inf")
        try:
            with trio.move_on_after(connect_timeout) as waiting:
                await self._settled.wait()
            if waiting.cancelled_caught and not self._settled.is_set():
                raise StageError(
                    Stage.ADAPTER_EXECUTION,
                    "no session with the upstream server in time",
                    sub="timeout",
                    code="connect",
                    retryable=True,
                )
            if self._failure is not None:
                raise self._failure
            if self._client is None:
                raise trio.ClosedResourceError("the connections are closed")
            if self._sender is not None:
                self._sender.refresh()
            yield self._client
        finally:
            self._users -= 1
            if not self.busy:
                self._scope.deadline = trio.current_time() + self._idle
                if self.over:
                    self._scope.cancel()

    @property
    def broken(self) -> bool:
        """Whether its session has ended by itself."""
        return self._client is not None and self._client.session.closed

    def _target(self) -> Target:
        connection = self._connection
        if connection.http is not None:
            return connection.http.base_url
        return _command(connection.program or Program(arguments=()), connection)

    def _options(self) -> ClientOptions:
        http = self._connection.http
        return ClientOptions(
            revisions=self._connection.revisions,
            # Callers may not learn from each other's answers, and views have schemas of their own.
            cache=None,
            check_output=False,
            http=None if http is None else lambda _auth: self._open(http),
        )

    def _open(self, http: HttpConnection) -> httpx2.AsyncClient:
        self._sender = sender = _Sender(self)
        client = HttpClient(
            self._connections, http, around=sender.around, timeout=None, keep_alive=KEEP_ALIVE
        )
        sender.client = client
        return client.now()

    def _meaning(self, error: MCPError) -> StageError:
        if self._sender is not None and isinstance(self._sender.trouble, BlockedAddressError):
            return StageError(
                Stage.ADAPTER_EXECUTION,
                str(self._sender.trouble),
                sub="policy_block",
                step="operator",
            )
        if isinstance(error, UnauthorizedError):
            return StageError(
                Stage.ADAPTER_EXECUTION,
                "the upstream server does not let us in",
                sub="credentials",
                code="unauthorized",
                step="operator",
            )
        held = () if self.identity is None else self.identity.shown
        said = mask(error.message, (*self._connection.secrets(), *held))[:200]
        _log.warning("connection %s: no session: %s", self._connection.name, said)
        return StageError(
            Stage.ADAPTER_EXECUTION,
            "there is no session with the upstream server to be had",
            sub="connect",
            code=str(error.code),
            retryable=True,
        )


class Links:
    """The sessions with one server. A resource of `Connections`."""

    def __init__(self, connections: Connections, connection: McpConnection) -> None:
        self._connections = connections
        self._connection = connection
        self._links: dict[Hashable, Link] = {}

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._links)

    def link(self, key: Hashable, identity: Identity | None) -> Link:
        """The session of those who share a key, opened now if there is none.

        Raises:
            StageError: there are too many, all in use.
            trio.ClosedResourceError: the connections are closed.
        """
        for stale in [key for key, link in self._links.items() if link.over or link.broken]:
            self._links.pop(stale).drop()
        found = self._links.pop(key, None)
        if found is None:
            self._make_room()
            found = Link(self._connections, self._connection, self._connection.idle)
            found.identity = identity
            self._connections.nursery.start_soon(found.run)
        # The newest at the end; a token that was got anew goes with the next request.
        found.identity = identity
        self._links[key] = found
        return found

    def _make_room(self) -> None:
        if len(self._links) < self._connection.max_sessions:
            return
        for key, link in self._links.items():
            if not link.busy:
                self._links.pop(key).end()
                return
        raise StageError(
            Stage.ADAPTER_EXECUTION,
            "there are too many sessions with the upstream server",
            sub="overloaded",
            retryable=True,
        )

    async def aclose(self) -> None:
        """End all of them, and wait until they have said goodbye."""
        links, self._links = list(self._links.values()), {}
        for link in links:
            link.end()
        for link in links:
            await link.wait_ended()


class _Sender(httpx2.AsyncBaseTransport):
    """Sends the requests of a session: with credentials, a second time after a 401."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._inner: httpx2.AsyncBaseTransport | None = None
        self.client: HttpClient | None = None
        self.trouble: Exception | None = None
        """What the last request failed with."""
        self._last: Credentials | None = None

    def around(self, inner: GuardedTransport) -> httpx2.AsyncBaseTransport:
        """Stand around the transport that has the sockets."""
        self._inner = inner
        return self

    def refresh(self) -> None:
        """Show the certificate that the files hold now."""
        if self.client is not None:
            self.client.now()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one."""
        identity = self._link.identity
        try:
            if identity is None:  # pragma: no cover  # a URL has one
                return await self._send(request, Credentials())
            credentials = await self._credentials(identity)
            response = await self._send(request, credentials)
            if response.status_code != 401:
                return response
            fresh = await identity.again(credentials)
            if fresh is None:
                return response
            await response.aclose()
            return await self._send(request, fresh)
        except StageError as error:
            self.trouble = error
            raise UnauthorizedError(error.message) from error

    async def _credentials(self, identity: Identity) -> Credentials:
        try:
            self._last = await identity.credentials()
        except trio.ClosedResourceError:
            # The farewell of a session, while everything closes.
            if self._last is None:
                raise httpx2.TransportError("closed") from None
        return self._last

    async def _send(self, request: httpx2.Request, credentials: Credentials) -> httpx2.Response:
        if self._inner is None:  # pragma: no cover  # `around` comes first
            raise RuntimeError("there is no transport")
        request.headers.update(credentials.headers)
        query = httpx2.QueryParams(dict(credentials.query))
        request.extensions = {**request.extensions, HIDDEN_QUERY: str(query).encode()}
        with _translated(self):
            response = await self._inner.handle_async_request(request)
        stream = response.stream
        if isinstance(stream, httpx2.AsyncByteStream):
            response.stream = _Body(stream, self)
        return response

    async def aclose(self) -> None:
        """Close the sockets."""
        if self._inner is not None:
            await self._inner.aclose()


@contextlib.contextmanager
def _translated(sender: _Sender) -> Generator[None]:
    """Make the troubles of the sockets those of the client above them."""
    try:
        yield
    except (
        httpcore2.NetworkError,
        httpcore2.ProtocolError,
        httpcore2.TimeoutException,
        httpcore2.UnsupportedProtocol,
    ) as error:
        sender.trouble = error
        # Without its text, which may name addresses.
        raise httpx2.TransportError(type(error).__name__) from error


class _Body(httpx2.AsyncByteStream):
    """The body of an answer, whose troubles are the client's own, too."""

    def __init__(self, inner: httpx2.AsyncByteStream, sender: _Sender) -> None:
        self._inner = inner
        self._sender = sender

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        with _translated(self._sender):
            async for chunk in self._inner:
                yield chunk

    async def aclose(self) -> None:
        """Let go of the connection."""
        await self._inner.aclose()


def _command(program: Program, connection: McpConnection) -> Command:
    def told(line: str) -> None:
        _log.debug("%s says: %s", connection.name, connection.mask(line)[:500])

    env = {
        name: value.reveal() if isinstance(value, Secret) else value
        for name, value in program.env.items()
    }
    return Command(program.arguments, env=env, cwd=program.cwd, stderr=told)
