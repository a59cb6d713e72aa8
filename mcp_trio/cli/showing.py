"""What a command of the client shows: results on standard output, all else on standard error.

Whatever a server says may reach a terminal, so nothing of it may steer one: control characters are
shown as escapes there, and no markup is read. A pipe or a file gets texts as they came.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Self

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.text import Text

from mcp_trio.telemetry.plain_text import STEERING, printable

BROKEN_PIPE = 141
"""The exit status when nobody reads what is printed, as shells have it for SIGPIPE."""
MAX_NOTE = 2000
"""Characters of a note; errors repeat what servers say."""
MAX_NAME = 40
"""Columns that the first column of a list is made wide for; longer names push the rest. Also
characters beside a progress bar."""

_notes = Console(stderr=True, highlight=False)


def one_line(text: str) -> str:
    """A text that a terminal only shows, on one line and without tabs."""
    return printable(" ".join(text.splitlines()).replace("\t", " "))


def as_json(value: object) -> str:
    """One line of JSON that steers no terminal and that every encoding has."""
    encoding = getattr(sys.stdout, "encoding", None) or ""
    text = json.dumps(value, ensure_ascii="utf" not in encoding.lower())
    return STEERING.sub(lambda match: json.dumps(match[0])[1:-1].replace("\x7f", "\\u007f"), text)


def rows(table: Iterable[Sequence[str]]) -> str:
    """Two columns, a row on a line, whatever is in them."""
    cells = [[one_line(cell) for cell in row] for row in table]
    width = max((size for row in cells if (size := cell_len(row[0])) <= MAX_NAME), default=0)
    lines = (f"{name}{' ' * (width - cell_len(name))}  {about}" for name, about in cells)
    return "\n".join(line.rstrip() for line in lines)


class UnreadError(Exception):
    """Nobody reads what is printed."""


def put(text: str) -> None:
    """Print a result; escaped if it is a terminal that gets it.

    Raises:
        UnreadError: nobody reads it any more, nor anything after it.
        OSError: it cannot be written, as when a disk is full.
    """
    stream = sys.stdout
    shown = printable(text) if stream.isatty() else text
    left = memoryview(f"{shown}\n".encode(stream.encoding, "backslashreplace"))
    try:
        while left:
            # Without a buffer (PYTHONUNBUFFERED) a write may take a part only.
            left = left[stream.buffer.write(left) :]
        stream.flush()
    except OSError as error:
        # The interpreter flushes once more on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if isinstance(error, BrokenPipeError):
            raise UnreadError from error
        raise


def note(text: str, style: str = "") -> None:
    """Say something on standard error, on one line."""
    _notes.print(Text(one_line(text)[:MAX_NOTE], style=style), soft_wrap=True)


class NoteHandler(logging.Handler):
    """Warnings of the library as notes; they repeat what servers say, too."""

    def emit(self, record: logging.LogRecord) -> None:
        """Show one."""
        note(record.getMessage())


class Bar:
    """A progress bar on a terminal, lines elsewhere; nothing for a call that reports nothing."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._bar: Progress | None = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def report(self, value: float, total: float | None, message: str | None) -> None:
        """Show one report."""
        text = message or self._title
        if not _notes.is_terminal:
            share = f"{value:g}" if total is None else f"{value:g}/{total:g}"
            note(f"{share} {text}")
            return
        text = one_line(text)[:MAX_NAME]
        if self._bar is None:
            about = TextColumn("{task.description}", markup=False)
            self._bar = Progress(about, BarColumn(), TaskProgressColumn(), console=_notes)
            self._bar.live.transient = True
            self._bar.start()
            self._task = self._bar.add_task(text, total=total)
        self._bar.update(self._task, completed=value, total=total, description=text)
