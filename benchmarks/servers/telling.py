"""What the handlers of all servers tell of a call, and when, to whoever measures it.

A handler is called with the port of the one who measures and sends a datagram to it for each
moment: which call, what happened, and when, on the clock that all processes of a machine share. So
a server under measurement answers no further questions, and one that dies is heard up to its end.
SIGUSR2 makes a program tell how many tasks run in it. Needs nothing but Python; used by the
programs of every environment. `node/server.mjs` sends the same.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import time

HOST = "127.0.0.1"
BEGAN, GAVE_UP, STEP, ENDED, TASKS = "began", "gave-up", "step", "ended", "tasks"
STEP_SECONDS = 0.001
"""What a step of work takes, if nothing else runs."""
CHILD = ("sleep", "60")
"""The program that a handler starts, which runs longer than anybody measures."""

_sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
_ports: set[int] = set()


def tell(port: int, name: str, what: str, at: float | None = None) -> None:
    """Say that something happens to the call of this name, now or at another time."""
    at = time.monotonic() if at is None else at
    _ports.add(port)
    _sender.sendto(f"{name} {what} {at!r}".encode(), (HOST, port))


def tell_tasks_when_asked() -> None:
    """Answer SIGUSR2 with the number of living tasks, to everybody who ever heard of a call."""
    signal.signal(signal.SIGUSR2, _tell_tasks)


def _tell_tasks(number: int, frame: object) -> None:
    del number, frame
    for port in _ports:
        _sender.sendto(f"{TASKS} {TASKS} {_tasks()}".encode(), (HOST, port))


def _tasks() -> int:
    trio = sys.modules.get("trio")
    with contextlib.suppress(RuntimeError):
        if trio is not None:
            return int(trio.lowlevel.current_statistics().tasks_living)
    import asyncio

    return len(asyncio.all_tasks())
