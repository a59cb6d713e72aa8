"""Several servers as one: names, failures, order, and leaving at any time."""

import contextlib

import pytest
import trio
import trio.testing

from mcp_trio import ClientGroup, MCPClient, MCPServer
from mcp_trio.errors import (
    AlreadyConnectedError,
    ConfigurationError,
    MCPError,
    NotFoundError,
    TransportError,
)
from mcp_trio.testing import FaultyTransport, MemoryTransport, ScriptedPeer
from tests.client.scripts import Script


def make_server(name, *tools):
    server = MCPServer(name)

    def add(tool):
        server.add_tool(lambda: f"{name} {tool}", name=tool)
        server.add_prompt(lambda: f"{name} {tool}", name=tool)

    for tool in tools:
        add(tool)
    return server


class Unreachable(MemoryTransport):
    """A line that is closed already."""

    @classmethod
    def make(cls):
        ours, _ = MemoryTransport.pair()
        faulty = FaultyTransport(ours)
        faulty.cut()
        return faulty


async def text_of(group, name):
    return (await group.call_tool(name)).content[0].text


async def test_names_say_whose_a_tool_is():
    # What the servers call themselves is the same, and does not matter.
    servers = {"b": make_server("same", "one", "two"), "a": make_server("same", "one")}
    async with ClientGroup(servers) as group:
        assert list(group.clients) == ["b", "a"]
        assert group.failures == {}
        names = [tool.name async for tool in group.tools()]
        assert names == ["b__one", "b__two", "a__one"]
        assert [prompt.name async for prompt in group.prompts()] == names
        assert await text_of(group, "b__two") == "same two"
        got = await group.get_prompt("a__one")
        assert got.messages[0].content.text == "same one"
        for wrong in ("one", "c__one", "__one", ""):
            with pytest.raises(NotFoundError):
                await group.call_tool(wrong)
        with pytest.raises(MCPError, match="Unknown tool"):
            await group.call_tool("a__two")
    with pytest.raises(TransportError):
        await group.call_tool("a__one")


@pytest.mark.parametrize(
    ("names", "separator"),
    [(["a b"], "__"), ([""], "__"), (["a", "a__b"], "__"), (["a", "ab"], ""), (["a"], "/")],
)
async def test_names_that_could_be_mistaken_are_refused(names, separator):
    server = make_server("s", "one")
    with pytest.raises(ConfigurationError):
        ClientGroup(dict.fromkeys(names, server), separator=separator)
    await trio.lowlevel.checkpoint()


async def test_a_separator_of_ones_own_and_names_that_only_look_alike():
    servers = {"a": make_server("1", "b.c"), "a_b": make_server("2", "c")}
    async with ClientGroup(servers, separator=".") as group:
        assert [tool.name async for tool in group.tools()] == ["a.b.c", "a_b.c"]
        assert await text_of(group, "a.b.c") == "1 b.c"


async def test_one_that_cannot_be_reached_takes_nobody_down(caplog):
    servers = {"good": make_server("g", "one"), "bad": Unreachable.make()}
    async with ClientGroup(servers) as group:
        assert list(group.clients) == ["good"]
        assert isinstance(group.failures["bad"], TransportError)
        assert [tool.name async for tool in group.tools()] == ["good__one"]
        assert await text_of(group, "good__one") == "g one"
        with pytest.raises(TransportError, match="server bad is not connected") as caught:
            await group.call_tool("bad__one")
        assert caught.value.__cause__ is group.failures["bad"]
    assert "server bad has failed" in caplog.text


async def test_one_that_goes_away_takes_nobody_down():
    async with contextlib.AsyncExitStack() as stack, trio.open_nursery() as nursery:
        ours, theirs = MemoryTransport.pair()
        script = Script(ScriptedPeer(theirs), {"tools/list": {"tools": []}})
        stack.push_async_callback(theirs.aclose)
        nursery.start_soon(script.run)
        servers = {"gone": ours, "good": make_server("g", "one")}
        async with ClientGroup(servers) as group:
            assert sorted(group.clients) == ["gone", "good"]
            await theirs.aclose()
            with pytest.raises(MCPError):
                await group.call_tool("gone__one")
            assert [tool.name async for tool in group.tools()] == ["good__one"]
            assert list(group.failures) == ["gone"]
            assert await text_of(group, "good__one") == "g one"
        nursery.cancel_scope.cancel()


class Slow:
    """Lines whose servers answer the opening after a while, and a record of what closes when."""

    def __init__(self):
        self.closed = []

    @contextlib.asynccontextmanager
    async def line(self, name, seconds):
        ours, theirs = MemoryTransport.pair()
        script = Script(ScriptedPeer(theirs), {})
        record = self.closed

        class Line(FaultyTransport):
            async def aclose(self):
                if name not in record:
                    record.append(name)
                await super().aclose()

        async def serve():
            await trio.sleep(seconds)
            await script.run()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            yield Line(ours)
            nursery.cancel_scope.cancel()
        await theirs.aclose()


async def test_all_are_connected_at_the_same_time_and_closed_one_by_one(autojump_clock):
    slow = Slow()
    async with slow.line("a", 5) as a, slow.line("b", 3) as b, slow.line("c", 4) as c:
        began = trio.current_time()
        async with ClientGroup({"a": a, "b": b, "c": c}) as group:
            assert trio.current_time() - began == pytest.approx(5)
            assert list(group.clients) == ["a", "b", "c"]
        assert slow.closed == ["c", "b", "a"]


async def test_a_group_is_entered_once_and_its_failures_come_out_plainly():
    group = ClientGroup({"a": make_server("a", "one")})
    with pytest.raises(KeyError, match="mine"):
        async with group:
            raise KeyError("mine")
    with pytest.raises(AlreadyConnectedError):
        await group.__aenter__()
    async with ClientGroup({}) as group:
        assert [tool async for tool in group.tools()] == []


async def test_a_client_of_ones_own_keeps_its_options():
    client = MCPClient(make_server("a", "one"))
    async with ClientGroup({"a": client}) as group:
        assert group.clients["a"] is client
        assert [tool.name async for tool in group.tools(cache=False)] == ["a__one"]


@pytest.mark.parametrize("step", range(1, 60))
async def test_it_can_be_cancelled_at_any_step(step):
    servers = {
        "a": make_server("a", "one"),
        "bad": Unreachable.make(),
        "b": make_server("b", "one"),
    }
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def use():
                async with ClientGroup(servers) as group:
                    assert [tool.name async for tool in group.tools()] == ["a__one", "b__one"]
                    await group.call_tool("b__one")

            nursery.start_soon(use)
            for _ in range(step):
                await trio.lowlevel.checkpoint()
            scope.cancel()
