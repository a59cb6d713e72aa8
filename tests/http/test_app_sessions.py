"""The handshake era over HTTP: sessions that outlive their connections."""

import pytest
import trio
import trio.testing

from mcp_trio import Context, HTTPOptions
from mcp_trio.engine.envelope import Envelope
from mcp_trio.engine.subscriptions import Notice
from mcp_trio.jsonrpc.messages import Notification
from mcp_trio.session.limits import LoadLimits
from tests.http.asgi import serving
from tests.http.tools import make_server

CANCEL = {"jsonrpc": "2.0", "method": "notifications/cancelled"}


def ping(id_=1):
    return {"jsonrpc": "2.0", "id": id_, "method": "ping"}


@pytest.mark.parametrize(
    ("asked", "spoken"),
    [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ],
)
async def test_the_revision_asked_for_is_spoken_or_the_newest(asked, spoken):
    server, _ = make_server()
    async with serving(server) as client:
        session = await client.open_session(asked)
        found = next(iter(client.app.sessions)).side.handshake.revision
        assert found.date == spoken
        assert (await session.post(ping())).json() == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_results_carry_only_what_the_revision_has():
    server, _ = make_server()
    async with serving(server) as client:
        for revision, structured in (("2025-03-26", False), ("2025-06-18", True)):
            session = await client.open_session(revision)
            listed = await session.post({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
            assert ("outputSchema" in listed.json()["result"]["tools"][0]) is structured
            called = (await session.call("add", {"a": 1, "b": 2})).json()["result"]
            assert ("structuredContent" in called) is structured
            assert not {"resultType", "ttlMs", "_meta"} & called.keys()
            assert not {"resultType", "ttlMs", "cacheScope"} & listed.json()["result"].keys()


async def test_session_ids_are_long_visible_and_different():
    server, _ = make_server()
    async with serving(server) as client:
        ids = {(await client.open_session()).id for _ in range(20)}
        assert len(ids) == 20
        for id_ in ids:
            assert len(id_) >= 22
            assert all(0x21 <= ord(char) <= 0x7E for char in id_)


async def test_a_call_right_after_initialize_is_answered():
    server, _ = make_server()
    async with serving(server) as client:
        opened = await client.post(
            {
                "jsonrpc": "2.0",
                "id": 0,
                "method": "initialize",
                "params": {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {},
                    "clientInfo": {"name": "t", "version": "1"},
                },
            }
        )
        headers = {"mcp-session-id": opened.headers["mcp-session-id"]}
        listed = await client.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers)
        assert listed.json()["result"]["tools"]


async def test_batches_where_the_revision_has_them():
    server, _ = make_server()
    batch = [ping(1), ping("1"), CANCEL, {"jsonrpc": "2.0", "id": 2, "method": "nope"}, 7]
    async with serving(server) as client:
        session = await client.open_session("2025-03-26")
        answers = (await session.post(batch)).json()
        by_id = {repr(item.get("id")): item for item in answers}
        assert by_id["1"]["result"] == by_id["'1'"]["result"] == {}
        assert by_id["2"]["error"]["code"] == -32601
        assert by_id["None"]["error"]["code"] == -32600
        assert len(answers) == 4
        assert (await session.post([CANCEL, CANCEL])).status == 202
        assert (await session.post([])).status == 400
        initialize = await session.post(
            [{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}, ping(3)]
        )
        codes = {item["id"]: item.get("error", {}).get("code") for item in initialize.json()}
        assert codes == {1: -32600, 3: None}
        assert (await session.post([ping(1), ping(1)])).status == 400
        assert (await session.post([7])).status == 400


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_batches_where_the_revision_has_none(revision):
    server, _ = make_server()
    async with serving(server) as client:
        session = await client.open_session(revision)
        response = await session.post([ping(1), ping(2)])
        assert (response.status, response.json()["error"]["code"]) == (400, -32600)


async def test_progress_and_the_answer_come_on_the_stream_of_the_call_only():
    server, _ = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        standalone = session.start_get()
        await standalone.started.wait()
        response = await session.call("report", token=9)
        assert response.is_stream
        assert [event["method"] for event in response.events()[:-1]] == [
            "notifications/progress"
        ] * 2
        assert response.events()[-1]["id"] == 1
        await trio.testing.wait_all_tasks_blocked()
        assert standalone.events() == []


async def test_a_connection_that_goes_away_does_not_end_the_call():
    server, record = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        response = session.start_call("wait")
        await trio.testing.wait_all_tasks_blocked()
        response.disconnect()
        await response.ended.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert record.events == ["wait started"]
        assert client.app.statistics().in_flight == 1
        record.release.set()
        await trio.testing.wait_all_tasks_blocked()
        assert record.events == ["wait started", "wait over"]
        assert (await session.post(ping())).status == 200


async def test_a_broken_stream_is_resumed_where_it_broke():
    server, record = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        response = session.start_call("report", {"steps": 3, "stay": True}, token=1)
        await response.event(2)
        ids = [id_ for id_, _ in response.raw_events()]
        assert len(set(ids)) == 4
        assert response.raw_events()[0][1] == ""
        response.disconnect()
        await response.ended.wait()
        record.release.set()
        await trio.testing.wait_all_tasks_blocked()
        resumed = session.start_get({"last-event-id": ids[2]})
        await resumed.ended.wait()
        assert [event.get("params", {}).get("progress") for event in resumed.events()] == [3, None]
        assert resumed.events()[1]["result"]["structuredContent"] == {"result": "reported"}


async def test_a_stream_resumed_before_the_answer_gets_the_answer():
    server, record = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        response = session.start_call("report", {"stay": True}, token=1)
        await response.event(1)
        last = response.raw_events()[-1][0]
        response.disconnect()
        await response.ended.wait()
        resumed = session.start_get({"last-event-id": last})
        await resumed.started.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert resumed.events() == []
        record.release.set()
        await resumed.ended.wait()
        assert [event["id"] for event in resumed.events()] == [1]


async def test_a_slow_answer_becomes_a_stream_that_can_be_resumed(autojump_clock):
    server, record = make_server()
    async with serving(server, HTTPOptions(sse_after=2)) as client:
        session = await client.open_session("2025-11-25")
        response = session.start_call("wait")
        await trio.sleep(1)
        assert not response.started.is_set()
        await trio.sleep(2)
        assert response.is_stream
        (primed,) = response.raw_events()
        assert primed[0]
        assert primed[1] == ""
        response.disconnect()
        await response.ended.wait()
        record.release.set()
        resumed = session.start_get({"last-event-id": primed[0]})
        await resumed.ended.wait()
        assert resumed.events()[0]["result"]["structuredContent"] == {"result": "wait"}
        older = await client.open_session("2025-06-18")
        record.release = trio.Event()
        patient = older.start_call("wait")
        await trio.sleep(10)
        assert not patient.started.is_set()
        record.release.set()
        await patient.ended.wait()
        assert not patient.is_stream


@pytest.mark.parametrize("last", ["x", "1", "1-", "-1-2", "1-2-3", "9" * 50 + "-1", ""])
async def test_a_made_up_event_id_is_refused(last):
    server, _ = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        response = session.start_get({"last-event-id": last})
        await response.ended.wait()
        assert response.status == 400


async def test_the_id_of_another_stream_replays_nothing_of_this_one():
    server, _ = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        await session.call("report", token=1)
        other = session.start_get({"last-event-id": "77-0"})
        await other.ended.wait()
        assert other.events() == []


async def test_a_cancelled_call_gets_no_answer_and_its_stream_is_closed():
    server, record = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        quiet = session.start_call("wait", id_=1)
        told = session.start_call("report", {"stay": True}, id_="r", token=1)
        await told.event(1)
        for id_ in (1, "r"):
            response = await session.post({**CANCEL, "params": {"requestId": id_}})
            assert response.status == 202
        await quiet.ended.wait()
        await told.ended.wait()
        assert quiet.is_stream
        assert quiet.events() == []
        assert all("id" not in event for event in told.events())
        assert set(record.events) == {"wait started", "wait over", "report over"}
        assert client.app.statistics().in_flight == 0


async def test_delete_ends_what_runs():
    server, record = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        standalone = session.start_get()
        waiting = session.start_call("wait")
        await trio.testing.wait_all_tasks_blocked()
        assert (await session.delete()).status == 204
        await waiting.ended.wait()
        await standalone.ended.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert record.events == ["wait started", "wait over"]
        assert waiting.status == 404
        assert client.app.statistics().sessions == 0


async def test_an_id_that_is_still_running_is_refused_at_once():
    server, record = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        first = session.start_call("wait", id_=1)
        other = session.start_call("wait", id_="1")
        await trio.testing.wait_all_tasks_blocked()
        second = await session.call("add", {"a": 1, "b": 1}, id_=1)
        assert (second.status, second.json()["error"]["code"]) == (400, -32600)
        assert second.json()["id"] == 1
        record.release.set()
        await first.ended.wait()
        await other.ended.wait()
        assert (first.json()["id"], other.json()["id"]) == (1, "1")
        assert (await session.call("add", {"a": 1, "b": 1}, id_=1)).status == 200


async def test_a_session_ends_after_silence_and_not_while_it_works(autojump_clock):
    server, record = make_server()
    async with serving(server, HTTPOptions(session_idle_timeout=10)) as client:
        session = await client.open_session()
        call = session.start_call("wait")
        await trio.sleep(100)
        assert client.app.statistics().sessions == 1
        call.disconnect()
        await trio.sleep(100)
        assert client.app.statistics().sessions == 1
        record.release.set()
        await trio.sleep(9)
        assert (await session.post(ping())).status == 200
        await trio.sleep(9)
        assert client.app.statistics().sessions == 1
        await trio.sleep(2)
        assert client.app.statistics().sessions == 0
        assert (await session.post(ping())).status == 404


async def test_a_session_with_an_open_stream_is_not_silent(autojump_clock):
    server, _ = make_server()
    async with serving(server, HTTPOptions(session_idle_timeout=10)) as client:
        session = await client.open_session()
        stream = session.start_get()
        await trio.sleep(100)
        assert client.app.statistics().sessions == 1
        stream.disconnect()
        await trio.sleep(11)
        assert client.app.statistics().sessions == 0


async def test_changes_come_on_the_standalone_stream_once_also_if_it_opens_later():
    server, _ = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        server.remove_tool("add")
        await trio.testing.wait_all_tasks_blocked()
        stream = session.start_get()
        first = await stream.event(0)
        assert first == {
            "jsonrpc": "2.0",
            "method": "notifications/tools/list_changed",
            "params": {},
        }
        server.remove_tool("wait")
        await stream.event(1)
        await trio.testing.wait_all_tasks_blocked()
        assert len(stream.events()) == 2


async def test_a_second_standalone_stream_takes_over():
    server, _ = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        old = session.start_get()
        await old.started.wait()
        new = session.start_get()
        await new.started.wait()
        await old.ended.wait()
        server.remove_tool("add")
        await new.event(0)
        assert old.events() == []


async def test_a_quiet_standalone_stream_is_kept_alive(autojump_clock):
    server, _ = make_server()
    async with serving(server) as client:
        session = await client.open_session("2025-06-18")
        stream = session.start_get()
        await trio.sleep(40)
        assert stream.body.count(b":\n\n") >= 3


async def test_get_has_to_take_streams():
    server, _ = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        response = session.start_get({"accept": "application/json"})
        await response.ended.wait()
        assert response.status == 406


async def test_a_request_over_its_time_is_told_so(autojump_clock):
    server, record = make_server(request_timeout=1)
    async with serving(server) as client:
        session = await client.open_session()
        response = await session.call("wait")
        assert response.json()["error"]["data"] == {"code": "MCP.TIMEOUT"}
        assert record.events == ["wait started", "wait over"]


async def test_the_end_of_the_service_ends_every_session_in_bounded_time(autojump_clock):
    server, record = make_server()

    @server.tool
    async def stubborn() -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1000)
        return ""

    async with serving(server, HTTPOptions(cleanup_timeout=3)) as client:
        for _ in range(3):
            session = await client.open_session()
            session.start_call("wait")
            session.start_call("stubborn", id_=2)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
    assert trio.current_time() - began == pytest.approx(3)
    assert record.events.count("wait over") == 3


