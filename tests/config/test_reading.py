"""Reading settings: types and rules, every fault with its key, and no value in any of them."""

import attrs
import pytest

from mcp_trio.config import AdminSection, ServerSection, SettingsError, parse_settings
from mcp_trio.config.addresses import ENDPOINT
from mcp_trio.errors import ConfigurationError

CATALOG = {"registry": "r.sqlite"}


def faults(values):
    with pytest.raises(SettingsError) as caught:
        parse_settings(values)
    return [str(fault) for fault in caught.value.faults]


def test_faults_of_all_sections_are_told_together():
    values = {
        "server": {"port": 70000, "path": "mcp", "prot": 1, "name": 3, "max_body": 0},
        "catalog": {"interval": -1},
        "admin": {"port": "x"},
        "toolsets": {"a b": {"names": ["*"]}, "crm": {}, "c": {"search_above": -1, "tags": ["x"]}},
        "connections": {"a": {}, "b": {"base_url": "http://x", "auth": {"kind": "bearer", "x": 1}}},
        "admn": {},
    }
    assert sorted(faults(values)) == [
        "admin.port: must be a whole number",
        "admn: unknown key; did you mean admin?",
        "catalog.interval: must be greater than 0",
        "catalog.registry: missing key",
        "connections.a.base_url: missing key",
        "connections.b.auth.x: unknown key",
        "server.max_body: must be greater than 0",
        "server.name: must be a string",
        "server.path: " + ENDPOINT.text,
        "server.port: must be 0 to 65535",
        "server.prot: unknown key; did you mean server.port?",
        "toolsets.'a b': the name of a toolset must match ^[A-Za-z0-9_-]{1,64}$",
        "toolsets.c.search_above: must be 0 or more",
        "toolsets.crm: has neither names nor tags",
    ]


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"server": 3}, "server: must be a table"),
        ({"server": []}, "server: must be a table"),
        ({"toolsets": "x"}, "toolsets: must be a table"),
        ({"toolsets": {"a": 1}}, "toolsets.a: must be a table"),
        ({"connections": [1]}, "connections: must be a table"),
        ({"server": {"legacy_sse": 1}}, "server.legacy_sse: must be true or false"),
        ({"server": {"port": True}}, "server.port: must be a whole number"),
        ({"server": {"port": 1.0}}, "server.port: must be a whole number"),
        (
            {"server": {"request_timeout": 10**400}},
            "server.request_timeout: must be a finite number",
        ),
        ({"server": {"request_timeout": "1"}}, "server.request_timeout: must be a finite number"),
        (
            {"connections": {"a": {"base_url": "http://x", "auth": {"kind": "beaer"}}}},
            (
                "connections.a.auth.kind: must be one of none, bearer, basic, header, query, "
                "client_credentials"
            ),
        ),
        ({"server": {"state_keys": ["a", 1]}}, "server.state_keys: must be a list of strings"),
    ],
)
def test_each_type_is_demanded_as_toml_has_it(section, told):
    assert faults({"catalog": CATALOG, **section}) == [told]


def test_a_file_without_a_catalog_is_told_so():
    assert faults({}) == ["catalog: missing key"]


def test_a_whole_number_may_stand_where_a_fraction_may():
    settings = parse_settings({"catalog": {**CATALOG, "interval": 3}})
    assert settings.catalog.interval == 3


def test_what_a_rule_forbids_cannot_be_made_in_code_either():
    with pytest.raises(ConfigurationError, match="port: must be 0 to 65535"):
        AdminSection(port=-1)
    with pytest.raises(ConfigurationError, match="grace_period: must be greater than 0"):
        attrs.evolve(ServerSection(), grace_period=0)
