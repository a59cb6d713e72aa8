"""Callbacks that are told things: in order, and without harm to the session (CASES 58)."""

import pytest
import trio
import trio.testing

from mcp_trio import ClientCallbacks, ClientOptions, Context, MCPClient, MCPServer
from mcp_trio.client import tidings
from mcp_trio.jsonrpc.messages import Notification, Result
from mcp_trio.testing import MemoryTransport, ScriptedPeer
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28
from tests.client.scripts import Script, scripted

both_eras = pytest.mark.parametrize("revision", [R2025_11_25, R2026_07_28], ids=str)
LINE = "notifications/message"


def make_server():
    server = MCPServer("talks")

    @server.tool
    async def talk(ctx: Context) -> str:
        for number in range(3):
            await ctx.log("error", number, logger="voice")
        return "said"

    @server.tool
    async def change(ctx: Context) -> str:
        server.notify_resource_updated("test://a")
        server.add_tool(lambda: 1, name=f"more{len(server.tools)}")
        return "changed"

    server.add_resource("test://a", lambda: "a", name="a")
    return server


def connected(server, revision, **callbacks):
    options = ClientOptions(revisions=(revision,))
    return MCPClient(server, callbacks=ClientCallbacks(**callbacks), options=options)


@both_eras
async def test_lines_come_in_order_and_before_the_result(revision):
    lines = []
    async with connected(make_server(), revision, logging=lines.append) as client:
        await client.set_log_level("debug")
        await client.call_tool("talk")
        assert [(line.level, line.data, line.logger) for line in lines] == [
            ("error", number, "voice") for number in range(3)
        ]


@both_eras
async def test_an_async_callback_runs_one_at_a_time_and_in_order(autojump_clock, revision):
    steps = []

    async def slow(line):
        steps.append(f"{line.data} begins")
        await trio.sleep(5)
        steps.append(f"{line.data} ends")

    async with connected(make_server(), revision, logging=slow) as client:
        await client.set_log_level("debug")
        await client.call_tool("talk")
        await trio.sleep(16)
    assert steps == [f"{n} {what}" for n in range(3) for what in ("begins", "ends")]


@both_eras
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_callback_that_raises_is_logged_and_the_session_lives(
    revision, asynchronous, caplog
):
    def fail(_line):
        raise RuntimeError("mine")

    async def fail_later(_line):
        raise RuntimeError("mine")

    callback = fail_later if asynchronous else fail
    async with connected(make_server(), revision, logging=callback) as client:
        await client.set_log_level("debug")
        for _ in range(2):
            assert (await client.call_tool("talk")).content[0].text == "said"
        await trio.testing.wait_all_tasks_blocked()
    failures = [r for r in caplog.records if r.name == "mcp_trio.client"]
    assert len(failures) == 6
    assert all(LINE in r.getMessage() and "mine" in str(r.exc_info[1]) for r in failures)


@both_eras
async def test_progress_that_raises_comes_out_of_its_call_and_the_session_lives(revision):
    server = make_server()

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(1)
        return "worked"

    def fail(*_report):
        raise RuntimeError("mine")

    async with connected(server, revision) as client:
        with pytest.raises(RuntimeError, match="mine"):
            await client.call_tool("work", on_progress=fail)
        assert (await client.call_tool("work")).content[0].text == "worked"


@both_eras
async def test_changes_of_lists_and_resources_are_told(revision):
    lists, resources = [], []
    callbacks = {"list_changed": lists.append, "resource_updated": resources.append}
    async with connected(make_server(), revision, **callbacks) as client:
        await trio.testing.wait_all_tasks_blocked()
        async with client.listen(tools=True, resource="test://a"):
            await client.call_tool("change")
            await trio.testing.wait_all_tasks_blocked()
        # Once, however many streams tell of it.
        assert (lists, resources) == (["tools"], ["test://a"])


async def test_what_is_told_in_the_wrong_form_is_left_out(caplog):
    heard = []
    callbacks = ClientCallbacks(logging=heard.append, resource_updated=heard.append)
    async with scripted({}, callbacks=callbacks, revisions=("2025-11-25",)) as (client, script):
        await script.notice(LINE, level=7, data=1)
        await script.notice("notifications/resources/updated", uri=None)
        await script.notice("notifications/unheard/of")
        await script.notice(LINE, level="info", data=None)
        await trio.testing.wait_all_tasks_blocked()
        await client.call("initialize")  # the session lives
    assert [line.data for line in heard] == [None]
    assert caplog.text.count("cannot be read") == 2


async def test_what_a_stuck_callback_is_told_is_bounded(monkeypatch, caplog):
    monkeypatch.setattr(tidings, "WAITING", 3)
    begun = []

    async def stuck(line):
        begun.append(line.data)
        await trio.sleep_forever()

    callbacks = ClientCallbacks(logging=stuck)
    async with scripted({}, callbacks=callbacks) as (client, script):
        for number in range(10):
            await script.notice(LINE, level="info", data=number)
            await trio.testing.wait_all_tasks_blocked()
        await client.ping()
        assert client._tidings.dropped == 6
    # Leaving closes what never began; a warning of Python would fail this test.
    assert begun == [0]
    assert caplog.text.count("takes too long") == 1


@both_eras
async def test_a_line_may_come_before_the_revision_is_agreed_on(revision):
    def early(request):
        return Notification(LINE, {"level": "info", "data": request.method})

    lines = []
    callbacks = ClientCallbacks(logging=lambda line: lines.append(line.data))
    ours, theirs = MemoryTransport.pair()
    script = Script(ScriptedPeer(theirs), {})
    method = "server/discover" if revision.stateless else "initialize"

    async def serve():
        message = await script.peer.hear()
        await script.peer.say(early(message))
        await script.peer.say(Result(message.id, script.answers[method]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        options = ClientOptions(revisions=(revision,))
        async with MCPClient(ours, callbacks=callbacks, options=options) as client:
            assert client.revision is revision
        assert lines == [method]
    await theirs.aclose()
