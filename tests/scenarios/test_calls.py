"""What a caller can rely on, over every transport and in every revision."""

import threading

import pytest
import trio

from mcp_trio import Context, RemoteError, RequestTimeoutError, ToolError
from mcp_trio.wire.revisions import R2025_06_18
from tests.http.tools import make_server
from tests.scenarios.manifest import in_worlds, shows
from tests.scenarios.worlds import WORLDS, world

pytestmark = in_worlds(WORLDS)


@shows("D5")
async def test_listing_and_calling(transport, revision):
    server, _ = make_server(page_size=2)
    async with world(server, transport, revision) as client:
        assert client.revision is revision
        assert client.server_info.name == "test"
        names = [tool.name async for tool in client.tools()]
        assert names == ["add", "wait", "report", "fail", "needs_sampling", "echo"]
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert result.content[0].text == "3"
        if revision >= R2025_06_18:
            assert result.structured_content == {"result": 3}
        await client.ping()


@shows("P1")
async def test_progress_comes_in_order_and_before_the_result(transport, revision):
    server, _ = make_server()
    seen = []
    async with world(server, transport, revision) as client:
        result = await client.call_tool(
            "report",
            {"steps": 5},
            on_progress=lambda value, total, _message: seen.append((value, total)),
        )
        assert seen == [(step, 5) for step in range(1, 6)]
        assert result.content[0].text == "reported"


async def test_a_call_that_lets_its_client_go_is_answered_all_the_same(transport, revision):
    server, _ = make_server()
    seen = []

    @server.tool
    async def patient(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.close_stream(retry_ms=20)
        await ctx.progress(2)
        return "came back"

    async with world(server, transport, revision) as client:
        with trio.fail_after(10):
            result = await client.call_tool(
                "patient", on_progress=lambda value, *_: seen.append(value)
            )
        assert result.content[0].text == "came back"
        assert seen == [1, 2]


@shows("T7", "K1")
async def test_faults_of_tools_and_faults_of_the_protocol(transport, revision):
    server, _ = make_server()

    @server.tool
    async def told() -> str:
        raise ToolError("the disk is full")

    async with world(server, transport, revision) as client:
        result = await client.call_tool("told")
        assert (result.is_error, result.content[0].text) == (True, "the disk is full")
        result = await client.call_tool("fail")
        assert result.is_error
        assert "secret" not in result.content[0].text
        result = await client.call_tool("add", {"a": "x"})
        assert result.is_error
        assert "/a" in result.content[0].text
        assert "misses b" in result.content[0].text
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("nope")
        assert caught.value.rpc_code == -32602
        with pytest.raises(RemoteError) as caught:
            await client.call("no/such")
        assert caught.value.rpc_code == -32601
        with pytest.raises(RemoteError) as caught:
            await client.list_tools("made up")
        assert caught.value.rpc_code == -32602


@pytest.mark.parametrize("code", [-32020, -32021, -32022, -32601, 7])
async def test_what_a_handler_was_told_by_another_server_is_not_told_of_its_client(
    transport, revision, code
):
    server, _ = make_server()

    @server.tool
    async def proxy() -> str:
        raise RemoteError("no", rpc_code=code, data={"supported": []})

    async with world(server, transport, revision) as client:
        with pytest.raises(RemoteError, match="no") as caught:
            await client.call_tool("proxy")
    assert caught.value.rpc_code == (-32603 if code in {-32020, -32021, -32022} else code)
    assert caught.value.data["supported"] == []


@shows("C1")
async def test_leaving_a_call_ends_it_on_the_server(transport, revision):
    server, record = make_server()
    async with world(server, transport, revision) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "wait")
            await record.until("wait started")
            nursery.cancel_scope.cancel()
        await record.until("wait started", "wait over")
        assert (await client.call_tool("add", {"a": 1, "b": 1})).content[0].text == "2"


async def test_a_timeout_ends_the_call_on_the_server(transport, revision):
    server, record = make_server()
    async with world(server, transport, revision) as client:
        with pytest.raises(RequestTimeoutError):
            await client.call_tool("wait", timeout=0.05)
        await record.until("wait started", "wait over")


async def test_leaving_the_block_ends_everything(transport, revision):
    server, record = make_server()
    async with world(server, transport, revision) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "wait")
            await record.until("wait started")
            nursery.cancel_scope.cancel()
    assert record.events == ["wait started", "wait over"]


@shows("LC5")
async def test_the_server_ends_a_call_over_its_time(transport, revision):
    server, record = make_server(request_timeout=0.05)
    async with world(server, transport, revision) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("wait")
        assert caught.value.data["code"] == "MCP.TIMEOUT"
        assert record.events == ["wait started", "wait over"]


@shows("T9")
async def test_a_change_of_the_list_is_heard(transport, revision):
    server, _ = make_server()
    async with world(server, transport, revision) as client, client.listen() as changes:
        server.remove_tool("add")
        with trio.fail_after(10):
            assert await anext(changes) == "notifications/tools/list_changed"
        names = [tool.name async for tool in client.tools()]
        assert "add" not in names


async def test_synchronous_tools_run_in_threads_and_can_see_the_cancellation(transport, revision):
    server, _ = make_server()
    cancelled = threading.Event()

    @server.tool
    def poll() -> str:
        try:
            while True:
                trio.from_thread.check_cancelled()
        except trio.Cancelled:
            cancelled.set()
            raise

    async with world(server, transport, revision) as client:
        with pytest.raises(RequestTimeoutError):
            await client.call_tool("poll", timeout=0.1)
        assert await trio.to_thread.run_sync(cancelled.wait, 10)


async def test_a_synchronous_tool_can_ask_whether_it_was_cancelled(transport, revision):
    server, _ = make_server()
    asked, seen = threading.Event(), threading.Event()

    @server.tool
    def poll(ctx: Context) -> str:
        asked.set()
        while not ctx.cancel_requested:
            pass
        seen.set()
        return "late"

    async with world(server, transport, revision) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "poll")
            assert await trio.to_thread.run_sync(asked.wait, 10)
            nursery.cancel_scope.cancel()
        assert await trio.to_thread.run_sync(seen.wait, 10)


async def test_what_is_raised_while_listening_comes_out_as_itself(transport, revision):
    server, _ = make_server()
    async with world(server, transport, revision) as client:
        with pytest.raises(KeyError, match="mine"):
            async with client.listen():
                raise KeyError("mine")
