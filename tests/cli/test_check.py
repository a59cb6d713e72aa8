"""`mcp-trio check` of settings: what it prints, and with which status it ends."""

import json
import os
import re
import shutil
import tomllib

import pytest
from click.testing import CliRunner

from mcp_trio.catalog.registries.schema import create_registry
from mcp_trio.cli import main
from tests.programs import ROOT

PAGE = (ROOT / "docs" / "serve.md").read_text()


def check(*arguments, env=None):
    return CliRunner().invoke(main, ["check", *map(str, arguments)], env=env)


def write(folder, text):
    path = folder / "production.toml"
    path.write_text(text)
    return path


SOUND = '[catalog]\nregistry = "operations.sqlite"\n'


def test_faults_end_with_1_and_are_told_with_file_line_key_and_advice(tmp_path):
    path = write(tmp_path, SOUND + "intervall = 3\n")
    done = check(path, "--offline")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        f"{path}:3: fault: catalog.intervall: unknown key; did you mean catalog.interval?",
        "    Mend the spelling, or remove the key.",
        f"{path}: 1 fault, 0 warnings",
    ]
    told = json.loads(check(path, "--offline", "--json").stdout)
    assert told == {
        "settings": str(path),
        "faults": 1,
        "warnings": 0,
        "findings": [
            {
                "severity": "fault",
                "file": str(path),
                "line": 3,
                "pointer": "/catalog/intervall",
                "operation_id": None,
                "key": "catalog.intervall",
                "reason": "unknown key; did you mean catalog.interval?",
                "advice": "Mend the spelling, or remove the key.",
            }
        ],
    }


def test_warnings_end_with_0_unless_it_is_strict(tmp_path):
    path = write(tmp_path, SOUND)
    done = check(path)
    assert done.exit_code == 0
    assert f"{path}:2: warning: catalog.registry: cannot be read now: there is no" in done.stdout
    assert done.stdout.endswith("0 faults, 1 warning\n")
    assert check(path, "--strict").exit_code == 1
    assert check(path, "--strict", "--offline").exit_code == 0


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (b"a = 1\nnot toml\n", ":2", "is not TOML: "),
        (b"a = 1\na = 1\n", ":2", "is not TOML: "),
        (b"\xff", "", "is not TOML: "),
        (b"a = " + b"[" * 5000, "", "is not TOML: nested too deep"),
        (None, "", "cannot read "),
    ],
)
def test_what_is_no_toml_is_told_with_its_line(tmp_path, text, line, said):
    path = tmp_path / "production.toml"
    if text is not None:
        path.write_bytes(text)
    done = check(path)
    assert done.exit_code == 1
    assert done.stdout.startswith(f"{path}{line}: fault: {said}")


@pytest.mark.parametrize("text", [f"a{'.a' * 500} = 1", f"a = {'{a=' * 100}1{'}' * 100}"])
def test_what_is_nested_deeper_than_any_setting_is_told_and_not_walked_over(tmp_path, text):
    path = tmp_path / "production.toml"
    path.write_text(text)
    done = check(path)
    assert done.exit_code == 1
    assert done.stdout.startswith(f"{path}: fault: has more than 64 levels\n")


def test_variables_are_judged_as_serve_would(tmp_path):
    path = write(tmp_path, SOUND)
    done = check(path, "--offline", env={"MCP_TRIO_SERVER__HOST": "0.0.0.0"})
    assert done.exit_code == 1
    assert done.stdout.count("MCP_TRIO_SERVER__HOST: fault: server.host: ") == 2
    allowed = {
        "MCP_TRIO_SERVER__HOST": "0.0.0.0",
        "MCP_TRIO_SERVER__ALLOW_ANONYMOUS": "true",
        "MCP_TRIO_SERVER__ALLOW_PLAINTEXT": "true",
    }
    assert check(path, "--offline", env=allowed).exit_code == 0


def test_options_that_do_not_go_together_are_wrong_usage(tmp_path):
    path = write(tmp_path, SOUND)
    for arguments in (
        (path, "--config", path),
        (path, "--secret-env", "A"),
        ("o.json", "--offline"),
    ):
        done = check(*arguments)
        assert done.exit_code == 2
        assert "go" in done.stderr


def production(folder):
    """The example where it would be installed, with what it needs."""
    path = folder / "production.toml"
    text = (ROOT / "examples" / "production.toml").read_text()
    # Where it is installed there is a folder for logs.
    path.write_text(text.replace("/var/log/mcp-trio", os.fspath(folder)))
    (folder / "secrets").mkdir(mode=0o700)
    for name in ("state.key", "cursor.key", "audit.key", "crm.token", "stock.password"):
        (folder / "secrets" / name).write_text("0f" * 32)
        (folder / "secrets" / name).chmod(0o600)
    create_registry(folder / "operations.sqlite")
    keys = str(folder / "secrets" / "api-keys.toml")
    made = ["new-key", "agent", "--subject", "agent", "--scope", "operations", "--file", keys]
    assert CliRunner().invoke(main, made).exit_code == 0
    return path


def test_the_example_for_production_passes(tmp_path):
    path = production(tmp_path)
    done = check(path, "--strict")
    assert (done.exit_code, done.stdout) == (0, f"{path}: 0 faults, 0 warnings\n")
    # It is the example of what is there, and not of what happens to be the default.
    values = tomllib.loads((tmp_path / "production.toml").read_text())
    logs = {"logging", "access_log", "audit"}
    assert {"server", "limits", "auth", "catalog", "admin", "connections", *logs} <= set(values)


def test_what_the_example_needs_is_missed_where_it_is_not_there(tmp_path):
    path = production(tmp_path)
    shutil.rmtree(tmp_path / "secrets")
    done = check(path, "--offline", "--json")
    keys = [each["key"] for each in json.loads(done.stdout)["findings"]]
    assert keys == [
        "server.state_keys.0",
        "server.cursor_key",
        "auth.api_keys_file",
        "audit.key",
        "connections.crm.auth.secret_file",
        "connections.stock.secret_file",
    ]


def test_what_the_page_shows_of_check_is_what_it_prints(tmp_path, monkeypatch):
    shown = PAGE.split("$ MCP_TRIO_SERVER_PORT=9000 mcp-trio check production.toml\n")[1].split(
        "```"
    )[0]
    text = PAGE.split("```toml\n# production.toml")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    create_registry(tmp_path / "operations.sqlite")
    write(tmp_path, "# production.toml" + text)
    done = check("production.toml", env={"MCP_TRIO_SERVER_PORT": "9000"})
    assert done.stdout == shown
    assert done.exit_code == 1


def test_the_variables_that_the_page_shows_mean_what_it_says(tmp_path, monkeypatch):
    from mcp_trio.config import load_settings

    block = PAGE.split("```sh\n")[1].split("```")[0]
    shown = dict(re.findall(r"^(MCP_TRIO_\w+)='?(.*?)'?(?: +#.*)?$", block, re.MULTILINE))
    assert len(shown) == len(block.splitlines()) > 4
    path = write(tmp_path, SOUND + '[connections.crm-eu]\nbase_url = "https://crm.example"\n')
    settings = load_settings(path, shown)
    assert settings.server.port == 9000
    assert settings.server.allowed_hosts == ["mcp.example.com"]
    assert not settings.server.legacy_sse
    assert settings.admin.port == 9001
    assert settings.connections["crm-eu"].total_timeout == 2.5
    assert settings.connections["crm-eu"].vars == {"tenant": "acme"}
