"""Pages, freshness, and one list for both eras."""

from dataclasses import dataclass

from mcp_trio import MCPServer, ServerOptions
from mcp_trio.wire import Icon, ToolAnnotations
from mcp_trio.wire.content import Annotations
from mcp_trio.wire.revisions import (
    HANDSHAKE,
    R2025_03_26,
    R2025_06_18,
    R2025_11_25,
    STATELESS,
)
from tests.scenarios.manifest import scenario
from tests.scenarios.peers import house, peer_of
from tests.scenarios.servers import full_server, uses

LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
FRESH = ("server/discover", "resources/read", *LISTS)


def long_server():
    server = MCPServer("long", options=ServerOptions(page_size=2))
    for number in range(5):
        server.add_tool(lambda: "x", name=f"tool{number}")
        server.add_prompt(lambda: "x", name=f"prompt{number}")
        server.add_resource(f"test://r{number}", lambda: "x", name=f"r{number}")
        server.add_resource(f"test://t{number}/{{a}}", lambda a: a, name=f"t{number}")
    return server


async def pages(peer, method):
    """Every page of a list."""
    found, params = [], {}
    while True:
        page = await peer.result(method, params)
        found.append(page)
        if "nextCursor" not in page:
            return found
        params = {"cursor": page["nextCursor"]}


@scenario("K1")
async def test_long_lists_come_in_pages(transport, revision):
    server = long_server()
    async with peer_of(server, transport, revision) as peer:
        for method, key in LISTS.items():
            found = await pages(peer, method)
            assert [len(page[key]) for page in found] == [2, 2, 1]
            entries = [str(entry) for page in found for entry in page[key]]
            assert len(set(entries)) == 5
            cursor = found[0]["nextCursor"]
            # The same cursor gives the same page, as often as it is used.
            assert await peer.result(method, {"cursor": cursor}) == found[1]
            for wrong in ("", "x", cursor[:-3] + "AAA", cursor + "A", "MQ==", "\u00fc", 7, {}):
                error = await peer.error(method, {"cursor": wrong})
                assert error["code"] == -32602, (method, wrong)


@scenario("K2", "A5")
async def test_six_methods_say_how_long_they_are_fresh(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision) as peer:
        for method, params in uses(revision).items():
            result = await peer.result(method, params)
            if method in FRESH:
                assert type(result["ttlMs"]) is int
                assert result["ttlMs"] >= 0
                assert result["cacheScope"] in {"public", "private"}
            else:
                assert not {"ttlMs", "cacheScope"} & result.keys(), method


@scenario("K4")
async def test_every_page_is_for_the_same_audience(transport, revision):
    server = long_server()
    async with peer_of(server, transport, revision) as peer:
        for method in LISTS:
            assert len({page["cacheScope"] for page in await pages(peer, method)}) == 1


@dataclass
class Place:
    city: str


def rich_server():
    server = MCPServer("rich", title="Rich", description="All of it")
    looks = {
        "title": "For people",
        "icons": [Icon(src="https://example.com/i.png")],
        "meta": {"com.example/x": 1},
    }

    @server.tool(annotations=ToolAnnotations(read_only_hint=True), **looks)
    async def find() -> Place:
        return Place("Rome")

    @server.tool
    async def plain() -> str:
        return "x"

    server.add_prompt(lambda: "x", name="prompt", **looks)
    marked = Annotations(audience=["user"], priority=0.5, last_modified="2025-01-01T00:00:00Z")
    server.add_resource("test://r", lambda: "x", name="r", size=1, annotations=marked, **looks)
    server.add_resource("test://t/{a}", lambda a: a, name="t", annotations=marked, **looks)
    return server


@scenario("X3")
async def test_both_eras_see_the_same_lists_each_in_its_fields(transport, revision):
    server = rich_server()
    other = HANDSHAKE[0] if revision.stateless or transport == "sse" else STATELESS[0]
    async with house(server, transport) as place:
        peer, reference = await place.connect(revision), await place.connect(other)
        for method, key in LISTS.items():
            mine = (await peer.result(method))[key]
            theirs = (await reference.result(method))[key]
            assert [each["name"] for each in mine] == [each["name"] for each in theirs]
            assert ("title" in mine[0]) is (revision >= R2025_06_18)
            assert ("_meta" in mine[0]) is (revision >= R2025_06_18)
            assert ("icons" in mine[0]) is (revision >= R2025_11_25)
        tool = (await peer.result("tools/list"))["tools"][0]
        assert ("annotations" in tool) is (revision >= R2025_03_26)
        assert ("outputSchema" in tool) is (revision >= R2025_06_18)
        assert "execution" not in tool
        (resource,) = (await peer.result("resources/list"))["resources"]
        assert ("lastModified" in resource["annotations"]) is (revision >= R2025_06_18)
        called = await peer.call("find")
        assert ("structuredContent" in called) is (revision >= R2025_06_18)
        assert called["content"][0]["text"] == '{"city":"Rome"}'
        if not revision.stateless:
            info = peer.welcome["serverInfo"]
            assert ("title" in info) is (revision >= R2025_06_18)
            assert ("description" in info) is (revision >= R2025_11_25)
