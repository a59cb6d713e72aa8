"""From an address, and from settings, to a registry."""

from __future__ import annotations

import importlib
import json

import pytest

from mcp_trio.catalog.registries.document import DocumentRegistry
from mcp_trio.catalog.registries.http import HttpRegistry
from mcp_trio.catalog.registries.opening import kind_of, open_registry, shown
from mcp_trio.catalog.registries.options import RegistryOptions
from mcp_trio.catalog.registries.schema import create_registry, publish
from mcp_trio.catalog.registries.sqlite import SqliteRegistry
from mcp_trio.config import CatalogSection, load_settings, parse_settings
from mcp_trio.errors import ConfigurationError
from mcp_trio.secrets import Secret

CANARY = "s3cret-canary-72"


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("registry.sqlite", SqliteRegistry),
        ("registry", SqliteRegistry),
        ("/var/lib/registry.db", SqliteRegistry),
        ("operations.json", DocumentRegistry),
        ("operations/", DocumentRegistry),
        ("https://registry.example/operations", HttpRegistry),
        ("HTTPS://registry.example/operations.sqlite", HttpRegistry),
        ("http://localhost:8000/operations.json", HttpRegistry),
    ],
)
def test_the_address_tells_the_kind(address, kind):
    assert type(open_registry(address)) is kind


def test_a_folder_that_is_there_needs_no_slash(tmp_path):
    assert type(open_registry(str(tmp_path))) is DocumentRegistry


@pytest.mark.parametrize(
    ("address", "says"),
    [
        (f"mysql://me:{CANARY}@host/db", "no registry of the kind 'mysql'"),
        (f"file:///{CANARY}", "no registry of the kind 'file'"),
        ("operations.yaml", "a service reads no YAML"),
        ("operations.yml", "a service reads no YAML"),
        (f"https://u:{CANARY}@host/ops.json", "no user information"),
    ],
)
def test_what_is_no_registry_is_told(address, says):
    with pytest.raises(ConfigurationError, match=says) as caught:
        open_registry(address)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "options", "says"),
    [
        ("a.sqlite", {"max_bytes": 5}, "kind SQLite file has no max_bytes"),
        ("a.json", {"secret": Secret(CANARY)}, "kind JSON document has no secret"),
        ("a/", {"allow_private": True}, "kind JSON document has no allow_private"),
        ("postgresql:///db", {"header": "x"}, "kind PostgreSQL has no header"),
    ],
)
def test_an_option_that_nobody_heeds_is_a_mistake(address, options, says):
    with pytest.raises(ConfigurationError, match=says):
        open_registry(address, RegistryOptions(**options))


def test_a_database_without_its_driver_says_which_extra(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert kind_of("postgresql:///db") == "PostgreSQL"
    with pytest.raises(ConfigurationError, match=r"install mcp-trio\[postgres\]"):
        open_registry("postgresql:///db")


def test_an_address_is_shown_without_secrets():
    assert shown(f"https://u:{CANARY}@h/ops.json?sig={CANARY}") == "https://h/ops.json"
    assert shown(f"postgresql://u:{CANARY}@h:5432/db?password={CANARY}") == "postgresql://h:5432/db"
    assert shown("/srv/ops.json") == "/srv/ops.json"


def section(registry="https://registry.example/ops.json", **keys):
    return parse_settings({"catalog": {"registry": registry, **keys}}).catalog


def test_settings_become_options(tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr("mcp_trio.config.catalog.open_registry", lambda a, o: asked.update({a: o}))
    (tmp_path / "token").write_text(f" {CANARY}\n")
    made = section(
        secret_file="token",
        header="X-Key",
        ca_file="ca.pem",
        allow_private=True,
        max_bytes=5,
        connect_timeout=1,
        total_timeout=2.5,
    )
    made.open_registry(tmp_path)
    [(address, options)] = asked.items()
    assert address == "https://registry.example/ops.json"
    assert options.secret.reveal() == CANARY
    # Rotated while the service runs.
    (tmp_path / "token").write_text("another")
    assert options.secret.reveal() == "another"
    assert options.ca_file == str(tmp_path / "ca.pem")
    assert (options.header, options.allow_private, options.allow_http) == ("X-Key", True, False)
    assert (options.max_bytes, options.connect_timeout, options.total_timeout) == (5, 1, 2.5)
    section(secret_env="TOKEN").open_registry(tmp_path, {"TOKEN": CANARY})
    assert next(reversed(asked.values())).secret.reveal() == CANARY


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"secret_env": "MISSING"}, "catalog: MISSING is not set"),
        ({"secret_file": "missing"}, "catalog: cannot read its secret_file"),
        ({"secret_env": "A", "secret_file": "b"}, "give either secret_env or secret_file"),
        ({"registry": "a.sqlite", "allow_http": True}, "SQLite file has no allow_http"),
    ],
)
def test_a_mistake_in_the_settings_is_told_at_the_start(tmp_path, keys, says):
    with pytest.raises(ConfigurationError, match=says):
        section(**keys).open_registry(tmp_path, {})


@pytest.mark.parametrize("name", ["max_bytes", "connect_timeout", "total_timeout", "interval"])
def test_bounds_are_greater_than_nothing(name):
    with pytest.raises(ConfigurationError, match=f"catalog.{name}: must be greater than 0"):
        section(**{name: 0})


def test_defaults_of_settings_and_options_are_the_same():
    made = CatalogSection(registry="x")
    for name in ("header", "allow_private", "allow_http", "max_bytes", "total_timeout"):
        assert getattr(made, name) == getattr(RegistryOptions(), name)
    assert made.connect_timeout == RegistryOptions().connect_timeout


async def test_paths_in_a_settings_file_are_relative_to_it_and_urls_are_not(tmp_path, view):
    def load(registry):
        (tmp_path / "service.toml").write_text(f"[catalog]\nregistry = {json.dumps(registry)}\n")
        return load_settings(tmp_path / "service.toml").catalog

    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "a.json").write_text(json.dumps(view("a")))
    create_registry(tmp_path / "ops.sqlite")
    publish(tmp_path / "ops.sqlite", view("a"))
    for name in ("ops/", "ops", "ops/a.json", "ops.sqlite"):
        registry = load(name).open_registry(tmp_path)
        assert [e.operation_id for e in (await registry.read(None)).entries] == ["a"]
        await registry.aclose()
    assert load("https://host/ops.json").registry == "https://host/ops.json"
    assert load("new/").registry.endswith("new/")
    assert load(str(tmp_path / "ops")).registry == str(tmp_path / "ops")
