"""The methods of a client, typed: what is sent, what comes back, what is refused here."""

import math

import pytest
import trio
import trio.testing

from mcp_trio import (
    ClientCallbacks,
    ClientOptions,
    Context,
    MCPClient,
    MCPError,
    MCPServer,
    RemoteError,
    RequestTimeoutError,
    TimeLimit,
)
from mcp_trio.errors import (
    ConfigurationError,
    InvalidParamsError,
    MethodNotFoundError,
    ProtocolError,
)
from mcp_trio.jsonrpc.messages import Error
from mcp_trio.wire import REVISIONS
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28
from tests.client.scripts import scripted

each_revision = pytest.mark.parametrize("revision", REVISIONS, ids=str)
both_eras = pytest.mark.parametrize("revision", [R2025_11_25, R2026_07_28], ids=str)


def connected(server, revision, callbacks=None, **options):
    options = ClientOptions(revisions=(revision,), **options)
    return MCPClient(server, callbacks=callbacks, options=options)


def make_server():
    server = MCPServer("typed")

    @server.prompt
    def greet(name: str) -> str:
        return f"Hello {name}"

    @server.resource("note:///{name}")
    def note(name: str) -> str:
        return f"the note {name}"

    @server.completion("name", prompt="greet")
    def names(value: str, known: dict[str, str]) -> list[str]:
        return [name for name in ("Ann", "Bob", *known.values()) if name.startswith(value)]

    @server.completion("name", resource="note:///{name}")
    def notes(value: str, known: dict[str, str]) -> list[str]:
        return ["first"]

    @server.tool
    async def chat(ctx: Context) -> str:
        for level in ("debug", "warning", "error"):
            await ctx.log(level, level)
        return "said"

    return server


@each_revision
async def test_prompts_resources_and_completion(revision):
    async with connected(make_server(), revision) as client:
        got = await client.get_prompt("greet", {"name": "Bob"})
        assert got.messages[0].content.text == "Hello Bob"
        read = await client.read_resource("note:///x")
        assert (read.contents[0].text, read.contents[0].uri) == ("the note x", "note:///x")
        await client.ping()
        with pytest.raises(RemoteError) as caught:
            await client.read_resource("note:other")
        assert caught.value.code == "MCP.NOT_FOUND"
        with pytest.raises(RemoteError):
            await client.get_prompt("nobody")
        assert (await client.complete("name", "", resource="note:///{name}")).values == ["first"]
        found = await client.complete("name", "B", prompt="greet", known={"other": "Bert"})
        # The first revisions cannot say what is known.
        assert found.values in (["Bob", "Bert"], ["Bob"])
        assert len(found.values) == (2 if revision in REVISIONS[:3] else 1)


async def test_a_completion_is_of_one_thing():
    async with connected(make_server(), R2026_07_28) as client:
        for what in ({}, {"prompt": "a", "resource": "b"}):
            with pytest.raises(InvalidParamsError):
                await client.complete("name", "", **what)


@both_eras
async def test_what_the_revision_does_not_have_is_refused_here(revision):
    async with scripted({}, revisions=(revision,)) as (client, script):
        before = len(script.asked)
        if revision.stateless:
            wrong = [client.subscribe("a:b"), client.unsubscribe("a:b")]
        else:
            wrong = [client.discover()]
        for call in wrong:
            with pytest.raises(MethodNotFoundError, match=str(revision)):
                await call
        assert len(script.asked) == before


async def test_unknown_fields_of_results_are_kept():
    bodies = {
        "prompts/get": {"messages": []},
        "resources/read": {"contents": []},
        "completion/complete": {"completion": {"values": []}},
        "tools/call": {"content": []},
        "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {}},
    }
    answers = {method: {**body, "new": [1]} for method, body in bodies.items()}
    async with scripted(answers) as (client, _):
        for result in (
            await client.get_prompt("x"),
            await client.read_resource("a:b"),
            await client.call_tool("x"),
            await client.discover(),
        ):
            assert result.extra == {"new": [1]}
        assert (await client.complete("a", "", prompt="x")).values == []


