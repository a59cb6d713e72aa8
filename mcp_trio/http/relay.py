"""The request of a session goes to the process that has the session, whoever accepted it.

`Relay` hands it on, over the socket of the other process; `Inner` takes it there. What the first
one knows of the client (address, scheme, certificate) travels in a header field that is believed on
that socket only; credentials stay what they were, and are judged where the session is. So anybody
may have a request relayed, and each one takes a connection between the processes: they are counted
by address. A client that leaves takes the relayed request with it, as that connection closes.
"""

from __future__ import annotations

import base64
import errno
import logging
import math
from collections.abc import Iterable
from functools import partial
from typing import Any, Self, cast

import attrs
import httpcore2
import msgspec
import trio

from mcp_trio.eras.admission import error_message
from mcp_trio.errors import OverloadedError, TransportError
from mcp_trio.framing.gate import Refusal
from mcp_trio.http import websocket
from mcp_trio.http.crowd import Crowd, place_of
from mcp_trio.http.options import HTTPOptions
from mcp_trio.http.requests import HTTPRequest
from mcp_trio.http.responses import Application, Header, Receive, Scope, Send, refuse
from mcp_trio.http.seats import Seat, connected, socket_path
from mcp_trio.http.serving import HTTPService
from mcp_trio.http.serving_settings import ServingSettings
from mcp_trio.transports.http_endpoint import reading

logger = logging.getLogger("mcp_trio.http")

RELAYED = b"mcp-trio-relayed"
"""The field that says what the first process knows. Of a client's request it is dropped."""
MAX_RELAYED = 10_000
"""Requests that one process relays at once, streams of sessions included; further ones get 503."""
TELL_AGAIN = 60.0
"""Seconds between two lines of the log about requests that broke off at the same process."""

_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade"}
    | {b"transfer-encoding", b"expect", RELAYED}
)
"""What belongs to one connection and not to the request (RFC 9110, section 7.6.1)."""
_BARE = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})
"""Methods whose body, if there should be one, means nothing here."""
_GONE = {errno.ENOENT, errno.ECONNREFUSED}
_HEADROOM = 65536
"""Bytes by which a relayed head may be larger than the one that came in."""


@attrs.frozen(kw_only=True)
class Origin:
    """What the process that accepted a request knows of it beyond what the client has written."""

    client: tuple[str, int] | None
    server: tuple[str, int] | None
    scheme: str
    http_version: str
    root_path: str
    tls: dict[str, Any] | None

    @classmethod
    def of(cls, scope: Scope) -> Origin:
        """Read it from an ASGI scope."""
        return cls(
            client=scope.get("client"),
            server=scope.get("server"),
            scheme=scope.get("scheme", "http"),
            http_version=scope.get("http_version", "1.1"),
            root_path=scope.get("root_path", ""),
            tls=scope.get("extensions", {}).get("tls"),
        )

    def field(self) -> Header:
        """The header field that carries it."""
        return RELAYED, base64.urlsafe_b64encode(msgspec.json.encode(self))

    def applied(self, scope: Scope) -> Scope:
        """The scope of a relayed request as the process that accepted it had it."""
        extensions = dict(scope["extensions"])
        extensions.pop("tls", None)
        if self.tls is not None:
            extensions["tls"] = self.tls
        known = attrs.asdict(self, recurse=False, filter=lambda field, _: field.name != "tls")
        fields = [field for field in scope["headers"] if field[0].lower() != RELAYED]
        return {**scope, **known, "headers": fields, "extensions": extensions}


class _ClientLeftError(Exception):
    """The client went away in the middle of its body."""


