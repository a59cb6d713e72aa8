"""Keeping calls in flight, for the clients of every package of Python: on Trio, and on asyncio.

Runs in the environments of the peers too, so nothing but the standard library is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

WIDTHS = (1, 16)
"""Calls at a time."""
WARM_UP = 0.5
"""Seconds of calls that are not counted."""


async def keep(
    client: Any, width: int, seconds: float, group: Callable[[], Any]
) -> tuple[float, float]:
    """Keep so many calls in flight for so long; calls in a second, and microseconds of each.

    Args:
        client: of any package; every answer of it is looked at.
        width: calls at a time.
        seconds: for which they are made.
        group: opens a nursery, or a group of tasks.
    """
    answered = 0
    began, used = time.perf_counter(), time.process_time()

    async def calling() -> None:
        nonlocal answered
        while time.perf_counter() < began + seconds:
            result = await client.call_tool("add", {"a": 2, "b": 40})
            if result.structured_content != {"result": 42}:
                raise AssertionError(result)
            answered += 1

    async with group() as tasks:
        for _ in range(width):
            tasks.start_soon(calling)
    took, used = time.perf_counter() - began, time.process_time() - used
    return answered / took, 1e6 * used / answered


async def figures(
    client: Any, seconds: float, group: Callable[[], Any]
) -> dict[int, tuple[float, float]]:
    """Keep one call in flight and then many, once warm; what `keep` gave, by their number."""
    found: dict[int, tuple[float, float]] = {}
    for width in WIDTHS:
        await keep(client, width, WARM_UP, group)
        found[width] = await keep(client, width, seconds, group)
    return found
