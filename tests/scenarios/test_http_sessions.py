"""Streamable HTTP with sessions: what goes on which stream, and how a session is known."""

import math

import trio
import trio.testing

from mcp_trio import Context
from tests.http.tools import make_server
from tests.messages import PING, initialize
from tests.scenarios.manifest import scenario
from tests.scenarios.peers import house, peer_of
from tests.scenarios.servers import MODEL, full_server

EVIL = {"origin": "https://evil.example"}
OWN = {"origin": "http://localhost:3000"}
STREAM = {"accept": "text/event-stream"}
CHANGED = "notifications/tools/list_changed"
NOTE = {"jsonrpc": "2.0", "method": "notifications/none"}


def named(peer, **more):
    """The headers of a request in the session of a peer."""
    return {"mcp-session-id": peer.session, **more}


async def resume(peer, last):
    """Come back for what was sent after an event, until that stream ends."""
    stream = peer.http.start("GET", headers=named(peer, **STREAM, **{"last-event-id": last}))
    await stream.started.wait()
    await trio.testing.wait_all_tasks_blocked()
    return stream


@scenario("H1")
async def test_one_path_takes_post_and_get_but_not_from_foreign_pages(transport, revision):
    server, record = make_server()
    async with peer_of(server, transport, revision) as peer:
        assert peer.standalone.status == 200
        for method in ("GET", "POST", "DELETE", "OPTIONS"):
            response = await peer.http.request(method, headers=named(peer, **EVIL))
            assert response.status == 403
            assert "access-control-allow-origin" not in response.headers
        peer.headers = EVIL
        call = await peer.start_call("wait")
        await peer.post(call).ended.wait()
        assert peer.status(call) == 403
        assert record.events == []
        peer.headers = OWN
        await peer.result("tools/list")


@scenario("H3")
async def test_a_notification_has_an_empty_response_and_a_request_an_answer(transport, revision):
    server, _ = make_server()
    async with peer_of(server, transport, revision) as peer:
        answer = {"jsonrpc": "2.0", "id": 99, "result": {}}
        for message in (NOTE, answer, *([[NOTE, NOTE]] if revision.batches else [])):
            response = await peer.http.post(message, named(peer))
            assert (response.status, response.body) == (202, b"")
        plain = await peer.start_call("add", {"a": 1, "b": 2})
        await peer.answer(plain)
        assert peer.post(plain).headers["content-type"] == "application/json"
        told = await peer.start_call("report", meta={"progressToken": 1})
        await peer.answer(told)
        assert peer.post(told).headers["content-type"] == "text/event-stream"


@scenario("H4")
async def test_a_stream_ends_after_the_answer_that_everything_comes_before(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision) as peer:
        await peer.result("logging/setLevel", {"level": "debug"})
        for tool, count in (("report", 2), ("chat", 3)):
            id_ = await peer.start_call(tool, meta={"progressToken": tool})
            await peer.post(id_).ended.wait()
            *before, last = peer.post(id_).events()
            assert len(before) == count
            assert all("method" in message for message in before)
            assert last["id"] == id_


