"""How many `tools/call` a second does one process answer over its pipes, and what does each cost?

The same plain driver starts each server and writes lines and reads them, one call after the other
and with sixteen in flight; the server runs on the first core, the driver on the second. Each round
is a fresh process, and contenders take turns.
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from benchmarks.calls import HANDSHAKE, STATELESS
from benchmarks.findings import Finding
from benchmarks.peers import FASTMCP, peer_node, peer_python
from benchmarks.processes import need
from benchmarks.turns import turns

SERVERS = Path(__file__).resolve().parent / "servers"


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """Compare in both eras."""
    need("taskset")
    peer = await trio.to_thread.run_sync(peer_python)
    fastmcp = await trio.to_thread.run_sync(peer_python, FASTMCP)
    servers: dict[str, list[str | Path]] = {
        "mcp_trio": [sys.executable, SERVERS / "ours.py"],
        "official": [peer, SERVERS / "official.py"],
        "FastMCP": [fastmcp, SERVERS / "with_fastmcp.py"],
        "TypeScript": [*(await peer_node()).command("server.mjs")],
    }
    rounds, seconds = (1, "0.5") if quick else (3, "2")
    findings: list[Finding] = []
    for revision, era in ((STATELESS, "stateless"), (HANDSHAKE, "handshake")):
        driver = ["taskset", "-c", "1", sys.executable, "-m", "benchmarks.workers.pipe"]
        commands = {
            name: [*driver, revision, seconds, *server, "stdio"] for name, server in servers.items()
        }
        title = f"tools/call over stdio, {era} {revision}"
        findings += await turns(title, "server", commands, rounds)
    return findings
