"""Settings from the environment: every key, above the file; names and values that mean nothing."""

import json
import typing
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_trio.config import Draft, Settings, SettingsError, load_settings, overridden
from mcp_trio.config.environment import variable_of
from mcp_trio.config.schema import element_of, keys_of, plain
from mcp_trio.config.settings import read_draft
from mcp_trio.runtime.plugins import KINDS

REQUIRED = {
    "http": {"base_url": "http://x"},
    "grpc": {"address": "x:1"},
    "mcp": {},
    "sql": {"address": "x.sqlite"},
}
AUTH = {"kind": "bearer"}
EXCHANGE = {"token_url": "https://x", "client_id": "us"}


def base():
    """Settings in which every table stands that there can be."""
    connections = {
        kind: {"kind": kind, **keys, "auth": AUTH, "on_behalf_of": EXCHANGE}
        for kind, keys in REQUIRED.items()
    }
    del connections["sql"]["auth"], connections["sql"]["on_behalf_of"]
    return {
        "server": {},
        "catalog": {"registry": "r.sqlite"},
        "tls": {"cert_file": "cert.pem", "key_file": "key.pem"},
        "limits": {},
        "auth": {
            "resource": "https://x/mcp",
            "api_keys_file": "keys",
            "jwt": {"one": {"issuer": "https://x"}},
            "introspection": {"two": {"url": "https://x", "issuer": "x", "client_id": "us"}},
            "certificates": {"uri:spiffe://prod/agent": {"subject": "agent"}},
            "dpop": {},
        },
        "admin": {},
        "toolsets": {"crm": {"tags": ["a"]}},
        "connections": connections,
    }


def keys(kind, held, path=()):
    """Every key, with its type."""
    below = keys_of(kind, held)
    if below is None and element_of(kind) is not None:
        below = dict.fromkeys(held, element_of(kind))
    for name, inner in (below or {}).items():
        if isinstance(held.get(name), dict) and (keys_of(inner, held[name]) or element_of(inner)):
            yield from keys(inner, held[name], (*path, name))
        else:
            yield (*path, name), plain(inner)


KEYS = [each for each in keys(Settings, base()) if each[0][-1] != "kind" or len(each[0]) > 3]


def read(values, environment):
    draft = overridden(Draft.of("service.toml", Path("/srv"), values), environment)
    return read_draft(draft)


def values_of(kind):
    """Values as TOML has them, and how the environment says them."""
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return st.sampled_from(typing.get_args(kind)).map(lambda value: (value, value))
    if kind is str:
        texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9)
        return texts.map(lambda value: (value, value))
    if kind is bool:
        return st.booleans().map(lambda value: (value, str(value).lower()))
    if kind is int:
        return st.integers(-5, 70000).map(lambda value: (value, str(value)))
    if kind is float:
        numbers = st.integers(-2, 99) | st.floats(-1, 1e9, allow_nan=False)
        return numbers.map(lambda value: (value, repr(value)))
    texts = st.text('ab c"é', max_size=3)
    table = st.dictionaries(texts, texts, max_size=2)
    return (st.lists(texts, max_size=2) if origin is list else table).map(
        lambda value: (value, json.dumps(value))
    )


def test_all_sections_and_kinds_are_among_the_keys_that_are_tried():
    assert set(REQUIRED) == set(KINDS)
    tried = {path[0] for path, _ in KEYS}
    assert tried == {field.name for field in attrs.fields(Settings)}
    assert len(KEYS) > 130


@pytest.mark.parametrize(("path", "kind"), KEYS, ids=[".".join(path) for path, _ in KEYS])
def test_every_key_can_be_set_by_a_variable_and_means_the_same_as_in_the_file(path, kind):
    @settings(max_examples=10, deadline=None)
    @given(values_of(kind))
    def tried(case):
        value, text = case
        variable = variable_of(path)
        in_file = base()
        node = in_file
        for part in path[:-1]:
            node = node[part]
        node[path[-1]] = value
        wanted, faults = read(in_file, {})
        made, told = read(base(), {variable: text})
        assert made == wanted
        assert [each.path for each in told] == [each.path for each in faults]
        assert [each.reason for each in told] == [each.reason for each in faults]
        assert all(str(each.origin) == variable for each in told if each.path == path)

    tried()


def write(folder, text):
    path = folder / "service.toml"
    path.write_text(text)
    return path


FILE = """
[server]
port = 1
name = "file"
[catalog]
registry = "r.sqlite"
[connections.crm-eu]
base_url = "http://x"
[connections.CRM]
base_url = "http://y"
[connections.crm__eu]
base_url = "http://z"
"""


