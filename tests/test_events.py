"""What observers are told, on both sides and in both eras; a slow or broken one touches nobody."""

import contextlib
import math

import pytest
import trio
import trio.testing

from mcp_trio import ClientCallbacks, Context, MCPClient, MCPServer, ServerOptions, ToolError
from mcp_trio.catalog.actor import CatalogActor
from mcp_trio.catalog.registries.schema import create_registry, publish
from mcp_trio.catalog.registries.sqlite import SqliteRegistry
from mcp_trio.events import (
    CatalogFailed,
    CatalogRefreshed,
    ConnectionClosed,
    ConnectionOpened,
    EventHub,
    EventsLost,
    NotificationEmitted,
    NotificationReceived,
    Reporter,
    RequestCompleted,
    RequestReceived,
)
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.session.inbound import FunctionHandler
from mcp_trio.session.session import Dispatcher
from mcp_trio.transports.memory import MemoryTransport
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28
from mcp_trio.wire.roots import Root
from tests.scenarios.manifest import in_worlds
from tests.scenarios.worlds import WORLDS, world

everywhere = in_worlds(WORLDS)
both_eras = pytest.mark.parametrize("revision", [R2025_11_25, R2026_07_28], ids=str)


OPERATION = {
    "operation_id": "one",
    "name": "one",
    "protocol": "static",
    "target": {},
    "input_schema": {"type": "object"},
    "output_schema": None,
    "input_mapping": {},
    "output_mapping": {"result": {"text": "x"}},
    "execution_config": {},
    "tool_description": "One.",
}


def event(number: int) -> CatalogFailed:
    return CatalogFailed(reason=str(number), retry_in=1)


def make_server(**options):
    server = MCPServer("s", options=ServerOptions(**options))
    began = trio.Event()

    @server.tool
    async def good() -> str:
        return "ok"

    @server.tool
    async def bad() -> str:
        raise ToolError("no")

    @server.tool
    async def hold() -> None:
        began.set()
        await trio.sleep_forever()

    @server.tool
    async def steps(ctx: Context) -> str:
        await ctx.progress(1, 2, "half")
        return "done"

    @server.tool
    async def roots(ctx: Context) -> int:
        return len(await ctx.list_roots())

    return server, began


async def end_in_every_way(client, began):
    """Make requests that succeed, fail, or are cancelled; all of them are over then."""
    for _ in range(2):
        await client.call_tool("steps", on_progress=lambda *_: None)
    await client.call_tool("bad")
    with pytest.raises(Exception, match="not found"):
        await client.call("made/up/method")
    await give_up(client, began)
    await trio.testing.wait_all_tasks_blocked()


