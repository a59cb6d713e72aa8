"""Reading HTTP requests over ASGI: header fields, a bounded body, and news of a lost peer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol, TypeVar, cast
from urllib.parse import quote

import attrs
import trio

from mcp_trio.abc import ChallengeError, RequestHead, ResourceGuard
from mcp_trio.engine.envelope import Principal
from mcp_trio.errors import OverloadedError
from mcp_trio.framing.challenge import write_challenge
from mcp_trio.framing.gate import Accepts, accepts
from mcp_trio.http.budget import Claim
from mcp_trio.http.crowd import place_of
from mcp_trio.http.responses import Header, Receive, Responder, Scope, Send
from mcp_trio.session.admission import caller_of

CONNECTION = "mcp_trio.connection"
"""The ASGI extension by which `http.connection` tells of a lost peer without a task."""


T = TypeVar("T")


class BodyTooLargeError(Exception):
    """The body has, or announces, more bytes than allowed."""


class BodyTimeoutError(Exception):
    """The body did not arrive in time."""


class PeerGoneError(Exception):
    """The peer went away while its body was read; there is nobody to answer."""


class _Connection(Protocol):
    @property
    def body_arrived(self) -> bool: ...

    def on_disconnect(self, callback: Callable[[], None]) -> None: ...


@attrs.frozen
class HTTPRequest:
    """One request, its header fields by lower-case name. Repeated fields are joined."""

    scope: Scope
    receive: Receive
    headers: dict[str, str]
    principal: Principal | None = None
    """Who sent it, as `HTTPOptions.identify` found; None for nobody in particular."""

    guard: ResourceGuard | None = None
    """Who tells what would be accepted; None where nobody can."""

    @classmethod
    def read(cls, scope: Scope, receive: Receive) -> HTTPRequest:
        """Take the header fields out of an ASGI scope."""
        headers: dict[str, str] = {}
        for raw_name, raw_value in scope["headers"]:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return cls(scope, receive, headers)

    @property
    def path(self) -> str:
        """The path below the place where the application is mounted; `/` for that place itself.

        Servers differ in whether `path` has the mount in it.
        """
        path: str = self.scope["path"]
        mount: str = self.scope.get("root_path", "").rstrip("/")
        if path == mount or path.startswith(mount + "/"):
            path = path[len(mount) :]
        return path or "/"

    @property
    def address(self) -> str:
        """Where it comes from, as it counts against limits; all of whom it is not known are one."""
        return place_of(self.scope.get("client")) or "unknown"

    @property
    def caller(self) -> str | None:
        """Who sends it, as it counts against limits."""
        return caller_of(self.principal, self.address)

    @property
    def head(self) -> RequestHead:
        """What tells who sends it."""
        scope = self.scope
        client = scope.get("client")
        return RequestHead(
            method=scope.get("method", "GET"),
            url=self._url(),
            headers=self.headers,
            fields=tuple(
                (name.decode("latin-1").lower(), value.decode("latin-1"))
                for name, value in scope["headers"]
            ),
            client=client[0] if client else None,
            certificate=_verified(scope.get("extensions", {}).get("tls") or {}),
        )

    def _url(self) -> str:
        scope = self.scope
        default = "ws" if scope["type"] == "websocket" else "http"
        query = scope.get("query_string", b"").decode("latin-1")
        mount = scope.get("root_path", "").rstrip("/")
        path = quote(mount + self.path, safe=_PATH)
        url = f"{scope.get('scheme', default)}://{self.headers.get('host', '')}{path}"
        return f"{url}?{query}" if query else url

    def responder(self, send: Send, headers: tuple[Header, ...]) -> Responder:
        """What writes the one response to this request."""
        return Responder(send, self.accepts, headers, self.lacking)

    def lacking(self, scopes: frozenset[str]) -> tuple[int, tuple[Header, ...]]:
        """Status and header fields of the refusal of who lacks some of these scopes."""
        if self.guard is None:
            parameters = {"error": "insufficient_scope", "scope": " ".join(sorted(scopes))}
            challenge = write_challenge("Bearer", parameters)
            return 403, ((b"www-authenticate", challenge.encode()),)
        error = self.guard.lacking(scopes, known=self.principal is not None)
        return error.status, challenge_fields(error)

    @property
    def accepts(self) -> Accepts:
        """Which answer forms the client takes."""
        return accepts(self.headers.get("accept"))

    async def body(self, limit: int, timeout: float, claim: Claim) -> bytes:  # noqa: ASYNC109 - it becomes its own error
        """Read the whole body.

        Args:
            limit: bytes.
            timeout: seconds.
            claim: grows by what is read, as it is read.

        Raises:
            BodyTooLargeError, BodyTimeoutError, PeerGoneError: as named.
            OverloadedError: there is no room for it beside the bodies of others.
        """
        try:
            announced = int(self.headers.get("content-length", "0"))
        except ValueError:
            announced = 0  # the bytes are counted as they come
        if announced > limit:
            raise BodyTooLargeError
        connection = self._connection
        if connection is not None and connection.body_arrived:
            return await self._collected(limit, claim)
        with trio.move_on_after(timeout):
            return await self._collected(limit, claim)
        raise BodyTimeoutError

    async def _collected(self, limit: int, claim: Claim) -> bytes:
        # One buffer: a list of the pieces would cost a body sent in small ones many times its size.
        body = bytearray()
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise PeerGoneError
            chunk = cast("bytes", message.get("body", b""))
            if len(body) + len(chunk) > limit:
                raise BodyTooLargeError
            if not claim.grow(len(chunk)):
                raise OverloadedError("Too much is being read")
            if message.get("more_body", False):
                body += chunk
            else:
                return bytes(body + chunk) if body else chunk

    @property
    def own_loop(self) -> bool:
        """Whether our own connection loop serves it, where sending to a lost peer breaks."""
        return self._connection is not None

    @property
    def _connection(self) -> _Connection | None:
        """Our own connection loop; None on another ASGI server."""
        return cast("_Connection | None", self.scope.get("extensions", {}).get(CONNECTION))

    async def watched(self, gone: Callable[[], None], work: Callable[[], Awaitable[T]]) -> T:
        """Do something, and have `gone` called when the peer goes away meanwhile.

        Our own connection loop calls it directly. On another ASGI server a task reads
        the disconnect message.
        """
        connection = self._connection
        if connection is not None:
            connection.on_disconnect(gone)
            try:
                return await work()
            finally:
                connection.on_disconnect(_nothing)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, gone)
            done = await work()
            nursery.cancel_scope.cancel()
            return done

    async def _watch(self, gone: Callable[[], None]) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
        gone()


def challenge_fields(error: ChallengeError) -> tuple[Header, ...]:
    """The header fields of a refusal that says what would be accepted."""
    named = [("www-authenticate", value) for value in error.challenges]
    pairs = [*named, *error.headers]
    return tuple((name.encode(), value.encode("latin-1")) for name, value in pairs)


_PATH = "/:@!$&'()*+,;=~"
"""What stands in a path as it is (RFC 3986, section 3.3)."""


def _verified(tls: Mapping[str, object]) -> str | None:
    """The client's own certificate of ASGI's TLS extension, unless it could not be verified."""
    chain = cast("Iterable[str]", tls.get("client_cert_chain") or ())
    return None if tls.get("client_cert_error") else next(iter(chain), None)


def _nothing() -> None:
    """Take the place of a callback that is not wanted any more."""
