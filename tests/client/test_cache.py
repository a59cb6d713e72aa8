"""What is kept, for how long, for whom, and what makes it old (K2 to K5, R9)."""

import pytest
import trio

from mcp_trio import (
    ClientCallbacks,
    ClientOptions,
    Context,
    MCPClient,
    MCPServer,
    RemoteError,
    RequestTimeoutError,
)
from mcp_trio.client.cache import CacheOptions, ResponseCache
from mcp_trio.client.targets import Lines
from mcp_trio.errors import TransportError
from mcp_trio.jsonrpc.messages import Error, Notification
from mcp_trio.wire.resources import ReadResourceResult
from tests.client.scripts import INITIALIZED, scripted

TOOLS = {"tools": [], "ttlMs": 1000, "cacheScope": "public"}


class Asking:
    """A cache, and a server that answers with ever new numbers."""

    def __init__(self, **options):
        self.who = "ann"
        chosen = CacheOptions(principal=lambda: self.who, **options)
        self.cache = ResponseCache(chosen, Lines(MCPServer("any"), ClientOptions()))
        self.asked = 0
        self.answer = {"ttlMs": 1000, "cacheScope": "public"}
        self.error = None
        self.at_once = True

    async def __call__(self, method="tools/list", *, use=True, **params):
        async def ask():
            await trio.lowlevel.checkpoint()
            if self.error is not None:
                raise self.error
            self.asked += 1
            return {"number": self.asked, **self.answer}, self.at_once

        return (await self.cache.through(method, params or None, ask, use=use))["number"]


async def test_an_answer_is_fresh_for_as_long_as_the_server_says(autojump_clock):
    ask = Asking()
    assert await ask() == 1
    await trio.sleep(0.999)
    assert await ask() == 1
    await trio.sleep(0.001)
    assert await ask() == 2  # now is not less than received + ttl
    assert len(ask.cache) == 1


@pytest.mark.parametrize("ttl", [None, 0, -1, 1.5, True, "1000"])
async def test_what_is_no_time_is_no_time(ttl):
    ask = Asking()
    ask.answer = {} if ttl is None else {"ttlMs": ttl}
    assert [await ask(), await ask()] == [1, 2]
    assert len(ask.cache) == 0


async def test_each_method_and_each_page_has_a_clock_of_its_own(autojump_clock):
    ask = Asking()
    assert [await ask(), await ask(cursor=""), await ask("prompts/list")] == [1, 2, 3]
    await trio.sleep(0.6)
    assert await ask(cursor="b") == 4
    await trio.sleep(0.6)
    assert [await ask(cursor="b"), await ask(cursor="")] == [4, 5]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "x"}),
        ("resources/read", {"uri": "a:b", "inputResponses": {}}),
        ("resources/read", {"uri": "a:b", "requestState": "s"}),
        ("no/such", {}),
    ],
)
async def test_some_answers_are_nobody_elses(method, params):
    ask = Asking()
    assert [await ask(method, **params), await ask(method, **params)] == [1, 2]


async def test_what_took_a_question_or_is_one_is_not_kept():
    ask = Asking()
    ask.at_once = False
    assert [await ask(), await ask()] == [1, 2]
    ask.at_once = True
    ask.answer["resultType"] = "input_required"
    assert [await ask(), await ask()] == [3, 4]


async def test_what_is_private_is_given_only_to_who_asked_for_it():
    ask = Asking()
    ask.answer["cacheScope"] = "private"
    assert await ask() == 1
    ask.who = "bob"
    assert await ask() == 2
    ask.who = "ann"
    assert await ask() == 1
    del ask.answer["cacheScope"]  # what says nothing is private
    assert await ask(cursor="x") == 3
    ask.who = "bob"
    assert await ask(cursor="x") == 4
    ask.answer["cacheScope"] = "public"
    assert await ask(cursor="y") == 5
    ask.who = "ann"
    assert await ask(cursor="y") == 5


async def test_what_becomes_private_is_public_no_more():
    ask = Asking()
    assert await ask() == 1
    ask.answer["cacheScope"] = "private"
    assert await ask(use=False) == 2
    ask.who = "bob"
    assert await ask() == 3


CHANGED = {
    "notifications/tools/list_changed": {"tools/list"},
    "notifications/prompts/list_changed": {"prompts/list"},
    "notifications/resources/list_changed": {"resources/list", "resources/templates/list"},
    "notifications/message": set(),
}


@pytest.mark.parametrize("notice", CHANGED)
async def test_a_notice_makes_its_lists_old(notice):
    ask = Asking()
    methods = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]
    methods += ["server/discover", "resources/read"]
    before = {method: await ask(method) for method in methods}
    ask.cache.outdate(Notification(notice, {}))
    changed = {method for method in methods if await ask(method) != before[method]}
    assert changed == CHANGED[notice]


async def test_an_update_makes_the_resource_old_and_what_holds_it():
    ask = Asking()
    uris = ["f:///a", "f:///a/", "f:///a/b%20c", "f:///a/b%20c/d", "f:///ab", "f:///a/x"]
    before = {uri: await ask("resources/read", uri=uri) for uri in uris}
    ask.cache.outdate(Notification("notifications/resources/updated", {"uri": "f:///a/b c"}))
    changed = [uri for uri in uris if await ask("resources/read", uri=uri) != before[uri]]
    assert changed == ["f:///a", "f:///a/", "f:///a/b%20c"]


