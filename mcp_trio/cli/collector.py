"""The memory of a process that serves a catalog. Only who owns a process may decide such things.

Every full round of the garbage collector looks at millions of objects that live long and holds up
everything meanwhile, for seconds with 100,000 operations. A catalog has no cycles: what is replaced
goes at once, by counting references.

What is freed after an onslaught lies in pieces between what is not, and the allocator of glibc
keeps the pieces: hundreds of megabytes that nobody uses. They are given back.
"""

from __future__ import annotations

import ctypes
import gc
import resource
from collections.abc import Callable
from pathlib import Path

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


LOOKS = 5.0
"""Seconds between looks at how much memory the process has."""
FEWEST = 320.0
"""The same where looking gains nothing, because what is there is in use."""
WORTH = 8 * 1024 * 1024
"""Bytes by which it has to have grown, beside a tenth, for the allocator to be asked."""
_STATM = Path("/proc/self/statm")
_PAGE = resource.getpagesize()


async def give_back() -> None:
    """Have the allocator give back what is free, again and again; at once done without glibc."""
    trim = _trimmer()
    if trim is None:
        return
    lowest, pause = 0, LOOKS
    while True:
        await trio.sleep(pause)
        held = _resident()
        if held is None:
            continue
        if held <= lowest * 1.1 + WORTH:
            lowest, pause = min(lowest, held), LOOKS
            continue
        # A TLS stream of Trio's is a cycle, and a few hold much: no round comes for them alone.
        gc.collect(1)
        # Whoever wants memory meanwhile waits: a tenth of a second for 500 MB in pieces.
        await trio.to_thread.run_sync(trim, 0)
        left = _resident() or held
        lowest = min(lowest, left) or left
        # What is in use now may be free soon, so this goes on, though less and less often.
        pause = LOOKS if held - left > WORTH else min(2 * pause, FEWEST)


def _trimmer() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim if _STATM.exists() else None
    except (AttributeError, OSError, TypeError):
        return None


def _resident() -> int | None:
    """Bytes of the process that are in memory; None if clients have taken every descriptor."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE
    except OSError:
        return None
