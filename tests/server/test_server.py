"""`MCPServer`: registration, providers, listings that change, and calls that keep their entry."""

import attrs
import pytest
import trio
import trio.testing

from mcp_trio import Context, MCPClient, MCPServer, ServerOptions
from mcp_trio.errors import (
    ConfigurationError,
    DuplicateRegistrationError,
    MCPError,
    NotFoundError,
)
from mcp_trio.server.providers import ToolSet
from mcp_trio.server.signature import SignatureError
from mcp_trio.wire import CallToolResult, TextContent, Tool


@attrs.frozen
class Entry:
    definition: Tool
    says: str
    wait: trio.Event | None = None
    authorize = None

    async def call(self, context, arguments):
        if self.wait is not None:
            await self.wait.wait()
        return CallToolResult(content=[TextContent(text=self.says)])


class Provider:
    """A provider in the hands of a test."""

    ttl = 5.0

    def __init__(self, *entries):
        self.host = None
        self.freshened = 0
        self.swap("0", *entries)

    def swap(self, revision, *entries):
        self.tools = ToolSet(
            revision=revision, entries={entry.definition.name: entry for entry in entries}
        )
        if self.host is not None:
            self.host.changed()

    def bind(self, host):
        self.host = host

    async def freshen(self):
        self.freshened += 1
        await trio.lowlevel.checkpoint()


def entry(name, says="x", wait=None):
    return Entry(Tool(name=name, input_schema={"type": "object"}), says, wait)


async def names(client):
    return [tool.name async for tool in client.tools(cache=False)]


async def test_the_decorator_works_both_ways_and_leaves_the_function_alone():
    server = MCPServer("s")

    @server.tool
    def one() -> str:
        """First."""
        return "1"

    @server.tool(name="second", title="Two")
    def two(ctx: Context) -> str:
        return "2"

    assert one() == "1"
    async with MCPClient(server) as client:
        tools = {tool.name: tool async for tool in client.tools()}
        assert tools["one"].description == "First."
        assert tools["second"].title == "Two"
        assert tools["second"].input_schema["properties"] == {}
        assert (await client.call_tool("second")).content[0].text == "2"


async def test_code_and_catalog_are_one_list_code_first():
    server = MCPServer("s")
    provider = Provider(entry("b"), entry("a"))
    server.add_provider(provider)
    server.add_tool(lambda: None, name="z")
    async with MCPClient(server) as client:
        assert await names(client) == ["z", "b", "a"]
        assert provider.freshened == 1
        assert (await client.list_tools()).ttl_ms == 5000


async def test_a_name_is_registered_once_whoever_has_it():
    server = MCPServer("s")
    provider = Provider(entry("taken"))
    server.add_provider(provider)
    server.add_tool(lambda: None, name="mine")
    for name in ("taken", "mine"):
        with pytest.raises(DuplicateRegistrationError) as caught:
            server.add_tool(lambda: None, name=name)
        assert caught.value.code == "MCP.DUPLICATE_REGISTRATION"
    assert provider.host.owns("mine")
    assert not provider.host.owns("taken")
    async with MCPClient(server) as client:
        assert await names(client) == ["mine", "taken"]


async def test_a_provider_that_claims_a_name_of_the_code_does_not_get_it():
    server = MCPServer("s")
    server.add_entry(entry("name", "code"))
    server.add_provider(Provider(entry("name", "provider")))
    async with MCPClient(server) as client:
        assert await names(client) == ["name"]
        assert (await client.call_tool("name")).content[0].text == "code"


async def test_a_swap_is_one_change_and_an_unchanged_list_is_none():
    server = MCPServer("s")
    provider = Provider(entry("a"))
    server.add_provider(provider)
    async with MCPClient(server) as client, client.listen() as changes:
        provider.swap("1", entry("a"), entry("b"))
        assert await anext(changes) == "notifications/tools/list_changed"
        provider.swap("1", entry("a"), entry("b"))
        await trio.testing.wait_all_tasks_blocked()
        assert changes._mailbox.take() is None


