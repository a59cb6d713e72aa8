"""Hearing of changes: streams that break and come back, sessions that end (U1 to U8, D4)."""

import functools

import pytest
import trio
import trio.testing

from mcp_trio import ClientCallbacks, ClientOptions, MCPClient, MCPServer, RemoteError
from mcp_trio.client.listening import MISSED, STEADY, Changes, wait_before
from mcp_trio.engine.backoff import Backoff
from mcp_trio.errors import (
    MethodNotFoundError,
    OverloadedError,
    TransportClosedError,
    TransportError,
)
from mcp_trio.jsonrpc.messages import Error, Notification, Result
from mcp_trio.testing import cancelled_after
from mcp_trio.wire.notices import SubscriptionFilter
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28
from tests.client.scripts import scripted

both_eras = pytest.mark.parametrize("revision", [R2025_11_25, R2026_07_28], ids=str)
LISTEN = "subscriptions/listen"
TOOLS_CHANGED = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
QUICK = Backoff(first=2, longest=2, attempts=3)


class Streams:
    """A server whose streams of changes are in the hands of the test."""

    def __init__(self, honoured=None):
        self.script = None
        self.open = []
        self.honoured = honoured
        self.refuse = None

    def __call__(self, request):
        if self.refuse is not None:
            return self.refuse(request)
        self.open.append(request)
        wanted = self.honoured or request.params["notifications"]
        return Notification(
            "notifications/subscriptions/acknowledged",
            {"notifications": wanted, "_meta": _tag(request)},
        )

    async def tell(self, method=TOOLS_CHANGED, **params):
        await self.script.notice(method, self.open[-1].id, **params)

    async def end(self):
        await self.script.peer.say(Result(self.open[-1].id, {"resultType": "complete"}))

    async def cut(self, client):
        """Lose the stream and not the line, as happens over HTTP."""
        client.session._lost(self.open[-1].id, "the stream ended before the answer")
        await trio.testing.wait_all_tasks_blocked()


def _tag(request):
    return {"io.modelcontextprotocol/subscriptionId": request.id}


@pytest.fixture
def streams():
    return Streams()


async def test_a_stream_that_breaks_is_opened_again_and_something_may_have_been_missed(
    autojump_clock, streams
):
    async with scripted({LISTEN: streams}, reconnect=QUICK) as (client, script):
        streams.script = script
        async with client.listen() as changes:
            await streams.tell()
            assert await anext(changes) == TOOLS_CHANGED
            began = trio.current_time()
            await streams.cut(client)
            assert await anext(changes) == MISSED
            assert 1 <= trio.current_time() - began <= 2
            await streams.tell()
            assert await anext(changes) == TOOLS_CHANGED
            await streams.end()
            with pytest.raises(StopAsyncIteration):
                await anext(changes)
    first, second = streams.open
    assert first.params == second.params
    assert first.id != second.id
    # Leaving takes nothing back: the server has ended it.
    assert [n.method for n in script.told] == []


async def test_what_was_kept_is_asked_for_again_after_an_interruption(autojump_clock, streams):
    tools = {"tools": [], "ttlMs": 10**9, "cacheScope": "public"}
    answers = {LISTEN: streams, "tools/list": tools}
    async with scripted(answers, reconnect=QUICK) as (client, script):
        streams.script = script
        async with client.listen() as changes:
            await client.list_tools()
            await client.list_tools()
            assert script.count("tools/list") == 1
            await streams.tell()
            await anext(changes)
            await client.list_tools()
            assert script.count("tools/list") == 2
            await streams.cut(client)
            assert await anext(changes) == MISSED
            await client.list_tools()
            assert script.count("tools/list") == 3


async def test_after_too_many_failures_the_iterator_says_so(autojump_clock, streams):
    async with scripted({LISTEN: streams}, reconnect=QUICK) as (client, script):
        streams.script = script
        async with client.listen() as changes:
            await streams.cut(client)
            with pytest.raises(TransportError):
                while True:
                    assert await anext(changes) == MISSED
                    await streams.cut(client)
    assert len(streams.open) == 4  # three times in a row it was tried again


