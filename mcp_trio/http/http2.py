"""HTTP/2 on one connection: Hypercorn's `H2Protocol`, with bounds where it has none.

Added here: the request body opens the peer's window only as the application takes it, so one
slow application does not stop the connection and no body piles up; a response waits while the
peer keeps the window shut, for `write_timeout` at most; an unfinished response resets its stream;
frames leave together, from the one task that may suspend on the wire; what a peer sends beside its
requests is budgeted (`http2_floods`), and nothing of it is kept. The rule of the file is that of
`http1`: it takes bytes, gives bytes, and decides.
"""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, cast

import h2.events
import h2.exceptions
import trio
from h2.errors import ErrorCodes
from h2.settings import SettingCodes, Settings
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol.events import (
    Body,
    Data,
    EndBody,
    EndData,
    StreamClosed,
    Trailers,
)
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h2 import BUFFER_HIGH_WATER, BufferCompleteError, H2Protocol, StreamBuffer
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.protocol.ws_stream import WSStream
from hyperframe.frame import GoAwayFrame
from priority.priority import DeadlockError, MissingStreamError, PriorityTree

from mcp_trio.framing.headers import TCHARS

from .asgi_call import LOGGER, AppCall, unheard
from .byte_pipe import READ_SIZE, Stall
from .http1 import AfterEOF, readable_handshake
from .http2_floods import FrameMeter
from .hypercorn_glue import Signal, Surroundings
from .ws_bounds import SocketMeter, bound, cut_off, let_go, overrun

WRITE_BATCH = 65536
"""Bytes collected from streams before they are written."""

PIECE = 4096
"""Bytes that h2 reads at a time. It opens every stream in them before the first one is refused,
and each costs more the more are open: 64 KiB of heads would hold up everybody for seconds."""

TABLE_BYTES = 4096
"""The most of our header fields that is remembered for a peer's decoder, whatever it offers."""

_KNOWN_SETTINGS = frozenset(SettingCodes)
_TARGET = re.compile(rb"/[!-~]*|\*")
"""What `:path` may be (RFC 9113, 8.3.1): as in HTTP/1.1 a path with its query, or an asterisk."""
_METHOD = re.compile(TCHARS.encode())
"""RFC 9110, 9.1."""


class BoundedBuffer(StreamBuffer):
    """A response buffer whose writer really waits while it is full.

    The stock one lets its writer go on after every attempt to send, also one that the peer's
    closed window has stopped, and so grows without end.
    """

    async def push(self, data: bytes) -> None:
        """Add ``data``, then wait until less than the high-water mark is held."""
        if self._complete:
            raise BufferCompleteError
        self.buffer.extend(data)
        await self._is_empty.clear()
        while len(self.buffer) >= BUFFER_HIGH_WATER and not self._complete:
            await self._paused.clear()
            await self._paused.wait()

    async def pop(self, max_length: int) -> bytes:
        """Take up to ``max_length`` bytes. Never suspends."""
        data = bytes(self.buffer[:max_length])
        del self.buffer[:max_length]
        if len(self.buffer) < BUFFER_HIGH_WATER:
            await self._paused.set()
        if not self.buffer:
            await self._is_empty.set()
        return data