async def test_draining_ends_standalone_streams_and_lets_calls_finish():
    server, record = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        stream = session.start_get()
        await stream.started.wait()
        call = session.start_call("wait")
        await trio.testing.wait_all_tasks_blocked()
        client.app.drain()
        await stream.ended.wait()
        refused = session.start_get()
        await refused.ended.wait()
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        record.release.set()
        await call.ended.wait()
        assert call.json()["result"]["structuredContent"] == {"result": "wait"}


async def test_a_client_that_reads_slowly_makes_its_own_call_wait_and_no_other():
    server, record = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        response = session.start_call("report", {"steps": 1000}, token=1)
        fast = await session.call("add", {"a": 1, "b": 1}, id_=2)
        assert fast.status == 200
        await response.ended.wait()
        assert len(response.events()) == 1001
        assert record.events == ["report over"]


@pytest.mark.parametrize("step", range(1, 25))
async def test_a_connection_lost_at_any_step_leaves_a_working_session(step):
    server, record = make_server()
    record.release.set()
    async with serving(server) as client:
        session = await client.open_session()
        response = session.start_call("report", {"steps": 2, "stay": True}, token=1)
        for _ in range(step):
            await trio.lowlevel.checkpoint()
        response.disconnect()
        await response.ended.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert client.app.statistics().in_flight == 0
        assert (await session.post(ping(8))).json()["id"] == 8


