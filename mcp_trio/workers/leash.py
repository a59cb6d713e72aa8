"""What ties a worker to its parent: a pair of sockets, inherited and never named.

Down it go what the worker needs to know, keys included, and later commands of one byte each; up
come reports, one JSON object a line. When the parent ends, however it does, the kernel closes its
end, and the worker goes down: nobody is left without a parent.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import struct
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path

import attrs
import msgspec
import trio

from mcp_trio.config import Settings

DRAIN = b"d"
"""Go down, but finish what runs."""
RELOAD = b"r"
"""Read again what files hold."""
LOOK = b"l"
"""Look at the registry: another worker has seen a change there."""
ASK = b"a"
"""Say whether you are ready, and with it that you live."""

MAX_REPORT = 65536
"""Bytes of a report."""
_SIZE = struct.Struct("!I")


@attrs.frozen(kw_only=True)
class Handover:
    """What a worker is given at its start."""

    number: int
    """From 1."""
    count: int
    """Of workers."""
    rooms: Path
    """The folder where the workers have their sockets."""
    listeners: tuple[int, ...]
    """Descriptors of the sockets where clients connect."""
    settings: Settings
    """As the parent read them: all workers have the same, also one that starts later."""
    folder: Path
    """What relative paths in them are relative to."""
    state_key: bytes = attrs.field(repr=False)
    """In place of `server.state_keys`, if there are none."""
    cursor_key: bytes = attrs.field(repr=False)
    """In place of `server.cursor_key`, likewise."""
    nonce_key: str = attrs.field(repr=False)
    """In place of the key of DPoP nonces, likewise."""
    audit_key: bytes = attrs.field(repr=False)
    """In place of `audit.key`, likewise."""


@attrs.frozen(kw_only=True)
class Report:
    """What a worker tells its parent."""

    urls: list[str] | None = None
    """It serves from now on, at these."""
    fault: str | None = None
    """It cannot start, and why."""
    listing: str | None = None
    """The revision of the tools that it lists now."""
    ready: bool | None = None
    """Whether it is, in answer to `ASK`."""


class ParentsEnd:
    """The parent's end."""

    def __init__(self, end: socket.socket) -> None:
        """Take over a connected socket."""
        end.setblocking(False)
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(end))
        self._handed_over = False
        self._early = b""
        """Commands that came before that; among its bytes nobody could tell them apart."""

    async def hand_over(self, handover: Handover) -> None:
        """Tell the worker all it needs.

        Raises:
            trio.BrokenResourceError: it has ended already.
        """
        data = pickle.dumps(handover)
        await self._stream.send_all(_SIZE.pack(len(data)) + data)
        while self._early:
            # Not as `tell` does it: there may be no room left just behind so many bytes.
            early, self._early = self._early, b""
            await self._stream.send_all(early)
        self._handed_over = True

    def tell(self, command: bytes) -> None:
        """Send a command, behind what is handed over.

        Never waits; a worker that is gone, or reads nothing, misses it.
        """
        if not self._handed_over:
            self._early += command
            return
        with contextlib.suppress(OSError):
            os.write(self._stream.socket.fileno(), command)

    async def reports(self) -> AsyncGenerator[Report]:
        """What the worker reports, until it has ended or says what nobody can read."""
        buffer = b""
        with contextlib.suppress(trio.BrokenResourceError, msgspec.MsgspecError):
            while data := await self._stream.receive_some(MAX_REPORT):
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    yield msgspec.json.decode(line, type=Report)
                if len(buffer) > MAX_REPORT:
                    return

    def close(self) -> None:
        """Let go: the worker, if it still is, goes down."""
        self._stream.socket.close()


class WorkersEnd:
    """The worker's end. It is read in a thread: also a worker that is busy has to hear the end."""

    def __init__(self, descriptor: int) -> None:
        """Take over an inherited descriptor."""
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        self.orphaned = False
        """The parent has ended."""

    def receive(self) -> Handover:
        """Wait for what the parent hands over; blocks.

        Raises:
            EOFError: the parent has ended.
        """
        (size,) = _SIZE.unpack(self._exactly(_SIZE.size))
        # From the process that started this one, over a socket that nobody else has.
        found: Handover = pickle.loads(self._exactly(size))  # noqa: S301
        return found

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise EOFError("the parent has ended")
            data += piece
        return bytes(data)

    def report(self, report: Report) -> None:
        """Tell the parent; what it cannot take now is lost."""
        line = msgspec.json.encode(report) + b"\n"
        with contextlib.suppress(OSError):
            self._socket.send(line[:MAX_REPORT], socket.MSG_DONTWAIT)

    def obey(self, actions: Mapping[bytes, Callable[[], object]], *, mercy: float) -> None:
        """Act on commands from now on, each in the Trio thread; the end of the parent is `DRAIN`.

        Args:
            actions: by command.
            mercy: seconds after the end of the parent until this process ends, whatever it does.
        """
        token = trio.lowlevel.current_trio_token()

        def listen() -> None:
            with contextlib.suppress(trio.RunFinishedError):
                while command := self._hear():
                    if command in actions:
                        token.run_sync_soon(actions[command])
                self.orphaned = True
                token.run_sync_soon(actions[DRAIN])
            time.sleep(mercy)
            os._exit(1)

        # A daemon: a worker that has ended in good order does not wait for it.
        threading.Thread(target=listen, name="leash", daemon=True).start()

    def _hear(self) -> bytes:
        try:
            return self._socket.recv(1)
        except OSError:
            return b""
