"""Two servers that always give the answer of `add` to 2 and 40, and know nothing of MCP.

`asgi` is an ASGI application on our HTTP service, `socket` a loop on a Trio socket that looks for
the end of a head and for its length, and no more. What is slower than they are is MCP.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
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


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Read the request, answer."""
    del scope
    while (await receive())["more_body"]:
        pass
    await send({"type": "http.response.start", "status": 200, "headers": FIELDS})
    await send({"type": "http.response.body", "body": ANSWER})


async def straight(stream: trio.SocketStream) -> None:
    """Answer each request of a connection."""
    with contextlib.suppress(trio.BrokenResourceError):
        await _straight(stream)


async def _straight(stream: trio.SocketStream) -> None:
    head = b"".join(b"%b: %b\r\n" % field for field in FIELDS)
    answer = b"HTTP/1.1 200 \r\n%b\r\n%b" % (head, ANSWER)
    held = b""
    while data := await stream.receive_some(65536):
        held += data
        while (end := held.find(b"\r\n\r\n")) >= 0:
            fields = held[:end].lower().split(b"\r\n")
            lengths = [int(f[15:]) for f in fields if f.startswith(b"content-length:")]
            size = end + 4 + sum(lengths)
            if len(held) < size:
                break
            held = held[size:]
            await stream.send_all(answer)


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
            serve = functools.partial(trio.serve_tcp, straight, 0, host="127.0.0.1")
            (listener,) = await nursery.start(serve)
            url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        print(f"{url}/mcp", file=sys.stderr, flush=True)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
