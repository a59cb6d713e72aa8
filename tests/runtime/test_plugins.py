"""Adapters and kinds of connections: ours, another package's, and those that lack a library."""

import sys

import pytest

from mcp_trio.catalog.operation import OperationError, parse
from mcp_trio.config import make_connections, parse_settings
from mcp_trio.errors import ConfigurationError
from mcp_trio.runtime import plugins
from mcp_trio.runtime.adapters.static import StaticAdapter
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.http_sections import HttpSection

MODULE = """
import attrs
import trio
from mcp_trio.runtime.adapters.base import Answer, Plan
from mcp_trio.runtime.connections import Connection, ConnectionSection


@attrs.frozen(kw_only=True)
class PigeonConnection(Connection):
    loft: str


@attrs.frozen(kw_only=True)
class PigeonSection(ConnectionSection):
    loft: str

    def connection(self, name, source):
        return PigeonConnection(name=name, loft=self.loft, **self.common())


class PigeonAdapter:
    connection_type = PigeonConnection
    output_names = ("body", "args", "wind")

    def __init__(self, connections):
        self.connections = connections

    def compile(self, operation, connection, settings):
        def prepare(context, call):
            async def send():
                await trio.lowlevel.checkpoint()
                said = f"{context['args']['text']} to {connection.loft}"
                return Answer(ok=True, body=said, more={"wind": "east"})

            return send

        return Plan(prepare=prepare, reads=frozenset(), idempotent=True)
"""


@pytest.fixture
def pigeons(tmp_path, monkeypatch):
    """Another package, installed."""
    (tmp_path / "pigeon_post.py").write_text(MODULE)
    info = tmp_path / "pigeon_post-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon-post\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[mcp_trio.adapters]\n"
        "pigeon = pigeon_post:PigeonAdapter\n"
        "static = pigeon_post:PigeonAdapter\n"
        "[mcp_trio.connections]\n"
        "pigeon = pigeon_post:PigeonSection\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("pigeon_post", None)


def view(**changes):
    return {
        "operation_id": "o",
        "name": "send_pigeon",
        "protocol": "pigeon",
        "target": {"connection": "roof", "anything": 1},
        "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}},
        "output_schema": None,
        "input_mapping": {},
        "output_mapping": {"result": {"said": "=body", "wind": "=wind"}},
        "execution_config": {},
        "tool_description": "Send a pigeon.",
        **changes,
    }


def connections(tmp_path, **more):
    values = {
        "catalog": {"registry": "r.sqlite"},
        "connections": {"roof": {"kind": "pigeon", "loft": "north", "total_timeout": 3}, **more},
    }
    return Connections(make_connections(parse_settings(values).connections, tmp_path))


async def test_another_package_brings_an_adapter_and_its_connections(pigeons, tmp_path, context_of):
    roof = connections(tmp_path)
    compiled = Compiler(roof).compile(parse(view()))
    async with roof:
        result = await compiled.call(context_of(), {"text": "hello"})
    assert result.structured_content == {"said": "hello to north", "wind": "east"}
    assert compiled.settings.timeouts.total == 3
    assert "pigeon" in plugins.Adapters(roof)


def test_another_package_cannot_replace_one_of_ours(pigeons):
    assert isinstance(plugins.Adapters(Connections())["static"], StaticAdapter)
    assert plugins.connection_section("http") is HttpSection


def test_a_protocol_that_nobody_brings_is_one_operations_fault():
    with pytest.raises(OperationError, match="pigeon is not available in this installation"):
        Compiler(Connections()).compile(parse(view()))


def test_the_connection_has_to_be_of_the_right_kind(pigeons, tmp_path):
    where = {"target": {"connection": "web"}}
    found = connections(tmp_path, web={"base_url": "http://127.0.0.1:1"})
    with pytest.raises(OperationError, match="'web' is a HttpConnection; pigeon needs"):
        Compiler(found).compile(parse(view(**where)))
    with pytest.raises(OperationError, match=r"target\.connection: must name a connection"):
        Compiler(found).compile(parse(view(target={})))


def test_a_missing_library_says_which_extra_to_install(monkeypatch):
    monkeypatch.setattr(plugins, "ADAPTERS", {"slow": "no_such_library:Adapter"})
    monkeypatch.setattr(plugins, "KINDS", {"slow": "no_such_library:Section"})
    monkeypatch.setattr(plugins, "EXTRAS", {"slow": "snail"})
    with pytest.raises(OperationError, match=r"mcp-trio\[snail\]"):
        plugins.Adapters(Connections()).get("slow")
    with pytest.raises(ConfigurationError, match=r"mcp-trio\[snail\]"):
        plugins.connection_section("slow")


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"kind": "carrier"}, "'carrier' is no kind of connection; there are"),
        ({"kind": 3}, "x.kind: must be a string"),
        ({"kind": "http"}, "x.base_url: missing key"),
        ({"kind": "http", "base_url": "http://x", "loft": "n"}, "x.loft: unknown key"),
        ("http://x", "must be a table"),
    ],
)
def test_a_section_that_is_wrong_is_explained(section, told):
    values = {"catalog": {"registry": "r"}, "connections": {"x": section}}
    with pytest.raises(ConfigurationError, match=told):
        parse_settings(values)
