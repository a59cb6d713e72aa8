"""What a client of the server sees of a catalog that changes: lists, notices, cursors, calls."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcp_trio import ClientOptions, MCPClient, MCPServer, RemoteError, ServerOptions
from mcp_trio.catalog.actor import CatalogActor
from mcp_trio.engine.envelope import Principal
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.pipeline import CompiledOperation
from mcp_trio.transports.memory import MemoryTransport
from mcp_trio.wire import REVISIONS


@attrs.frozen(eq=False)
class GatedEntry:
    """An operation whose calls wait at a gate before they do what they do."""

    inner: CompiledOperation
    gate: trio.Event | None

    @property
    def definition(self):
        return self.inner.definition

    @property
    def authorize(self):
        return self.inner.authorize

    async def call(self, context, arguments):
        if self.gate is not None:
            await self.gate.wait()
        return await self.inner.call(context, arguments)


class Gated:
    """The compiler that a service has, with a gate in front of each operation."""

    def __init__(self, gate):
        self.compiler = Compiler(Connections())
        self.gate = gate

    def compile(self, operation):
        return GatedEntry(self.compiler.compile(operation), self.gate)


@attrs.frozen
class World:
    """A server with a catalog, and a client that keeps nothing."""

    server: MCPServer
    actor: CatalogActor
    client: MCPClient

    async def page(self, cursor=None):
        params = None if cursor is None else {"cursor": cursor}
        return await self.client.call("tools/list", params, cache=False)

    async def names(self):
        page = await self.page()
        return [tool["name"] for tool in page["tools"]]


@pytest.fixture
def world():
    """Serve a registry to one client, from the end of the first look on."""

    @asynccontextmanager
    async def serve(
        registry, *, gate=None, revision=REVISIONS[0], page_size=200, principal=None, **options
    ):
        actor = CatalogActor(registry, Gated(gate), chance=lambda: 0.5, **options)
        server = MCPServer("world", options=ServerOptions(page_size=page_size))
        server.add_provider(actor)
        async with trio.open_nursery() as nursery:
            await nursery.start(actor.run)
            await wait_all_tasks_blocked()
            ours, theirs = MemoryTransport.pair()
            nursery.start_soon(partial(server.serve, ours, principal=principal))
            async with MCPClient(theirs, options=ClientOptions(revisions=(revision,))) as client:
                yield World(server, actor, client)
            nursery.cancel_scope.cancel()

    return serve


def says(value):
    return {"output_mapping": {"result": {"said": value}}}


async def said(client, name):
    return (await client.call_tool(name)).structured_content["said"]


@pytest.mark.parametrize("revision", REVISIONS, ids=str)
async def test_one_notice_for_each_swap_that_a_client_can_see(
    world, registry, view, revision, autojump_clock
):
    source = registry(view("a"), view("b"), view("c"))
    async with world(source, revision=revision) as it, trio.open_nursery() as nursery:
        heard = []

        async def hear(*, task_status):
            async with it.client.listen() as changes:
                task_status.started()
                async for change in changes:
                    heard.append(change)  # noqa: PERF401 - it never ends

        await nursery.start(hear)
        for change, seen in (
            (lambda: source.put(view("d"), view("e"), view("a", tool_description="New.")), 1),
            (lambda: source.put(view("b", **says("other"))), 0),
            (lambda: source.put(view("b", name="renamed")), 1),
            (lambda: source.put(view("c", ui="none of its keys")), 0),
            (lambda: source.drop("d"), 1),
            (source.touch, 0),
        ):
            del heard[:]
            change()
            await trio.sleep(90)
            assert heard == ["notifications/tools/list_changed"] * seen
        assert await it.names() == ["a", "c", "e", "renamed"]
        nursery.cancel_scope.cancel()


async def test_a_walk_over_the_pages_survives_two_swaps_and_not_three(
    world, registry, view, autojump_clock
):
    source = registry(*(view(f"op{i}") for i in range(4)))
    async with world(source, page_size=2) as it:
        first = await it.page()
        cursor = first["nextCursor"]
        for turn in (1, 2):
            # New ones come before, between and after, and one of the second page goes.
            source.put(view(f"a{turn}"), view(f"op1{turn}"), view(f"z{turn}"))
            source.drop(f"op{turn + 1}")
            await trio.sleep(31)
            rest = await it.page(cursor)
            assert [tool["name"] for tool in rest["tools"]] == ["op2", "op3"]
            assert "nextCursor" not in rest
        source.put(view("a3"))
        await trio.sleep(31)
        with pytest.raises(RemoteError, match="the list has changed, start again") as told:
            await it.page(cursor)
        assert told.value.rpc_code == -32602
        assert [tool.name async for tool in it.client.tools()] == sorted(it.actor.tools.entries)


@pytest.mark.parametrize("spoilt", ["x", "", "AAAA", "cursor"])
async def test_a_made_up_cursor_is_refused(world, registry, view, spoilt, autojump_clock):
    async with world(registry(view("a"), view("b")), page_size=1) as it:
        cursor = (await it.page())["nextCursor"]
        if spoilt == "cursor":
            spoilt = cursor[:-2] + ("AA" if cursor[-2:] != "AA" else "BB")
        with pytest.raises(RemoteError) as told:
            await it.page(spoilt)
        assert told.value.rpc_code == -32602


async def test_calls_that_run_keep_the_version_they_began_with(
    world, registry, view, autojump_clock
):
    gate = trio.Event()
    source = registry(view("a", **says("old")), view("b"), view("c"))
    async with world(source, gate=gate) as it:
        answers = []

        async def call():
            answers.append(await said(it.client, "a"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await wait_all_tasks_blocked()
            source.put(view("a", **says("new")))
            await it.actor.refresh()
            nursery.start_soon(call)
            await wait_all_tasks_blocked()
            source.drop("a")
            await it.actor.refresh()
            assert await it.names() == ["b", "c"]
            gate.set()
        assert sorted(answers) == ["new", "old"]
        with pytest.raises(RemoteError, match="Unknown tool: a"):
            await it.client.call_tool("a")


async def test_the_announced_freshness_is_the_time_to_the_next_look(
    world, registry, view, missing, autojump_clock
):
    source = registry(view("a"))
    async with world(source) as it:
        assert (await it.page())["ttlMs"] == pytest.approx(30_000, abs=1)
        await trio.sleep(12)
        assert (await it.page())["ttlMs"] == pytest.approx(18_000, abs=1)
        source.trouble = missing
        await trio.sleep(19)
        assert (await it.page())["ttlMs"] == 0
        source.trouble = None
        await it.actor.refresh()
        assert (await it.page())["ttlMs"] == pytest.approx(30_000, abs=1)


async def test_listing_a_stale_catalog_looks_first_and_waits_a_bounded_time(
    world, registry, view, autojump_clock
):
    source = registry(view("a"))
    async with world(source, stale_after=5) as it:
        source.put(view("b"))
        await trio.sleep(4)
        assert await it.names() == ["a"]
        await trio.sleep(2)
        assert await it.names() == ["a", "b"]
        source.gate = trio.Event()
        source.put(view("c"))
        await trio.sleep(6)
        begun = trio.current_time()
        assert await it.names() == ["a", "b"]
        assert trio.current_time() - begun == pytest.approx(1.0)
        source.gate.set()
        await wait_all_tasks_blocked()
        assert await it.names() == ["a", "b", "c"]


async def test_a_broken_version_changes_nothing_that_a_client_sees(
    world, registry, view, autojump_clock
):
    source = registry(view("a", **says("good")), view("b"))
    async with world(source) as it:
        before = await it.page()
        source.put(view("a", protocol="graphql"))
        await it.actor.refresh()
        assert (await it.page())["tools"] == before["tools"]
        assert await said(it.client, "a") == "good"
        source.put(view("a", **says("mended")))
        await it.actor.refresh()
        assert await said(it.client, "a") == "mended"


async def test_a_name_stays_with_its_owner_and_two_new_claims_get_nothing(
    world, registry, view, autojump_clock
):
    source = registry(view("owner", name="taken", **says("owner")))
    async with world(source) as it:
        source.put(
            view("thief", name="taken", **says("thief")),
            view("one", name="fresh", **says("one")),
            view("two", name="fresh", **says("two")),
        )
        await it.actor.refresh()
        assert await it.names() == ["taken"]
        assert await said(it.client, "taken") == "owner"
        told = {q.operation_id: q.reason for q in it.actor.status().quarantine}
        assert told.keys() == {"owner", "thief", "one", "two"}
        source.drop("owner", "one")
        await it.actor.refresh()
        await it.actor.refresh()  # half is gone, so it was said twice
        assert await said(it.client, "taken") == "thief"
        assert await said(it.client, "fresh") == "two"
        assert it.actor.status().quarantine == ()


async def test_a_tool_that_comes_to_need_a_scope_is_hidden_at_the_next_look(
    world, registry, view, autojump_clock
):
    source = registry(view("a"), view("b"))
    someone = Principal(subject="someone", scopes=frozenset({"read"}))
    async with world(source, principal=someone) as it:
        assert await it.names() == ["a", "b"]
        revision = it.actor.tools.revision
        source.put(view("b", execution_config={"required_scopes": ["admin"]}))
        await it.actor.refresh()
        # Nothing of its definition has changed, and still the list is another one for some.
        assert it.actor.tools.revision != revision
        page = await it.page()
        assert [tool["name"] for tool in page["tools"]] == ["a"]
        assert page["cacheScope"] == "private"
        source.put(view("b", execution_config={"required_scopes": ["read"]}))
        await it.actor.refresh()
        assert await it.names() == ["a", "b"]
        source.put(view("b"))
        await it.actor.refresh()
        assert (await it.page())["cacheScope"] == "public"