# -- logs --------------------------------------------------------------------------


@both_eras
async def test_the_wanted_level_holds_from_then_on(revision):
    lines = []
    callbacks = ClientCallbacks(logging=lambda line: lines.append(line.data))
    async with connected(make_server(), revision, callbacks) as client:
        await client.set_log_level("error")
        await client.call_tool("chat")
        assert lines == ["error"]
        await client.set_log_level("debug")
        await client.call_tool("chat")
        assert lines == ["error", "debug", "warning", "error"]
        with pytest.raises(InvalidParamsError, match="emergency"):
            await client.set_log_level("loud")
        meta = {"_meta": {"io.modelcontextprotocol/logLevel": "error"}}
        await client.call("tools/call", {"name": "chat", **meta})
        # What one call says of itself goes before what all of them say.
        assert lines[4:] == (["error"] if revision.stateless else ["debug", "warning", "error"])


# -- time --------------------------------------------------------------------------


@both_eras
async def test_a_limit_of_silence_for_one_call_or_for_all(autojump_clock, revision):
    server = MCPServer("slow")

    @server.tool
    async def work(ctx: Context, steps: int) -> str:
        for step in range(steps):
            await trio.sleep(4)
            await ctx.progress(step)
        await trio.sleep(4)
        return "worked"

    async with connected(server, revision, timeout=TimeLimit(idle=5, total=30)) as client:
        result = await client.call_tool("work", {"steps": 3})
        assert result.content[0].text == "worked"
        with pytest.raises(RequestTimeoutError, match="30"):
            await client.call_tool("work", {"steps": 9})
        with pytest.raises(RequestTimeoutError, match="sign of life"):
            await client.call_tool("work", {"steps": 1}, timeout=TimeLimit(idle=3))
        seen = []
        await client.call_tool(
            "work",
            {"steps": 2},
            timeout=TimeLimit(idle=5),
            on_progress=lambda value, *_: seen.append(value),
        )
        assert seen == [0, 1]


@both_eras
async def test_a_user_who_thinks_is_not_the_silence_of_the_server(autojump_clock, revision):
    server = MCPServer("asks")

    @server.tool
    async def ask(ctx: Context) -> str:
        form = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
        await ctx.elicit("Sure?", form)
        await trio.sleep(4)
        return "asked"

    async def think(params):
        await trio.sleep(60)
        return {"ok": True}

    async with connected(server, revision, ClientCallbacks(elicitation=think)) as client:
        result = await client.call_tool("ask", timeout=TimeLimit(idle=5))
        assert result.content[0].text == "asked"
        with pytest.raises(RequestTimeoutError):
            await client.call_tool("ask", timeout=TimeLimit(idle=5, total=30))


async def test_the_total_is_for_both_tries_of_a_call_refused_for_its_headers(autojump_clock):
    def refuse(request):
        return Error(request.id, -32020, "Header mismatch")

    answers = {"tools/call": refuse, "tools/list": lambda request: None}
    async with scripted(answers) as (client, script):
        began = trio.current_time()
        with pytest.raises(RequestTimeoutError):
            await client.call_tool("x", timeout=7)
        assert trio.current_time() - began == pytest.approx(7)
        assert (script.count("tools/call"), script.count("tools/list")) == (1, 1)


async def test_a_number_of_the_servers_own_never_makes_a_call_run_twice():
    answers = {
        "tools/call": lambda request: Error(request.id, -32020, "paid, and then it broke"),
        "tools/list": {"tools": []},
    }
    async with scripted(answers, revisions=(R2025_11_25,)) as (client, script):
        with pytest.raises(RemoteError, match="paid"):
            await client.call_tool("pay")
        assert (script.count("tools/call"), script.count("tools/list")) == (1, 0)


async def test_a_server_without_a_list_is_told_of_by_its_first_refusal():
    answers = {"tools/call": lambda request: Error(request.id, -32020, "Header mismatch")}
    async with scripted(answers) as (client, script):
        with pytest.raises(RemoteError, match="Header mismatch"):
            await client.call_tool("x")
        assert (script.count("tools/call"), script.count("tools/list")) == (1, 1)


