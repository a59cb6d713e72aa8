"""HTTP/1.1 on one connection: h11 through Hypercorn's `H11Protocol`, with our rules added.

Added here: no handler ever suspends (pipelined input stays in h11 until the answer before it is
done), ``100 Continue`` goes out when the application first asks for the body, a read deadline for
each state, refusal of request smuggling, and the probe for a half-closed peer. The rule of the
file: it takes bytes, gives bytes, and decides; the connection reads, writes and closes.
"""

import enum
import math
from collections.abc import Iterable, Mapping
from typing import Any, cast

import h11
import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, Data, EndBody, Request, Response
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import (
    STREAM_ID,
    H2ProtocolAssumedError,
    H11Protocol,
    H11WSConnection,
)
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.protocol.ws_stream import WSStream
from hypercorn.typing import H11SendableEvent

from .asgi_call import AppCall, unheard
from .byte_pipe import READ_SIZE
from .hypercorn_glue import Surroundings
from .strict_lines import read_strictly
from .whole_messages import Head, plain_request, whole_answer
from .ws_bounds import SocketMeter, bound, cut_off, let_go, overrun

MAX_AHEAD = 65536
"""Bytes of pipelined requests held while an earlier one is answered."""
FRAMES_SIZE = 8192
"""Bytes of a WebSocket that are read at once: they may be a thousand messages in 64 KiB, and nobody
else has a turn before all of them have been taken apart."""

_PREFACE = b"PRI * HTTP/2.0\r\n\r\n"
_TOKENS = frozenset({b"connection", b"sec-websocket-extensions", b"sec-websocket-protocol"})
_READ = {h11.CLIENT: h11.DONE, h11.SERVER: h11.SEND_RESPONSE}
_ALL_SAID = frozenset({h11.DONE, h11.MUST_CLOSE})
_SPECIAL = frozenset({b"HEAD", b"CONNECT"})
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
_COMMENT = b":\n\n"
_PROCESSING = b"HTTP/1.1 102 \r\n\r\n"


class Phase(enum.Enum):
    """What the reader waits for."""

    HEAD = "the rest of a request head, or the very first byte"
    BODY = "the rest of a request body"
    ANSWER = "nothing: a request is being answered"
    IDLE = "the next request"


class AfterEOF(enum.Enum):
    """What an end of file from the peer means."""

    CLOSE = "nothing is in flight: close"
    GONE = "the peer is taken for gone"
    WATCH = "the peer may still listen; what is written now or next is the probe"


