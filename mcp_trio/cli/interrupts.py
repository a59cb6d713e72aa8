"""Ctrl-C while there is nothing to close: the command ends at once, says so, and nothing else.

An exception would not do: modules that are being loaded may swallow it, and then it is lost.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it."""


def leave_at_once() -> None:
    """Let Ctrl-C end the process from now on; whoever opens something takes over."""
    signal.signal(signal.SIGINT, _leave)


def raise_again() -> None:
    """Take `leave_at_once` back: Ctrl-C raises `KeyboardInterrupt` from now on."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"cancelled\n")
    os._exit(INTERRUPTED)
