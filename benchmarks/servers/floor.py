"""Servers that know next to nothing of MCP: what is slower than they are is MCP.

`asgi` is an ASGI application on our HTTP service that always gives the answer of `add` to 2 and 40,
`socket` a loop on a Trio socket that looks for the end of a head and for its length, and no more.
`upstream` is the same loop for an API that really adds, for tools that have to ask one. `held` is
the same loop for calls that are given up: it tells of the end of one as soon as it hears of it, and
has no handler that would have to be cancelled.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from collections.abc import Callable
from typing import Any

import trio
from telling import BEGAN, ENDED, tell

from mcp_trio import ServingSettings
from mcp_trio.http.serving import HTTPService

ANSWER = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 0,
        "result": {
            "content": [{"type": "text", "text": "42"}],
            "structuredContent": {"result": 42},
            "resultType": "complete",
        },
    },
    separators=(",", ":"),
).encode()
FIELDS = [(b"content-length", b"%d" % len(ANSWER)), (b"content-type", b"application/json")]
HEAD = b"HTTP/1.1 200 \r\ncontent-length: %d\r\ncontent-type: application/json\r\n\r\n%b"
"""Of a response, and its body behind it."""
STREAM = (
    b"HTTP/1.1 200 \r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    b"a\r\ndata: {}\n\n\r\n"
)
"""A stream that begins."""
OPENED = (
    b"HTTP/1.1 200 \r\nmcp-session-id: floor\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%b"
)
ACCEPTED = b"HTTP/1.1 202 \r\ncontent-length: 0\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Read the request, answer."""
    del scope
    while (await receive())["more_body"]:
        pass
    await send({"type": "http.response.start", "status": 200, "headers": FIELDS})
    await send({"type": "http.response.body", "body": ANSWER})


def whole(body: bytes) -> bytes:
    """A response that has a body."""
    return HEAD % (len(body), body)


def fixed(body: bytes) -> bytes:
    """Give the answer."""
    del body
    return whole(ANSWER)


def added(body: bytes) -> bytes:
    """Add two numbers."""
    given = json.loads(body)
    return whole(b'{"result":%d}' % (given["a"] + given["b"]))


async def straight(answer: Callable[[bytes], bytes], stream: trio.SocketStream) -> None:
    """Answer each request of a connection."""
    with contextlib.suppress(trio.BrokenResourceError):
        await _straight(answer, stream)


async def _straight(answer: Callable[[bytes], bytes], stream: trio.SocketStream) -> None:
    held = b""
    while data := await stream.receive_some(65536):
        held += data
        while (end := held.find(b"\r\n\r\n")) >= 0:
            fields = held[:end].lower().split(b"\r\n")
            lengths = [int(f[15:]) for f in fields if f.startswith(b"content-length:")]
            size = end + 4 + sum(lengths)
            if len(held) < size:
                break
            response = answer(held[end + 4 : size])
            held = held[size:]
            await stream.send_all(response)


waiting: dict[str, int] = {}
"""Calls that wait to be given up, by name, and the port of who is to be told."""


async def holding(stream: trio.SocketStream) -> None:
    """Answer each request of a connection but `hold`, whose call ends with it."""
    mine: list[str] = []

    def answer(body: bytes) -> bytes:
        match json.loads(body):
            case {"method": "notifications/cancelled", "params": {"requestId": name}}:
                end(name)
            case {"method": "initialize", "params": {"protocolVersion": revision}}:
                result = {"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": revision}}
                text = json.dumps(result).encode()
                return OPENED % (len(text), text)
            case {"params": {"name": "hold", "arguments": {"name": name, **asked}}}:
                mine.append(name)
                waiting[name] = asked["port"]
                tell(waiting[name], name, BEGAN)
                return STREAM if asked["talk"] else b""
            case {"id": _}:
                return whole(ANSWER)
        return ACCEPTED

    await straight(answer, stream)
    for name in mine:
        end(name)


def end(name: str) -> None:
    """Tell that a call has ended, if it has not before."""
    if name in waiting:
        tell(waiting.pop(name), name, ENDED)


async def main(kind: str) -> None:
    """Serve until terminated."""
    async with trio.open_nursery() as nursery:
        if kind == "asgi":
            settings = ServingSettings(
                max_requests_per_connection=10**9, max_connections_per_address=1000
            )
            service = HTTPService(app, settings=settings)
            (url,) = await nursery.start(service.run, "127.0.0.1", 0)
        else:
            handles = {
                "socket": functools.partial(straight, fixed),
                "upstream": functools.partial(straight, added),
                "held": holding,
            }
            handle = handles[kind]
            serve = functools.partial(trio.serve_tcp, handle, 0, host="127.0.0.1")
            (listener,) = await nursery.start(serve)
            url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        print(url if kind == "upstream" else f"{url}/mcp", file=sys.stderr, flush=True)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
