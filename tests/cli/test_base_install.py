"""The base install: without the libraries of any extra every command is there, or says why not."""

import os
import subprocess
import sys

import pytest

EXTRAS = (
    "yaml",
    "graphql",
    "grpc",
    "google",
    "jsonata",
    "psycopg",
    "opentelemetry",
    "prometheus_client",
)
BLOCK = f"""
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""


@pytest.fixture
def bare(tmp_path):
    """Run Python as if no extra was installed."""
    (tmp_path / "sitecustomize.py").write_text(BLOCK)
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "NO_COLOR": "1"}

    def run(*arguments):
        return subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=environment,
            cwd=tmp_path,
        )

    assert "No module named 'yaml'" in run("-c", "import yaml").stderr
    return run


def test_the_help_lists_every_command(bare):
    done = bare("-m", "mcp_trio", "--help")
    assert done.returncode == 0, done.stderr
    for name in ("serve", "catalog", "check", "diff", "import", "publish", "call", "probe"):
        assert f"  {name} " in done.stdout
    assert "pip install 'mcp-trio[authoring]'" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "ops.json"),
        ("diff", "--help"),
        ("diff", "a.json", "b.json", "--json"),
        ("import", "openapi", "o.json", "-o", "x.json"),
        ("publish", "ops.json", "r.sqlite"),
        ("call", "r.sqlite", "--operation", "x"),
    ],
)
def test_a_command_that_lacks_its_libraries_says_what_to_install(bare, arguments):
    done = bare("-m", "mcp_trio", *arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "pip install 'mcp-trio[authoring]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["serve", "check", "call", "list", "catalog"])
def test_the_others_do_without(bare, command):
    done = bare("-m", "mcp_trio", command, "--help")
    assert done.returncode == 0, done.stderr


def test_every_module_that_the_service_loads_does_without(bare):
    done = bare("-c", "import mcp_trio.cli.serve, mcp_trio.runtime.adapters.rest, mcp_trio.testing")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("protocol", "extra"), [("graphql", "graphql"), ("grpc", "grpc")])
def test_a_protocol_of_an_extra_is_one_operations_fault(bare, protocol, extra):
    program = (
        "from mcp_trio.catalog.operation import OperationError\n"
        "from mcp_trio.runtime.plugins import Adapters\n"
        "from mcp_trio.runtime.connections import Connections\n"
        f"try:\n    Adapters(Connections()).get({protocol!r})\n"
        "except OperationError as error:\n    print(error)\n"
    )
    done = bare("-c", program)
    assert done.returncode == 0, done.stderr
    assert f"mcp-trio[{extra}]" in done.stdout


def test_settings_that_want_telemetry_say_what_to_install(bare, tmp_path):
    settings = '[server]\nport = 0\n[catalog]\nregistry = "r.sqlite"\n[telemetry]\n'
    (tmp_path / "config.toml").write_text(settings)
    done = bare("-m", "mcp_trio", "serve", "config.toml")
    assert done.returncode == 1
    assert "pip install 'mcp-trio[otlp]'" in done.stderr
    assert "Traceback" not in done.stderr
