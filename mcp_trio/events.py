"""What is told to observers: typed events, and the hub that hands them out.

An event says what has happened and changes nothing. Whoever is told can neither delay nor
break what it is told about: subscribers read from bounded channels that lose events rather
than fill up, and what an attached function raises is logged. Who emits is decided in
`session`, `http` and `catalog`; what is made of events (metrics, logs) in `telemetry`.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from typing import ClassVar, Literal, TypeAlias

import attrs
import trio
import trio.lowlevel

from mcp_trio.wire.basic import JSONObject, RequestId

logger = logging.getLogger("mcp_trio.events")

Side: TypeAlias = Literal["server", "client", "peer"]
"""Who tells. A bare `Dispatcher` that nobody named is a peer."""
Direction: TypeAlias = Literal["inbound", "outbound"]
"""Whether the other side began it, or this one."""
Outcome: TypeAlias = Literal["success", "error", "cancelled"]
"""How a request ended. A tool's result with `isError` is an error, and so is a deadline that
passed; cancelled is what the asking side gave up and what ended with its session."""

CAPACITY = 256
"""Events that wait for one subscriber, unless it says otherwise."""


@attrs.frozen(kw_only=True)
class ConnectionOpened:
    """A session began: a `Dispatcher` runs. Requests without a session have none."""

    name: ClassVar[str] = "connection:opened"
    side: Side
    dispatcher_id: str
    """Unique in this process."""


@attrs.frozen(kw_only=True)
class ConnectionClosed:
    """A session ended."""

    name: ClassVar[str] = "connection:closed"
    side: Side
    dispatcher_id: str
    reason: str
    """`the peer closed the line` or `closed here`."""


@attrs.frozen(kw_only=True)
class RequestReceived:
    """The other side sent a request; it may still be refused."""

    name: ClassVar[str] = "request:received"
    side: Side
    method: str
    """As it was sent, so it may be any text."""
    id: RequestId


@attrs.frozen(kw_only=True)
class RequestCompleted:
    """A request ended: one that was received, or one that this side sent."""

    name: ClassVar[str] = "request:completed"
    side: Side
    method: str
    id: RequestId
    duration_ms: float
    outcome: Outcome
    direction: Direction
    """`inbound` for one that was received."""
    cancel_ms: float | None = None
    """For a received one that was cancelled, by whatever: from that moment to its end."""


@attrs.frozen(kw_only=True)
class RequestRefused:
    """A request of a client was over a limit of load: it was told when to come back."""

    name: ClassVar[str] = "request:refused"
    side: Side
    method: str
    """As it was sent, so it may be any text."""
    limit: str
    """Which limit it was, a `mcp_trio.session.places.Limit`."""


@attrs.frozen(kw_only=True)
class ToolCompleted:
    """A tool of this server was called, and the call has ended. A refusal is an end, too."""

    name: ClassVar[str] = "tool:completed"
    side: Side
    tool: str
    """As it was asked for, so it may be any text."""
    id: RequestId
    duration_ms: float
    outcome: Outcome
    subject: str | None
    """Of the principal that called."""
    code: str | None = None
    """The `ErrorCode` of a call that ended in an error of the protocol; `overloaded` of one that
    was over a limit."""
    meta: JSONObject = attrs.field(factory=dict[str, object])
    """`_meta` of the result. A published operation that failed says there at which stage."""


@attrs.frozen(kw_only=True)
class NotificationEmitted:
    """This side sent a notification."""

    name: ClassVar[str] = "notification:emitted"
    side: Side
    method: str
    params: JSONObject


@attrs.frozen(kw_only=True)
class NotificationReceived:
    """The other side sent a notification."""

    name: ClassVar[str] = "notification:received"
    side: Side
    method: str
    """As it was sent, so it may be any text."""


@attrs.frozen(kw_only=True)
class CatalogRefreshed:
    """A catalog has looked at its registry and is up to date."""

    name: ClassVar[str] = "catalog:refreshed"
    revision: str
    """Of the snapshot in use."""
    operations: int
    changed: int
    """Operations that are other than before; 0 when all is as it was."""
    quarantined: int
    """Operations that cannot be used."""


@attrs.frozen(kw_only=True)
class CatalogFailed:
    """A catalog could not look at its registry; what it knew stays in use."""

    name: ClassVar[str] = "catalog:failed"
    reason: str
    retry_in: float
    """Seconds until it tries again."""


@attrs.frozen(kw_only=True)
class EventsLost:
    """This subscriber was too slow: after the events before this one, `count` were dropped."""

    name: ClassVar[str] = "events:lost"
    count: int


Event: TypeAlias = (
    ConnectionOpened
    | ConnectionClosed
    | RequestReceived
    | RequestCompleted
    | RequestRefused
    | ToolCompleted
    | NotificationEmitted
    | NotificationReceived
    | CatalogRefreshed
    | CatalogFailed
    | EventsLost
)
Listener: TypeAlias = Callable[[Event], object]


class EventChannel(trio.abc.ReceiveChannel[Event]):
    """What waits for one subscriber, oldest first; bounded, and honest about what it lost."""

    def __init__(self, capacity: int) -> None:
        self._waiting: deque[Event] = deque()
        self._capacity = capacity
        self._missed = 0
        self._readers = trio.lowlevel.ParkingLot()
        self._closed = False
        self._over = False
        self.lost = 0
        """Events dropped so far because nobody took them in time."""

    def put(self, event: Event) -> None:
        """Take an event, or count it as lost. Never waits. Called by the hub."""
        if self._closed:
            return
        # Once one is lost all are, until the subscriber knows of it: the gap has one place.
        if self._missed or len(self._waiting) >= self._capacity:
            self._missed += 1
            self.lost += 1
        else:
            self._waiting.append(event)
        self._readers.unpark()

    def receive_nowait(self) -> Event:
        """Take the oldest event.

        Raises:
            trio.WouldBlock: there is none.
            trio.EndOfChannel: the subscription is over, and nothing waits any more.
            trio.ClosedResourceError: this channel was closed.
        """
        if self._closed:
            raise trio.ClosedResourceError
        if self._waiting:
            return self._waiting.popleft()
        if self._missed:
            missed, self._missed = self._missed, 0
            return EventsLost(count=missed)
        if self._over:
            raise trio.EndOfChannel
        raise trio.WouldBlock

    async def receive(self) -> Event:
        """Wait for the next event; raises as `receive_nowait` does, except `WouldBlock`."""
        await trio.lowlevel.checkpoint()
        while True:
            try:
                return self.receive_nowait()
            except trio.WouldBlock:
                await self._readers.park()

    def end(self) -> None:
        """Nothing more will come. Called by the hub; what waits can still be read."""
        self._over = True
        self._readers.unpark_all()

    async def aclose(self) -> None:
        """Forget what waits and take nothing more. Idempotent; readers are told."""
        self._closed = True
        self._waiting.clear()
        self._readers.unpark_all()
        await trio.lowlevel.checkpoint()


class EventHub:
    """Hands events out. Emitting never waits, and costs a look at a tuple while nobody listens."""

    def __init__(self) -> None:
        self._listeners: tuple[Listener, ...] = ()

    @property
    def active(self) -> bool:
        """Whether anybody listens; without listeners no event needs to be made."""
        return bool(self._listeners)

    def emit(self, event: Event) -> None:
        """Tell everybody. Never waits and never raises."""
        for listener in self._listeners:
            try:
                listener(event)
            except (Exception, SystemExit):
                logger.exception("a listener failed on %s", event.name)

    @contextlib.contextmanager
    def attach(self, listener: Listener) -> Generator[None, None, None]:
        """Have a function called with each event, synchronously, while the block runs.

        It must not block: everything waits for it. What it raises is logged and concerns
        nobody else. Use `subscribe` for work that takes time.
        """
        self._listeners = (*self._listeners, listener)
        try:
            yield
        finally:
            kept = list(self._listeners)
            kept.remove(listener)
            self._listeners = tuple(kept)

    @contextlib.asynccontextmanager
    async def subscribe(self, capacity: int = CAPACITY) -> AsyncGenerator[EventChannel, None]:
        """Give a channel of the events from now on, for as long as the block runs.

        A subscriber that does not keep up loses events and reads an `EventsLost` in their
        place; its `lost` counts all of them. After the block the channel has an end.

        Args:
            capacity: events that may wait.

        Raises:
            ValueError: a capacity of less than one.
        """
        if capacity < 1:
            raise ValueError("the capacity has to be at least 1")
        channel = EventChannel(capacity)
        with self.attach(channel.put):
            try:
                yield channel
            finally:
                channel.end()


_numbers = itertools.count(1)


class Reporter:
    """One side's way to the hub: it fills in the side, and makes no event that nobody wants."""

    __slots__ = ("hub", "side")

    def __init__(self, hub: EventHub, side: Side) -> None:
        self.hub = hub
        self.side: Side = side

    def new_id(self) -> str:
        """A `dispatcher_id`."""
        return f"{self.side}-{next(_numbers)}"

    def opened(self, dispatcher_id: str) -> None:
        """A session began."""
        if self.hub.active:
            self.hub.emit(ConnectionOpened(side=self.side, dispatcher_id=dispatcher_id))

    def closed(self, dispatcher_id: str, reason: str) -> None:
        """A session ended."""
        if self.hub.active:
            event = ConnectionClosed(side=self.side, dispatcher_id=dispatcher_id, reason=reason)
            self.hub.emit(event)

    def received(self, method: str, id_: RequestId) -> None:
        """A request came."""
        if self.hub.active:
            self.hub.emit(RequestReceived(side=self.side, method=method, id=id_))

    def refused(self, method: str, limit: str) -> None:
        """A request was over a limit."""
        if self.hub.active:
            self.hub.emit(RequestRefused(side=self.side, method=method, limit=limit))

    def completed(
        self,
        method: str,
        id_: RequestId,
        outcome: Outcome,
        *,
        began: float,
        direction: Direction = "inbound",
        late: float | None = None,
    ) -> None:
        """A request ended that began at `began` on Trio's clock.

        Args:
            method: of the request.
            id_: of the request.
            outcome: how it ended.
            began: when, on Trio's clock.
            direction: who asked.
            late: seconds since it was cancelled, if it was.
        """
        if self.hub.active:
            duration = 1000 * (trio.current_time() - began)
            self.hub.emit(
                RequestCompleted(
                    side=self.side,
                    method=method,
                    id=id_,
                    duration_ms=duration,
                    outcome=outcome,
                    direction=direction,
                    cancel_ms=None if late is None else 1000 * late,
                )
            )

    def emitted(self, method: str, params: JSONObject | None) -> None:
        """A notification was sent."""
        if self.hub.active:
            event = NotificationEmitted(side=self.side, method=method, params=params or {})
            self.hub.emit(event)

    def notified(self, method: str) -> None:
        """A notification came."""
        if self.hub.active:
            self.hub.emit(NotificationReceived(side=self.side, method=method))


def outcome_of(result: JSONObject) -> Outcome:
    """How a request ended that has this result."""
    return "error" if result.get("isError") is True else "success"