def make_polling_server():
    """A server with a tool that lets its client go, as often as asked."""
    server, record = make_server()

    @server.tool
    async def poll(ctx: Context, before: int = 0, after: int = 0, leave: int = 1) -> str:
        try:
            for step in range(before):
                await ctx.progress(step + 1)
            for time in range(leave):
                await ctx.close_stream(retry_ms=250)
                record.add(f"left {time + 1}")
                await record.release.wait()
                record.release = trio.Event()
            for step in range(after):
                await ctx.progress(before + step + 1)
            return "came back"
        finally:
            record.add("poll over")

    return server, record


def answer_of(response):
    return response.events()[-1]["result"]["structuredContent"]["result"]


async def test_a_call_lets_its_client_go_and_come_back_for_the_answer():
    server, record = make_polling_server()
    async with serving(server) as client:
        session = await client.open_session()
        response = await session.call("poll")
        assert response.is_stream
        ((primed, data),) = [event for event in response.raw_events() if event[0]]
        assert data == ""
        assert response.body.endswith(b"retry: 250\n\n")
        assert response.events() == []
        assert client.app.statistics().in_flight == 1
        resumed = session.start_get({"last-event-id": primed})
        await trio.testing.wait_all_tasks_blocked()
        record.release.set()
        await resumed.ended.wait()
        assert answer_of(resumed) == "came back"


