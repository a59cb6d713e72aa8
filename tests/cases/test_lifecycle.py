"""Cancelling, ending, limits, and peers that are stuck."""

import contextlib
import json
import threading

import pytest
import trio
import trio.testing
import wsproto.events as ws

from mcp_trio import Context
from mcp_trio.session.limits import LoadLimits
from mcp_trio.wire import REVISIONS
from tests.cases.endpoint import endpoint, head, in_session, post, stateless
from tests.cases.speakers import each_channel, each_session, encoded, speaking, text_of
from tests.http.serving_tools import LockstepListener, read_until
from tests.http.test_websocket import Peer as SocketPeer
from tests.http.tools import make_server
from tests.messages import PING, PONG
from tests.scenarios.manifest import in_worlds
from tests.scenarios.worlds import WORLDS, world
from tests.server.test_lines_servers import serving as serving_lines

# -- cancelling ---------------------------------------------------------------------------


@each_session
async def test_a_cancelled_call_is_not_answered_and_what_comes_next_is(channel):
    server, record = make_server()
    async with speaking(server, channel) as speaker:
        await speaker.say(speaker.call(1, "wait"))
        await record.until("wait started")
        await speaker.cancel(1)
        await record.until("wait started", "wait over")
        record.release.set()
        assert await speaker.ask({**PING, "id": 2}) == {**PONG, "id": 2}
        for finished in (1, 2, "never", 99):
            await speaker.cancel(finished)
        for malformed in ({}, {"requestId": {}}, {"requestId": 1.5}, {"requestId": None}):
            await speaker.say(
                {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": malformed}
            )
        await speaker.works()


@each_session
async def test_a_cancel_that_crosses_the_answer_does_no_harm(channel):
    server, _ = make_server()
    async with speaking(server, channel) as speaker:
        for id_ in range(1, 20):
            await speaker.say(speaker.call(id_, "add", a=1, b=2))
            await speaker.cancel(id_)
        await trio.testing.wait_all_tasks_blocked()
        await speaker.say({**PING, "id": "last"})
        heard = []
        while not heard or heard[-1]["id"] != "last":
            heard.append(await speaker.hear())
        assert len({answer["id"] for answer in heard}) == len(heard)
        assert all("result" in answer for answer in heard)


@in_worlds(WORLDS)
@pytest.mark.parametrize("kind", ["in a thread", "shielded"])
async def test_code_that_cannot_be_interrupted_can_ask_whether_it_should_stop(
    transport, revision, kind
):
    server, _ = make_server()
    asked, seen = threading.Event(), threading.Event()

    if kind == "in a thread":

        @server.tool
        def poll(ctx: Context) -> str:
            asked.set()
            while not ctx.cancel_requested:
                pass
            seen.set()
            return "late"
    else:

        @server.tool
        async def poll(ctx: Context) -> str:
            with trio.CancelScope(shield=True):
                asked.set()
                while not ctx.cancel_requested:
                    await trio.lowlevel.checkpoint()
                seen.set()
            return "late"

    async with world(server, transport, revision) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "poll")
            assert await trio.to_thread.run_sync(asked.wait, 10)
            nursery.cancel_scope.cancel()
        assert await trio.to_thread.run_sync(seen.wait, 10)


# -- what was negotiated --------------------------------------------------------------------


@pytest.mark.parametrize("channel", ["lines", "websocket", "sse"])
async def test_only_changes_of_lists_that_were_declared_are_told(channel):
    server, _ = make_server()
    async with speaking(server, channel) as speaker:
        server.add_prompt(lambda: "x", name="hello")
        server.add_resource("test://a", lambda: "x", name="a")
        server.add_resource("test://{b}", lambda b: b, name="b")
        await trio.testing.wait_all_tasks_blocked()
        await speaker.works()
        server.remove_tool("echo")
        assert (await speaker.hear())["method"] == "notifications/tools/list_changed"
    async with speaking(server, channel) as speaker:
        for change, told in (
            (lambda: server.prompts.remove("hello"), "prompts"),
            (lambda: server.resources.remove("test://a"), "resources"),
            (lambda: server.templates.remove("test://{b}"), "resources"),
            (lambda: server.remove_tool("fail"), "tools"),
        ):
            change()
            assert (await speaker.hear())["method"] == f"notifications/{told}/list_changed"


