"""Our client over HTTP: `URL REVISION SECONDS`, one call after the other and then many at a time.

Prints one JSON object: by the number of calls at a time, calls in a second and microseconds of
this process for each. Every answer is looked at.
"""

from __future__ import annotations

import json
import sys

import trio

from benchmarks.workers.keeping import figures
from mcp_trio import ClientOptions, MCPClient


async def main(url: str, revision: str, seconds: str) -> None:
    """Measure and print."""
    async with MCPClient(url, options=ClientOptions(revisions=(revision,))) as client:
        found = await figures(client, float(seconds), trio.open_nursery)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])
