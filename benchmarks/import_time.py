"""What does starting cost: processor time of the imports, and of so many tools?

Processes take turns, each a fresh interpreter that measures itself, so neither the start of Python
nor what else the machine does is part of it. The first round is not counted: it writes byte code.
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from benchmarks.findings import Finding, Growth, Rounds
from benchmarks.peers import FASTMCP, peer_python
from benchmarks.processes import ProgramError, output_of

PROGRAM = """
import time
began = time.process_time()
{what}
print(time.process_time() - began)
"""
TOOLS = """
import time
{server}
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
began = time.process_time()
for number in range({size}):
    server.add_tool(add, name=f"add_{{number}}")
print(time.process_time() - began)
"""
OURS = "import mcp_trio; server = mcp_trio.MCPServer('bench', version='1')"
OFFICIAL = "from mcp.server.mcpserver import MCPServer; server = MCPServer('bench')"
TIMEOUT = 60.0
"""Seconds one process may take."""


def contenders(peer: Path, fastmcp: Path) -> dict[str, list[str | Path]]:
    """Who is started, ours first; each name says what is imported."""
    ours, client, opens = (
        "import mcp_trio",
        "import mcp_trio; mcp_trio.MCPClient",
        "import mcp_trio; mcp_trio.MCPClient; import mcp_trio.transports.streamable_http",
    )
    return {
        "mcp_trio, a client": [sys.executable, "-c", PROGRAM.format(what=client)],
        "mcp_trio, the front door": [sys.executable, "-c", PROGRAM.format(what=ours)],
        "mcp_trio, a client with HTTP": [sys.executable, "-c", PROGRAM.format(what=opens)],
        "official, import mcp": [peer, "-c", PROGRAM.format(what="import mcp")],
        "FastMCP, a client": [fastmcp, "-c", PROGRAM.format(what="import fastmcp; fastmcp.Client")],
    }


async def tools(peer: Path, sizes: tuple[int, ...], failures: dict[str, str]) -> Growth:
    """Define growing numbers of tools; who fails is told of among the failures."""
    figures: dict[str, list[tuple[float, float]]] = {"mcp_trio": [], "official": []}
    for size in sizes:
        for name, python, server in (
            ("mcp_trio", sys.executable, OURS),
            ("official", str(peer), OFFICIAL),
        ):
            command = [python, "-c", TOOLS.format(server=server, size=size)]
            try:
                said = await output_of(command, within=TIMEOUT, what=name)
            except ProgramError as error:
                failures[f"{name}, {size:,} tools"] = error.reason
            else:
                figures[name].append((size, 1000 * float(said)))
    return Growth(
        title="Tools that are defined, processor time",
        unit="ms",
        size="tools",
        figures={name: points for name, points in figures.items() if points},
        most={"mcp_trio": 1.1},
    )


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """Start everybody round by round."""
    peer = await trio.to_thread.run_sync(peer_python)
    commands = contenders(peer, await trio.to_thread.run_sync(peer_python, FASTMCP))
    figures: dict[str, list[float]] = {name: [] for name in commands}
    failures: dict[str, str] = {}
    for number in range(2 if quick else 16):
        for name, command in commands.items():
            if name in failures:
                continue
            try:
                said = await output_of(command, within=TIMEOUT, what=name)
            except ProgramError as error:
                failures[name] = error.reason
                figures[name].clear()
                continue
            if number:
                figures[name].append(1000 * float(said))
    title = "Imports, processor time"
    return [
        Rounds(title=title, unit="ms", better="less", figures=figures, failures=failures),
        await tools(peer, (10, 100, 1_000), failures),
    ]