def test_a_variable_stands_above_the_file_and_the_rest_of_the_file_stays(tmp_path):
    found = load_settings(write(tmp_path, FILE), {"MCP_TRIO_SERVER__PORT": "2", "PATH": "x"})
    assert (found.server.port, found.server.name) == (2, "file")


def test_names_of_the_file_are_found_whatever_they_are_made_of(tmp_path):
    environment = {
        "MCP_TRIO_CONNECTIONS__CRM__TOTAL_TIMEOUT": "1",
        "MCP_TRIO_CONNECTIONS__CRM_EU__TOTAL_TIMEOUT": "2.5",
        "MCP_TRIO_CONNECTIONS__CRM__EU__TOTAL_TIMEOUT": "3",
    }
    found = load_settings(write(tmp_path, FILE), environment).connections
    assert {name: section.total_timeout for name, section in found.items()} == {
        "CRM": 1,
        "crm-eu": 2.5,
        "crm__eu": 3,
    }


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("max_body", "1_048_576", 1_048_576),
        ("max_body", "+5", 5),
        ("max_body", "0x1F90", 8080),
        ("grace_period", "5", 5),
        ("grace_period", "1_0.5", 10.5),
        ("grace_period", "1e2", 100),
    ],
)
def test_numbers_are_written_as_in_the_file(tmp_path, key, text, value):
    by_variable = {f"MCP_TRIO_SERVER__{key.upper()}": text}
    bare = load_settings(write(tmp_path, '[catalog]\nregistry = "r"\n'), by_variable)
    file = write(tmp_path, f'[catalog]\nregistry = "r"\n[server]\n{key} = {text}\n')
    assert getattr(bare.server, key) == getattr(load_settings(file, {}).server, key) == value


def test_what_a_table_lacks_that_began_in_the_environment_is_told_with_its_variable(tmp_path):
    (told,) = faults(tmp_path, {"MCP_TRIO_CONNECTIONS__OTHER__TOTAL_TIMEOUT": "5"})
    assert told.startswith(
        "MCP_TRIO_CONNECTIONS__OTHER__TOTAL_TIMEOUT: fault: connections.other.base_url: missing"
    )


def test_a_table_can_begin_in_the_environment(tmp_path):
    environment = {
        "MCP_TRIO_ADMIN__PORT": "9001",
        "MCP_TRIO_CONNECTIONS__NEW_ONE__ADDRESS": "host:1",
        "MCP_TRIO_CONNECTIONS__NEW_ONE__KIND": "grpc",
        "MCP_TRIO_CONNECTIONS__NEW_ONE__AUTH__KIND": "bearer",
        "MCP_TRIO_CONNECTIONS__NEW_ONE__AUTH__SECRET_ENV": "T",
        "MCP_TRIO_TOOLSETS": '{"polite": {"tags": ["x"]}}',
        "MCP_TRIO_TOOLSETS__POLITE__SEARCH_ABOVE": "3",
    }
    found = load_settings(write(tmp_path, FILE), environment)
    assert found.admin.port == 9001
    assert found.connections["new_one"].address == "host:1"
    assert found.connections["new_one"].auth.secret_env == "T"
    assert (found.toolsets["polite"].tags, found.toolsets["polite"].search_above) == (
        ["x"],
        3,
    )


