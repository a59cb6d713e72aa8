"""What do our objects cost on their way to JSON and back, by the number of their parts?"""

from __future__ import annotations

from benchmarks.findings import Finding
from benchmarks.parts import grown

MOST = {"object to JSON": 1.1, "JSON to object": 1.1}


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """Measure at growing sizes."""
    return [await grown("converter", "blocks of text", MOST, quick=quick)]
