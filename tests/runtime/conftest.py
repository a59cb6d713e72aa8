"""A small real HTTP upstream on 127.0.0.1, and short ways to compile and call operations."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial

import attrs
import h11
import pytest
import trio

from mcp_trio.catalog.operation import parse
from mcp_trio.engine.envelope import Principal
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.http_connection import HttpConnection
from mcp_trio.runtime.stages import ERROR_KEY
from mcp_trio.session.context import Context
from mcp_trio.session.middleware import demand
from mcp_trio.wire import CallToolResult
from mcp_trio.wire.revisions import R2026_07_28
from tests.canary import CANARY, no_secret_is_logged, search  # noqa: F401  # a fixture of all


@attrs.define
class Seen:
    """One request as it came."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((v for k, v in self.headers if k == name), None)

    def json(self):
        return json.loads(self.body)


class Line:
    """The upstream's end of one connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.http = h11.Connection(h11.SERVER)

    async def next_event(self):
        while True:
            event = self.http.next_event()
            if event is not h11.NEED_DATA:
                return event
            try:
                self.http.receive_data(await self.stream.receive_some(65536))
            except trio.BrokenResourceError:
                self.http.receive_data(b"")

    async def request(self) -> Seen | None:
        head = await self.next_event()
        if not isinstance(head, h11.Request):
            return None
        body = b""
        while True:
            event = await self.next_event()
            if not isinstance(event, h11.Data):
                break
            body += bytes(event.data)
        headers = [(k.decode(), v.decode("latin-1")) for k, v in head.headers]
        return Seen(head.method.decode(), head.target.decode("latin-1"), headers, body)

    async def head(self, status: int, headers=()) -> None:
        data = self.http.send(h11.Response(status_code=status, headers=list(headers)))
        await self.stream.send_all(data)

    async def answer(
        self, body: bytes = b"{}", status: int = 200, kind: str = "application/json", headers=()
    ) -> None:
        await self.head(
            status, [("content-type", kind), ("content-length", str(len(body))), *headers]
        )
        await self.stream.send_all(self.http.send(h11.Data(data=body)) or b"")
        await self.stream.send_all(self.http.send(h11.EndOfMessage()) or b"")

    async def wait_closed(self) -> None:
        """Wait until the other side is gone."""
        try:
            while await self.stream.receive_some(65536):
                pass
        except trio.BrokenResourceError:
            pass


class Upstream:
    """Answers with `{}` unless `handler` says otherwise."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.handler: Callable[[Line, Seen], Awaitable[None]] = self.plain
        self.url = ""
        self.accepted = 0
        self.asked = trio.Event()
        self.hung_up = trio.Event()

    @staticmethod
    async def plain(line: Line, _seen: Seen) -> None:
        await line.answer()

    def says(self, body: object = None, **options: object) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()

        async def handler(line: Line, _seen: Seen) -> None:
            await line.answer(raw, **options)

        self.handler = handler

    async def hang(self, line: Line, _seen: Seen) -> None:
        """Never answer; note when the other side closes its socket."""
        await line.wait_closed()
        self.hung_up.set()

    async def serve(self, stream: trio.SocketStream) -> None:
        self.accepted += 1
        line = Line(stream)
        try:
            while True:
                seen = await line.request()
                if seen is None:
                    return
                self.seen.append(seen)
                self.asked.set()
                await self.handler(line, seen)
                if line.http.our_state is not h11.DONE:
                    return
                line.http.start_next_cycle()
        except (trio.BrokenResourceError, h11.LocalProtocolError, h11.RemoteProtocolError):
            return

    @property
    def last(self) -> Seen:
        return self.seen[-1]


@pytest.fixture
async def upstream(nursery):
    made = Upstream()
    listeners = await nursery.start(partial(trio.serve_tcp, made.serve, 0, host="127.0.0.1"))
    made.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    return made


