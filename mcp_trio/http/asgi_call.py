"""One ASGI call: the application task of one request, its inbox, its `send`, and what ends it.

The HTTP versions differ below this file (`http1`, `http2`) and the socket lives in `connection`.
Hypercorn's streams see a call as `AppCall.put`; the application sees `AppCall.receive`,
`AppCall.send` and, among the scope's extensions, a `ConnectionHandle`. Nothing here blocks the
connection's reader: `put` only stores, and a full inbox is a flag that the reader looks at before
it reads on, so news of a lost peer always gets through.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext, suppress
from typing import Any, Protocol, cast

import trio

LOGGER = logging.getLogger("mcp_trio.http")

Scope = dict[str, object]
Message = dict[str, object]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Mapping[str, object]], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]
Respond = Callable[[Mapping[str, object] | None], Awaitable[None]]

EXTENSION = "mcp_trio.connection"
"""The key of the `ConnectionHandle` in ``scope["extensions"]``."""

INBOX_BYTES = 65536
INBOX_MESSAGES = 128
"""How much a call may hold unread before its connection stops reading."""
JOINED_BYTES = 1024
"""How large pieces of a body are made that came in smaller ones."""


class Link(Protocol):
    """What a call needs of the connection that carries it."""

    half_closed: bool
    broken: bool

    @property
    def client(self) -> tuple[str, int] | None:
        """Address and port of the peer."""
        ...

    def in_reader(self) -> bool:
        """Whether the running task is the connection's reader."""
        ...

    def wake_reader(self) -> None:
        """Let the reader look again at what it waits for."""
        ...

    async def answer(self, start: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
        """Take a whole answer from a call; False if it has to be given part by part."""
        ...

    async def deliver(self) -> None:
        """Take what the call has just said to the peer; sets `broken` when that fails."""
        ...

    async def invite_body(self) -> None:
        """Tell a client that waits for ``100 Continue`` to go on."""
        ...

    def end_call(self, call: "AppCall") -> None:
        """Forget a call whose application has returned."""
        ...


class ConnectionHandle:
    """What an application may know of the connection its request came on.

    Found at ``scope["extensions"]["mcp_trio.connection"]``.
    """

    __slots__ = ("_callback", "_link", "_lost", "body_arrived")

    def __init__(self, link: Link) -> None:
        self.body_arrived = False
        """Whether all of the request's body is there: the next message has it."""
        self._link = link
        self._callback: Callable[[], object] | None = None
        self._lost = False

    @property
    def client(self) -> tuple[str, int] | None:
        """Address and port of the peer; None where the stream has none."""
        return self._link.client

    @property
    def half_closed(self) -> bool:
        """Whether the peer has said that it will send no more, though it still listens."""
        return self._link.half_closed

    def on_disconnect(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` as soon as this request has lost its peer.

        It runs at most once, in the connection's own task, without arguments, and must not
        block: cancelling a scope or setting an event is what it is for. It runs when the peer
        closed or reset, stopped reading for ``write_timeout``, broke the protocol, reset the
        HTTP/2 stream, and at a hard stop; at once, if that has happened already; never, once
        the response has been handed over completely. A second registration replaces the first.
        """
        if self._lost:
            callback()
        else:
            self._callback = callback

    def lose_peer(self) -> None:
        """Run the callback, the first time. For the connection."""
        callback, self._callback, self._lost = self._callback, None, True
        if callback is not None:
            callback()


async def unheard(message: object) -> None:
    """Drop what is said for a call, or a connection, that is over."""


class AppCall:
    """One run of the application. Owned by its connection's nursery."""

    def __init__(
        self,
        link: Link,
        scope: Scope,
        respond: Respond,
        *,
        grace: float,
        limit: trio.CancelScope | None = None,
    ) -> None:
        """Prepare the call; `run` is the task.

        Args:
            link: the connection.
            scope: the ASGI scope, to which the handle is added.
            respond: the protocol stream's ``app_send``; it ends the response on None.
            grace: seconds the application keeps after its peer is lost.
            limit: a scope around the call that may be cancelled then, because all that is in it has
                lost the same peer; None for a scope of the call's own, which costs a while.
        """
        self.handle = ConnectionHandle(link)
        self.consumed: Callable[[int], None] | None = None
        """Told the size of each body message the application has taken, by a protocol that
        opens its flow-control window only then."""
        cast("dict[str, object]", scope["extensions"])[EXTENSION] = self.handle
        self.lost = False
        """The peer went before the response was complete, and the application has been told."""
        self._link = link
        self._scope = scope
        self._respond = respond
        self._grace = grace
        self._answered = False  # the complete response has been handed over
        self._handed = False  # it is with the connection, which may have yet to write it
        self._held_start: Mapping[str, object] | None = None  # until the first body message
        self._started = False  # a start message has been held or passed on
        self._inbox: deque[tuple[Message, int]] = deque()  # messages and their sizes
        self._unread = 0  # the sum of those sizes
        self._goodbye: Message | None = None  # what `receive` says for ever after the inbox
        self._left = False  # `lose_peer` has been called
        self._arrival: trio.Event | None = None  # exists while someone waits in `receive`
        self._shared = limit is not None
        self._limit = limit or trio.CancelScope()

    @property
    def full(self) -> bool:
        """Whether the reader should stop until the application has received more."""
        return self._unread > INBOX_BYTES or len(self._inbox) > INBOX_MESSAGES

    @property
    def unread(self) -> int:
        """Bytes of request body the application has not taken."""
        return self._unread

    # The protocol's side.

    async def put(self, message: Message) -> None:
        """Store a message for the application. Never blocks; see `full`."""
        kind = message["type"]
        if kind in {"http.disconnect", "websocket.disconnect"}:
            self._goodbye = message
            # Hypercorn says "disconnect" after a complete response too, but from the task that
            # has sent it. From the reader it always means that the peer left early.
            if self._link.in_reader():
                self.lose_peer()
            else:
                self.end()
        else:
            content = message.get("body") or message.get("text") or message.get("bytes") or b""
            size = len(cast("bytes | str", content))
            self._unread += size
            if kind != "http.request" or not self._joined(message, size):
                self._inbox.append((message, size))
            self.handle.body_arrived = (
                len(self._inbox) == 1 and self._inbox[0][0].get("more_body") is False
            )
        self._announce()

    def _joined(self, message: Message, size: int) -> bool:
        """Add a piece of the body to the one before it, if the application has that one to take.

        Most bodies come as one piece and an empty last one: that spares the second receive. And a
        peer that sends its body byte by byte must not make each byte a message of its own.
        """
        if not self._inbox:
            return False
        last, held = self._inbox[-1]
        if size and held + size > JOINED_BYTES:
            return False
        if size:
            last["body"] = cast("bytes", last["body"]) + cast("bytes", message["body"])
            self._inbox[-1] = (last, held + size)
        last["more_body"] = message["more_body"]
        return True

    def end(self) -> None:
        """Note that the connection has all of the response, which may have yet to be written."""
        self._handed = True

    def written(self) -> None:
        """Note that the connection has written all that it had.

        That may have been another task than the one which sends the response, and the connection
        may be over before that one has its turn.
        """
        if self._handed and not self._peer_gone():
            self._answered = True

    def give_up(self) -> None:
        """Take the peer for lost in the task that sends; the reader will say so, too."""
        self.lost = True

    def lose_peer(self) -> None:
        """Tell the application that nobody listens any more, and limit its remaining time.

        Idempotent. Runs the `ConnectionHandle` callback, unless the response is complete.
        """
        if self._left:
            return
        self._left = True
        if self._goodbye is None:
            if self._scope["type"] == "websocket":
                self._goodbye = {"type": "websocket.disconnect", "code": 1006}
            else:
                self._goodbye = {"type": "http.disconnect"}
        self._announce()
        self._limit.deadline = min(self._limit.deadline, trio.current_time() + self._grace)
        if not self._answered:
            self.lost = True
            self.handle.lose_peer()

    def _announce(self) -> None:
        arrival, self._arrival = self._arrival, None
        if arrival is not None:
            arrival.set()

    # The application's side.

    async def run(self, app: ASGIApp) -> None:
        """Run the application, then complete, refuse or cut the response it left behind."""
        try:
            await self._run_limited(app)
            if not self._peer_gone():
                with suppress(trio.BrokenResourceError):
                    await self._respond(None)
                await self._link.deliver()
        finally:
            self._link.end_call(self)
            # The stream refers to its call: without this both would be left to the collector.
            self._respond = unheard

    async def _run_limited(self, app: ASGIApp) -> None:
        ended = False
        try:
            with nullcontext() if self._shared else self._limit:
                await self._run_guarded(app)
                ended = True
        finally:
            if not ended and trio.current_time() >= self._limit.deadline:
                LOGGER.warning(
                    "application cancelled: still running %.1f s after its peer was lost (%s)",
                    self._grace,
                    self._scope["path"],
                )

    async def _run_guarded(self, app: ASGIApp) -> None:
        try:
            await app(self._scope, self.receive, self.send)
        except* trio.BrokenResourceError as fault:
            # The way `send` says that nobody listens; no fault of an application that lets it by.
            if not self._peer_gone():
                self._report(fault)
        except* Exception as fault:  # noqa: BLE001 - the boundary around the application
            self._report(fault)

    def _report(self, fault: BaseException) -> None:
        LOGGER.error("application failed (%s)", self._scope["path"], exc_info=fault)

    def _peer_gone(self) -> bool:
        return self.lost or self._link.broken

    async def receive(self) -> Message:
        """ASGI ``receive``: the next message; after the last one, disconnect, for ever."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._inbox:
            if self._goodbye is not None:
                return self._goodbye
            await self._link.invite_body()
            if self._arrival is None:
                self._arrival = trio.Event()
            await self._arrival.wait()
        was_full = self.full
        message, size = self._inbox.popleft()
        self._unread -= size
        if self.consumed is not None:
            self.consumed(size)
        if was_full and not self.full:
            self._link.wake_reader()
        return message

    async def send(self, message: Mapping[str, object]) -> None:
        """ASGI ``send``: returns when the kernel, or the HTTP/2 stream's buffer, has the bytes.

        The response start waits for the first body message and both leave in one write.
        Cancelling is possible at any time. A cancelled HTTP/1.1 send leaves an unknown part on
        the wire, so the connection is dropped; nothing is written if the scope had been cancelled
        before.

        Raises:
            trio.BrokenResourceError: the peer is gone, or has not read for ``write_timeout``.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_peer()
        if message["type"] == "http.response.start" and not self._started:
            self._started = True
            self._held_start = message
            return
        start, self._held_start = self._held_start, None
        if start is None or message.get("more_body") or not await self._whole(start, message):
            if start is not None:
                await self._respond(start)
            await self._respond(message)
        await self._link.deliver()
        if self._answered:
            return
        self._check_peer()
        if self._goodbye is not None:
            self._answered = True
        elif message.get("more_body"):
            # A peer that reads fast must not let a stream that never waits starve the others.
            await trio.lowlevel.checkpoint()

    async def _whole(self, start: Mapping[str, object], message: Mapping[str, object]) -> bool:
        """Answer with all there is at once, if that can be."""
        return message["type"] == "http.response.body" and await self._link.answer(start, message)

    def _check_peer(self) -> None:
        if self._peer_gone():
            raise trio.BrokenResourceError("the peer of this request is gone")