# -- structured content ------------------------------------------------------------


def tool(schema, name="measure"):
    entry = {"name": name, "inputSchema": {"type": "object"}, "outputSchema": schema}
    return {"tools": [entry], "ttlMs": 0}


LENGTH = {"type": "object", "properties": {"cm": {"type": "integer"}}, "required": ["cm"]}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"structuredContent": {"cm": "secret"}}, "/cm"),
        ({"structuredContent": {}}, "the whole"),
        ({"structuredContent": None}, "the whole"),
        ({}, "no structured content"),
    ],
)
async def test_structured_content_is_held_to_the_listed_schema(answer, told):
    answers = {"tools/list": tool(LENGTH), "tools/call": {"content": [], **answer}}
    async with scripted(answers) as (client, _):
        await client.call_tool("measure")  # nobody has promised anything yet
        await client.list_tools()
        with pytest.raises(ProtocolError, match=told) as caught:
            await client.call_tool("measure")
        assert "secret" not in str(caught.value)
    async with scripted(answers, check_output=False) as (client, _):
        await client.list_tools()
        await client.call_tool("measure")


async def test_a_failure_and_content_that_fits_are_let_through():
    answers = {"tools/list": tool(LENGTH)}
    for answer in ({"structuredContent": {"cm": 7}}, {"isError": True}):
        answers["tools/call"] = {"content": [], **answer}
        async with scripted(answers) as (client, _):
            await client.list_tools()
            result = await client.call_tool("measure")
            assert result.is_error is answer.get("isError")


async def test_the_schema_that_was_listed_last_counts():
    answers = {"tools/call": {"content": [], "structuredContent": {"cm": "x"}}}
    async with scripted(answers) as (client, script):
        script.answers["tools/list"] = tool(LENGTH)
        await client.list_tools()
        await client.list_tools()
        with pytest.raises(ProtocolError):
            await client.call_tool("measure")
        script.answers["tools/list"] = tool({"type": "object"})
        await client.list_tools()
        await client.call_tool("measure")
        script.answers["tools/list"] = tool(None)
        await client.list_tools()
        await client.call_tool("measure")


@both_eras
async def test_a_promise_holds_until_the_tools_are_others(revision):
    answers = {
        "tools/list": tool(LENGTH),
        "tools/call": {"content": [], "structuredContent": {"cm": "x"}},
    }
    async with scripted(answers, revisions=(revision,)) as (client, script):

        async def promised():
            await client.list_tools()
            with pytest.raises(ProtocolError):
                await client.call_tool("measure")

        await promised()
        await script.notice("notifications/tools/list_changed")
        await trio.testing.wait_all_tasks_blocked()
        await client.call_tool("measure")
        await promised()
        client.forget()
        await client.call_tool("measure")
        await promised()
        script.answers["tools/list"] = {"tools": [{"name": "measure"}]}  # broken, so left out
        await client.list_tools()
        await client.call_tool("measure")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "https://example.invalid/a.json"}}},
        {"$schema": "https://example.invalid/dialect"},
        {"type": "no such type"},
    ],
)
async def test_a_schema_that_cannot_be_used_is_an_error_before_anything_is_sent(schema):
    answers = {"tools/list": tool(schema), "tools/call": {"content": []}}
    async with scripted(answers) as (client, script):
        assert [t.output_schema async for t in client.tools()] == [schema]
        with pytest.raises(MCPError, match="outputSchema of measure"):
            await client.call_tool("measure")
        assert script.count("tools/call") == 0


@pytest.mark.parametrize("times", [{"timeout": math.nan}, {"probe_timeout": math.nan}])
async def test_a_time_that_is_none_is_refused_before_anything_is_sent(times):
    with pytest.raises(ConfigurationError, match="not nan"):
        ClientOptions(**times)
    async with MCPClient(MCPServer("x")) as client:
        with pytest.raises(ValueError, match="nan is none"):
            await client.ping(timeout=math.nan)
        await client.ping()
