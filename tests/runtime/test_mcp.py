"""Tools of other MCP servers as operations: both eras, over HTTP and a program."""

from __future__ import annotations

import functools
import json
import logging
import sys
import tomllib
from urllib.parse import parse_qs

import pytest
import trio

import mcp_trio
from mcp_trio import Context, HTTPOptions, MCPServer, ToolError
from mcp_trio.catalog.operation import OperationError, parse
from mcp_trio.config import make_connections, parse_settings
from mcp_trio.engine.envelope import Principal
from mcp_trio.errors import ConfigurationError
from mcp_trio.runtime.adapters.mcp import TIME_LEFT
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.http_connection import Auth, HttpConnection
from mcp_trio.runtime.mcp_connection import McpConnection
from mcp_trio.runtime.upstream_tokens import TokenEndpoint
from mcp_trio.secrets import Secret
from mcp_trio.wire import ImageContent
from mcp_trio.wire.revisions import R2025_06_18, R2026_07_28
from tests.programs import ROOT
from tests.runtime import conftest as shared

make_context = shared.make_context
ANN = Principal(subject="ann", token=Secret("token-of-ann"))
BOB = Principal(subject="bob", token=Secret("token-of-bob"))
ERAS = pytest.mark.parametrize("revision", [R2026_07_28, R2025_06_18], ids=str)


class Upstream:
    """An MCP server with a few tools, and what they have seen."""

    def __init__(self, page_size=200):
        self.server = MCPServer("upstream", options=mcp_trio.ServerOptions(page_size=page_size))
        self.metas, self.sessions = [], []
        self.started, self.cancelled = trio.Event(), trio.Event()
        self.seen = []
        for tool in (self.add, self.fail, self.wait, self.count, self.ask, self.long, self.image):
            self.server.tool()(tool)

    async def add(self, ctx: Context, a: int, b: int) -> dict[str, int]:
        self.metas.append(dict(ctx.meta))
        self.sessions.append(ctx.exchange)
        return {"sum": a + b}

    async def fail(self) -> str:
        raise ToolError("no luck with canary-secret <b>today</b>")

    async def wait(self) -> str:
        self.started.set()
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled.set()

    async def count(self, ctx: Context) -> str:
        for number in range(1, 4):
            await ctx.progress(number, 3, f"step {number}")
        return "counted"

    async def ask(self, ctx: Context) -> str:
        return str(await ctx.elicit("Who?", {"type": "object", "properties": {}}))

    async def long(self, size: int) -> str:
        return "x" * size

    async def image(self) -> mcp_trio.Image:
        return mcp_trio.Image(data=b"png", mime_type="image/png")


@pytest.fixture
def upstream():
    return Upstream()


async def serve(nursery, server, **options):
    scope = trio.CancelScope()

    async def run(*, task_status):
        with scope:
            await server.serve_http(
                "127.0.0.1", options.pop("port", 0), task_status=task_status, **options
            )

    (url,) = await nursery.start(run)
    return url, scope


class Bench:
    """Compiles and calls operations against one upstream named `up`."""

    def __init__(self, connection):
        self.connections = Connections([connection])
        self.compiler = Compiler(self.connections, chance=lambda: 1.0)

    @classmethod
    def at(cls, url, *, revision=None, http=None, **options):
        where = HttpConnection(name="up", base_url=url, **(http or {}))
        if revision is not None:
            options["revisions"] = (revision,)
        return cls(McpConnection(name="up", http=where, **options))

    @property
    def links(self):
        return self.connections._resources["up sessions"]

    def compile(self, tool="add", **changes):
        view = {
            "operation_id": "crm.leads.get",
            "name": "remote",
            "protocol": "mcp",
            "target": {"connection": "up", "tool": tool},
            "input_schema": {
                "type": "object",
                "properties": {"a": {}, "b": {}, "size": {}, "x": {}},
            },
            "output_schema": None,
            "input_mapping": {},
            "output_mapping": {},
            "execution_config": {},
            "tool_description": "",
        }
        return self.compiler.compile(parse({**view, **changes}))

    async def call(self, tool="add", given=None, *, context=None, principal=None, **changes):
        context = context or make_context(principal)
        return await self.compile(tool, **changes).call(context, given or {})


