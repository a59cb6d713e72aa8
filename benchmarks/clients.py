"""Programs that call by the client of a package, and give up when this process says so."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from benchmarks.processes import ROOT, STOP_TIMEOUT, ProgramError

HERE = Path(__file__).resolve().parent
CONNECTED = b"connected\n"
PATIENCE = 30.0
"""Seconds that a client may take to connect."""


@attrs.define
class Client:
    """A client that runs."""

    process: subprocess.Popen[bytes]

    def order(self, do: str, **how: Any) -> None:
        """Have it do something."""
        if self.process.stdin is None:
            raise ProgramError("the client was started without a pipe")
        self.process.stdin.write(json.dumps({"do": do, **how}).encode() + b"\n")
        self.process.stdin.flush()

    def children(self) -> list[int]:
        """The processes that it has started: its server, if that is a program of its own."""
        return children(self.process.pid)


@contextlib.contextmanager
def client(
    command: Sequence[str | Path],
    target: str | Sequence[str | Path],
    revision: str,
    others: int = 0,
) -> Iterator[Client]:
    """Have a client connected for as long as the block runs; then it leaves, if it still lives.

    Raises:
        ProgramError: it did not connect; what it said is on standard error.
    """
    named = target if isinstance(target, str) else json.dumps([str(part) for part in target])
    # Where the programs under load are: a client may have one of them in its own process.
    folders = [str(HERE / "servers"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    with subprocess.Popen(
        [*map(str, command), named, revision, str(others)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
    ) as process:
        try:
            heard, _, _ = select.select([process.stdout], [], [], PATIENCE)
            if process.stdout is None or not heard or process.stdout.readline() != CONNECTED:
                raise ProgramError(f"{process.args!r} did not connect")
            yield Client(process)
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    try:
        process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()


def children(process: int) -> list[int]:
    """The processes that a process has started and that have not been waited for."""
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, task.read_text(encoding="ascii").split())
    return found