def faults(folder, environment, text=FILE):
    with pytest.raises(SettingsError) as caught:
        load_settings(write(folder, text), environment)
    return [each.as_text() for each in caught.value.faults]


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("MCP_TRIO_SERVER_PORT", "did you mean MCP_TRIO_SERVER__PORT?"),
        ("MCP_TRIO_SERVER__PROT", "did you mean MCP_TRIO_SERVER__PORT?"),
        ("MCP_TRIO_CONNECTIONS__CRM_EU__BASEURL", "MCP_TRIO_CONNECTIONS__CRM_EU__BASE_URL?"),
        ("MCP_TRIO_", "unknown variable"),
        ("MCP_TRIO_NOTHING_LIKE_IT", "A variable is MCP_TRIO_ and the key in capitals"),
        ("MCP_TRIO_SERVER__PORT__X", "unknown variable"),
        ("MCP_TRIO_CONNECTIONS____BASE_URL", "unknown variable"),
        ("MCP_TRIO_CONNECTIONS__CRM__VARS__TENANT", "unknown variable"),
        ("MCP_TRIO_CATALOG__SECRET", "Put it into a file"),
    ],
)
def test_a_variable_that_means_no_key_is_a_fault_and_its_value_is_not_told(
    tmp_path, variable, said
):
    (told,) = faults(tmp_path, {variable: "c4n4ry"})
    assert told.startswith(f"{variable}: fault: unknown variable")
    assert said in told
    assert "c4n4ry" not in told


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("SERVER__PORT", "", "server.port: must be a whole number"),
        ("SERVER__PORT", "1e3", "server.port: must be a whole number"),
        ("SERVER__PORT", "9" * 5000, "server.port: must be a whole number"),
        ("SERVER__PORT", "70000", "server.port: must be 0 to 65535"),
        ("SERVER__LEGACY_SSE", "yes", "server.legacy_sse: must be true or false"),
        ("SERVER__GRACE_PERIOD", "nan", "server.grace_period: must be a finite number"),
        ("SERVER__GRACE_PERIOD", "soon", "server.grace_period: must be a finite number"),
        ("SERVER__ALLOWED_HOSTS", "a,b", 'must be a list in JSON, such as ["a", "b"]'),
        ("SERVER__ALLOWED_HOSTS", "{}", 'must be a list in JSON, such as ["a", "b"]'),
        ("SERVER__ALLOWED_HOSTS", "[1]", "server.allowed_hosts: must be a list of strings"),
        ("SERVER__ALLOWED_HOSTS", "[" * 9999, "must be a list in JSON"),
        ("SERVER__ALLOWED_HOSTS", "[" * 500 + "]" * 500, "must be a list in JSON"),
        ("ADMIN", "on", "admin: must be a table in JSON"),
        ("ADMIN", '{"port": 1, "port": 2}', "with each key once"),
        ("SERVER__PORT", "00012", "server.port: must be a whole number"),
        ("SERVER__PORT", "2026-01-01", "server.port: must be a whole number"),
        ("SERVER__GRACE_PERIOD", "2026-01-01", "server.grace_period: must be a finite number"),
        ("SERVER__GRACE_PERIOD", "1e400", "server.grace_period: must be a finite number"),
        ("SERVER__GRACE_PERIOD", "1\n", "server.grace_period: must be a finite number"),
        ("ADMIN", '{"prot": 1}', "admin.prot: unknown key; did you mean admin.port?"),
        ("CONNECTIONS__CRM__VARS", '{"a": NaN}', "must be a table in JSON"),
        ("CONNECTIONS__CRM__KIND", "pigeon", "no kind of connection"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_its_variable(tmp_path, variable, text, said):
    told = faults(tmp_path, {f"MCP_TRIO_{variable}": text})
    assert len(told) == 1
    assert told[0].startswith(f"MCP_TRIO_{variable}: fault: ")
    assert said in told[0]


def test_faults_of_the_file_and_of_variables_are_told_together_in_that_order(tmp_path):
    told = faults(
        tmp_path,
        {"MCP_TRIO_SERVER__PORT": "x", "MCP_TRIO_ADMIN__PORT": "-1"},
        FILE.replace("port = 1", "prot = 1"),
    )
    assert [each.partition(": fault: ")[0].rpartition("/")[2] for each in told] == [
        "service.toml:3",
        "MCP_TRIO_SERVER__PORT",
        "MCP_TRIO_ADMIN__PORT",
    ]


def test_what_is_not_meant_for_us_is_left_alone(tmp_path):
    environment = {
        # Of our own tests, and what Kubernetes says of a service called mcp-trio.
        "MCP_TRIO_TEST_POSTGRES": "required",
        "MCP_TRIO_SERVICE_HOST": "10.0.0.7",
        "MCP_TRIO_SERVICE_PORT": "8000",
        "MCP_TRIO_SERVICE_PORT_HTTP": "8000",
        "MCP_TRIO_PORT": "tcp://10.0.0.7:8000",
        "MCP_TRIO_PORT_8000_TCP": "tcp://10.0.0.7:8000",
        "MCP_TRIO_PORT_8000_TCP_ADDR": "10.0.0.7",
        "MCP_TRIO_PORT_8000_TCP_PROTO": "tcp",
        # Secrets that the settings name.
        "MCP_TRIO_CRM_TOKEN": "t",
        "MCP_TRIO_STATE_KEY": "k",
        "MCP_TRIO_OTHER": "o",
        "MCP_TRIO_CATALOG__SECRET_ENV": "MCP_TRIO_OTHER",
    }
    text = FILE.replace('name = "file"', 'state_keys = ["env:MCP_TRIO_STATE_KEY"]')
    text += '[connections.CRM.auth]\nkind = "bearer"\nsecret_env = "MCP_TRIO_CRM_TOKEN"\n'
    assert load_settings(write(tmp_path, text), environment).server.port == 1


def test_without_another_environment_it_is_that_of_the_process(tmp_path, monkeypatch):
    monkeypatch.setenv("MCP_TRIO_SERVER__PORT", "7")
    assert load_settings(write(tmp_path, FILE)).server.port == 7
