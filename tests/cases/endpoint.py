"""The endpoint behind the real connection loop, and requests as bytes."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import trio

from mcp_trio import HTTPOptions
from mcp_trio.http.app import HTTPApp
from mcp_trio.http.serving import HTTPService, ServingSettings
from tests.http.asgi import BASE, META, STATELESS
from tests.http.serving_tools import MemoryListener, read_until
from tests.messages import initialize


class Endpoint:
    """A served endpoint; `connect` opens a connection to it."""

    def __init__(self, app: HTTPApp, connect: Any) -> None:
        self.app = app
        self.connect = connect

    async def open_session(self, revision: str = "2025-06-18") -> str:
        """Open a session on a connection of its own and give its id."""
        async with await self.connect() as stream:
            await stream.send_all(post(initialize(revision)))
            head = await read_until(stream, b"}}")
        (line,) = [
            line for line in head.split(b"\r\n") if line.lower().startswith(b"mcp-session-id")
        ]
        return line.partition(b":")[2].strip().decode()


@contextlib.asynccontextmanager
async def endpoint(
    server: Any,
    options: HTTPOptions | None = None,
    *,
    sockets: bool = False,
    listener: MemoryListener | None = None,
    **limits: float,
):
    """Serve over memory streams, which the autojump clock allows, or over loopback sockets."""
    app = HTTPApp(server, options)
    service = HTTPService(app, settings=ServingSettings(**limits), on_drain=app.drain)
    async with trio.open_nursery() as nursery:
        await nursery.start(app.run)
        if sockets:
            (url,) = await nursery.start(service.run, "127.0.0.1", 0)
            port = int(url.rpartition(":")[2])

            async def connect() -> trio.abc.Stream:
                return await trio.open_tcp_stream("127.0.0.1", port)
        else:
            listener = listener or MemoryListener()
            await nursery.start(service.run_listeners, [listener])
            connect = listener.connect
        with trio.fail_after(5000):
            yield Endpoint(app, connect)
        nursery.cancel_scope.cancel()
    assert service.statistics().requests_in_flight == 0


def head(method: str = "POST", path: str = "/mcp", **headers: str | None) -> bytes:
    """The head of a request, its framing left to the caller."""
    fields = {**BASE, **{name.replace("_", "-"): value for name, value in headers.items()}}
    lines = [f"{name}: {value}" for name, value in fields.items() if value is not None]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()


def post(message: Any, path: str = "/mcp", **headers: str | None) -> bytes:
    """A whole POST."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return head(path=path, **headers, content_length=str(len(body))) + body


def stateless(name: str, meta: dict[str, Any] | None = None, **arguments: Any) -> bytes:
    """A whole call of the stateless era."""
    params = {"name": name, "arguments": arguments, "_meta": {**META, **(meta or {})}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return post(call, mcp_protocol_version=STATELESS, mcp_method="tools/call", mcp_name=name)


def in_session(id_: str, name: str, meta: dict[str, Any] | None = None, **arguments: Any) -> bytes:
    """A whole call in a session."""
    params = {"name": name, "arguments": arguments, "_meta": meta or {}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return post(call, mcp_session_id=id_)
