"""What a client keeps of a server's answers, for as long as the server says (K2 to K5).

Kept are complete answers to the cacheable methods, as bytes, so that nobody can change what
another caller gets. Time is Trio's clock. Nothing here knows how an answer is fetched.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias, cast

import attrs
import trio
import trio.lowlevel

from mcp_trio.engine.subscriptions import (
    PROMPTS_CHANGED,
    RESOURCE_UPDATED,
    RESOURCES_CHANGED,
    TOOLS_CHANGED,
)
from mcp_trio.errors import INVALID_PARAMS, RemoteError, RequestTimeoutError, TransportError
from mcp_trio.framing.uri_template import normal
from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.messages import Notification
from mcp_trio.wire import METHODS, JSONObject

logger = logging.getLogger("mcp_trio.client")

READ = "resources/read"
OUTDATES: dict[str, tuple[str, ...]] = {
    TOOLS_CHANGED: ("tools/list",),
    PROMPTS_CHANGED: ("prompts/list",),
    RESOURCES_CHANGED: ("resources/list", "resources/templates/list"),
    RESOURCE_UPDATED: (READ,),
}
"""Which answers a notice makes old."""
ONCE = ("inputResponses", "requestState")
"""Parameters of a call whose answer nobody else may get (K5)."""


def _nobody() -> str:
    return ""


@attrs.frozen(kw_only=True)
class CacheOptions:
    """Bounds and manners of a client's cache."""

    max_entries: int = 256
    """Answers that are kept; the oldest goes first."""
    max_bytes: int = 16 * 1024 * 1024
    """Bytes of all of them together."""
    stale_on_error: float = 0.0
    """Seconds that an answer may still be given after its time, when the server does not answer:
    the line is broken or the call took too long. What a change notice made old is never given."""
    principal: Callable[[], str] = _nobody
    """As whom the client asks at this moment. What a server calls private is given back only to
    the one who asked for it (K4). `ClientOptions.auth` tells that by itself; needed where a
    transport of your own changes its credentials."""


class Asker(Protocol):
    """Tells as whom requests are sent."""

    @property
    def identity(self) -> object:
        """At present; compared by equality."""
        ...

    async def settle(self) -> object:
        """With the next request; the `identity` afterwards."""
        ...


Who: TypeAlias = "tuple[str, object]"
"""What the program says of who asks, and what the credentials say."""


@attrs.frozen
class _Ticket:
    """One question: what was asked, by whom, and after how many changes."""

    method: str
    params: bytes
    who: Who
    changes: int


@attrs.frozen
class _Kept:
    body: bytes
    until: float
    uri: str | None


