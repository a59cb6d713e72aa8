"""The tools that the official SDK and FastMCP offer alike, as plain functions.

Runs in the environments of the peers. Tools with a context stand in their own programs: each
package finds it by its own class.
"""

from __future__ import annotations

import functools

import anyio
import httpx2
from telling import BEGAN, CHILD, ENDED, STEP, STEP_SECONDS, tell

upstreams: list[str] = []
"""Where the upstream is, once it is known."""


@functools.cache
def http() -> httpx2.AsyncClient:
    """The client of the upstream; made in the event loop."""
    return httpx2.AsyncClient(base_url=upstreams[0])


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def add_rest(a: int, b: int) -> int:
    """Have the upstream add two numbers."""
    response = await http().post("/add", json={"a": a, "b": b})
    return int(response.raise_for_status().json()["result"])


async def work(name: str, port: int, steps: int) -> int:
    """Work in steps of a millisecond, beside a program and a task of its own."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.run_process, CHILD)
        tasks.start_soon(anyio.sleep_forever)
        tell(port, name, BEGAN)
        try:
            for _ in range(steps):
                await anyio.sleep(STEP_SECONDS)
                tell(port, name, STEP)
        finally:
            tell(port, name, ENDED)
        tasks.cancel_scope.cancel()
    return steps
