"""Hearing of changes, by subscription and by session."""

import trio.testing

from mcp_trio.wire.revisions import HANDSHAKE, STATELESS
from tests.scenarios.manifest import scenario
from tests.scenarios.peers import house, peer_of
from tests.scenarios.servers import full_server, listen

MARK = "io.modelcontextprotocol/subscriptionId"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"
UPDATED = "notifications/resources/updated"


def change_everything(server):
    server.remove_tool("add")
    server.add_prompt(lambda: "x", name="new_prompt")
    server.add_resource("test://new", lambda: "x", name="new")
    server.notify_resource_updated("test://note")
    server.notify_resource_updated("test://user/ann")


@scenario("U2")
async def test_a_subscription_is_acknowledged_and_brings_what_it_named(transport, revision):
    server, _ = full_server()
    wanted = {
        "toolsListChanged": True,
        "promptsListChanged": False,
        "resourceSubscriptions": ["test://note"],
        "tastesListChanged": True,
    }
    async with peer_of(server, transport, revision) as peer:
        before = len(peer.heard)
        await peer.start("subscriptions/listen", {"notifications": wanted})
        told = await peer.note(ACKNOWLEDGED)
        assert peer.heard[before]["method"] == ACKNOWLEDGED
        assert told["notifications"] == {
            "toolsListChanged": True,
            "resourceSubscriptions": ["test://note"],
        }
        change_everything(server)
        await peer.note(UPDATED)
        await trio.testing.wait_all_tasks_blocked()
        seen = [(note["method"], note["params"].get("uri")) for note in peer.notes()]
        assert seen == [(ACKNOWLEDGED, None), (TOOLS, None), (UPDATED, "test://note")]


@scenario("U3")
async def test_everything_names_its_subscription(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision) as peer:
        for id_ in ("seven", 7):
            wanted = {"notifications": {"toolsListChanged": True}}
            await peer.start("subscriptions/listen", wanted, id_=id_)
        await peer.note(ACKNOWLEDGED, 1)
        server.remove_tool("add")
        await peer.note(TOOLS, 1)
        server.drain()
        for id_ in ("seven", 7):
            assert (await peer.answer(id_))["result"]["_meta"][MARK] == id_
        for method in (ACKNOWLEDGED, TOOLS):
            marks = [note["params"]["_meta"][MARK] for note in peer.notes(method)]
            assert sorted(map(repr, marks)) == ["'seven'", "7"]


@scenario("U4")
async def test_several_subscriptions_end_one_by_one(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision) as peer:
        tools = await listen(peer, toolsListChanged=True)
        prompts = await peer.start(
            "subscriptions/listen", {"notifications": {"promptsListChanged": True}}
        )
        await peer.note(ACKNOWLEDGED, 1)
        change_everything(server)
        assert (await peer.note(TOOLS))["_meta"][MARK] == tools
        assert (await peer.note(PROMPTS))["_meta"][MARK] == prompts
        await peer.cancel(tools)
        server.remove_tool("wait")
        server.add_prompt(lambda: "x", name="newer")
        await peer.note(PROMPTS, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert len(peer.notes(TOOLS)) == 1
        assert peer.answers(tools) == []


@scenario("U5", "A1")
async def test_the_server_ends_a_subscription_with_its_result(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision) as peer:
        id_ = await listen(peer, toolsListChanged=True)
        server.drain()
        result = (await peer.answer(id_))["result"]
        assert result["resultType"] == "complete"
        assert result.keys() == {"resultType", "_meta"}
        await trio.testing.wait_all_tasks_blocked()
        assert peer.notes("notifications/cancelled") == []
        if transport == "http":
            assert peer.post(id_).ended.is_set()


@scenario("U6")
async def test_a_subscription_brings_no_log_and_no_progress(transport, revision):
    server, _ = full_server()
    loud = {"io.modelcontextprotocol/logLevel": "debug", "progressToken": "p"}
    async with peer_of(server, transport, revision) as peer:
        wanted = {"notifications": {"toolsListChanged": True}}
        id_ = await peer.start("subscriptions/listen", wanted, meta=loud)
        await peer.note(ACKNOWLEDGED)
        await peer.call("chat")
        await peer.call("report")
        server.remove_tool("add")
        await peer.note(TOOLS)
        assert {note["method"] for note in peer.notes()} == {ACKNOWLEDGED, TOOLS}
        await peer.call("chat", meta={"io.modelcontextprotocol/logLevel": "debug"})
        if transport == "http":
            assert len(peer.post(id_).events()) == 2
        assert all(
            MARK not in n["params"].get("_meta", {}) for n in peer.notes("notifications/message")
        )


@scenario("U7", "T9", "O6")
async def test_changed_lists_are_told(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision) as peer:
        declared = (await peer.offer())["capabilities"]
        for name in ("tools", "prompts", "resources"):
            assert declared[name]["listChanged"] is True
        await listen(
            peer, toolsListChanged=True, promptsListChanged=True, resourcesListChanged=True
        )
        change_everything(server)
        for method in (TOOLS, PROMPTS, RESOURCES):
            await peer.note(method)
        await trio.testing.wait_all_tasks_blocked()
        assert peer.notes(UPDATED) == []
        names = [tool["name"] for tool in (await peer.result("tools/list"))["tools"]]
        assert "add" not in names


@scenario("U8")
async def test_a_session_hears_of_the_resources_it_subscribed_to(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision) as peer:
        assert (await peer.offer())["capabilities"]["resources"]["subscribe"] is True
        for uri in ("test://note", "test://user/ann"):
            assert await peer.result("resources/subscribe", {"uri": uri}) == {}
        server.notify_resource_updated("test://user/bob")
        server.notify_resource_updated("test://note")
        assert await peer.note(UPDATED) == {"uri": "test://note"}
        await peer.result("resources/unsubscribe", {"uri": "test://note"})
        server.notify_resource_updated("test://note")
        server.notify_resource_updated("test://user/ann")
        assert await peer.note(UPDATED, 1) == {"uri": "test://user/ann"}
        await trio.testing.wait_all_tasks_blocked()
        assert len(peer.notes(UPDATED)) == 2
        assert await peer.error("resources/subscribe", {"uri": "test://nope"})


@scenario("X4")
async def test_one_change_reaches_everybody_and_a_burst_once(transport, revision):
    server, _ = full_server()
    other = HANDSHAKE[0] if revision.stateless or transport == "sse" else STATELESS[0]
    async with house(server, transport) as place:
        peers = [await place.connect(each) for each in (revision, revision, other)]
        for peer in peers:
            await listen(peer, toolsListChanged=True)
        for name in ("add", "wait", "report"):
            server.remove_tool(name)
        for peer in peers:
            await peer.note(TOOLS)
        await trio.testing.wait_all_tasks_blocked()
        server.remove_tool("echo")
        for peer in peers:
            await peer.note(TOOLS, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert [len(peer.notes(TOOLS)) for peer in peers] == [2, 2, 2]
