"""Several servers as one: names, failures, order, and leaving at any time."""

import contextlib
import sys

import pytest
import trio
import trio.testing

from mcp_trio import ClientGroup, ClientOptions, Command, MCPClient, MCPServer
from mcp_trio.errors import (
    AlreadyConnectedError,
    ConfigurationError,
    MCPError,
    NotFoundError,
    RequestTimeoutError,
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


FRAGILE = """
import os, mcp_trio

server = mcp_trio.MCPServer("fragile")

@server.tool
async def crash() -> None:
    os._exit(3)

@server.tool
async def name() -> str:
    return "fragile"

server.run()
"""


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
            with pytest.raises(TransportError) as caught:
                await group.call_tool("gone__one")
            assert group.failures == {"gone": caught.value}
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


async def test_a_server_that_can_be_asked_again_has_not_failed(tmp_path):
    program = tmp_path / "server.py"
    program.write_text(FRAGILE)
    command = Command([sys.executable, program], stderr="drop", restarts=1)
    async with ClientGroup({"a": command}) as group:
        with pytest.raises(TransportError):
            await group.call_tool("a__crash")
        assert list(group.failures) == ["a"]
        assert await text_of(group, "a__name") == "fragile"
        assert group.failures == {}


async def test_one_that_says_nothing_while_connecting_is_not_waited_for_for_ever(autojump_clock):
    ours, theirs = MemoryTransport.pair()
    mute = MCPClient(ours, options=ClientOptions(probe_timeout=3))
    began = trio.current_time()
    async with ClientGroup({"mute": mute, "good": make_server("g", "one")}) as group:
        assert trio.current_time() - began == pytest.approx(6)
        assert list(group.clients) == ["good"]
        assert isinstance(group.failures["mute"], RequestTimeoutError)
        assert await text_of(group, "good__one") == "g one"
    await theirs.aclose()


async def test_one_that_cannot_be_closed_does_not_keep_the_others(autojump_clock):
    slow = Slow()
    async with slow.line("a", 0) as a, slow.line("b", 0) as b:

        class Stuck(FaultyTransport):
            async def aclose(self):
                await trio.sleep_forever()

        began = trio.current_time()
        async with ClientGroup({"a": a, "stuck": Stuck(b)}):
            pass
        assert slow.closed == ["a"]
        assert trio.current_time() - began <= 10


async def test_a_hundred_servers_are_one_group():
    servers = {f"s{number}_": make_server(f"{number}", "one") for number in range(100)}
    async with ClientGroup(servers) as group:
        assert group.failures == {}
        assert [tool.name async for tool in group.tools()] == [f"{name}__one" for name in servers]
        assert await text_of(group, "s42___one") == "42 one"


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
