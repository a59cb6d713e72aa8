"""The two probes of an orchestrator: does it live, and is it ready? Alike on every listener."""

from __future__ import annotations

from mcp_trio.http.responses import Send, respond

PROBES = frozenset({"/healthz", "/readyz"})
"""Their paths, which nothing else can have."""


async def answer_probe(path: str, send: Send, *, ready: bool) -> None:
    """Answer a GET or HEAD of one of `PROBES`."""
    if path == "/healthz":
        await respond(send, 200, b'{"status":"ok"}')
    elif ready:
        await respond(send, 200, b'{"status":"ready"}')
    else:
        await respond(send, 503, b'{"status":"not ready"}')
