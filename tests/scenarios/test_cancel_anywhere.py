"""Whatever is cancelled, after however many steps of its tasks, nothing is left of it.

Each test repeats its scenario with a growing number of steps until the scenario ends by itself.
"""

import collections
import contextlib
import functools
import logging
import os
import sys
from pathlib import Path

import pytest
import trio
import trio.testing
from attrs import evolve

from mcp_trio import (
    ClientCallbacks,
    ClientOptions,
    Command,
    Context,
    EraCache,
    MCPClient,
    MCPServer,
    MemoryTransport,
)
from mcp_trio.catalog.actor import CatalogActor
from mcp_trio.catalog.registries.schema import create_registry, publish
from mcp_trio.catalog.registries.sqlite import SqliteRegistry
from mcp_trio.cli.demo import CREATE_LEAD, GET_PROFILE, DemoUpstream
from mcp_trio.events import (
    ConnectionClosed,
    ConnectionOpened,
    RequestCompleted,
    RequestReceived,
)
from mcp_trio.http.serving import HTTPService
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.http_connection import HttpConnection
from mcp_trio.testing import cancelled_after
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28
from mcp_trio.wire.roots import Root
from tests.http.tools import make_server
from tests.scenarios.manifest import in_worlds
from tests.scenarios.test_connecting_http import FirstRevision
from tests.scenarios.test_walk import tasks_in, until_only
from tests.scenarios.worlds import WORLDS, world

PROGRAM = Path(__file__).with_name("program.py")
REVISIONS = pytest.mark.parametrize("revision", [R2026_07_28, R2025_11_25], ids=str)
WORLDS_HERE = [each for each in WORLDS if each[1] in {R2026_07_28, R2025_11_25}]


@pytest.fixture
def quiet(caplog):
    """Nothing may be logged as an error: a cancelled request is none."""
    yield
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []


async def use(client, server):
    """A bit of everything."""
    await client.list_tools()
    await client.call_tool("report", on_progress=lambda *_: None)
    async with trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(client.call_tool, "add", {"a": number, "b": 1})
            nursery.start_soon(client.call_tool, "in_thread")
    async with client.listen() as changes:
        server.remove_tool("add")
        async for _ in changes:
            break


def make():
    server, _ = make_server()
    server.add_tool(lambda: "done", name="in_thread")
    return server


STRIDES = {"memory": 1, "stdio": 7, "unix": 13, "websocket": 13, "sse": 31, "http": 23}
"""Steps between two cancellations: each step where a scenario is quick, fewer where it is not."""


@in_worlds(WORLDS_HERE)
@pytest.mark.usefixtures("quiet")
async def test_a_connection_with_all_that_goes_on_in_it(transport, revision, books_are_closed):
    async def scenario():
        server = make()
        async with world(server, transport, revision) as client:
            await use(client, server)

    step = 1
    while await cancelled_after(step, scenario):
        books_are_closed()
        step += STRIDES[transport]
    assert step > 50


@in_worlds(WORLDS_HERE)
@pytest.mark.usefixtures("quiet")
async def test_a_call_after_which_the_connection_is_as_good_as_before(transport, revision):
    async with world(make(), transport, revision) as client:
        for tool in ("report", "in_thread"):
            call = functools.partial(client.call_tool, tool, on_progress=lambda *_: None)
            step = 1
            while await cancelled_after(step, call):
                result = await client.call_tool("add", {"a": step, "b": 1})
                assert result.structured_content == {"result": step + 1}
                assert client.session.statistics().pending == 0
                step += 1
            assert step > 5


@pytest.mark.usefixtures("quiet")
async def test_a_catalog_with_its_refreshes_and_calls(tmp_path, books_are_closed):
    registry = tmp_path / "registry.sqlite"
    create_registry(registry)
    publish(registry, CREATE_LEAD, GET_PROFILE)
    async with trio.open_nursery() as upstream:
        (url,) = await upstream.start(HTTPService(DemoUpstream()).run, "127.0.0.1", 0)
        definition = HttpConnection(
            name="demo", base_url=url, vars={"tenant": "t"}, max_connections=1
        )

        async def scenario():
            connections = Connections([definition])
            actor = CatalogActor(SqliteRegistry(registry), Compiler(connections))
            server = MCPServer("test")
            server.add_provider(actor)
            async with connections, trio.open_nursery() as nursery:
                await nursery.start(actor.run)
                await actor.refresh()
                async with MCPClient(server) as client, trio.open_nursery() as calls:
                    calls.start_soon(actor.refresh)
                    calls.start_soon(client.list_tools)
                    for _ in range(2):
                        calls.start_soon(client.call_tool, "user_get_profile", {"user_id": "u-1"})
                nursery.cancel_scope.cancel()

        step = 1
        while await cancelled_after(step, scenario):
            books_are_closed()
            step += 3
        assert step > 50
        upstream.cancel_scope.cancel()


# -- connecting, to every kind of target -----------------------------------------------


