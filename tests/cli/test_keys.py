"""`mcp-trio new-key`."""

import stat

import pytest
from click.testing import CliRunner

from mcp_trio.auth.resource_server.api_keys import KeyFile
from mcp_trio.cli import main


def run(*arguments):
    return CliRunner().invoke(main, ["new-key", *map(str, arguments)])


def test_it_prints_the_key_once_and_the_line_to_keep():
    made = run(
        "laptop", "--subject", "ann", "--scope", "b", "--scope", "a", "--expires", "2027-01-31"
    )
    assert made.exit_code == 0
    key, line = made.stdout.splitlines()
    assert key.startswith("mcpk_laptop.")
    assert line.startswith('laptop = { digest = "sha256:')
    assert line.endswith('subject = "ann", scopes = ["a", "b"], expires = 2027-01-31 }')
    assert key not in line


def test_it_appends_the_line_to_a_file_of_its_owner(tmp_path):
    file = tmp_path / "keys.toml"
    made = run("one", "--file", file)
    assert made.stdout.startswith("mcpk_one.")
    assert made.stdout.count("\n") == 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text(file.read_text().rstrip("\n"))
    assert run("two", "--file", file, "--subject", "ann").exit_code == 0
    entries = KeyFile(file).entries()
    assert {id_: entry.subject for id_, entry in entries.items()} == {"one": "one", "two": "ann"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("a b",), "an id has"),
        (("a", "--scope", "x y"), "no scope"),
        (("a", "--expires", "soon"), "Invalid value"),
        (("one", "--file", "keys.toml"), "has a key one already"),
        (("two", "--file", "broken.toml"), "broken.toml: it is not TOML"),
        (("two", "--file", "nowhere/keys.toml"), "cannot write"),
    ],
)
def test_what_cannot_be_is_told_and_changes_nothing(tmp_path, monkeypatch, arguments, told):
    monkeypatch.chdir(tmp_path)
    assert run("one", "--file", "keys.toml").exit_code == 0
    (tmp_path / "broken.toml").write_text("x")
    before = {file.name: file.read_text() for file in tmp_path.iterdir()}
    made = run(*arguments)
    assert made.exit_code != 0
    assert told in made.output
    assert "mcpk_" not in made.output
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == before
