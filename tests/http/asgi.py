"""An HTTP client without sockets: it drives an ASGI application directly.

Deterministic, so it works on the autojump clock. The socket layer has tests of its own.
"""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import trio

from mcp_trio import HTTPOptions, MCPServer
from mcp_trio.http.app import HTTPApp

BASE = {
    "host": "127.0.0.1:8000",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}
STATELESS = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Response:
    """One response while it comes in."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = b""
        self.started = trio.Event()
        self.ended = trio.Event()
        self.changed = trio.Event()
        self.gone = trio.Event()
        self.scope: trio.CancelScope | None = None

    def disconnect(self) -> None:
        """Let the peer go away."""
        self.gone.set()

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type") == "text/event-stream"

    def events(self) -> list[dict[str, Any]]:
        """The JSON of every event that has data."""
        return [json.loads(data) for _, data in self.raw_events() if data]

    def raw_events(self) -> list[tuple[str | None, str]]:
        """Id and data of every event."""
        found = []
        for block in self.body.decode().split("\n\n")[:-1]:
            fields = dict(
                line.split(": ", 1) for line in block.split("\n") if not line.startswith(":")
            )
            if fields:
                found.append((fields.get("id"), fields.get("data", "")))
        return found

    async def event(self, number: int) -> dict[str, Any]:
        """Wait for the event with this number, from 0."""
        while len(self.events()) <= number:
            assert not self.ended.is_set(), self.body
            await self.changed.wait()
        return self.events()[number]

    def message(self) -> dict[str, Any]:
        """The answer, in whichever form it came."""
        return self.events()[-1] if self.is_stream else self.json()


class Socket:
    """The client's end of one WebSocket."""

    def __init__(self) -> None:
        self.answered = trio.Event()
        self.accepted = False
        self.status: int | None = None
        """The HTTP status of a handshake that was turned down."""
        self.farewell: dict[str, Any] | None = None
        """The server's closing frame."""
        self._out, self._in = trio.open_memory_channel[dict[str, Any]](100)
        self._out.send_nowait({"type": "websocket.connect"})
        self._texts_in, self._texts = trio.open_memory_channel[str](1000)

    async def say(self, text: str) -> None:
        await self._out.send({"type": "websocket.receive", "text": text})

    def leave(self) -> None:
        self._out.send_nowait({"type": "websocket.disconnect", "code": 1006})
        self._texts_in.close()

    def texts(self) -> trio.MemoryReceiveChannel[str]:
        """Every text frame of the server, until it closes."""
        return self._texts

    async def receive(self) -> dict[str, Any]:
        return await self._in.receive()

    async def send(self, event: dict[str, Any]) -> None:
        await trio.lowlevel.checkpoint()
        match event["type"]:
            case "websocket.accept":
                self.accepted = True
            case "websocket.send":
                await self._texts_in.send(event["text"])
            case "websocket.http.response.start":
                self.status = event["status"]
            case "websocket.close":
                self.farewell = event
                self._texts_in.close()
        self.answered.set()