class NoExchange:
    async def notify(self, method: str, params: dict[str, object]) -> None:
        await trio.lowlevel.checkpoint()


def make_context(principal: Principal | None = None) -> Context:
    return Context(
        request_id=7,
        method="tools/call",
        revision=R2026_07_28,
        exchange=NoExchange(),
        scope=trio.CancelScope(),
        principal=principal,
    )


def make_view(**changes: object) -> dict[str, object]:
    view: dict[str, object] = {
        "operation_id": "crm.leads.get",
        "name": "crm_get_lead",
        "protocol": "rest",
        "target": {"connection": "crm", "method": "GET", "path": "/leads/{id}"},
        "input_schema": {
            "type": "object",
            "properties": {"id": {"type": ["string", "integer"]}, "q": {}, "n": {}},
        },
        "output_schema": None,
        "input_mapping": {"path": {"id": "=args.id"}},
        "output_mapping": {},
        "execution_config": {},
        "tool_description": "Get a lead.",
    }
    view.update(changes)
    return view


@pytest.fixture
def view():
    return make_view


@attrs.define
class Bench:
    """Compiles and calls operations against one connection named `crm`."""

    connection: HttpConnection
    connections: Connections
    compiler: Compiler

    def compile(self, **changes: object):
        return self.compiler.compile(parse(make_view(**changes)))

    async def call(
        self, arguments: dict[str, object] | None = None, *, principal=None, **changes: object
    ) -> CallToolResult:
        if arguments is None:
            arguments = {"id": "1"}
        operation, context = self.compile(**changes), make_context(principal)
        await demand(operation.authorize, context)  # as a server does
        result = await operation.call(context, arguments)
        search(result, "the result of a call")
        search(operation, "a compiled operation")
        return result


@pytest.fixture
def make_bench():
    def make(base_url: str, *, sockets=None, resolver=None, **options: object) -> Bench:
        options["headers"] = {"x-canary": CANARY, **options.get("headers", {})}
        connection = HttpConnection(name="crm", base_url=base_url, **options)
        extra = {} if resolver is None else {"resolver": resolver}
        connections = Connections([connection], network=sockets, **extra)
        return Bench(connection, connections, Compiler(connections, chance=lambda: 1.0))

    return make


@pytest.fixture
async def bench(upstream, make_bench):
    made = make_bench(upstream.url)
    async with made.connections:
        yield made


@pytest.fixture
def context_of():
    return make_context


@pytest.fixture
def recorded():
    """Makes a context whose progress is asked for, and the list of what it was told.

    An event given is set with the first thing told.
    """

    def make(first: trio.Event | None = None):
        told: list[tuple[object, object, object]] = []

        class Exchange:
            async def notify(self, method: str, params: dict[str, object]) -> None:
                assert method == "notifications/progress"
                told.append((params["progress"], params.get("total"), params.get("message")))
                if first is not None:
                    first.set()
                await trio.lowlevel.checkpoint()

        context = make_context()
        context.progress_token = "p"
        context.exchange = Exchange()
        return context, told

    return make


@pytest.fixture
def failure():
    """Takes a failed result apart: text and details; checks what all failures share."""

    def take(result: CallToolResult) -> tuple[str, dict[str, object]]:
        assert result.is_error is True
        assert result.meta is not None
        told = result.meta[ERROR_KEY]
        assert set(told) == {
            "stage",
            "sub",
            "code",
            "retryable",
            "retry_after_ms",
            "upstream_status",
            "operation_id",
            "revision",
            "request_id",
            "violations",
        }
        assert told["operation_id"] == "crm.leads.get"
        assert told["request_id"] == 7
        assert len(told["revision"]) == 64
        # Older clients validate structured content even of failures.
        assert type(result).__name__ == "CallToolResult"
        assert result.structured_content.__class__.__name__ == "Absent"
        [block] = result.content
        assert block.text.startswith(f"[{told['stage']}] ")
        return block.text, told

    return take
