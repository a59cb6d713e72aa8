"""How many `tools/call` a second does one process answer over HTTP, and what does each one cost?

Three kinds of calls: of a function in the server; of a function or a published operation that asks
an API over HTTP first; and one that tells of its progress, so that the answer is a stream of two
events. Servers run on the first core, wrk and the API on the second. Rounds of all contenders are
interleaved, so a slow minute of the machine hits all of them. Every contender has to give the right
answer before it is measured and in every single response while it is; one that does not is shown as
failed. The processor time a call costs is shown too: on a machine that others use as well it is the
steadier figure. Below all of them are two floors, which know nothing of MCP: a fixed answer of an
ASGI application on our HTTP service, and one straight from a Trio socket. Needs `wrk` and
`taskset`.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import trio

from benchmarks.calls import FAILURES, HANDSHAKE, STATELESS, Dialect, Line, WrongAnswerError
from benchmarks.findings import Finding, Growth, Rounds
from benchmarks.peers import FASTMCP, peer_node, peer_python
from benchmarks.processes import (
    Crew,
    Program,
    ProgramError,
    need,
    output_of,
    processor_seconds,
    serving,
    serving_all,
)

HERE = Path(__file__).resolve().parent
CONNECTIONS = (1, 16, 64, 256)
USUAL = 16
"""Connections at which contenders are compared."""
ARGUMENTS = {"a": 2, "b": 40}
RIGHT = '"structuredContent":{"result":42}'
"""Stands in every right answer, as all contenders write it."""
NEWS = '"method":"notifications/progress"'
"""Stands in every answer that is a stream."""
TOKEN = "told"
PATIENCE = 10
"""Seconds that an answer may take; one that takes longer is none."""


@attrs.define
class Contender:
    """One server, and what it showed."""

    name: str
    program: Program | None
    """None if it did not start."""
    revision: str
    tool: str
    connections: tuple[int, ...] = (USUAL,)
    """How many are tried."""
    streams: bool = False
    """Whether the answer has to be a stream."""
    dialect: Dialect | None = None
    rounds: dict[int, list[float]] = attrs.field(factory=dict[int, list[float]])
    """Calls in a second, by the number of connections."""
    costs: list[float] = attrs.field(factory=list[float])
    """Microseconds of the processor for one call, at the usual number of them."""
    failure: str | None = None

    @property
    def token(self) -> str | None:
        """Under which progress is asked for."""
        return TOKEN if self.streams else None


def prepare(contender: Contender) -> None:
    """Open a session if there is one, and see that a call gives the truth."""
    if contender.program is None:
        return
    line = Line(contender.program.url)
    try:
        contender.dialect = line.open(contender.revision)
        given = line.call(contender.dialect, contender.tool, ARGUMENTS, token=contender.token)
        if given != ARGUMENTS["a"] + ARGUMENTS["b"]:
            raise WrongAnswerError(f"2 + 40 gave {given}")
    except FAILURES as error:
        contender.failure = f"{type(error).__name__}: {error}"
    finally:
        line.close()


def wrk(
    url: str, dialect: Dialect, tool: str, *, connections: int, seconds: int, streams: bool = False
) -> list[str | Path]:
    """The command that calls a tool on so many connections, over and over, from the second core."""
    body = dialect.call(0, tool, ARGUMENTS, token=TOKEN if streams else None)
    template = body.replace('"id": 0', '"id": %d').replace(f'"{TOKEN}"', "%d")
    texts = [RIGHT, NEWS] if streams else [RIGHT]
    headers = [f"{name}: {value}" for name, value in dialect.headers(tool).items()]
    pinned = ["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency"]
    return [
        *pinned,
        "--timeout",
        f"{PATIENCE}s",
        "-s",
        HERE / "load.lua",
        url,
        "--",
        template,
        str(len(texts)),
        *texts,
        *headers,
    ]


async def load(contender: Contender, connections: int, seconds: int) -> None:
    """Put one contender under load for one round; many connections need a while to be answered."""
    seconds = max(seconds, connections // 128)
    if contender.program is None or contender.dialect is None or contender.failure is not None:
        return
    process = contender.program.process
    command = wrk(
        contender.program.url,
        contender.dialect,
        contender.tool,
        connections=connections,
        seconds=seconds,
        streams=contender.streams,
    )
    if process.poll() is not None:
        contender.failure = "its program has ended"
        return
    begun = processor_seconds(process.pid)
    try:
        said = await output_of(command, within=seconds + 30, what="wrk")
    except ProgramError as error:
        contender.failure = error.reason
        return
    line = next(line for line in said.splitlines() if line.startswith("RESULT "))
    result = json.loads(line.removeprefix("RESULT "))
    if result["wrong"] or result["broken"] or not result["requests"]:
        contender.failure = f"under load: {result}"
    else:
        rate = result["requests"] / result["seconds"]
        contender.rounds.setdefault(connections, []).append(rate)
        spent = processor_seconds(process.pid) - begun
        if connections == USUAL:
            contender.costs.append(1e6 * spent / result["requests"])


async def compare(contenders: list[Contender], rounds: int, seconds: int) -> None:
    """Measure all contenders round by round."""
    for contender in contenders:
        await trio.to_thread.run_sync(prepare, contender)
        await load(contender, USUAL, 1)
        contender.rounds.clear()
        contender.costs.clear()
    for _ in range(rounds):
        for connections in CONNECTIONS:
            for contender in contenders:
                if connections in contender.connections:
                    await load(contender, connections, seconds)


def found(title: str, contenders: list[Contender]) -> list[Finding]:
    """What one comparison showed."""
    failures = {each.name: each.failure for each in contenders if each.failure is not None}
    sound = [each for each in contenders if each.failure is None]
    findings: list[Finding] = [
        Rounds(
            title=f"{title}, {USUAL} connections",
            unit="calls a second",
            better="more",
            figures={
                each.name: [] if each.failure else each.rounds.get(USUAL, []) for each in contenders
            },
            failures=failures,
        ),
        Rounds(
            title=f"{title}, processor time of the server",
            unit="µs a call",
            better="less",
            figures={each.name: [] if each.failure else each.costs for each in contenders},
            failures=failures,
        ),
    ]
    grown: dict[str, list[tuple[float, float]]] = {
        each.name: [
            (connections, 1e6 / statistics.median(rates))
            for connections, rates in each.rounds.items()
        ]
        for each in sound
        if len(each.connections) > 1
    }
    if grown:
        findings.append(
            Growth(
                title=f"{title}, by connections",
                unit="µs between two answers",
                size="connections",
                rate="calls a second",
                figures=grown,
                most={"mcp_trio": 0.1},
            )
        )
    return findings


@contextlib.asynccontextmanager
async def everybody() -> AsyncIterator[Crew]:
    """Start each server, and what they ask, for as long as the block runs.

    Their answers are JSON; of those whose name ends so, streams.
    """
    peer = await trio.to_thread.run_sync(peer_python)
    other = await trio.to_thread.run_sync(peer_python, FASTMCP)
    typescript = (await peer_node()).command("server.mjs")
    servers = HERE / "servers"
    ours: list[str | Path] = [sys.executable, servers / "ours.py"]
    official: list[str | Path] = [peer, servers / "official.py"]
    fastmcp: list[str | Path] = [other, servers / "with_fastmcp.py"]
    floor: list[str | Path] = [sys.executable, servers / "floor.py"]
    async with serving(["taskset", "-c", "1", *floor, "upstream"]) as asked:
        upstream = asked.url
        commands: dict[str, list[str | Path]] = {
            "ours": [*ours, upstream],
            "official": [*official, "uvicorn", "json", upstream],
            "official, sse": [*official, "uvicorn", "sse"],
            "uvloop": [*official, "uvicorn-fast", "json", upstream],
            "uvloop, sse": [*official, "uvicorn-fast", "sse"],
            "hypercorn": [*official, "hypercorn", "json"],
            "fastmcp": [*fastmcp, "uvicorn", "json", upstream],
            "fastmcp, sse": [*fastmcp, "uvicorn", "sse"],
            f"typescript {STATELESS}": [*typescript, "stateless", "json", upstream],
            f"typescript {STATELESS}, sse": [*typescript, "stateless", "sse", upstream],
            f"typescript {HANDSHAKE}": [*typescript, "sessions", "json", upstream],
            f"typescript {HANDSHAKE}, sse": [*typescript, "sessions", "sse", upstream],
            "asgi": [*floor, "asgi"],
            "socket": [*floor, "socket"],
        }
        pinned = {name: ["taskset", "-c", "0", *command] for name, command in commands.items()}
        async with serving_all(pinned) as crew:
            yield crew


def contenders_for(crew: Crew, revision: str) -> dict[str, list[Contender]]:
    """Who takes part in what, ours first."""
    typescript = f"typescript {revision}"

    def one(
        name: str, program: str, tool: str, connections: tuple[int, ...] = (USUAL,)
    ) -> Contender:
        return Contender(
            name,
            crew.running.get(program),
            revision,
            tool,
            connections,
            failure=crew.failures.get(program),
        )

    def streaming(name: str, program: str) -> Contender:
        return attrs.evolve(one(name, program, "add_talking"), streams=True)

    code = [
        one("mcp_trio", "ours", "add", CONNECTIONS),
        one("mcp_trio, static operation", "ours", "add_static"),
        one("official on uvicorn", "official", "add", CONNECTIONS),
        one("official on uvicorn, uvloop", "uvloop", "add", CONNECTIONS),
        one("official on Hypercorn/Trio", "hypercorn", "add", CONNECTIONS),
        one("FastMCP", "fastmcp", "add", CONNECTIONS),
        one("TypeScript", typescript, "add", CONNECTIONS),
    ]
    if revision == STATELESS:
        code += [
            one("floor: ASGI on our service", "asgi", "add", CONNECTIONS),
            one("floor: a Trio socket", "socket", "add", CONNECTIONS),
        ]
    rest = [
        one("mcp_trio, REST operation", "ours", "add_rest"),
        one("official on uvicorn, httpx2", "official", "add_rest"),
        one("official on uvicorn, uvloop, httpx2", "uvloop", "add_rest"),
        one("FastMCP, httpx2", "fastmcp", "add_rest"),
        one("FastMCP, OpenAPI", "fastmcp", "add_openapi"),
        one("TypeScript, fetch", typescript, "add_rest"),
    ]
    streams = [
        streaming("mcp_trio", "ours"),
        streaming("official on uvicorn", "official, sse"),
        streaming("official on uvicorn, uvloop", "uvloop, sse"),
        streaming("FastMCP", "fastmcp, sse"),
        streaming("TypeScript", f"{typescript}, sse"),
    ]
    return {"code": code, "REST": rest, "SSE": streams}


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """Compare in both eras.

    Raises:
        ProgramError: a program is missing.
    """
    need("wrk", "taskset")
    rounds, seconds = (1, 1) if quick else (3, 2)
    findings: list[Finding] = []
    async with everybody() as crew:
        for revision, era in ((STATELESS, "stateless"), (HANDSHAKE, "handshake")):
            for kind, contenders in contenders_for(crew, revision).items():
                await compare(contenders, rounds, seconds)
                findings += found(f"tools/call, {kind}, {era} {revision}", contenders)
    return findings
