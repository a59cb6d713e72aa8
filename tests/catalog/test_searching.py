"""Three tools in place of many, and parts of a catalog, as clients see them."""

import json
import threading
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import httpx2
import pytest
import trio

import mcp_trio
from mcp_trio.catalog.actor import CatalogActor
from mcp_trio.catalog.searching import CANDIDATES, SearchableTools
from mcp_trio.catalog.tool_index import ToolIndex
from mcp_trio.catalog.toolsets import Choice, Fan
from mcp_trio.engine.envelope import Principal
from mcp_trio.errors import RemoteError
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.server.providers import ToolSet
from mcp_trio.session.middleware import RequiresScopes
from mcp_trio.transports.memory import MemoryTransport
from mcp_trio.transports.streamable_http import StreamableHTTPTransport
from mcp_trio.wire import Tool

ADMIN = Principal(subject="ann", scopes=frozenset({"admin"}))


def operation(view, name, text, *, scopes=(), tags=(), **changes):
    return view(
        operation_id=name,
        name=name,
        input_schema={
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "additionalProperties": False,
        },
        output_mapping={"result": {"name": name, "city": "=args.city"}},
        execution_config={"required_scopes": list(scopes)},
        tool_description={"text": text, "tags": list(tags)},
        **changes,
    )


@pytest.fixture
def views(view):
    return [
        operation(view, "weather_forecast", "How warm it will be.", tags=["weather"]),
        operation(view, "getCurrentWeather", "What the weather is now.", tags=["weather", "now"]),
        operation(view, "invoice_create", "Write an invoice."),
        operation(view, "invoice_delete", "Delete an invoice.", scopes=["admin"]),
        operation(view, "river_levels", "Levels of rivers; forecasts of floods."),
    ]


class World:
    """A registry with an actor, and servers that offer what it has."""

    def __init__(self, rows, nursery):
        self.rows = rows
        self.actor = rows.actor
        self._nursery = nursery
        self.server = mcp_trio.MCPServer("large")

    async def start(self):
        self._nursery.start_soon(self.actor.run)
        await self.actor.ready.wait()

    def connect(self, principal=None, *, server=None, heard=None):
        ours, theirs = MemoryTransport.pair()
        serve = (server or self.server).serve
        self._nursery.start_soon(lambda: serve(theirs, principal=principal))
        callbacks = None
        if heard is not None:
            callbacks = mcp_trio.ClientCallbacks(list_changed=heard.append)
        return mcp_trio.MCPClient(ours, callbacks=callbacks)


@pytest.fixture
def world(registry, views):
    @asynccontextmanager
    async def make(above=None, **options):
        rows = registry(*views)
        rows.actor = CatalogActor(rows, Compiler(Connections()), interval=3600)
        async with trio.open_nursery() as nursery:
            made = World(rows, nursery)
            if above is not None:
                made.server.add_provider(SearchableTools(rows.actor, above=above, **options))
                await made.start()
            yield made
            nursery.cancel_scope.cancel()

    return make


async def names(client):
    return [tool.name async for tool in client.tools()]


async def call(client, tool, **arguments):
    return await client.call_tool(tool, arguments)


async def test_a_long_list_is_three_tools_and_the_others_are_found_and_called(world):
    async with world(3) as here:
        async with here.connect(ADMIN) as client:
            assert await names(client) == ["search_tools", "describe_tool", "call_tool"]
            found = await call(client, "search_tools", query="weather forecast")
            listed = [each["name"] for each in found.structured_content["tools"]]
            assert listed[0] == "weather_forecast"
            assert set(listed) == {"weather_forecast", "getCurrentWeather", "river_levels"}
            assert "How warm it will be." in found.content[0].text
            told = await call(client, "describe_tool", name="weather_forecast")
            schema = told.structured_content["inputSchema"]
            assert schema["properties"] == {"city": {"type": "string"}}
            result = await call(
                client, "call_tool", name="weather_forecast", arguments={"city": "Rome"}
            )
            assert result.structured_content == {"name": "weather_forecast", "city": "Rome"}


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("current", "getCurrentWeather"),
        ("CREATE invoices", "invoice_create"),
        ("getCurrentWeather", "getCurrentWeather"),
        ("flood", "river_levels"),
        ('"; DROP TABLE tools; --', None),
        ("NEAR(x y) AND NOT * ^ - :", None),
        ("?!", None),
    ],
)
async def test_words_find_what_they_mean_and_are_never_operators(world, query, first):
    async with world(3) as here:
        async with here.connect() as client:
            result = await call(client, "search_tools", query=query)
            tools = result.structured_content["tools"]
            assert result.is_error is None
            assert (tools[0]["name"] if tools else None) == first


