"""A server over real standard streams: a child process, its pipes, and how it ends."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import trio

from mcp_trio.testing import check_transport
from mcp_trio.transports.lines import LineTransport
from mcp_trio.transports.stdio_server import stdio_transport
from tests.messages import initialize

SERVER = textwrap.dedent(
    """
    import subprocess, sys, trio, mcp_trio

    server = mcp_trio.MCPServer("child", version="1")

    @server.tool
    async def add(a: int, b: int) -> int:
        print("this must not reach the line")
        return a + b

    @server.tool
    def shell() -> str:
        subprocess.run(["cat"], check=True)
        subprocess.run(["echo", "noise"], check=True)
        return "ran"

    @server.tool
    async def wait() -> str:
        print("wait started", file=sys.stderr, flush=True)
        try:
            await trio.sleep(60)
        finally:
            print("wait over", file=sys.stderr, flush=True)

    server.run()
    """
)

INITIALIZE = initialize("2025-06-18")
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def call(id_, name, arguments=None, **params):
    return {
        "jsonrpc": "2.0",
        "id": id_,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments or {}, **params},
    }


PATIENT = "import mcp_trio.server.server as made; made.EOF_GRACE = 60\n"
"""Has a server wait for a minute where it would for half a second."""


class Child:
    def __init__(self, program=SERVER, **options):
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=options.get("stdin", subprocess.PIPE),
            stdout=options.get("stdout", subprocess.PIPE),
            stderr=subprocess.PIPE,
        )

    def say(self, message):
        raw = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.process.stdin.write(raw + b"\n")
        self.process.stdin.flush()

    def hear(self):
        return json.loads(self.process.stdout.readline())

    def started_waiting(self):
        while b"wait started" not in self.process.stderr.readline():
            pass


@pytest.fixture
def child():
    made = Child()
    yield made
    made.process.kill()
    made.process.wait()
    for stream in (made.process.stdin, made.process.stdout, made.process.stderr):
        stream.close()


def test_both_eras_on_one_line(child):
    child.say(call("s", "add", {"a": 1, "b": 2}, _meta=META))
    answer = child.hear()
    assert (answer["id"], answer["result"]["resultType"]) == ("s", "complete")
    child.say(call(1, "add", {"a": 1, "b": 2}))
    assert child.hear()["error"]["data"]["code"] == "MCP.NOT_INITIALIZED"
    child.say(INITIALIZE)
    child.say(call(2, "add", {"a": 1, "b": 2}))
    answers = {message["id"]: message for message in (child.hear(), child.hear())}
    assert answers[0]["result"]["protocolVersion"] == "2025-06-18"
    assert answers[2]["result"]["structuredContent"] == {"result": 3}
    assert "resultType" not in answers[2]["result"]


def test_what_tools_and_their_children_print_stays_off_the_line(child):
    child.say(INITIALIZE)
    child.hear()
    child.say(call(1, "add", {"a": 1, "b": 2}))
    assert child.hear()["id"] == 1
    child.say(call(2, "shell"))
    assert child.hear()["result"]["structuredContent"] == {"result": "ran"}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{not json}", -32700),
        (b'{"a":"\xff"}', -32700),
        (b"\xef\xbb\xbf{}", -32700),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
    ],
)
def test_a_bad_line_is_answered_and_the_next_is_read(child, line, code):
    child.say(line)
    assert child.hear()["error"]["code"] == code
    child.say({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert child.hear() == {"jsonrpc": "2.0", "id": 1, "result": {}}


def test_a_long_line_is_read_and_answered(child):
    child.say(INITIALIZE)
    child.hear()
    child.say(call(1, "x" * 1_000_000))
    assert child.hear()["error"]["code"] == -32602


def test_a_cancelled_call_ends_without_an_answer(child):
    child.say(INITIALIZE)
    child.hear()
    child.say(call(1, "wait"))
    child.started_waiting()
    cancel = {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": 1},
    }
    child.say(cancel)
    assert b"wait over" in child.process.stderr.readline()
    child.say({"jsonrpc": "2.0", "id": 2, "method": "ping"})
    assert child.hear()["id"] == 2


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("how", ["eof", "SIGINT", "SIGTERM"])
def test_it_ends_soon_and_with_success(child, busy, how):
    child.say(INITIALIZE)
    child.hear()
    if busy:
        child.say(call(1, "wait"))
        child.started_waiting()
    began = time.monotonic()
    if how == "eof":
        child.process.stdin.close()
    else:
        child.process.send_signal(signal.Signals[how])
    assert child.process.wait(timeout=10) == 0
    # The promise is a second; a busy machine is given some more.
    assert time.monotonic() - began < 3
    if busy:
        assert b"wait over" in child.process.stderr.read()


def test_what_a_client_asked_that_has_died_is_cancelled_at_once():
    child = Child(PATIENT + SERVER)
    child.say(INITIALIZE)
    child.hear()
    child.say(call(1, "wait"))
    child.started_waiting()
    # What the kernel does for a process that is killed.
    child.process.stdin.close()
    child.process.stdout.close()
    assert child.process.wait(timeout=20) == 0
    assert child.process.stderr.read() == b"wait over\n"
    child.process.stderr.close()


def test_files_instead_of_pipes_work_and_what_was_asked_is_answered(tmp_path):
    asked, answered = tmp_path / "in", tmp_path / "out"
    messages = [INITIALIZE, call(1, "add", {"a": 1, "b": 2}), call(2, "shell")]
    asked.write_text("\n".join(json.dumps(message) for message in messages))
    with asked.open("rb") as stdin, answered.open("wb") as stdout:
        process = subprocess.run(
            [sys.executable, "-c", SERVER],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            timeout=20,
            check=False,
        )
    assert process.returncode == 0, process.stderr
    ids = {json.loads(line)["id"] for line in answered.read_text().splitlines()}
    assert ids == {0, 1, 2}


def test_a_parent_that_does_not_read_does_not_keep_it_from_ending():
    child = Child()
    child.say(INITIALIZE)
    child.hear()
    for number in range(300):
        child.say(call(number + 1, "x" * 3000))
    child.process.stdin.close()
    assert child.process.wait(timeout=20) == 0
    child.process.stdout.close()
    child.process.stderr.close()


# -- the battery -----------------------------------------------------------------------


class StandardStreams:
    """The end that has taken over our standard streams, which are pipes to the test."""

    def __init__(self, line, leave):
        self._line = line
        self._leave = leave
        self.send, self.receive, self.pump = line.send, line.receive, line.pump
        self.abandon = line.abandon

    async def aclose(self):
        # As when a session has ended: the descriptors are put back, so nothing is kept open.
        try:
            await self._line.aclose()
        finally:
            self._leave.set()


class Places:
    """Makes pairs, one after the other: there are only two standard streams."""

    def __init__(self, nursery):
        self._nursery = nursery
        self._free = trio.CapacityLimiter(1)

    async def make(self):
        return await self._nursery.start(self._hold)

    async def _hold(self, *, task_status):
        async with self._free:
            kept = os.dup(0), os.dup(1)
            asked, ask = os.pipe()
            hear, told = os.pipe()
            for ours, standard in ((asked, 0), (told, 1)):
                os.dup2(ours, standard)
                os.close(ours)
            try:
                leave = trio.Event()
                async with stdio_transport() as line:
                    peer = LineTransport(trio.lowlevel.FdStream(hear), trio.lowlevel.FdStream(ask))
                    task_status.started((StandardStreams(line, leave), peer))
                    await leave.wait()
            finally:
                for saved, standard in zip(kept, (0, 1), strict=True):
                    os.dup2(saved, standard)
                    os.close(saved)


async def stop_sending(end):
    await end._outgoing.aclose()


WITHOUT = {"half_close": "standard output is kept, too, to be put back in the end"}


async def test_the_standard_streams_pass_the_battery():
    async with trio.open_nursery() as nursery:
        make = Places(nursery).make
        await check_transport(make, half_close=stop_sending, without=WITHOUT)
        nursery.cancel_scope.cancel()
