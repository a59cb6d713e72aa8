"""The same server behind every transport, and a client that speaks one revision to it."""

from __future__ import annotations

import contextlib
import tempfile

import httpx2
import trio
import trio.testing

from mcp_trio import ClientOptions, MCPClient, MemoryTransport
from mcp_trio.server.server import EOF_GRACE
from mcp_trio.transports.http_sse import HTTPSSETransport
from mcp_trio.transports.lines import LineTransport
from mcp_trio.transports.streamable_http import StreamableHTTPTransport
from mcp_trio.wire import REVISIONS
from tests.scenarios.recording import TappedHTTP, TappedStream, TappedTransport

TRANSPORTS = ("memory", "stdio", "http", "websocket", "unix", "sse")
TAPPED = ("memory", "stdio", "http")
"""Transports on which every message can be heard."""
WORLDS = [
    (transport, revision)
    for transport in TRANSPORTS
    for revision in REVISIONS
    if not (transport == "sse" and revision.stateless)  # the transport of handshake clients
]


@contextlib.asynccontextmanager
async def world(server, transport, revision, callbacks=None, *, tap=None, **options):
    """Serve, connect, and give the client.

    With a `Conversation` as `tap` every message goes there too; only `TAPPED` transports can.
    """
    options = ClientOptions(revisions=(revision,), **options)
    async with contextlib.AsyncExitStack() as stack, trio.open_nursery() as nursery:
        match transport:
            case "memory" if tap:
                ours, theirs = MemoryTransport.pair()
                target = TappedTransport(ours, tap, "client")
                await nursery.start(_serve, server, TappedTransport(theirs, tap, "server"))
            case "memory":
                target = server
            case "stdio":
                left_out, right_in = trio.testing.lockstep_stream_one_way_pair()
                right_out, left_in = trio.testing.lockstep_stream_one_way_pair()
                if tap:
                    left_out = TappedStream(left_out, tap, "client")
                    right_out = TappedStream(right_out, tap, "server")
                target = LineTransport(left_in, left_out)
                await nursery.start(_serve, server, LineTransport(right_in, right_out))
            case "unix":
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                target = await nursery.start(server.serve_unix, f"{folder}/socket")
            case _:
                (target,) = await nursery.start(server.serve_http, "127.0.0.1", 0)
                if transport == "websocket":
                    target = target.replace("http://", "ws://")
                elif transport == "sse":
                    url = target.replace("/mcp", "/sse")
                    http = httpx2.AsyncClient(timeout=None, trust_env=False)
                    target = HTTPSSETransport(url, await stack.enter_async_context(http))
                elif tap:
                    http = httpx2.AsyncClient(timeout=None, transport=TappedHTTP(tap))
                    target = StreamableHTTPTransport(target, await stack.enter_async_context(http))
        async with MCPClient(target, callbacks=callbacks, options=options) as client:
            yield client
        nursery.cancel_scope.cancel()


async def _serve(server, transport, *, task_status):
    # What `serve_stdio` does once it has taken the standard streams over.
    await server.serve(transport, eof_grace=EOF_GRACE, task_status=task_status)