async def test_limits_and_tags(world):
    async with world(3) as here:
        async with here.connect() as client:
            one = await call(client, "search_tools", query="weather", limit=1)
            assert len(one.structured_content["tools"]) == 1
            tagged = await call(client, "search_tools", query="weather", tags=["now", "weather"])
            assert [t["name"] for t in tagged.structured_content["tools"]] == ["getCurrentWeather"]
            for wrong in ({"limit": 0}, {"limit": 51}, {"what": 1}, {"query": ""}):
                assert (await client.call_tool("search_tools", {"query": "x", **wrong})).is_error


async def test_what_a_caller_may_not_call_is_not_found_and_refused_as_ever(world):
    async with world(3) as here:
        async with here.connect() as client:
            found = await call(client, "search_tools", query="invoice")
            assert [t["name"] for t in found.structured_content["tools"]] == ["invoice_create"]
            hidden = await call(client, "describe_tool", name="invoice_delete")
            unknown = await call(client, "describe_tool", name="no_such_tool")
            assert hidden.is_error
            assert hidden.content == unknown.content
            with pytest.raises(RemoteError) as caught:
                await call(client, "call_tool", name="invoice_delete")
            assert caught.value.data["requiredScopes"] == ["admin"]


async def test_what_takes_more_scopes_may_be_found_by_who_can_get_them(world):
    async with world(3, list_beyond_scopes=True) as here:
        async with here.connect() as client:
            found = await call(client, "search_tools", query="invoice")
            listed = {t["name"] for t in found.structured_content["tools"]}
            assert listed == {"invoice_create", "invoice_delete"}
            described = await call(client, "describe_tool", name="invoice_delete")
            assert not described.is_error
            with pytest.raises(RemoteError) as caught:
                await call(client, "call_tool", name="invoice_delete")
            assert caught.value.data["requiredScopes"] == ["admin"]
        async with here.connect(ADMIN) as client:
            found = await call(client, "search_tools", query="invoice")
            assert len(found.structured_content["tools"]) == 2
            assert (await call(client, "call_tool", name="invoice_delete")).is_error is None


async def test_what_is_hidden_does_not_stand_in_the_way_of_what_is_not(world, views, view):
    views[:] = [
        operation(view, f"wombat_{n}", "wombat wombat wombat", scopes=["admin"])
        for n in range(CANDIDATES + 100)
    ]
    views.append(operation(view, "shown", "One word of many is wombat here.", tags=["a"]))
    async with world(0) as here:
        async with here.connect() as client:
            found = await call(client, "search_tools", query="wombat")
            assert [t["name"] for t in found.structured_content["tools"]] == ["shown"]
        async with here.connect(ADMIN) as client:
            found = await call(client, "search_tools", query="wombat", tags=["a"])
            assert [t["name"] for t in found.structured_content["tools"]] == ["shown"]
            found = await call(client, "search_tools", query="wombat", limit=50)
            assert len(found.structured_content["tools"]) == 50


async def test_the_rules_of_the_server_hold_for_what_is_called_through_it(world):
    async with world(3) as here:

        @here.server.authorize("tools/call")
        def no_invoices(context):
            return not context.target.startswith("invoice")

        async with here.connect(ADMIN) as client:
            found = await call(client, "search_tools", query="invoice")
            assert found.structured_content["tools"] == []
            with pytest.raises(RemoteError):
                await call(client, "call_tool", name="invoice_create")
            assert (await call(client, "call_tool", name="river_levels")).is_error is None


async def test_arguments_are_judged_by_the_tool_itself(world):
    async with world(3) as here:
        async with here.connect() as client:
            result = await call(client, "call_tool", name="river_levels", arguments={"town": "x"})
            assert result.is_error
            assert "schema_validation" in result.content[0].text
            for wrong in ({}, {"name": 1}, {"name": "river_levels", "arguments": []}):
                assert (await client.call_tool("call_tool", wrong)).is_error
            assert (await call(client, "call_tool", name="call_tool")).is_error


async def test_a_change_is_found_at_once_and_told_only_if_the_list_changes(world, view):
    async with world(3) as here:
        heard = []
        async with here.connect(heard=heard) as client:
            await trio.testing.wait_all_tasks_blocked()
            here.rows.put(operation(view, "tide_table", "When the tide is high."))
            here.rows.drop("river_levels")
            await here.actor.refresh()
            found = await call(client, "search_tools", query="tide")
            assert [t["name"] for t in found.structured_content["tools"]] == ["tide_table"]
            gone = await call(client, "search_tools", query="floods")
            assert gone.structured_content["tools"] == []
            await trio.testing.wait_all_tasks_blocked()
            assert heard == []
            here.rows.drop("tide_table", "invoice_delete")
            await here.actor.refresh()
            await trio.testing.wait_all_tasks_blocked()
            assert heard == ["tools"]
            left = ["getCurrentWeather", "invoice_create", "weather_forecast"]
            assert await names(client) == left


