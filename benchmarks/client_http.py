"""How many `tools/call` a second does one client make over HTTP, and what does each one cost it?

All clients call the same server, ours, which runs on the second core; each client has the first
core, a process of its own and the environment of its package. One call after the other, and
sixteen at a time from one client. Where the server is what holds a client up, the processor time
of the client tells them apart.
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from benchmarks.calls import HANDSHAKE, STATELESS
from benchmarks.findings import Finding
from benchmarks.peers import FASTMCP, peer_node, peer_python
from benchmarks.processes import need, serving
from benchmarks.turns import turns

HERE = Path(__file__).resolve().parent


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """Compare in both eras."""
    need("taskset")
    peer = await trio.to_thread.run_sync(peer_python)
    fastmcp = await trio.to_thread.run_sync(peer_python, FASTMCP)
    clients: dict[str, list[str | Path]] = {
        "mcp_trio": [sys.executable, "-m", "benchmarks.workers.caller_ours"],
        "official": [peer, HERE / "workers" / "caller_official.py", "official"],
        "FastMCP": [fastmcp, HERE / "workers" / "caller_official.py", "fastmcp"],
        "TypeScript": [*(await peer_node()).command("client.mjs")],
    }
    rounds, seconds = (1, "0.5") if quick else (3, "2")
    findings: list[Finding] = []
    async with serving(
        ["taskset", "-c", "1", sys.executable, HERE / "servers" / "ours.py"]
    ) as program:
        for revision, era in ((STATELESS, "stateless"), (HANDSHAKE, "handshake")):
            commands = {
                name: ["taskset", "-c", "0", *client, program.url, revision, seconds]
                for name, client in clients.items()
            }
            title = f"A client over HTTP, {era} {revision}"
            findings += await turns(title, "client", commands, rounds)
    return findings
