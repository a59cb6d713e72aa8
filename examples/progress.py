"""Progress and cancellation: `python examples/progress.py` (stdio)."""

import threading

import trio

import mcp_trio

server = mcp_trio.MCPServer("progress", version="1.0.0")
ended: list[str] = []
"""How the calls of `copy` ended."""


@server.tool
async def copy(ctx: mcp_trio.Context, files: int, seconds: float = 0.1) -> str:
    """Copy files in child tasks, two at a time, and tell how many are done."""
    done = 0
    room = trio.CapacityLimiter(2)

    async def one() -> None:
        nonlocal done
        async with room:
            await trio.sleep(seconds)
        done += 1
        # A value that is not greater than the last one told is left out.
        await ctx.progress(done, files, f"{done} of {files} files")

    try:
        async with trio.open_nursery() as nursery:
            for _ in range(files):
                nursery.start_soon(one)
    finally:  # here no child task runs any more, whether the call was cancelled or not
        ended.append(f"{done} of {files}")
    return f"copied {files} files"


stopped = threading.Event()
"""Set when the thread of `count` has seen that its call was cancelled."""


@server.tool
def count() -> int:
    """Work in a worker thread, for ever, and look now and then whether it is over."""
    number = 0
    try:
        while True:
            number += 1
            if number % 1000 == 0:
                trio.from_thread.check_cancelled()  # raises once the call was cancelled
    finally:
        stopped.set()


if __name__ == "__main__":
    server.run()
