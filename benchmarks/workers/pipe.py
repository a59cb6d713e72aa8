"""Calls of `add` through the pipes of a server, one after the other and then many at a time.

Arguments: a revision, seconds for each, and the command of the server, which runs on the first
core. Prints one JSON object: by the number of calls at a time, calls in a second and microseconds
of the server's processor for each. No package under measurement is used; every answer is read.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.calls import HANDSHAKE, INITIALIZED, Dialect, WrongAnswerError
from benchmarks.processes import processor_seconds
from benchmarks.turns import WARM_UP, WIDTHS
from benchmarks.wires import Pipes


class Caller:
    """Whoever calls, on the pipes of one server."""

    def __init__(self, pipes: Pipes, revision: str) -> None:
        self._pipes = pipes
        self._dialect = Dialect(revision=revision)
        self._call = self._dialect.call(0, "add", {"a": 2, "b": 40})
        self._ids = itertools.count(1)
        self._waiting: set[int] = set()
        self._incoming = self._messages()

    def _messages(self) -> Iterator[Any]:
        while True:
            yield from map(json.loads, self._pipes.read())

    def begin(self) -> None:
        """Shake hands, where the era has that."""
        if self._dialect.revision == HANDSHAKE:
            self._pipes.send(self._dialect.hello())
            given = next(self._incoming)["result"]["protocolVersion"]
            if given != HANDSHAKE:
                raise WrongAnswerError(f"the handshake gave {given}")
            self._pipes.send(INITIALIZED)

    def _send(self) -> None:
        number = next(self._ids)
        self._waiting.add(number)
        self._pipes.send(self._call.replace('"id": 0', f'"id": {number}'))

    def _take(self) -> None:
        message = next(self._incoming)
        self._waiting.remove(message["id"])
        if message["result"]["structuredContent"] != {"result": 42}:
            raise WrongAnswerError(str(message))

    def keep(self, width: int, seconds: float) -> int:
        """Keep so many calls in flight for so long; how many were answered."""
        answered, until = width, time.perf_counter() + seconds
        for _ in range(width):
            self._send()
        while time.perf_counter() < until:
            self._take()
            self._send()
            answered += 1
        for _ in range(width):
            self._take()
        return answered


def main(revision: str, seconds: str, *command: str) -> None:
    """Measure and print."""
    figures: dict[int, tuple[float, float]] = {}
    with contextlib.closing(Pipes(["taskset", "-c", "0", *command])) as pipes:
        caller, process = Caller(pipes, revision), pipes.process.pid
        caller.begin()
        for width in WIDTHS:
            caller.keep(width, WARM_UP)
            used, began = processor_seconds(process), time.perf_counter()
            answered = caller.keep(width, float(seconds))
            took, used = time.perf_counter() - began, processor_seconds(process) - used
            figures[width] = (answered / took, 1e6 * used / answered)
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