class HTTP1(H11Protocol):
    """The protocol object of an HTTP/1.1 connection, WebSocket included."""

    delivers_itself = False
    """Answers are written by the task that sends them."""

    keep_alive_requests: int
    """Requests begun; counted by `H11Protocol` too, where it opens the stream."""

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
        # As it is now, before any upgrade.
        read_strictly(cast("h11.Connection", self.connection))
        settings = around.settings
        self.deadline = trio.current_time() + settings.header_timeout
        """When `expire` is due, on the Trio clock."""
        self._limits: dict[Phase, float] = {
            Phase.HEAD: settings.header_timeout,
            Phase.BODY: settings.body_timeout,
            Phase.ANSWER: math.inf,
            Phase.IDLE: settings.keep_alive_timeout,
        }
        self._settings = settings
        self._refused = around.refused
        self._messages = around.config.messages
        self._meter: SocketMeter | None = None  # once this is a WebSocket
        self.appetite = READ_SIZE
        """Bytes that are read at once."""
        self._max_head = settings.max_header_bytes
        self._max_fields = settings.max_header_fields
        self._max_url = settings.max_url_bytes
        self._max_requests = settings.max_requests_per_connection
        self._phase: Phase = Phase.HEAD
        self._paused = False  # h11 holds input that must wait for the answer under way
        self._ahead = 0  # bytes received while paused
        # What has come of the request under way, if h11 has not read it, and what of it has not.
        self._whole: bytes | bytearray = b""
        self._missing = 0
        self._ended = False  # nor heard of the end of file behind it
        self._lasting = False  # nothing in the request under way speaks against another one
        self._call: AppCall | None = None  # of the stream under way
        self._method = b""  # of the request under way
        self._response: Response | None = None  # the head of its response, once sent
        self._tail = b""  # the last bytes of its body

    # What the connection asks.

    @property
    def idle(self) -> bool:
        """Whether no request is under way, not even a part of its head."""
        return self.stream is None and not self.connection.trailing_data[0]

    @property
    def unengaged(self) -> bool:
        """Whether no whole request head has come yet, so that a drain may close at once."""
        return self.stream is None

    @property
    def congested(self) -> bool:
        """Whether reading on would only fill memory."""
        return self._ahead > MAX_AHEAD or (self._call is not None and self._call.full)

    @property
    def resumable(self) -> bool:
        """Whether received input waits for `resume`."""
        return self._paused

    @property
    def cut_short(self) -> bool:
        """Whether a response is incomplete and only its close would say where it ends."""
        version = getattr(self.connection, "their_http_version", None)
        return (
            self._response is not None
            and version == b"1.0"
            and self.connection.our_state in {h11.SEND_BODY, h11.ERROR}
            and _header(self._response, b"content-length") is None
        )

    def adopt(self, call: AppCall) -> None:
        """Note the application call of the stream being opened, and bound a WebSocket."""
        self._call = call
        if isinstance(self.stream, WSStream):
            bound(self.stream, self._messages)
            self._meter = SocketMeter(self._settings, trio.current_time())
            self.appetite = FRAMES_SIZE

    def end_call(self, call: AppCall) -> None:
        """Nothing is kept for a call that has returned."""

    # What the connection tells.

    async def handle(self, event: Event) -> None:
        """Take bytes, or the news that the connection is over. Never suspends."""
        if isinstance(event, RawData):
            if not await self._take_plain(event.data):
                self._ask_h11()
                if self._paused:
                    self._ahead += len(event.data)
                self.connection.receive_data(event.data)
                await self._handle_events()
        elif isinstance(event, Closed):
            await self._close_stream()

    async def resume(self) -> None:
        """Go on with input that had to wait. Never suspends."""
        if self._paused:
            await self._handle_events()

    async def expire(self) -> None:
        """The deadline has passed: answer 408 where something had begun, and close."""
        if self.idle:
            await self.send(Closed())
        else:
            await self._refuse(408)

    async def end_of_input(self, *, writing: bool) -> AfterEOF:
        """Take the peer's end of file, and produce a probe if it can tell what it means.

        Args:
            writing: bytes of an answer are on their way just now, which is a probe as well.
        """
        if isinstance(self.connection, H11WSConnection):
            return AfterEOF.GONE
        unread = self._whole and not self._missing
        streams = not unread and self._sends_events()
        if (unread or streams) and not writing:
            self._ended = True  # which h11 hears when it has to say something
        else:
            self._ask_h11()
            self.connection.receive_data(b"")
            await self._handle_events()
        if self.stream is None:
            return AfterEOF.CLOSE
        if writing:
            return AfterEOF.WATCH
        if unread:
            await self.send(RawData(_PROCESSING))
            return AfterEOF.WATCH
        if self.connection.our_state is h11.SEND_RESPONSE:
            # RFC 9110 15.2: an interim response is for clients of HTTP/1.1 only.
            if self.connection.their_http_version != b"1.1":
                return AfterEOF.GONE
            await self._send_h11_event(h11.InformationalResponse(status_code=102, headers=[]))
            return AfterEOF.WATCH
        if not streams:
            return AfterEOF.GONE
        if self._tail.endswith(_EVENT_ENDS) or not self._tail:
            await self._send_h11_event(h11.Data(data=_COMMENT))
        # Within an event a comment would damage it: its remainder, soon to come, is the probe.
        return AfterEOF.WATCH

    async def invite_body(self) -> bool:
        """Say ``100 Continue`` to a client that waits for it; return whether one did."""
        if not self.connection.they_are_waiting_for_100_continue:
            return False
        await self._send_h11_event(h11.InformationalResponse(status_code=100, headers=[]))
        return True

    async def goodbye(self) -> None:
        """HTTP/1.1 has no farewell for an idle connection."""

    def part(self) -> None:
        """Let go of the connection, which is over: else both are left to the garbage collector."""
        self.send = unheard
        del self.task_group, self._refused

    # Input.

    async def _take_plain(self, data: bytes) -> bool:
        """Begin a plain request, or go on with its body; False if h11 has to read this."""
        if self._missing:
            return await self._take_more(data)
        if self.stream is not None or not isinstance(self.connection, h11.Connection):
            return False
        # Once a response is over that closes the connection, what comes is no request any more.
        if self.connection.our_state is not h11.IDLE or any(self.connection.trailing_data):
            return False
        if (found := plain_request(data)) is None:
            return False
        if await self._begin(found.head):
            self._whole, self._missing = data, found.missing
            await self._pass_body(found.body)
        self._settle()
        return True

    async def _take_more(self, data: bytes) -> bool:
        if len(data) > self._missing:
            return False
        if isinstance(self._whole, bytes):
            self._whole = bytearray(self._whole)
        self._whole += data
        self._missing -= len(data)
        await self._pass_body(data)
        self._settle()
        return True

    async def _pass_body(self, body: bytes) -> None:
        if body:
            await self._pass_on(Body(stream_id=STREAM_ID, data=body))
        if not self._missing:
            await self._pass_on(EndBody(stream_id=STREAM_ID))

    async def _pass_on(self, event: StreamEvent) -> None:
        if self.stream is not None:
            await self.stream.handle(event)

    def _ask_h11(self) -> None:
        """Have h11 read the request under way as well, if it has not: it is needed now."""
        data, self._whole, self._missing = self._whole, b"", 0
        if data and isinstance(self.connection, h11.Connection):
            self.connection.receive_data(bytes(data))
            event = self.connection.next_event()
            while event is not h11.NEED_DATA and not isinstance(event, h11.EndOfMessage):
                event = self.connection.next_event()
        if self._ended:
            self._ended = False
            self.connection.receive_data(b"")
            self.connection.next_event()

    async def _handle_events(self) -> None:
        self._paused = False
        while True:
            try:
                event = self.connection.next_event()
            except h11.RemoteProtocolError as error:
                await self._refuse(self._status_of(error))
                break
            if isinstance(event, h11.Request):
                headers = [(name.lower(), value) for name, value in event.headers.raw_items()]
                head = Head(event.method, event.target, headers, event.http_version)
                if not await self._begin(head, event):
                    break
            elif self.stream is None or not isinstance(event, (h11.Data, h11.EndOfMessage, Data)):
                self._paused = event is h11.PAUSED
                if self.stream is None and isinstance(event, h11.ConnectionClosed):
                    # An end of file that came while h11 was paused; there is no second one.
                    await self.send(Closed())
                break
            elif isinstance(event, h11.Data):
                await self.stream.handle(Body(stream_id=STREAM_ID, data=event.data))
            elif isinstance(event, h11.EndOfMessage):
                await self.stream.handle(EndBody(stream_id=STREAM_ID))
                if not any(self.connection.trailing_data):
                    break  # the usual case; h11 would only say so too, but take longer
            else:
                await self._take_frames(event)
        if self.stream is not None and (self.stream.closed or overrun(self.stream)):
            # Hypercorn has refused a WebSocket handshake or message without ending it.
            await self.send(Closed())
        self._settle()

    def _status_of(self, error: h11.RemoteProtocolError) -> int:
        """The status of an error; a head that has no end of its first line has too long a URL."""
        status = error.error_status_hint
        return 414 if status == 431 and b"\n" not in self.connection.trailing_data[0] else status

    async def _take_frames(self, event: Data) -> None:
        """Pass on the bytes of a WebSocket, unless they are too many frames."""
        stream = self.stream
        if not isinstance(stream, WSStream):
            return
        if self._meter is not None and stream.handshake.accepted:
            reason = self._meter.take(event.data, trio.current_time())
            if reason is not None:
                await cut_off(stream, reason)
                return
        await stream.handle(event)

    async def _begin(self, head: Head, request: h11.Request | None = None) -> bool:
        """Open the stream of a request, or refuse its head and return False."""
        self._method = head.method
        upgrade = False
        self._lasting = head.version == b"1.1"
        size = len(head.target)
        framing: set[bytes] = set()
        for name, value in head.headers:
            size += len(name) + len(value) + 4
            if name in _FRAMING:
                framing.add(name)
            elif name == b"upgrade":
                upgrade = True
            elif name == b"connection" and value.lower() != b"keep-alive":
                self._lasting = False
        status = self._judge(head, size, framing)
        if status is not None:
            await self._refuse(status)
            return False
        if upgrade and request is not None:
            if not readable_handshake(head.headers):
                await self._refuse(400)
                return False
            await self._create_stream(request)  # WebSocket, perhaps
            return True
        self.stream = HTTPStream(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        self.keep_alive_requests += 1
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=head.headers,
                http_version=head.version.decode("ascii"),
                method=head.method.decode("ascii").upper(),
                raw_path=origin_form(head.target),
                state=self.connection_state,
            )
        )
        return True

    def _judge(self, head: Head, size: int, framing: set[bytes]) -> int | None:
        """Return the status to refuse this head with, if it is to be refused.

        Raises:
            H2ProtocolAssumedError: it is the preface of HTTP/2.
        """
        version = head.version
        if version not in {b"1.1", b"1.0"}:
            if head.method == b"PRI" and not self.keep_alive_requests:
                raise H2ProtocolAssumedError(_PREFACE + self.connection.trailing_data[0])
            return 505
        if len(head.target) > self._max_url:
            return 414
        if size > self._max_head or len(head.headers) > self._max_fields:
            return 431
        # RFC 9112 6.1: both framings at once, or a transfer coding from HTTP/1.0, is how one
        # request is smuggled inside another past a proxy that reads it differently.
        if len(framing) > 1 or (version == b"1.0" and b"transfer-encoding" in framing):
            return 400
        if not head.target.startswith(b"/") and not names_one_host(head):
            return 400
        return None

    async def _refuse(self, status: int) -> None:
        """Answer with an error if nothing was answered yet, tell the application, close."""
        if self.connection.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            if self._call is None:
                self._refused(self._method, status)
            await self._send_error_response(status)
        await self._close_stream()
        await self.send(Closed())

    def _settle(self) -> None:
        """Set the deadline that belongs to the state h11 is in now."""
        state = self.connection.their_state
        if self._whole:
            phase = Phase.BODY if self._missing else Phase.ANSWER
        elif state is h11.IDLE:
            first = not self.keep_alive_requests
            phase = Phase.HEAD if first or self.connection.trailing_data[0] else Phase.IDLE
        else:
            phase = Phase.BODY if state is h11.SEND_BODY else Phase.ANSWER
        if phase is not self._phase:
            self._phase = phase
            self.deadline = trio.current_time() + self._limits[phase]

    # Output.

    async def answer(self, start: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
        """Answer the request under way at once with all there is; False if h11 has to see to it.

        Never suspends. h11 hears nothing of such an answer: for the next request it begins anew.
        """
        connection, stream = self.connection, self.stream
        if not (
            self._lasting
            and not self._ended
            and isinstance(connection, h11.Connection)
            and isinstance(stream, HTTPStream)
            and stream.state is ASGIHTTPState.REQUEST
            and not self._missing
            and (self._whole or connection.states == _READ)
            and self._method not in _SPECIAL
            and not start.get("trailers")
            and not self._is_last_answer()
        ):
            return False
        more = self.config.response_headers("h11")
        data = whole_answer(start["status"], start.get("headers", ()), more, body.get("body", b""))
        if data is None:
            return False
        await self.send(RawData(data))
        stream.state = ASGIHTTPState.CLOSED
        await self._close_stream()
        if self._whole:
            self._whole = b""
        else:
            left, ended = connection.trailing_data
            self.connection = self._fresh()
            if left:
                self.connection.receive_data(left)
            if ended:
                self.connection.receive_data(b"")
        await self._renew()
        return True

    def _fresh(self) -> h11.Connection:
        """The parser and its state before the first byte of a request."""
        size = self.config.h11_max_incomplete_size
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=size)
        read_strictly(connection)
        return connection

    async def stream_send(self, event: StreamEvent) -> None:
        """Take a part of the response from Hypercorn's stream."""
        self._ask_h11()
        if isinstance(event, Response):
            self._response = event
            self._tail = b""
            if event.status_code >= 200 and self._is_last_answer():
                headers = [*event.headers, (b"connection", b"close")]
                event = Response(STREAM_ID, headers, event.status_code)
        elif isinstance(event, Body):
            self._tail = event.data[-4:] if len(event.data) > 3 else (self._tail + event.data)[-4:]
        await super().stream_send(event)

    def _is_last_answer(self) -> bool:
        return (
            self.context.terminated.is_set()
            # The body is not all here, and the application answers without waiting for it.
            or self.connection.their_state in {h11.SEND_BODY, h11.CLOSED}
            or self.keep_alive_requests >= self._max_requests
        )

    def _sends_events(self) -> bool:
        """Whether an event stream is under way into which a comment can be put."""
        connection = self.connection
        if self._response is None or connection.our_state is not h11.SEND_BODY:
            return False
        if connection.their_state not in _ALL_SAID:
            return False
        kind = _header(self._response, b"content-type") or b""
        return (
            kind.lower().startswith(b"text/event-stream")
            and self._method != b"HEAD"
            and _header(self._response, b"content-length") is None
            and _header(self._response, b"content-encoding") is None
        )

    async def _send_h11_event(self, event: H11SendableEvent) -> None:
        # After a fault of its own the response is beyond repair; closing says so.
        if self.connection.our_state is not h11.ERROR:
            await super()._send_h11_event(event)

    async def _maybe_recycle(self) -> None:
        """The response is over, or is given up: make ready for the next request, or close."""
        done = (
            self.connection.our_state is h11.DONE
            and self.connection.their_state is h11.DONE
            and not self.context.terminated.is_set()
        )
        await self._close_stream()
        if not done:
            await self.send(Closed())
            return
        self.connection.start_next_cycle()
        await self._renew()

    async def _renew(self) -> None:
        """Wait for the next request from now on."""
        self._response = None
        self._ahead = 0
        self._settle()
        await self.send(Updated(idle=True))

    async def _close_stream(self) -> None:
        self._call = None
        self._method = b""
        let_go(self.stream)
        await super()._close_stream()


def origin_form(target: bytes) -> bytes:
    """The path and query of a target, also of one in absolute form (RFC 9112, section 3.2.2)."""
    scheme, found, rest = target.partition(b"://")
    if not found or scheme.lower() not in {b"http", b"https"}:
        return target
    _, slash, path = rest.partition(b"/")
    return slash + path if slash else b"/"


def names_one_host(head: Head) -> bool:
    """Whether a target in absolute form names the host that `Host` does (RFC 9112, 3.2.2)."""
    scheme, found, rest = head.target.partition(b"://")
    if not found or scheme.lower() not in {b"http", b"https"}:
        return True
    hosts = {value.lower() for name, value in head.headers if name == b"host"}
    return hosts == {rest.partition(b"/")[0].partition(b"?")[0].lower()}


def readable_handshake(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether Hypercorn can read a WebSocket handshake: it takes these fields for ASCII."""
    return all(value.isascii() for name, value in headers if name in _TOKENS)


def _header(response: Response, name: bytes) -> bytes | None:
    """Return the value of a response header, whatever its case."""
    return next((value for key, value in response.headers if key.lower() == name), None)
