"""HTTP upstreams: send one request, read a bounded answer, say exactly what went wrong.

The request is built by `rest_request`. Redirects are answers here, never followed. Leaving
the scope of a call closes its socket.
"""

from __future__ import annotations

import email.utils
import math
import ssl
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import quote, urlencode

import httpcore2
import httpx2
import msgspec
import trio

from mcp_trio.catalog.operation import Operation
from mcp_trio.network_guard import HIDDEN_QUERY, BlockedAddressError
from mcp_trio.runtime.adapters.base import OUTPUT_NAMES, Answer, Call, Plan, Send
from mcp_trio.runtime.adapters.rest_request import HttpRequest, RequestTemplate, compile_request
from mcp_trio.runtime.connections import Connection, Connections
from mcp_trio.runtime.expressions import measure
from mcp_trio.runtime.http_connection import (
    Credentials,
    HttpConnection,
    Identity,
    http_client,
)
from mcp_trio.runtime.mapping import MAX_INPUT_NODES
from mcp_trio.runtime.policies import Settings
from mcp_trio.runtime.stages import Stage, StageError
from mcp_trio.transports.http_endpoint import reading

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class RestAdapter:
    """Runs rest operations over the clients of a `Connections`. Implements `Adapter`."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    connection_type = HttpConnection
    output_names = OUTPUT_NAMES

    def compile(
        self, operation: Operation, connection: Connection | None, settings: Settings
    ) -> Plan:
        """Make a plan.

        Raises:
            OperationError, MappingError: target and mapping cannot work.
        """
        if not isinstance(connection, HttpConnection):  # pragma: no cover  # the contract
            raise TypeError("a rest operation needs an HTTP connection")
        template = compile_request(operation, connection, settings)
        return Plan(
            prepare=partial(self._prepare, template, connection, settings),
            reads=template.reads,
            idempotent=template.method in _SAFE,
        )

    def _prepare(
        self,
        template: RequestTemplate,
        connection: HttpConnection,
        settings: Settings,
        context: Mapping[str, object],
        call: Call,
    ) -> Send:
        identity = Identity(
            connections=self._connections,
            connection=connection,
            as_whom=settings.auth,
            principal=call.principal,
        )
        return partial(self._send, template.fill(context), identity, settings)

    async def _send(self, request: HttpRequest, identity: Identity, settings: Settings) -> Answer:
        """Send, a second time if the upstream refuses credentials that can be renewed."""
        credentials = await identity.credentials()
        answer = await self._exchange(request, identity, credentials, settings)
        if answer.status == 401:
            fresh = await identity.again(credentials)
            if fresh is not None:
                answer = await self._exchange(request, identity, fresh, settings)
        return answer

    async def _exchange(
        self,
        request: HttpRequest,
        identity: Identity,
        credentials: Credentials,
        settings: Settings,
    ) -> Answer:
        client = http_client(self._connections, identity.connection)
        built = _build(client, request, identity.connection, credentials, settings)
        async with _faults(), _response(client, built, settings) as response:
            body = await _read(response, settings.response_bytes)
        return _answer(response, body)


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
        headers={**request.headers, **own},
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


async def _read(response: httpx2.Response, limit: int) -> bytes:
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"identity", ""}:
        # A small compressed body can hold gigabytes; identity was asked for.
        raise _malformed("the upstream sent a compressed body although none was asked for")
    declared = response.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit and response.request.method != "HEAD":
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    async with reading(response.aiter_raw()) as stream:
        try:
            async for part in stream:
                size += len(part)
                if size > limit:
                    raise _too_large(limit)
                parts.append(part)
        except httpcore2.RemoteProtocolError as error:
            raise _broke_off() from error
    return b"".join(parts)


def _answer(response: httpx2.Response, raw: bytes) -> Answer:
    status = response.status_code
    if 300 <= status < 400:
        raise StageError(
            Stage.EXTERNAL_SERVICE,
            f"the upstream answered {status}, a redirect, and redirects are not followed",
            sub="redirect",
            code=status,
            upstream_status=status,
            step="operator",
        )
    ok = 200 <= status < 300
    return Answer(
        ok=ok,
        body=_body(response.headers.get("content-type", ""), raw, ok=ok),
        status=status,
        headers=_headers(response.headers),
        retry_after=_retry_after(response.headers.get("retry-after")),
    )


def _headers(headers: httpx2.Headers) -> dict[str, str]:
    made: dict[str, str] = {}
    for name, value in headers.multi_items():
        if name.lower() not in {"set-cookie", "set-cookie2"}:
            key = name.lower()
            made[key] = f"{made[key]}, {value}" if key in made else value
    return made


def _body(content_type: str, raw: bytes, *, ok: bool) -> object:
    """Decode a body. Of a failure, whatever can be read is good enough."""
    if not raw:
        return None
    kind, _, parameters = content_type.lower().partition(";")
    kind = kind.strip()
    if not kind or kind == "application/json" or kind.endswith("+json"):
        try:
            return _json(raw)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            if ok:
                raise _malformed("the upstream's answer is not valid JSON") from error
            return _text(raw, "")
    if ok and (not kind.startswith("text/") or kind == "text/html"):
        raise _malformed(
            f"the upstream answered with {_shown(kind)} where JSON or plain text was expected",
            code="unexpected_content_type",
        )
    return _text(raw, parameters)


def _json(raw: bytes) -> object:
    value: object = msgspec.json.decode(raw.removeprefix(b"\xef\xbb\xbf"))
    if measure(value, MAX_INPUT_NODES) is None:
        raise ValueError("too many values")
    return value


def _shown(kind: str) -> str:
    return (
        kind[:60]
        if kind.replace("/", "").replace("-", "").replace("+", "").isalnum()
        else "something"
    )


def _text(raw: bytes, parameters: str) -> str:
    # Others are rare, and a codec chosen by an upstream may be anything Python knows.
    latin = "charset=iso-8859-1" in parameters or "charset=windows-1252" in parameters
    return raw.decode("cp1252" if latin else "utf-8", "replace")


def _retry_after(value: str | None) -> float | None:
    """Read `Retry-After`, in seconds or as a date (RFC 9110, section 10.2.3)."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(min(int(value.strip()[:10]), 86_400))
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    # A date is about the wall clock, on both sides.
    return min(max(0.0, moment.timestamp() - time.time()), 86_400.0)


def _malformed(message: str, *, code: str = "malformed_reply") -> StageError:
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
        # With a plain text the client itself noticed that the peer hung up; else it wraps
        # what its parser refused.
        if error.args and isinstance(error.args[0], str):
            raise _broke_off() from error
        raise _malformed("the upstream's answer is not valid HTTP") from error
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