class Client:
    """Sends requests to an application."""

    def __init__(self, app: HTTPApp, nursery: trio.Nursery) -> None:
        self.app = app
        self.nursery = nursery
        self.extension = True
        """Offer the disconnect callback of our own connection loop; False is any other server."""
        self.hasty = False
        """Say "disconnect" as soon as the answer is complete, as some ASGI servers do."""
        self.stalled = False
        """Read nothing more of any response until `resume`."""
        self._resumed = trio.Event()
        self.parts: float = math.inf
        """Parts of a stream after which its connection is lost."""
        self.root_path = ""
        """Where the application is mounted."""
        self.address: tuple[str, int] | None = None
        """Where requests come from."""

    def resume(self) -> None:
        """Read on after `stalled`."""
        self.stalled = False
        self._resumed.set()
        self._resumed = trio.Event()

    def start(
        self,
        method: str,
        *,
        body: bytes | None = b"",
        headers: dict[str, str | None] | None = None,
        path: str = "/mcp",
        query: bytes = b"",
    ) -> Response:
        """Begin a request. A body of None never comes."""
        fields = {**BASE, **(headers or {})}
        response = Response()
        callbacks = []

        class Connection:
            body_arrived = body is not None

            def on_disconnect(self, callback):
                callbacks.append(callback)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query,
            "root_path": self.root_path,
            "client": self.address,
            "headers": [
                (name.encode("latin-1"), value.encode("latin-1"))
                for name, value in fields.items()
                if value is not None
            ],
            "extensions": {"mcp_trio.connection": Connection()} if self.extension else {},
        }
        sent = body is None
        parts = self.parts

        async def receive():
            nonlocal sent
            if not sent:
                sent = True
                return {"type": "http.request", "body": body, "more_body": False}
            await response.gone.wait()
            return {"type": "http.disconnect"}

        async def send(event):
            nonlocal parts
            await trio.lowlevel.checkpoint()
            if self.stalled:
                await self._resumed.wait()
            if response.gone.is_set():
                raise trio.BrokenResourceError("the peer is gone")
            if event["type"] == "http.response.start":
                response.status = event["status"]
                response.headers = {k.decode(): v.decode() for k, v in event["headers"]}
                response.started.set()
            else:
                response.body += event["body"]
                parts -= 1
                if event.get("more_body") and parts == 0:
                    response.gone.set()
                if not event.get("more_body"):
                    response.ended.set()
                    if self.hasty:
                        response.gone.set()
                        await trio.lowlevel.checkpoint()
            response.changed.set()
            response.changed = trio.Event()

        async def call_when_gone():
            await response.gone.wait()
            for callback in callbacks:
                callback()

        async def run():
            async with trio.open_nursery() as nursery:
                if self.extension:
                    nursery.start_soon(call_when_gone)
                await self.app(scope, receive, send)
                nursery.cancel_scope.cancel()
            response.ended.set()
            response.changed.set()

        self.nursery.start_soon(run)
        return response

    async def websocket(self, **headers: str | None) -> Socket:
        """Open a WebSocket; `accepted` says whether it was."""
        socket = Socket()
        fields = {"host": BASE["host"], **headers}
        scope = {
            "type": "websocket",
            "path": "/mcp",
            "root_path": self.root_path,
            "client": self.address,
            "headers": [
                (name.encode("latin-1"), value.encode("latin-1"))
                for name, value in fields.items()
                if value is not None
            ],
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
        }
        self.nursery.start_soon(self.app, scope, socket.receive, socket.send)
        await socket.answered.wait()
        return socket

    async def request(self, method: str, **options: Any) -> Response:
        """Send a request and wait for the whole response."""
        response = self.start(method, **options)
        await response.ended.wait()
        return response

    def start_post(self, message: Any, headers: dict[str, str | None] | None = None) -> Response:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.start("POST", body=body, headers=headers)

    async def post(self, message: Any, headers: dict[str, str | None] | None = None) -> Response:
        response = self.start_post(message, headers)
        await response.ended.wait()
        return response

    # -- the stateless era -------------------------------------------------------

    def start_stateless(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        id_: Any = 1,
        headers: dict[str, str | None] | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Response:
        params = {**(params or {}), "_meta": {**META, **(meta or {})}}
        fields: dict[str, str | None] = {
            "mcp-protocol-version": STATELESS,
            "mcp-method": method,
        }
        if "name" in params:
            fields["mcp-name"] = params["name"]
        return self.start_post(
            {"jsonrpc": "2.0", "id": id_, "method": method, "params": params},
            {**fields, **(headers or {})},
        )

    async def stateless(self, method: str, *args: Any, **options: Any) -> Response:
        response = self.start_stateless(method, *args, **options)
        await response.ended.wait()
        return response

    # -- the handshake era -------------------------------------------------------

    async def open_session(
        self, revision: str = "2025-11-25", capabilities: dict[str, Any] | None = None
    ) -> Session:
        response = await self.post(
            {
                "jsonrpc": "2.0",
                "id": "open",
                "method": "initialize",
                "params": {
                    "protocolVersion": revision,
                    "capabilities": capabilities or {},
                    "clientInfo": {"name": "test", "version": "1"},
                },
            }
        )
        assert response.status == 200, response.body
        session = Session(self, response.headers["mcp-session-id"])
        told = await session.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert told.status == 202
        return session


class Session:
    """One handshake session of a client."""

    def __init__(self, client: Client, id_: str) -> None:
        self.client = client
        self.id = id_

    def _headers(self, headers: dict[str, str | None] | None) -> dict[str, str | None]:
        return {"mcp-session-id": self.id, **(headers or {})}

    def start_post(self, message: Any, headers: dict[str, str | None] | None = None) -> Response:
        return self.client.start_post(message, self._headers(headers))

    async def post(self, message: Any, headers: dict[str, str | None] | None = None) -> Response:
        return await self.client.post(message, self._headers(headers))

    def start_call(
        self, name: str, arguments: dict[str, Any] | None = None, *, id_: Any = 1, token: Any = None
    ) -> Response:
        params: dict[str, Any] = {"name": name, "arguments": arguments or {}}
        if token is not None:
            params["_meta"] = {"progressToken": token}
        return self.start_post(
            {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params}
        )

    async def call(self, *args: Any, **options: Any) -> Response:
        response = self.start_call(*args, **options)
        await response.ended.wait()
        return response

    def start_get(self, headers: dict[str, str | None] | None = None) -> Response:
        fields = {"accept": "text/event-stream", **(headers or {})}
        return self.client.start("GET", headers=self._headers(fields))

    async def delete(self) -> Response:
        return await self.client.request("DELETE", headers=self._headers(None))


@contextlib.asynccontextmanager
async def serving(server: MCPServer, options: HTTPOptions | None = None, **more: Any):
    """Run an application; gives a client of it."""
    app = HTTPApp(server, options, **more)
    async with trio.open_nursery() as nursery:
        await nursery.start(app.run)
        async with trio.open_nursery() as requests:
            yield Client(app, requests)
            requests.cancel_scope.cancel()
        nursery.cancel_scope.cancel()
