"""What does listing cost, from 10 to 100,000 tools: one page, and a walk over all of them?

First the same runs as those of `catalog_refresh`, and nobody else. Then full walks over tools of
code, each by the client of its own package, which keeps nothing: processor time of client and
server, which are in one process, in memory.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import trio

from benchmarks.calls import HANDSHAKE, STATELESS
from benchmarks.catalog_refresh import catalogs, middle
from benchmarks.findings import Finding, Growth, Rounds
from benchmarks.peers import FASTMCP, peer_node, peer_python
from benchmarks.processes import ProgramError
from benchmarks.workers.results import samples

WORKERS = Path(__file__).resolve().parent / "workers"
SIZES = (100, 1_000, 3_000, 10_000)
"""Tools of code."""
FASTMCP_MOST = 3_000
"""FastMCP looks at all tools whenever one is registered: more would take minutes."""


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """List a page, list everything."""
    return [await catalog(quick=quick), *await walks(quick=quick)]


async def catalog(*, quick: bool) -> Finding:
    """A catalog of operations, by its size."""
    found = await catalogs(quick=quick)
    return Growth(
        title="Listing, processor time",
        unit="ms",
        size="tools",
        figures={
            "a page of 200, found by the server": [
                (size, 1000 * each["cut"]) for size, each in found.items()
            ],
            "the same, asked for and read by a client": [
                (size, middle(each["page"])) for size, each in found.items()
            ],
            "a walk over all pages, the second": [
                (size, 1000 * each["walk"][1][1]) for size, each in found.items()
            ],
        },
        most={
            "a page of 200, found by the server": 0.3,
            "a walk over all pages, the second": 1.1,
        },
    )


async def walks(*, quick: bool) -> list[Finding]:
    """Full walks, beside others."""
    peer = await trio.to_thread.run_sync(peer_python)
    fastmcp = await trio.to_thread.run_sync(peer_python, FASTMCP)
    sizes, rounds = (SIZES[:3], "3") if quick else (SIZES, "5")
    ours: list[str | Path] = [sys.executable, "-m", "benchmarks.workers.list_ours"]
    others = WORKERS / "list_official.py"
    typescript = (await peer_node()).command("list.mjs")
    no_more = f"FastMCP, up to {FASTMCP_MOST:,}"
    commands: dict[str, list[str | Path]] = {
        f"mcp_trio, {STATELESS}": [*ours, "{count}", rounds, STATELESS],
        f"mcp_trio, {HANDSHAKE}": [*ours, "{count}", rounds, HANDSHAKE],
        "official, streams": [peer, others, "{count}", rounds, "official", "legacy"],
        "official, direct (no messages)": [peer, others, "{count}", rounds, "official", "auto"],
        no_more: [fastmcp, others, "{count}", rounds, "fastmcp", "auto"],
        "TypeScript": [*typescript, "{count}", rounds],
    }
    taken: dict[str, dict[int, list[float]]] = {name: {} for name in commands}
    failures: dict[str, str] = {}
    for size in sizes:
        for name, command in commands.items():
            if name in failures or (name == no_more and size > FASTMCP_MOST):
                continue
            try:
                # The first walk also fills what is kept for the next ones.
                taken[name][size] = [1000 * s for s in (await samples(command, size))[1:]]
            except ProgramError as error:
                failures[name] = error.reason
                taken[name].clear()
    title = "A walk over all tools of code, processor time of both ends"
    return [
        Growth(
            title=title,
            unit="ms",
            size="tools",
            figures={
                name: [(size, statistics.median(every)) for size, every in by_size.items()]
                for name, by_size in taken.items()
                if by_size
            },
            most={f"mcp_trio, {revision}": 1.1 for revision in (STATELESS, HANDSHAKE)},
        ),
        *(
            Rounds(
                title=f"{title}, {size:,} of them",
                unit="ms",
                better="less",
                figures={
                    name: by_size.get(size, [])
                    for name, by_size in taken.items()
                    if size in by_size or name in failures
                },
                failures=failures,
            )
            for size in sizes[-2:]
        ),
    ]