async def test_structured_and_other_content_pass_through(upstream, nursery):
    url, scope = await serve(nursery, upstream.server)
    bench = Bench.at(url)
    async with bench.connections:
        result = await bench.call(given={"a": 1, "b": 2})
        assert result.structured_content == {"sum": 3}
        (image,) = (await bench.call("image")).content
        assert isinstance(image, ImageContent)
        assert image.mime_type == "image/png"
        (text,) = (await bench.call("count")).content
        assert text.text == "counted"
        mapped = {"result": {"kinds": "=content[].type", "of": "=args.x"}}
        result = await bench.call(
            "image", {"x": 1}, output_mapping=mapped, input_mapping={"body": {}}
        )
        assert result.structured_content == {"kinds": ["image"], "of": 1}
    scope.cancel()


@ERAS
async def test_any_era_and_one_session_for_many_calls(upstream, nursery, revision):
    url, scope = await serve(nursery, upstream.server)
    bench = Bench.at(url, revision=revision)
    async with bench.connections:
        async with trio.open_nursery() as calls:
            for number in range(10):
                calls.start_soon(bench.call, "add", {"a": number, "b": 0})
        assert len(upstream.metas) == 10
        assert bench.links.count == 1
        link = next(iter(bench.links._links.values()))
        assert link._client.revision is revision
    scope.cancel()


@ERAS
async def test_cancelling_cancels_the_upstream_call(upstream, nursery, revision):
    url, scope = await serve(nursery, upstream.server)
    bench = Bench.at(url, revision=revision)
    with trio.fail_after(20):
        async with bench.connections:
            async with trio.open_nursery() as calls:
                calls.start_soon(bench.call, "wait")
                await upstream.started.wait()
                calls.cancel_scope.cancel()
            await upstream.cancelled.wait()
            assert (await bench.call(given={"a": 1, "b": 2})).structured_content == {"sum": 3}
            assert bench.links.count == 1
    scope.cancel()


@ERAS
async def test_a_deadline_cancels_the_upstream_call_and_is_told_to_it(
    upstream, nursery, revision, failure
):
    url, scope = await serve(nursery, upstream.server)
    bench = Bench.at(url, revision=revision)
    with trio.fail_after(20):
        async with bench.connections:
            await bench.call(given={"a": 1, "b": 1})
            assert 10_000 < upstream.metas[0][TIME_LEFT] <= 20_000
            short = {"timeout_ms": {"total": 300}}
            _, told = failure(await bench.call("wait", execution_config=short))
            assert (told["stage"], told["sub"]) == ("adapter_execution", "timeout")
            await upstream.cancelled.wait()
    scope.cancel()


async def test_progress_and_the_trace_context_are_passed_on(upstream, nursery):
    url, scope = await serve(nursery, upstream.server)
    bench = Bench.at(url)
    told = []

    class Line:
        async def notify(self, method, params):
            await trio.lowlevel.checkpoint()
            told.append((params["progress"], params["total"], params["message"]))

    context = make_context()
    context.exchange, context.progress_token = Line(), "t"
    context.meta = {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "private": 1}
    async with bench.connections:
        await bench.call("count", context=context)
        await bench.call(given={"a": 1, "b": 1}, context=context)
    assert told == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
    assert upstream.metas[0]["traceparent"] == context.meta["traceparent"]
    assert "private" not in upstream.metas[0]
    scope.cancel()


async def test_progress_of_the_upstream_is_masked_and_bounded(nursery):
    server = MCPServer("upstream")

    @server.tool
    async def tells(ctx: Context) -> str:
        await ctx.progress(1, message="\x1b[1m canary-secret " + "x" * 5000)
        return "done"

    url, scope = await serve(nursery, server)
    auth = Auth(kind="bearer", secret=Secret("canary-secret"))
    bench = Bench.at(url, http={"auth": auth})
    told = []

    class Line:
        async def notify(self, method, params):
            await trio.lowlevel.checkpoint()
            told.append(params["message"])

    context = make_context()
    context.exchange, context.progress_token = Line(), "t"
    async with bench.connections:
        await bench.call("tells", context=context)
    [message] = told
    assert message.startswith("[1m *** xxx")
    assert len(message) == 500
    scope.cancel()


