"""The onion around every request: its order, what it may change, and how it ends."""

import attrs
import pytest
import trio
import trio.testing

from mcp_trio import ClientCallbacks, Context, MCPServer, NotFoundError, RemoteError
from mcp_trio.errors import InvalidParamsError
from mcp_trio.events import RequestCompleted
from mcp_trio.wire import CallToolResult, TextContent
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28
from mcp_trio.wire.rounds import InputRequiredResult
from tests.scenarios.manifest import in_worlds
from tests.scenarios.worlds import WORLDS, world

everywhere = in_worlds(WORLDS)
both_eras = pytest.mark.parametrize("revision", [R2025_11_25, R2026_07_28], ids=str)


def make_server():
    server = MCPServer("s")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return server


@everywhere
async def test_it_is_around_every_request(transport, revision):
    server, seen = make_server(), []

    @server.middleware
    async def watch(context, call_next):
        seen.append((context.method, context.target))
        result = await call_next(context)
        seen.append(type(result).__name__)
        return result

    async with world(server, transport, revision) as client:
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert result.content[0].text == "3"
        await client.list_tools()
    opening = (
        [("server/discover", None), "DiscoverResult"]
        if revision.stateless
        else [("initialize", None), "InitializeResult"]
    )
    assert seen == [
        *opening,
        ("tools/call", "add"),
        "CallToolResult",
        ("tools/list", None),
        "ListToolsResult",
    ]


async def test_the_first_one_registered_is_outermost_and_can_be_taken_away():
    server, order = make_server(), []

    def layer(name):
        async def run(context, call_next):
            order.append(f"{name} in")
            try:
                return await call_next(context)
            finally:
                order.append(f"{name} out")

        return run

    first, second = layer("first"), layer("second")
    server.add_middleware(first)
    server.add_middleware(second)
    async with world(server, "memory", R2026_07_28) as client:
        order.clear()
        await client.call_tool("add", {"a": 1, "b": 2})
        assert order == ["first in", "second in", "second out", "first out"]
        server.remove_middleware(first)
        order.clear()
        await client.call_tool("add", {"a": 1, "b": 2})
        assert order == ["second in", "second out"]
    with pytest.raises(NotFoundError):
        server.remove_middleware(first)


@both_eras
async def test_it_may_change_the_parameters_the_result_or_answer_by_itself(revision):
    server = make_server()

    @server.middleware
    async def change(context: Context, call_next):
        if context.method != "tools/call":
            return await call_next(context)
        if context.target == "nothing":
            return CallToolResult(content=[TextContent(text="answered outside")])
        context.params = attrs.evolve(context.params, name="add", arguments={"a": 40, "b": 2})
        result = await call_next(context)
        return attrs.evolve(result, content=[*result.content, TextContent(text="changed")])

    async with world(server, "memory", revision) as client:
        result = await client.call_tool("alias")
        assert [block.text for block in result.content] == ["42", "changed"]
        assert (await client.call_tool("nothing")).content[0].text == "answered outside"


@both_eras
async def test_what_it_raises_is_answered_as_if_a_handler_had_raised_it(revision, caplog):
    server = make_server()

    @server.middleware
    async def fail(context: Context, call_next):
        if context.target == "known":
            raise InvalidParamsError("not so")
        if context.target == "bug":
            raise RuntimeError("secret")
        if context.target == "wrong":
            return "no result of this method"
        return await call_next(context)

    async with world(server, "memory", revision) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("known")
        assert (caught.value.rpc_code, caught.value.message) == (-32602, "not so")
        for name in ("bug", "wrong"):
            with pytest.raises(RemoteError) as caught:
                await client.call_tool(name)
            assert caught.value.rpc_code == -32603
            assert "secret" not in str(caught.value)
        assert (await client.call_tool("add", {"a": 1, "b": 1})).content[0].text == "2"
    assert "secret" in caplog.text


@both_eras
async def test_it_sees_failures_and_refusals_of_what_is_inside(revision):
    server, seen = make_server(), []

    @server.middleware
    async def audit(context: Context, call_next):
        try:
            return await call_next(context)
        except Exception as error:
            seen.append(type(error).__name__)
            raise

    @server.authorize("tools/list")
    def nobody(context):
        return False

    async with world(server, "memory", revision) as client:
        with pytest.raises(RemoteError):
            await client.call_tool("missing")
        with pytest.raises(RemoteError):
            await client.list_tools()
    assert seen == ["NotFoundError", "UnauthorizedError"]


