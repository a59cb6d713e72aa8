"""A call of every protocol, cancelled at each of its steps: nothing is held, the next one works.

The upstream has one socket or session, the operation one place, and its circuit waits for a trial:
whatever a cancelled call kept would stop the call after it.
"""

from __future__ import annotations

import json
from functools import partial

import pytest
import trio

from mcp_trio import Context, MCPServer
from mcp_trio.catalog.operation import parse
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.http_connection import HttpConnection
from mcp_trio.runtime.mcp_connection import McpConnection
from mcp_trio.runtime.upstream_tokens import TokenEndpoint
from mcp_trio.secrets import Secret
from mcp_trio.testing import cancelled_after
from tests.runtime.conftest import make_context, make_view
from tests.runtime.sql import SqlBench

CONFIG = {
    "concurrency": 1,
    "circuit": {"min_calls": 1, "cooldown_s": 1},
    "retry": {"max_attempts": 2, "backoff_ms": 1, "on": [409]},
    "idempotent": True,
    "idempotency_key_header": "idempotency-key",
    "timeout_ms": {"total": 20_000, "connect": 2_000, "first_byte": 5_000},
}


def trial(compiler):
    """Put the circuit of the operation where one attempt decides; refill the budget."""
    compiler._gatekeeper._budgets.clear()
    [circuit] = compiler._gatekeeper._circuits._kept.values()
    circuit._open_until = 0.0
    return circuit


async def sweep(compiler, call, *, stride=1, least=4):
    """Cancel a call after each of its steps, and make another one each time."""
    assert (await call()).is_error is None
    step = 1
    while True:
        circuit = trial(compiler)
        if not await cancelled_after(step, call):
            break
        assert compiler._gatekeeper.limited == 0
        assert circuit.refusal(trio.current_time()) is None
        with trio.fail_after(5):
            result = await call()
        assert result.is_error is None, result
        step += stride
    assert step > least


class Api:
    """Answers everything that the operations below ask for. A token is good once."""

    def __init__(self, upstream):
        self.upstream = upstream
        upstream.handler = self.answer
        self.tokens = 0
        self.seen = set()

    def is_first(self, what):
        new = what not in self.seen
        self.seen.add(what)
        return new

    async def answer(self, line, seen):
        path = seen.target.partition("?")[0]
        if path == "/token":
            self.tokens += 1
            body = {"access_token": f"t{self.tokens}", "token_type": "Bearer", "expires_in": 3600}
            await line.answer(json.dumps(body).encode())
        elif path == "/renewed" and not self.is_first(seen.header("authorization")):
            await line.answer(b"{}", 401)
        elif path == "/flaky" and self.is_first(seen.header("idempotency-key")):
            await line.answer(b"{}", 409)
        elif path == "/pages":
            number = int(seen.target.rpartition("=")[2])
            await line.answer(json.dumps([number] if number < 4 else []).encode())
        elif path == "/events":
            await line.answer(b"data: 1\n\n" * 3, kind="text/event-stream")
        elif path == "/graphql":
            await line.answer(b'{"data": {"a": 1}}')
        else:
            await line.answer()


def rest(path, **target):
    return {"target": {"connection": "crm", "method": "GET", "path": path, **target}}


HTTP = {
    "a request": rest("/plain"),
    "one that is sent again": rest("/flaky"),
    "one whose token is got anew": rest("/renewed"),
    "pages": rest("/pages", pagination={"by": "page", "parameter": "p"}),
    "a stream": {**rest("/events"), "execution_config": {"stream_progress": True}},
    "graphql": {
        "protocol": "graphql",
        "target": {"connection": "crm", "path": "/graphql", "document": "{ a }"},
    },
}


@pytest.mark.parametrize("what", HTTP)
async def test_over_http(what, upstream):
    api = Api(upstream)
    auth = TokenEndpoint(url=f"{upstream.url}/token", client_id="us", client_secret=Secret("s" * 9))
    connections = Connections(
        [HttpConnection(name="crm", base_url=upstream.url, auth=auth, max_connections=1)]
    )
    compiler = Compiler(connections, chance=lambda: 1.0)
    changes = {"input_mapping": {}, "input_schema": {"type": "object"}, **HTTP[what]}
    changes["execution_config"] = {**CONFIG, **changes.get("execution_config", {})}
    operation = compiler.compile(parse(make_view(**changes)))
    async with connections:
        await sweep(compiler, lambda: operation.call(make_context(), {}))
        # One socket to the API, and one for tokens.
        pool = connections._resources["crm"]._client._transport._pool
        assert len(pool.connections) <= 1
    assert api.tokens >= 1


@pytest.mark.parametrize("write", [False, True])
async def test_over_sql(tmp_path, write):
    import apsw

    path = tmp_path / "a.sqlite"
    database = apsw.Connection(str(path))
    database.execute("CREATE TABLE t (id INTEGER)")
    database.close()
    bench = SqlBench.of(str(path), max_connections=1)
    statement = "INSERT INTO t VALUES (1) RETURNING id" if write else "SELECT 1 AS id"
    operation = bench.compile(statement, write=write, execution_config=CONFIG)
    async with bench.connections:
        await sweep(bench.compiler, lambda: operation.call(make_context(), {}), least=2)
        assert bench.pool.open == 1
        assert bench.pool._limiter.borrowed_tokens == 0
        assert not bench.pool._running


async def test_over_mcp(nursery):
    server = MCPServer("upstream")
    running = 0

    @server.tool
    async def count(ctx: Context) -> str:
        nonlocal running
        running += 1
        try:
            await ctx.progress(1, 2, "half")
            return "counted"
        finally:
            running -= 1

    scope = trio.CancelScope()

    async def run(*, task_status):
        with scope:
            await server.serve_http("127.0.0.1", 0, task_status=task_status)

    (url,) = await nursery.start(run)
    connections = Connections(
        [McpConnection(name="up", http=HttpConnection(name="up", base_url=url), max_sessions=1)]
    )
    compiler = Compiler(connections, chance=lambda: 1.0)
    view = make_view(
        protocol="mcp",
        target={"connection": "up", "tool": "count"},
        input_mapping={},
        input_schema={"type": "object"},
        execution_config=CONFIG,
    )
    operation = compiler.compile(parse(view))
    async with connections:
        await sweep(compiler, partial(_call, operation), stride=5)
        [link] = connections._resources["up sessions"]._links.values()
        assert not link.busy
        with trio.fail_after(5):
            while running:
                await trio.lowlevel.checkpoint()
    scope.cancel()


async def _call(operation):
    context = make_context()
    context.progress_token = "p"
    return await operation.call(context, {})