@contextlib.asynccontextmanager
async def a_target(kind, server, tmp_path):
    """Serve, and give a function that makes targets, and one that waits until nothing is left."""
    async with trio.open_nursery() as serving:
        match kind:
            case "server":
                make = functools.partial(_same, server)
            case "transport":

                def make():
                    ours, theirs = MemoryTransport.pair()
                    serving.start_soon(server.serve, theirs)
                    return ours
            case "unix":
                make = functools.partial(
                    _same, await serving.start(server.serve_unix, f"{tmp_path}/socket")
                )
            case "tcp":
                (url,) = await serving.start(server.serve_tcp, "127.0.0.1", 0)
                make = functools.partial(_same, url)
            case "program" | "program that dies":
                ways = [] if kind == "program" else ["dies"]
                arguments = [sys.executable, "-I", "-S", PROGRAM, tmp_path / "journal", *ways]
                make = functools.partial(_same, Command(arguments, stderr="drop"))
            case "sse":
                (url,) = await serving.start(HTTPService(FirstRevision()).run, "127.0.0.1", 0)
                make = functools.partial(_same, f"{url}/mcp")
            case _:
                (url,) = await serving.start(server.serve_http, "127.0.0.1", 0)
                make = functools.partial(_same, url.replace("http", kind))
        before = tasks_in(serving)

        async def nothing_is_left():
            await until_only(before, serving)
            check_no_process_is_left(tmp_path)

        yield make, nothing_is_left
        serving.cancel_scope.cancel()


def check_no_process_is_left(tmp_path):
    with pytest.raises(ChildProcessError):  # there is none
        os.waitpid(-1, os.WNOHANG)
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            assert str(tmp_path).encode() not in command.read_bytes()


def _same(target):
    return target


# A session over HTTP whose id never arrived ends with its idle time, so it is not looked for here.
@pytest.mark.parametrize(
    ("kind", "revision", "stride"),
    [
        ("server", None, 1),
        ("server", R2025_11_25, 1),
        ("transport", None, 1),
        ("transport", R2025_11_25, 1),
        ("unix", None, 1),
        ("unix", R2025_11_25, 3),
        ("tcp", None, 1),
        ("tcp", R2025_11_25, 3),
        ("ws", None, 2),
        ("ws", R2025_11_25, 5),
        ("http", None, 3),
        ("sse", None, 7),
        ("program", None, 3),
        ("program", R2025_11_25, 7),
        ("program that dies", None, 5),
    ],
    ids=lambda value: getattr(value, "date", value),
)
@pytest.mark.usefixtures("quiet")
async def test_connecting(kind, revision, stride, tmp_path, books_are_closed):
    options = ClientOptions(revisions=(revision,)) if revision else ClientOptions()
    async with a_target(kind, make(), tmp_path) as (target, nothing_is_left):

        async def scenario():
            async with MCPClient(target(), options=evolve(options, eras=EraCache())):
                pass

        step = 1
        while await cancelled_after(step, scenario):
            await nothing_is_left()
            books_are_closed()
            step += stride
        assert step > 20


def balance(events):
    """What began and did not end, or ended and did not begin: by name, side and id."""
    left = collections.Counter()
    for event in events:
        match event:
            case RequestReceived():
                left["request", event.side, event.method, event.id] += 1
            case RequestCompleted(direction="inbound"):
                left["request", event.side, event.method, event.id] -= 1
            case ConnectionOpened():
                left["connection", event.side, event.dispatcher_id] += 1
            case ConnectionClosed():
                left["connection", event.side, event.dispatcher_id] -= 1
    return {key: count for key, count in left.items() if count}


def make_layered():
    """A server with all that is asked and told on the way of a request."""
    server = make()

    @server.middleware
    async def layer(context, call_next):
        await trio.lowlevel.checkpoint()
        try:
            return await call_next(context)
        finally:
            await trio.lowlevel.checkpoint()

    @server.middleware
    async def in_a_child(context, call_next):
        results = []

        async def go():
            results.append(await call_next(context))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go)
        return results[0]

    @server.authorize
    async def everybody(context):
        await trio.lowlevel.checkpoint()
        return True

    @server.tool
    async def roots(ctx: Context) -> int:
        return len(await ctx.list_roots())

    return server


@REVISIONS
@pytest.mark.parametrize(
    ("transport", "stride"),
    [("memory", 2), ("stdio", 7), ("http", 23), ("websocket", 17), ("unix", 11), ("sse", 29)],
)
@pytest.mark.usefixtures("quiet")
async def test_all_that_is_told_to_begin_is_told_to_end(
    transport, stride, revision, books_are_closed
):
    if transport == "sse" and revision.stateless:
        return  # the transport of handshake clients
    callbacks = ClientCallbacks(roots=lambda: [Root(uri="file:///a")])
    events = []

    async def scenario():
        server = make_layered()
        with contextlib.ExitStack() as listening:
            listening.enter_context(server.events.attach(events.append))
            async with world(server, transport, revision, callbacks) as client:
                listening.enter_context(client.events.attach(events.append))
                await client.call_tool("roots")
                await use(client, server)

    step = 1
    while await cancelled_after(step, scenario):
        books_are_closed()
        # The client's connection was opened before anybody could listen.
        open_ = {key for key in balance(events) if key[:2] != ("connection", "client")}
        assert open_ == set()
        events.clear()
        step += stride
    assert step > 50
