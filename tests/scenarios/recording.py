"""Taps: every message of a connection, as it travels, goes to a `Conversation` too."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import httpx2
import trio

from mcp_trio.abc import Transport
from mcp_trio.engine.envelope import Envelope
from mcp_trio.jsonrpc import codec
from mcp_trio.wire import RequestId
from tests.wire.official import Conversation, Sender


class TappedTransport:
    """A transport whose outgoing messages are heard."""

    def __init__(self, inner: Transport, conversation: Conversation, sender: Sender) -> None:
        self._inner = inner
        self._conversation = conversation
        self._sender: Sender = sender

    async def send(self, envelope: Envelope) -> None:
        self._conversation.hear(self._sender, json.loads(codec.encode(envelope.message)))
        await self._inner.send(envelope)

    async def receive(self) -> Envelope:
        return await self._inner.receive()

    def abandon(self, request_id: RequestId) -> bool:
        return self._inner.abandon(request_id)

    async def pump(self) -> None:
        await self._inner.pump()

    async def aclose(self) -> None:
        await self._inner.aclose()


class TappedStream(trio.abc.SendStream):
    """A stream of lines that are heard."""

    def __init__(
        self, inner: trio.abc.SendStream, conversation: Conversation, sender: Sender
    ) -> None:
        self._inner = inner
        self._conversation = conversation
        self._sender: Sender = sender
        self._rest = b""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        *lines, self._rest = (self._rest + bytes(data)).split(b"\n")
        for line in lines:
            self._conversation.hear(self._sender, json.loads(line))
        await self._inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._inner.aclose()


class TappedHTTP(httpx2.AsyncBaseTransport):
    """An HTTP client's transport: bodies of POSTs, and what answers them, are heard."""

    def __init__(self, conversation: Conversation) -> None:
        self._inner = httpx2.AsyncHTTPTransport()
        self._conversation = conversation

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            self._conversation.hear("client", json.loads(request.content))
        answer = await self._inner.handle_async_request(request)
        return httpx2.Response(
            answer.status_code,
            headers=answer.headers,
            stream=_TappedBody(answer, self._conversation),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


class _TappedBody(httpx2.AsyncByteStream):
    def __init__(self, answer: httpx2.Response, conversation: Conversation) -> None:
        self._stream = answer.stream
        self._events = answer.headers.get("content-type") == "text/event-stream"
        self._conversation = conversation
        self._rest = b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            self._rest += part
            if self._events:
                *blocks, self._rest = self._rest.split(b"\n\n")
                for block in blocks:
                    hear_event(self._conversation, block.decode())
            yield part
        if not self._events and self._rest:
            self._conversation.hear("server", json.loads(self._rest))

    async def aclose(self) -> None:
        await self._stream.aclose()


def hear_event(conversation: Conversation, block: str) -> None:
    """Take one event of a stream of the server; one that has data has a message."""
    data = [line.removeprefix("data: ") for line in block.split("\n") if line.startswith("data: ")]
    if any(data):
        conversation.hear("server", json.loads("\n".join(data)))