async def test_what_was_said_before_and_after_a_pause_arrives_once_and_in_order():
    server, record = make_polling_server()
    record.release.set()
    async with serving(server) as client:
        session = await client.open_session()
        # The answer exists before the first connection has ended, and still has to wait.
        response = await session.call("poll", {"before": 3, "after": 2}, token=1)
        ids = [id_ for id_, _ in response.raw_events() if id_]
        assert [event["params"]["progress"] for event in response.events()] == [1, 2, 3]
        resumed = session.start_get({"last-event-id": ids[-1]})
        await resumed.ended.wait()
        assert [event["params"]["progress"] for event in resumed.events()[:-1]] == [4, 5]
        assert answer_of(resumed) == "came back"
        again = session.start_get({"last-event-id": ids[1]})
        await again.ended.wait()
        assert len(again.events()) == 5


async def test_a_client_is_let_go_as_often_as_the_call_likes():
    server, record = make_polling_server()
    async with serving(server) as client:
        session = await client.open_session()
        response = await session.call("poll", {"leave": 3})
        last = response.raw_events()[0][0]
        for _ in range(2):
            resumed = session.start_get({"last-event-id": last})
            await trio.testing.wait_all_tasks_blocked()
            record.release.set()
            await resumed.ended.wait()
            assert resumed.body == b"retry: 250\n\n"
        resumed = session.start_get({"last-event-id": last})
        await trio.testing.wait_all_tasks_blocked()
        record.release.set()
        await resumed.ended.wait()
        assert answer_of(resumed) == "came back"


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
async def test_older_revisions_are_not_let_go(revision):
    server, record = make_polling_server()
    record.release.set()
    async with serving(server) as client:
        session = await client.open_session(revision)
        response = await session.call("poll")
        assert response.json()["result"]["content"][0]["text"] == "came back"