class HTTP2(H2Protocol):
    """The protocol object of an HTTP/2 connection. See `HTTP1` for the common interface."""

    appetite = READ_SIZE
    """Bytes that are read at once."""

    delivers_itself = True
    """Answers are written by `send_task`."""

    resumable = False
    cut_short = False

    def __init__(self, around: Surroundings) -> None:
        super().__init__(
            around.app,
            around.config,
            around.context,
            around.tasks,
            around.connection_state(),
            around.ssl,
            around.client,
            around.server,
            around.send,
        )
        self.deadline = trio.current_time() + around.settings.header_timeout
        """When `expire` is due, on the Trio clock."""
        self._around = around
        self._settings = around.settings
        self._busy = False
        self._opening = 0  # the stream that `_create_stream` is about
        self._calls: dict[int, AppCall] = {}
        self._bodies: dict[int, float] = {}  # streams whose request body is due, and when
        self._stalls: dict[int, Stall] = {}  # responses that wait for the window
        self._sockets: dict[int, SocketMeter] = {}  # of streams that are WebSockets
        self._hearing = False  # a stream is taking what the peer has sent, in the reader's task
        self._doomed: set[int] = set()  # streams the reader has to reset
        self._unwritten = 0  # bytes given to `send` since the last write
        self._ended: list[AppCall] = []  # whose response ends in these bytes
        self._requests = 0  # begun on this connection
        self._over = False  # nothing more is taken from the peer
        self._retired = False  # GOAWAY has been said, and what is under way goes on
        self._meter = FrameMeter(around.settings, trio.current_time())
        # The stock class tells the peer this limit, and leaves h2 with a bigger one.
        self.connection.decoder.max_header_list_size = around.settings.max_header_bytes
        # What is in it is bounded by `_accepts`.
        most = 4 * around.settings.max_concurrent_streams + 1000
        self.priority = PriorityTree(maximum_streams=most)

    @property
    def congested(self) -> bool:
        """Whether reading on would only fill memory: WebSocket messages have no other bound."""
        return any(
            call.full
            for stream_id, call in self._calls.items()
            if isinstance(self.streams.get(stream_id), WSStream)
        )

    def adopt(self, call: AppCall) -> None:
        """Note the application call of the stream being opened, and bound its buffers."""
        stream_id = self._opening
        self._calls[stream_id] = call
        self.stream_buffers[stream_id] = BoundedBuffer(self.context.event_class)
        stream = self.streams[stream_id]
        if isinstance(stream, WSStream):
            bound(stream, self._around.config.messages)
            self._sockets[stream_id] = SocketMeter(self._settings, trio.current_time())
        else:
            call.consumed = partial(self._open_window, stream_id)

    # What the connection tells.

    async def initiate(
        self, headers: list[tuple[bytes, bytes]] | None = None, settings: bytes | None = None
    ) -> None:
        """Say our settings; from then on the number of streams is ours to judge.

        h2 would end the connection over one stream too many, also of a client that has not been
        told yet; `_accepts` refuses that stream alone.
        """
        await super().initiate(headers, settings)
        said = self.connection.local_settings.items()
        told = {SettingCodes(name): value for name, value in said}
        told[SettingCodes.MAX_CONCURRENT_STREAMS] = 2**31 - 1
        self.connection.local_settings = Settings(client=False, initial_values=told)

    async def handle(self, event: Event) -> None:
        """Take bytes, or the news that the connection is over."""
        if isinstance(event, RawData):
            excess = self._meter.take(event.data, trio.current_time())
            if excess is not None:
                await self._calm(excess)
            else:
                await self._hear(event.data)
        else:
            await super().handle(event)
        if isinstance(event, Closed):
            # Their writers wait for a send task that has just ended.
            for buffer in list(self.stream_buffers.values()):
                await buffer.close()
        self._settle()

    async def resume(self) -> None:
        """Reset the streams that another task has given up."""
        doomed, self._doomed = self._doomed, set()
        for stream_id in doomed:
            self._reset(stream_id, ErrorCodes.CANCEL)
            await self._close_stream(stream_id)
        await self._flush()
        self._settle()

    @property
    def unengaged(self) -> bool:
        """Whether no request is under way, so that a drain may close at once."""
        return self.idle

    async def expire(self) -> None:
        """The deadline has passed: reset the streams whose body is late, or close if idle."""
        now = trio.current_time()
        self._doomed.update(stream for stream, due in self._bodies.items() if due <= now)
        if self._doomed:
            await self.resume()
        elif self.idle:
            await self.goodbye()
            await self.send(Closed())

    async def end_of_input(self, *, writing: bool) -> AfterEOF:
        """Take the peer's end of file. HTTP/2 has no half-closed connections."""
        del writing
        return AfterEOF.GONE if self.streams else AfterEOF.CLOSE

    async def answer(self, start: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
        """Leave every answer to h2, which has the windows of the streams to keep."""
        del start, body
        return False

    async def invite_body(self) -> bool:
        """Flow control is the invitation: nothing to say."""
        return False

    async def goodbye(self) -> None:
        """Say GOAWAY."""
        with suppress(h2.exceptions.ProtocolError):
            self.connection.close_connection()
        await self._flush()

    def part(self) -> None:
        """Let go of the connection, which is over: else both are left to the garbage collector."""
        self.send = unheard
        del self.task_group, self._around

    async def _calm(self, excess: str) -> None:
        """End the connection: the peer goes beyond what it may."""
        self._over = True
        LOGGER.info("HTTP/2 connection of %s ended: too many %s", self.client, excess)
        with suppress(h2.exceptions.ProtocolError):
            self.connection.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
        await self._flush()
        await self.send(Closed())

    async def _retire(self) -> None:
        """Say GOAWAY, and go on with the streams there are. h2 can only say it and close."""
        self._retired = True
        await self._flush()
        last = self.connection.highest_inbound_stream_id
        frame = GoAwayFrame(stream_id=0, last_stream_id=last, error_code=ErrorCodes.NO_ERROR)
        await self.send(RawData(data=frame.serialize()))

    # Input.

    async def _hear(self, data: bytes) -> None:
        """Take bytes, a piece at a time, until there has been enough of them."""
        for start in range(0, len(data), PIECE):
            try:
                events = self.connection.receive_data(data[start : start + PIECE])
            except h2.exceptions.ProtocolError:
                await self._flush()
                await self.send(Closed())
                return
            await self._handle_events(events)
            if self._over:
                return

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        for event in events:
            if self._over:
                return
            # The stock limit on requests closes the connection under its open streams.
            self.keep_alive_requests = 0
            if isinstance(event, h2.events.PriorityUpdated):
                continue  # RFC 9113 has given it up, and the tree would grow with it
            if isinstance(event, h2.events.RequestReceived):
                if not await self._accepts(event):
                    continue
                if event.stream_ended is None:
                    due = trio.current_time() + self._settings.body_timeout
                    self._bodies[event.stream_id or 0] = due
            elif isinstance(event, h2.events.DataReceived):
                await self._take_data(event)
                continue
            elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)):
                self._bodies.pop(event.stream_id or 0, None)
                if isinstance(event, h2.events.StreamReset) and not event.remote_reset:
                    await self._count_reset()
            elif isinstance(event, h2.events.RemoteSettingsChanged):
                self._forget_settings()
            await super()._handle_events([event])
        await self._flush()

    async def _accepts(self, event: h2.events.RequestReceived) -> bool:
        """Whether this request is served; if not, it is answered or its stream reset."""
        stream_id = event.stream_id or 0
        fields = event.headers or []
        headers = dict(fields)
        path = headers.get(b":path", b"")
        method = headers.get(b":method", b"")
        if self._retired or self.context.terminated.is_set():
            # RFC 9113, 8.7: the client may send it again, elsewhere.
            return await self._refuse(stream_id, ErrorCodes.REFUSED_STREAM)
        # As HTTP/1.1 could say it: whoever passes it on, or reads the log, sees the same request.
        plain = _TARGET.fullmatch(path) and _METHOD.fullmatch(method)
        if not plain or not readable_handshake(fields):
            return await self._refuse(stream_id, ErrorCodes.PROTOCOL_ERROR)
        if len(path) > self._settings.max_url_bytes:
            return self._answer(event, b"414")
        if sum(not name.startswith(b":") for name, _ in fields) > self._settings.max_header_fields:
            return self._answer(event, b"431")
        if len(self.streams) >= self._settings.max_concurrent_streams:
            return await self._refuse(stream_id, ErrorCodes.REFUSED_STREAM)
        # A reset stream no longer counts for that, its application does until it has returned:
        # opening and resetting in a row must not buy unlimited work.
        if len(self._calls) >= 2 * self._settings.max_concurrent_streams:
            return await self._refuse(stream_id, ErrorCodes.ENHANCE_YOUR_CALM)
        self._requests += 1
        most = self._settings.max_requests_per_connection + self._settings.max_concurrent_streams
        if self._requests >= most:  # of which none has ended in its turn
            await self._retire()
        return True

    async def _refuse(self, stream_id: int, code: ErrorCodes) -> bool:
        self._reset(stream_id, code)
        await self._count_reset()
        return False

    async def _count_reset(self) -> None:
        """Count a reset that the peer has brought about, as if it had sent it (CVE-2025-8671)."""
        if not self.closed and not self._meter.reset(trio.current_time()):
            await self._calm("resets")

    def _answer(self, event: h2.events.RequestReceived, status: bytes) -> bool:
        """Refuse a request with a status and no more."""
        stream_id = event.stream_id or 0
        with suppress(h2.exceptions.ProtocolError):
            fields = [(b":status", status), (b"content-length", b"0")]
            self.connection.send_headers(stream_id, fields, end_stream=True)
        if event.stream_ended is None:
            self._reset(stream_id, ErrorCodes.NO_ERROR)
        return False

    def _forget_settings(self) -> None:
        """Keep no setting that nobody knows, and no table beyond what we want to fill."""
        settings = self.connection.remote_settings
        for name in [name for name in settings if name not in _KNOWN_SETTINGS]:
            del settings[name]
        encoder = self.connection.encoder
        encoder.header_table_size = min(encoder.header_table_size, TABLE_BYTES)
        if len(changes := encoder.table_size_changes) > 2:
            # Only the least and the last are of interest to a decoder (RFC 7541, 4.2).
            encoder.table_size_changes = [min(changes), changes[-1]]

    async def _take_data(self, event: h2.events.DataReceived) -> None:
        stream_id = event.stream_id or 0
        data = event.data or b""
        size = event.flow_controlled_length or 0
        stream = self.streams.get(stream_id)
        call = self._calls.get(stream_id)
        if stream is None:
            # Answered before its body was read: the client may spare the rest.
            self._reset(stream_id, ErrorCodes.NO_ERROR)
        else:
            await self._pass_on(stream_id, stream, data)
            if overrun(stream):
                self._reset(stream_id, ErrorCodes.ENHANCE_YOUR_CALM)
                await self._close_stream(stream_id)
            if call is not None and call.consumed is not None:
                size -= len(data)
        self._open_window(stream_id, size)

    async def _pass_on(self, stream_id: int, stream: HTTPStream | WSStream, data: bytes) -> None:
        meter = self._sockets.get(stream_id)
        self._hearing = True
        try:
            if meter is not None and isinstance(stream, WSStream) and stream.handshake.accepted:
                reason = meter.take(data, trio.current_time())
                if reason is not None:
                    await cut_off(stream, reason)
                    return
            await stream.handle(Body(stream_id=stream_id, data=data))
        finally:
            self._hearing = False

    def _open_window(self, stream_id: int, size: int) -> None:
        """Let the peer send ``size`` bytes more, on this stream and on the connection."""
        if size > 0 and not self.closed:
            with suppress(h2.exceptions.ProtocolError):
                self.connection.acknowledge_received_data(size, stream_id)
            cast("Signal", self.has_data).notify()

    async def _create_stream(self, request: h2.events.RequestReceived) -> None:
        self._opening = request.stream_id or 0
        await super()._create_stream(request)

    async def _close_stream(self, stream_id: int) -> None:
        self._bodies.pop(stream_id, None)
        self._sockets.pop(stream_id, None)
        let_go(self.streams.get(stream_id))
        await super()._close_stream(stream_id)
        if stream_id in self.stream_buffers:
            # Its writer must not wait for a window that nobody will open any more.
            await self.stream_buffers[stream_id].close()
        self._settle()

    def end_call(self, call: AppCall) -> None:
        """Forget a call that has returned, and free the window its unread body holds."""
        for stream_id, known in list(self._calls.items()):
            if known is call:
                del self._calls[stream_id]
                if call.consumed is not None:
                    self._open_window(stream_id, call.unread)

    def _settle(self) -> None:
        if self._bodies:
            self.deadline = min(self._bodies.values())
            self._busy = True
        elif not self.idle:
            self.deadline = math.inf
            self._busy = True
        elif self._busy:
            self.deadline = trio.current_time() + self._settings.keep_alive_timeout
            self._busy = False

    # Output.

    async def stream_send(self, event: StreamEvent) -> None:
        """Take a part of a response from Hypercorn's stream; wait while the window is shut.

        Raises:
            trio.BrokenResourceError: the peer kept the window shut for ``write_timeout``.
        """
        if isinstance(event, StreamClosed):
            buffer = self.stream_buffers.get(event.stream_id)
            if buffer is not None and not buffer.complete:
                self._reset(event.stream_id, ErrorCodes.INTERNAL_ERROR)
                await buffer.close()
            await super().stream_send(event)
            if not self._retired and self._requests >= self._settings.max_requests_per_connection:
                # Now and not at its begin: many a client gives up what is under way at a GOAWAY.
                await self._retire()
            if self._retired and self.idle:
                await self.send(Closed())
        elif self._hearing and isinstance(event, Data):
            await self._answer_frame(event)
        elif isinstance(event, (Body, Data)) and len(event.data) > BUFFER_HIGH_WATER:
            # What the peer has not opened its window for is not held a second time.
            for start in range(0, len(event.data), BUFFER_HIGH_WATER):
                piece = event.data[start : start + BUFFER_HIGH_WATER]
                await self._push(type(event)(stream_id=event.stream_id, data=piece))
        elif isinstance(event, (Body, Data, EndBody, EndData, Trailers)):
            await self._push(event)
        else:
            await super().stream_send(event)

    async def _answer_frame(self, event: Data) -> None:
        """Queue a pong or a farewell, which the reader must not wait for; drop it if it cannot go.

        Waiting here would keep out the very window update that it waits for.
        """
        buffer = self.stream_buffers.get(event.stream_id)
        if buffer is not None and len(buffer.buffer) < BUFFER_HIGH_WATER:
            buffer.buffer.extend(event.data)
            with suppress(MissingStreamError):
                self.priority.unblock(event.stream_id)
            cast("Signal", self.has_data).notify()

    async def _push(self, event: StreamEvent) -> None:
        stall = Stall(self._settings.write_timeout)
        with stall.scope:
            self._stalls[event.stream_id] = stall
            try:
                await super().stream_send(event)
            finally:
                self._stalls.pop(event.stream_id, None)
        if stall.scope.cancelled_caught:
            self._doomed.add(event.stream_id)
            self._around.wake_reader()
            if event.stream_id in self._calls:
                # Else an application that lets the error by would seem to have failed.
                self._calls[event.stream_id].give_up()
            raise trio.BrokenResourceError("the peer has not opened its window")

    async def _send_data(self, stream_id: int) -> None:
        buffer = self.stream_buffers.get(stream_id)
        before = len(buffer.buffer) if buffer is not None else 0
        await super()._send_data(stream_id)
        if stream_id not in self.stream_buffers and (call := self._calls.get(stream_id)):
            call.end()
            self._ended.append(call)
        sent = 0 if buffer is None else before - len(buffer.buffer)
        if sent <= 0:
            return
        self._meter.sent_data()
        stall = self._stalls.get(stream_id)
        if stall is not None:
            stall.moved(sent)

    async def send_task(self) -> None:
        """Move response bytes from the streams to the wire, until the connection closes."""
        while not self.closed:
            try:
                stream_id = next(self.priority)
            except DeadlockError:
                await self._flush()
                await self._write()
                await self.has_data.wait()
                await self.has_data.clear()
            else:
                await self._send_data(stream_id)
                if self._unwritten > WRITE_BATCH:
                    await self._write()
                    await trio.lowlevel.checkpoint()

    async def _write(self) -> None:
        self._unwritten = 0
        ended, self._ended = self._ended, []
        await self._around.flush()
        for call in ended:
            call.written()

    async def _flush(self) -> None:
        """Queue the frames h2 has ready. `send_task` writes them."""
        data = self.connection.data_to_send()
        if data:
            self._unwritten += len(data)
            await self.send(RawData(data=data))
            cast("Signal", self.has_data).notify()

    def _reset(self, stream_id: int, code: ErrorCodes) -> None:
        with suppress(h2.exceptions.ProtocolError):
            self.connection.reset_stream(stream_id, code)