# -- the stages ------------------------------------------------------------------------


class Answering:
    """An MCP server that says yes to a handshake, and gives one result to every call."""

    def __init__(self, upstream, result):
        self.result = result
        upstream.handler = self.answer

    async def answer(self, line, seen):
        asked = seen.json() if seen.method == "POST" else {}
        made = {"jsonrpc": "2.0", "id": asked.get("id")}
        match asked.get("method"):
            case None:
                await line.answer(b"", 405)
                return
            case "initialize":
                made["result"] = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "x", "version": "1"},
                }
            case "tools/call":
                made["result"] = self.result
            case _ if "id" in asked:
                made["result"] = {}
            case _:
                await line.answer(b"", 202)
                return
        await line.answer(json.dumps(made).encode())


@pytest.fixture
async def site(nursery):
    made = shared.Upstream()
    serve = functools.partial(trio.serve_tcp, made.serve, 0, host="127.0.0.1")
    [listener] = await nursery.start(serve)
    made.url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"
    return made


@pytest.mark.parametrize(
    "result",
    [
        {"content": [{"type": "hologram"}]},
        {"content": [{"type": "text", "text": 5}]},
        {"content": None},
        {"content": [], "isError": "yes"},
        {"content": [], "_meta": "x"},
        None,
        [],
    ],
    ids=str,
)
async def test_a_result_that_is_none_is_malformed_and_asks_for_nothing(site, failure, result):
    Answering(site, result)
    bench = Bench.at(site.url, revision=R2025_06_18)
    async with bench.connections:
        told = failure(await bench.call())[1]
    assert (told["stage"], told["sub"]) == ("adapter_execution", "malformed_reply")


async def test_a_tool_that_fails_is_the_upstreams_failure_with_its_text(upstream, nursery, failure):
    url, scope = await serve(nursery, upstream.server)
    auth = Auth(kind="bearer", secret=Secret("canary-secret"))
    bench = Bench.at(url, http={"auth": auth})
    async with bench.connections:
        text, told = failure(await bench.call("fail"))
        assert (told["stage"], told["code"]) == ("external_service", "tool_error")
        assert "no luck with *** today" in text
    scope.cancel()


async def test_a_tool_that_is_gone_is_told_from_arguments_that_are_wrong(nursery, failure):
    upstream = Upstream(page_size=2)
    url, scope = await serve(nursery, upstream.server)
    bench = Bench.at(url)
    async with bench.connections:
        _, told = failure(await bench.call("vanished"))
        assert (told["stage"], told["sub"]) == ("adapter_execution", "tool_gone")
        assert told["retryable"] is False
        _, told = failure(await bench.call("long", {"size": "big"}))
        assert told["stage"] == "external_service"
    scope.cancel()


@ERAS
async def test_an_upstream_that_asks_back_is_refused(upstream, nursery, revision, failure):
    url, scope = await serve(nursery, upstream.server)
    bench = Bench.at(url, revision=revision)
    with trio.fail_after(20):
        async with bench.connections:
            _, told = failure(await bench.call("ask"))
            assert told["stage"] in {"adapter_execution", "external_service"}
            if revision is R2026_07_28:
                assert told["sub"] == "asks_back"
            assert (await bench.call(given={"a": 1, "b": 2})).structured_content == {"sum": 3}
    scope.cancel()


async def test_schemas_mapping_and_sizes(upstream, nursery, failure):
    url, scope = await serve(nursery, upstream.server)
    bench = Bench.at(url)
    async with bench.connections:
        strict = {"type": "object", "properties": {"sum": {"maximum": 1}}, "required": ["sum"]}
        _, told = failure(await bench.call(given={"a": 1, "b": 2}, output_schema=strict))
        assert (told["stage"], told["sub"]) == ("schema_validation", "output")
        _, told = failure(await bench.call("count", output_schema=strict))
        assert (told["stage"], told["sub"]) == ("schema_validation", "output")
        _, told = failure(await bench.call(given={"a": 1}, input_mapping={"body": "=args.a"}))
        assert told["stage"] == "mapping"
        small = {"limits": {"request_bytes": 10}}
        _, told = failure(await bench.call(given={"a": "x" * 20}, execution_config=small))
        assert told["stage"] == "mapping"
        small = {"limits": {"response_bytes": 1000}}
        _, told = failure(await bench.call("long", {"size": 2000}, execution_config=small))
        assert (told["stage"], told["sub"]) == ("adapter_execution", "response_bytes")
        _, told = failure(
            await bench.call(given={"a": 1}, input_schema={"type": "object", "required": ["b"]})
        )
        assert (told["stage"], told["sub"]) == ("schema_validation", "input")
    scope.cancel()