@everywhere
async def test_cancelling_the_call_ends_its_middleware(transport, revision):
    server = MCPServer("s")
    began, ended = trio.Event(), trio.Event()

    @server.tool
    async def hold() -> None:
        began.set()
        await trio.sleep_forever()

    @server.middleware
    async def watch(context, call_next):
        try:
            return await call_next(context)
        finally:
            if context.target == "hold":
                ended.set()

    async with world(server, transport, revision) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "hold")
        await began.wait()
        nursery.cancel_scope.cancel()
        with trio.fail_after(5):
            await ended.wait()


@both_eras
async def test_it_may_ask_the_client_and_runs_anew_in_each_round(revision):
    server, entered = make_server(), []

    @server.middleware
    async def confirm(context: Context, call_next):
        if context.method == "tools/call":
            entered.append(context.target)
            schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
            if not (await context.elicit("Sure?", schema)).accepted:
                return CallToolResult(content=[TextContent(text="then not")], is_error=True)
        return await call_next(context)

    callbacks = ClientCallbacks(elicitation=lambda _: {"ok": True})
    async with world(server, "memory", revision, callbacks) as client:
        result = await client.call_tool("add", {"a": 2, "b": 2})
    assert result.content[0].text == "4"
    assert entered == ["add"] * (2 if revision.stateless else 1)


async def test_a_context_it_made_reaches_the_handler():
    server, seen = MCPServer("s"), []

    @server.tool
    async def who(ctx: Context) -> str:
        seen.append(ctx.meta)
        return "x"

    @server.middleware
    async def other(context: Context, call_next):
        return await call_next(attrs.evolve(context, meta={"mine": 1}))

    async with world(server, "memory", R2026_07_28) as client:
        await client.call_tool("who")
    assert seen == [{"mine": 1}]


@both_eras
@pytest.mark.parametrize("method", ["tools/list", "tools/call", "ping"])
async def test_a_question_is_a_result_only_where_there_are_such(revision, method, caplog):
    server = make_server()

    @server.middleware
    async def ask(context: Context, call_next):
        if context.method != method:
            return await call_next(context)
        return InputRequiredResult(request_state="mine")

    async with world(server, "memory", revision) as client:
        if revision.stateless and method == "ping":
            return  # there is none
        call = client.session.call(method, {"name": "add", "arguments": {"a": 1, "b": 1}})
        if revision.stateless and method == "tools/call":
            assert (await call)["requestState"] == "mine"
            return
        with pytest.raises(RemoteError) as caught:
            await call
        assert caught.value.rpc_code == -32603
    assert "not a InputRequiredResult" in caplog.text


@everywhere
async def test_one_that_calls_twice_or_not_in_time_leaves_nothing(transport, revision):
    server, late = make_server(), []

    async def in_the_background(context, call_next):
        late.append(await call_next(context))

    async with trio.open_nursery() as outside:

        @server.middleware
        async def layer(context: Context, call_next):
            if context.target == "twice":
                context.params = attrs.evolve(context.params, name="add")
                results = [await call_next(context) for _ in range(2)]
                return results[1]
            if context.target == "later":
                context.params = attrs.evolve(context.params, name="add")
                outside.start_soon(in_the_background, context, call_next)
                return CallToolResult(content=[TextContent(text="not waited for")])
            return await call_next(context)

        async with world(server, transport, revision) as client:
            for name, text in (("twice", "4"), ("later", "not waited for")):
                result = await client.call_tool(name, {"a": 2, "b": 2})
                assert result.content[0].text == text
    assert late[0].content[0].text == "4"


@both_eras
async def test_one_that_swallows_the_cancellation_does_not_answer_for_it(revision):
    server, began = MCPServer("s"), trio.Event()

    @server.tool
    async def hold() -> None:
        began.set()
        await trio.sleep_forever()

    @server.middleware
    async def stubborn(context: Context, call_next):
        try:
            return await call_next(context)
        except trio.Cancelled:
            return CallToolResult(content=[TextContent(text="all is well")])

    seen = []
    async with world(server, "memory", revision) as client:
        with server.events.attach(seen.append):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "hold")
                await began.wait()
                nursery.cancel_scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
        assert client.session.statistics().late_answers == 0
    assert [e.outcome for e in seen if isinstance(e, RequestCompleted)] == ["cancelled"]
