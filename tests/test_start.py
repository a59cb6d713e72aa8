"""What a program pays for when it starts: counted in modules, since time depends on the day."""

import ast
import inspect
import json
import subprocess
import sys

import pytest

import mcp_trio

SLOW = {
    "apsw",
    "click",
    "cryptography",
    "h11",
    "h2",
    "httpcore2",
    "httpx2",
    "hypercorn",
    "jmespath",
    "jsonschema",
    "jsonschema_rs",
    "opentelemetry",
    "referencing",
    "rich",
    "structlog",
    "wsproto",
}
"""Packages that nobody needs before the first URL, schema, question or command."""


def loaded(program):
    """The modules that a fresh interpreter has loaded after a program."""
    ending = "\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-c", program + ending]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return set(json.loads(done.stdout.splitlines()[-1]))


CONNECTS_IN_MEMORY = """
import trio, mcp_trio

async def main():
    async with mcp_trio.MCPClient(mcp_trio.MCPServer("demo")) as client:
        await client.ping()

trio.run(main)
"""
OPENS_A_URL = """
import trio, mcp_trio

async def main():
    try:
        async with mcp_trio.MCPClient("http://127.0.0.1:1/mcp"):
            pass
    except mcp_trio.MCPError:
        pass

trio.run(main)
"""


@pytest.mark.parametrize(
    "program",
    [
        "import mcp_trio",
        "import mcp_trio; mcp_trio.MCPClient, mcp_trio.ClientCallbacks, mcp_trio.ClientOptions",
        "import mcp_trio; mcp_trio.MCPServer, mcp_trio.HTTPOptions, mcp_trio.ServingSettings",
    ],
    ids=["nothing", "client", "server"],
)
def test_importing_loads_nothing_slow(program):
    assert loaded(program) & SLOW == set()


def test_the_front_door_alone_loads_next_to_nothing():
    own = {name for name in loaded("import mcp_trio") if name.startswith("mcp_trio")}
    assert own == {"mcp_trio", "mcp_trio.errors"}


def test_a_client_loads_no_server():
    modules = loaded("import mcp_trio; mcp_trio.MCPClient")
    assert not [name for name in modules if name.startswith(("mcp_trio.server", "mcp_trio.http"))]


def test_a_server_loads_no_client():
    modules = loaded("import mcp_trio; mcp_trio.MCPServer")
    assert not [name for name in modules if name.startswith("mcp_trio.client")]


def test_a_line_in_memory_needs_no_http():
    assert loaded(CONNECTS_IN_MEMORY) & {"httpx2", "wsproto", "hypercorn"} == set()


def test_a_url_loads_what_its_scheme_needs_and_no_more():
    modules = loaded(OPENS_A_URL)
    assert "httpx2" in modules
    of_others = {"apsw", "cryptography", "hypercorn", "jsonschema", "jsonschema_rs", "wsproto"}
    assert modules & of_others == set()


def test_the_front_door_says_the_same_to_type_checkers_and_to_python():
    tree = ast.parse(inspect.getsource(mcp_trio))
    told = {}
    for block in (node for node in tree.body if isinstance(node, ast.If)):
        for node in block.body:
            told |= {alias.asname: node.module for alias in node.names}
    homes = {name: f"mcp_trio.{home}" for name, home in mcp_trio._HOMES.items()}
    assert told == homes | {"abc": "mcp_trio", "wire": "mcp_trio"}


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'MCPClints'"):
        mcp_trio.MCPClints  # noqa: B018
