"""How long a client trusts an HTTP connection that nobody has used for a while."""

import time
import types

import httpcore2
import pytest
import trio

import mcp_trio

OTHERS_CLOSE_AFTER = 5.0
"""Seconds after which common servers close an idle connection."""


class Counting(httpcore2.AsyncNetworkBackend):
    """Opens connections as usual, and counts them."""

    def __init__(self, real):
        self.real = real
        self.opened = 0

    async def connect_tcp(self, *args, **kwargs):
        self.opened += 1
        return await self.real.connect_tcp(*args, **kwargs)

    async def connect_unix_socket(self, *args, **kwargs):
        return await self.real.connect_unix_socket(*args, **kwargs)

    async def sleep(self, seconds):
        await self.real.sleep(seconds)


@pytest.mark.parametrize(
    ("idle", "connections"), [(1.0, 1), (OTHERS_CLOSE_AFTER - 1, 2)], ids=["soon", "late"]
)
async def test_a_connection_is_given_up_before_a_server_would_close_it(
    monkeypatch, nursery, idle, connections
):
    """Its end could cross the next message, which could then not be sent a second time."""
    later = 0.0
    clock = types.SimpleNamespace(monotonic=lambda: time.monotonic() + later)
    monkeypatch.setattr("httpcore2._async.http11.time", clock)
    made = httpcore2.AsyncConnectionPool.__init__
    counting = Counting(httpcore2.TrioBackend())

    def make(self, *args, **kwargs):
        made(self, *args, **{**kwargs, "network_backend": counting})

    monkeypatch.setattr(httpcore2.AsyncConnectionPool, "__init__", make)
    server = mcp_trio.MCPServer("demo")
    (url,) = await nursery.start(server.serve_http, "127.0.0.1", 0)
    with trio.fail_after(60):
        async with mcp_trio.MCPClient(url) as client:
            await client.ping()
            before = counting.opened
            later = idle
            await client.ping()
            assert counting.opened - before + 1 == connections
    nursery.cancel_scope.cancel()
