"""The client's end of HTTP+SSE, the transport of the first revision.

One GET brings everything the server says, each message of ours is a POST to the URI that the
server named first (E1, E2). The HTTP client is handed in, so this is tested without a socket.
"""

from __future__ import annotations

import httpx2
import trio
import trio.lowlevel

from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import MCPError, TransportError
from mcp_trio.framing.gate import EVENT_STREAM, JSON
from mcp_trio.framing.sse import EventTooLargeError, ServerEvent, SSEDecoder
from mcp_trio.jsonrpc import codec
from mcp_trio.transports.http_endpoint import NOTICE_TIMEOUT, Endpoint, moved, reading, told
from mcp_trio.transports.posts import Posts
from mcp_trio.wire.basic import RequestId

MAX_EVENT = 16 * 1024 * 1024
OPEN_TIMEOUT = 10.0
"""Seconds for the server to name the URI to POST to."""


class HTTPSSETransport:
    """A line to one HTTP+SSE server. `pump` opens it; sending and receiving wait for that."""

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
            url: of the event stream, used exactly as given.
            client: sends the requests; stays the caller's. Give it no read timeout.
            max_event: bytes of one message.
            buffer: messages that may wait to be received; then the stream is not read.
            notice_timeout: seconds for the server to take a message.
        """
        self._stream = Endpoint(url, client)
        self._client = client
        self._notice_timeout = notice_timeout
        self._max_event = max_event
        self._arrived, self._incoming = trio.open_memory_channel[Envelope](buffer)
        self._opened = trio.Event()
        """Set when the URI is known, or never will be."""
        self._endpoint: Endpoint | None = None
        self._failure = "the server has closed the stream"
        self._closing = trio.Event()
        self._posts = Posts()

    async def pump(self) -> None:
        """Read the stream until it ends or the transport is closed."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, nursery.cancel_scope)
                with trio.move_on_after(OPEN_TIMEOUT) as limit:
                    await self._opened.wait()
                if limit.cancelled_caught:
                    self._fail("the server named no endpoint in time")
                else:
                    await self._closing.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._fail(self._failure)

    def _fail(self, reason: str) -> None:
        self._failure = reason
        self._endpoint = None
        self._opened.set()
        self._arrived.close()

    async def _read(self, around: trio.CancelScope) -> None:
        try:
            async with self._stream.ask("GET", {"accept": EVENT_STREAM}) as response:
                media = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                if not response.is_success or media != EVENT_STREAM:
                    self._fail(f"the server answered {response.status_code} without a stream")
                    return
                decoder = SSEDecoder(self._max_event)
                async with reading(response.aiter_bytes()) as chunks:
                    async for chunk in chunks:
                        for event in decoder.receive(chunk):
                            await self._take(event)
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            pass  # closed by us while a message came in
        except MCPError as error:
            self._fail(error.message)
        except EventTooLargeError as error:
            self._fail(f"the stream broke: {error}")
        except httpx2.HTTPError as error:
            self._fail(f"the stream broke: {told(error)}")
        finally:
            around.cancel()

    async def _take(self, event: ServerEvent) -> None:
        if event.event == "endpoint" and self._endpoint is None:
            # What we say must not be sent wherever a server likes (E2).
            self._endpoint = Endpoint(moved(self._stream.url, event.data), self._client)
            self._opened.set()
        elif event.event == "message" and event.data:
            await self._arrived.send(Envelope(codec.decode(event.data.encode())))

    async def send(self, envelope: Envelope) -> None:
        """POST one message; the answer comes out of `receive`.

        Raises:
            TransportClosedError: closed.
            TransportError: the stream is gone, or the server does not take the message.
        """
        body = codec.encode(envelope.message)
        await self._opened.wait()
        headers = {**(envelope.headers or {}), "content-type": JSON}
        with self._posts.one():
            if self._endpoint is None:
                raise TransportError(self._failure)
            status = await self._endpoint.tell(headers, body, within=self._notice_timeout)
        if not 200 <= status < 300:
            raise TransportError(f"the server answered {status} to a message")

    async def receive(self) -> Envelope:
        """Wait for a message of the stream.

        Raises:
            trio.EndOfChannel: closed, or the stream has ended; says why.
        """
        try:
            return await self._incoming.receive()
        except trio.ClosedResourceError as error:
            raise trio.EndOfChannel from error
        except trio.EndOfChannel as error:
            raise trio.EndOfChannel(self._failure) from error

    def abandon(self, request_id: RequestId) -> bool:  # noqa: ARG002 - the contract
        """Tell nobody: the stream is shared, so a notification has to."""
        return False

    async def aclose(self) -> None:
        """Close the stream, and with it the session."""
        self._closing.set()
        self._posts.close()
        self._opened.set()
        self._arrived.close()
        self._incoming.close()
        await trio.lowlevel.checkpoint()
