"""HTTP upstreams: send one request, read a bounded answer, say exactly what went wrong.

Every adapter that speaks HTTP sends here. What is asked and what an answer means is theirs.
Redirects are answers of no use, never followed. Leaving the scope of a call closes its socket.
"""

from __future__ import annotations

import email.utils
import math
import ssl
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from urllib.parse import quote, urlencode

import attrs
import httpcore2
import httpx2
import trio

from mcp_trio.catalog.operation import OperationError
from mcp_trio.network_guard import HIDDEN_QUERY, BlockedAddressError
from mcp_trio.runtime import watching
from mcp_trio.runtime.adapters.base import Call
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.http_connection import (
    Credentials,
    HttpConnection,
    Identity,
    http_client,
)
from mcp_trio.runtime.policies import Settings
from mcp_trio.runtime.stages import Stage, StageError
from mcp_trio.transports.http_endpoint import reading


@attrs.frozen(kw_only=True)
class HttpRequest:
    """A request, ready for any client."""

    method: str
    target: str
    """Path and query, percent-encoded, the prefix of the base URL included."""
    headers: Mapping[str, str]
    """By name in lower case, without those of the connection."""
    body: bytes = b""


@attrs.frozen(kw_only=True)
class Reply:
    """A whole answer that is no redirect."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case. Cookies are left out."""
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is one of success."""
        return 200 <= self.status < 300

    @property
    def content_type(self) -> str:
        """The media type in lower case, without parameters; empty if there is none."""
        return media_type(self.headers)

    @property
    def retry_after(self) -> float | None:
        """Seconds the upstream asks to wait."""
        return _retry_after(self.headers.get("retry-after"))


def media_type(headers: Mapping[str, str]) -> str:
    """The media type that headers name, in lower case and without parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


class Incoming:
    """An answer whose head is here. Its body can be read once, in parts or as a whole."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._read: bytes | None = None
        self.status: int = response.status_code
        self.headers = _headers(response.headers)
        """By name in lower case. Cookies are left out."""

    async def parts(self, limit: int) -> AsyncGenerator[bytes]:
        """The body as it comes, up to `limit` bytes.

        Raises:
            StageError: it is larger, or encoded, or breaks off.
        """
        encoding = self.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in {"identity", ""}:
            # A small compressed body can hold gigabytes; identity was asked for.
            raise malformed("the upstream sent a compressed body although none was asked for")
        declared = self.headers.get("content-length", "")
        has_body = self._response.request.method != "HEAD"
        if declared.isdecimal() and int(declared) > limit and has_body:
            raise _too_large(limit)
        size = 0
        # Closed here and now when left early; a generator left to the collector closes late.
        async with reading(self._response.aiter_raw()) as stream:
            async for part in stream:
                size += len(part)
                if size > limit:
                    raise _too_large(limit)
                yield part

    async def read(self, limit: int) -> Reply:
        """The whole answer.

        Raises:
            StageError: it is larger than `limit`, or encoded, or breaks off, or a redirect.
        """
        if self._read is None:
            async with aclosing(self.parts(limit)) as parts:
                self._read = b"".join([part async for part in parts])
        if 300 <= self.status < 400:
            raise StageError(
                Stage.EXTERNAL_SERVICE,
                f"the upstream answered {self.status}, a redirect, and redirects are not followed",
                sub="redirect",
                code=self.status,
                upstream_status=self.status,
                step="operator",
            )
        return Reply(status=self.status, headers=self.headers, body=self._read)


@attrs.frozen(kw_only=True, eq=False)
class Exchange:
    """Sends the requests of one call, as one identity and within one operation's settings."""

    identity: Identity
    settings: Settings

    async def ask(self, request: HttpRequest, limit: int | None = None) -> Reply:
        """Send and read the whole answer, by default up to the operation's limit.

        Raises:
            StageError: there is no answer, or none that can be used.
        """
        async with self.open(request) as incoming:
            return await incoming.read(self.settings.response_bytes if limit is None else limit)

    @asynccontextmanager
    async def open(self, request: HttpRequest) -> AsyncGenerator[Incoming]:
        """Send, a second time if the upstream refuses credentials that can be renewed.

        The socket closes at the end of the context unless the body was read up.

        Raises:
            StageError: there is no answer.
        """
        credentials = await self.identity.credentials()
        async with self._opened(request, credentials) as incoming:
            fresh = None
            if incoming.status == 401:
                await incoming.read(self.settings.response_bytes)
                fresh = await self.identity.again(credentials)
            if fresh is None:
                yield incoming
                return
        async with self._opened(request, fresh) as incoming:
            yield incoming

    @asynccontextmanager
    async def _opened(
        self, request: HttpRequest, credentials: Credentials
    ) -> AsyncGenerator[Incoming]:
        client = http_client(self.identity.connections, self.identity.connection)
        built = _build(client, request, self.identity.connection, credentials, self.settings)
        async with _faults(), _response(client, built, self.settings) as response:
            yield Incoming(response)


def exchange_for(
    connections: Connections,
    connection: HttpConnection,
    settings: Settings,
    call: Call,
) -> Exchange:
    """The exchange of one call."""
    return Exchange(
        identity=Identity(
            connections=connections,
            connection=connection,
            as_whom=settings.auth,
            principal=call.principal,
            shown=call.shown,
        ),
        settings=settings,
    )


