"""The client's end of Streamable HTTP, both shapes of it (sections 5 and 6).

Every message is its own POST; the answers of all of them come out of one `receive`.
The HTTP client is handed in, so this is tested without a socket. No method name is
read: which headers go with a message was decided by the era's stamp.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import httpx2
import trio

from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import TransportError, UnauthorizedError
from mcp_trio.framing.gate import EVENT_STREAM, JSON
from mcp_trio.framing.headers import LAST_EVENT_ID, METHOD, SESSION_ID
from mcp_trio.framing.sse import EventTooLargeError, SSEDecoder
from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.messages import Error, Malformed, Message, Request, Result
from mcp_trio.transports.posts import Posts
from mcp_trio.wire.basic import RequestId

MAX_EVENT = 16 * 1024 * 1024
CLOSE_TIMEOUT = 2.0
"""Seconds that ending the session may take."""
DEFAULT_RETRY = 1000
"""Milliseconds before we come back to a broken stream, where the server did not say."""
MIN_RETRY = 10
"""Milliseconds that we wait even for a server that would have us at once."""
MAX_IDLE = 5
"""Times in a row that we come back and get nothing; then the request is lost."""
STEADY = 5.0
"""Seconds after which a stream that ended counts as one that worked, though nothing came."""


class StreamableHTTPTransport:
    """A line to one endpoint URL."""

    def __init__(
        self, url: str, client: httpx2.AsyncClient, *, max_event: int = MAX_EVENT, buffer: int = 64
    ) -> None:
        """Make one.

        Args:
            url: the endpoint, used exactly as given.
            client: sends the requests; stays the caller's. Give it no read timeout.
            max_event: bytes of one answer or event.
            buffer: messages that may wait to be received.
        """
        self._url = url
        self._client = client
        self._max_event = max_event
        self._arrived, self._incoming = trio.open_memory_channel[Envelope](buffer)
        self._nursery: trio.Nursery | None = None
        self._pumping = trio.Event()
        self._closing = trio.Event()
        self._posts = Posts()
        self._requests: dict[RequestId, trio.CancelScope] = {}
        self._stream: trio.CancelScope | None = None
        self._alone = False
        """Whether a request stands alone: it mirrors its method, and belongs to no session."""
        self.session_id: str | None = None
        """The session the server assigned, None where there is none."""
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

    async def send(self, envelope: Envelope) -> None:
        """Send one message. A request returns at once, its answer is received later.

        Raises:
            TransportClosedError: closed.
            TransportError: the server cannot be reached or refuses a notification.
        """
        body = codec.encode(envelope.message)
        await self._pumping.wait()
        with self._posts.one():
            headers = self._headers(dict(envelope.headers or {}))
            self._alone = METHOD in headers
            if isinstance(envelope.message, Request):
                self._start(envelope.message.id, body, headers)
                return
            try:
                response = await self._client.post(self._url, content=body, headers=headers)
            except httpx2.HTTPError as error:
                raise TransportError(f"POST failed: {error}") from error
        if response.status_code >= 400:
            raise TransportError(f"the server answered {response.status_code} to a notification")

    def _start(self, id_: RequestId, body: bytes, headers: dict[str, str]) -> None:
        if self._nursery is None:
            raise TransportError("the session that sent this is ending")
        scope = self._requests[id_] = trio.CancelScope()
        self._nursery.start_soon(self._request, id_, body, headers, scope)

    def _headers(self, extra: dict[str, str]) -> dict[str, str]:
        extra["accept"] = f"{JSON}, {EVENT_STREAM}"
        extra["content-type"] = JSON
        if self.session_id is not None:
            extra[SESSION_ID] = self.session_id
        return extra

    async def _request(
        self, id_: RequestId, body: bytes, headers: dict[str, str], scope: trio.CancelScope
    ) -> None:
        self.status = None
        try:
            with scope:
                place = _Place()
                reason = await self._exchange(id_, place, "POST", headers, body)
                while reason is not None:
                    if not place.can_come_back or METHOD in headers:
                        await self._lost(id_, reason)
                        return
                    await trio.sleep(place.pause / 1000)
                    reason = await self._exchange(id_, place, "GET", self._resuming(headers, place))
        finally:
            if self._requests.get(id_) is scope:
                del self._requests[id_]

    def _resuming(self, headers: dict[str, str], place: _Place) -> dict[str, str]:
        """The header fields of the GET that goes on with a broken stream (H5, H8)."""
        kept = {name: value for name, value in headers.items() if name != "content-type"}
        return {**kept, "accept": EVENT_STREAM, LAST_EVENT_ID: place.last_id or ""}

    async def _exchange(
        self,
        id_: RequestId,
        place: _Place,
        method: str,
        headers: dict[str, str],
        body: bytes | None = None,
    ) -> str | None:
        """Carry one connection. None if the request is settled, else why it is not."""
        decoder = SSEDecoder(self._max_event)
        try:
            async with self._client.stream(
                method, self._url, content=body, headers=headers
            ) as response:
                return await self._answer(id_, response, decoder)
        except EventTooLargeError as error:
            await self._lost(id_, str(error))
            return None
        except UnauthorizedError as error:
            # Of this side: there is no token that the server takes.
            answer = Error(id_, error.rpc_code, error.message, error.data)
            await self._arrived.send(Envelope(answer))
            return None
        except httpx2.HTTPError as error:
            return f"{method} failed: {type(error).__name__} {error}".rstrip()
        finally:
            place.note(decoder)

    async def _lost(self, id_: RequestId, reason: str) -> None:
        await self._arrived.send(Envelope(Malformed(reason, None), id_))

    async def _answer(
        self, id_: RequestId, response: httpx2.Response, decoder: SSEDecoder
    ) -> str | None:
        """Take a response in. None if the request is settled, else why it is not."""
        self.status = response.status_code
        # A message that mirrors its method stands alone: no answer to it opens a session.
        alone = METHOD in response.request.headers
        if SESSION_ID in response.headers and response.is_success and not alone:
            self.session_id = response.headers[SESSION_ID]
        media = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media == EVENT_STREAM:
            answered = False
            async with aclosing(self._events(response, decoder)) as messages:
                async for message in messages:
                    answered = answered or _answers(message, id_)
                    related = id_ if isinstance(message, Request) else None
                    await self._arrived.send(Envelope(message, related))
            return None if answered else "the stream ended before the answer"
        body = await self._read(response) if media == JSON else b""
        match codec.decode(body):
            case Result() as result if result.id == id_:
                await self._arrived.send(Envelope(result))
            case Error() as error if error.id in {id_, None}:
                # A refusal before the id could be read still belongs to this POST.
                answer = Error(id_, error.code, error.message, error.data)
                await self._arrived.send(Envelope(answer))
            case _:
                await self._lost(id_, f"the server answered {response.status_code} without a reply")
        return None

    async def _read(self, response: httpx2.Response) -> bytes:
        body = bytearray()
        async with aclosing(response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > self._max_event:
                    raise EventTooLargeError(f"an answer is larger than {self._max_event} bytes")
        return bytes(body)

    async def _events(
        self, response: httpx2.Response, decoder: SSEDecoder
    ) -> AsyncGenerator[Message]:
        # Whoever leaves it half read closes it: left to the collector, the pool learns late.
        async with aclosing(response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                for event in decoder.receive(chunk):
                    if event.data and event.event == "message":
                        yield codec.decode(event.data.encode())

    async def listen(self, headers: dict[str, str]) -> None:
        """Open the stream of messages that belong to no request; does not wait for it.

        A server that has none answers 405, which is no error. One that ends is opened again,
        from where it ended if the server says where that is, until that is in vain too often.
        """
        await self._pumping.wait()
        if self._nursery is not None and self._stream is None:
            self._stream = trio.CancelScope()
            self._nursery.start_soon(self._standalone, self._headers(dict(headers)), self._stream)

    async def _standalone(self, headers: dict[str, str], scope: trio.CancelScope) -> None:
        headers["accept"] = EVENT_STREAM
        headers.pop("content-type")
        place = _Place()
        failures = 0
        with scope:
            while failures < MAX_IDLE:
                began = trio.current_time()
                try:
                    if not await self._hear(headers, place):
                        break
                except (EventTooLargeError, UnauthorizedError):
                    break
                except httpx2.HTTPError:
                    pass
                steady = trio.current_time() - began >= STEADY
                failures = 0 if steady or place.moved else failures + 1
                await trio.sleep(place.pause / 1000 * 2**failures)
        self._stream = None

    async def _hear(self, headers: dict[str, str], place: _Place) -> bool:
        """Carry one connection of that stream. False if the server has none."""
        decoder = SSEDecoder(self._max_event)
        resuming = {} if place.last_id is None else {LAST_EVENT_ID: place.last_id}
        try:
            headers = headers | resuming
            async with self._client.stream("GET", self._url, headers=headers) as response:
                media = response.headers.get("content-type", "")
                if not (response.is_success and media.startswith(EVENT_STREAM)):
                    return response.status_code >= 500  # which may pass
                async with aclosing(self._events(response, decoder)) as messages:
                    async for message in messages:
                        await self._arrived.send(Envelope(message))
        finally:
            place.note(decoder)
        return True

    async def receive(self) -> Envelope:
        """Wait for a message of any stream."""
        try:
            return await self._incoming.receive()
        except trio.ClosedResourceError as error:
            raise trio.EndOfChannel from error

    def abandon(self, request_id: RequestId) -> bool:
        """Close the request's own stream. Where it stands alone, that is the cancellation (N7).

        After a handshake it is none, whether the server has named a session or not.
        """
        scope = self._requests.pop(request_id, None)
        if scope is not None:
            scope.cancel()
        return self._alone

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
            if self.session_id is not None:
                with trio.move_on_after(CLOSE_TIMEOUT):
                    await self._client.delete(self._url, headers={SESSION_ID: self.session_id})
        except (httpx2.HTTPError, UnauthorizedError):
            pass  # the server forgets the session by itself
        finally:
            self._arrived.close()
            self._incoming.close()


class _Place:
    """Where in a request's stream we are, and how to get back there."""

    def __init__(self) -> None:
        self.last_id: str | None = None
        self.pause = DEFAULT_RETRY
        """Milliseconds to wait before coming back, as the server wishes (H5)."""
        self.moved = False
        """Whether the last connection brought an id, or said when to come back."""
        self._idle = -1
        """Connections in a row that brought nothing; the first one is the POST."""

    @property
    def can_come_back(self) -> bool:
        """Whether the server gave us an id, and coming back has not been in vain too often."""
        return self.last_id is not None and self._idle < MAX_IDLE

    def note(self, decoder: SSEDecoder) -> None:
        """Learn from a connection that has ended."""
        # A server that says when to come back means to go on: that is no failure.
        self.moved = bool(decoder.last_id) or decoder.retry is not None
        self._idle = 0 if self.moved else self._idle + 1
        self.last_id = decoder.last_id or self.last_id
        if decoder.retry is not None:
            self.pause = max(decoder.retry, MIN_RETRY)


def _answers(message: Message, id_: RequestId) -> bool:
    return isinstance(message, Result | Error) and message.id == id_
