"""Our client on the knowledge graph of npm, a program that keeps what it is told in a file.

It speaks the handshake era only, and has no HTTP. Tested are a whole life of the graph, whose
tools all promise structured content, and that the file outlives the program.
"""

import json

import pytest

from mcp_trio.errors import RemoteError, VersionMismatchError
from tests.interop.their_servers import (
    HANDSHAKE,
    STATELESS,
    User,
    children,
    failure,
    members,
    reached,
    text,
)

pytestmark = pytest.mark.interop

SCRIPT = "node_modules/@modelcontextprotocol/server-memory/dist/index.js"
GRAPH = "memory://knowledge-graph"
TOOLS = [
    "create_entities",
    "create_relations",
    "add_observations",
    "delete_entities",
    "delete_observations",
    "delete_relations",
    "read_graph",
    "search_nodes",
    "open_nodes",
]
ADA = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
ENGINE = {"name": "Engine", "entityType": "machine", "observations": []}
PROGRAMS = {"from": "Ada", "to": "Engine", "relationType": "programs"}


@pytest.fixture
async def memory(servers, tmp_path):
    env = {"MEMORY_FILE_PATH": str(tmp_path / "graph.jsonl")}
    async with reached(servers.command(SCRIPT), "stdio", env=env) as server:
        yield server


async def test_it_speaks_the_handshake_era_and_tells_of_itself(memory):
    async with memory.connected() as client:
        assert client.revision == HANDSHAKE[0]
        assert client.server_info.name == "memory-server"
        assert client.capabilities.resources == {"subscribe": True, "listChanged": True}
        assert client.capabilities.prompts is None
        tools = [tool async for tool in client.tools()]
        (resource,) = [resource async for resource in client.resources()]
        with pytest.raises(RemoteError) as refused:
            await client.list_prompts()

    assert [tool.name for tool in tools] == TOOLS
    assert all(tool.output_schema is not None for tool in tools)
    destructive = [tool.name for tool in tools if tool.annotations.destructive_hint]
    assert destructive == ["delete_entities", "delete_observations", "delete_relations"]
    assert (resource.uri, resource.mime_type) == (GRAPH, "application/json")
    assert refused.value.rpc_code == -32601


async def test_it_speaks_no_stateless_revision(memory):
    with pytest.raises(VersionMismatchError):
        async with memory.connected(revisions=STATELESS):
            pass


async def test_a_graph_grows_and_shrinks(memory):
    async with memory.connected() as client:
        assert [tool.name async for tool in client.tools()] == TOOLS  # so that outputs are checked

        async def call(name, **arguments):
            return (await client.call_tool(name, arguments)).structured_content

        assert await call("read_graph") == {"entities": [], "relations": []}
        made = await call("create_entities", entities=[ADA, ENGINE])
        assert made == {"entities": [ADA, ENGINE]}
        # What is there already is not made again.
        assert await call("create_entities", entities=[ADA]) == {"entities": []}
        assert await call("create_relations", relations=[PROGRAMS]) == {"relations": [PROGRAMS]}
        more = [{"entityName": "Ada", "contents": ["lived in London", "spoke français"]}]
        added = await call("add_observations", observations=more)
        assert added["results"][0]["addedObservations"] == ["lived in London", "spoke français"]

        found = await call("search_nodes", query="FRANÇAIS")
        assert [entity["name"] for entity in found["entities"]] == ["Ada"]
        assert found["relations"] == [PROGRAMS]
        opened = await call("open_nodes", names=["Engine", "Nobody"])
        assert opened == {"entities": [ENGINE], "relations": [PROGRAMS]}

        fewer = [{"entityName": "Ada", "observations": ["lived in London"]}]
        assert (await call("delete_observations", deletions=fewer))["success"] is True
        assert (await call("delete_relations", relations=[PROGRAMS]))["success"] is True
        graph = await call("read_graph")
        assert graph["entities"][0]["observations"] == ["wrote the first program", "spoke français"]
        assert graph["relations"] == []
        assert (await call("delete_entities", entityNames=["Ada", "Engine"]))["success"] is True
        assert await call("read_graph") == {"entities": [], "relations": []}


async def test_what_goes_wrong_is_told(memory):
    async with memory.connected() as client:
        more = [{"entityName": "Nobody", "contents": ["is missed"]}]
        nobody = await client.call_tool("add_observations", {"observations": more})
        assert failure(nobody) == "Entity with name Nobody not found"
        unfit = await client.call_tool("create_entities", {"entities": [{"name": 7}]})
        assert "expected string, received number" in failure(unfit)
        assert "not found" in failure(await client.call_tool("forget_everything"))
        with pytest.raises(RemoteError) as missing:
            await client.read_resource("memory://nothing")
        assert missing.value.rpc_code == -32602


async def test_who_has_subscribed_hears_of_each_change_until_unsubscribed(memory):
    user = User()
    async with memory.connected(user) as client:
        # Not subscribed yet.
        await client.call_tool("create_entities", {"entities": [ENGINE]})
        async with client.listen(resource=GRAPH) as changes:
            await client.call_tool("create_entities", {"entities": [ADA]})
            assert await anext(changes) == f"notifications/resources/updated {GRAPH}"
            (contents,) = (await client.read_resource(GRAPH)).contents
            await client.call_tool("delete_entities", {"entityNames": ["Ada"]})
            assert await anext(changes) == f"notifications/resources/updated {GRAPH}"
        # Not subscribed any more.
        await client.call_tool("delete_entities", {"entityNames": ["Engine"]})

    assert user.heard("resource") == [GRAPH, GRAPH]
    assert contents.mime_type == "application/json"
    assert json.loads(contents.text)["entities"] == [ENGINE, ADA]


async def test_the_graph_outlives_the_program_of_which_nothing_is_left(memory):
    before = children()
    async with memory.connected() as client:
        (pid,) = children() - before
        await client.call_tool("create_entities", {"entities": [ADA]})
    assert members(pid) == set()
    assert children() == before
    async with memory.connected() as client:
        graph = json.loads(text(await client.call_tool("read_graph")))
    assert graph == {"entities": [ADA], "relations": []}


async def test_a_large_graph_comes_in_one_piece(memory):
    entities = [
        {"name": f"n{number}", "entityType": "node", "observations": ["x" * 2000]}
        for number in range(1000)
    ]
    async with memory.connected() as client:
        await client.call_tool("create_entities", {"entities": entities})
        graph = (await client.call_tool("read_graph")).structured_content
    assert graph["entities"] == entities