@pytest.mark.parametrize("revision", [r for r in REVISIONS if not r.stateless], ids=str)
async def test_a_session_over_http_hears_only_of_declared_lists_too(revision):
    server, _ = make_server()
    async with speaking(server, "http", str(revision)) as speaker:
        stream = speaker.session.start_get()
        await stream.started.wait()
        server.add_prompt(lambda: "x", name="hello")
        await trio.testing.wait_all_tasks_blocked()
        server.remove_tool("echo")
        assert (await stream.event(0))["method"] == "notifications/tools/list_changed"
        stream.disconnect()


# -- limits ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("channel", "count"),
    [("lines", 10_000), ("websocket", 3000), ("sse", 1200), ("http", 1200), ("stateless", 1200)],
)
async def test_slow_calls_of_one_client_are_bounded_and_the_rest_told_when_to_come_back(
    channel, count
):
    server, record = make_server()
    async with speaking(server, channel) as speaker:
        for id_ in range(count):
            await speaker.say(speaker.call(id_, "wait"))
        refused = [await speaker.hear() for _ in range(count - 1000)]
        for answer in refused:
            assert answer["error"]["data"]["reason"] == "overloaded"
            assert answer["error"]["data"]["retryAfterMs"] == 1000
        assert record.events == ["wait started"] * 1000
        if not speaker.stateless:  # whose era has none
            assert await speaker.ask({**PING, "id": "p"}) == {**PONG, "id": "p"}
        record.release.set()
        answered = [await speaker.hear() for _ in range(1000)]
        assert all(text_of(answer) == "wait" for answer in answered)
        assert len({answer["id"] for answer in refused + answered}) == count
        await speaker.works()


@each_session
async def test_a_ping_is_answered_whatever_else_runs(channel):
    server, record = make_server(load=LoadLimits(max_in_flight=2))
    async with speaking(server, channel) as speaker:
        for id_ in range(2):
            await speaker.say(speaker.call(id_, "wait"))
        assert (await speaker.ask(speaker.call("x", "add", a=1, b=1)))["error"]
        for number in range(5):
            ping = {**PING, "id": f"p{number}"}
            assert await speaker.ask(ping) == {**PONG, "id": f"p{number}"}
        record.release.set()
        for _ in range(2):
            await speaker.hear()


CAP = 4 * 1024 * 1024


def add_big_tools(server):
    @server.tool
    async def size(text: str) -> int:
        return len(text)

    @server.tool
    async def give(size: int) -> str:
        return "x" * size


@each_channel
async def test_messages_pass_up_to_the_limit_which_is_named_beyond_it(channel):
    server, _ = make_server()
    add_big_tools(server)
    async with speaking(server, channel) as speaker:
        around = len(encoded(speaker.call(1, "size", text="")))
        for length in (70_000, 1_000_000, CAP - around):
            answer = await speaker.ask(speaker.call(1, "size", text="x" * length))
            assert text_of(answer) == str(length)
        if channel == "websocket":
            await speaker.say(speaker.call(1, "size", text="x" * CAP))
            farewell = await speaker.peer.hear()
            assert isinstance(farewell, ws.CloseConnection)
            assert (farewell.code, str(CAP) in farewell.reason) == (1009, True)
            return
        for length in (CAP - around + 1, 20_000_000):
            answer = await speaker.ask(speaker.call(1, "size", text="x" * length))
            assert answer["error"]["code"] == -32600
            assert str(CAP) in answer["error"]["message"]
        await speaker.works()


@each_channel
@pytest.mark.parametrize("length", [70_000, 1_000_000, 20_000_000])
async def test_results_of_any_size_arrive_whole(channel, length):
    server, _ = make_server()
    add_big_tools(server)
    async with speaking(server, channel) as speaker:
        answer = await speaker.ask(speaker.call(1, "give", size=length))
        assert len(text_of(answer)) == length
        await speaker.works()


# -- peers that are stuck -------------------------------------------------------------------


class Steps(trio.abc.Instrument):
    """Counts the steps of all tasks; a loop that never waits is stopped."""

    LIMIT = 2000

    def __init__(self, scope: trio.CancelScope) -> None:
        self.taken = 0
        self._scope = scope

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.taken += 1
        if self.taken > self.LIMIT:
            self._scope.cancel()


async def steps_of_two_seconds() -> int:
    """How many steps all tasks take in two seconds in which nothing happens."""
    with trio.CancelScope() as scope:
        steps = Steps(scope)
        trio.lowlevel.add_instrument(steps)
        await trio.sleep(2)
    trio.lowlevel.remove_instrument(steps)
    return steps.taken