async def test_a_stream_that_held_for_long_counts_as_a_success(autojump_clock, streams):
    async with scripted({LISTEN: streams}, reconnect=QUICK) as (client, script):
        streams.script = script
        async with client.listen() as changes:
            for _ in range(7):
                await trio.sleep(STEADY)
                await streams.cut(client)
                assert await anext(changes) == MISSED


async def test_a_refusal_is_an_error_on_entering_and_from_the_iterator_later(
    autojump_clock, streams
):
    def refuse(request):
        return Error(request.id, -32603, "not you")

    async with scripted({LISTEN: streams}, reconnect=QUICK) as (client, script):
        streams.script = script
        async with client.listen() as changes:
            streams.refuse = refuse
            await streams.cut(client)
            with pytest.raises(RemoteError, match="not you"):
                await anext(changes)
        with pytest.raises(RemoteError, match="not you"):
            async with client.listen():
                raise AssertionError("nothing to listen to")


async def test_a_server_on_stdio_may_end_it_with_a_cancellation(streams):
    async with scripted({LISTEN: streams}) as (client, script):
        async with client.listen() as changes:
            await script.peer.tell("notifications/cancelled", {"requestId": streams.open[0].id})
            with pytest.raises(StopAsyncIteration):
                await anext(changes)
        await client.ping()


@both_eras
async def test_an_exception_of_the_block_comes_out_as_itself(revision):
    server = MCPServer("s")
    server.add_tool(lambda: 1, name="a")
    options = ClientOptions(revisions=(revision,))
    async with MCPClient(server, options=options) as client:
        with pytest.raises(KeyError, match="mine"):
            async with client.listen():
                raise KeyError("mine")


@both_eras
async def test_a_listener_whose_line_is_closed_hears_of_that(revision, streams):
    async with scripted({LISTEN: streams}, revisions=(revision,)) as (client, script):
        async with client.listen() as changes:
            await script.peer.transport.aclose()
            with trio.fail_after(5), pytest.raises(TransportError):
                await anext(changes)


@both_eras
async def test_nobody_listens_to_a_line_that_is_closed(revision, streams):
    client = MCPClient(MCPServer("any"), options=ClientOptions(revisions=(revision,)))
    async with client:
        pass
    with pytest.raises(TransportClosedError):
        async with client.listen():
            raise AssertionError("there is nobody to listen to")
    async with scripted({LISTEN: streams}, revisions=(revision,)) as (client, script):
        await script.peer.transport.aclose()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(TransportError):
            async with client.listen():
                raise AssertionError("there is nobody to listen to")


async def test_several_resources_and_what_is_inside_of_them(streams):
    async with scripted({LISTEN: streams}) as (client, script):
        streams.script = script
        async with client.listen(resource=["f:///a", "f:///b/"]) as changes:
            wanted = streams.open[0].params["notifications"]
            assert wanted == {"resourceSubscriptions": ["f:///a", "f:///b/"]}
            for uri in ("f:///c", "f:///ab", "f:///a/1", "f:///a/2", "f:///b/x", "f:///a"):
                await streams.tell(UPDATED, uri=uri)
            assert [await anext(changes) for _ in range(2)] == [
                f"{UPDATED} f:///a",
                f"{UPDATED} f:///b/",
            ]


async def test_what_the_server_does_not_serve_is_said(caplog):
    streams = Streams({"toolsListChanged": True, "resourceSubscriptions": ["f:///a"]})
    async with scripted({LISTEN: streams}) as (client, _):
        async with client.listen(
            tools=True, prompts=True, resource=["f:///a", "f:///b"]
        ) as changes:
            assert changes.honoured == SubscriptionFilter(
                tools_list_changed=True, resource_subscriptions=["f:///a"]
            )
    told = [record.getMessage() for record in caplog.records if "does not tell" in record.msg]
    assert [text.rpartition(" ")[2] for text in told] == ["promptsListChanged", "f:///b"]


