"""Whoever watches requests to upstreams: told of each attempt, and what goes along with it.

Nobody does by default. Who does is set for the tasks of one call, by whoever traces that call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Protocol

from mcp_trio.runtime.adapters.base import Answer

Told = Callable[[Answer], object]


class Watcher(Protocol):
    """Watches attempts. Nothing of it may wait or raise."""

    def attempt(self, operation_id: str, upstream: str) -> AbstractContextManager[Told]:
        """Be around one attempt, and take its answer if there is one.

        Args:
            operation_id: of the operation that is run.
            upstream: name of its connection; empty if there is none.
        """
        ...

    def fields(self) -> Mapping[str, str]:
        """Header fields, or their like, that an attempt carries, by name in lower case."""
        ...


WATCHER: ContextVar[Watcher | None] = ContextVar("mcp_trio_watcher", default=None)
"""Who watches the attempts of the task that runs."""


def attempt(operation_id: str, upstream: str) -> AbstractContextManager[Told]:
    """Around one attempt; see `Watcher.attempt`."""
    watcher = WATCHER.get()
    return nullcontext(_forget) if watcher is None else watcher.attempt(operation_id, upstream)


def fields() -> Mapping[str, str]:
    """What the attempt that is made now carries along."""
    watcher = WATCHER.get()
    return {} if watcher is None else watcher.fields()


def _forget(_answer: Answer) -> None:
    """Take an answer that nobody wants."""
