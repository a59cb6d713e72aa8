"""What ends a request, and how far it has come."""

import trio
import trio.testing

from mcp_trio import Context
from mcp_trio.wire.revisions import R2025_03_26
from tests.http.tools import make_server
from tests.scenarios.manifest import scenario
from tests.scenarios.peers import house, peer_of
from tests.scenarios.servers import MODEL, full_server, listen

PROGRESS = "notifications/progress"


@scenario("C1")
async def test_a_request_that_is_taken_back_stops_and_is_not_answered(transport, revision):
    server, record = make_server()
    async with peer_of(server, transport, revision) as peer:
        one = await peer.start_call("wait", {"label": "one"}, id_=1001)
        await record.until("one started")
        await peer.cancel(one)
        await record.until("one started", "one over")
        await trio.testing.wait_all_tasks_blocked()
        assert peer.answers(one) == []
        two = await peer.start_call("wait", {"label": "two"}, id_=1002)
        await record.until("one started", "one over", "two started")
        # Unknown, over, of another type, no id at all: nothing of it is a running request.
        others = (77, one, "1002", 1002.0, True, None, {}, [1002])
        for wrong in ({}, *({"requestId": other, "reason": 7} for other in others)):
            await peer.tell("notifications/cancelled", wrong)
        if transport == "http" and revision.stateless:
            await peer.tell("notifications/cancelled", {"requestId": two})
        await trio.testing.wait_all_tasks_blocked()
        assert record.events[-1] == "two started"
        record.release.set()
        assert (await peer.answer(two))["result"]["content"][0]["text"] == "two"
        # A race is lost without a word.
        await peer.cancel(two)
        await peer.result("tools/list")


@scenario("X7")
async def test_equal_ids_of_two_clients_are_two_requests(transport, revision):
    server, record = make_server()
    async with house(server, transport) as place:
        one, two = await place.connect(revision), await place.connect(revision)
        await one.start_call("wait", {"label": "one"}, id_=7)
        await two.start_call("wait", {"label": "two"}, id_=7)
        await trio.testing.wait_all_tasks_blocked()
        await one.cancel(7)
        await trio.testing.wait_all_tasks_blocked()
        assert "one over" in record.events
        assert "two over" not in record.events
        record.release.set()
        assert (await two.answer(7))["result"]["content"][0]["text"] == "two"
        assert one.answers(7) == []


@scenario("C1")
async def test_a_client_takes_back_its_own_requests_only(transport, revision):
    server, record = make_server()
    async with house(server, transport) as place:
        mine, yours = await place.connect(revision), await place.connect(revision)
        await yours.start_call("wait", id_="same")
        await record.until("wait started")
        await mine.tell("notifications/cancelled", {"requestId": "same"})
        await mine.result("tools/list")
        assert record.events == ["wait started"]
        record.release.set()
        assert "result" in await yours.answer("same")


@scenario("C3")
async def test_the_server_cancels_no_request_of_the_client(transport, revision, autojump_clock):
    server, _ = full_server(request_timeout=2)
    async with peer_of(server, transport, revision, MODEL) as peer:
        subscription = await listen(peer, toolsListChanged=True)
        await peer.error("tools/call", {"name": "wait"})
        await peer.call("think")
        await peer.call("fail")
        call = await peer.start_call("report", {"stay": True}, meta={"progressToken": 1})
        await peer.note(PROGRESS, 1)
        await peer.cancel(call)
        server.drain()
        await peer.answer(subscription)
        assert peer.notes("notifications/cancelled") == []


@scenario("P1")
async def test_progress_grows_under_its_token_while_the_request_runs(transport, revision):
    server, _ = make_server()
    kept = []

    @server.tool
    async def walk(ctx: Context) -> str:
        kept.append(ctx)
        for value in (1, 1, 0.5, 1.5, 1.5, 7):
            await ctx.progress(value, 7, "on the way")
        return "there"

    async with peer_of(server, transport, revision) as peer:
        for token in ("t", 0, 12, ""):
            peer.heard.clear()
            answer = await peer.ask("tools/call", {"name": "walk"}, meta={"progressToken": token})
            await trio.testing.wait_all_tasks_blocked()
            assert peer.heard[-1] == answer
            told = [note["params"] for note in peer.notes(PROGRESS)]
            assert [each["progress"] for each in told] == [1, 1.5, 7]
            assert {each["total"] for each in told} == {7}
            assert all(type(each["progressToken"]) is type(token) for each in told)
            assert {each["progressToken"] for each in told} == {token}
            has_text = revision >= R2025_03_26
            assert all(("message" in each) is has_text for each in told)
        peer.heard.clear()
        await peer.call("walk")
        for wrong in (None, 1.5, True, {}, ["t"]):
            await peer.call("walk", meta={"progressToken": wrong})
        for context in kept:
            await context.progress(100)
            await context.log("emergency", "late")
        await trio.testing.wait_all_tasks_blocked()
        assert peer.notes() == []
        await peer.result("tools/list")


@scenario("X6")
async def test_whatever_ends_a_request_ends_all_of_it(transport, revision, autojump_clock):
    server, record = make_server(request_timeout=3)

    @server.tool
    async def family(size: int = 3) -> str:
        async def child(number):
            try:
                await trio.sleep_forever()
            finally:
                record.add(f"child {number} over")

        try:
            async with trio.open_nursery() as nursery:
                for number in range(size):
                    nursery.start_soon(child, number)
                await trio.lowlevel.checkpoint()
                record.add("started")
        finally:
            record.add("over")
        return "never"

    async def begun(peer):
        record.events.clear()
        call = await peer.start_call("family")
        await record.until("started")
        return call

    async def all_over():
        await record.until_last("over")
        ends = [f"child {number} over" for number in range(3)]
        assert sorted(record.events[:-1]) == [*ends, "started"]
        assert record.events[-1] == "over"

    async with house(server, transport) as place:
        peer = await place.connect(revision)
        await peer.cancel(await begun(peer))
        await all_over()
        late = await begun(peer)
        assert (await peer.answer(late))["error"]["data"]["code"] == "MCP.TIMEOUT"
        await all_over()
        await begun(peer)
        await peer.hang_up()
        await all_over()
        last = await place.connect(revision)
        await begun(last)
    await all_over()