async def test_a_server_that_is_not_there_is_the_adapters_and_the_next_call_tries_again(
    upstream, nursery, failure
):
    url, scope = await serve(nursery, upstream.server)
    scope.cancel()
    bench = Bench.at(url)
    port = int(url.rsplit(":", 1)[1].split("/")[0])
    await trio.testing.wait_all_tasks_blocked()
    async with bench.connections:
        _, told = failure(await bench.call(given={"a": 1, "b": 2}))
        assert (told["stage"], told["sub"]) == ("adapter_execution", "connect")
        assert told["retryable"] is True
        again = Upstream()
        _, scope = await serve(nursery, again.server, port=port)
        assert (await bench.call(given={"a": 1, "b": 2})).structured_content == {"sum": 3}
    scope.cancel()


async def test_an_address_that_may_not_be_reached_is_a_policy_block(failure):
    where = HttpConnection(name="up", base_url="http://internal.example/mcp")

    async def resolve(_host, _port):
        return ["169.254.169.254"]

    connections = Connections([McpConnection(name="up", http=where)], resolver=resolve)
    bench = Bench(McpConnection(name="up", http=where))
    bench.connections, bench.compiler = connections, Compiler(connections)
    async with connections:
        _, told = failure(await bench.call())
    assert (told["stage"], told["sub"]) == ("adapter_execution", "policy_block")


async def test_a_session_that_the_server_forgot_is_opened_again(upstream, nursery, failure):
    url, scope = await serve(nursery, upstream.server)
    bench = Bench.at(url, revision=R2025_06_18)
    port = int(url.rsplit(":", 1)[1].split("/")[0])
    with trio.fail_after(30):
        async with bench.connections:
            await bench.call(given={"a": 1, "b": 2})
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            again = Upstream()
            _, scope = await serve(nursery, again.server, port=port)
            results = [await bench.call(given={"a": 1, "b": 2}) for _ in range(3)]
            assert results[-1].structured_content == {"sum": 3}
    scope.cancel()


# -- who shares a session --------------------------------------------------------------


async def test_no_two_callers_share_a_session_and_cancelling_one_leaves_the_other(
    upstream, nursery
):
    url, scope = await serve(nursery, upstream.server)
    bench = Bench.at(url, revision=R2025_06_18, session_per_caller=True)
    with trio.fail_after(20):
        async with bench.connections:
            async with trio.open_nursery() as calls:
                bobs = await calls.start(_in_scope, bench, BOB)
                await upstream.started.wait()
                for _ in range(2):
                    await bench.call(given={"a": 1, "b": 2}, principal=ANN)
                assert bench.links.count == 2
                bobs.cancel()
                await upstream.cancelled.wait()
                result = await bench.call(given={"a": 2, "b": 2}, principal=ANN)
                assert result.structured_content == {"sum": 4}
    scope.cancel()


async def _in_scope(bench, principal, task_status):
    with trio.CancelScope() as scope:
        task_status.started(scope)
        await bench.call("wait", principal=principal)


async def test_sessions_end_when_idle_and_make_room_for_others(upstream, nursery, failure):
    url, scope = await serve(nursery, upstream.server)
    bench = Bench.at(url, session_per_caller=True, max_sessions=1, idle=0.2)
    with trio.fail_after(20):
        async with bench.connections:
            for who in (ANN, BOB, ANN):
                await bench.call(given={"a": 1, "b": 2}, principal=who)
                assert bench.links.count == 1
            async with trio.open_nursery() as calls:
                calls.start_soon(functools.partial(bench.call, "wait", principal=BOB))
                await upstream.started.wait()
                _, told = failure(await bench.call(given={"a": 1, "b": 2}, principal=ANN))
                assert told["sub"] == "overloaded"
                calls.cancel_scope.cancel()
            link = next(iter(bench.links._links.values()))
            while not link.over:
                await trio.lowlevel.checkpoint()
    scope.cancel()