class ResponseCache:
    """The answers that one client keeps."""

    def __init__(self, options: CacheOptions, asker: Asker) -> None:
        self._options = options
        self._asker = asker
        # Oldest first. The last part of the key is the principal, None for what is public.
        self._kept: dict[tuple[str, bytes, Who | None], _Kept] = {}
        self._size = 0
        self._changes: dict[str, int] = {}
        """How often the answers to a method became old."""

    def __len__(self) -> int:
        """How many answers are kept, old ones included."""
        return len(self._kept)

    async def through(
        self,
        method: str,
        params: JSONObject | None,
        ask: Callable[[], Awaitable[tuple[JSONObject, bool]]],
        *,
        use: bool,
        deadline: float = math.inf,
    ) -> JSONObject:
        """Give a fresh answer that is kept, or ask and keep what comes.

        Args:
            method: of the call.
            params: of the call, without what is added to every request.
            ask: asks the server; gives its answer, and whether only the first question of
                the call was needed for it.
            use: False asks the server in any case. What it answers is kept all the same.
            deadline: on Trio's clock, for finding out who asks; `ask` keeps it by itself.

        Raises:
            RequestTimeoutError: it was not known in time who asks.
            MCPError: whatever `ask` raises, unless an old answer may stand in for it.
        """
        ticket = await self._ticket(method, params, deadline)
        if ticket is None:
            return (await ask())[0]
        if use and (found := self._find(ticket, 0.0)) is not None:
            await trio.lowlevel.checkpoint()
            return found
        try:
            answer, at_once = await ask()
        except RemoteError as error:
            if error.rpc_code == INVALID_PARAMS and "cursor" in (params or {}):
                self.forget(method)  # the pages belong to a list that is no more (K4)
            raise
        except (TransportError, RequestTimeoutError) as error:
            old = self._find(ticket, self._options.stale_on_error) if use else None
            if old is None:
                raise
            logger.warning("an old answer to %s has to do: %s", method, error)
            return old
        if at_once:
            self._keep(ticket, answer)
        return answer

    def outdate(self, notice: Notification) -> None:
        """Drop what a change notice makes old; an answer that is on its way is not kept."""
        uri = (notice.params or {}).get("uri")
        for method in OUTDATES.get(notice.method, ()):
            self.forget(method, uri if isinstance(uri, str) else None)

    def forget(self, method: str | None = None, uri: str | None = None) -> None:
        """Drop all answers, or those to one method.

        Args:
            method: None for every method.
            uri: drop only what was read from this place or from one above it.
        """
        for key, kept in tuple(self._kept.items()):
            if method in {None, key[0]} and (uri is None or _is_above(kept.uri, normal(uri))):
                self._drop(key)
        for name in METHODS if method is None else (method,):
            self._changes[name] = self._changes.get(name, 0) + 1

    async def _ticket(
        self, method: str, params: JSONObject | None, deadline: float
    ) -> _Ticket | None:
        row = METHODS.get(method)
        if row is None or not row.cacheable or any(name in (params or {}) for name in ONCE):
            return None
        try:
            asked = codec.encode_sorted(params or {})
        except (ValueError, TypeError, OverflowError, RecursionError):
            return None  # sending it will say what is wrong with it
        with trio.move_on_at(deadline):
            await self._asker.settle()
            return _Ticket(method, asked, self._who(), self._changes.get(method, 0))
        raise RequestTimeoutError(f"the credentials for {method} were not there in time")

    def _who(self) -> Who:
        return self._options.principal(), self._asker.identity

    def _find(self, ticket: _Ticket, grace: float) -> JSONObject | None:
        for owner in (None, ticket.who):
            key = (ticket.method, ticket.params, owner)
            kept = self._kept.get(key)
            if kept is None:
                continue
            now = trio.current_time()
            if now < kept.until + grace:
                return cast("JSONObject", codec.decode_value(kept.body))
            if now >= kept.until + self._options.stale_on_error:
                self._drop(key)
        return None

    def _keep(self, ticket: _Ticket, answer: JSONObject) -> None:
        for owner in (None, ticket.who):
            self._drop((ticket.method, ticket.params, owner))
        ttl = answer.get("ttlMs")
        complete = answer.get("resultType", "complete") == "complete"
        changed = self._changes.get(ticket.method, 0) != ticket.changes
        if type(ttl) is not int or ttl <= 0 or changed or not complete:
            return
        public = answer.get("cacheScope") == "public"
        if not public and self._who() != ticket.who:
            return  # it may be the answer to somebody else
        body = codec.encode_read(answer)
        if len(body) > self._options.max_bytes or self._options.max_entries < 1:
            return
        owner = None if public else ticket.who
        uri = cast("JSONObject", codec.decode_value(ticket.params)).get("uri")
        place = normal(uri) if isinstance(uri, str) else None
        kept = _Kept(body, trio.current_time() + ttl / 1000, place)
        self._kept[ticket.method, ticket.params, owner] = kept
        self._size += len(body)
        while len(self._kept) > self._options.max_entries or self._size > self._options.max_bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[str, bytes, Who | None]) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._size -= len(kept.body)


def _is_above(place: str | None, uri: str) -> bool:
    """Tell whether a place is the URI or holds it, as a folder holds its files."""
    return place is not None and (uri == place or uri.startswith(place.rstrip("/") + "/"))