async def test_a_change_that_is_not_listed_is_called_all_the_same():
    server = MCPServer("s")
    provider = Provider(entry("a", "old"))
    server.add_provider(provider)
    async with MCPClient(server) as client:
        assert (await client.call_tool("a")).content[0].text == "old"
        provider.swap("0", entry("a", "new"))
        assert (await client.call_tool("a")).content[0].text == "new"


async def test_a_call_keeps_the_entry_it_began_with():
    server = MCPServer("s")
    release = trio.Event()
    provider = Provider(entry("a", "old", release))
    server.add_provider(provider)
    async with MCPClient(server) as client, trio.open_nursery() as nursery:
        said = []

        async def call():
            said.append((await client.call_tool("a")).content[0].text)

        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        provider.swap("1", entry("a", "new"))
        release.set()
        await trio.testing.wait_all_tasks_blocked()
        assert said == ["old"]
        assert (await client.call_tool("a")).content[0].text == "new"


async def test_removing_a_tool():
    server = MCPServer("s")
    server.add_tool(lambda: None, name="a")
    server.remove_tool("a")
    with pytest.raises(NotFoundError):
        server.remove_tool("a")
    async with MCPClient(server) as client:
        with pytest.raises(MCPError, match="Method not found"):
            await client.list_tools()
        assert client.capabilities.tools is None


async def test_a_list_walked_while_it_changes_is_the_list_it_began_with():
    server = MCPServer("s", options=ServerOptions(page_size=3))
    provider = Provider(*(entry(f"t{number}") for number in range(10)))
    server.add_provider(provider)
    async with MCPClient(server) as client:
        seen = []
        async for tool in client.tools():
            seen.append(tool.name)
            if len(seen) == 4:
                provider.swap("1", entry("other"))
        assert seen == [f"t{number}" for number in range(10)]
        assert await names(client) == ["other"]


@pytest.mark.parametrize("name", ["", "a b", "é", "x" * 129, "a/b"])
async def test_a_name_no_tool_may_have_is_refused(name):
    with pytest.raises(SignatureError):
        MCPServer("s").add_entry(entry("ok")) or MCPServer("s").add_tool(lambda: 1, name=name)


async def test_a_function_without_a_name_needs_one():
    with pytest.raises(SignatureError, match="name="):
        MCPServer("s").add_tool(lambda: 1)


def test_an_unknown_transport_is_refused():
    with pytest.raises(ConfigurationError, match="carrier pigeon"):
        MCPServer("s").run("carrier pigeon")


async def test_many_clients_of_one_server():
    server = MCPServer("s")
    server.add_tool(lambda: "x", name="a")
    async with trio.open_nursery() as nursery:

        async def use():
            async with MCPClient(server) as client:
                assert await names(client) == ["a"]

        for _ in range(20):
            nursery.start_soon(use)


async def test_serving_over_http_gives_urls_and_drains():
    server = MCPServer("s")
    server.add_tool(lambda: "x", name="a")
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(server.serve_http, "127.0.0.1", 0)
        assert urls[0].startswith("http://127.0.0.1:")
        assert urls[0].endswith("/mcp")
        async with MCPClient(urls[0]) as client:
            assert await names(client) == ["a"]
        server.drain()
        server.drain()


async def test_a_listener_gets_its_result_when_the_server_drains():
    server = MCPServer("s")
    server.add_tool(lambda: "x", name="a")
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(server.serve_http, "127.0.0.1", 0)
        async with MCPClient(url) as client, client.listen() as changes:
            server.drain()
            with trio.fail_after(10):
                assert [change async for change in changes] == []


async def test_a_server_told_to_drain_before_it_is_served_returns_at_once():
    server = MCPServer("test")
    server.drain()
    with trio.fail_after(5):
        await server.serve_http("127.0.0.1", 0)


async def test_an_address_that_is_taken_is_one_plain_error_that_names_it():
    first, second = MCPServer("s"), MCPServer("s")
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(first.serve_http, "127.0.0.1", 0)
        port = int(url.split(":")[2].split("/")[0])
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1 port {port}"):
            await second.serve_http("127.0.0.1", port)
        with pytest.raises(OSError, match="cannot listen"):
            await nursery.start(second.serve_http, "127.0.0.1", port)
        first.drain()
