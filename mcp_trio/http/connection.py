"""The loop of one HTTP connection: a reader, a write buffer, and the tasks of its requests.

One task per connection reads; one per request runs the application; no other (HTTP/2 has one that
writes). The reader's wait has one deadline, which the protocol object moves as its state changes,
so nothing idles beside it. Writes are collected and leave in one piece, each bounded by
`write_timeout` and cancellable; a write that was left half done breaks the connection, which is
then closed and never written to again. Who has connected, and TLS, are for `arrival`; parsing and
its decisions live in `http1` and `http2`, the socket in `byte_pipe`, the application's side in
`asgi_call`.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import Any, cast

import attrs
import trio
from hypercorn import typing as hypercorn_typing
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h11 import H2ProtocolAssumedError

from .access import Note, Tell, noted
from .arrival import LINGER_BYTES, Doorway, with_tls
from .asgi_call import LOGGER, AppCall, ASGIApp, Respond, Scope
from .byte_pipe import open_pipe
from .http1 import HTTP1, AfterEOF
from .http2 import HTTP2
from .hypercorn_glue import ProtocolConfig, Surroundings, WorkerContext
from .proxy_protocol import ProxyHeaderError
from .refusals import refusing
from .serving_settings import ServingSettings
from .tls import UnfitCertificateError
from .turns import others_first

JOIN_BYTES = 65536
"""What is joined into one write at most; bigger pieces are written alone and not copied."""


@attrs.frozen(kw_only=True)
class ServiceParts:
    """What all connections of one service share."""

    app: ASGIApp
    """The application."""

    doorway: Doorway
    """Who may come in."""

    settings: ServingSettings
    """The limits."""

    config: ProtocolConfig
    """The limits, as Hypercorn's protocol classes read them."""

    context: WorkerContext
    """Whether the service drains, as Hypercorn's protocol classes read it."""

    tell: Tell | None
    """Who is told of each exchange that is over."""


