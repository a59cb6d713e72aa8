"""The four listings: pages, walks, and entries that break the rules (K1; CASES 62 and 63)."""

import contextlib
import gc
import itertools

import pytest

from mcp_trio import ClientOptions, MCPClient, MCPError, MCPServer, ServerOptions
from mcp_trio.client.listings import MAX_IDLE
from mcp_trio.errors import ProtocolError
from mcp_trio.wire import REVISIONS
from tests.client.scripts import scripted

SCHEMA = {"type": "object"}
LISTS = {
    "tools/list": ("tools", {"name": "good", "inputSchema": SCHEMA}, {"name": "no schema"}),
    "prompts/list": ("prompts", {"name": "good"}, {"name": "bad", "arguments": "x"}),
    "resources/list": ("resources", {"name": "good", "uri": "a:b"}, {"uri": "a:nameless"}),
    "resources/templates/list": (
        "resourceTemplates",
        {"name": "good", "uriTemplate": "a:{b}"},
        {"name": "bad", "uriTemplate": 7},
    ),
}


def walks(client):
    return {
        "tools/list": client.tools,
        "prompts/list": client.prompts,
        "resources/list": client.resources,
        "resources/templates/list": client.resource_templates,
    }


def pages(client):
    return {
        "tools/list": client.list_tools,
        "prompts/list": client.list_prompts,
        "resources/list": client.list_resources,
        "resources/templates/list": client.list_resource_templates,
    }


each_list = pytest.mark.parametrize("method", LISTS)


@pytest.mark.parametrize("revision", REVISIONS, ids=str)
async def test_every_page_of_every_list_is_walked(revision):
    server = MCPServer("long", options=ServerOptions(page_size=2))
    for number in range(5):
        server.add_tool(lambda: "x", name=f"n{number}")
        server.add_prompt(lambda: "x", name=f"n{number}")
        server.add_resource(f"test://r{number}", lambda: "x", name=f"n{number}")
        server.add_resource(f"test://t{number}/{{a}}", lambda a: a, name=f"n{number}")
    async with MCPClient(server, options=ClientOptions(revisions=(revision,))) as client:
        for walk in walks(client).values():
            assert [item.name async for item in walk()] == [f"n{n}" for n in range(5)]
        for ask in pages(client).values():
            page = await ask()
            assert (await ask(page.next_cursor)).next_cursor is not None


@each_list
async def test_one_bad_entry_does_not_cost_the_others(method, caplog):
    key, good, bad = LISTS[method]
    body = {key: [bad, good, 7, good], "unknown": {"kept": 1}}
    async with scripted({method: body}) as (client, _):
        assert [item.name async for item in walks(client)[method]()] == ["good", "good"]
        assert (await pages(client)[method]()).extra == {"unknown": {"kept": 1}}
    assert caplog.text.count("is left out") == 4  # two of them, each time


@each_list
async def test_an_empty_cursor_is_a_cursor_and_a_circle_is_noticed(method):
    key = LISTS[method][0]
    following = {None: "", "": "next", "next": "next"}

    def page(request):
        cursor = request.params.get("cursor")
        return {key: [], "nextCursor": following[cursor]}

    async with scripted({method: page}) as (client, script):
        with pytest.raises(MCPError, match="circles"):
            async for _ in walks(client)[method]():
                raise AssertionError("there is nothing")
    cursors = [r.params.get("cursor") for r in script.asked if r.method == method]
    assert cursors == [None, "", "next"]


@each_list
async def test_a_walk_that_is_closed_early_leaves_nothing_behind(method):
    key, good, _ = LISTS[method]

    def page(request):
        return {key: [good], "nextCursor": "more"}

    async with scripted({method: page}) as (client, script):
        async with contextlib.aclosing(walks(client)[method]()) as walk:
            async for item in walk:
                assert item.name == "good"
                break
        gc.collect()  # what was left half done is an error of the test
        assert script.count(method) == 1


@each_list
async def test_pages_that_bring_nothing_come_to_an_end(method):
    key = LISTS[method][0]
    numbers = itertools.count()

    def page(request):
        return {key: [], "nextCursor": f"{next(numbers)}"}

    async with scripted({method: page}) as (client, _):
        with pytest.raises(ProtocolError, match="brought nothing"):
            async for _ in walks(client)[method]():
                raise AssertionError("there is nothing")
    assert next(numbers) == MAX_IDLE


@each_list
async def test_a_page_that_is_none_is_an_error(method):
    key = LISTS[method][0]
    for body in ({}, {key: {}}, {key: [], "nextCursor": 7}):
        async with scripted({method: body}) as (client, _):
            with pytest.raises(MCPError, match="result"):
                await pages(client)[method]()


async def test_a_tool_whose_header_is_impossible_is_left_out(caplog):
    bad = {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}
    tools = [{"name": "good", "inputSchema": SCHEMA}, {"name": "bad", "inputSchema": bad}]
    async with scripted({"tools/list": {"tools": tools}}) as (client, _):
        assert [tool.name async for tool in client.tools()] == ["good"]
    assert "'bad' is left out" in caplog.text
