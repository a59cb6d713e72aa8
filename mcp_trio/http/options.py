"""The settings of the HTTP endpoint, apart from those of the socket layer."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias, cast

import attrs
import trio

from mcp_trio.abc import RequestHead, ResourceGuard
from mcp_trio.engine.envelope import Principal
from mcp_trio.errors import ConfigurationError, OverloadedError, UnauthorizedError, sole_cause
from mcp_trio.framing.gate import LOOPBACK_NAMES, GatePolicy
from mcp_trio.session.dispatch import handler_failed

IDENTIFY_TIMEOUT = 30.0
"""Seconds that `HTTPOptions.identify` may take: it holds a connection meanwhile."""

Identify: TypeAlias = Callable[[RequestHead], Principal | Awaitable[Principal | None] | None]
"""Takes the head of a request; says who sent it."""

LEGACY_SSE_PATH = "/sse"
"""Where the HTTP+SSE transport is, unless it is elsewhere or not served."""


@attrs.frozen(kw_only=True)
class HTTPOptions:
    """What the endpoint allows. Every bound has a clear refusal.

    How many requests may run, and how often they may come, is the same on every transport: see
    `mcp_trio.session.limits.LoadLimits`, which are in the options of the server.
    """

    path: str = "/mcp"
    """Where the endpoint is; the same path with a slash at the end is served too."""
    legacy_sse_path: str | None = LEGACY_SSE_PATH
    """Where clients of the HTTP+SSE transport open their stream; None does not serve them."""
    legacy_messages_path: str = "/messages"
    """Where those clients POST to."""
    allowed_hosts: frozenset[str] = frozenset()
    """Host names, without port, that are served besides the ones of the address bound:
    loopback names on loopback, any IP address elsewhere. `*` serves every name. Others get 403."""
    allowed_origins: frozenset[str] = frozenset()
    """Web origins, such as `https://app.example`, served besides the server's own (403)."""
    identify: Identify | None = None
    """Says who sends a request, plain or async, once per HTTP request and per WebSocket. None is
    nobody in particular; an `UnauthorizedError` it raises is a 401, and a
    `mcp_trio.abc.ChallengeError` says itself what it is; an `OverloadedError` and taking more
    than 30 seconds is a 503, any other failure a 500. A session belongs to the one who
    opened it, to others it does not exist (H12); each request in it has its own principal."""
    auth: ResourceGuard | None = None
    """In place of `identify`: one that also tells HTTP clients how to prove who they are, such as
    a `mcp_trio.auth.resource_server.ResourceServer`."""
    max_body: int = 4 * 1024 * 1024
    """Bytes of a request body (413), and of a WebSocket message (close code 1009)."""
    max_total_body: int = 256 * 1024 * 1024
    """Bytes of all request bodies together, from their first byte until they are answered (503
    with Retry-After)."""
    body_timeout: float = 30.0
    """Seconds for a request body to arrive (408)."""
    max_depth: int = 64
    """Nesting of a JSON body (400, -32600)."""
    max_nodes: int = 100_000
    """Values in a JSON body: one, and one for each comma and each opening bracket (400,
    -32600)."""
    max_batch: int = 100
    """Messages in an array, where a revision has arrays (400, -32600)."""
    max_sessions: int = 1000
    """Sessions of the handshake era, WebSockets and HTTP+SSE streams (503 with Retry-After). Before
    one is refused, the session without a connection that is silent longest, for a minute at
    least, is ended to make room."""
    session_prefix: str = ""
    """What ids of sessions begin with, so that whoever stands before several servers can see which
    one has a session."""
    session_idle_timeout: float = 1800.0
    """Seconds without a running request, an open stream or a message, then a session ends. The
    connection of a WebSocket or HTTP+SSE session counts for nothing here, messages do."""
    sse_after: float = 2.0
    """Seconds after which a slow answer becomes a stream where streams can be resumed."""
    replay_events: int = 256
    """Events of a session kept for `Last-Event-ID`."""
    replay_bytes: int = 1024 * 1024
    """Bytes of a session's events kept for `Last-Event-ID`."""
    cleanup_timeout: float = 5.0
    """Seconds a cancelled request may shield itself for cleanup."""

    def __attrs_post_init__(self) -> None:
        """Raise `ConfigurationError` now if two of them would say who calls."""
        if self.auth is not None and self.identify is not None:
            raise ConfigurationError("give either identify or auth")

    def at(self, path: str) -> HTTPOptions:
        """The same for another endpoint on the port; HTTP+SSE has one place only.

        Raises:
            ConfigurationError: `auth` is not about `path` of these options.
        """
        auth = None if self.auth is None else self.auth.moved(self.path, path)
        return attrs.evolve(self, path=path, legacy_sse_path=None, auth=auth)

    def gate(self, host: str) -> GatePolicy:
        """The Host and Origin policy of a server bound to an address."""
        local = host in LOOPBACK_BINDS
        names = frozenset(name.lower() for name in self.allowed_hosts)
        return GatePolicy(
            hosts=names | LOOPBACK_NAMES,
            origins=frozenset(origin.lower().rstrip("/") for origin in self.allowed_origins),
            any_address=not local,
        )


def good_until(principal: Principal | None) -> float:
    """When the proof of who calls ends, on Trio's clock; infinity if it does not."""
    if principal is None or principal.expires is None:
        return math.inf
    return trio.current_time() + principal.expires - time.time()


LOOPBACK_BINDS = frozenset({"127.0.0.1", "::1", "localhost"})


async def identified(
    options: HTTPOptions, head: RequestHead, scopes: frozenset[str]
) -> Principal | None:
    """Who sends a request.

    Args:
        options: who is asked.
        head: of the request.
        scopes: that everybody needs at the endpoint.

    Raises:
        UnauthorizedError: `identify` refuses it.
        OverloadedError: it says so, or takes longer than `IDENTIFY_TIMEOUT`.
        HandlerFailedError: it failed otherwise, or gave what is no principal; logged.
    """
    try:
        with trio.move_on_after(IDENTIFY_TIMEOUT):
            made: object = None
            if options.auth is not None:
                made = options.auth.identify(head, scopes)
            elif options.identify is not None:
                made = options.identify(head)
            found = cast("object", await made) if inspect.isawaitable(made) else made
            if found is not None and not isinstance(found, Principal):
                raise TypeError(f"a caller is a Principal or None, not a {type(found).__name__}")
            return found
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary: it may raise anything
        cause = sole_cause(error)
        if isinstance(cause, UnauthorizedError | OverloadedError):
            raise cause from None
        raise handler_failed("identify", cause) from cause
    raise OverloadedError("It took too long to find out who calls")