async def test_a_client_that_takes_no_stream_is_not_let_go():
    server, record = make_polling_server()
    record.release.set()
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "poll"}}
    async with serving(server) as client:
        session = await client.open_session()
        response = await session.post(call, {"accept": "application/json"})
        assert response.json()["result"]["structuredContent"] == {"result": "came back"}
        record.release.set()
        stateless = await client.stateless("tools/call", {"name": "poll"})
        assert stateless.json()["result"]["structuredContent"] == {"result": "came back"}


async def test_a_client_that_is_gone_already_cannot_be_let_go():
    server, record = make_server()

    @server.tool
    async def late(ctx: Context) -> str:
        await record.release.wait()
        await ctx.close_stream()
        return "done"

    async with serving(server, HTTPOptions(sse_after=0)) as client:
        session = await client.open_session()
        response = session.start_call("late")
        await response.started.wait()
        await trio.testing.wait_all_tasks_blocked()
        response.disconnect()
        await response.ended.wait()
        record.release.set()
        await trio.testing.wait_all_tasks_blocked()
        resumed = session.start_get({"last-event-id": response.raw_events()[0][0]})
        await resumed.ended.wait()
        assert answer_of(resumed) == "done"
        assert b"retry" not in resumed.body


async def test_who_takes_a_stream_over_is_not_hurried_for_the_one_before(autojump_clock):
    """The time after which an answer becomes a stream is that of one connection."""
    server, record = make_server()
    async with serving(server, HTTPOptions(sse_after=2)) as client:
        session = await client.open_session("2025-11-25")
        first = session.start_call("wait", id_=1)
        await trio.testing.wait_all_tasks_blocked()
        resumed = session.start_get({"last-event-id": "2-1"})
        await resumed.started.wait()
        await first.ended.wait()
        await trio.sleep(10)
        assert not resumed.ended.is_set()
        record.release.set()
        await resumed.ended.wait()
        assert answer_of(resumed) == "wait"


@pytest.mark.parametrize("after", [0, 1, 2, 3])
async def test_what_is_told_before_a_slow_answer_does_not_end_the_stream(autojump_clock, after):
    """Whether it is told before the time is over in which an answer may come, then, or later."""
    server, record = make_server()

    @server.tool
    async def tell(ctx: Context) -> str:
        await trio.sleep(after)
        await ctx.progress(1)
        await record.release.wait()
        return "told"

    async with serving(server, HTTPOptions(sse_after=2)) as client:
        session = await client.open_session("2025-11-25")
        response = session.start_call("tell", token=1)
        await response.event(0)
        await trio.sleep(5)
        assert not response.ended.is_set()
        record.release.set()
        await response.ended.wait()
        assert answer_of(response) == "told"


async def test_each_slow_answer_becomes_a_stream_in_its_time(autojump_clock):
    """Whether those that were asked for before it have been answered or not."""
    server, record = make_server()
    async with serving(server, HTTPOptions(sse_after=2)) as client:
        session = await client.open_session("2025-11-25")
        early = session.start_call("wait", id_=1)
        await trio.sleep(1)
        for id_ in range(2, 6):
            await session.call("add", {"a": 1, "b": 2}, id_=id_)
        late = session.start_call("wait", id_=7)
        began = trio.current_time()
        await early.started.wait()
        assert trio.current_time() == pytest.approx(began + 1)
        assert not late.started.is_set()
        await late.started.wait()
        assert trio.current_time() == pytest.approx(began + 2)
        record.release.set()
        await early.ended.wait()
        await late.ended.wait()
        assert early.is_stream
        assert late.is_stream


