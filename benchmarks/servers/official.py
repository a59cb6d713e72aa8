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
from starlette.applications import Starlette

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


def on_hypercorn(app: Starlette) -> None:
    """Serve on Hypercorn under Trio."""
    from hypercorn.config import Config
    from hypercorn.trio import serve

    # Opened here, so that the URL can be told and connections wait from the first moment.
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    config = Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.accesslog = None
    config.errorlog = None
    config.keep_alive_max_requests = 10**9
    tell(listener.getsockname()[1])
    anyio.run(serve, app, config, backend="trio")


def on_uvicorn(app: Starlette, *, fast: bool) -> None:
    """Serve on uvicorn, as its plain dependencies make it or with its fast parts."""
    import uvicorn

    class Telling(uvicorn.Server):
        """Tells where it listens once it does.

        It has to bind by itself: asyncio leaves Nagle's delay on for sockets that others made,
        which costs 40 ms a request.
        """

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            """Listen, then tell."""
            await super().startup(sockets)
            tell(self.servers[0].sockets[0].getsockname()[1])

    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        log_level="error",
        access_log=False,
        loop="uvloop" if fast else "asyncio",
        http="httptools" if fast else "h11",
    )
    Telling(config).run()


def tell(port: int) -> None:
    """Say where the server listens."""
    print(f"http://127.0.0.1:{port}/mcp", file=sys.stderr, flush=True)


def main(host: str, form: str) -> None:
    """Serve until terminated."""
    app = server.streamable_http_app(json_response=form == "json")
    if host == "hypercorn":
        on_hypercorn(app)
    else:
        on_uvicorn(app, fast=host == "uvicorn-fast")


if __name__ == "__main__":
    main(*sys.argv[1:])
