"""What is left of thousands of calls that run out of time at once, and how long does it take?

As `cancel_storm`, but the callers' own deadlines end the calls.
"""

from __future__ import annotations

from benchmarks.cancel_storm import SIZES, storms
from benchmarks.findings import Finding


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """Let the time of everything run out at once."""
    sizes = (100, 300, 1_000) if quick else SIZES
    return await storms("timeout", sizes, "ran out of time at once")
