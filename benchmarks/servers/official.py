"""The official SDK over HTTP, with the tools of `ours`, on uvicorn or on Hypercorn under Trio.

Runs in the peers' environment. Arguments: `uvicorn`, `uvicorn-fast` (uvloop and httptools) or
`hypercorn`, then `json` or `sse`, the form of its answers. Nothing is tuned against it: access
logs are off, limits on requests per connection are lifted.
"""

from __future__ import annotations

import functools
import socket
import sys
import time
from collections import defaultdict

import anyio
from mcp.server.mcpserver import Context, MCPServer

PATIENCE = 2.0
"""Seconds to wait for the end of a call; then it counts as never ended."""

server = MCPServer("bench", log_level="ERROR")


@functools.cache
def began() -> defaultdict[str, anyio.Event]:
    """The calls of `hold` that began, by name."""
    return defaultdict(anyio.Event)


@functools.cache
def ended() -> defaultdict[str, anyio.Event]:
    """The calls of `hold` whose `finally` ran, by name."""
    return defaultdict(anyio.Event)


times: dict[str, float] = {}
"""When each of them did, on the clock that all processes of the machine share."""


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def hold(name: str, talk: bool, ctx: Context) -> str:  # noqa: FBT001 - a JSON argument
    """Run until cancelled; with `talk` the answer begins as a stream."""
    if talk:
        await ctx.report_progress(1)
    began()[name].set()
    try:
        await anyio.sleep_forever()
    finally:
        times[name] = time.monotonic()
        ended()[name].set()
    raise AssertionError


@server.tool()
async def wait_begun(name: str) -> bool:
    """Wait until a call of `hold` runs."""
    with anyio.move_on_after(PATIENCE):
        await began()[name].wait()
        return True
    return False


@server.tool()
async def wait_ended(name: str) -> float:
    """Wait until a call of `hold` ended, and tell when; 0 for never."""
    with anyio.move_on_after(PATIENCE):
        await ended()[name].wait()
    return times.pop(name, 0.0)


def main(host: str, form: str) -> None:
    """Serve until terminated."""
    app = server.streamable_http_app(json_response=form == "json")
    # Opened here, so that the URL can be told and connections wait from the first moment.
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    if host == "hypercorn":
        from hypercorn.config import Config
        from hypercorn.trio import serve

        config = Config()
        config.bind = [f"fd://{listener.fileno()}"]
        config.accesslog = None
        config.errorlog = None
        config.keep_alive_max_requests = 10**9
        print(url, file=sys.stderr, flush=True)
        anyio.run(serve, app, config, backend="trio")
    else:
        import uvicorn

        fast = host == "uvicorn-fast"
        config = uvicorn.Config(
            app,
            log_level="error",
            access_log=False,
            loop="uvloop" if fast else "asyncio",
            http="httptools" if fast else "h11",
        )
        print(url, file=sys.stderr, flush=True)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(*sys.argv[1:])
