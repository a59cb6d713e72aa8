"""The garbage collector in a process that serves a catalog: millions of objects that live long.

Every full round of the collector looks at all of them and holds up everything meanwhile, for
seconds with 100,000 operations. A catalog has no cycles: what is replaced goes at once, by
counting references. Only a program that owns its process may decide this, so it lives here.
"""

from __future__ import annotations

import gc

import trio

LOADING = (20_000, 20, 100_000)
"""Of objects allocated, and of rounds. Python's own are 700, 10 and 10, with which the rounds take
longer than the loading; the last number keeps full rounds away meanwhile."""
SERVING = (20_000, 20, 20)


def relax() -> None:
    """Keep full rounds away until a catalog is loaded; see `settle`."""
    gc.set_threshold(*LOADING)


async def settle(loaded: trio.Event) -> None:
    """Wait for the first catalog, and leave it and all else that lives then out of the rounds."""
    await loaded.wait()
    gc.collect(1)  # what is young and dead should not be kept for good
    gc.freeze()
    gc.set_threshold(*SERVING)
