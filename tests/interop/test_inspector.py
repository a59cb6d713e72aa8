"""The MCP Inspector's command line against our server, over HTTP and stdio, in both eras.

Each method is a run of the program of its own. The runs of one transport and era are made
together, when the first test asks for one of them.
"""

import base64
import itertools
import json
import os

import pytest
import trio

from benchmarks.processes import output_of
from tests.interop.conftest import reachable
from tests.interop.offered import ADD, GREET, HANDSHAKE, PAGES, PICTURE, STATELESS, text_of
from tests.interop.our_server import PIXEL

pytestmark = pytest.mark.interop

PROGRAM = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
ERAS = {"handshake": "legacy", "stateless": "modern"}
"""How the program calls them; without being told it shakes hands."""
METHODS = {
    "initialize": [],
    "tools/list": [],
    "tools/call": ["--tool-name", "add", "--tool-args-json", '{"a": 2, "b": 40}'],
    "resources/list": [],
    "resources/read": ["--uri", "interop://pixel"],
    "prompts/list": [],
    "prompts/get": ["--prompt-name", "greet", "--prompt-args", "name=Ada", "tone=formal"],
}
"""Arguments by method. Starting the program takes longer than all the rest, so this is not
every method it has: under its command line is the TypeScript client, which tries all of them."""
DEADLINE = 60.0
"""Seconds for one run."""


async def inspect(command, where, era, method):
    """Run the program once and give the result it prints."""
    options = ["--format", "json", "--protocol-era", ERAS[era], "--method", method]
    if "url" in where:
        target = ["--transport", "http", "--server-url", where["url"]]
    else:
        # It hands no more than a few variables on, and this one says where our package is.
        paths = [f"PYTHONPATH={os.environ['PYTHONPATH']}"] if "PYTHONPATH" in os.environ else []
        target = [*(part for path in paths for part in ("-e", path)), "--", *where["command"]]
    said = await output_of(
        [*command, "--cli", *options, *METHODS[method], *target], within=DEADLINE, what=method
    )
    return json.loads(said)["result"]


@pytest.fixture(scope="session")
def batches():
    """What was seen so far, by transport and era; None if something failed."""
    return {}


@pytest.fixture
async def runs(request, node, batches, tmp_path, monkeypatch):
    """All runs over a transport in an era."""
    transport, era = request.param
    if request.param not in batches:
        batches[request.param] = None
        monkeypatch.setenv("HOME", str(tmp_path))  # nobody's settings count, and none are written
        seen, limit = {}, trio.CapacityLimiter(2)

        async def one(where, method):
            async with limit:
                seen[method] = await inspect(node.command(PROGRAM), where, era, method)

        async with reachable(transport) as where, trio.open_nursery() as nursery:
            for method in METHODS:
                nursery.start_soon(one, where, method)
        batches[request.param] = seen
    assert batches[request.param] is not None, "the runs have failed, as an earlier test told"
    return batches[request.param]


WORLDS = list(itertools.product(["http", "stdio"], ERAS))
everywhere = pytest.mark.parametrize("runs", WORLDS, indirect=True, ids="-".join)


@everywhere
async def test_it_learns_who_the_server_is_in_the_era_it_was_told(runs, request):
    seen = runs["initialize"]
    assert seen["serverInfo"] == {"name": "interop", "title": "Interop", "version": "1.0.0"}
    assert seen["instructions"] == "Try everything."
    _, era = request.node.callspec.params["runs"]
    assert seen["protocolVersion"] == {"handshake": HANDSHAKE, "stateless": STATELESS}[era]


@everywhere
@pytest.mark.parametrize(
    ("kind", "entry"),
    [("tools", ADD), ("prompts", GREET), ("resources", PICTURE)],
    ids=["tools", "prompts", "resources"],
)
async def test_it_lists_all_pages(runs, kind, entry):
    listed = runs[f"{kind}/list"][kind]
    assert [item["name"] for item in listed] == [name for page in PAGES[kind] for name in page]
    assert entry in listed


@everywhere
async def test_it_calls_a_tool(runs):
    assert text_of(runs["tools/call"]) == "42"
    assert runs["tools/call"]["structuredContent"] == {"result": 42}


@everywhere
async def test_it_reads_a_resource(runs):
    (contents,) = runs["resources/read"]["contents"]
    assert base64.b64decode(contents["blob"]) == PIXEL


@everywhere
async def test_it_gets_a_prompt(runs):
    (message,) = runs["prompts/get"]["messages"]
    assert message["content"]["text"] == "Give Ada a formal greeting."