def check_identity(connection: HttpConnection, settings: Settings) -> None:
    """Refuse an operation that wants to act as somebody the connection cannot be.

    Raises:
        OperationError: that is so.
    """
    if settings.auth == "on_behalf_of" and connection.on_behalf_of is None:
        raise OperationError(
            f"the connection {connection.name} has no on_behalf_of", place="execution_config.auth"
        )


def _build(
    client: httpx2.AsyncClient,
    request: HttpRequest,
    connection: HttpConnection,
    credentials: Credentials,
    settings: Settings,
) -> httpx2.Request:
    own = dict(credentials.headers)
    left = trio.current_effective_deadline() - trio.current_time()
    if connection.deadline_header is not None and left < math.inf:
        own[connection.deadline_header.lower()] = str(max(0, int(left * 1000)))
    connect = settings.timeouts.connect
    built = client.build_request(
        request.method,
        httpx2.URL(connection.base_url).copy_with(raw_path=request.target.encode("ascii")),
        headers={**watching.fields(), **request.headers, **own},
        content=request.body or None,
        extensions={
            "timeout": {"connect": connect, "pool": connect, "read": None, "write": None},
            HIDDEN_QUERY: urlencode(credentials.query, quote_via=quote).encode(),
        },
    )
    if built.url.raw_path != request.target.encode("ascii"):
        # The client must not have its own opinion about an encoded path.
        raise StageError(Stage.MAPPING, "the request path cannot be sent as it is", sub="mapping")
    return built


@asynccontextmanager
async def _response(
    client: httpx2.AsyncClient, request: httpx2.Request, settings: Settings
) -> AsyncGenerator[httpx2.Response]:
    """The answer with its body still unread; the socket closes unless the body was read up."""
    limit = settings.timeouts.first_byte
    response: httpx2.Response | None = None
    with trio.move_on_after(float("inf") if limit is None else limit):
        response = await client.send(request, stream=True)
    if response is None:
        raise StageError(
            Stage.ADAPTER_EXECUTION,
            "the upstream did not begin to answer in time",
            sub="timeout",
            code="first_byte",
            retryable=True,
        )
    try:
        yield response
    finally:
        await response.aclose()


def _headers(headers: httpx2.Headers) -> dict[str, str]:
    made: dict[str, str] = {}
    for name, value in headers.multi_items():
        if name.lower() not in {"set-cookie", "set-cookie2"}:
            key = name.lower()
            made[key] = f"{made[key]}, {value}" if key in made else value
    return made


def _retry_after(value: str | None) -> float | None:
    """Read `Retry-After`, in seconds or as a date (RFC 9110, section 10.2.3)."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(min(int(value.strip()[:10]), 86_400))
    try:
        moment = email.utils.parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError):
        return None
    # A date is about the wall clock, on both sides.
    return min(max(0.0, moment - time.time()), 86_400.0)


def malformed(message: str, *, code: str = "malformed_reply") -> StageError:
    """The failure of an upstream whose answer is no answer."""
    return StageError(
        Stage.ADAPTER_EXECUTION, message, sub="malformed_reply", code=code, step="operator"
    )


def _too_large(limit: int) -> StageError:
    return StageError(
        Stage.ADAPTER_EXECUTION,
        f"the upstream's answer is larger than {limit} bytes",
        sub="response_bytes",
    )


@asynccontextmanager
async def _faults() -> AsyncGenerator[None]:
    """Turn what the client raises into the adapter's stage, in one place."""
    try:
        yield
    except BlockedAddressError as error:
        raise StageError(
            Stage.ADAPTER_EXECUTION, str(error), sub="policy_block", step="operator"
        ) from error
    except (httpcore2.ConnectTimeout, httpcore2.PoolTimeout) as error:
        raise StageError(
            Stage.ADAPTER_EXECUTION,
            "no connection to the upstream in time",
            sub="timeout",
            code="connect",
            retryable=True,
        ) from error
    except httpcore2.ConnectError as error:
        if _is_tls(error):
            raise StageError(
                Stage.ADAPTER_EXECUTION,
                "the upstream's TLS certificate or handshake is not acceptable",
                sub="tls",
                step="operator",
            ) from error
        raise StageError(
            Stage.ADAPTER_EXECUTION,
            "the upstream cannot be reached",
            sub="connect",
            retryable=True,
        ) from error
    except httpcore2.RemoteProtocolError as error:
        # With a plain text the client itself noticed that the peer hung up; else it wraps what its
        # parser refused, which may be that there is nothing more.
        said = error.args[0] if error.args else None
        if isinstance(said, str) or str(said).startswith("peer closed connection"):
            raise _broke_off() from error
        raise malformed("the upstream's answer is not valid HTTP") from error
    except httpcore2.NetworkError as error:
        raise _broke_off() from error


def _is_tls(error: BaseException) -> bool:
    """Look for the TLS library among the causes; the client keeps some of them as arguments."""
    seen: list[BaseException] = [error]
    for found in seen:
        if isinstance(found, ssl.SSLError):
            return True
        seen += [e for e in (found.__cause__, *found.args) if isinstance(e, BaseException)]
    return False


def _broke_off() -> StageError:
    return StageError(
        Stage.ADAPTER_EXECUTION,
        "the upstream's answer broke off before it was complete",
        sub="disconnected",
        retryable=True,
    )
