"""What does listing cost, from 10 to 100,000 tools: one page, and a walk over all of them?

The same runs as those of `catalog_refresh`. Client and server are in one process, in memory.
"""

from __future__ import annotations

from benchmarks.catalog_refresh import catalogs, middle
from benchmarks.findings import Finding, Growth


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """List a page, list everything."""
    found = await catalogs(quick=quick)
    return [
        Growth(
            title="Listing, processor time",
            unit="ms",
            size="tools",
            figures={
                "a page of 200, found by the server": [
                    (size, 1000 * each["cut"]) for size, each in found.items()
                ],
                "the same, asked for and read by a client": [
                    (size, middle(each["page"])) for size, each in found.items()
                ],
                "a walk over all pages, the second": [
                    (size, 1000 * each["walk"][1][1]) for size, each in found.items()
                ],
            },
            most={
                "a page of 200, found by the server": 0.3,
                "a walk over all pages, the second": 1.1,
            },
        )
    ]
