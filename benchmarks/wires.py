"""Sessions of the handshake era on lines that carry many calls at once, as plain as they can be.

A line is a program's pipes, a socket, a WebSocket, or the event stream of HTTP+SSE. All are used
by one thread, and no package under measurement is. Plain HTTP is for `calls`.
"""

from __future__ import annotations

import abc
import contextlib
import http.client
import itertools
import json
import select
import socket
import subprocess
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Request, TextMessage

from benchmarks.calls import (
    HANDSHAKE,
    INITIALIZED,
    TIMEOUT,
    Dialect,
    WrongAnswerError,
    cancelled,
)
from benchmarks.moments import Moments
from benchmarks.processes import ROOT, START_TIMEOUT, STOP_TIMEOUT, ProgramError

CHUNK = 65536


class Wire(abc.ABC):
    """A line to a server."""

    @abc.abstractmethod
    def fileno(self) -> int:
        """What is readable when `read` has something."""

    @abc.abstractmethod
    def send(self, message: str) -> None:
        """Send one message."""

    @abc.abstractmethod
    def read(self) -> list[str]:
        """Take what has come, once something has."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of the line, in the middle of whatever it carries."""


class Pipes(Wire):
    """The standard input and output of a program, which is started and ended."""

    def __init__(self, command: Sequence[str | Path]) -> None:
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd=ROOT,
        )
        self._lines = _Lines()

    def fileno(self) -> int:
        return _there(self.process.stdout).fileno()

    def send(self, message: str) -> None:
        _there(self.process.stdin).write(message.encode() + b"\n")

    def read(self) -> list[str]:
        return self._lines.taken(_there(self.process.stdout).read(CHUNK))

    def close(self) -> None:
        _there(self.process.stdin).close()
        try:
            self.process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        _there(self.process.stdout).close()


class Socket(Wire):
    """A TCP or Unix socket with one message per line."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme == "unix":
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(parts.path)
        else:
            self._socket = _tcp(parts)
        self._lines = _Lines()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: str) -> None:
        self._socket.sendall(message.encode() + b"\n")

    def read(self) -> list[str]:
        return self._lines.taken(self._socket.recv(CHUNK))

    def close(self) -> None:
        self._socket.close()


class WebSocket(Wire):
    """A WebSocket with one message per frame, at the URL of Streamable HTTP."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self._socket = _tcp(parts)
        self._socket.settimeout(TIMEOUT)
        self._protocol = WSConnection(ConnectionType.CLIENT)
        request = Request(host=parts.netloc, target=parts.path, subprotocols=["mcp"])
        self._socket.sendall(self._protocol.send(request))
        self._protocol.receive_data(self._socket.recv(CHUNK))
        if not isinstance(next(self._protocol.events()), AcceptConnection):
            raise WrongAnswerError(f"{url} accepts no WebSocket")
        self._parts: list[str] = []

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: str) -> None:
        self._socket.sendall(self._protocol.send(TextMessage(message)))

    def read(self) -> list[str]:
        self._protocol.receive_data(self._socket.recv(CHUNK))
        came: list[str] = []
        for event in self._protocol.events():
            if not isinstance(event, TextMessage):
                raise WrongAnswerError(f"the WebSocket brought {event}")
            self._parts.append(event.data)
            if event.message_finished:
                came.append("".join(self._parts))
                self._parts.clear()
        return came

    def close(self) -> None:
        self._socket.close()


