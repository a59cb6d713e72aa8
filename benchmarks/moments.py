"""What handlers tell of their calls, heard by the one who measures (see `servers/telling`)."""

from __future__ import annotations

import socket
import time
from collections import defaultdict

from benchmarks.servers.telling import HOST


class Moments:
    """What was told to this process; used by one thread."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # A program that works in steps tells of each, also while nobody looks.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
        self._socket.bind((HOST, 0))
        self.port: int = self._socket.getsockname()[1]
        self._heard: defaultdict[tuple[str, str], list[float]] = defaultdict(list)

    def fileno(self) -> int:
        """What is readable when there is something to `take`."""
        return self._socket.fileno()

    def take(self, within: float) -> bool:
        """Wait for one datagram, so many seconds; whether there was one."""
        self._socket.settimeout(max(within, 0.0))
        try:
            name, what, at = self._socket.recv(1024).decode().split()
        except (TimeoutError, BlockingIOError):
            return False
        self._heard[name, what].append(float(at))
        return True

    def all(self, name: str, what: str) -> list[float]:
        """Every time when this happened to a call, as far as it was heard."""
        return self._heard[name, what]

    def wait(self, name: str, what: str, within: float) -> float | None:
        """When this happened to a call for the last time; None if not in so many seconds."""
        until = time.monotonic() + within
        while not self._heard[name, what] and (left := until - time.monotonic()) > 0:
            self.take(left)
        heard = self._heard[name, what]
        return heard[-1] if heard else None

    def forget(self, name: str) -> None:
        """Drop what was heard of a call, or of tasks."""
        for key in [key for key in self._heard if key[0] == name]:
            del self._heard[key]

    def close(self) -> None:
        """Hear nothing more."""
        self._socket.close()
