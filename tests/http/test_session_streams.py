"""The streams of a session when connections are slow, superseded, or lost at the wrong moment."""

import pytest
import trio
import trio.testing

from mcp_trio import HTTPOptions
from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import TransportClosedError
from mcp_trio.http.replay import ReplayBuffer
from mcp_trio.http.session_streams import QUEUE, SessionStreams, Stream
from mcp_trio.jsonrpc.messages import Notification
from tests.http.asgi import serving
from tests.http.tools import make_server


@pytest.mark.parametrize("ends", ["read", "detach", "end"])
async def test_everybody_who_waits_for_a_slow_connection_goes_on(ends):
    stream = Stream(1, (1,))
    owner = stream.attach()
    for _ in range(QUEUE):
        stream.put(b"{}")
    went_on = []

    async def send(number):
        await stream.room()
        went_on.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(send, number)
        await trio.testing.wait_all_tasks_blocked()
        assert went_on == []
        match ends:
            case "read":
                await stream.take(owner)
            case "detach":
                stream.detach(owner)
            case "end":
                stream.end()
        with trio.fail_after(1):
            await trio.testing.wait_all_tasks_blocked()
        assert sorted(went_on) == [0, 1, 2]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("message_first", [False, True])
async def test_a_first_message_that_comes_as_a_connection_is_hurried_is_no_end(message_first):
    stream = SessionStreams(ReplayBuffer(1, 1)).open((1,))
    owner, taken = stream.attach(), []

    async def take():
        while (event := await stream.take(owner)) is not None:
            taken.append(event.data)
        taken.append(None)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        await trio.testing.wait_all_tasks_blocked()
        if message_first:
            stream.put(b"1")
            stream.hurry(owner)
        else:
            stream.hurry(owner)
            stream.put(b"1")
        await trio.testing.wait_all_tasks_blocked()
        stream.put(b"2")
        stream.hurry(owner)
        await trio.testing.wait_all_tasks_blocked()
        assert taken == [b"1", b"2"]
        stream.end()
    assert taken == [b"1", b"2", None]


@pytest.mark.parametrize("waiting", [False, True])
async def test_a_session_that_is_over_takes_no_message_any_more(waiting):
    streams = SessionStreams(ReplayBuffer(1, 1))
    if waiting:
        streams.standalone.attach()
        for _ in range(QUEUE):
            await streams.send(Envelope(Notification("n")))

    async def send():
        with pytest.raises(TransportClosedError):
            await streams.send(Envelope(Notification("n")))

    async with trio.open_nursery() as nursery:
        if waiting:
            nursery.start_soon(send)
            await trio.testing.wait_all_tasks_blocked()
        streams.close()
    await send()


async def walked(session, response):
    """Follow a stream by connections that are each lost after one part; all its events."""
    told = []
    while True:
        await response.ended.wait()
        told += response.events()
        if not response.gone.is_set():
            return told
        last = [id_ for id_, _ in response.raw_events() if id_][-1]
        response = session.start_get({"last-event-id": last})


@pytest.mark.parametrize("steps", [1, 3])
async def test_a_call_is_followed_over_connections_that_are_lost_after_every_part(steps):
    server, _ = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        client.parts = 1
        response = session.start_call("report", {"steps": steps}, token=1)
        with trio.fail_after(5):
            told = await walked(session, response)
        progress = [event.get("params", {}).get("progress") for event in told]
        assert progress == [*range(1, steps + 1), None]


async def test_changes_are_followed_over_connections_that_are_lost_after_every_part():
    server, _ = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        for tool in ("add", "wait", "report"):
            server.remove_tool(tool)
            await trio.testing.wait_all_tasks_blocked()
        client.parts = 1
        told, last = [], None
        for _ in range(3):
            response = session.start_get({"last-event-id": last})
            await response.ended.wait()
            told += response.events()
            ((last, _),) = response.raw_events()
        assert [each["method"] for each in told] == ["notifications/tools/list_changed"] * 3


@pytest.mark.parametrize("seen", ["0-0", "0-999"])
async def test_what_was_never_sent_is_not_missed_and_not_lost(seen):
    """Neither because little is kept for those who come back, nor because a client says so."""
    server, _ = make_server()
    async with serving(server, HTTPOptions(replay_events=1)) as client:
        session = await client.open_session()
        for tool in ("add", "wait", "report"):
            server.remove_tool(tool)
            await trio.testing.wait_all_tasks_blocked()
        stream = session.start_get({"last-event-id": seen})
        await trio.testing.wait_all_tasks_blocked()
        assert [id_ for id_, _ in stream.raw_events()] == ["0-1", "0-2", "0-3"]


async def test_a_stream_belongs_to_the_last_connection_that_came_for_it():
    server, record = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        first = session.start_call("report", {"stay": True}, token=1)
        await first.event(1)
        (primed, _), (one, _), _ = first.raw_events()
        second = session.start_get({"last-event-id": primed})
        await trio.testing.wait_all_tasks_blocked()
        assert first.ended.is_set()
        third = session.start_get({"last-event-id": one})
        await trio.testing.wait_all_tasks_blocked()
        assert second.ended.is_set()
        assert [e["params"]["progress"] for e in second.events()] == [1, 2]
        record.release.set()
        await third.ended.wait()
        progress, answer = third.events()
        assert (progress["params"]["progress"], answer["id"]) == (2, 1)


@pytest.mark.parametrize("way", ["post", "get"])
async def test_a_server_that_keeps_who_sends_waiting_for_a_client_that_has_left_keeps_no_session(
    way, autojump_clock
):
    """Hypercorn does over HTTP/2, once the connection is over whose window was shut."""
    server, record = make_server()
    async with serving(server, HTTPOptions(sse_after=0, session_idle_timeout=10)) as client:
        client.extension = False
        session = await client.open_session()
        client.stalled = True
        response = session.start_get() if way == "get" else session.start_call("wait", id_=3)
        await trio.sleep(1)
        response.disconnect()
        with trio.fail_after(5):
            await response.ended.wait()
        record.release.set()
        await trio.sleep(20)
        assert len(client.app.sessions) == 0


@pytest.mark.parametrize("extension", [True, False])
@pytest.mark.parametrize("way", ["post", "get"])
async def test_a_client_that_has_left_before_the_first_byte_is_no_fault(extension, way):
    server, record = make_server()
    async with serving(server, HTTPOptions(sse_after=0)) as client:
        client.extension = extension
        session = await client.open_session()
        response = session.start_get() if way == "get" else session.start_call("wait", id_=3)
        response.disconnect()
        await response.ended.wait()
        assert response.status is None
        record.release.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (await session.call("add", {"a": 1, "b": 2}, id_=4)).json()["id"] == 4
