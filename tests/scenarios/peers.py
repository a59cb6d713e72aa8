"""A raw client for each transport: plain JSON messages and bytes, in any revision.

It opens the handshake where there is one, fills in `_meta` and headers where there is none,
and keeps every message the server has sent, in order. Nothing here is code of the client
under test, and nothing needs a socket.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import trio
import trio.testing

from mcp_trio import HTTPOptions, MCPServer
from mcp_trio.http.app import HTTPApp
from mcp_trio.server.server import EOF_GRACE
from mcp_trio.transports.lines import LineTransport
from mcp_trio.transports.memory import MemoryTransport
from mcp_trio.wire import METHODS, Revision
from tests.http import asgi
from tests.messages import initialize

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT = "io.modelcontextprotocol/clientInfo"
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
SECONDS = 5

JSON = dict[str, Any]


class Peer:
    """A client. What differs between the transports is `write`, `cancel` and `hang_up`."""

    def __init__(self, revision: Revision, capabilities: JSON) -> None:
        self.revision = revision
        self.capabilities = capabilities
        self.heard: list[JSON] = []
        """Every message of the server, in order; the ones of an array one by one."""
        self.batches: list[list[JSON]] = []
        """The arrays among them."""
        self.ended = False
        """The server has closed the line."""
        self.welcome: JSON = {}
        """The result of `initialize`."""
        self.meta: JSON = {}
        """What each request carries."""
        if revision.stateless:
            self.meta = {
                VERSION: revision.date,
                CAPABILITIES: capabilities,
                CLIENT: {"name": "raw", "version": "1"},
            }
        self._ids = 0
        self._news = trio.lowlevel.ParkingLot()

    # -- what a transport does -------------------------------------------------------

    async def write(self, data: bytes, message: Any = None) -> None:
        """Send the bytes of a message; `message` is what they say, if they say anything."""
        raise NotImplementedError

    async def cancel(self, id_: int | str) -> None:
        """Take a request back, as the transport and the revision have it."""
        await self.tell("notifications/cancelled", {"requestId": id_})

    async def hang_up(self) -> None:
        """Leave without a word."""
        raise NotImplementedError

    def status(self, id_: int | str) -> int | None:
        """The HTTP status that a request was answered with; None without HTTP."""

    # -- opening ---------------------------------------------------------------------

    async def prepare(self) -> None:
        """Do what the transport needs before anything can be sent."""

    async def open(self) -> None:
        """Get ready to send any request."""
        if not self.revision.stateless:
            await self.shake_hands()

    async def shake_hands(self) -> None:
        """Send `initialize` and `initialized`."""
        message = initialize(self.revision.date, id_=0)
        message["params"]["capabilities"] = self.capabilities
        await self.say(message)
        self.welcome = (await self.answer(0))["result"]
        await self.say(INITIALIZED)

    # -- speaking --------------------------------------------------------------------

    async def say(self, message: Any) -> None:
        """Send anything that has a JSON form."""
        await self.write(json.dumps(message, ensure_ascii=False).encode(), message)

    def request(
        self, method: str, params: JSON | None = None, *, id_: Any = None, meta: JSON | None = None
    ) -> JSON:
        """Make a request; without an id it gets the next number."""
        if id_ is None:
            self._ids += 1
            id_ = self._ids
        message: JSON = {"jsonrpc": "2.0", "id": id_, "method": method}
        fields = {**self.meta, **(meta or {})}
        if params is not None or fields:
            message["params"] = {**(params or {}), **({"_meta": fields} if fields else {})}
        return message

    async def start(self, method: str, params: JSON | None = None, **options: Any) -> Any:
        """Send a request and give its id."""
        message = self.request(method, params, **options)
        await self.say(message)
        return message["id"]

    async def ask(self, method: str, params: JSON | None = None, **options: Any) -> JSON:
        """Send a request and wait for the message that answers it."""
        return await self.answer(await self.start(method, params, **options))

    async def result(self, method: str, params: JSON | None = None, **options: Any) -> JSON:
        """Send a request and wait for its result."""
        answer = await self.ask(method, params, **options)
        assert "result" in answer, answer
        return answer["result"]

    async def error(self, method: str, params: JSON | None = None, **options: Any) -> JSON:
        """Send a request and wait for its error."""
        answer = await self.ask(method, params, **options)
        assert "error" in answer, answer
        return answer["error"]

    async def refused(self, message: Any, id_: Any = None) -> JSON:
        """Send bytes, or what has a JSON form, and give the error that answers it."""
        before = len(self.answers(id_))
        await (self.write(message) if isinstance(message, bytes) else self.say(message))
        answer = await self.until(lambda found: _answers(found, id_), before)
        assert "error" in answer, answer
        return answer["error"]

    async def offer(self) -> JSON:
        """What the server says of itself: in the handshake, or when asked."""
        return await self.result("server/discover") if self.revision.stateless else self.welcome

    async def call(self, tool: str, arguments: JSON | None = None, **options: Any) -> JSON:
        """Call a tool and wait for its result."""
        return await self.result(
            "tools/call", {"name": tool, "arguments": arguments or {}}, **options
        )

    async def start_call(self, tool: str, arguments: JSON | None = None, **options: Any) -> Any:
        """Call a tool and give the id of the call."""
        return await self.start(
            "tools/call", {"name": tool, "arguments": arguments or {}}, **options
        )

    async def tell(self, method: str, params: JSON | None = None) -> None:
        """Send a notification."""
        await self.say({"jsonrpc": "2.0", "method": method, "params": params or {}})

    async def reply(self, question: JSON, result: JSON) -> None:
        """Answer a request of the server."""
        await self.say({"jsonrpc": "2.0", "id": question["id"], "result": result})

    # -- hearing ---------------------------------------------------------------------

    def take(self, message: Any) -> None:
        """Keep what the server sent."""
        if isinstance(message, list):
            self.batches.append(message)
        self.heard.extend(message if isinstance(message, list) else [message])
        self._news.unpark_all()

    def end(self) -> None:
        """Note that the line is closed."""
        self.ended = True
        self._news.unpark_all()

    async def until(self, wanted: Callable[[JSON], bool], number: int = 0) -> JSON:
        """Wait for the message with this number, from 0, among those that are wanted."""
        with trio.fail_after(SECONDS):
            while True:
                found = [message for message in self.heard if wanted(message)]
                if len(found) > number:
                    return found[number]
                assert not self.ended, self.heard
                await self._news.park()

    async def answer(self, id_: Any) -> JSON:
        """Wait for the answer to a request, a refusal without id too if there is no id."""
        return await self.until(lambda message: _answers(message, id_))

    def answers(self, id_: Any) -> list[JSON]:
        """The answers to a request so far."""
        return [message for message in self.heard if _answers(message, id_)]

    async def note(self, method: str, number: int = 0) -> JSON:
        """Wait for the notification of a method with this number, from 0; gives its parameters."""
        found = await self.until(lambda m: m.get("method") == method and "id" not in m, number)
        return found.get("params", {})

    def notes(self, method: str | None = None) -> list[JSON]:
        """The notifications so far."""
        return [
            message
            for message in self.heard
            if "method" in message and "id" not in message and method in {None, message["method"]}
        ]

    async def question(self, method: str, number: int = 0) -> JSON:
        """Wait for a request of the server."""
        return await self.until(lambda m: m.get("method") == method and "id" in m, number)

    def questions(self) -> list[JSON]:
        """The requests of the server so far."""
        return [message for message in self.heard if "method" in message and "id" in message]

    async def closed(self) -> None:
        """Wait until the server has closed the line."""
        with trio.fail_after(SECONDS):
            while not self.ended:
                await self._news.park()


def _answers(message: JSON, id_: Any) -> bool:
    mine = message.get("id")
    return "method" not in message and mine == id_ and type(mine) is type(id_)


class MemoryPeer(Peer):
    """Over the channels of a memory transport."""

    def __init__(self, outgoing: Any, incoming: Any, *about: Any) -> None:
        super().__init__(*about)
        self._outgoing, self._incoming = outgoing, incoming

    async def write(self, data: bytes, message: Any = None) -> None:
        await self._outgoing.send(data)

    async def hang_up(self) -> None:
        await self._outgoing.aclose()

    async def listen(self) -> None:
        async for data in self._incoming:
            self.take(json.loads(data))
        self.end()


class StdioPeer(Peer):
    """Over a pair of byte streams, a line for each message."""

    def __init__(self, outgoing: Any, incoming: Any, *about: Any) -> None:
        super().__init__(*about)
        self._outgoing, self._incoming = outgoing, incoming
        self.received = b""
        """Everything the server wrote."""

    async def write(self, data: bytes, message: Any = None) -> None:
        await self._outgoing.send_all(data + b"\n")

    async def hang_up(self) -> None:
        await self._outgoing.aclose()

    async def listen(self) -> None:
        done = 0
        async for data in self._incoming:
            self.received += data
            while (end := self.received.find(b"\n", done)) >= 0:
                self.take(json.loads(self.received[done:end]))
                done = end + 1
        self.end()


class WebSocketPeer(Peer):
    """Over one WebSocket connection of the ASGI application."""

    def __init__(self, socket: asgi.Socket, *about: Any) -> None:
        super().__init__(*about)
        self.socket = socket

    async def write(self, data: bytes, message: Any = None) -> None:
        await self.socket.say(data.decode("utf-8", "surrogateescape"))

    async def hang_up(self) -> None:
        self.socket.leave()
        await trio.lowlevel.checkpoint()

    async def listen(self) -> None:
        async for text in self.socket.texts():
            self.take(json.loads(text))
        self.end()


class SSEPeer(Peer):
    """Over HTTP+SSE: messages out as POSTs, everything back on one stream."""

    def __init__(self, http: asgi.Client, *about: Any) -> None:
        super().__init__(*about)
        self.http = http
        self.stream = http.start("GET", path="/sse", headers={"content-type": None})
        self.endpoint = ""
        self.posts: list[asgi.Response] = []

    async def prepare(self) -> None:
        with trio.fail_after(SECONDS):
            while not self.stream.raw_events():
                await self.stream.changed.wait()
        self.endpoint = self.stream.raw_events()[0][1]
        self.http.nursery.start_soon(self._listen)

    async def write(self, data: bytes, message: Any = None) -> None:
        path, _, query = self.endpoint.partition("?")
        response = await self.http.request("POST", body=data, path=path, query=query.encode())
        self.posts.append(response)
        if response.status == 400:
            self.take(response.json())

    async def hang_up(self) -> None:
        self.stream.disconnect()
        await self.stream.ended.wait()
        self.end()

    async def _listen(self) -> None:
        await _follow(self.stream, self.take, skip=1)
        self.end()


class HTTPPeer(Peer):
    """Over Streamable HTTP, with a session and its stream, or without either."""

    def __init__(self, http: asgi.Client, *about: Any) -> None:
        super().__init__(*about)
        self.http = http
        self.headers: dict[str, str | None] = {}
        """Sent with each POST, over what belongs to the message."""
        self.session: str | None = None
        self.posts: dict[Any, asgi.Response] = {}
        """The response to each request, by its id; None for those to other messages."""
        self.standalone: asgi.Response | None = None
        """The stream of a session that belongs to no request."""

    async def shake_hands(self) -> None:
        await super().shake_hands()
        self.standalone = self.http.start(
            "GET", headers={**self._fields(None), "accept": "text/event-stream"}
        )
        await self.standalone.started.wait()
        self.http.nursery.start_soon(_follow, self.standalone, self.take)

    def _fields(self, message: Any) -> dict[str, str | None]:
        if not self.revision.stateless:
            fields: dict[str, str | None] = {"mcp-session-id": self.session}
            if self.revision.version_header and self.session is not None:
                fields["mcp-protocol-version"] = self.revision.date
            return fields
        fields = {"mcp-protocol-version": self.revision.date}
        if isinstance(message, dict) and "method" in message and "id" in message:
            fields["mcp-method"] = str(message["method"])
            method = METHODS.get(message["method"]) if type(message["method"]) is str else None
            params = message.get("params")
            if method is not None and method.named_by and isinstance(params, dict):
                name = params.get(method.named_by)
                fields["mcp-name"] = name if isinstance(name, str) else None
        return fields

    async def write(self, data: bytes, message: Any = None) -> None:
        fields = {**self._fields(message), **self.headers}
        response = self.http.start("POST", body=data, headers=fields)
        request = isinstance(message, dict) and "method" in message and "id" in message
        self.posts[str(message["id"]) if request else None] = response
        if not request or message["method"] == "initialize":
            await response.ended.wait()
            self.session = response.headers.get("mcp-session-id", self.session)
        self.http.nursery.start_soon(_follow, response, self.take)
        await trio.lowlevel.checkpoint()

    def status(self, id_: int | str) -> int | None:
        return self.posts[str(id_)].status

    def post(self, id_: int | str) -> asgi.Response:
        """The response to a request."""
        return self.posts[str(id_)]

    async def cancel(self, id_: int | str) -> None:
        if not self.revision.stateless:
            await super().cancel(id_)
            return
        self.post(id_).disconnect()
        await self.post(id_).ended.wait()

    async def hang_up(self) -> None:
        """End the session where there is one; let every stream go."""
        if self.session is not None:
            await self.http.request("DELETE", headers=self._fields(None))
        for response in [*self.posts.values(), *([self.standalone] if self.standalone else [])]:
            response.disconnect()
            await response.ended.wait()
        self.end()


async def _follow(response: asgi.Response, take: Callable[[Any], None], skip: int = 0) -> None:
    """Pass every message of a response on, while it comes."""
    while True:
        over = response.ended.is_set()
        if response.is_stream:
            events = [data for _, data in response.raw_events()][skip:]
            skip += len(events)
            for data in events:
                if data:
                    take(json.loads(data))
        elif over and response.body:
            take(response.json())
        if over:
            return
        await response.changed.wait()


class House:
    """A server behind one transport, and the way in."""

    def __init__(
        self, server: MCPServer, transport: str, nursery: trio.Nursery, http: asgi.Client | None
    ) -> None:
        self.server, self.transport, self._nursery = server, transport, nursery
        self._http = http

    @property
    def http(self) -> asgi.Client:
        """The HTTP client of a transport that has one."""
        assert self._http is not None
        return self._http

    @property
    def app(self) -> HTTPApp:
        """The application of a transport that has one."""
        return self.http.app

    async def connect(
        self, revision: Revision, capabilities: JSON | None = None, *, opened: bool = True
    ) -> Any:
        """A new client, ready to ask; not `opened` it has not even begun the handshake."""
        about = (revision, capabilities or {})
        peer: Any
        match self.transport:
            case "memory":
                out, their_in = trio.open_memory_channel[Any](64)
                their_out, in_ = trio.open_memory_channel[Any](64)
                await self._nursery.start(self._serve, MemoryTransport(their_out, their_in))
                peer = MemoryPeer(out, in_, *about)
            case "stdio":
                out, their_in = trio.testing.memory_stream_one_way_pair()
                their_out, in_ = trio.testing.memory_stream_one_way_pair()
                await self._nursery.start(self._serve, LineTransport(their_in, their_out))
                peer = StdioPeer(out, in_, *about)
            case "websocket":
                peer = WebSocketPeer(await self.http.websocket(), *about)
            case "sse":
                peer = SSEPeer(self.http, *about)
            case _:
                peer = HTTPPeer(self.http, *about)
        if isinstance(peer, MemoryPeer | StdioPeer | WebSocketPeer):
            self._nursery.start_soon(peer.listen)
        await peer.prepare()
        if opened:
            await peer.open()
        return peer

    async def _serve(self, transport: Any, *, task_status: Any) -> None:
        # What `serve_stdio` does once it has taken the standard streams over.
        grace = EOF_GRACE if self.transport == "stdio" else 0.0
        await self.server.serve(transport, eof_grace=grace, task_status=task_status)


@contextlib.asynccontextmanager
async def house(server: MCPServer, transport: str, options: HTTPOptions | None = None) -> Any:
    """Serve over a transport while the block runs."""
    async with contextlib.AsyncExitStack() as stack:
        http = None
        if transport in {"http", "sse", "websocket"}:
            http = await stack.enter_async_context(asgi.serving(server, options))
        async with trio.open_nursery() as nursery:
            yield House(server, transport, nursery, http)
            nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def peer_of(
    server: MCPServer,
    transport: str,
    revision: Revision,
    capabilities: JSON | None = None,
    *,
    opened: bool = True,
) -> Any:
    """A server over a transport, and one client of it."""
    async with house(server, transport) as place:
        yield await place.connect(revision, capabilities, opened=opened)
