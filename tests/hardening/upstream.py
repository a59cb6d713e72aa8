"""What stands behind the service that is attacked: an API, and a registry at `/registry`.

A program of its own, so that it can be killed: `python upstream.py PORT REGISTRY_FILE [JOURNAL]`.
It speaks HTTP by hand, to see every byte of a request, and serves one request for each connection.

`/slow` waits until its client leaves, `/late` answers after two seconds, `/told` with events,
`/bulk` is large, `/half` breaks off, `/junk` is no HTTP, `/counts` says what has happened so far.
Anything else is echoed as JSON.

A request may carry a `mark`, in its query or in the JSON of its body. Its begin and its end are
written into the journal, each as one line that survives this process: the process's number,
`begun` or how it ended, path and mark.
"""

import functools
import json
import os
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import parse_qs

import trio

BULK = 900_000
LATE = 2.2
"""Seconds; the service begins a stream after two."""
COUNTS = Counter()


class Journal:
    """The file, if there is one."""

    def __init__(self, path=None):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._file = None if path is None else os.open(path, flags, 0o600)

    def write(self, what, path, mark):
        if self._file is not None and mark is not None:
            os.write(self._file, f"{os.getpid()} {what} {path} {mark}\n".encode())


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


def mark_of(query, body):
    """What a request is marked with; None if it is not."""
    if marks := parse_qs(query).get("mark"):
        return marks[0]
    try:
        return json.loads(body).get("mark")
    except (ValueError, AttributeError):
        return None


async def respond(stream, value, status="200 OK"):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    await stream.send_all(head.encode() + body)


async def leaves(stream, seconds=60):
    """Whether the client has left before so many seconds are over."""
    with trio.move_on_after(seconds):
        await stream.receive_some()
        return True
    return False


async def tell(stream):
    """Answer with three events."""
    await stream.send_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    )
    for number in range(3):
        await stream.send_all(b'data: {"number": %d}\n\n' % number)
        await trio.sleep(0.02)


async def answer(stream, registry, path, head, body):
    """Answer a request; return whether its client stayed for that."""
    match path:
        case "/registry":
            await respond(stream, registry.read_bytes())
        case "/counts":
            await respond(stream, COUNTS)
        case "/slow":
            COUNTS["slow now"] += 1
            try:
                await leaves(stream)
            finally:
                COUNTS["slow now"] -= 1
            return False
        case "/late":
            if await leaves(stream, LATE):
                return False
            await respond(stream, {"late": True})
        case "/told":
            await tell(stream)
        case "/bulk":
            await respond(stream, {"text": "x" * BULK})
        case "/half":
            await stream.send_all(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"a":')
        case "/junk":
            await stream.send_all(b"\x00\xffnothing\r\n\r\n" * 10)
        case _:
            await respond(stream, {"head": head, "body": body})
    return True


async def serve(stream, registry, journal):
    try:
        with trio.move_on_after(60):
            async with stream:
                request = await read_request(stream)
                if request is None:
                    return
                head, body = request
                path, _, query = head.split(" ")[1].partition("?")
                COUNTS[path] += 1
                mark = mark_of(query, body)
                journal.write("begun", path, mark)
                end = "left"
                try:
                    if await answer(stream, registry, path, head, body):
                        end = "answered"
                finally:
                    journal.write(end, path, mark)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


def main():
    port, registry = int(sys.argv[1]), Path(sys.argv[2])
    handler = functools.partial(serve, registry=registry, journal=Journal(*sys.argv[3:]))
    trio.run(functools.partial(trio.serve_tcp, handler, port, host="127.0.0.1", backlog=4096))


if __name__ == "__main__":
    main()
