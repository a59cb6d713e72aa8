"""Who takes part where calls are given up: the programs, each by what it is and how it is set.

All have the tools `hold` and `work`. They run on the first core.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Literal

import attrs
import trio

from benchmarks.calls import HANDSHAKE, STATELESS
from benchmarks.peers import FASTMCP, peer_node, peer_python
from benchmarks.processes import ROOT, Crew, ProgramError, serving_all

SERVERS = Path(__file__).resolve().parent / "servers"
WORKERS = SERVERS.parent / "workers"
FIRST, SECOND = ("taskset", "-c", "0"), ("taskset", "-c", "1")

Command = Sequence[str | Path]


@attrs.frozen
class Pair:
    """A client and a server of one package."""

    client: str
    server: str
    """The name of a program that serves, `stdio`, or `memory` for both in one process."""
    revision: str
    at: Literal["", "ws", "/sse"] = ""
    """What is not at the URL that the server says."""


OURS, OFFICIAL_SDK, FAST, NODE = "mcp_trio", "official", "FastMCP", "TypeScript"
FLOOR = "floor: a Trio socket"
"""The name of a program that has no handlers, and what nobody can do better than."""
DIRECT = "direct"
"""A revision of its own, in which no messages are made."""
PAIRS: dict[str, dict[str, Pair]] = {
    "memory": {
        f"mcp_trio, {STATELESS}": Pair(OURS, "memory", STATELESS),
        f"mcp_trio, {HANDSHAKE}": Pair(OURS, "memory", HANDSHAKE),
        "official, streams": Pair(OFFICIAL_SDK, "memory", HANDSHAKE),
        "official, direct (no messages)": Pair(OFFICIAL_SDK, "memory", DIRECT),
        "FastMCP": Pair(FAST, "memory", HANDSHAKE),
    },
    "stdio": {
        "mcp_trio": Pair(OURS, "stdio", HANDSHAKE),
        "official": Pair(OFFICIAL_SDK, "stdio", HANDSHAKE),
        "FastMCP": Pair(FAST, "stdio", HANDSHAKE),
        "TypeScript": Pair(NODE, "stdio", HANDSHAKE),
    },
    f"HTTP, {HANDSHAKE}": {
        "mcp_trio": Pair(OURS, "mcp_trio", HANDSHAKE),
        "official, JSON answers": Pair(OFFICIAL_SDK, "official, JSON", HANDSHAKE),
        "official, SSE answers": Pair(OFFICIAL_SDK, "official, SSE", HANDSHAKE),
        "FastMCP": Pair(FAST, "FastMCP", HANDSHAKE),
        "TypeScript": Pair(NODE, f"TypeScript {HANDSHAKE}", HANDSHAKE),
    },
    f"HTTP, {STATELESS}": {
        "mcp_trio": Pair(OURS, "mcp_trio", STATELESS),
        "official, JSON answers": Pair(OFFICIAL_SDK, "official, JSON", STATELESS),
        "official, SSE answers": Pair(OFFICIAL_SDK, "official, SSE", STATELESS),
        "FastMCP": Pair(FAST, "FastMCP", STATELESS),
        "TypeScript": Pair(NODE, f"TypeScript {STATELESS}", STATELESS),
    },
    "other lines": {
        "mcp_trio, Unix socket": Pair(OURS, "mcp_trio, Unix", HANDSHAKE),
        "mcp_trio, TCP": Pair(OURS, "mcp_trio, TCP", HANDSHAKE),
        "mcp_trio, WebSocket": Pair(OURS, "mcp_trio", HANDSHAKE, "ws"),
        "mcp_trio, HTTP+SSE": Pair(OURS, "mcp_trio", HANDSHAKE, "/sse"),
        "official, HTTP+SSE": Pair(OFFICIAL_SDK, "official, HTTP+SSE", HANDSHAKE, "/sse"),
        "FastMCP, HTTP+SSE": Pair(FAST, "FastMCP, HTTP+SSE", HANDSHAKE, "/sse"),
    },
}
"""Every client with its own server, by what lies between them."""


@attrs.frozen
class Commands:
    """How programs are started."""

    serving: dict[str, Command]
    """Those that say a URL."""
    on_stdio: dict[str, Command]
    clients: dict[str, Command]
    """By package; on the second core."""

    def target(self, pair: Pair, url: str) -> str | Command:
        """What the client of a pair connects to, if the server says a URL."""
        match pair.server, pair.at:
            case "memory", _:
                return "memory"
            case "stdio", _:
                return self.on_stdio[pair.client]
            case _, "ws":
                return url.replace("http://", "ws://")
            case _, "/sse":
                return url.removesuffix("/mcp") + "/sse"
        return url


@attrs.frozen
class Programs:
    """Programs that run, and those that are started by who talks to them."""

    _crew: Crew
    commands: Commands

    def url(self, name: str) -> str:
        """Where a program serves.

        Raises:
            ProgramError: it did not start.
        """
        if name in self._crew.failures:
            raise ProgramError(f"{name} did not start: {self._crew.failures[name]}")
        return self._crew.running[name].url


async def commands() -> Commands:
    """How everybody is started; installs what is missing."""
    ours = [*FIRST, sys.executable, SERVERS / "ours.py"]
    peer = await trio.to_thread.run_sync(peer_python)
    other = await trio.to_thread.run_sync(peer_python, FASTMCP)
    official = [*FIRST, peer, SERVERS / "official.py"]
    fastmcp = [*FIRST, other, SERVERS / "with_fastmcp.py"]
    node = await peer_node()
    typescript = [*FIRST, *node.command("server.mjs")]
    return Commands(
        serving={
            "mcp_trio": ours,
            "mcp_trio, Unix": [*ours, "unix"],
            "mcp_trio, TCP": [*ours, "tcp"],
            "official, JSON": [*official, "uvicorn", "json"],
            "official, SSE": [*official, "uvicorn", "sse"],
            "official, SSE, Hypercorn": [*official, "hypercorn", "sse"],
            "official, HTTP+SSE": [*official, "uvicorn", "http+sse"],
            "FastMCP": [*fastmcp, "uvicorn", "sse"],
            "FastMCP, HTTP+SSE": [*fastmcp, "uvicorn", "http+sse"],
            f"TypeScript {STATELESS}": [*typescript, "stateless", "sse"],
            f"TypeScript {HANDSHAKE}": [*typescript, "sessions", "sse"],
            FLOOR: [*FIRST, sys.executable, SERVERS / "floor.py", "held"],
        },
        on_stdio={
            # Our client hands on no variables by itself, and this checkout has to be found.
            "mcp_trio": ["env", f"PYTHONPATH={ROOT}", *ours, "stdio"],
            "official": [*official, "stdio"],
            "FastMCP": [*fastmcp, "stdio"],
            "TypeScript": [*typescript, "stdio"],
        },
        clients={
            OURS: [*SECOND, sys.executable, WORKERS / "client_ours.py"],
            OFFICIAL_SDK: [*SECOND, peer, WORKERS / "client_peer.py", "official"],
            FAST: [*SECOND, other, WORKERS / "client_peer.py", "fastmcp"],
            NODE: [*SECOND, *node.command("leaving.mjs")],
        },
    )


@contextlib.asynccontextmanager
async def programs() -> AsyncIterator[Programs]:
    """Run everybody for as long as the block runs."""
    known = await commands()
    async with serving_all(known.serving) as crew:
        yield Programs(crew, known)