async def test_an_acknowledgement_that_cannot_be_read_is_one_all_the_same(caplog):
    streams = Streams({"toolsListChanged": "yes"})
    async with scripted({LISTEN: streams}) as (client, _), client.listen() as changes:
        assert changes.has_started
        assert changes.honoured is None
    assert "cannot be read" in caplog.text


# -- when to come back, in numbers -------------------------------------------------


def test_the_pause_before_listening_again():
    backoff = Backoff(first=1, longest=8, attempts=5)
    wait = functools.partial(wait_before, backoff=backoff, chance=1.0)
    broken = TransportError("broken")
    assert [wait(broken, n) for n in (1, 2, 3, 4, 5, 6)] == [1, 2, 4, 8, 8, None]
    busy = RemoteError("busy", rpc_code=-32603, data=OverloadedError("x", retry_after=3).data)
    assert [wait(busy, n) for n in (1, 3, 6)] == [3, 4, None]
    patient = RemoteError("busy", rpc_code=-32603, data={"retryAfterMs": 10**9})
    assert wait(patient, 1) == 8
    for data in (None, {"retryAfterMs": "1"}):
        assert wait(RemoteError("no", rpc_code=-32603, data=data), 1) is None
    assert wait(MethodNotFoundError("no"), 1) is None


def test_an_end_stays_the_end():
    changes = Changes(SubscriptionFilter(tools_list_changed=True))
    changes.end()
    changes.fail(TransportError("later"))
    assert changes.has_started

    async def listen():
        return [change async for change in changes]

    assert trio.run(listen) == []


# -- in a session ------------------------------------------------------------------


async def test_a_resource_is_given_up_with_its_last_listener():
    answers = {"resources/subscribe": {}, "resources/unsubscribe": {}}
    async with scripted(answers, revisions=("2025-11-25",)) as (client, script):
        async with client.listen(resource=["a:b", "a:c"]) as first:
            async with client.listen(resource="a:b") as second:
                await script.notice(UPDATED, uri="a:b")
                assert await anext(first) == await anext(second) == f"{UPDATED} a:b"
            assert script.count("resources/unsubscribe") == 0
            await client.subscribe("a:c")
        taken_back = [r for r in script.asked if r.method == "resources/unsubscribe"]
        assert [request.params for request in taken_back] == [{"uri": "a:b"}]
        await client.unsubscribe("a:c")
        assert script.count("resources/unsubscribe") == 2


@pytest.mark.parametrize("how", ["cancel", "raise"])
async def test_a_resource_is_given_up_however_the_block_ends(autojump_clock, how):
    answers = {"resources/subscribe": {}, "resources/unsubscribe": {}}
    async with scripted(answers, revisions=("2025-11-25",)) as (client, script):
        if how == "raise":
            with pytest.raises(KeyError):
                async with client.listen(resource="a:b"):
                    raise KeyError
        else:
            with trio.move_on_after(1):
                async with client.listen(resource="a:b"):
                    await trio.sleep_forever()
        assert script.count("resources/unsubscribe") == 1


async def test_listening_can_be_cancelled_at_any_step_and_nothing_stays_subscribed():
    answers = {"resources/subscribe": {}, "resources/unsubscribe": {}}
    async with scripted(answers, revisions=("2025-11-25",)) as (client, script):

        async def listen():
            async with client.listen(resource=["a:b", "a:c"]):
                await trio.lowlevel.checkpoint()

        step = 1
        while await cancelled_after(step, listen):
            await trio.testing.wait_all_tasks_blocked()
            subscribed = set()
            for request in script.asked:
                if request.method == "resources/subscribe":
                    subscribed.add(request.params["uri"])
                if request.method == "resources/unsubscribe":
                    subscribed.discard(request.params["uri"])
            assert subscribed == set()
            script.asked.clear()
            step += 1
        assert step > 10