async def test_a_client_that_reads_nothing_costs_no_time_after_its_calls_were_cancelled(
    autojump_clock,
):
    server, record = make_server()
    add_big_tools(server)
    async with serving_lines(server, LockstepListener()) as connect:
        peer = await connect()
        for id_ in range(20):
            await peer.call("give", id_=id_, size=500_000)
            await peer.call("wait", id_=100 + id_)
        for id_ in (*range(20), *range(100, 120)):
            params = {"requestId": id_}
            await peer.say(
                {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
            )
        await trio.testing.wait_all_tasks_blocked()
        assert record.events.count("wait over") == 20
        assert await steps_of_two_seconds() < 50


@pytest.mark.parametrize("how", ["cancelled", "deleted", "dropped"])
async def test_a_stream_that_nobody_reads_costs_no_time_after_its_call_was_given_up(
    autojump_clock, how
):
    server, record = make_server()
    listener = LockstepListener()
    async with endpoint(server, listener=listener) as place:
        id_ = await place.open_session()
        stuck = await place.connect()
        call = ("report", {"progressToken": 1})
        if how == "dropped":
            await stuck.send_all(stateless(*call, steps=5000, stay=True))
        else:
            await stuck.send_all(in_session(id_, *call, steps=5000, stay=True))
        await read_until(stuck, b'"progress":1')
        await trio.testing.wait_all_tasks_blocked()
        match how:
            case "dropped":
                await stuck.aclose()
            case "deleted":
                async with await place.connect() as other:
                    await other.send_all(head("DELETE", content_type=None, mcp_session_id=id_))
                    await read_until(other, b"HTTP/1.1 204")
            case "cancelled":
                note = {"method": "notifications/cancelled", "params": {"requestId": 1}}
                async with await place.connect() as other:
                    await other.send_all(post({"jsonrpc": "2.0", **note}, mcp_session_id=id_))
                    await read_until(other, b"HTTP/1.1 202")
        await trio.testing.wait_all_tasks_blocked()
        assert record.events == ["report over"]
        assert await steps_of_two_seconds() < 50


# -- WebSocket bytes that come early or late --------------------------------------------------


def frame(text: str) -> bytes:
    """A masked text frame; the mask is zero, so the text stands there as it is."""
    data = text.encode()
    assert len(data) < 126
    return bytes([0x81, 0x80 | len(data), 0, 0, 0, 0]) + data


async def test_a_frame_before_the_handshake_is_answered_is_refused_and_not_lost_silently(caplog):
    server, _ = make_server()
    async with endpoint(server) as place:
        peer = SocketPeer(await place.connect())
        opening = peer.ws.send(ws.Request(host="127.0.0.1", target="/mcp"))
        # RFC 6455, section 4.1: a client has to wait for the answer before it sends more.
        await peer.stream.send_all(opening + frame(json.dumps(PING)))
        refused = await peer.hear()
        assert isinstance(refused, ws.RejectConnection)
        assert refused.status_code == 400
        assert await peer.stream.receive_some() == b""
        await trio.testing.wait_all_tasks_blocked()
        assert place.app.statistics().sessions == 0
        patient = SocketPeer(await place.connect())
        assert isinstance(await patient.open(), ws.AcceptConnection)
        assert await patient.ask(PING) == PONG
    assert caplog.records == []


async def test_two_frames_in_one_packet_and_one_in_two_are_messages():
    server, _ = make_server()
    async with endpoint(server) as place:
        peer = SocketPeer(await place.connect())
        await peer.open()
        one, two = frame(json.dumps(PING)), frame(json.dumps({**PING, "id": 2}))
        for cut in range(1, len(one + two)):
            await peer.stream.send_all((one + two)[:cut])
            await trio.testing.wait_all_tasks_blocked()
            await peer.stream.send_all((one + two)[cut:])
            assert {(await peer.answer())["id"] for _ in range(2)} == {1, 2}


async def test_bytes_after_the_close_of_a_websocket_are_nobodys_fault(caplog):
    server, _ = make_server()
    async with endpoint(server) as place:
        peer = SocketPeer(await place.connect())
        await peer.open()
        goodbye = peer.ws.send(ws.CloseConnection(code=1000))
        await peer.stream.send_all(goodbye + frame(json.dumps(PING)) + b"\xff\xff\xff")
        assert isinstance(await peer.hear(), ws.CloseConnection)
        with contextlib.suppress(trio.BrokenResourceError):
            while await peer.stream.receive_some():
                pass
        await trio.testing.wait_all_tasks_blocked()
        assert place.app.statistics().sessions == 0
    assert caplog.records == []