async def test_the_names_of_the_three_are_taken(world, view):
    async with world(3) as here:
        here.rows.put(operation(view, "call_tool", "Mine."))
        status = await here.actor.refresh()
        assert [each.name for each in status.quarantine] == ["call_tool"]


async def test_cancelling_a_call_through_it_cancels_the_tool():
    server, began, ended = mcp_trio.MCPServer("x"), trio.Event(), trio.Event()

    class Entry:
        definition = Tool(name="slow", input_schema={"type": "object"})
        authorize = None

        async def call(self, context, arguments):
            began.set()
            try:
                await trio.sleep_forever()
            finally:
                ended.set()

    class Provider:
        tools = ToolSet(revision="1", entries={"slow": Entry()})
        ttl = 1.0

        def bind(self, host):
            pass

        async def freshen(self):
            await trio.lowlevel.checkpoint()

    server.add_provider(SearchableTools(Provider(), above=0))
    async with mcp_trio.MCPClient(server) as client:
        async with trio.open_nursery() as inner:
            inner.start_soon(partial(call, client, "call_tool", name="slow"))
            await began.wait()
            inner.cancel_scope.cancel()
        with trio.fail_after(5):
            await ended.wait()


async def test_a_search_that_is_cancelled_does_not_wait_for_the_index(monkeypatch):
    begun, go_on, find, looking = trio.Event(), threading.Event(), ToolIndex.find, []

    def slow(index, question, most):
        assert looking == []  # one at a time
        looking.append(question)
        if question == "slow":
            trio.from_thread.run_sync(begun.set)
            go_on.wait(10)
        looking.remove(question)
        return find(index, question, most)

    monkeypatch.setattr(ToolIndex, "find", slow)

    class Entry:
        definition = Tool(name="fast", input_schema={"type": "object"})
        authorize = None

    class Provider:
        tools = ToolSet(revision="1", entries={"fast": Entry()})

    search = SearchableTools(Provider(), above=0).tools.entries["search_tools"].call
    try:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(search, None, {"query": "slow"})
                await begun.wait()
                nursery.cancel_scope.cancel()
            assert looking == ["slow"]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(search, None, {"query": "waits"})
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            assert looking == ["slow"]
            go_on.set()
            found = await search(None, {"query": "fast"})
            assert found.structured_content == {"tools": [{"name": "fast"}]}
    finally:
        go_on.set()


def test_the_index_holds_what_is_there_and_no_more(view):
    class Entry:
        def __init__(self, name, text):
            self.definition = Tool(name=name, description=text, input_schema={"type": "object"})

    index = ToolIndex()
    many = {f"tool_{n}": Entry(f"tool_{n}", f"number {n}") for n in range(2000)}
    index.update(many)
    assert index.find("number 1234", 1) == ["tool_1234"]
    index.update({"tool_5": Entry("tool_5", "changed"), "tool_6": many["tool_6"]})
    assert len(index) == 2
    assert index.find("number", 10) == ["tool_6"]
    assert index.find("changed", 10) == ["tool_5"]
    index.update({})
    assert index.find("changed", 10) == []


# -- parts -----------------------------------------------------------------------------


async def test_each_server_has_its_part_and_hears_of_its_changes_only(world, view):
    async with world() as here:
        fan = Fan(here.actor)
        servers, heard = {}, {"weather": [], "money": []}
        rules = {
            "weather": Choice(tags=frozenset({"weather"})),
            "money": Choice(names=("invoice_*",)),
        }
        for name, rule in rules.items():
            servers[name] = mcp_trio.MCPServer(name)
            servers[name].add_provider(fan.part(rule))
        await here.start()

        def client_of(name):
            return here.connect(server=servers[name], heard=heard[name])

        async with client_of("weather") as weather, client_of("money") as money:
            assert await names(weather) == ["getCurrentWeather", "weather_forecast"]
            assert await names(money) == ["invoice_create"]
            with pytest.raises(RemoteError, match="Unknown tool"):
                await call(weather, "invoice_create")
            await trio.testing.wait_all_tasks_blocked()
            here.rows.put(operation(view, "invoice_list", "All invoices."))
            await here.actor.refresh()
            await trio.testing.wait_all_tasks_blocked()
            assert heard == {"weather": [], "money": ["tools"]}
            assert await names(money) == ["invoice_create", "invoice_list"]


