"""Standard streams that are closed, full or broken off: no reason for a service to stop.

What is said there is for people who may be there; what has to be kept is a log.
"""

from __future__ import annotations

import contextlib
import os
import sys

import click


def hold_standard_streams() -> None:
    """Put something in the place of standard streams that are closed.

    The numbers of theirs would go to the next files and sockets that are opened, and what is
    written to standard error would go there, a database for instance.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free, which is this one: those below it are taken.
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
            os.set_inheritable(number, True)
    if sys.stdout is None:  # what Python makes of one that is closed
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def say(text: str) -> None:
    """Say something on standard error, if that is possible."""
    with contextlib.suppress(OSError):
        click.echo(f"mcp-trio: {text}", err=True)