async def test_a_call_that_let_its_client_go_can_be_cancelled():
    server, record = make_polling_server()
    async with serving(server) as client:
        session = await client.open_session()
        response = await session.call("poll", id_=5)
        resumed = session.start_get({"last-event-id": response.raw_events()[0][0]})
        await resumed.started.wait()
        await session.post({**CANCEL, "params": {"requestId": 5}})
        await resumed.ended.wait()
        assert resumed.events() == []
        assert record.events == ["left 1", "poll over"]


async def test_a_call_that_let_its_client_go_keeps_its_session(autojump_clock):
    server, record = make_polling_server()
    async with serving(server, HTTPOptions(session_idle_timeout=10)) as client:
        session = await client.open_session()
        response = await session.call("poll")
        await trio.sleep(100)
        assert client.app.statistics().in_flight == 1
        record.release.set()
        await trio.sleep(9)
        resumed = session.start_get({"last-event-id": response.raw_events()[0][0]})
        await resumed.ended.wait()
        assert answer_of(resumed) == "came back"


async def test_a_negative_time_is_refused():
    server, _ = make_server()

    @server.tool
    async def bad(ctx: Context) -> str:
        await ctx.close_stream(retry_ms=-1)
        return ""

    async with serving(server) as client:
        session = await client.open_session()
        assert (await session.call("bad")).json()["result"]["isError"]


@pytest.mark.parametrize("step", range(1, 25))
async def test_a_connection_lost_at_any_step_of_a_pause_costs_no_answer(step):
    server, record = make_polling_server()
    record.release.set()
    async with serving(server) as client:
        session = await client.open_session()
        response = session.start_call("poll", {"before": 1, "after": 1}, token=1)
        for _ in range(step):
            await trio.lowlevel.checkpoint()
        response.disconnect()
        await response.ended.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert record.events == ["left 1", "poll over"]
        resumed = session.start_get({"last-event-id": "2-0"})
        await resumed.ended.wait()
        seen = response.events() + resumed.events()
        assert answer_of(resumed) == "came back"
        assert seen.count(resumed.events()[-1]) == 1 or answer_of(response) == "came back"


async def test_what_was_said_before_a_cancellation_is_not_taken_for_the_answer():
    server, _ = make_server()
    async with serving(server) as client:
        session = await client.open_session("2025-06-18")
        dispatcher = next(iter(client.app.sessions)).dispatcher

        @server.tool
        async def doomed(ctx: Context) -> str:
            await ctx.progress(1)
            told = Notification(CANCEL["method"], {"requestId": ctx.request_id})
            dispatcher.feed(Envelope(told))
            await trio.sleep_forever()

        # Whether the connection wakes up before the cancelled call is over is chance.
        for id_ in range(20):
            response = await session.call("doomed", id_=id_, token=1)
            assert response.is_stream
            assert [event["method"] for event in response.events()] == ["notifications/progress"]


def call(id_, name, **arguments):
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params}


async def test_a_batch_is_answered_although_its_first_request_was_cancelled():
    server, record = make_server()
    async with serving(server) as client:
        session = await client.open_session("2025-03-26")
        batch = session.start_post([call(1, "wait", label="a"), call(2, "wait", label="b")])
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(record.events) == ["a started", "b started"]
        await session.post({**CANCEL, "params": {"requestId": 1}})
        record.release.set()
        with trio.fail_after(5):
            await batch.ended.wait()
        assert [item["id"] for item in batch.json()] == [2]


async def test_the_ids_of_a_batch_are_taken_until_the_batch_is_answered():
    server, record = make_server()
    async with serving(server) as client:
        session = await client.open_session("2025-03-26")
        batch = session.start_post([ping(1), call(2, "wait")])
        await record.until("wait started")
        await trio.testing.wait_all_tasks_blocked()
        assert (await session.post(ping(1))).status == 400
        record.release.set()
        with trio.fail_after(5):
            await batch.ended.wait()
        assert {item["id"] for item in batch.json()} == {1, 2}
        assert (await session.post(ping(1))).json()["result"] == {}


