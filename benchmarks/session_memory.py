"""How much memory does an idle session of the handshake era hold, over HTTP?

Sessions are opened over one connection, one after the other, and left alone; what the server's
process holds is read before and after. The first sessions are not counted.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import trio

from benchmarks.calls import FAILURES, HANDSHAKE, Line
from benchmarks.findings import Finding, Growth, Rounds
from benchmarks.peers import FASTMCP, peer_node, peer_python
from benchmarks.processes import Program, serving_all

HERE = Path(__file__).resolve().parent
SIZES = (250, 1_000, 4_000)
"""Sessions."""
WARM_UP = 50


def held(program: Program) -> int:
    """Bytes of memory that a program holds."""
    pages = int(Path(f"/proc/{program.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def fill(program: Program, sizes: tuple[int, ...]) -> list[tuple[float, float]]:
    """Open sessions up to each size; KiB of each one by then."""
    line, opened, found = Line(program.url), 0, list[tuple[float, float]]()
    try:
        for _ in range(WARM_UP):
            line.open(HANDSHAKE)
        before = held(program)
        for size in sizes:
            while opened < size:
                line.open(HANDSHAKE)
                opened += 1
            found.append((size, (held(program) - before) / size / 1024))
    finally:
        line.close()
    return found


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """Open sessions with everybody."""
    peer = await trio.to_thread.run_sync(peer_python)
    fastmcp = await trio.to_thread.run_sync(peer_python, FASTMCP)
    official = HERE / "servers" / "official.py"
    commands: dict[str, list[str | Path]] = {
        "mcp_trio": [sys.executable, HERE / "servers" / "ours.py"],
        "official on uvicorn": [peer, official, "uvicorn", "json"],
        "official on Hypercorn/Trio": [peer, official, "hypercorn", "json"],
        "FastMCP": [fastmcp, HERE / "servers" / "with_fastmcp.py", "uvicorn", "json"],
        "TypeScript": [*(await peer_node()).command("server.mjs"), "sessions", "json"],
    }
    sizes = (50, 100, 200) if quick else SIZES
    figures: dict[str, list[tuple[float, float]]] = {}
    failures: dict[str, str] = {}
    for name, command in commands.items():
        async with serving_all({name: command}) as crew:
            failures |= crew.failures
            for program in crew.running.values():
                try:
                    figures[name] = await trio.to_thread.run_sync(fill, program, sizes)
                except FAILURES as error:
                    failures[name] = f"{type(error).__name__}: {error}"
    last = {name: [figures[name][-1][1]] if name in figures else [] for name in commands}
    title = f"Memory of an idle session, {sizes[-1]:,} of them"
    return [
        Rounds(title=title, unit="KiB", better="less", figures=last, failures=failures),
        Growth(
            title="Memory of an idle session, by their number",
            unit="KiB each",
            size="sessions",
            figures=figures,
            most={"mcp_trio": 0.1},
        ),
    ]