async def give_up(client, began):
    """Make a request that never ends by itself, and cancel it."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "hold")
        await began.wait()
        nursery.cancel_scope.cancel()


def completed(events, direction="inbound"):
    return [
        (each.method, each.outcome)
        for each in events
        if isinstance(each, RequestCompleted) and each.direction == direction
    ]


# -- what is told --------------------------------------------------------------------


@everywhere
async def test_requests_are_told_on_the_server_with_their_outcomes(transport, revision):
    server, began = make_server()
    seen, cancelled = [], trio.Event()

    def note(each):
        seen.append(each)
        if isinstance(each, RequestCompleted) and each.outcome == "cancelled":
            cancelled.set()

    with server.events.attach(note):
        async with world(server, transport, revision) as client:
            await client.call_tool("good")
            await client.call_tool("bad")
            with pytest.raises(Exception, match="Unknown tool"):
                await client.call_tool("missing")
            with pytest.raises(Exception, match="not found"):
                await client.call("no/such/method")
            await give_up(client, began)
            with trio.fail_after(5):
                await cancelled.wait()
    opening = "server/discover" if revision.stateless else "initialize"
    assert completed(seen) == [
        (opening, "success"),
        ("tools/call", "success"),
        ("tools/call", "error"),
        ("tools/call", "error"),
        ("no/such/method", "error"),
        ("tools/call", "cancelled"),
    ]
    received = [each for each in seen if isinstance(each, RequestReceived)]
    done = [each for each in seen if isinstance(each, RequestCompleted)]
    assert [(each.method, each.id) for each in received] == [
        (each.method, each.id) for each in done
    ]
    assert {each.side for each in (*received, *done)} == {"server"}
    assert all(0 <= each.duration_ms < math.inf for each in done)


@everywhere
async def test_calls_are_told_on_the_client_with_their_outcomes(transport, revision):
    server, began = make_server()
    seen = []
    async with world(server, transport, revision) as client:
        with client.events.attach(seen.append):
            await client.call_tool("good")
            await client.call_tool("bad")
            with pytest.raises(Exception, match="Unknown tool"):
                await client.call_tool("missing")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "hold")
                await began.wait()
                nursery.cancel_scope.cancel()
    assert completed(seen, "outbound") == [
        ("tools/call", "success"),
        ("tools/call", "error"),
        ("tools/call", "error"),
        ("tools/call", "cancelled"),
    ]
    assert {each.side for each in seen} == {"client"}


async def test_a_deadline_is_an_error_on_either_side(autojump_clock):
    seen = []
    server, _ = make_server()
    async with world(server, "memory", R2026_07_28) as client:
        with client.events.attach(seen.append), pytest.raises(Exception, match="not answered"):
            await client.call_tool("hold", timeout=1)
    assert completed(seen, "outbound") == [("tools/call", "error")]
    seen.clear()
    server, _ = make_server(request_timeout=1.0)
    for revision in (R2025_11_25, R2026_07_28):
        async with world(server, "memory", revision) as client:
            with server.events.attach(seen.append), pytest.raises(Exception, match="longer than"):
                await client.call_tool("hold")
    (first, second) = [each for each in seen if isinstance(each, RequestCompleted)]
    assert (first.outcome, second.outcome) == ("error", "error")
    assert first.duration_ms == pytest.approx(1000, abs=1)


@both_eras
async def test_what_ends_with_its_session_was_cancelled(revision):
    server, began = make_server()
    seen = []
    with server.events.attach(seen.append):
        ours, theirs = MemoryTransport.pair()
        async with trio.open_nursery() as nursery:
            dispatcher = await nursery.start(serve, server, theirs)
            client = await nursery.start(hold_open, ours)
            nursery.start_soon(call, client)
            await began.wait()
            dispatcher.cancel()
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert ("tools/call", "cancelled") in completed(seen)


async def serve(server, transport, *, task_status):
    await server.serve(transport, task_status=task_status)


async def hold_open(transport, *, task_status):
    async with MCPClient(transport) as client:
        task_status.started(client)
        await trio.sleep_forever()


async def call(client):
    with pytest.raises(Exception, match=r"closed|line"):
        await client.call_tool("hold")


@both_eras
async def test_sessions_are_told_with_one_id_and_the_reason_of_their_end(revision):
    server, _ = make_server()
    on_server, on_client = [], []
    ours, theirs = MemoryTransport.pair()
    with server.events.attach(on_server.append):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve, server, theirs)
            client = MCPClient(ours)
            with client.events.attach(on_client.append):
                async with client:
                    pass
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    for events, side, reason in (
        (on_server, "server", "the peer closed the line"),
        (on_client, "client", "closed here"),
    ):
        opened, closed = [e for e in events if isinstance(e, ConnectionOpened | ConnectionClosed)]
        assert isinstance(opened, ConnectionOpened)
        assert isinstance(closed, ConnectionClosed)
        assert (opened.side, closed.side, closed.reason) == (side, side, reason)
        assert opened.dispatcher_id == closed.dispatcher_id
    assert on_server[0].dispatcher_id != on_client[0].dispatcher_id


async def test_a_server_that_is_told_to_end_says_so():
    server, _ = make_server()
    seen = []
    _, theirs = MemoryTransport.pair()
    with server.events.attach(seen.append):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve, server, theirs)
            nursery.cancel_scope.cancel()
    assert seen[-1].reason == "closed here"


@both_eras
async def test_notifications_are_told_on_both_sides(revision):
    server, _ = make_server()
    on_server, on_client = [], []
    async with world(server, "memory", revision) as client:
        await trio.testing.wait_all_tasks_blocked()
        with server.events.attach(on_server.append), client.events.attach(on_client.append):
            await client.call_tool("steps", on_progress=lambda *_: None)
            await client.session.notify("notifications/roots/list_changed")
            await trio.testing.wait_all_tasks_blocked()
    (emitted,) = [each for each in on_server if isinstance(each, NotificationEmitted)]
    assert (emitted.side, emitted.method) == ("server", "notifications/progress")
    assert emitted.params["progress"] == 1
    assert [e.method for e in on_client if isinstance(e, NotificationReceived)] == [
        "notifications/progress"
    ]
    assert [e.method for e in on_client if isinstance(e, NotificationEmitted)] == [
        "notifications/roots/list_changed"
    ]
    assert [e.method for e in on_server if isinstance(e, NotificationReceived)] == [
        "notifications/roots/list_changed"
    ]


async def test_what_a_server_asks_is_received_by_the_client():
    server, _ = make_server()
    on_server, on_client = [], []
    callbacks = ClientCallbacks(roots=lambda: [Root(uri="file:///a")])
    async with world(server, "memory", R2025_11_25, callbacks) as client:
        with server.events.attach(on_server.append), client.events.attach(on_client.append):
            await client.call_tool("roots")
    assert completed(on_client) == [("roots/list", "success")]
    assert completed(on_server, "outbound") == [("roots/list", "success")]
    assert [e.side for e in on_client if isinstance(e, RequestReceived)] == ["client"]


async def test_a_bare_dispatcher_tells_nobody_unless_it_is_given_a_reporter():
    hub, seen = EventHub(), []
    a, b = MemoryTransport.pair()

    async def echo(method, params, inbound):
        return params

    with hub.attach(seen.append):
        async with trio.open_nursery() as nursery:
            caller = Dispatcher(a, reporter=Reporter(hub, "peer"))
            await nursery.start(caller.run)
            await nursery.start(Dispatcher(b, FunctionHandler(echo)).run)
            assert await caller.call("anything", {"x": 1}) == {"x": 1}
            nursery.cancel_scope.cancel()
    assert [each.name for each in seen] == [
        "connection:opened",
        "request:completed",
        "connection:closed",
    ]
    assert {each.side for each in seen} == {"peer"}


# -- who is told ---------------------------------------------------------------------


async def test_a_slow_subscriber_loses_events_and_is_told_how_many():
    hub = EventHub()
    async with hub.subscribe(2) as channel:
        for number in range(5):
            hub.emit(event(number))
        assert [await channel.receive() for _ in range(2)] == [event(0), event(1)]
        assert await channel.receive() == EventsLost(count=3)
        hub.emit(event(9))
        assert await channel.receive() == event(9)
        assert channel.lost == 3


async def test_the_gap_is_in_one_place_however_long_it_lasts():
    hub = EventHub()
    async with hub.subscribe(1) as channel:
        hub.emit(event(0))
        hub.emit(event(1))
        assert channel.receive_nowait() == event(0)
        hub.emit(event(2))  # there is room again, but it belongs to the gap
        assert channel.receive_nowait() == EventsLost(count=2)
        with pytest.raises(trio.WouldBlock):
            channel.receive_nowait()


async def test_a_subscription_has_an_end_and_can_be_closed():
    hub, seen = EventHub(), []
    async with trio.open_nursery() as nursery:
        async with hub.subscribe() as channel:

            async def read():
                seen.extend([each async for each in channel])

            nursery.start_soon(read)
            hub.emit(event(1))
        hub.emit(event(2))  # nobody is subscribed any more
    assert seen == [event(1)]
    assert not hub.active
    async with hub.subscribe() as channel:
        await channel.aclose()
        hub.emit(event(3))
        with pytest.raises(trio.ClosedResourceError):
            await channel.receive()
    with pytest.raises(ValueError, match="capacity"):
        async with hub.subscribe(0):
            pass


async def test_waiting_for_an_event_can_be_cancelled_and_goes_on():
    hub = EventHub()
    async with hub.subscribe() as channel:
        with trio.move_on_after(1):
            await channel.receive()
        hub.emit(event(1))
        assert await channel.receive() == event(1)


@everywhere
async def test_a_listener_that_raises_touches_no_request(transport, revision, caplog):
    server, _ = make_server()
    seen = []

    def broken(each):
        raise RuntimeError("listener bug")

    with server.events.attach(broken), server.events.attach(seen.append):
        async with world(server, transport, revision) as client:
            with client.events.attach(broken):
                assert (await client.call_tool("good")).content[0].text == "ok"
    assert ("tools/call", "success") in completed(seen)
    assert "listener bug" in caplog.text


@both_eras
async def test_a_listener_that_does_not_read_delays_no_request(revision):
    server, _ = make_server()
    async with server.events.subscribe(1) as channel, world(server, "memory", revision) as client:
        with trio.fail_after(5):
            for _ in range(100):
                await client.call_tool("good")
        assert channel.lost > 100


async def test_listening_may_begin_and_end_while_requests_run():
    server, began = make_server()
    seen = []
    async with world(server, "memory", R2026_07_28) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "hold")
        await began.wait()
        with server.events.attach(seen.append):
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
    assert completed(seen) == [("tools/call", "cancelled")]


async def test_a_catalog_tells_how_its_refreshes_went(tmp_path, autojump_clock):
    path = tmp_path / "registry.db"
    server = MCPServer("s")
    # The clock jumps over every deadline while the registry is read in a thread.
    patient = {"interval": 10, "read_timeout": math.inf}
    actor = CatalogActor(SqliteRegistry(path), Compiler(Connections()), **patient)
    server.add_provider(actor)
    async with server.events.subscribe() as channel, trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        failed = await channel.receive()
        assert isinstance(failed, CatalogFailed)
        assert failed.retry_in > 0
        assert "registry.db" in failed.reason
        create_registry(path)
        publish(path, OPERATION)
        while isinstance(refreshed := await channel.receive(), CatalogFailed):
            pass
        assert refreshed == CatalogRefreshed(
            revision=actor.status().revision, operations=1, changed=1, quarantined=0
        )
        again = await channel.receive()
        assert (again.revision, again.changed) == (refreshed.revision, 0)
        nursery.cancel_scope.cancel()


@both_eras
@pytest.mark.parametrize("error", [RuntimeError("bug"), SystemExit("bug")])
async def test_a_listener_that_gives_up_ends_neither_request_nor_session(revision, error, caplog):
    server, _ = make_server()

    def broken(each):
        raise error

    async with world(server, "memory", revision) as client:
        with server.events.attach(broken), client.events.attach(broken):
            for _ in range(2):
                assert (await client.call_tool("good")).content[0].text == "ok"
    assert "a listener failed" in caplog.text


async def test_a_listener_may_stop_listening_or_tell_something_itself():
    hub, seen = EventHub(), []
    with contextlib.ExitStack() as stack:

        def last(each):
            seen.append(each)
            stack.close()
            hub.emit(event(2))

        stack.enter_context(hub.attach(last))
        with hub.attach(seen.append):
            hub.emit(event(1))
            hub.emit(event(3))
    assert sorted(each.reason for each in seen) == ["1", "1", "2", "3"]
    assert not hub.active


@both_eras
async def test_a_call_that_cannot_be_written_is_an_error_and_nothing_is_sent(revision):
    server, _ = make_server()
    on_server, on_client = [], []
    async with world(server, "memory", revision) as client:
        await trio.testing.wait_all_tasks_blocked()
        with server.events.attach(on_server.append), client.events.attach(on_client.append):
            with pytest.raises(ValueError, match="JSON"):
                await client.call_tool("good", {"x": math.nan})
            await trio.testing.wait_all_tasks_blocked()
        assert client.session.statistics().pending == 0
    assert completed(on_client, "outbound") == [("tools/call", "error")]
    assert on_server == []