async def test_the_refusal_of_an_unreadable_message_takes_no_answer_from_a_call_with_its_id():
    server, record = make_server()
    async with serving(server) as client:
        session = await client.open_session("2025-03-26")
        waiting = session.start_post(call(1, "wait"))
        await record.until("wait started")
        batch = await session.post([{"jsonrpc": "2.0", "id": 1}, ping(2)])
        assert {item["id"]: "error" in item for item in batch.json()} == {1: True, 2: False}
        record.release.set()
        with trio.fail_after(5):
            await waiting.ended.wait()
        assert waiting.json()["id"] == 1
        assert waiting.json()["result"]["content"][0]["text"] == "wait"


async def test_posts_with_one_id_at_the_same_moment_are_all_answered():
    server, _ = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        posts = [
            session.start_post({"jsonrpc": "2.0", "id": 1, "method": "nope"}) for _ in range(5)
        ]
        with trio.fail_after(5):
            for post in posts:
                await post.ended.wait()
        assert {post.json()["error"]["code"] for post in posts} == {-32601, -32600}


async def test_a_client_that_takes_no_stream_gets_the_answer_alone():
    server, _ = make_server()
    params = {"name": "report", "arguments": {}, "_meta": {"progressToken": 1}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with serving(server) as client:
        session = await client.open_session()
        response = await session.post(call, {"accept": "application/json"})
        assert response.json()["result"]["structuredContent"] == {"result": "reported"}


async def test_a_session_lives_on_a_server_that_says_disconnect_with_the_last_byte():
    server, _ = make_server()
    async with serving(server) as client:
        client.extension, client.hasty = False, True
        session = await client.open_session()
        assert (await session.post(ping())).json()["result"] == {}
        called = await session.call("report", token=1)
        assert called.events()[-1]["id"] == 1
        await trio.testing.wait_all_tasks_blocked()
        assert client.app.statistics().sessions == 1


async def test_the_requests_of_all_sessions_count_together_and_a_ping_is_always_answered():
    server, record = make_server(load=LoadLimits(max_in_flight=3))
    async with serving(server) as client:
        sessions = [await client.open_session() for _ in range(4)]
        running = [session.start_call("wait") for session in sessions[:3]]
        await trio.testing.wait_all_tasks_blocked()
        refused = await sessions[3].call("add", {"a": 1, "b": 1}, id_="x")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["id"] == "x"
        stateless = await client.stateless("tools/call", {"name": "add"})
        assert stateless.status == 503
        assert (await sessions[0].post(ping("p"))).json()["result"] == {}
        record.release.set()
        for response in running:
            await response.ended.wait()
        assert (await sessions[3].call("add", {"a": 1, "b": 1})).status == 200


async def test_delete_has_to_name_the_right_version_if_it_names_one():
    server, _ = make_server()
    async with serving(server) as client:
        session = await client.open_session("2025-06-18")
        for version in ("2099-01-01", "2025-11-25"):
            refused = await client.request(
                "DELETE",
                headers={"mcp-session-id": session.id, "mcp-protocol-version": version},
            )
            assert refused.status == 400
        assert (await session.post(ping())).status == 200


async def test_a_refused_version_is_answered_with_the_id_of_the_request():
    server, _ = make_server()
    async with serving(server) as client:
        session = await client.open_session("2025-11-25")
        response = await session.post(ping("mine"), {"mcp-protocol-version": "2025-06-18"})
        assert (response.status, response.json()["id"]) == (400, "mine")


async def test_no_two_events_of_a_session_have_one_id():
    server, _ = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        ids = []
        for _ in range(3):
            stream = session.start_get()
            await stream.started.wait()
            await trio.testing.wait_all_tasks_blocked()
            server.notices.tell(Notice("notifications/tools/list_changed"))
            await stream.event(0)
            ids += [id_ for id_, _ in stream.raw_events()]
            stream.disconnect()
            await stream.ended.wait()
        called = await session.call("report", token=1)
        ids += [id_ for id_, _ in called.raw_events()]
        assert len(set(ids)) == len(ids) == 6 + 4
