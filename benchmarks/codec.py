"""What do reading and writing JSON-RPC messages cost, by the number of their members?"""

from __future__ import annotations

from benchmarks.findings import Finding
from benchmarks.parts import grown

MOST = {"read a request": 1.1, "write an answer": 1.1}


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """Measure at growing sizes."""
    return [await grown("codec", "members", MOST, quick=quick)]