@pytest.mark.parametrize("above", [None, 0])
async def test_a_tag_moves_a_tool_to_another_part_and_the_rest_hears_nothing(world, view, above):
    async with world() as here:
        fan = Fan(here.actor)
        rules = {tag: Choice(tags=frozenset({tag})) for tag in ("weather", "water", "now")}
        rules["all"] = lambda _entry: True
        servers, told = {}, []
        async with AsyncExitStack() as stack:
            for name, rule in rules.items():
                part = fan.part(rule)
                servers[name] = mcp_trio.MCPServer(name)
                servers[name].add_provider(
                    part if above is None else SearchableTools(part, above=above)
                )
            await here.start()
            for name, server in servers.items():
                note = partial(lambda name, _notice: told.append(name), name)
                stack.enter_context(server.notices.listening(note))
            text = "How warm it will be."
            here.rows.put(operation(view, "weather_forecast", text, tags=["water"]))
            await here.actor.refresh()
        listed = {name: [*server.tools.listing.names] for name, server in servers.items()}
        if above is None:
            assert told == ["weather", "water"]
            assert listed["weather"] == ["getCurrentWeather"]
            assert listed["water"] == ["weather_forecast"]
        else:
            # The three were listed, and are; with nothing in it, a part lists nothing.
            assert told == ["water"]
            assert listed["water"] == ["search_tools", "describe_tool", "call_tool"]
        async with here.connect(server=servers["weather"]) as client:
            if above is None:
                with pytest.raises(RemoteError, match="Unknown tool"):
                    await call(client, "weather_forecast")
            else:
                answer = await call(client, "describe_tool", name="weather_forecast")
                assert answer.is_error
                found = await call(client, "search_tools", query="forecast warm")
                assert "weather_forecast" not in str(found.structured_content)


async def test_a_tool_of_one_server_takes_the_name_from_all(world, view):
    async with world() as here:
        fan = Fan(here.actor)
        one, two = mcp_trio.MCPServer("one"), mcp_trio.MCPServer("two")

        @two.tool
        async def river_levels() -> str:
            return "of the code"

        for server in (one, two):
            server.add_provider(fan.part(lambda _entry: True))
        await here.start()
        assert [each.name for each in here.actor.status().quarantine] == ["river_levels"]


def test_a_part_has_one_server(registry):
    part = Fan(CatalogActor(registry(), Compiler(Connections()))).part(lambda _entry: True)
    mcp_trio.MCPServer("one").add_provider(part)
    with pytest.raises(RuntimeError, match="belongs to a server"):
        mcp_trio.MCPServer("two").add_provider(part)


# -- on one port -----------------------------------------------------------------------


async def test_toolsets_are_served_by_path_and_may_want_scopes():
    whole, guarded = mcp_trio.MCPServer("whole"), mcp_trio.MCPServer("guarded")

    @whole.tool
    async def everything() -> str:
        return "all"

    @guarded.tool
    async def secret() -> str:
        return "some"

    guarded.add_authorizer(RequiresScopes({"admin"}))

    def identify(head):
        scopes = frozenset(head.headers.get("x-scopes", "").split())
        return Principal(subject="ann", scopes=scopes)

    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(
            lambda task_status: whole.serve_http(
                "127.0.0.1",
                0,
                options=mcp_trio.HTTPOptions(identify=identify),
                others={"/mcp/inner": guarded},
                task_status=task_status,
            )
        )
        for path in ("", "/"):
            async with mcp_trio.MCPClient(url + path) as client:
                assert await names(client) == ["everything"]
        with pytest.raises(mcp_trio.MCPError) as caught:
            async with mcp_trio.MCPClient(url + "/inner") as client:
                await names(client)
        assert caught.value.code == "MCP.UNAUTHORIZED"
        for revisions in (("2026-07-28",), ("2025-11-25",)):
            async with httpx2.AsyncClient(headers={"x-scopes": "admin"}, trust_env=False) as http:
                line = StreamableHTTPTransport(url + "/inner/", http)
                options = mcp_trio.ClientOptions(revisions=revisions)
                async with mcp_trio.MCPClient(line, options=options) as client:
                    assert await names(client) == ["secret"]
                    assert client.server_info.name == "guarded"
        async with httpx2.AsyncClient(trust_env=False) as http:
            assert (await http.get(url.removesuffix("/mcp") + "/healthz")).status_code == 200
            gone = await http.post(url + "/other", content=json.dumps({}))
            assert gone.status_code == 404
        whole.drain()