async def test_a_cancelled_subscriber_takes_nothing_from_another_one():
    answers = {"resources/subscribe": {}, "resources/unsubscribe": {}}
    async with scripted(answers, revisions=("2025-11-25",)) as (client, script):
        await client.subscribe("a:b")
        script.answers["resources/subscribe"] = lambda request: None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.subscribe, "a:b")
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert script.count("resources/unsubscribe") == 0
        await client.unsubscribe("a:b")
        assert script.count("resources/unsubscribe") == 1


async def test_a_refused_resource_leaves_the_others_taken_back():
    def one(request):
        return {} if request.params["uri"] == "a:b" else Error(request.id, -32002, "none")

    answers = {"resources/subscribe": one, "resources/unsubscribe": {}}
    async with scripted(answers, revisions=("2025-11-25",)) as (client, script):
        with pytest.raises(RemoteError, match="none"):
            async with client.listen(resource=["a:b", "a:c"]):
                raise AssertionError("nothing to listen to")
        taken_back = [r for r in script.asked if r.method == "resources/unsubscribe"]
        assert [request.params for request in taken_back] == [{"uri": "a:b"}]


async def test_another_session_is_asked_for_what_the_first_one_was():
    def refuse(request):
        return Error(request.id, -32002, "gone")

    answers = {"resources/subscribe": {}, "resources/unsubscribe": {}, "logging/setLevel": {}}
    async with scripted(answers, revisions=("2025-11-25",)) as (client, script):
        await client.set_log_level("error")
        async with client.listen(resource=["f:///%61", "a:c"]) as both, client.listen() as lists:
            before = len(script.asked)
            await client._resume(client.session, within=5)
            again = [(r.method, r.params) for r in script.asked[before:]]
            assert again == [
                ("logging/setLevel", {"level": "error"}),
                ("resources/subscribe", {"uri": "f:///%61"}),
                ("resources/subscribe", {"uri": "a:c"}),
            ]
            assert await anext(both) == await anext(lists) == MISSED
            script.answers["resources/subscribe"] = refuse
            await client._resume(client.session, within=5)
            assert await anext(both) == await anext(lists) == MISSED
            with pytest.raises(RemoteError, match="gone"):
                await anext(both)
            await script.notice(TOOLS_CHANGED)
            assert await anext(lists) == TOOLS_CHANGED


# -- the callback ------------------------------------------------------------------

OFFERS = {"tools": {"listChanged": True}, "prompts": {}, "resources": {"listChanged": True}}


async def test_a_callback_for_lists_makes_the_client_listen_by_itself(autojump_clock, streams):
    heard = []
    discovered = {"supportedVersions": ["2026-07-28"], "capabilities": OFFERS}
    answers = {LISTEN: streams, "server/discover": discovered}
    callbacks = ClientCallbacks(list_changed=heard.append)
    async with scripted(answers, callbacks=callbacks, reconnect=QUICK) as (client, script):
        streams.script = script
        await trio.testing.wait_all_tasks_blocked()
        (request,) = streams.open
        wanted = {"toolsListChanged": True, "resourcesListChanged": True}
        assert request.params["notifications"] == wanted
        await streams.tell()
        await trio.testing.wait_all_tasks_blocked()
        assert heard == ["tools"]
        await streams.cut(client)
        await trio.sleep(3)
        assert heard == ["tools", "tools", "resources"]


async def test_a_server_that_cannot_be_listened_to_is_used_all_the_same(caplog):
    discovered = {"supportedVersions": ["2026-07-28"], "capabilities": OFFERS}
    callbacks = ClientCallbacks(list_changed=lambda _: None)
    async with scripted({"server/discover": discovered}, callbacks=callbacks) as (client, _):
        await client.ping()
        await trio.testing.wait_all_tasks_blocked()
        assert "cannot be listened to" in caplog.text
    async with scripted({}, callbacks=callbacks) as (client, script):
        await trio.testing.wait_all_tasks_blocked()
        assert script.count(LISTEN) == 0  # it offers nothing that could change
