"""POST, GET and DELETE of the handshake era: HTTP on one side, a session on the other (H).

A connection here only carries messages. When it goes away the session's work goes on;
that is the difference to `http.exchange` (H13).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial

import trio

from mcp_trio.engine.envelope import Envelope
from mcp_trio.engine.lifecycle import Stage
from mcp_trio.eras.admission import error_message
from mcp_trio.errors import InvalidParamsError, ProtocolError
from mcp_trio.framing import headers as names
from mcp_trio.http.options import good_until
from mcp_trio.http.replay import StoredEvent, event_id, parse_event_id
from mcp_trio.http.requests import HTTPRequest
from mcp_trio.http.responses import Header, Responder, Send, refuse, respond
from mcp_trio.http.session_streams import PRIMER, STANDALONE, Stream
from mcp_trio.http.sessions import HTTPSession, SessionTable
from mcp_trio.http.turns import others_first
from mcp_trio.jsonrpc.messages import Batch, Malformed, Message, Request
from mcp_trio.session.places import Place, SessionLoad
from mcp_trio.wire.revisions import BY_DATE, Revision


def requests_of(message: Message) -> list[Request]:
    """The requests in a message or batch."""
    items = message.items if isinstance(message, Batch) else (message,)
    return [item for item in items if isinstance(item, Request)]


def version_fault(session: HTTPSession, http: HTTPRequest) -> str | None:
    """Say what is wrong with the version header of a later request (H11)."""
    version = http.headers.get(names.VERSION)
    if version is None:
        return None
    if BY_DATE.get(version.strip()) is None:
        return "Unsupported protocol version"
    if version.strip() != session.side.handshake.revision.date:
        return f"The session speaks {session.side.handshake.revision}, not {version.strip()[:32]}"
    return None


async def open_session(  # noqa: PLR0913  # the parts of one exchange
    table: SessionTable,
    nursery: trio.Nursery,
    message: Request,
    http: HTTPRequest,
    send: Send,
    cors: tuple[Header, ...],
    *,
    place: Place,
) -> None:
    """Serve `initialize`: make a session, answer, and drop it again if the answer is an error.

    The place is its right to run, for the caller to release, too.
    """
    session = await table.create(nursery, http.principal, http.caller)
    stream = session.streams.open((message.id,))
    session.dispatcher.feed(Envelope(message, None, http.headers, http.principal), place)
    # Admission is synchronous, so it is known by now whether there is a session at all.
    accepted = session.side.handshake.stage is not Stage.NEW
    responder = http.responder(send, cors)
    if accepted:
        responder.granted = ((names.SESSION_ID.encode(), session.id.encode()),)
    answered = False
    try:
        answered = await _connected(
            session, stream, http, responder, partial(_answer, session, stream, responder)
        )
    finally:
        # The handshake can be refused later, too: by a middleware or an authorizer.
        if not answered or session.side.handshake.stage is Stage.NEW:
            table.end(session)


async def post(
    session: HTTPSession,
    message: Message,
    http: HTTPRequest,
    send: Send,
    cors: tuple[Header, ...],
    enter: Callable[[Request, SessionLoad], Place],
) -> None:
    """Serve any other POST of a session.

    Args:
        session: that it named.
        message: its body.
        http: the request.
        send: of the ASGI call.
        cors: fields of the answer.
        enter: lets a request in. Those of a batch are judged one by one, and answered together.

    Raises:
        OverloadedError: the request may not run now.
    """
    fault = version_fault(session, http)
    if fault is not None:
        id_ = message.id if isinstance(message, Request) else None
        told = error_message(id_, ProtocolError(fault))
        await refuse(send, 400, fault, error=told, headers=cors)
        return
    if isinstance(message, Batch) and not session.side.batches:
        await refuse(
            send, 400, "Invalid request: batches are not part of this revision", headers=cors
        )
        return
    requests = requests_of(message)
    ids = tuple(request.id for request in requests)
    # Not only what runs: an answer finds its stream by the id, until it has been given.
    double = next((r for r in requests if session.streams.owes(r.id)), None)
    if double is None and len(set(map(repr, ids))) != len(ids):
        double = requests[0]
    if double is not None:
        error = ProtocolError("Invalid request: a request with this id is still running")
        fault_message = error_message(double.id, error)
        await refuse(send, 400, error.message, error=fault_message, headers=cors)
        return
    unreadable = isinstance(message, Batch) and any(
        isinstance(item, Malformed) and item.answer is not None for item in message.items
    )
    if not requests and not unreadable:
        session.dispatcher.feed(Envelope(message, None, http.headers, http.principal))
        session.touch()
        await others_first()  # a call that was cancelled does not wait for the receipt
        await respond(send, 202, headers=cors)
        return
    if not requests:
        await refuse(send, 400, "Invalid request: nothing in the batch can be read", headers=cors)
        return
    place = None
    if isinstance(message, Request):
        place = enter(message, session.dispatcher.entrance.load)
    stream = session.streams.open(ids, plain=not http.accepts.sse)
    session.dispatcher.feed(Envelope(message, None, http.headers, http.principal), place)
    responder = http.responder(send, cors)
    carry = partial(_answer, session, stream, responder)
    await _connected(session, stream, http, responder, carry)


async def get(
    session: HTTPSession, http: HTTPRequest, send: Send, cors: tuple[Header, ...]
) -> None:
    """Serve the stream of messages that belong to no request, or resume a broken stream."""
    fault = version_fault(session, http)
    if fault is not None:
        await refuse(send, 400, fault, headers=cors)
        return
    if not http.accepts.sse:
        await refuse(send, 406, "Accept must allow text/event-stream", headers=cors)
        return
    number, seen = STANDALONE, None
    last = http.headers.get(names.LAST_EVENT_ID)
    if last is not None:
        place = parse_event_id(last)
        if place is None:
            error = error_message(None, InvalidParamsError("Last-Event-ID is not one of ours"))
            await refuse(send, 400, error.message, error=error, headers=cors)
            return
        number, seen = place
    responder = http.responder(send, cors)
    stream = session.streams.find(number) or _finished(number)
    carry = partial(_follow, session, stream, responder, seen, good_until(http.principal))
    await _connected(session, stream, http, responder, carry)


def _finished(number: int) -> Stream:
    """A stream that is over: only what is kept of it can be told."""
    stream = Stream(number)
    stream.end()
    return stream


async def _connected(
    session: HTTPSession,
    stream: Stream,
    http: HTTPRequest,
    responder: Responder,
    carry: Callable[[int], Awaitable[None]],
) -> bool:
    """Carry a stream over one connection. False if the peer left before its end."""
    left = False

    def peer_gone() -> None:
        nonlocal left
        if not responder.ending:
            left = True
            # Whoever carries finds the stream taken from him.
            stream.detach(owner)
            if sending is not None:
                sending.cancel()

    # Older revisions advise against it, because their clients may not come back (H4).
    pausable = session.side.handshake.revision.priming and http.accepts.sse
    owner = stream.attach(pausable=pausable)
    session.connected(+1)
    # What he sends then breaks by itself; on another server it may wait for ever.
    sending = None if http.own_loop else trio.CancelScope()
    try:
        with sending or nullcontext():
            await http.watched(peer_gone, partial(carry, owner))
    except* trio.BrokenResourceError:
        left = True
    finally:
        stream.detach(owner)
        session.connected(-1)
    return not left


async def _answer(session: HTTPSession, stream: Stream, responder: Responder, owner: int) -> None:
    """Carry the answer of a POST: as JSON if it comes first and soon, else as a stream."""
    revision = session.side.handshake.revision
    if revision.priming and responder.accepts.sse:
        session.patience.watch(stream, owner)
    event = await stream.take(owner)
    # A client that takes no stream gets the answer alone.
    while event is not None and event.verdict is None and not responder.accepts.sse:
        event = await stream.take(owner)
    if session.side.handshake.stage is Stage.NEW:
        responder.granted = ()  # the handshake was refused after all
    if stream.ended and not stream.queue:
        if event is None:
            await _over(session, responder)
            return
        if event.verdict is not None:
            await responder.finish(event.data, verdict=event.verdict)
            # No event of this stream had an id, so nobody comes back for it.
            session.streams.replay.forget(event)
            return
    if revision.priming:
        await _prime(stream, responder, PRIMER)
    if event is not None:
        await _send(event, revision, responder)
    while (following := await stream.take(owner)) is not None:
        await _send(following, revision, responder)
    await _end(stream, responder, owner)


async def _end(stream: Stream, responder: Responder, owner: int) -> None:
    """End the connection: for good, or until the client comes back."""
    if stream.pause is not None and stream.owner == owner:
        await responder.retry(stream.pause.retry_ms)
    await responder.end()


async def _send(event: StoredEvent, revision: Revision, responder: Responder) -> None:
    name = event_id(event.stream, event.number) if revision.resumable else None
    await responder.event(event.data, id=name)


async def _over(session: HTTPSession, responder: Responder) -> None:
    """End a response that gets no message: cancelled by the client, or the session ended."""
    if session.streams.closed and not responder.streaming:
        await refuse(responder.send, 404, "The session has ended", headers=responder.headers)
    else:
        await responder.end()


async def _prime(stream: Stream, responder: Responder, number: int) -> None:
    """Send the empty event that gives the client an id to come back with (H5)."""
    await responder.event(b"", id=event_id(stream.number, number))


async def _follow(
    session: HTTPSession,
    stream: Stream,
    responder: Responder,
    seen: int | None,
    until: float,
    owner: int,
) -> None:
    """Carry a stream for as long as it lasts, what was missed after event `seen` first.

    It ends `until` its reader has to prove anew who he is; he comes back with the last event.
    """
    revision = session.side.handshake.revision
    missed = [] if seen is None else session.streams.missed(stream, seen)
    # An event that waits already brings an id itself, and one given now would be behind it.
    fresh = seen is None and not stream.queue
    primer = stream.next_number() if fresh and revision.priming else None
    await responder.begin()
    for event in missed:
        await _send(event, revision, responder)
    if primer is not None:
        await _prime(stream, responder, primer)
    elif fresh:
        await responder.comment()
    while (following := await _next(stream, owner, responder, until)) is not None:
        await _send(following, revision, responder)
    await _end(stream, responder, owner)


KEEP_ALIVE = 15.0
"""Seconds between comment lines on a quiet stream (N6)."""


async def _next(
    stream: Stream, owner: int, responder: Responder, until: float
) -> StoredEvent | None:
    while True:
        with trio.CancelScope(deadline=min(trio.current_time() + KEEP_ALIVE, until)):
            return await stream.take(owner)
        if trio.current_time() >= until:
            return None
        await responder.comment()
