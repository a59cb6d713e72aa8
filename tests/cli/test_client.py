"""The client of the command line, as its user runs it: a process, its output, its status."""

import contextlib
import json
import os
import sys
from pathlib import Path

import pytest
import trio

from mcp_trio import Context, Image, MCPServer, ToolError
from mcp_trio.cli.client import COMMANDS
from mcp_trio.wire import REVISIONS
from tests.cli.terminal import on_pipes

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def make_server():
    server = MCPServer("demo", version="1.5", instructions="Be brief")

    @server.tool
    async def add(a: int, b: int = 1) -> int:
        """Add two numbers.

        The second line is not listed.
        """
        return a + b

    @server.tool
    async def say(text: str, ctx: Context) -> str:
        await ctx.progress(1, 2, "half way")
        return f"said {text}"

    @server.tool
    async def fail() -> str:
        raise ToolError("it never works")

    @server.tool
    async def picture() -> Image:
        return Image(b"\x89PNG\r\n\x1a\n")

    @server.prompt
    def greet(name: str) -> str:
        """Greet somebody."""
        return f"Greet {name}"

    @server.resource("note:///a")
    def note() -> str:
        return "Buy milk"

    @server.resource("note:///{name}/bytes")
    def binary(name: str) -> bytes:
        return b"\0\1\2"

    return server


async def mcp(*arguments, stdin=b""):
    """Run the command to its end."""
    with trio.fail_after(60):
        return await trio.run_process(
            [sys.executable, "-m", "mcp_trio", *arguments],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            stdin=stdin,
            env={**os.environ, "NO_COLOR": "1", "TERM": "dumb"},
        )


@contextlib.asynccontextmanager
async def served():
    """Have the server at a URL."""
    server = make_server()
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(server.serve_http, "127.0.0.1", 0)
        yield url
        nursery.cancel_scope.cancel()


async def lines(*arguments):
    done = await mcp(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().splitlines()


async def as_json(*arguments):
    done = await mcp(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_probing_says_what_a_server_speaks_and_offers():
    async with served() as url:
        found = await as_json("probe", url)
        assert (found["revision"], found["era"]) == (REVISIONS[0].date, "stateless")
        assert (found["server"]["name"], found["instructions"]) == ("demo", "Be brief")
        assert set(found["capabilities"]) >= {"tools", "prompts", "resources"}
        assert found["connect_ms"] > 0
        assert found["ping_ms"] > 0
        said = await lines("probe", url, "--revision", "2025-06-18")
        assert any("2025-06-18 (handshake)" in line for line in said)


async def test_everything_is_listed():
    async with served() as url:
        said = await lines("list", url)
        assert said[0].split() == ["add", "Add", "two", "numbers."]
        assert [tool["name"] for tool in await as_json("list", url)][:2] == ["add", "say"]
        assert (await lines("list", url, "prompts"))[0].startswith("greet")
        assert (await as_json("list", url, "resources"))[0]["uri"] == "note:///a"
        assert (await as_json("list", url, "templates"))[0]["uriTemplate"] == "note:///{name}/bytes"


async def test_a_tool_is_called_with_arguments_in_the_types_it_wants():
    async with served() as url:
        assert await lines("call", url, "add", "--arg", "a=41") == ["42"]
        assert await lines("call", url, "add", "--args", '{"a": 1}', "-a", "b=2") == ["3"]
        # A text that looks like a number stays a text where a text is wanted.
        assert await lines("call", url, "say", "-a", "text=123") == ["said 123"]
        assert (await as_json("call", url, "add", "-a", "a=1"))["structuredContent"] == {
            "result": 2
        }
        assert await lines("call", url, "picture") == ["[image, image/png, 8 bytes]"]


async def test_progress_is_shown_beside_the_result():
    async with served() as url:
        done = await mcp("call", url, "say", "-a", "text=x")
        assert done.stdout.decode() == "said x\n"
        assert "1/2 half way" in done.stderr.decode()


async def test_resources_and_prompts_are_read():
    async with served() as url:
        assert await lines("read", url, "note:///a") == ["Buy milk"]
        assert await lines("read", url, "note:///x/bytes") == [
            "[application/octet-stream, 3 bytes]"
        ]
        assert (await as_json("read", url, "note:///a"))[0]["text"] == "Buy milk"
        assert await lines("prompt", url, "greet", "-a", "name=Ada") == ["user: Greet Ada"]


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["call", "URL", "fail"], 1, ""),
        (["call", "URL", "missing"], 1, "Unknown tool"),
        (["read", "URL", "note:///none"], 1, "not found"),
        (["prompt", "URL", "greet"], 1, "name"),
        (["call", "URL", "add", "-a", "nonsense"], 2, "NAME=VALUE"),
        (["call", "URL", "add", "--args", "[1]"], 2, "JSON object"),
        (["call", "URL", "add", "--args", "{"], 2, "no JSON"),
        (["probe", "ftp://x"], 2, "scheme"),
        (["probe", "http://127.0.0.1:9/mcp"], 1, "connect"),
        (["list", "URL", "nothings"], 2, "nothings"),
    ],
)
async def test_what_goes_wrong_is_told_in_a_line_and_by_the_status(arguments, status, text):
    async with served() as url:
        done = await mcp(*(url if part == "URL" else part for part in arguments))
        assert done.returncode == status
        assert text.lower() in done.stderr.decode().lower()
        assert "Traceback" not in done.stderr.decode()


async def test_a_tool_that_fails_says_so_on_standard_output():
    async with served() as url:
        done = await mcp("call", url, "fail")
        assert (done.returncode, done.stdout.decode()) == (1, "it never works\n")


async def test_changes_are_printed_as_they_come():
    server = make_server()
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(server.serve_http, "127.0.0.1", 0)
        async with on_pipes("listen", url, "--count", "1", "--json") as process:
            assert b"listening" in await process.stderr.receive_some()
            server.add_tool(lambda: "x", name="another")
            told = json.loads(await process.stdout.receive_some())
            assert told == {"method": "notifications/tools/list_changed"}
            assert await process.wait() == 0
        nursery.cancel_scope.cancel()


async def test_a_command_line_in_quotes_is_a_server():
    program = f"{sys.executable} {EXAMPLES / 'tools.py'}"
    assert await lines("call", program, "add", "--arg", "a=1", "--arg", "b=2") == ["3"]
    found = await as_json("probe", program, "--revision", "2025-11-25")
    assert found["era"] == "handshake"


def test_the_page_of_the_command_line_names_every_command_and_option():
    page = (EXAMPLES.parent / "docs" / "command-line.md").read_text()
    for command in COMMANDS.values():
        assert f"`{command.name} TARGET" in page
        for option in command.params:
            if option.param_type_name == "option":
                assert any(name in page for name in option.opts), option.opts