class EventStream(Wire):
    """HTTP+SSE: one response that brings all messages, and a connection to POST on."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self._socket = _tcp(parts)
        self._socket.sendall(
            f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            "Accept: text/event-stream\r\n\r\n".encode()
        )
        self._lines = _Lines()
        self._event = ""
        self._target = ""
        self._posts = http.client.HTTPConnection(parts.netloc, timeout=TIMEOUT)
        self._posts.connect()
        while not self._target:
            self.read()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: str) -> None:
        headers = {"Content-Type": "application/json", "MCP-Protocol-Version": HANDSHAKE}
        self._posts.request("POST", self._target, message, headers)
        response = self._posts.getresponse()
        response.read()
        if response.status != http.HTTPStatus.ACCEPTED:
            raise WrongAnswerError(f"a POST was answered {response.status}")

    def read(self) -> list[str]:
        came: list[str] = []
        # The lines of chunks and heads are none of ours: they have no colon behind these words.
        for line in self._lines.taken(self._socket.recv(CHUNK)):
            field, _, value = line.strip().partition(": ")
            if not field:
                self._event = ""
            elif field == "event":
                self._event = value
            elif field == "data" and self._event == "endpoint":
                self._target = value
            elif field == "data":
                came.append(value)
        return came

    def close(self) -> None:
        self._socket.close()
        self._posts.close()


class Session:
    """A session that gives calls up, while a steady number of others runs on the same line."""

    def __init__(self, wire: Wire, moments: Moments, others: int = 0) -> None:
        self._wire = wire
        self._moments = moments
        self._dialect = Dialect(revision=HANDSHAKE)
        self._ids = itertools.count(1)
        self._others = others
        self._running = set[int]()
        self.answered = 0
        """Other calls that were answered."""
        self._poll = select.poll()
        self._poll.register(wire, select.POLLIN)
        self._poll.register(moments, select.POLLIN)
        self._opened = False

    def open(self) -> None:
        """Shake hands, and begin the other calls."""
        self._wire.send(self._dialect.hello())
        if not self.until(lambda: self._opened, START_TIMEOUT):
            raise WrongAnswerError("no session was opened")
        self._wire.send(INITIALIZED)
        for _ in range(self._others):
            self._another()

    def call(self, tool: str, arguments: dict[str, Any], id_: int | str) -> None:
        """Call a tool."""
        self._wire.send(self._dialect.call(id_, tool, arguments))

    def cancel(self, id_: int | str) -> None:
        """Cancel a call."""
        self._wire.send(cancelled(id_))

    def until(self, done: Callable[[], bool], within: float) -> bool:
        """Keep the other calls going until something holds; whether it did in time."""
        limit = time.monotonic() + within
        while not done():
            left = limit - time.monotonic()
            if left <= 0:
                return False
            for ready, _ in self._poll.poll(1000 * left):
                if ready == self._moments.fileno():
                    self._moments.take(0)
                else:
                    self._read()
        return True

    def _read(self) -> None:
        for text in self._wire.read():
            message = json.loads(text)
            if message.get("id") == 0:
                self._opened = "result" in message
            elif message.get("id") in self._running:
                self._running.discard(message["id"])
                if message["result"]["structuredContent"]["result"] != 42:
                    raise WrongAnswerError(f"2 + 40 gave {message}")
                self.answered += 1
                self._another()

    def _another(self) -> None:
        id_ = next(self._ids)
        self._running.add(id_)
        self.call("add", {"a": 2, "b": 40}, id_)


@contextlib.contextmanager
def session(wire: Wire, moments: Moments, others: int = 0) -> Iterator[Session]:
    """Have a session on a line for as long as the block runs."""
    try:
        made = Session(wire, moments, others)
        made.open()
        yield made
    finally:
        wire.close()


class _Lines:
    """Bytes, as lines."""

    def __init__(self) -> None:
        self._held = b""

    def taken(self, data: bytes | None) -> list[str]:
        if not data:
            raise WrongAnswerError("the server ended the line")
        *lines, self._held = (self._held + data).split(b"\n")
        return [line.decode() for line in lines]


def _there(pipe: Any) -> Any:
    if pipe is None:
        raise ProgramError("the program was started without this pipe")
    return pipe


def _tcp(parts: urllib.parse.SplitResult) -> socket.socket:
    made = socket.create_connection((str(parts.hostname), parts.port), TIMEOUT)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made
