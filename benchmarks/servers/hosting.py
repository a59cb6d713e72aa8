"""Serving an ASGI application of other people on other people's servers, and telling where.

Access logs are off, and limits on requests per connection are lifted; nothing else is set. Used by
programs that run in the peers' environments.
"""

from __future__ import annotations

import socket
import sys
from typing import Any


def on_hypercorn(app: Any) -> None:
    """Serve on Hypercorn under Trio."""
    import anyio
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


def on_uvicorn(app: Any, *, fast: bool = False) -> None:
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
