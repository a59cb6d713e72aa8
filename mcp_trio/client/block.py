"""Leaving an `async with` block of ours: a single failure is itself, several stay a group."""

from __future__ import annotations

import contextlib
from types import TracebackType

from mcp_trio.errors import sole_cause


async def leave(
    exits: contextlib.AsyncExitStack,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
) -> bool | None:
    """Close what was opened, as the `__aexit__` of a block does.

    Raises:
        BaseException: what went wrong on the way out; not the failure of the block itself.
    """
    try:
        return await exits.__aexit__(kind, error, traceback)
    except BaseExceptionGroup as group:
        cause = sole_cause(group)
        if cause is error:
            return False
        raise cause from None