async def test_the_session_that_was_used_longest_ago_makes_room(upstream, nursery):
    url, scope = await serve(nursery, upstream.server)
    bench = Bench.at(url, session_per_caller=True, max_sessions=2)
    carol = Principal(subject="carol", token=Secret("token-of-carol"))
    with trio.fail_after(20):
        async with bench.connections:
            for who, left in (
                (ANN, [ANN]),
                (BOB, [ANN, BOB]),
                (ANN, [BOB, ANN]),
                (carol, [ANN, carol]),
                (BOB, [carol, BOB]),
            ):
                await bench.call(given={"a": 1, "b": 2}, principal=who)
                assert [
                    link.identity.principal.subject for link in bench.links._links.values()
                ] == [each.subject for each in left]
    scope.cancel()


async def test_closing_the_connections_ends_the_sessions_and_their_calls(
    upstream, nursery, failure
):
    url, scope = await serve(nursery, upstream.server)
    bench = Bench.at(url)
    told = []

    async def waiting():
        told.append(failure(await bench.call("wait"))[1])

    with trio.fail_after(20):
        async with trio.open_nursery() as calls:
            async with bench.connections:
                calls.start_soon(waiting)
                await upstream.started.wait()
    assert told[0]["stage"] in {"adapter_execution", "internal_runtime"}
    operation = bench.compile()
    _, after = failure(await operation.call(make_context(), {"a": 1, "b": 1}))
    assert (after["stage"], after["sub"]) == ("internal_runtime", "shutdown")
    scope.cancel()


async def test_the_connections_credentials_go_along_and_the_callers_do_not(nursery):
    seen = []

    def identify(head):
        seen.append(head.headers.get("authorization"))
        return Principal(subject="us")

    upstream = Upstream()
    url, scope = await serve(nursery, upstream.server, options=HTTPOptions(identify=identify))
    bench = Bench.at(url, http={"auth": Auth(kind="bearer", secret=Secret("ours"))})
    async with bench.connections:
        result = await bench.call(given={"a": 1, "b": 2}, principal=ANN)
        assert result.structured_content == {"sum": 3}
    assert set(seen) == {"Bearer ours"}
    scope.cancel()


async def test_on_behalf_of_their_callers_each_has_a_session_and_a_token_of_their_own(nursery):
    tokens = shared.Upstream()

    async def give(line, seen):
        form = parse_qs(seen.body.decode())
        token = f"for-{form['subject_token'][0]}"
        await line.answer(json.dumps({"access_token": token, "token_type": "Bearer"}).encode())

    tokens.handler = give
    listeners = await nursery.start(functools.partial(trio.serve_tcp, tokens.serve, 0))
    port = listeners[0].socket.getsockname()[1]
    exchange = TokenEndpoint(
        url=f"http://127.0.0.1:{port}/token",
        client_id="us",
        client_secret=Secret("our-secret"),
        subject_token_type="urn:ietf:params:oauth:token-type:access_token",
    )
    seen = []

    def identify(head):
        seen.append(head.headers["authorization"])
        return Principal(subject=head.headers["authorization"])

    url, scope = await serve(nursery, Upstream().server, options=HTTPOptions(identify=identify))
    bench = Bench.at(url, revision=R2025_06_18, http={"on_behalf_of": exchange})
    config = {"auth": "on_behalf_of"}
    async with bench.connections:
        for who in (ANN, BOB, ANN, Principal(subject="ann", token=Secret("another-of-ann"))):
            result = await bench.call(
                given={"a": 1, "b": 2}, principal=who, execution_config=config
            )
            assert result.structured_content == {"sum": 3}
        assert bench.links.count == 3
        nobody = await bench.call(given={"a": 1, "b": 2}, execution_config=config)
        assert "not known by a token" in nobody.content[0].text
    assert set(seen) == {
        "Bearer for-token-of-ann",
        "Bearer for-token-of-bob",
        "Bearer for-another-of-ann",
    }
    scope.cancel()