async def test_an_answer_that_a_notice_overtook_is_not_kept():
    ask = Asking()

    async def slow():
        ask.cache.outdate(Notification("notifications/tools/list_changed", None))
        return {"number": 0, **ask.answer}, True

    await ask.cache.through("tools/list", None, slow, use=True)
    assert await ask() == 1


async def test_the_oldest_makes_room():
    ask = Asking(max_entries=2)
    assert [await ask(cursor=c) for c in "abca"] == [1, 2, 3, 4]
    assert len(ask.cache) == 2
    ask = Asking(max_bytes=90)  # an answer has a little less than 50
    assert [await ask(cursor=c) for c in "aba"] == [1, 2, 3]
    assert len(ask.cache) == 1
    ask.answer["pad"] = "x" * 100
    assert [await ask(cursor="c"), await ask(cursor="c")] == [4, 5]


async def test_an_old_answer_may_stand_in_for_a_server_that_is_away(autojump_clock):
    ask = Asking(stale_on_error=10)
    assert await ask() == 1
    await trio.sleep(5)
    for error in (TransportError("gone"), RequestTimeoutError("late")):
        ask.error = error
        assert await ask() == 1
        with pytest.raises(type(error)):
            await ask(use=False)
    ask.error = RemoteError("no", rpc_code=-32603)
    with pytest.raises(RemoteError):
        await ask()
    ask.error = TransportError("gone")
    await trio.sleep(6)
    with pytest.raises(TransportError):
        await ask()
    ask.error = None
    assert await ask() == 2
    ask.cache.outdate(Notification("notifications/tools/list_changed", None))
    ask.error = TransportError("gone")
    with pytest.raises(TransportError):
        await ask()  # what is known to be old is never given


async def test_a_bad_cursor_drops_the_pages():
    ask = Asking()
    assert [await ask(), await ask(cursor="b")] == [1, 2]
    ask.error = RemoteError("Invalid cursor", rpc_code=-32602)
    with pytest.raises(RemoteError):
        await ask(cursor="c")
    ask.error = None
    assert [await ask(), await ask(cursor="b")] == [3, 4]


async def test_parameters_that_are_no_json_are_left_to_the_sender():
    ask = Asking()
    assert [await ask(cursor=object()), await ask(cursor=object())] == [1, 2]


# -- in a client -------------------------------------------------------------------


async def test_nobody_can_change_what_another_caller_gets():
    async with scripted({"tools/list": TOOLS}) as (client, script):
        (await client.call("tools/list"))["tools"].append("mine")
        assert (await client.call("tools/list"))["tools"] == []
        assert (await client.list_tools()).ttl_ms == 1000
        assert script.count("tools/list") == 1
        await client.list_tools(cache=False)
        assert script.count("tools/list") == 2
        client.forget("tools/list")
        await client.list_tools()
        assert script.count("tools/list") == 3


async def test_it_can_be_left_out_and_sessions_have_none():
    async with scripted({"tools/list": TOOLS}, cache=None) as (client, script):
        client.forget()
        await client.list_tools()
        await client.list_tools()
        assert script.count("tools/list") == 2
    answers = {"tools/list": TOOLS, "initialize": INITIALIZED}
    async with scripted(answers, revisions=("2025-11-25",)) as (client, script):
        await client.list_tools()
        await client.list_tools()
        assert script.count("tools/list") == 2


async def test_a_ping_is_always_sent_and_discovering_is_kept():
    answer = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "ttlMs": 1000}
    async with scripted({"server/discover": answer}) as (client, script):
        await client.ping()
        await client.ping()
        assert script.count("server/discover") == 3
        assert (await client.discover()).supported_versions == ["2026-07-28"]
        assert script.count("server/discover") == 3


async def test_what_cannot_be_read_is_asked_for_again():
    answers = {"tools/list": {**TOOLS, "tools": 7}, "resources/read": {**TOOLS, "contents": 7}}
    async with scripted(answers) as (client, script):
        for _ in range(2):
            with pytest.raises(Exception, match="contents"):
                await client.read_resource("a:b")
            with pytest.raises(Exception, match="tools"):
                await client.list_tools()
        assert [script.count(method) for method in answers] == [2, 2]


async def test_a_read_that_took_a_question_is_made_again():
    server, asked = MCPServer("s"), []
    form = {"type": "object", "properties": {"ok": {"type": "boolean"}}}

    @server.resource("a:private")
    async def private(ctx: Context):
        await ctx.elicit("May I?", form)
        return ReadResourceResult(contents=[], ttl_ms=60000)

    @server.resource("a:plain")
    async def plain():
        asked.append("plain")
        return ReadResourceResult(contents=[], ttl_ms=60000)

    def fill(params):
        asked.append(params.message)
        return {"ok": True}

    callbacks = ClientCallbacks(elicitation=fill)
    async with MCPClient(server, callbacks=callbacks) as client:
        for uri in ("a:private", "a:plain") * 2:
            await client.read_resource(uri)
    assert asked == ["May I?", "plain", "May I?"]


async def test_a_refusal_is_not_kept():
    def refuse(request):
        return Error(request.id, -32603, "not now", {"ttlMs": 1000})

    async with scripted({"tools/list": refuse}) as (client, script):
        for _ in range(2):
            with pytest.raises(RemoteError):
                await client.list_tools()
        assert script.count("tools/list") == 2