class Relay:
    """An ASGI application around that of this process: other processes' sessions are relayed."""

    def __init__(
        self, app: Application, seat: Seat, messages_path: str, *, max_per_address: int
    ) -> None:
        """Make one.

        Args:
            app: serves everything else, and tells of sessions that nobody has.
            seat: which process this is.
            messages_path: where clients of HTTP+SSE POST to.
            max_per_address: requests of one address that are relayed at once; further ones get 503.
        """
        self._app = app
        self._seat = seat
        self._crowd = Crowd(max_per_address, "requests of sessions at other workers")
        self._told: dict[int, float] = {}
        """When a request that broke off was told last, by the process where it did."""
        self._messages_path = messages_path
        self.relaying = 0
        """Requests on their way now."""

    @classmethod
    def around(
        cls, app: Application, seat: Seat, options: HTTPOptions, settings: ServingSettings
    ) -> Self:
        """Make one with the limits of an endpoint."""
        most = settings.max_connections_per_address
        return cls(app, seat, options.legacy_messages_path, max_per_address=most)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        owner = None
        if scope["type"] == "http":
            owner = self._seat.owner_of(scope, self._messages_path)
        if owner is None:
            await self._app(scope, receive, send)
            return
        place = place_of(scope.get("client"))
        if self.relaying >= MAX_RELAYED or not self._crowd.enter(place):
            await _overloaded(send)
            return
        self.relaying += 1
        try:
            await self._relay(owner, scope, receive, send)
        finally:
            self.relaying -= 1
            self._crowd.leave(place)

    async def _relay(self, owner: int, scope: Scope, receive: Receive, send: Send) -> None:
        leaving = trio.CancelScope()
        started = False

        async def pass_on(message: Any) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            with leaving:
                path = socket_path(self._seat.folder, owner)
                async with connected(path) as (connection, socket):
                    http = HTTPRequest.read(scope, receive)
                    request = _request(scope, _Body(receive, socket))
                    work = partial(_exchange, connection, request, pass_on)
                    await http.watched(leaving.cancel, work)
        except _ClientLeftError:
            return
        except httpcore2.ConnectTimeout:
            await _overloaded(send)
        except httpcore2.ConnectError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno in _GONE:
                # The session went with its process; who may know that is for the application.
                await self._app(scope, receive, send)
            else:
                await _overloaded(send)
        except (httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            self._tell(owner, error)
            # Whatever came after the beginning is cut: an answer must not look whole.
            if not started:
                reason = "The process that has the session ended in the middle of the request"
                fault = error_message(None, TransportError(reason))
                await refuse(send, 502, reason, error=fault)

    def _tell(self, owner: int, error: Exception) -> None:
        """Log that a request broke off; a process that ends takes many with it."""
        now = trio.current_time()
        if now - self._told.get(owner, -math.inf) >= TELL_AGAIN:
            self._told[owner] = now
            reason = type(error).__name__
            logger.warning("process %d ended in the middle of a request: %s", owner, reason)


async def _exchange(
    connection: httpcore2.AsyncHTTP11Connection, request: httpcore2.Request, send: Send
) -> None:
    response = await connection.handle_async_request(request)
    fields = [field for field in response.headers if field[0].lower() not in _HOP | {b"date"}]
    await send({"type": "http.response.start", "status": response.status, "headers": fields})
    if not any(name.lower() == b"content-length" for name, _ in fields):
        # A stream may begin long before it says anything.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
    async with reading(response.aiter_stream()) as pieces:
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _request(scope: Scope, body: _Body) -> httpcore2.Request:
    query: bytes = scope.get("query_string", b"")
    target: bytes = scope["raw_path"] + (b"?" + query if query else b"")
    fields = [field for field in scope["headers"] if field[0].lower() not in _HOP]
    method: str = scope["method"]
    sized = any(name.lower() == b"content-length" for name, _ in fields)
    if method not in _BARE and not sized:
        fields.append((b"transfer-encoding", b"chunked"))
    elif method in _BARE:
        fields = [field for field in fields if field[0].lower() != b"content-length"]
    headers = [*fields, Origin.of(scope).field(), (b"connection", b"close")]
    url = httpcore2.URL(scheme=b"http", host=b"localhost", port=None, target=target)
    content = None if method in _BARE else body
    return httpcore2.Request(method.encode(), url, headers=headers, content=content)


class _Body:
    """The body of a request, as it comes. No generator: it may be left at any place.

    It ends as if it could not be written once the other process says something, which it does
    before the end of a body only to refuse it, or when it breaks off: that is to be read then, and
    not after the client has sent all, in its own time.
    """

    def __init__(self, receive: Receive, socket: trio.socket.SocketType) -> None:
        self._receive = receive
        self._socket = socket
        self._more = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self._more:
            raise StopAsyncIteration
        message = None
        with trio.CancelScope() as waiting:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._answered, waiting)
                message = await self._receive()
                nursery.cancel_scope.cancel()
        if message is None:
            raise httpcore2.WriteError("it was answered before its end")
        if message["type"] == "http.disconnect":
            raise _ClientLeftError
        self._more = message.get("more_body", False)
        return cast("bytes", message.get("body", b""))

    async def _answered(self, waiting: trio.CancelScope) -> None:
        """End a wait for the client once the other process has something to say."""
        await trio.lowlevel.wait_readable(self._socket)
        waiting.cancel()


async def _overloaded(send: Send) -> None:
    error = OverloadedError("The process that has the session cannot take the request now")
    fault = error_message(None, error)
    await refuse(send, 503, error.message, error=fault)


class Inner:
    """The ASGI application of the socket between processes."""

    def __init__(self, app: Application, pages: Application) -> None:
        """Make one.

        Args:
            app: serves requests of the sessions of this process.
            pages: serves everything else.
        """
        self._app = app
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await websocket.refuse(scope, receive, send, Refusal(404, "Not found"))
            return
        origin = _origin(scope["headers"])
        if origin is None:
            await self._pages(scope, receive, send)
        else:
            await self._app(origin.applied(scope), receive, send)


def _origin(fields: Iterable[Header]) -> Origin | None:
    found = [value for name, value in fields if name.lower() == RELAYED]
    if not found:
        return None
    return msgspec.json.decode(base64.urlsafe_b64decode(found[0]), type=Origin)


def inner_service(app: Application, seat: Seat, settings: ServingSettings) -> HTTPService:
    """The service on the socket of this process, for the others.

    Args:
        app: serves requests of the sessions of this process.
        seat: has the pages.
        settings: the limits towards clients; what was let in once is not judged again.
    """
    roomy = attrs.evolve(
        settings,
        max_connections=MAX_RELAYED,
        max_header_bytes=2 * settings.max_header_bytes + _HEADROOM,
        max_header_fields=settings.max_header_fields + 8,
        max_url_bytes=2 * settings.max_url_bytes,
        trusted_proxies=(),
        proxy_protocol=False,
    )
    return HTTPService(Inner(app, seat.pages), settings=roomy)