# -- programs --------------------------------------------------------------------------

PROGRAM = """
import os
import sys
import mcp_trio
server = mcp_trio.MCPServer("program")

@server.tool()
def whoami() -> dict[str, str]:
    print("-" * 494 + os.environ.get("API_KEY", ""), file=sys.stderr, flush=True)
    return {"key": os.environ.get("API_KEY", ""), "other": os.environ.get("OTHER", "none")}

@server.tool()
def die() -> str:
    os._exit(3)

server.run()
"""


async def test_a_program_gets_its_variables_and_is_started_again(
    tmp_path, monkeypatch, failure, caplog
):
    caplog.set_level(logging.DEBUG, "mcp_trio.runtime")
    (tmp_path / "server.py").write_text(PROGRAM)
    monkeypatch.setenv("OUR_KEY", "canary-key")
    monkeypatch.setenv("OTHER", "must not be inherited")
    section = {
        "kind": "mcp",
        "command": [sys.executable, "server.py"],
        "cwd": ".",
        "env": {"PYTHONPATH": str(ROOT)},
        "env_from": {"API_KEY": "OUR_KEY"},
        "connect_timeout": 30,
    }
    values = {"catalog": {"registry": "r"}, "connections": {"up": section}}
    (made,) = make_connections(parse_settings(values).connections, tmp_path)
    assert "canary" not in repr(made)
    bench = Bench(made)
    with trio.fail_after(60):
        async with bench.connections:
            result = await bench.call("whoami")
            assert result.structured_content == {"key": "canary-key", "other": "none"}
            _, told = failure(await bench.call("die"))
            assert (told["stage"], told["sub"]) == ("adapter_execution", "disconnected")
            assert (await bench.call("whoami")).structured_content["key"] == "canary-key"
    # What it said is cut after secrets are masked, or half of one would be left.
    assert "up says: ----" in caplog.text
    assert "-canar" not in caplog.text


# -- at load ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"input_mapping": {"query": {}}}, r"input_mapping\.query: an mcp operation has a body"),
        ({"input_mapping": {"body": {"a": "=args.q"}}}, r"args\.q is used but"),
        ({"execution_config": {"auth": "on_behalf_of"}}, "has no on_behalf_of"),
        ({"output_mapping": {"result": "=status"}}, "there is no 'status' here"),
    ],
)
def test_what_cannot_work_is_found_at_load(changes, told):
    bench = Bench.at("http://127.0.0.1:1/mcp")
    with pytest.raises(OperationError, match=told):
        bench.compile(**changes)


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({}, "give either a url or a command"),
        ({"url": "http://h/mcp", "command": ["x"]}, "give either a url or a command"),
        ({"command": []}, "the command is empty"),
        ({"url": "ws://h/mcp"}, "base_url must be http or https"),
        ({"command": ["x"], "auth": {"kind": "none"}}, "a program takes env_from, and no auth"),
        ({"command": ["x"], "env_from": {"A": "NOT_SET_HERE"}}, "NOT_SET_HERE is not set"),
        ({"url": "http://h/mcp", "max_sessions": 0}, "must be greater than 0"),
    ],
)
def test_settings_that_cannot_work_are_explained(tmp_path, section, told):
    values = {"catalog": {"registry": "r"}, "connections": {"up": {"kind": "mcp", **section}}}
    with pytest.raises(ConfigurationError, match=told):
        make_connections(parse_settings(values).connections, tmp_path)


async def test_the_example_of_the_documentation_runs(upstream, nursery, tmp_path):
    page = (ROOT / "docs" / "operations.md").read_text().split("## MCP servers")[1]
    view = json.loads(page.split("```json")[1].split("```")[0])
    url, scope = await serve(nursery, upstream.server)
    text = page.split("```toml")[1].split("```")[0].replace("https://tools.example/mcp", url)
    (made,) = make_connections(parse_settings(tomllib.loads(text)).connections, tmp_path)
    connections = Connections([made])
    async with connections:
        operation = Compiler(connections).compile(parse(view))
        result = await operation.call(make_context(), {"first": 20, "second": 22})
    assert result.structured_content == {"total": 42}
    scope.cancel()
