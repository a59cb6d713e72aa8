"""Servers that say what they like to a command on a terminal, in a pipe, and to scripts."""

import json
import re
import sys
from pathlib import Path

import pytest

from tests.cli.hostile_server import STEERING, URI
from tests.cli.terminal import on_pipes, on_terminal, said_by, shown

PROGRAM = Path(__file__).with_name("hostile_server.py")
HANDSHAKE = ("--revision", "2025-11-25")


def target(mode):
    return f"{sys.executable} {PROGRAM} {mode}"


# What rich says to a terminal by itself: colours, the cursor, and lines that are drawn again.
OWN = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[lh]|[12]?K|1A)")
COMMANDS = [
    ("probe",),
    ("list",),
    ("list", "prompts"),
    ("list", "resources"),
    ("list", "templates"),
    ("call", "tool"),
    ("read", "x"),
    ("prompt", "x"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
async def test_nothing_that_a_server_says_steers_a_terminal(command):
    name, *rest = command
    said, status = await shown(name, target("steering"), *rest, *HANDSHAKE)
    assert status == (1 if "templates" in rest else 0), said
    assert "\\x1b]0;title" in said
    left = OWN.sub("", said).replace("\r\n", "\n")
    # A bar is drawn over itself.
    left = left.replace("\r", "") if name == "call" else left
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2028\ufeff]", left), left
    assert "Traceback" not in said


async def test_an_entry_is_a_line_whatever_is_in_it():
    async with on_pipes("list", target("steering"), "resources", *HANDSHAKE) as process:
        lines = (await said_by(process.stdout)).splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(URI)


async def test_a_pipe_gets_a_text_as_it_came():
    async with on_pipes("read", target("steering"), "x", *HANDSHAKE) as process:
        said = b"".join([part async for part in process.stdout]).decode()
    assert said == f"{STEERING}\n[{STEERING}, 3 bytes]\n"


async def test_json_is_one_value_with_all_in_it_also_on_a_terminal():
    arguments = ("read", target("steering"), "x", "--json", *HANDSHAKE)
    said, status = await shown(*arguments)
    assert status == 0
    assert said.isprintable() is False  # the end of the line, and nothing else
    assert said.removesuffix("\r\n").isprintable()
    assert json.loads(said)[0]["text"] == STEERING
    async with on_pipes(*arguments, PYTHONIOENCODING="ascii") as process:
        assert json.loads(await said_by(process.stdout))[0]["text"] == STEERING


@pytest.mark.parametrize(
    "command",
    [command for command in COMMANDS if command != ("probe",)],
    ids=" ".join,
)
async def test_an_answer_of_another_shape_is_an_error_in_a_line(command):
    name, *rest = command
    async with on_pipes(name, target("shapes"), *rest, *HANDSHAKE) as process:
        said, noted = await said_by(process.stdout), await said_by(process.stderr)
        assert await process.wait() == 1
    assert said == ""
    assert "MCP." in noted.splitlines()[-1]
    assert "Traceback" not in noted


@pytest.mark.parametrize("arguments", [("read", "x"), ("read", "x", "--json")])
async def test_a_reader_that_leaves_ends_the_command_quietly(arguments):
    name, *rest = arguments
    async with on_pipes(name, target("huge"), *rest, *HANDSHAKE) as process:
        assert await process.stdout.receive_some(10)
        await process.stdout.aclose()
        assert await said_by(process.stderr) == ""
        assert await process.wait() == 141


async def test_a_url_in_a_command_is_an_argument():
    async with on_pipes("list", f"{target('steering')} http://x.example/", *HANDSHAKE) as process:
        assert "tool" in await said_by(process.stdout)
        assert await process.wait() == 0


async def test_a_text_is_a_text_also_where_nothing_may_be_given():
    arguments = ("--arg", "maybe=3", "--arg", "number=4", "--arg", "other=NaN")
    async with on_pipes("call", target("steering"), "tool", *arguments, *HANDSHAKE) as process:
        said = await said_by(process.stdout)
    assert said.startswith('{"maybe": "3", "number": 4, "other": "NaN"}')


async def test_a_bar_on_a_terminal_is_taken_away_again():
    async with on_terminal("call", target("steering"), "tool", *HANDSHAKE) as running:
        assert await running.end() == 0
    said = running.said.decode()
    assert said.count("\x1b[?25l") == said.count("\x1b[?25h") == 1
