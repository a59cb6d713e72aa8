"""The requests of a flow, sent: to guarded addresses only, bounded in time and size."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Self

import httpcore2
import httpx2
import trio
import trio.lowlevel

from mcp_trio.auth.steps import Answer, Ask
from mcp_trio.network_guard import (
    BlockedAddressError,
    Guard,
    GuardedBackend,
    GuardedTransport,
    NetworkPolicy,
    Resolve,
    resolve,
)
from mcp_trio.transports.handshakes import handshake_reason
from mcp_trio.transports.http_endpoint import reading

ASK_TIMEOUT = 30.0
"""Seconds for one request."""
SETTLE_TIMEOUT = 10.0
"""Seconds for a request that uses something up, which also a cancelled task waits for."""
MAX_BODY = 1024 * 1024
"""Bytes of one answer."""
CLOSE_TIMEOUT = 2.0
KEEP_ALIVE = 2.0
"""Seconds that a connection is used again; many servers close it after five."""


class Outward:
    """Sends the requests of one flow. An async context manager that owns its sockets.

    Args:
        policy: what may be reached beside public addresses.
        http: sends the requests in place of guarded sockets; stays the caller's.
        resolver: finds the addresses that the guard judges.
        host: the only one to ask, where that was configured; None for those that servers name.
        tls: gives the context for https, for those who have one.
    """

    def __init__(
        self,
        policy: NetworkPolicy,
        http: httpx2.AsyncBaseTransport | None = None,
        resolver: Resolve = resolve,
        *,
        host: str | None = None,
        tls: Callable[[], ssl.SSLContext] = httpx2.create_ssl_context,
    ) -> None:
        self._policy = policy
        self._given = http
        self._resolver = resolver
        self._host = host
        self._tls = tls
        self._made: dict[tuple[str, bool], httpx2.AsyncBaseTransport] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        made, self._made = list(self._made.values()), {}
        with trio.move_on_after(CLOSE_TIMEOUT, shield=True):
            for transport in made:
                await transport.aclose()

    async def ask(self, question: Ask) -> Answer:
        """Send a request, and read the answer whole. What goes wrong is said in the answer.

        A request that settles something is waited for even by a cancelled task, for at most
        `SETTLE_TIMEOUT` seconds.
        """
        limit = SETTLE_TIMEOUT if question.settles else ASK_TIMEOUT
        with trio.move_on_after(limit, shield=question.settles):
            try:
                return await self._exchange(question)
            except BlockedAddressError:
                return Answer(status=0, reason="is at an address that must not be reached")
            except (httpx2.HTTPError, httpx2.InvalidURL, *_BROKEN) as error:
                why = handshake_reason(error) or type(error).__name__
                return Answer(status=0, reason=f"cannot be reached ({why})")
        # Whoever was cancelled meanwhile hears of that, not of the time.
        await trio.lowlevel.checkpoint_if_cancelled()
        return Answer(status=0, reason="did not answer in time")

    async def _exchange(self, question: Ask) -> Answer:
        request = httpx2.Request(
            question.method, question.url, headers=dict(question.headers), content=question.body
        )
        transport = self._transport(request.url.scheme, new=question.settles)
        response = await transport.handle_async_request(request)
        body = bytearray()
        try:
            async with reading(response.aiter_bytes()) as chunks:
                async for chunk in chunks:
                    body += chunk
                    if len(body) > MAX_BODY:
                        return Answer(status=0, reason="answered too much")
        finally:
            await response.aclose()
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answer(status=response.status_code, headers=headers, body=bytes(body))

    def _transport(self, scheme: str, *, new: bool) -> httpx2.AsyncBaseTransport:
        """What sends a request; `new` is for those that must not be lost.

        A server closes a connection that it has not heard of for a while, the while that a person
        took, and whatever is under way then is lost. These go over connections of their own.
        """
        if self._given is not None:
            return self._given
        if (scheme, new) not in self._made:
            # A host that a server names is not trusted because of its name.
            guard = Guard(host=self._host, policy=self._policy)
            tls = self._tls() if scheme == "https" else None
            self._made[scheme, new] = GuardedTransport(
                GuardedBackend(guard, resolver=self._resolver), tls, keep_alive=KEEP_ALIVE
            )
        return self._made[scheme, new]


_BROKEN = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.TimeoutException,
    httpcore2.UnsupportedProtocol,
)