@scenario("H5")
async def test_a_stream_opens_with_an_id_and_is_let_go_with_a_time(transport, revision):
    server, record = make_server()

    @server.tool
    async def patient(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.close_stream(retry_ms=70)
        await record.release.wait()
        await ctx.progress(2)
        return "came back"

    async with peer_of(server, transport, revision) as peer:
        await trio.testing.wait_all_tasks_blocked()
        assert peer.standalone.raw_events()[0][0]
        call = await peer.start_call("patient", meta={"progressToken": 1})
        stream = peer.post(call)
        await stream.ended.wait()
        (first, empty), (last, _), _ = stream.raw_events()
        assert first
        assert empty == ""
        assert stream.body.rstrip().endswith(b"retry: 70")
        record.release.set()
        again = await resume(peer, last)
        assert [e.get("params", {}).get("progress") for e in again.events()] == [2, None]
        assert again.events()[-1]["id"] == call


@scenario("H6")
async def test_the_stream_of_a_session_carries_no_answer(transport, revision):
    server, _ = make_server()
    async with peer_of(server, transport, revision) as peer:
        assert (peer.standalone.status, peer.standalone.is_stream) == (200, True)
        await peer.result("tools/list")
        await peer.call("report", meta={"progressToken": 1})
        server.remove_tool("add")
        assert (await peer.standalone.event(0))["method"] == CHANGED
        await trio.testing.wait_all_tasks_blocked()
        assert len(peer.standalone.events()) == 1
        refused = await peer.http.request("GET", headers=named(peer, accept="application/json"))
        assert refused.status == 406


@scenario("H7")
async def test_a_message_comes_on_one_stream(transport, revision):
    server, record = make_server()
    async with peer_of(server, transport, revision) as peer:
        newer = peer.http.start("GET", headers=named(peer, **STREAM))
        await newer.started.wait()
        stay = {"stay": True}
        calls = [
            await peer.start_call("report", stay, meta={"progressToken": token}) for token in "ab"
        ]
        await peer.note("notifications/progress", 3)
        server.remove_tool("add")
        await peer.call("report", meta={"progressToken": "c"})
        record.release.set()
        for call in calls:
            await peer.post(call).ended.wait()
        await trio.testing.wait_all_tasks_blocked()
        streams = [peer.standalone, newer, *map(peer.post, calls)]
        seen = [event for stream in streams for event in stream.events()]
        assert [event.get("method") for event in seen].count(CHANGED) == 1
        for call, token in zip(calls, "ab", strict=True):
            *before, last = peer.post(call).events()
            assert {event["params"]["progressToken"] for event in before} == {token}
            assert last["id"] == call


@scenario("H8")
async def test_event_ids_are_unique_and_name_one_stream(transport, revision):
    server, record = make_server()
    async with peer_of(server, transport, revision) as peer:
        arguments = {"steps": 3, "stay": True}
        one = await peer.start_call("report", arguments, meta={"progressToken": "one"})
        two = await peer.start_call("report", arguments, meta={"progressToken": "two"})
        await peer.note("notifications/progress", 5)
        server.remove_tool("add")
        await peer.standalone.event(0)
        streams = [peer.standalone, peer.post(one), peer.post(two)]
        ids = [id_ for stream in streams for id_, data in stream.raw_events() if data]
        assert len(ids) == 7
        assert all(ids)
        assert len(set(ids)) == len(ids)
        last = peer.post(one).raw_events()[-2][0]
        peer.post(one).disconnect()
        record.release.set()
        await peer.post(two).ended.wait()
        again = await resume(peer, last)
        await again.ended.wait()
        *told, answer = again.events()
        assert [event["params"]["progressToken"] for event in told] == ["one"]
        assert [event["params"]["progress"] for event in told] == [3]
        assert answer["id"] == one
        for made_up in ("x", "999999-1"):
            nothing = await resume(peer, made_up)
            assert nothing.status == 400 or nothing.events() == []


@scenario("H9")
async def test_a_session_is_known_by_its_name_until_it_ends(transport, revision):
    server, _ = make_server()
    async with peer_of(server, transport, revision) as peer:
        assert all(0x21 <= ord(char) <= 0x7E for char in peer.session)
        for method, body in (("POST", b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'),):
            for name, status in ((None, 400), ("made-up", 404)):
                headers = {"mcp-session-id": name, "mcp-protocol-version": revision.date}
                response = await peer.http.request(method, body=body, headers=headers)
                assert response.status == status
                assert response.json()["id"] == 1
        for method in ("GET", "DELETE"):
            headers = {"mcp-session-id": "made-up", **STREAM}
            assert (await peer.http.request(method, headers=headers)).status == 404
        session = peer.session
        await peer.hang_up()
        response = await peer.http.post(PING, {"mcp-session-id": session})
        assert response.status == 404
        assert "mcp-session-id" not in response.headers


@scenario("H10")
async def test_a_client_ends_its_session(transport, revision):
    server, record = make_server()
    async with house(server, transport) as place:
        peer, other = await place.connect(revision), await place.connect(revision)
        call = await peer.start_call("wait")
        await record.until("wait started")
        assert (await place.http.request("DELETE", headers=named(peer))).status == 204
        await record.until("wait started", "wait over")
        await peer.post(call).ended.wait()
        await peer.standalone.ended.wait()
        assert (await place.http.request("DELETE", headers=named(peer))).status == 404
        await other.result("tools/list")


@scenario("H11")
async def test_the_version_in_the_header_is_that_of_the_session(transport, revision):
    server, _ = make_server()
    async with peer_of(server, transport, revision) as peer:
        other = "2025-11-25" if revision.date != "2025-11-25" else "2025-06-18"
        for wrong in ("3000-01-01", "x", other, "2026-07-28"):
            peer.headers = {"mcp-protocol-version": wrong}
            answer = await peer.ask("tools/list")
            assert answer["error"]
            assert peer.status(answer["id"]) == 400
            fields = named(peer, **STREAM, **{"mcp-protocol-version": wrong})
            assert (await peer.http.request("GET", headers=fields)).status in {400, 405}
        peer.headers = {"mcp-protocol-version": None}
        await peer.result("tools/list")


@scenario("H12")
async def test_nobody_guesses_a_session(transport, revision):
    server, _ = make_server()
    names = []
    async with house(server, transport) as place:
        for _ in range(10):
            response = await place.http.post(initialize(revision.date, id_=0))
            names.append(response.headers["mcp-session-id"])
    assert len(set(names)) == len(names)
    for name in names:
        # Long, and nothing of it stays the same from one session to the next.
        assert len(name) * math.log2(64) >= 128
    columns = [{name[i] for name in names} for i in range(min(map(len, names)))]
    assert all(len(column) > 1 for column in columns)


@scenario("H13")
async def test_a_lost_connection_ends_no_request(transport, revision):
    server, record = make_server()
    async with peer_of(server, transport, revision) as peer:
        quiet = await peer.start_call("wait")
        told = await peer.start_call("report", {"stay": True}, meta={"progressToken": 1})
        await peer.note("notifications/progress", 1)
        last = peer.post(told).raw_events()[-1][0]
        for call in (quiet, told):
            peer.post(call).disconnect()
            await peer.post(call).ended.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert record.events == ["wait started"]
        record.release.set()
        again = await resume(peer, last)
        await again.ended.wait()
        assert [event.get("id") for event in again.events()] == [told]
        assert set(record.events) == {"wait started", "wait over", "report over"}


@scenario("A9")
async def test_a_client_needs_no_more_than_the_handshake_ping_and_tools(transport, revision):
    server, _ = make_server()
    async with house(server, transport) as place:
        opened = await place.http.post(initialize(revision.date, id_=0))
        fields = {"mcp-session-id": opened.headers["mcp-session-id"]}
        if revision.version_header:
            fields["mcp-protocol-version"] = opened.json()["result"]["protocolVersion"]
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await place.http.post(ready, fields)).status == 202
        assert (await place.http.post(PING, fields)).json()["result"] == {}
        ask = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        tools = (await place.http.post(ask, fields)).json()["result"]["tools"]
        assert tools[0]["name"] == "add"
        params = {"name": "add", "arguments": {"a": 2, "b": 3}}
        ask = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}
        called = (await place.http.post(ask, fields)).json()["result"]
        assert called["content"] == [{"type": "text", "text": "5"}]


@scenario("A10")
async def test_the_stream_of_a_request_that_was_taken_back_is_closed(transport, revision):
    server, record = make_server()
    async with peer_of(server, transport, revision) as peer:
        quiet = await peer.start_call("wait")
        told = await peer.start_call("report", {"stay": True}, meta={"progressToken": 1})
        await peer.note("notifications/progress", 1)
        for call in (quiet, told):
            await peer.cancel(call)
            await peer.post(call).ended.wait()
            assert peer.answers(call) == []
        assert set(record.events) == {"wait started", "wait over", "report over"}
        await peer.result("tools/list")


@scenario("X2")
async def test_a_question_comes_on_the_stream_of_the_request_that_asks(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision, MODEL) as peer:
        call = await peer.start_call("think")
        question = await peer.question("sampling/createMessage")
        assert question in peer.post(call).events()
        await trio.testing.wait_all_tasks_blocked()
        assert question not in peer.standalone.events()
        text = {"type": "text", "text": "four"}
        await peer.reply(question, {"role": "assistant", "model": "m", "content": text})
        assert (await peer.answer(call))["result"]["content"] == [text]
        assert peer.post(call).events()[-1]["id"] == call