class Connection:
    """One accepted connection. `run` serves it to its end; use it once."""

    def __init__(self, parts: ServiceParts, stream: trio.abc.Stream) -> None:
        """Take over ``stream``, which `run` will close."""
        self.half_closed = False
        """The peer has sent an end of file."""
        self.broken = False
        """Nothing can be written any more; what was written may be incomplete."""
        self._parts = parts
        self._settings = parts.settings
        self._stream = stream
        self._pipe = open_pipe(stream, close_timeout=parts.settings.linger_timeout)
        if isinstance(stream, trio.SSLStream):
            stream = cast("trio.SSLStream[trio.abc.Stream]", stream).transport_stream
        self._peer = parts.doorway.look(stream)
        self._place: str | None = None  # what this connection counts as, once it counts
        self._nursery: trio.Nursery
        self._reader: trio.lowlevel.Task | None = None
        self._read_scope = trio.CancelScope()  # the reader's latest wait
        self._woken = False  # the reader should look again before it waits
        self._calls: set[AppCall] = set()
        self._out: list[bytes] = []  # bytes not yet given to the pipe
        self._write_lock = trio.Lock()  # held while a write has to wait
        self._closing = False  # close once `_out` is written
        self._quiet = False  # nothing was said before closing, so nothing can be lost by it
        self._protocol: HTTP1 | HTTP2 = HTTP1(self._surroundings())

    @property
    def client(self) -> tuple[str, int] | None:
        """Address and port of the peer; None where the stream has none."""
        return self._peer.client

    @property
    def requests_in_flight(self) -> int:
        """Application calls that have not returned."""
        return len(self._calls)

    async def run(self) -> None:
        """Serve until the peer or the protocol ends the connection, then wait for its requests.

        Cancelling is the hard stop: callbacks run, requests are cancelled, the socket closes,
        nothing waits for the peer. A fault in protocol code is logged and ends only this
        connection.
        """
        try:
            async with trio.open_nursery() as self._nursery:
                self._reader = trio.lowlevel.current_task()
                try:
                    if await self._arrive():
                        await self._protocol.initiate()
                        await self._read_until_closing()
                        self._lose_calls()
                        if self._calls:
                            await others_first()
                        await self._protocol.handle(Closed())
                        await self._linger()
                finally:
                    await self._release()
        except* Exception as fault:  # noqa: BLE001 - one connection must not end the service
            LOGGER.error("connection with %s failed", self.client, exc_info=fault)
        finally:
            self._protocol.part()

    def drain(self) -> None:
        """Close as soon as no request is under way; `WorkerContext.draining` is set already."""
        self.wake_reader()

    # Opening and closing, in the reader's task.

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            app=cast("hypercorn_typing.AppWrapper", self._parts.app),
            settings=self._settings,
            config=self._parts.config,
            context=self._parts.context,
            tasks=cast("hypercorn_typing.TaskGroup", self),
            ssl=self._peer.tls is not None,
            client=self._peer.client,
            server=self._peer.server,
            send=self._take_event,
            flush=self.flush,
            wake_reader=self.wake_reader,
            refused=self._note_refusal,
        )

    async def _arrive(self) -> bool:
        """Find out who it is, count him, do the TLS handshake; return whether to go on."""
        doorway = self._parts.doorway
        try:
            peer = await doorway.meet(self._stream, self._peer)
            if not doorway.crowd.enter(peer.place):
                await doorway.turn_away(self._stream)
                return False
            self._place = peer.place
            secure = await doorway.secure(self._stream)
            if secure is not None:
                peer = with_tls(peer, secure)
        except (
            ProxyHeaderError,
            UnfitCertificateError,
            trio.BrokenResourceError,
            trio.TooSlowError,
        ):
            return False
        if secure is not None:
            self._pipe = open_pipe(secure, close_timeout=self._settings.linger_timeout)
        if peer is not self._peer:
            self._peer = peer
            self._protocol = HTTP1(self._surroundings())
        if secure is not None and secure.selected_alpn_protocol() == "h2":
            self._protocol = HTTP2(self._surroundings())
        return True

    def _lose_calls(self) -> None:
        """Tell every call that is left that the connection is over."""
        with ExitStack() as every:
            # The stack runs the other callbacks also when one of them raises.
            for call in self._calls:
                every.callback(call.lose_peer)

    async def _linger(self) -> None:
        """Let the peer read our last words: closing over unread bytes would destroy them."""
        if self.broken or self.half_closed or self._quiet or self._protocol.cut_short:
            return
        with trio.move_on_after(self._settings.linger_timeout):
            try:
                await self._pipe.send_eof()
                left = LINGER_BYTES
                while left > 0 and (data := await self._pipe.receive()):
                    left -= len(data)
            except trio.BrokenResourceError:
                return

    async def _release(self) -> None:
        """End what is left; called cancelled, it does not wait."""
        try:
            # On the usual way out they know already; after a fault or a cancel they do not.
            self._lose_calls()
            await self._protocol.handle(Closed())
        finally:
            self._parts.doorway.crowd.leave(self._place)
            self.broken |= self._protocol.cut_short
            await self._pipe.aclose(abort=self.broken)

    # Reading.

    async def _read_until_closing(self) -> None:
        """Feed the protocol object until it, or the peer, or a drain wants the end."""
        draining = self._parts.context.draining
        while True:
            await self.flush()
            if draining.is_set() and self._protocol.unengaged and not self._closing:
                self._quiet = True
                await self._protocol.goodbye()
                await self.flush()
                return
            if self._closing or self.broken:
                return
            if await self._read_on():
                await self._take_eof()
            elif trio.current_time() >= self._protocol.deadline:
                self._quiet = self._protocol.idle
                await self._protocol.expire()
            else:
                await self._protocol.resume()

    async def _read_on(self) -> bool:
        """Feed the protocol object until the loop must look again; whether at an end of file.

        That is: after `wake_reader`, at the protocol's deadline, with something to write or to end,
        or with `broken` set. One scope serves many waits, since a scope costs as much as a small
        head; so its deadline may be an earlier one than is wanted, and the loop comes back here.
        """
        with trio.CancelScope(deadline=self._protocol.deadline) as self._read_scope:
            while not self._woken:
                data = await self._receive()
                if not data:
                    return data is not None
                await self._feed(data)
                if self._out or self._closing or self._write_lock.locked():
                    break
                self._watch_deadline()
        self._woken = False
        return False

    async def _receive(self) -> bytes | None:
        """Return the next bytes, ``b""`` at the end of file; None if the peer is gone."""
        try:
            if not self.half_closed and not self._protocol.congested:
                return await self._pipe.receive(self._protocol.appetite)
            await self._pipe.wait_hangup()
        except trio.BrokenResourceError:
            pass
        self._break()
        return None

    def _watch_deadline(self) -> None:
        """See to it that the reader's wait ends by the protocol's deadline."""
        # Setting it costs, also to what it was.
        if self._protocol.deadline < self._read_scope.deadline:  # noqa: PLR1730
            self._read_scope.deadline = self._protocol.deadline

    async def _feed(self, data: bytes) -> None:
        try:
            await self._protocol.handle(RawData(data))
        except H2ProtocolAssumedError as preface:
            # HTTP/2 by prior knowledge: the client opened with a preface that h11 can read.
            self._protocol = HTTP2(self._surroundings())
            await self._protocol.initiate()
            await self._protocol.handle(RawData(preface.data))

    async def _take_eof(self) -> None:
        """Decide what the peer's end of file means, by its answer to a probe if that is at hand."""
        self.half_closed = True
        meaning = await self._protocol.end_of_input(writing=self._write_lock.locked())
        if meaning is AfterEOF.CLOSE:
            self._closing = True
        elif meaning is AfterEOF.GONE or not self._pipe.probeable:
            self._break()
        else:
            await self.flush()
            if not self.broken and self._pipe.hung_up():
                self._break()

    def in_reader(self) -> bool:
        """Whether the running task is this connection's reader."""
        return trio.lowlevel.current_task() is self._reader

    def wake_reader(self) -> None:
        """Make the reader look again at what it waits for. Cheap, idempotent, from any task."""
        self._woken = True
        if not self.in_reader():
            self._read_scope.cancel()

    # Writing.

    def _note_refusal(self, method: bytes, status: int) -> None:
        """Tell of a request that was refused before there was an application call."""
        if self._parts.tell is not None:
            now = trio.current_time()
            note = Note(
                method=method.decode("ascii", "backslashreplace"),
                path=None,
                version=None,
                client=self._peer.client[0] if self._peer.client else None,
                began=now,
                ended=now,
                status=status,
                complete=True,
            )
            self._parts.tell(note)

    async def _take_event(self, event: Event) -> None:
        """Take what the protocol object sends. Never suspends."""
        if isinstance(event, RawData):
            if not self.broken:
                self._out.append(event.data)
        elif isinstance(event, Closed):
            self._closing = True
            self.wake_reader()
        elif isinstance(event, Updated) and event.idle:
            if self._protocol.resumable or self._parts.context.draining.is_set():
                self.wake_reader()
            else:
                self._watch_deadline()

    async def flush(self) -> None:
        """Write what has been collected; on return it is with the kernel, or `broken` is set.

        A second caller waits for the first. Cancelled while its bytes are under way, a caller
        leaves the connection broken; cancelled while it waits for its turn, it leaves whole
        messages to the one that is writing.
        """
        if self.broken:
            return
        if not self._write_lock.locked():
            while self._out:
                data = self._take_out()
                try:
                    sent = self._pipe.send_nowait(data)
                except trio.BrokenResourceError:
                    self._break()
                    return
                if sent < len(data):
                    self._write_lock.acquire_nowait()
                    await self._write_slowly(memoryview(data)[sent:])
            return
        await self._write_lock.acquire()
        await self._write_slowly(memoryview(b""))

    async def _write_slowly(self, data: memoryview) -> None:
        """Write ``data`` and whatever is collected meanwhile, then let go of the lock."""
        whole = False
        try:
            while data or self._out:
                await self._pipe.send(
                    data or memoryview(self._take_out()), self._settings.write_timeout
                )
                data = memoryview(b"")
            whole = True
            for call in self._calls:
                call.written()
        except (trio.TooSlowError, trio.BrokenResourceError):
            pass
        finally:
            self._write_lock.release()
            if not whole:
                self._break()

    def _take_out(self) -> bytes:
        """Remove and return what to write next: all of it, as far as joining it is cheap."""
        out = self._out
        size = count = 0
        for piece in out:
            size += len(piece)
            if count and size > JOIN_BYTES:
                break
            count += 1
        data = out[0] if count == 1 else b"".join(out[:count])
        del out[:count]
        return data

    def _break(self) -> None:
        self.broken = True
        self._out.clear()
        self.wake_reader()

    # Calls.

    async def spawn_app(
        self,
        app: hypercorn_typing.AppWrapper,
        config: ProtocolConfig,
        scope: Scope,
        respond: Respond,
    ) -> Callable[[dict[str, object]], Awaitable[None]]:
        """Start a request's application task, for Hypercorn's streams; return its inbox."""
        del app, config
        place, status = self._parts.doorway.admit(scope, self._peer)
        # Over HTTP/1.1 whatever loses a call its peer ends the whole connection.
        limit = self._nursery.cancel_scope if isinstance(self._protocol, HTTP1) else None
        call = AppCall(self, scope, respond, grace=self._settings.disconnect_grace, limit=limit)
        self._calls.add(call)
        self._protocol.adopt(call)
        served = self._parts.app if status is None else refusing(status)
        if self._parts.tell is not None:
            served = noted(served, self._parts.tell)
        self._nursery.start_soon(self._run_call, call, served, place)
        return call.put

    async def _run_call(self, call: AppCall, app: ASGIApp, place: str | None) -> None:
        try:
            await call.run(app)
        finally:
            self._parts.doorway.crowd.leave(place)

    def spawn(self, function: Callable[..., Awaitable[None]], *args: object) -> None:
        """Start a task of the protocol object, which ends with the connection."""
        self._nursery.start_soon(function, *args)

    def end_call(self, call: AppCall) -> None:
        """Forget a call whose application has returned."""
        self._protocol.end_call(call)
        # A send that failed may end the application before the reader could run its callback.
        if call.lost or not self.broken:
            self._calls.discard(call)

    async def answer(self, start: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
        """Take a whole answer from a call; False if it has to be given part by part."""
        return await self._protocol.answer(start, body)

    async def deliver(self) -> None:
        """Write what a call has just said, where that is not the protocol object's own task."""
        if not self._protocol.delivers_itself:
            await self.flush()

    async def invite_body(self) -> None:
        """Tell a client that waits for ``100 Continue`` to go on."""
        if await self._protocol.invite_body():
            await self.deliver()
