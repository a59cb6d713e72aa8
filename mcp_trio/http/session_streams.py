"""The streams of one handshake session: one per POST, and the one opened by GET.

Seen from the session this is its `Transport`: `send` puts each message on exactly one
stream (H7). Seen from HTTP each stream is a bounded queue with at most one connection
that empties it; when the connection goes away the work goes on, and what it says waits
in the replay buffer (H13).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

import attrs
import trio
import trio.lowlevel

from mcp_trio.engine.envelope import Envelope
from mcp_trio.engine.peer import key
from mcp_trio.errors import ProtocolError, TransportClosedError
from mcp_trio.http.replay import ReplayBuffer, StoredEvent
from mcp_trio.http.responses import Verdict, verdict_of
from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.messages import Batch, Error, Message, Request, Result
from mcp_trio.wire.basic import RequestId


@attrs.frozen
class Pause:
    """The wish to close the connection once event `after` has been sent (H4)."""

    after: int
    retry_ms: int


QUEUE = 64
"""Messages that may wait for a connection that is there but slow."""
STANDALONE = 0
"""The number of the stream opened by GET."""
PRIMER = 1
"""The number kept, in the stream of a POST, for the empty event that gives the client an id to
come back with (H5). Lower than all others, because they may be there before it is sent."""


class Stream:
    """One stream of messages to the client."""

    __slots__ = (
        "_hurried",
        "_owners",
        "_pausable",
        "_room",
        "_wake",
        "ended",
        "number",
        "owner",
        "pause",
        "plain",
        "queue",
        "sent",
        "waiting",
    )

    def __init__(self, number: int, waiting: Iterable[RequestId] = ()) -> None:
        self.number = number
        self.waiting = {key(id_) for id_ in waiting}
        """Requests whose answers this stream still owes."""
        self.queue: deque[StoredEvent] = deque()
        self.sent = 0
        """Events numbered so far."""
        self.owner: int | None = None
        """The connection that empties the queue, None while there is none."""
        self.ended = False
        self.plain = False
        """The client takes a single JSON answer and nothing else."""
        self.pause: Pause | None = None
        """Set while the connection is asked to end before the stream does."""
        self._owners = 0
        self._hurried: int | None = None
        self._pausable = False
        self._wake: trio.Event | None = None
        """What the connection that empties the queue waits for."""
        self._room: trio.lowlevel.ParkingLot | None = None
        """Where those wait who wait for room: the tasks of a handler, and the session's own."""

    def attach(self, *, pausable: bool = False) -> int:
        """Take the stream over; a connection that had it before ends.

        Args:
            pausable: this connection may end before the stream does.
        """
        self._owners += 1
        self._pausable = pausable
        self.pause = None
        self.owner = self._owners
        self._notice()
        return self.owner

    def detach(self, owner: int) -> None:
        """Give the stream up, if it is still this owner's."""
        if self.owner == owner:
            self.owner = self.pause = None
            self._notice()
            self._make_room()

    def release(self, retry_ms: int) -> None:
        """Ask the connection, if there is one that can, to end after what was said so far."""
        if self.owner is not None and self._pausable and self.pause is None and not self.ended:
            self.pause = Pause(self.sent, retry_ms)
            self._notice()

    def hurry(self, owner: int) -> None:
        """Have a connection that waits for the first message not wait for it any longer.

        Nothing once there has been one, whether it has been taken or not.
        """
        if owner == self.owner and self.sent == PRIMER and not self.ended:
            self._hurried = owner
            self._notice()

    def next_number(self) -> int:
        """Count an event; no two of a stream have the same number (H8)."""
        self.sent += 1
        return self.sent

    def put(self, data: bytes, verdict: Verdict | None = None) -> StoredEvent:
        """Number a message and queue it. Without a connection the oldest ones go.

        Args:
            data: the message.
            verdict: see `StoredEvent`.
        """
        event = StoredEvent(self.number, self.next_number(), data, verdict)
        if self.owner is None and len(self.queue) >= QUEUE:
            self.queue.popleft()
        self.queue.append(event)
        self._hurried = None
        self._notice()
        return event

    def end(self) -> None:
        """Nothing more will come."""
        self.ended = True
        self._notice()
        self._make_room()

    def _notice(self) -> None:
        """Have the connection look at what is new."""
        if self._wake is not None:
            self._wake.set()

    def _make_room(self) -> None:
        if self._room:
            self._room.unpark_all()

    async def room(self) -> None:
        """Wait until the connection, if there is one, has emptied some of the queue."""
        while self.owner is not None and len(self.queue) >= QUEUE and not self.ended:
            self._room = self._room or trio.lowlevel.ParkingLot()
            await self._room.park()

    async def take(self, owner: int) -> StoredEvent | None:
        """Wait for the next message.

        None when the stream is over, paused, or somebody else has it; and one time when the
        connection shall not wait any longer.
        """
        while owner == self.owner:
            if self.pause and not (self.queue and self.queue[0].number <= self.pause.after):
                return None
            if self.queue:
                self._make_room()
                return self.queue.popleft()
            if self.ended:
                return None
            if self._hurried == owner:
                self._hurried = None
                return None
            self._wake = trio.Event()
            await self._wake.wait()
        return None


