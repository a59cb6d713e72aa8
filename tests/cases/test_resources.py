"""Resources by every spelling of their URI, and URIs that would climb out of a template."""

import pytest

from mcp_trio import MCPServer, RemoteError
from mcp_trio.engine.subscriptions import Mailbox, Notice
from mcp_trio.errors import ErrorCode
from mcp_trio.wire.notices import SubscriptionFilter
from tests.cases.speakers import connected, each_revision


def filed():
    """A server whose resources give back the name they were asked by."""
    server = MCPServer("s")

    @server.resource("file:///{name}")
    async def by_name(name: str) -> str:
        return name

    @server.resource("deep:///{+path}")
    async def by_path(path: str) -> str:
        return path

    @server.resource("find:///x{?q}")
    async def by_query(q: str = "nothing") -> str:
        return q

    @server.resource("note:///café/{name}")
    async def in_french(name: str) -> str:
        return name

    @server.resource("note:///crème brûlée")
    async def dessert() -> str:
        return "sweet"

    return server


async def read(client, uri):
    return (await client.call("resources/read", {"uri": uri}))["contents"][0]["text"]


@each_revision
@pytest.mark.parametrize(
    "uri",
    [
        "file:///..%2Fetc",
        "file:///%2e%2e",
        "file:///%2E%2e%2Fetc%2Fpasswd",
        "file:///..",
        "file:///a%2Fb",
        "file:///a%5c..%5cb",
        "file:///%00",
        "file:///a%00.txt",
        "file:///%FF",
        "file:///%C0%AE%C0%AE",
        "file:///%E0%80%AE",
        "deep:///a/../b",
        "deep:///a/%2e%2e/b",
        "deep:///a%2F..%2Fb",
        "deep:///%2e%2e%5cb",
        "deep:///a/%00",
        "deep:///%c3",
        "find:///x?q=%00",
        "find:///x?q=%ff",
    ],
)
async def test_no_spelling_of_a_uri_climbs_out_or_hides_a_byte(revision, uri):
    async with connected(filed(), revision) as client:
        with pytest.raises(RemoteError) as caught:
            await read(client, uri)
        assert caught.value.rpc_code == (-32602 if revision.stateless else -32002)


@each_revision
@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("file:///é", "é"),
        ("file:///%C3%A9", "é"),
        ("file:///%c3%a9", "é"),
        ("file:///e%CC%81", "e\u0301"),
        ("file:///%41%2Db", "A-b"),
        ("file:///a%20b", "a b"),
        ("file:///a b", "a b"),
        ("file:///100%25", "100%"),
        ("file:///%252e%252e", "%2e%2e"),
        ("file:///\U0001f600", "\U0001f600"),
        ("file:///...", "..."),
        ("deep:///a/b%20c/é", "a/b c/é"),
        ("find:///x?q=%C3%A9", "é"),
        ("find:///x?q=é", "é"),
        ("find:///x", "nothing"),
        ("note:///café/1", "1"),
        ("note:///caf%C3%A9/1", "1"),
        ("note:///caf%c3%a9/1", "1"),
        ("note:///c%61fé/1", "1"),
        ("note:///crème brûlée", "sweet"),
        ("note:///cr%C3%A8me%20br%C3%BBl%C3%A9e", "sweet"),
        ("note:///cr%c3%a8me%20br%c3%bbl%c3%a9e", "sweet"),
    ],
)
async def test_every_spelling_of_a_uri_is_the_same_resource(revision, uri, text):
    async with connected(filed(), revision) as client:
        assert await read(client, uri) == text


def test_a_watched_resource_is_told_by_the_spelling_that_was_asked_for():
    box = Mailbox(SubscriptionFilter(resource_subscriptions=["note:///é"]))
    box.watch("note:///%c3%a8")
    assert box.put(Notice("notifications/resources/updated", "note:///%C3%A9"))
    assert not box.put(Notice("notifications/resources/updated", "note:///%c3%a9"))
    assert box.put(Notice("notifications/resources/updated", "note:///è"))
    assert not box.put(Notice("notifications/resources/updated", "note:///e"))
    told = [box.take(), box.take(), box.take()]
    assert [notice and notice.uri for notice in told] == ["note:///é", "note:///%c3%a8", None]
    box.unwatch("note:///%C3%A9")
    assert not box.put(Notice("notifications/resources/updated", "note:///é"))


@each_revision
@pytest.mark.parametrize(
    "uri",
    [
        "test://secret",
        "test://secre%74",
        "test://%73%65cret",
        "test://secret/1",
        "test://%73ecret/1",
        "test://café/1",
        "test://caf%C3%A9/1",
        "test://caf%c3%a9/1",
        "test://c%61fé/1",
    ],
)
async def test_no_spelling_of_a_uri_gets_round_a_rule_about_it(revision, uri):
    server = MCPServer("s")
    server.add_resource("test://secret", lambda: "told", name="secret")
    server.add_resource("test://{place}/{x}", lambda place, x: "told", name="places")

    @server.authorize
    def rule(context):
        closed = ("test://secret", "test://caf%C3%A9")
        return not (context.target or "").startswith(closed)

    async with connected(server, revision) as client:
        assert await read(client, "test://open/1") == "told"
        with pytest.raises(RemoteError) as caught:
            await read(client, uri)
        assert caught.value.code is ErrorCode.UNAUTHORIZED
        listed = await client.call("resources/list")
        assert listed["resources"] == []
