"""A server as a process: its streams, its signals, and how soon it is gone."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time

import pytest

from tests.cases.endpoint import head, in_session, post, stateless
from tests.http.asgi import META, STATELESS
from tests.messages import PING, PONG, initialize

STDIO = textwrap.dedent(
    """
    import os, subprocess, sys, threading, time, trio, mcp_trio

    server = mcp_trio.MCPServer("child", version="1")

    def say(text):
        print(text, file=sys.stderr, flush=True)

    @server.tool
    async def noisy(how: str) -> str:
        match how:
            case "print":
                print("noise", flush=True)
            case "buffer":
                sys.stdout.buffer.write(b"noise\\\\n")
                sys.stdout.buffer.flush()
            case "original":
                sys.__stdout__.write("noise\\\\n")
                sys.__stdout__.flush()
            case "descriptor":
                os.write(1, b"noise\\\\n")
            case "shell":
                os.system("echo noise")
            case "child":
                await trio.run_process([sys.executable, "-c", "print('noise'); print(input())"],
                                       check=False)
            case "cat":
                await trio.run_process(["cat"])
            case "read":
                return repr(sys.stdin.read())
            case "left behind":
                subprocess.Popen(["sh", "-c", "sleep 30; echo noise"])
        return how

    @server.tool
    async def wait() -> str:
        say("started")
        await trio.sleep(60)

    @server.tool
    def blocked() -> str:
        say("started")
        time.sleep(60)

    @server.tool
    async def child() -> str:
        say("started")
        await trio.run_process(["sleep", "60"])

    @server.tool
    async def size(text: str) -> int:
        return len(text)

    @server.tool
    async def give(size: int) -> str:
        return "x" * size

    server.run()
    """
)


class Process:
    """A child in whose standard streams we stand."""

    def __init__(self, program: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def say(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self):
        return json.loads(self.process.stdout.readline())

    def ask(self, message):
        self.say(message)
        return self.hear()

    def call(self, name, **arguments):
        params = {"name": name, "arguments": arguments}
        return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}

    def logged(self, pattern):
        """Wait for a line on standard error."""
        while line := self.process.stderr.readline():
            if found := re.search(pattern, line.decode()):
                return found
        raise AssertionError(f"never said {pattern!r}")

    def close(self):
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


@pytest.fixture
def child():
    made = Process(STDIO)
    made.ask(initialize("2025-06-18"))
    yield made
    made.close()


def test_whatever_a_tool_and_its_children_write_and_read_stays_off_the_line(child):
    ways = ("print", "buffer", "original", "descriptor", "shell", "child", "cat", "left behind")
    for how in ways:
        assert child.ask(child.call("noisy", how=how))["result"]["content"][0]["text"] == how
    assert child.ask(child.call("noisy", how="read"))["result"]["content"][0]["text"] == "''"
    assert child.ask(PING) == PONG
    child.process.stdin.close()
    assert child.process.stdout.read() == b""
    assert child.process.wait(timeout=10) == 0


@pytest.mark.parametrize(
    ("how", "busy"),
    [
        *((how, busy) for how in ("eof", "SIGINT", "SIGTERM") for busy in ("blocked", "child")),
        ("SIGINT twice", None),
        ("SIGINT twice", "wait"),
    ],
)
def test_nothing_keeps_it_from_ending_at_once(child, how, busy):
    if busy is not None:
        child.say(child.call(busy))
        child.logged("started")
    began = time.monotonic()
    match how:
        case "eof":
            child.process.stdin.close()
        case "SIGINT twice":
            child.process.send_signal(signal.SIGINT)
            child.process.send_signal(signal.SIGINT)
        case name:
            child.process.send_signal(signal.Signals[name])
    # The second signal may meet an interpreter that is ending and has no handler any more.
    codes = {0, -signal.SIGINT} if how == "SIGINT twice" else {0}
    assert child.process.wait(timeout=10) in codes
    # The promise is a second; a busy machine is given some more.
    assert time.monotonic() - began < 3


STDIO_CAP = 16 * 1024 * 1024


def test_lines_pass_up_to_the_limit_which_is_named_beyond_it(child):
    for length in (70_000, 1_000_000, 16_000_000):
        answer = child.ask(child.call("size", text="x" * length))
        assert answer["result"]["structuredContent"] == {"result": length}
    answer = child.ask(child.call("size", text="x" * 20_000_000))
    assert answer["error"]["code"] == -32600
    assert str(STDIO_CAP) in answer["error"]["message"]
    assert child.ask(PING) == PONG
    for length in (70_000, 1_000_000, 20_000_000):
        answer = child.ask(child.call("give", size=length))
        assert len(answer["result"]["content"][0]["text"]) == length


HTTP = textwrap.dedent(
    """
    import sys, trio, mcp_trio

    server = mcp_trio.MCPServer("child", version="1")

    @server.tool
    async def wait() -> str:
        print("wait started", file=sys.stderr, flush=True)
        try:
            await trio.sleep(60)
        finally:
            print("wait over", file=sys.stderr, flush=True)

    @server.tool
    async def soon() -> str:
        print("soon started", file=sys.stderr, flush=True)
        await trio.sleep(0.3)
        return "soon over"

    server.run("http", port=0, settings=mcp_trio.ServingSettings(grace_period=1.0))
    """
)


class Connection:
    """A blocking connection to the child."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)

    def until(self, end: bytes) -> bytes:
        data = b""
        while end not in data:
            chunk = self.socket.recv(65536)
            assert chunk, data
            data += chunk
        return data

    def rest(self) -> bytes:
        data = b""
        while chunk := self.socket.recv(65536):
            data += chunk
        return data


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_every_kind_of_open_stream_in_bounded_time(sign):
    child = Process(HTTP)
    port = int(child.logged(r"127\.0\.0\.1:(\d+)")[1])
    with contextlib.ExitStack() as stack:
        stack.callback(child.close)

        def connected(data: bytes) -> Connection:
            made = Connection(port)
            stack.callback(made.socket.close)
            made.socket.sendall(data)
            return made

        opening = connected(post(initialize("2025-06-18"))).until(b"}}")
        (id_,) = re.findall(rb"(?i)mcp-session-id: (\S+)", opening)
        id_ = id_.decode()
        stream = connected(
            head("GET", accept="text/event-stream", content_type=None, mcp_session_id=id_)
        )
        stream.until(b"\r\n\r\n")
        params = {"notifications": {"toolsListChanged": True}, "_meta": META}
        listen = {"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": params}
        fields = {"mcp_protocol_version": STATELESS, "mcp_method": "subscriptions/listen"}
        listener = connected(post(listen, **fields))
        listener.until(b"acknowledged")
        idle = connected(b"")
        soon = connected(in_session(id_, "soon"))
        child.logged("soon started")
        slow = [connected(in_session(id_, "wait").replace(b'"id": 1', b'"id": 2'))]
        child.logged("wait started")
        # The same id again: refused, and no reason not to end.
        doubled = connected(in_session(id_, "wait").replace(b'"id": 1', b'"id": 2'))
        assert b"HTTP/1.1 400" in doubled.until(b"}}")
        slow.append(connected(stateless("wait")))
        child.logged("wait started")

        began = time.monotonic()
        child.process.send_signal(sign)
        assert stream.rest().endswith(b"0\r\n\r\n")
        ending = listener.rest()
        assert b'"id":"l"' in ending
        assert b'"resultType":"complete"' in ending
        assert ending.endswith(b"0\r\n\r\n")
        assert idle.rest() == b""
        assert b'"soon over"' in soon.rest()
        for call in slow:
            with contextlib.suppress(ConnectionResetError):
                assert b'"result"' not in call.rest()
        assert child.process.wait(timeout=10) == 0
        assert time.monotonic() - began < 5
        assert child.process.stderr.read().count(b"wait over") == 2
