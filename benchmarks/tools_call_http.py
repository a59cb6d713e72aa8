"""How many `tools/call` a second does one process answer over HTTP, and what does each one cost?

Servers run on the first core, wrk on the second. Rounds of all contenders are interleaved, so a
slow minute of the machine hits all of them. Every contender has to give the right answer before it
is measured and in every single response while it is; one that does not is shown as failed. The
processor time a call costs is shown too: on a machine that others use as well it is the steadier
figure. Below all of them are two floors, which know nothing of MCP: a fixed answer of an ASGI
application on our HTTP service, and one straight from a Trio socket. Needs `wrk` and `taskset`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import sys
from pathlib import Path

import attrs
import trio

from benchmarks.calls import HANDSHAKE, STATELESS, Dialect, Line, WrongAnswerError
from benchmarks.findings import Finding, Growth, Rounds
from benchmarks.peers import peer_python
from benchmarks.processes import ProgramError, output_of, serving

HERE = Path(__file__).resolve().parent
CONNECTIONS = (1, 16, 64, 256)
USUAL = 16
"""Connections at which contenders are compared."""
ARGUMENTS = {"a": 2, "b": 40}
RIGHT = '"structuredContent":{"result":42}'
"""Stands in every right answer, as all contenders write it."""


@attrs.define
class Contender:
    """One server, and what it showed."""

    name: str
    url: str
    revision: str
    tool: str
    process: trio.Process
    dialect: Dialect | None = None
    rounds: dict[int, list[float]] = attrs.field(factory=lambda: {n: [] for n in CONNECTIONS})
    """Calls in a second, by the number of connections."""
    costs: list[float] = attrs.field(factory=list)
    """Microseconds of the processor for one call, at the usual number of them."""
    failure: str | None = None


def prepare(contender: Contender) -> None:
    """Open a session if there is one, and see that a call gives the truth."""
    line = Line(contender.url)
    try:
        contender.dialect = line.open(contender.revision)
        given = line.call(contender.dialect, contender.tool, ARGUMENTS)
        if given != ARGUMENTS["a"] + ARGUMENTS["b"]:
            raise WrongAnswerError(f"2 + 40 gave {given}")
    except (WrongAnswerError, OSError, ValueError) as error:
        contender.failure = str(error)
    finally:
        line.close()


async def load(contender: Contender, connections: int, seconds: int) -> None:
    """Put one contender under load for one round."""
    if contender.dialect is None or contender.failure is not None:
        return
    dialect = contender.dialect
    body = dialect.call(0, contender.tool, ARGUMENTS).replace('"id": 0', '"id": %d')
    headers = [f"{name}: {value}" for name, value in dialect.headers(contender.tool).items()]
    wrk = ["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency"]
    command = [*wrk, "-s", HERE / "load.lua", contender.url, "--", *headers, body, RIGHT]
    if contender.process.poll() is not None:
        contender.failure = "its program has ended"
        return
    begun = processor_seconds(contender.process)
    try:
        said = await output_of(command, within=seconds + 30, what="wrk")
    except ProgramError as error:
        contender.failure = str(error)
        return
    line = next(line for line in said.splitlines() if line.startswith("RESULT "))
    result = json.loads(line.removeprefix("RESULT "))
    if result["wrong"] or result["broken"] or not result["requests"]:
        contender.failure = f"under load: {result}"
    else:
        contender.rounds[connections].append(result["requests"] / result["seconds"])
        spent = processor_seconds(contender.process) - begun
        if connections == USUAL:
            contender.costs.append(1e6 * spent / result["requests"])


def processor_seconds(process: trio.Process) -> float:
    """Processor time that a process has used so far."""
    fields = (
        Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    )
    return sum(int(ticks) for ticks in fields[11:13]) / os.sysconf("SC_CLK_TCK")


async def compare(contenders: list[Contender], rounds: int, seconds: int) -> None:
    """Measure all contenders round by round."""
    for contender in contenders:
        await trio.to_thread.run_sync(prepare, contender)
        await load(contender, USUAL, 1)
        contender.rounds[USUAL].clear()
        contender.costs.clear()
    for _ in range(rounds):
        for connections in CONNECTIONS:
            for contender in contenders:
                await load(contender, connections, seconds)


def found(title: str, contenders: list[Contender]) -> list[Finding]:
    """What one comparison showed."""
    failures = {each.name: each.failure for each in contenders if each.failure is not None}
    sound = [each for each in contenders if each.failure is None]
    return [
        Rounds(
            title=f"{title}, {USUAL} connections",
            unit="calls a second",
            better="more",
            figures={each.name: [] if each.failure else each.rounds[USUAL] for each in contenders},
            failures=failures,
        ),
        Rounds(
            title=f"{title}, processor time of the server",
            unit="µs a call",
            better="less",
            figures={each.name: [] if each.failure else each.costs for each in contenders},
        ),
        Growth(
            title=f"{title}, by connections",
            unit="µs between two answers",
            size="connections",
            figures={
                each.name: [
                    (connections, 1e6 / statistics.median(rates))
                    for connections, rates in each.rounds.items()
                    if rates
                ]
                for each in sound
            },
            most={"mcp_trio": 0.1},
        ),
    ]


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """Compare in both eras.

    Raises:
        ProgramError: a program is missing.
    """
    for tool in ("wrk", "taskset"):
        if shutil.which(tool) is None:
            raise ProgramError(f"{tool} is missing")
    rounds, seconds = (1, 1) if quick else (3, 3)
    peer = await trio.to_thread.run_sync(peer_python)
    pinned = ["taskset", "-c", "0"]
    official, floor = HERE / "servers" / "official.py", HERE / "servers" / "floor.py"
    commands = {
        "mcp_trio": [sys.executable, HERE / "servers" / "ours.py"],
        "official on uvicorn": [peer, official, "uvicorn", "json"],
        "official on uvicorn, uvloop": [peer, official, "uvicorn-fast", "json"],
        "official on Hypercorn/Trio": [peer, official, "hypercorn", "json"],
        "floor: ASGI on our service": [sys.executable, floor, "asgi"],
        "floor: a Trio socket": [sys.executable, floor, "socket"],
    }
    findings: list[Finding] = []
    async with contextlib.AsyncExitStack() as stack:
        programs = {}
        for name, command in commands.items():
            programs[name] = await stack.enter_async_context(serving([*pinned, *command]))
        for revision, title in ((STATELESS, "stateless"), (HANDSHAKE, "handshake")):
            contenders = [
                Contender(name, program.url, revision, "add", program.process)
                for name, program in programs.items()
                if revision == STATELESS or not name.startswith("floor")
            ]
            ours = programs["mcp_trio"]
            static = "mcp_trio, static operation"
            contenders.insert(1, Contender(static, ours.url, revision, "add_static", ours.process))
            await compare(contenders, rounds, seconds)
            findings += found(f"tools/call, {title} {revision}", contenders)
    return findings
