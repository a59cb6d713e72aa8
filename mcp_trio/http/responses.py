"""Writing HTTP responses over ASGI: whole JSON bodies, and event streams begun late.

The form of an answer is chosen as late as possible, because once a stream has begun
its status is 200 for good (A6).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, TypeAlias, cast

import attrs

from mcp_trio.errors import INVALID_REQUEST, MISSING_CAPABILITY, UNAUTHORIZED, ErrorCode
from mcp_trio.framing.gate import Accepts
from mcp_trio.framing.sse import COMMENT, encode_event, encode_retry
from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.messages import Error, Message
from mcp_trio.session.middleware import needed_scopes
from mcp_trio.session.places import OF_ONE, Limit

# The ASGI specification's own loose types.
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]

JSON = b"application/json"
_STREAM: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


STATUSES = {MISSING_CAPABILITY: 400, UNAUTHORIZED: 403}
"""HTTP status of an answer by its JSON-RPC code, as long as no stream has begun. Everything else
that a handler answers is 200, because clients drop the connection over other statuses; but for
what was over a limit of load, see `refusal_status`."""
TOO_MANY, UNAVAILABLE = 429, 503


@attrs.frozen
class Verdict:
    """How an answer travels if it is alone."""

    status: int = 200
    scopes: frozenset[str] = frozenset()
    """All that the request needs, where it is refused because the caller lacks some."""
    retry_after: bytes | None = None
    """Seconds, where it is refused because it was over a limit."""


_GRANTED = Verdict()


def verdict_of(reply: Message) -> Verdict:
    """Judge an answer."""
    if not isinstance(reply, Error):
        return _GRANTED
    if reply.code in STATUSES:
        return Verdict(STATUSES[reply.code], needed_scopes(reply.data))
    data: object = reply.data
    if isinstance(data, Mapping):
        told = cast("Mapping[str, object]", data)
        limit, wait = told.get("limit"), told.get("retryAfterMs")
        if isinstance(limit, str) and limit in _LIMITS and isinstance(wait, int):
            return Verdict(refusal_status(limit), retry_after=seconds(wait / 1000))
    return _GRANTED


_LIMITS = frozenset(limit.value for limit in Limit)


def refusal_status(limit: str | None) -> int:
    """The HTTP status of what was over a limit: the caller's own (429), or that of all (503)."""
    return TOO_MANY if limit in OF_ONE else UNAVAILABLE


def seconds(wait: float) -> bytes:
    """A time as `Retry-After` has it: whole seconds, one at least, and never too few."""
    return b"%d" % max(1, math.ceil(wait))


RETRY_AFTER: Header = (b"retry-after", b"1")
"""When to come back, in seconds, of a 503 that does not know better."""


async def respond(
    send: Send,
    status: int,
    body: bytes = b"",
    headers: Iterable[Header] = (),
    *,
    media: bytes = JSON,
) -> None:
    """Send a whole response."""
    fields: list[Header] = list(headers)
    if status != 204:  # which must not announce a length (RFC 9110, section 8.6)
        fields.append((b"content-length", b"%d" % len(body)))
    if body:
        fields.append((b"content-type", media))
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


async def refuse(
    send: Send,
    status: int,
    reason: str,
    *,
    error: Error | None = None,
    headers: Iterable[Header] = (),
) -> None:
    """Send a refusal with a JSON-RPC body; without `error` one that has no id.

    A 503 says when to come back.
    """
    headers = tuple(headers)
    if status == 503 and all(name != RETRY_AFTER[0] for name, _ in headers):
        headers = (*headers, RETRY_AFTER)
    if error is None:
        data = {"code": ErrorCode.PROTOCOL_INVALID.value}
        error = Error(None, INVALID_REQUEST, reason, data)
    await respond(send, status, codec.encode(error), headers)


class Responder:
    """One response to one POST or GET, either form.

    `event` turns it into a stream; `finish` sends the last message in whichever form
    the response has by then.
    """

    __slots__ = ("accepts", "challenge", "ending", "granted", "headers", "send", "streaming")

    def __init__(
        self,
        send: Send,
        accepts: Accepts,
        headers: tuple[Header, ...],
        challenge: Callable[[frozenset[str]], tuple[int, tuple[Header, ...]]],
    ) -> None:
        self.send = send
        self.challenge = challenge
        """Gives status and header fields of a refusal for want of scopes."""
        self.accepts = accepts
        self.headers = headers
        """Added to either form."""
        self.granted: tuple[Header, ...] = ()
        """Added too unless the request is refused."""
        self.streaming = False
        self.ending = False
        """The last part is on its way: from now on a client that leaves has been answered.
        Some ASGI servers say "disconnect" as soon as they have it."""

    async def begin(self) -> None:
        """Make it a stream now. The second call does nothing."""
        if not self.streaming:
            self.streaming = True
            await self.send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [*_STREAM, *self.headers, *self.granted],
                }
            )

    async def event(self, data: bytes, *, id: str | None = None) -> None:  # noqa: A002 - the field's own name
        """Send one event, if the client takes streams at all."""
        if self.accepts.sse:
            await self.begin()
            await self.chunk(encode_event(data, id=id))

    async def comment(self) -> None:
        """Send a line that means nothing, so that nobody thinks the stream dead."""
        if self.accepts.sse:
            await self.begin()
            await self.chunk(COMMENT)

    async def retry(self, milliseconds: int) -> None:
        """Say when to come back; for a stream whose connection ends before it does (H5)."""
        await self.begin()
        await self.chunk(encode_retry(milliseconds))

    async def chunk(self, data: bytes) -> None:
        """Send encoded events of a stream that has begun."""
        await self.send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self, data: bytes, *, verdict: Verdict = _GRANTED) -> None:
        """Send the last message and end the response."""
        self.ending = True
        if not self.streaming and self.accepts.json:
            status, more = verdict.status, self.granted if verdict.status < 300 else ()
            if verdict.scopes:
                status, more = self.challenge(verdict.scopes)
            elif verdict.retry_after is not None:
                more = ((RETRY_AFTER[0], verdict.retry_after),)
            await respond(self.send, status, data, (*self.headers, *more))
            return
        await self.begin()
        body = encode_event(data)
        await self.send({"type": "http.response.body", "body": body, "more_body": False})

    async def end(self) -> None:
        """End the response without a message: an empty stream, or no content at all."""
        self.ending = True
        if not self.streaming and not self.accepts.sse:
            await respond(self.send, 204, headers=self.headers)
            return
        await self.begin()
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})
