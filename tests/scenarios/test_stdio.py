"""Standard streams: one message per line, and what ends a process."""

import json

import trio
import trio.testing

from tests.http.tools import make_server
from tests.scenarios.manifest import scenario
from tests.scenarios.peers import peer_of
from tests.scenarios.servers import MODEL, full_server, uses


@scenario("D1")
async def test_a_line_is_a_message(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision) as peer:
        for method, params in uses(revision).items():
            await peer.ask(method, params)
        await peer.call("echo", {"value": {"x": "a\nb\r\n\u2028\u0085c"}})
        await peer.call("report", meta={"progressToken": 1})
        await peer.call("fail")
        # Neither empty lines nor carriage returns are part of a message.
        await peer.write(
            b"\r\n\n" + json.dumps(peer.request("tools/list", id_="cr")).encode() + b"\r"
        )
        await peer.answer("cr")
        lines = peer.received.split(b"\n")
        assert lines.pop() == b""
        for line in lines:
            assert json.loads(line)["jsonrpc"] == "2.0"
            assert line == line.strip()


@scenario("D2")
async def test_the_end_of_the_input_ends_the_server(transport, revision, autojump_clock):
    server, record = make_server()
    async with peer_of(server, transport, revision) as peer:
        quick = await peer.start_call("add", {"a": 1, "b": 2})
        await peer.start_call("wait")
        await record.until("wait started")
        began = trio.current_time()
        await peer.hang_up()
        assert (await peer.answer(quick))["result"]["content"][0]["text"] == "3"
        await peer.closed()
        assert trio.current_time() - began < 1
        assert record.events == ["wait started", "wait over"]


@scenario("D3")
async def test_nothing_comes_for_a_request_that_was_taken_back(transport, revision):
    server, record = make_server()
    async with peer_of(server, transport, revision) as peer:
        id_ = await peer.start_call("report", {"stay": True}, meta={"progressToken": "t"})
        await peer.note("notifications/progress", 1)
        await peer.cancel(id_)
        await record.until("report over")
        heard = len(peer.heard)
        await trio.testing.wait_all_tasks_blocked()
        assert len(peer.heard) == heard
        assert peer.answers(id_) == []
        await peer.result("tools/list")


@scenario("D6")
async def test_no_request_is_written_and_no_answer_read(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision, MODEL) as peer:
        asked = await peer.call("think")
        assert asked["resultType"] == "input_required"
        heard = len(peer.heard)
        for id_ in (0, 1, "think"):
            await peer.say({"jsonrpc": "2.0", "id": id_, "result": {"role": "assistant"}})
        await trio.testing.wait_all_tasks_blocked()
        assert len(peer.heard) == heard
        assert b'"method"' not in peer.received.replace(b'"method":"sampling/createMessage"', b"")
