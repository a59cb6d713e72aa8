"""What attackers say, and the sockets they say it on."""

import contextlib
import json
import socket
import struct

import trio

from tests.hardening.target import META, STATELESS
from tests.messages import initialize


def call(name, arguments=None, id_=1):
    """A `tools/call` without a session."""
    params = {"name": name, "arguments": arguments or {}, "_meta": META}
    return {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params}


LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
LISTEN = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "subscriptions/listen",
    "params": {"notifications": {"toolsListChanged": True}, "_meta": META},
}


def head(length, *more, method="POST", path="/mcp", host="127.0.0.1"):
    """The head of a request; `more` are lines."""
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {host}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        *([] if length is None else [f"Content-Length: {length}"]),
        *more,
    ]
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"


def post(message, *more, host="127.0.0.1"):
    """A request without a session, whole; or one in a session, if `more` says so."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    if isinstance(message, dict) and "_meta" in message.get("params", {}):
        more = (f"MCP-Protocol-Version: {STATELESS}", f"Mcp-Method: {message['method']}", *more)
        if "name" in message["params"]:
            more = (*more, f"Mcp-Name: {message['params']['name']}")
    return head(len(body), *more, host=host) + body


def opening():
    """The request that opens a session."""
    return post(initialize())


async def connect(target, *, receives=None):
    """A connection; with `receives` the kernel keeps so many bytes that are not read."""
    plain = trio.socket.socket()
    if receives is not None:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    await plain.connect(("127.0.0.1", target.port))
    return trio.SocketStream(plain)


def reset(stream):
    """Close with RST, below TLS if there is any."""
    stream = getattr(stream, "transport_stream", stream)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


async def read_all(stream):
    """Whatever comes until the end, or until the server resets."""
    data = b""
    with contextlib.suppress(trio.BrokenResourceError):
        async for part in stream:
            data += part
    return data


class Answers:
    """What comes on a connection, answer by answer."""

    def __init__(self, stream):
        self._stream = stream
        self._data = b""

    async def _more(self):
        part = await self._stream.receive_some()
        assert part, f"the answer breaks off: {self._data!r}"
        self._data += part

    async def next(self):
        """The next answer, which has a length: status, head and body. Interim ones are skipped."""
        while True:
            while b"\r\n\r\n" not in self._data:
                await self._more()
            top, _, self._data = self._data.partition(b"\r\n\r\n")
            status = int(top.split(b" ")[1])
            if status >= 200:
                break
        fields = {}
        for line in top.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            fields[name.strip().lower().decode()] = value.strip().decode()
        length = int(fields.get("content-length", 0))
        while len(self._data) < length:
            await self._more()
        body, self._data = self._data[:length], self._data[length:]
        return status, fields, body

    async def end(self):
        """What comes beyond, until the end."""
        return self._data + await read_all(self._stream)


async def read_answer(stream):
    """The one answer that comes: status, head and body."""
    return await Answers(stream).next()


async def ask(target, request):
    """Send one request on a connection of its own; status, head and body of the answer."""
    async with await connect(target) as stream:
        await stream.send_all(request)
        return await read_answer(stream)


async def is_served(target, within=10):
    """Somebody who is no attacker gets what he asks for."""
    with trio.fail_after(within):
        status, _, body = await ask(target, post(call("hello")))
    assert status == 200
    assert json.loads(body)["result"]["structuredContent"] == {"said": "hello"}


@contextlib.asynccontextmanager
async def crowd(target, count, *, receives=None, opens=50):
    """So many connections; `opens` are opened at a time."""
    made = []
    limit = trio.CapacityLimiter(opens)

    async def one():
        async with limit:
            made.append(await connect(target, receives=receives))

    try:
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(one)
        yield made
    finally:
        for stream in made:
            stream.socket.close()


async def each(items, function, *, at_once=200):
    """Call an async function with every item, so many at once."""
    limit = trio.CapacityLimiter(at_once)

    async def one(item):
        async with limit:
            await function(item)

    async with trio.open_nursery() as nursery:
        for item in items:
            nursery.start_soon(one, item)
