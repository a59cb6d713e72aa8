"""What stands behind the service that is attacked: an API, and a registry at `/registry`.

A program of its own, so that it can be killed: `python upstream.py PORT REGISTRY_FILE`. It speaks
HTTP by hand, to see every byte of a request, and serves one request for each connection.

`/slow` waits until its client leaves, `/bulk` is large, `/half` breaks off, `/junk` is no HTTP,
`/counts` says what has happened so far. Anything else is echoed as JSON.
"""

import functools
import json
import sys
from collections import Counter
from pathlib import Path

import trio

BULK = 900_000
COUNTS = Counter()


async def read_request(stream):
    """Head and body of a request, or None."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = await stream.receive_some()
        if not part:
            return None
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        part = await stream.receive_some()
        if not part:
            return None
        body += part
    return head.decode("latin-1"), body.decode("latin-1")


async def respond(stream, value, status="200 OK"):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    await stream.send_all(head.encode() + body)


async def answer(stream, registry):
    request = await read_request(stream)
    if request is None:
        return
    head, body = request
    path = head.split(" ")[1].split("?")[0]
    COUNTS[path] += 1
    match path:
        case "/registry":
            await respond(stream, registry.read_bytes())
        case "/counts":
            await respond(stream, COUNTS)
        case "/slow":
            COUNTS["slow now"] += 1
            await stream.receive_some()
            COUNTS["slow now"] -= 1
        case "/bulk":
            await respond(stream, {"text": "x" * BULK})
        case "/half":
            await stream.send_all(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"a":')
        case "/junk":
            await stream.send_all(b"\x00\xffnothing\r\n\r\n" * 10)
        case _:
            await respond(stream, {"head": head, "body": body})


async def serve(stream, registry):
    try:
        with trio.move_on_after(60):
            async with stream:
                await answer(stream, registry)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


def main():
    port, registry = int(sys.argv[1]), Path(sys.argv[2])
    handler = functools.partial(serve, registry=registry)
    trio.run(functools.partial(trio.serve_tcp, handler, port, host="127.0.0.1", backlog=4096))


if __name__ == "__main__":
    main()
