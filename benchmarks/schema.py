"""What do compiling a JSON Schema and judging a value cost, by the number of members?"""

from __future__ import annotations

from benchmarks.findings import Finding
from benchmarks.parts import grown

MOST = {"compile a schema": 1.1, "judge a value": 1.1}


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """Measure at growing sizes."""
    return [await grown("schema", "members", MOST, quick=quick)]
