"""Two servers that always give the answer of `add` to 2 and 40, and know nothing of MCP.

`asgi` is an ASGI application on our HTTP service, `socket` a loop on a Trio socket that looks for
the end of a head and for its length, and no more. What is slower than they are is MCP. `upstream`
is the same loop for an API that really adds, for tools that have to ask one.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from collections.abc import Callable
from typing import Any

import trio

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


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Read the request, answer."""
    del scope
    while (await receive())["more_body"]:
        pass
    await send({"type": "http.response.start", "status": 200, "headers": FIELDS})
    await send({"type": "http.response.body", "body": ANSWER})


def fixed(body: bytes) -> bytes:
    """Give the answer."""
    del body
    return ANSWER


def added(body: bytes) -> bytes:
    """Add two numbers."""
    given = json.loads(body)
    return b'{"result":%d}' % (given["a"] + given["b"])


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
            body = answer(held[end + 4 : size])
            held = held[size:]
            await stream.send_all(HEAD % (len(body), body))


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
            handle = functools.partial(straight, added if kind == "upstream" else fixed)
            serve = functools.partial(trio.serve_tcp, handle, 0, host="127.0.0.1")
            (listener,) = await nursery.start(serve)
            url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        print(url if kind == "upstream" else f"{url}/mcp", file=sys.stderr, flush=True)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