class Patience:
    """Hurries the streams whose first message is long in coming, all after the same time.

    One task for all sessions: a timer of its own would cost each POST as much as being read.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiting: deque[tuple[float, Stream, int]] = deque()
        """When each is over, of which stream and connection: in that order, since all last as
        long. What has ended goes as soon as nothing older waits."""
        self._more = trio.Event()

    def watch(self, stream: Stream, owner: int) -> None:
        """Hurry this connection when the time is over, unless the stream has ended by then."""
        if self._seconds == math.inf:
            return
        self._forget_ended()
        self._waiting.append((trio.current_time() + self._seconds, stream, owner))
        self._more.set()

    def _forget_ended(self) -> None:
        while self._waiting and self._waiting[0][1].ended:
            self._waiting.popleft()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            self._forget_ended()
            if self._waiting:
                due, stream, owner = self._waiting[0]
                await trio.sleep_until(due)
                if self._waiting and self._waiting[0][1] is stream:
                    self._waiting.popleft()
                stream.hurry(owner)
            else:
                self._more = trio.Event()
                await self._more.wait()


class SessionStreams:
    """All streams of one session; the `Transport` of its dispatcher."""

    __slots__ = ("_by_id", "_closed", "_numbers", "_open", "_standalone", "replay")

    kind = "http"
    """What sessions on it are listed as."""
    pumps = False
    """There is no task but the session's own."""

    def __init__(self, replay: ReplayBuffer) -> None:
        self.replay = replay
        self._standalone: Stream | None = None
        self._numbers = STANDALONE
        self._by_id: dict[tuple[bool, RequestId], Stream] = {}
        self._open: dict[int, Stream] = {}
        self._closed = trio.Event()

    @property
    def closed(self) -> bool:
        """True once the session is over."""
        return self._closed.is_set()

    @property
    def standalone(self) -> Stream:
        """The stream opened by GET; made when it is first needed."""
        if self._standalone is None:
            self._standalone = Stream(STANDALONE)
            if self.closed:
                self._standalone.end()
        return self._standalone

    def open(self, ids: tuple[RequestId, ...], *, plain: bool = False) -> Stream:
        """Make the stream of a POST that carried these requests; see `Stream.plain`."""
        self._numbers += 1
        stream = Stream(self._numbers, ids)
        stream.plain = plain
        stream.sent = PRIMER
        self._open[stream.number] = stream
        for id_ in ids:
            self._by_id[key(id_)] = stream
        return stream

    def find(self, number: int) -> Stream | None:
        """The stream of this number, if it is not over."""
        return self.standalone if number == STANDALONE else self._open.get(number)

    def missed(self, stream: Stream, seen: int) -> list[StoredEvent]:
        """What was sent after event `seen` and is kept. What still waits was sent to nobody."""
        kept = self.replay.after(stream.number, seen)
        if not stream.queue:
            return kept
        return [event for event in kept if event.number < stream.queue[0].number]

    def owes(self, id_: RequestId) -> bool:
        """Tell whether the answer to a request with this id is still to come."""
        return key(id_) in self._by_id

    def _finish(self, stream: Stream, id_: RequestId) -> None:
        stream.waiting.discard(key(id_))
        # The answer to something unreadable may bear an id that another stream waits for.
        if self._by_id.get(key(id_)) is stream:
            del self._by_id[key(id_)]
        if not stream.waiting:
            stream.end()
            self._open.pop(stream.number, None)

    def unanswered(self, id_: RequestId) -> None:
        """No answer will come for this request: it was cancelled (A10)."""
        stream = self._by_id.get(key(id_))
        if stream is not None:
            self._finish(stream, id_)

    def release(self, id_: RequestId, retry_ms: int) -> None:
        """Let the connection go that waits for the answer to this request; see `Stream`."""
        stream = self._by_id.get(key(id_))
        if stream is not None:
            stream.release(retry_ms)

    # -- the Transport contract ----------------------------------------------------

    async def send(self, envelope: Envelope) -> None:
        """Put a message on its stream; waits only for a connection that is there but slow.

        Raises:
            TransportClosedError: the session is over.
            ProtocolError: a request to a client that cannot hear it here.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.closed:
            raise TransportClosedError("the session is over")
        related = envelope.related
        stream = self._by_id.get(key(related)) if related is not None else None
        if isinstance(envelope.message, Request) and (stream is None or stream.plain):
            # Never on the stream of GET, where nobody could tell whom it is about (X2).
            raise ProtocolError(
                "The client cannot be asked: its POST does not accept text/event-stream"
                if stream is not None
                else "The client cannot be asked: the request that asks is over"
            )
        stream = stream or self.standalone
        data = codec.encode(envelope.message)
        answers = _answered(envelope.message)
        if not answers:
            await stream.room()
            if self.closed:
                raise TransportClosedError("the session is over")
        self.replay.store(stream.put(data, verdict_of(envelope.message) if answers else None))
        if stream.number != STANDALONE:
            for id_ in answers:
                self._finish(stream, id_)

    async def receive(self) -> Envelope:
        """Wait for the end: messages are fed by the POSTs that carry them."""
        await self._closed.wait()
        raise trio.EndOfChannel

    def abandon(self, request_id: RequestId) -> bool:  # noqa: ARG002 - the contract
        """Tell nobody: in this era a notification has to."""
        return False

    async def pump(self) -> None:
        """Have nothing to do."""

    async def aclose(self) -> None:
        """End every stream."""
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """End every stream, at once."""
        self._closed.set()
        if self._standalone is not None:
            self._standalone.end()
        for stream in self._open.values():
            stream.end()
        self._open.clear()
        self._by_id.clear()


def _answered(message: Message) -> list[RequestId]:
    match message:
        case Result() | Error():
            return [] if message.id is None else [message.id]
        case Batch():
            return [id_ for item in message.items for id_ in _answered(item)]
        case _:
            return []
