"""Ctrl-C at every stage of a command: it ends with 130, says so, and leaves nothing behind."""

import contextlib
import signal
import sys

import pytest
import trio

from mcp_trio import Context, MCPServer
from tests.auth.guarded import guarded
from tests.cli.terminal import on_pipes, on_terminal, said_by

FOREGROUND = """
import sys, time
print("browsing", file=sys.stderr, flush=True)
time.sleep(100)
"""


class Bench:
    """A server with a tool that reports progress and never ends."""

    def __init__(self):
        self.server = MCPServer("bench")
        self.began, self.ended = trio.Event(), trio.Event()
        self.url = ""

        @self.server.tool
        async def hold(ctx: Context) -> None:
            try:
                await ctx.progress(1, 2, "half way")
                self.began.set()
                await trio.sleep_forever()
            finally:
                self.ended.set()

        @self.server.tool
        async def much() -> str:
            return "x" * 8_000_000


@contextlib.asynccontextmanager
async def bench():
    made = Bench()
    async with trio.open_nursery() as nursery:
        (made.url,) = await nursery.start(made.server.serve_http, "127.0.0.1", 0)
        yield made
        nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def deaf():
    """A port that takes connections and says nothing; tells when one came."""
    came = trio.Event()

    async def hold(stream):
        came.set()
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, hold, 0)
        yield listeners[0].socket.getsockname()[1], came
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-06-18"])
async def test_a_call_with_a_bar_on_a_terminal(revision):
    async with (
        bench() as made,
        on_terminal("call", made.url, "hold", "--revision", revision) as running,
    ):
        await made.began.wait()
        await running.until("half way")
        running.process.send_signal(signal.SIGINT)
        assert await running.end() == 130
        await made.ended.wait()
    said = running.said.decode()
    assert said.endswith("cancelled: the server has been told\r\n")
    assert said.count("\x1b[?25l") == said.count("\x1b[?25h") == 1
    assert "Traceback" not in said


async def test_sigterm_ends_a_call_as_ctrl_c_does():
    async with bench() as made, on_pipes("call", made.url, "hold") as process:
        await made.began.wait()
        process.send_signal(signal.SIGTERM)
        assert (await said_by(process.stderr)).endswith("cancelled: the server has been told\n")
        assert await process.wait() == 130
        await made.ended.wait()


async def test_more_signals_than_one_change_nothing():
    async with bench() as made, on_pipes("call", made.url, "hold") as process:
        await made.began.wait()
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            process.send_signal(number)
        noted = await said_by(process.stderr)
        assert await process.wait() == 130
        await made.ended.wait()
    assert noted.count("cancelled") == 1
    assert "Traceback" not in noted


@pytest.mark.parametrize("scheme", ["http", "ws", "tcp"])
async def test_while_connecting(scheme):
    async with (
        deaf() as (port, came),
        on_pipes("list", f"{scheme}://127.0.0.1:{port}") as process,
    ):
        await came.wait()
        process.send_signal(signal.SIGINT)
        assert await said_by(process.stderr) == "cancelled while connecting\n"
        assert await process.wait() == 130


async def test_while_a_program_says_nothing():
    program = f"{sys.executable} -c \"import sys; print('up', file=sys.stderr); sys.stdin.read()\""
    async with on_pipes("list", program) as process:
        assert await process.stderr.receive_some() == b"up\n"
        process.send_signal(signal.SIGINT)
        assert await said_by(process.stderr) == "cancelled while connecting\n"
        assert await process.wait() == 130


async def test_while_it_listens():
    async with bench() as made, on_pipes("listen", made.url) as process:
        noted = b""
        while b"listening\n" not in noted:
            noted += await process.stderr.receive_some()
        process.send_signal(signal.SIGINT)
        assert (await said_by(process.stderr)).endswith("cancelled: the server has been told\n")
        assert await process.wait() == 130


@pytest.mark.parametrize("program", [FOREGROUND, "import sys; print('browsing', file=sys.stderr)"])
async def test_while_a_person_logs_in(tmp_path, program):
    script = tmp_path / "browser.py"
    script.write_text(program)
    browser = {"BROWSER": f"{sys.executable} {script} %s"}
    tokens = tmp_path / "tokens"
    async with (
        guarded() as world,
        on_pipes("list", world.url, "--login", "--tokens", tokens, **browser) as process,
    ):
        noted = b""
        while b"browsing\n" not in noted:
            noted += await process.stderr.receive_some()
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
        assert not world.made


async def test_while_nobody_reads_the_result():
    async with bench() as made, on_pipes("call", made.url, "much") as process:
        # Some of it is there, and the rest waits for room.
        assert await process.stdout.receive_some(10)
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
        assert await said_by(process.stderr) == "cancelled\n"


SWALLOWS = """
import os, signal
from mcp_trio.cli.interrupts import leave_at_once
leave_at_once()
try:
    os.kill(os.getpid(), signal.SIGINT)
except BaseException:
    pass  # as modules do that look whether another one is there
print("lost")
"""


async def test_while_it_is_loaded():
    with trio.fail_after(60):
        done = await trio.run_process(
            [sys.executable, "-c", SWALLOWS], capture_stdout=True, capture_stderr=True, check=False
        )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"cancelled\n")
