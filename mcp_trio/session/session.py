"""The pump of one conversation: both sides, every transport.

`Dispatcher` owns the nursery of a session. Messages go through `feed`, synchronously
and in wire order; what takes time runs as one task with one cancel scope per request.
It knows JSON-RPC and the two notices every peer must obey, cancelled and progress;
what other methods mean is its handler's business.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast

import attrs
import trio
import trio.lowlevel

from mcp_trio.abc import Transport
from mcp_trio.engine.envelope import Envelope
from mcp_trio.engine.peer import Peer
from mcp_trio.eras.admission import error_message
from mcp_trio.eras.stamps import Stamp
from mcp_trio.errors import (
    AlreadyConnectedError,
    MCPError,
    ProtocolError,
    RequestTimeoutError,
    SessionExpiredError,
    TransportClosedError,
    TransportError,
)
from mcp_trio.events import EventHub, Outcome, Reporter, outcome_of
from mcp_trio.jsonrpc.codec import EncodeError
from mcp_trio.jsonrpc.messages import (
    Batch,
    Error,
    Malformed,
    Message,
    Notification,
    Request,
    Result,
)
from mcp_trio.session.admission import Admission
from mcp_trio.session.call import (
    NotificationCallback,
    PendingCall,
    ProgressCallback,
    TimeLimit,
    time_limit,
)
from mcp_trio.session.dispatch import encodable
from mcp_trio.session.entrance import Accepted, Entrance
from mcp_trio.session.farewells import Farewells
from mcp_trio.session.inbound import Deaf, Inbound, SessionHandler
from mcp_trio.session.limits import SessionLimits, SessionStatistics
from mcp_trio.session.places import Place
from mcp_trio.session.reaper import Reaper
from mcp_trio.wire import JSONObject, RequestId
from mcp_trio.wire.meta import SUBSCRIPTION_ID

logger = logging.getLogger("mcp_trio.session")

AT_ONCE = 8
"""Tasks of one session that take no place, such as a `ping`, before more is read. Tasks take turns:
nobody is to wait for the thousands of those who flood a process with what is not limited."""
CLOSE_TIMEOUT = 5.0
"""Seconds that closing the transport may take, under a shield."""


class Dispatcher:
    """A JSON-RPC peer over a transport, the same for both sides.

    Use it by running `run` in a nursery; `call` and `notify` work from the moment it has
    started until the line is closed. It takes the transport over and closes it.

    Cancelling `run` cancels every request of the peer and fails every call of ours.
    """

    def __init__(
        self,
        transport: Transport,
        handler: SessionHandler | None = None,
        *,
        limits: SessionLimits | None = None,
        reaper: Reaper | None = None,
        reporter: Reporter | None = None,
        admission: Admission | None = None,
    ) -> None:
        """Make a peer.

        Args:
            transport: the line; owned from now on.
            handler: answers the peer's requests; without one every method is unknown.
            limits: bounds of the session.
            reaper: watches the requests; without one the session has its own.
            reporter: tells observers; without one nobody is told.
            admission: decides what may run beside other sessions; without one this one is alone.
        """
        self.transport = transport
        self.reporter = reporter or Reporter(EventHub(), "peer")
        self.handler = handler or Deaf()
        self.limits = limits or SessionLimits()
        self.reaper = reaper or Reaper(self.limits.cleanup_timeout)
        self._own_reaper = reaper is None
        self.peer: Peer[PendingCall, Inbound] = Peer()
        self.entrance = Entrance(
            self, self.peer, self.handler, self.reporter, admission, self.limits.max_in_flight
        )
        self.label = ""  # its name in events, once it runs
        self._nursery: trio.Nursery | None = None
        self._closed: MCPError | None = None
        self._malformed = 0
        self._answered = -math.inf
        """When this side last finished what it was asked for."""
        self._tasks = 0
        self._light = 0  # of those, the ones that take no place: little more than an answer each
        self._farewells = Farewells(self)
        self._room: trio.lowlevel.ParkingLot | None = None
        """Where those wait who wait for a task of this session to end."""
        self.stamp: Stamp | None = None
        """Completes what this side sends; a client sets it once it knows the era."""
        self.on_idle_change: Callable[[], None] | None = None
        """Called when the number of running requests becomes zero or stops being zero."""
        self.on_unanswered: Callable[[RequestId], None] | None = None
        """Called with the id of a request that will get no answer, because it was cancelled."""
        self.on_release: Callable[[RequestId, int], None] | None = None
        """Called when a request lets the connection go that waits for its answer."""

    # -- running -----------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Pump messages until the peer closes the line or the caller cancels.

        Raises:
            AlreadyConnectedError: it runs, or ran, already.
        """
        if self._nursery is not None or self._closed is not None:
            raise AlreadyConnectedError("this session has been started before")
        id_ = self.label = self.reporter.new_id()
        self.reporter.opened(id_)
        try:
            if self._own_reaper or getattr(self.transport, "pumps", True):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.transport.pump)
                    if self._own_reaper:
                        nursery.start_soon(self.reaper.run)
                    await self._converse(task_status)
                    nursery.cancel_scope.cancel()
            else:
                await self._converse(task_status)
        finally:
            by_peer = isinstance(self._closed_error(), TransportError)
            self.reporter.closed(id_, "the peer closed the line" if by_peer else "closed here")

    async def _converse(self, task_status: trio.TaskStatus[None]) -> None:
        """Read and answer in the nursery of the requests until the end, and close the line."""
        try:
            async with trio.open_nursery() as requests:
                self._nursery = requests
                task_status.started()
                try:
                    why = await self._read()
                    await self._drain()
                    self._end(TransportError(why))
                finally:
                    # While the nursery still is: nothing may be spawned afterwards.
                    self._end(TransportClosedError("the session is closed"))
                    requests.cancel_scope.cancel()
        finally:
            with trio.move_on_after(CLOSE_TIMEOUT, shield=True):
                await self.transport.aclose()

    async def _read(self) -> str:
        """Read until the line ends; why it did, if the transport knows."""
        most = self.limits.max_in_flight
        light = min(most, AT_ONCE)
        try:
            while True:
                # A peer that asks faster than it reads our answers has to wait for them.
                while self._light > light or self._tasks - len(self.peer.running) > most:
                    await self._task_ends()
                self.feed(await self.transport.receive())
        except trio.EndOfChannel as end:
            return str(end) or "the peer closed the line before it answered"

    async def _drain(self) -> None:
        with trio.move_on_after(self.limits.drain_on_eof):
            await self.quiet()

    async def quiet(self) -> None:
        """Wait until no request of the peer runs and every answer is with the transport."""
        await trio.lowlevel.checkpoint()
        while self._tasks:
            await self._task_ends()

    async def _task_ends(self) -> None:
        self._room = self._room or trio.lowlevel.ParkingLot()
        await self._room.park()

    def _end(self, reason: MCPError) -> None:
        """Close the books: nothing new starts, nobody waits any more."""
        if self._closed is None:
            self._closed = reason
            for inbound in self.peer.running.values():
                self.reaper.doom(inbound)
            for id_, pending in tuple(self.peer.pending.items()):
                self.peer.abandon(id_)
                pending.settle(reason)

    def cancel(self) -> None:
        """End the session: every request is cancelled, `run` returns after cleanup."""
        for inbound in tuple(self.peer.running.values()):
            inbound.reason = inbound.reason or "the session ended"
            self._doom(inbound)
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def expire_at(self, deadline: float) -> None:
        """Have a session that runs cancelled at a time on Trio's clock, instead of any before."""
        if self._nursery is not None:
            self._nursery.cancel_scope.deadline = deadline

    @property
    def closed(self) -> bool:
        """Whether it has ended; nothing can be sent any more."""
        return self._closed is not None

    def check_open(self) -> None:
        """Insist that something can be sent.

        Raises:
            TransportClosedError, TransportError: it has not begun, or has ended.
        """
        if self._closed is not None or self._nursery is None:
            raise self._closed_error()

    def statistics(self) -> SessionStatistics:
        """Count what is going on."""
        return SessionStatistics(
            in_flight=len(self.peer.running),
            pending=len(self.peer.pending),
            late_answers=self.peer.late,
            malformed=self._malformed,
            shields_lifted=self.reaper.lifted,
        )

    # -- inbound -----------------------------------------------------------------

    def feed(self, envelope: Envelope, place: Place | None = None) -> None:
        """Take one message. Never waits; what takes time is spawned.

        Args:
            envelope: the message.
            place: that was given to it already, if it is a request; taken over.
        """
        message = envelope.message
        match message:
            case Request():
                self._feed_request(message, envelope, place)
            case Notification():
                self._feed_notification(message)
            case Result() | Error():
                self._feed_response(message)
            case Batch():
                self._feed_batch(message, envelope)
            case Malformed():
                self._malformed += 1
                if message.lost is not None:
                    self._lost(message.lost, message.reason, ProtocolError)
                elif envelope.related is not None:
                    kind = SessionExpiredError if message.undone else TransportError
                    self._lost(envelope.related, message.reason, kind)
                else:
                    logger.warning("unreadable message: %s", message.reason)
                    if message.answer is not None:
                        self.spawn(self._answer, message.answer, light=True)

    def spawn(
        self, function: Callable[..., Awaitable[None]], *args: object, light: bool = False
    ) -> None:
        """Run a function in the session's nursery; does nothing once the session has ended."""
        if self._nursery is not None and self._closed is None:
            self._tasks += 1
            self._light += light
            self._nursery.start_soon(self._counted, light, function, args)

    async def _counted(
        self, light: int, function: Callable[..., Awaitable[None]], args: tuple[object, ...]
    ) -> None:
        try:
            await function(*args)
        finally:
            self._tasks -= 1
            self._light -= light
            if self._room:
                self._room.unpark_all()

    def _admit(
        self, request: Request, envelope: Envelope, place: Place | None = None
    ) -> Accepted | Error:
        closed = None if self._closed is None else self._closed_error()
        outcome = self.entrance.admit(request, envelope, place, closed=closed)
        begun = isinstance(outcome, Accepted) and len(self.peer.running) == 1
        if begun and self.on_idle_change is not None:
            self.on_idle_change()
        return outcome

    def _feed_request(
        self, request: Request, envelope: Envelope, place: Place | None = None
    ) -> None:
        accepted = self._admit(request, envelope, place)
        if isinstance(accepted, Error):
            self.spawn(self._answer, accepted, request.id, light=True)
        else:
            light = not accepted.inbound.place.shares
            self.spawn(self._run_and_answer, accepted, light=light)

    async def _run_and_answer(self, accepted: Accepted) -> None:
        id_ = accepted.inbound.request.id
        reply = await self._run(accepted)
        if reply is None:
            self._leave_unanswered(id_)
        else:
            await self._answer(reply, id_)

    def _leave_unanswered(self, id_: RequestId) -> None:
        if self.on_unanswered is not None:
            self.on_unanswered(id_)

    async def _run(self, accepted: Accepted) -> Result | Error | None:
        """Run one request in its scope. None if the peer does not want the answer any more."""
        inbound = accepted.inbound
        request = inbound.request
        inbound.task = trio.lowlevel.current_task()
        began = trio.current_time()
        self.reaper.add(inbound)
        reply: Result | Error | None = None
        outcome: Outcome = "cancelled"
        try:
            with inbound.scope:
                reply = await accepted.runner(inbound)
            if inbound.reason is None:
                outcome = outcome_of(reply.result) if isinstance(reply, Result) else "error"
        finally:
            late = self.reaper.remove(inbound)
            inbound.place.release()
            self.peer.finish(request.id)
            if request.method != "ping":
                self._answered = trio.current_time()
            if not self.peer.running and self.on_idle_change is not None:
                self.on_idle_change()
            self.reporter.completed(request.method, request.id, outcome, began=began, late=late)
        if inbound.reason is not None:
            return None
        if reply is None:
            text = f"{request.method[:64]} took longer than the server allows"
            reply = error_message(request.id, RequestTimeoutError(text))
        return reply

    async def _answer(self, reply: Message, related: RequestId | None = None) -> None:
        nameless = isinstance(reply, Error) and reply.id is None
        if self.stamp is not None and (nameless or not self.stamp.may_answer):
            # A server has no use for an error about what it said, and without a session it must
            # not be answered at all (B8).
            logger.warning("what the server said is not answered")
            return
        try:
            try:
                await self.send(reply, related=related)
            except EncodeError:
                await self.send(encodable(reply), related=related)
        except MCPError as error:
            # The peer is gone; the reader notices the same and ends the session.
            logger.debug("an answer could not be sent: %s", error)

    def _feed_batch(self, batch: Batch, envelope: Envelope) -> None:
        if not self.handler.batches:
            refusal = ProtocolError("Invalid request: batches are not part of this revision")
            why = "it came in a batch, which the revision does not have"
            for item in batch.items:
                if isinstance(item, Result | Error) and item.id is not None:
                    self._lost(item.id, why, ProtocolError)
            self.spawn(self._answer, error_message(None, refusal), light=True)
            return
        accepted: list[Accepted] = []
        replies: list[Result | Error] = []
        for item in batch.items:
            match item:
                case Request(method="initialize"):
                    fault = ProtocolError("Invalid request: initialize cannot be in a batch")
                    replies.append(error_message(item.id, fault))
                case Request():
                    outcome = self._admit(item, envelope)
                    (replies if isinstance(outcome, Error) else accepted).append(outcome)  # type: ignore[arg-type]  # each list takes its own half
                case Malformed(answer=Error() as answer):
                    self._malformed += 1
                    replies.append(answer)
                case _:
                    self.feed(attrs.evolve(envelope, message=item))
        if accepted or replies:
            related = next((i.id for i in batch.items if isinstance(i, Request)), None)
            light = not any(each.inbound.place.shares for each in accepted)
            self.spawn(self._run_batch, accepted, replies, related, light=light)

    async def _run_batch(
        self, accepted: list[Accepted], replies: list[Result | Error], related: RequestId | None
    ) -> None:
        unanswered: list[RequestId] = []

        async def one(item: Accepted) -> None:
            reply = await self._run(item)
            if reply is None:
                unanswered.append(item.inbound.request.id)
            else:
                replies.append(reply)

        async with trio.open_nursery() as nursery:
            for item in accepted:
                nursery.start_soon(one, item)
        if replies:
            await self._answer(Batch(tuple(replies)), related)
        # Only now: until then the batch is found by the ids of all its requests.
        for id_ in unanswered:
            self._leave_unanswered(id_)

    def _feed_notification(self, notification: Notification) -> None:
        self.reporter.notified(notification.method)
        match notification.method:
            case "notifications/cancelled":
                self._cancelled(notification.params or {})
            case "notifications/progress":
                self._progressed(notification.params or {})
            case _:
                meta = (notification.params or {}).get("_meta")
                if isinstance(meta, dict) and SUBSCRIPTION_ID in meta:
                    self._subscribed(cast("JSONObject", meta)[SUBSCRIPTION_ID], notification)
                else:
                    self.handler.notified(notification)

    def _subscribed(self, id_: object, notification: Notification) -> None:
        pending = self.peer.pending.get(id_) if type(id_) is int else None
        if pending is not None and pending.on_notification is not None:
            pending.on_notification(notification)

    def _unsubscribed(self, id_: RequestId) -> None:
        """End a subscription of ours on the peer's word, as good as a result (C3, A1)."""
        pending = self.peer.pending.get(id_)
        if pending is not None and pending.on_notification is not None:
            self._feed_response(Result(id_, {}))

    def _cancelled(self, params: JSONObject) -> None:
        """Cancel a request on the peer's word. Unknown, finished and malformed are ignored."""
        id_, reason = params.get("requestId"), params.get("reason")
        if type(id_) is not int and type(id_) is not str:
            return
        inbound = self.peer.find(id_)
        if inbound is None:
            self._unsubscribed(id_)
            return
        if inbound.request.method == "initialize":
            return
        inbound.reason = reason if isinstance(reason, str) else ""
        logger.debug("%s cancelled by the peer: %.200s", inbound.label, inbound.reason)
        self._doom(inbound)

    def _doom(self, inbound: Inbound) -> None:
        inbound.scope.cancel()
        self.doom(inbound)

    def doom(self, inbound: Inbound) -> None:
        """Start the clock for the cleanup of a request whose handler was cancelled."""
        self.reaper.doom(inbound)

    def _progressed(self, params: JSONObject) -> None:
        token = params.get("progressToken")
        pending = self.peer.pending.get(token) if type(token) is int else None
        if pending is not None:
            pending.progressed(params)

    def _feed_response(self, response: Result | Error) -> None:
        pending = self.peer.resolve(response.id)
        if pending is not None:
            pending.settle(response)
        elif isinstance(response, Error) and response.id is None:
            logger.warning("the peer could not read a message of ours: %.200s", response.message)

    def _lost(self, id_: RequestId, reason: str, kind: type[MCPError] = TransportError) -> None:
        """Fail a call of ours whose answer will not come, or came in no form that can be read."""
        pending = self.peer.resolve(id_)
        if pending is not None:
            pending.settle(kind(f"no answer to {pending.method}: {reason}"))

    def release(self, id_: RequestId, retry_ms: int) -> None:
        """Let the connection of a request go; nothing where all share one line."""
        if self.on_release is not None:
            self.on_release(id_, retry_ms)

    # -- outbound ----------------------------------------------------------------

    async def send(self, message: Message, *, related: RequestId | None = None) -> None:
        """Send a message.

        Raises:
            TransportClosedError, TransportError: the line is gone.
        """
        if self._closed is not None or self._nursery is None:
            # A caller whose own scope was cancelled along with the session hears of that.
            await trio.lowlevel.checkpoint_if_cancelled()
            self.check_open()
        headers = None
        if self.stamp is not None and not isinstance(message, Batch | Malformed):
            headers = self.stamp.headers(message)
        try:
            await self.transport.send(Envelope(message, related, headers))
        except TransportClosedError:
            self.check_open()  # by the peer, maybe, while this waited
            raise
        if isinstance(message, Notification):
            self.reporter.emitted(message.method, message.params)

    def _closed_error(self) -> MCPError:
        reason = self._closed or TransportClosedError("the session has not been started")
        return type(reason)(reason.message)

    async def notify(
        self, method: str, params: JSONObject | None = None, *, related: RequestId | None = None
    ) -> None:
        """Send a notification.

        Args:
            method: its name.
            params: its parameters.
            related: the peer's running request it belongs to, if any.

        Raises:
            TransportClosedError, TransportError: the line is gone.
        """
        await self.send(Notification(method, params), related=related)

    async def call(
        self,
        method: str,
        params: JSONObject | None = None,
        *,
        timeout: float | TimeLimit = math.inf,  # noqa: ASYNC109 - the peer has to be told, so a scope outside is not enough
        on_progress: ProgressCallback | None = None,
        on_notification: NotificationCallback | None = None,
        related: RequestId | None = None,
    ) -> JSONObject:
        """Send a request and wait for its result.

        Leaving early, by cancellation, timeout or an exception of `on_progress`, tells the
        peer so under a shield of at most a second; a late answer is dropped and counted.

        Args:
            method: its name.
            params: its parameters.
            timeout: seconds to wait for the answer, or a `TimeLimit`.
            on_progress: called in this task with progress, total and message.
            on_notification: called, synchronously in the reader, with each notification
                that names this request as its subscription.
            related: the peer's running request it belongs to, if any.

        Raises:
            RemoteError: the peer answered with an error.
            RequestTimeoutError: no answer in time.
            TransportClosedError, TransportError: the line is gone.
        """
        limit = time_limit(timeout)
        pending = PendingCall(method, limit.watched(on_progress), on_notification)
        id_ = self.peer.issue(pending)
        reason = "the caller went away"
        began = trio.current_time()
        outcome: Outcome = "cancelled"
        try:
            with limit.scope():
                try:
                    params = pending.with_token(params, id_)
                    if self.stamp is not None:
                        params = self.stamp.params(params)
                    await self.send(Request(id_, method, params), related=related)
                except Exception:
                    self.peer.abandon(id_)  # it never left, so there is nothing to take back
                    raise
                result = await pending.wait(limit.idle, partial(self._asked_until, id_))
                outcome = outcome_of(result)
                return result
            raise RequestTimeoutError(f"{method} was not answered within {round(limit.total, 3)} s")
        except (MCPError, EncodeError) as error:
            reason = "timeout" if isinstance(error, RequestTimeoutError) else reason
            outcome = "error"
            raise
        finally:
            self.reporter.completed(method, id_, outcome, began=began, direction="outbound")
            if self.peer.abandon(id_) and self._closed is None:
                self._end_questions_of(id_)
                told = self.transport.abandon(id_) or method == "initialize"
                if not told and self._nursery is not None:
                    await self._farewells.say(id_, reason, related)

    def _asked_until(self, id_: int) -> float:
        """Until when the peer waited for this side, on account of a call of ours."""
        for inbound in self.peer.running.values():
            if inbound.request.method != "ping" and inbound.related in {None, id_}:
                return math.inf
        return self._answered

    def _end_questions_of(self, id_: int) -> None:
        """Cancel what the peer asked on the stream of a call that nobody waits for any more.

        The peer's own word for it could come on that very stream, which is closed.
        """
        for inbound in tuple(self.peer.running.values()):
            if inbound.related == id_:
                inbound.reason = inbound.reason or "the call it belongs to was given up"
                self._doom(inbound)
