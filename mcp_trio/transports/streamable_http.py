"""The client's end of Streamable HTTP, both shapes of it (sections 5 and 6).

Every message is its own POST; the answers of all of them come out of one `receive`.
The HTTP client is handed in, so this is tested without a socket. No method name is
read: which headers go with a message was decided by the era's stamp.

What a server does to one request costs that request alone: its answer is then `Malformed`, and
says why. Only a session that the server has forgotten ends the line.
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, suppress

import attrs
import httpx2
import trio

from mcp_trio.engine.envelope import Envelope
from mcp_trio.engine.returning import Place
from mcp_trio.errors import (
    METHOD_NOT_FOUND,
    MCPError,
    SessionExpiredError,
    TransportError,
    UnauthorizedError,
)
from mcp_trio.framing.gate import EVENT_STREAM, JSON
from mcp_trio.framing.headers import LAST_EVENT_ID, METHOD, SESSION_ID, VERSION, is_session_id
from mcp_trio.framing.sse import EventTooLargeError, SSEDecoder
from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.messages import Batch, Error, Malformed, Message, Request, Result, Single
from mcp_trio.transports.http_endpoint import NOTICE_TIMEOUT, Endpoint, reading, told
from mcp_trio.transports.posts import Posts
from mcp_trio.wire.basic import RequestId

logger = logging.getLogger("mcp_trio.transports")

MAX_EVENT = 16 * 1024 * 1024
CLOSE_TIMEOUT = 2.0
"""Seconds that ending the session may take."""
MAX_FAILURES = 5
"""Times in a row that we come back for an answer and get nothing; then the request is lost."""
LINGER = 1.0
"""Seconds that a stream may stay open once it has brought its answer, and that other requests of
a session have once the server has forgotten it."""
STEADY = 60.0
"""Seconds after which a stream that brought nothing has worked all the same."""
EXPIRED = "the server has forgotten the session"


class StreamableHTTPTransport:
    """A line to one endpoint URL."""

    def __init__(
        self,
        url: str,
        client: httpx2.AsyncClient,
        *,
        max_event: int = MAX_EVENT,
        buffer: int = 64,
        notice_timeout: float = NOTICE_TIMEOUT,
    ) -> None:
        """Make one.

        Args:
            url: the endpoint, used exactly as given until the server moves it on its origin.
            client: sends the requests; stays the caller's. Give it no read timeout.
            max_event: bytes of one answer or event.
            buffer: messages that may wait to be received.
            notice_timeout: seconds for the server to take a message that has no answer.
        """
        self._endpoint = Endpoint(url, client)
        self._max_event = max_event
        self._notice_timeout = notice_timeout
        self._arrived, self._incoming = trio.open_memory_channel[Envelope](buffer)
        self._nursery: trio.Nursery | None = None
        self._pumping = trio.Event()
        self._closing = trio.Event()
        self._posts = Posts()
        self._calls: dict[RequestId, _Call] = {}
        self._quiet = trio.Event()
        """Set when the session is forgotten and no request of it is left."""
        self._stream: trio.CancelScope | None = None
        self._version: dict[str, str] = {}
        """The header with the revision, once there is one (H11)."""
        self._alone = False
        """Whether the newest message stood alone."""
        self.session_id: str | None = None
        """The session the server assigned, None where there is none."""
        self.expired = False
        """Whether the server has forgotten the session: the line is at its end."""
        self.status: int | None = None
        """HTTP status of the answer to the newest request; None while there is none."""

    async def pump(self) -> None:
        """Hold the tasks of the running POSTs until closed."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._pumping.set()
            try:
                await self._closing.wait()
            finally:
                self._nursery = None  # which takes no more tasks soon
                nursery.cancel_scope.cancel()

    # -- sending -------------------------------------------------------------------

    async def send(self, envelope: Envelope) -> None:
        """Send one message. A request returns at once, its answer is received later.

        Raises:
            TransportClosedError: closed.
            SessionExpiredError: the server has forgotten the session.
            TransportError: the server cannot be reached, or does not take a notification.
        """
        body = codec.encode(envelope.message)
        await self._pumping.wait()
        with self._posts.one():
            if self.expired:
                raise SessionExpiredError(EXPIRED)
            headers = self._headers(dict(envelope.headers or {}))
            self._alone = METHOD in headers
            if isinstance(envelope.message, Request):
                self._start(_Call(envelope.message.id, headers), body)
                return
            status = await self._endpoint.tell(headers, body, within=self._notice_timeout)
        if status == 404 and SESSION_ID in headers:
            self._expire()
            raise SessionExpiredError(EXPIRED)
        if not 200 <= status < 300:
            raise TransportError(f"the server answered {status} to a notification")

    def _start(self, call: _Call, body: bytes) -> None:
        if self._nursery is None:
            raise TransportError("the session that sent this is ending")
        self._calls[call.id] = call
        self._nursery.start_soon(self._run, call, body)

    def _headers(self, extra: dict[str, str]) -> dict[str, str]:
        if VERSION in extra:
            self._version = {VERSION: extra[VERSION]}
        extra["accept"] = f"{JSON}, {EVENT_STREAM}"
        extra["content-type"] = JSON
        if self.session_id is not None:
            extra[SESSION_ID] = self.session_id
        return extra

    # -- one request ---------------------------------------------------------------

    async def _run(self, call: _Call, body: bytes) -> None:
        self.status = None
        try:
            with call.scope:
                lost = await self._exchange(call, "POST", call.headers, body)
                while lost is not None:
                    if not call.can_come_back:
                        await self._lose(call.id, lost)
                        return
                    await trio.sleep(call.place.pause(_chance()))
                    lost = await self._exchange(call, "GET", _resuming(call.headers, call.place))
        finally:
            if self._calls.get(call.id) is call:
                del self._calls[call.id]
            if self.expired and not self._calls:
                self._quiet.set()

    async def _exchange(
        self, call: _Call, method: str, headers: dict[str, str | bytes], body: bytes | None = None
    ) -> str | None:
        """Carry one connection. None if the request is settled, else why it is not."""
        decoder = SSEDecoder(self._max_event)
        try:
            async with self._endpoint.ask(method, headers, body) as response:
                return await self._answer(call, response, decoder)
        except (EventTooLargeError, TransportError) as error:
            await self._lose(call.id, str(error))
            return None
        except UnauthorizedError as error:
            # Of this side: there is no token that the server takes.
            await self._deliver(Error(call.id, error.rpc_code, error.message, error.data))
            return None
        except httpx2.HTTPError as error:
            return f"{method} failed: {told(error)}"
        finally:
            call.place.note(decoder.last_id, decoder.retry, brought=False)

    async def _lose(self, id_: RequestId, reason: str, *, undone: bool = False) -> None:
        await self._arrived.send(Envelope(Malformed(reason, None, undone=undone), id_))

    async def _deliver(self, message: Message, related: RequestId | None = None) -> None:
        await self._arrived.send(Envelope(message, related))

    async def _answer(
        self, call: _Call, response: httpx2.Response, decoder: SSEDecoder
    ) -> str | None:
        """Take a response in. None if the request is settled, else why it is not."""
        self.status = status = response.status_code
        if response.is_success:
            self._note_session(call, response)
        media = _media(response)
        if media == EVENT_STREAM and response.is_success:
            answered = await self._take_stream(call, response, decoder)
            return None if answered else "the stream ended before the answer"
        message = codec.decode(await self._read(response)) if media == JSON else None
        settled = call.answers_in(message)
        if status == 404 and SESSION_ID in call.headers and not _is_about_method(settled):
            self._expire()
            await self._lose(call.id, EXPIRED, undone=True)
        elif message is not None and settled:
            await self._deliver(message if isinstance(message, Batch) else settled[0])
        elif isinstance(message, Error) and (message.id is None or not response.is_success):
            # Who refuses may not have read the id; it belongs to this POST all the same.
            await self._deliver(attrs.evolve(message, id=call.id))
        elif message is not None and response.is_success:
            await self._deliver(Malformed(call.fault_of(message), None, call.id))
        else:
            what = f", but with {media:.60}" if media else ""
            await self._lose(call.id, f"the server answered {status} without a reply{what}")
        return None

    def _note_session(self, call: _Call, response: httpx2.Response) -> None:
        """Take note of the session that an answer opens; a later one opens no other (H9).

        Raises:
            TransportError: its id is none.
        """
        given = response.headers.get(SESSION_ID)
        # A message that mirrors its method stands alone: no answer to it opens a session.
        if given is None or call.alone or self.session_id == given:
            return
        if not is_session_id(given):
            raise TransportError("the server gave the session an id that no header can carry")
        if self.session_id is None:
            self.session_id = given
        else:
            logger.warning("the server named another session in the middle of one; ignored")

    async def _read(self, response: httpx2.Response) -> bytes:
        body = bytearray()
        async with reading(response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > self._max_event:
                    raise EventTooLargeError(f"an answer is larger than {self._max_event} bytes")
        return bytes(body)

    async def _take_stream(
        self, call: _Call, response: httpx2.Response, decoder: SSEDecoder
    ) -> bool:
        """Pass on what a stream brings; whether the answer was in it."""
        answered = False
        # Having answered, a server closes the stream. One that does not is left.
        with trio.CancelScope() as waiting:
            async with aclosing(self._events(response, decoder)) as messages:
                async for message in messages:
                    if isinstance(message, Error) and message.id is None:
                        message = attrs.evolve(message, id=call.id)  # noqa: PLW2901
                    related = call.id if isinstance(message, Request) else None
                    await self._deliver(message, related)
                    self._settle_others(message, call)
                    if not answered and call.answers_in(message):
                        answered = True
                        waiting.deadline = trio.current_time() + LINGER
        return answered

    async def _events(
        self, response: httpx2.Response, decoder: SSEDecoder
    ) -> AsyncGenerator[Message]:
        # Whoever leaves it half read closes it: left to the collector, the pool learns late.
        async with reading(response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                for event in decoder.receive(chunk):
                    if event.data and event.event == "message":
                        yield codec.decode(event.data.encode())

    def _settle_others(self, message: Message, here: _Call | None) -> None:
        """Wait no more on the streams of requests that were answered on this one."""
        for answer in _answers(message):
            call = None if answer.id is None else self._calls.get(answer.id)
            if call is not None and call is not here:
                call.scope.cancel()

    # -- the stream of what belongs to no request ----------------------------------

    async def listen(self, headers: dict[str, str]) -> None:
        """Open the stream of messages that belong to no request; does not wait for it.

        A server that has none answers 405, which is no error. A stream that ends or breaks is
        opened again for as long as the line is open, ever more patiently where it brings nothing.
        """
        await self._pumping.wait()
        if self._nursery is not None and self._stream is None:
            self._stream = trio.CancelScope()
            self._nursery.start_soon(self._standalone, self._headers(dict(headers)), self._stream)

    async def _standalone(self, headers: dict[str, str], scope: trio.CancelScope) -> None:
        place = Place()
        with scope:
            try:
                while True:
                    if not await self._hear(headers, place):
                        return
                    await trio.sleep(place.pause(_chance()))
            except MCPError as error:
                logger.warning("what belongs to no request is not heard: %s", error)

    async def _hear(self, headers: dict[str, str], place: Place) -> bool:
        """Carry one connection; whether it is worth coming back.

        Raises:
            TransportError, UnauthorizedError: it is not, for a reason that should be known.
        """
        decoder = SSEDecoder(self._max_event)
        began, heard = trio.current_time(), False
        try:
            async with self._endpoint.ask("GET", _resuming(headers, place)) as response:
                if not response.is_success:
                    return response.status_code >= 500 or response.status_code in {408, 429}
                if _media(response) != EVENT_STREAM:
                    return False
                async with aclosing(self._events(response, decoder)) as messages:
                    async for message in messages:
                        heard = True
                        await self._deliver(message)
                        self._settle_others(message, None)
        except EventTooLargeError as error:
            logger.warning("the stream of what belongs to no request broke: %s", error)
        except httpx2.HTTPError as error:
            logger.debug("the stream of what belongs to no request broke: %s", told(error))
        finally:
            steady = trio.current_time() - began >= STEADY
            place.note(decoder.last_id, decoder.retry, brought=heard or steady)
        return True

    # -- receiving and closing -----------------------------------------------------

    async def receive(self) -> Envelope:
        """Wait for a message of any stream.

        Raises:
            trio.EndOfChannel: closed, or the server has forgotten the session.
        """
        try:
            return await self._incoming.receive()
        except trio.ClosedResourceError as error:
            raise trio.EndOfChannel from error
        except trio.EndOfChannel as error:
            raise trio.EndOfChannel(EXPIRED) from error

    def abandon(self, request_id: RequestId) -> bool:
        """Close the request's own stream; where a message stands alone that cancels it (N7)."""
        call = self._calls.pop(request_id, None)
        if call is None:
            return self._alone
        call.scope.cancel()
        return call.alone

    def _expire(self) -> None:
        """Begin the end of the line; who has asked already may still be answered."""
        if not self.expired and self._nursery is not None:
            self.expired = True
            if not self._calls:
                self._quiet.set()
            self._nursery.start_soon(self._end)

    async def _end(self) -> None:
        with trio.move_on_after(LINGER):
            await self._quiet.wait()
        if self._stream is not None:
            self._stream.cancel()
        for call in self._calls.values():
            call.scope.cancel()
        self._arrived.close()

    async def aclose(self) -> None:
        """End the session, if there is one, and every stream. Bounded in time."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._pumping.set()
        self._posts.close()
        if self._nursery is not None:
            # Before the channel closes: an answer that comes just now finds its task cancelled.
            self._nursery.cancel_scope.cancel()
        try:
            if self.session_id is not None and not self.expired:
                await self._say_goodbye(self.session_id)
        finally:
            self._arrived.close()
            self._incoming.close()

    async def _say_goodbye(self, session_id: str) -> None:
        # Whatever comes of it: the server forgets the session by itself.
        with trio.move_on_after(CLOSE_TIMEOUT), suppress(httpx2.HTTPError, MCPError):
            headers = {**self._version, SESSION_ID: session_id}
            async with self._endpoint.ask("DELETE", headers):
                pass


class _Call:
    """A request that has no answer yet, over all the connections that it takes."""

    def __init__(self, id_: RequestId, headers: dict[str, str]) -> None:
        self.id = id_
        self.headers: dict[str, str | bytes] = {**headers}
        self.alone = METHOD in headers
        """Whether its connection is all that the server knows of it (N7)."""
        self.scope = trio.CancelScope()
        self.place = Place()

    @property
    def can_come_back(self) -> bool:
        """Whether the answer may be had by another connection, and not too many were in vain."""
        known = self.place.last_id is not None and not self.alone
        return known and self.place.failures < MAX_FAILURES

    def answers_in(self, message: Message | None) -> list[Result | Error | Malformed]:
        """What in a message settles this request, be it an answer that cannot be read."""
        items: tuple[Single, ...] = message.items if isinstance(message, Batch) else ()
        if message is not None and not isinstance(message, Batch):
            items = (message,)
        return [
            item
            for item in items
            if (isinstance(item, Result | Error) and item.id == self.id)
            or (isinstance(item, Malformed) and item.lost == self.id)
        ]

    def fault_of(self, message: Message) -> str:
        """Why a message that came in place of the answer is none."""
        if isinstance(message, Malformed):
            return f"what the server answered cannot be read: {message.reason}"
        if isinstance(message, Result | Error):
            return "the server answered with the id of another request"
        return "the server answered with a message that is no answer"


def _answers(message: Message) -> Iterator[Result | Error]:
    items = message.items if isinstance(message, Batch) else (message,)
    return (item for item in items if isinstance(item, Result | Error))


def _is_about_method(settled: list[Result | Error | Malformed]) -> bool:
    """Whether a 404 says that there is no such method, rather than no such session."""
    return any(isinstance(item, Error) and item.code == METHOD_NOT_FOUND for item in settled)


def _media(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _resuming(headers: Mapping[str, str | bytes], place: Place) -> dict[str, str | bytes]:
    """The header fields of a GET, which goes on with a broken stream if it can (H5, H8)."""
    kept = {name: value for name, value in headers.items() if name != "content-type"}
    kept["accept"] = EVENT_STREAM
    # An id may be any text: it goes as the bytes that it came as.
    return kept if place.last_id is None else {**kept, LAST_EVENT_ID: place.last_id.encode()}


def _chance() -> float:
    return random.random()  # noqa: S311 - spreads out those who come back
