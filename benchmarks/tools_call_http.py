"""How many `tools/call` a second one process answers over HTTP, beside the official SDK.

Servers run on the first core, wrk on the second, 16 connections. Rounds of all contenders are
interleaved, so a slow minute of the machine hits all of them. Every contender has to give the
right answer before it is measured and in every single response while it is; one that does not is
shown as failed. The processor time a call costs is shown too: on a machine that others use as well
it is the steadier figure. Needs `wrk` and `taskset`.
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
import click
import trio

from benchmarks import report
from benchmarks.calls import HANDSHAKE, STATELESS, Dialect, Line, WrongAnswerError
from benchmarks.peers import peer_python
from benchmarks.processes import ProgramError, output_of, serving

HERE = Path(__file__).resolve().parent
CONNECTIONS = 16
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
    rounds: list[float] = attrs.field(factory=list)
    """Calls in a second."""
    costs: list[float] = attrs.field(factory=list)
    """Microseconds of the processor for one call."""
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


async def measure(contender: Contender, seconds: int) -> None:
    """Put one contender under load for one round."""
    if contender.dialect is None or contender.failure is not None:
        return
    dialect = contender.dialect
    body = dialect.call(0, contender.tool, ARGUMENTS).replace('"id": 0', '"id": %d')
    headers = [f"{name}: {value}" for name, value in dialect.headers(contender.tool).items()]
    wrk = ["taskset", "-c", "1", "wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency"]
    command = [*wrk, "-s", HERE / "load.lua", contender.url, "--", *headers, body, RIGHT]
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
        contender.rounds.clear()
    else:
        contender.rounds.append(result["requests"] / result["seconds"])
        spent = processor_seconds(contender.process) - begun
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
        await measure(contender, 1)
        contender.rounds.clear()
        contender.costs.clear()
    for _ in range(rounds):
        for contender in contenders:
            await measure(contender, seconds)


def tell(title: str, contenders: list[Contender]) -> int:
    """Print a comparison; how many failed."""
    click.echo(report.rates(title, {item.name: item.rounds for item in contenders}, "calls/s"))
    for item in contenders:
        if item.costs:
            click.echo(f"- {item.name}: {statistics.median(item.costs):.0f} µs of processor a call")
    click.echo()
    failed = [item for item in contenders if item.failure is not None]
    for item in failed:
        click.echo(f"FAILED {item.name}: {item.failure}")
    return len(failed)


async def main(rounds: int, seconds: int) -> int:
    """Run both comparisons; how many contenders failed."""
    for tool in ("wrk", "taskset"):
        if shutil.which(tool) is None:
            raise ProgramError(f"{tool} is missing")
    peer = await trio.to_thread.run_sync(peer_python)
    pinned = ["taskset", "-c", "0"]
    official = HERE / "servers" / "official.py"
    commands = {
        "mcp_trio": [sys.executable, HERE / "servers" / "ours.py"],
        "official on uvicorn": [peer, official, "uvicorn", "json"],
        "official on uvicorn, uvloop": [peer, official, "uvicorn-fast", "json"],
        "official on Hypercorn/Trio": [peer, official, "hypercorn", "json"],
    }
    click.echo(report.machine())
    failed = 0
    async with contextlib.AsyncExitStack() as stack:
        programs = {}
        for name, command in commands.items():
            programs[name] = await stack.enter_async_context(serving([*pinned, *command]))
        for revision, title in ((STATELESS, "stateless"), (HANDSHAKE, "handshake")):
            contenders = [
                Contender(name, program.url, revision, "add", program.process)
                for name, program in programs.items()
            ]
            ours = programs["mcp_trio"]
            static = "mcp_trio, static operation"
            contenders.insert(1, Contender(static, ours.url, revision, "add_static", ours.process))
            await compare(contenders, rounds, seconds)
            failed += tell(f"tools/call over HTTP, {title} {revision}", contenders)
    return failed


@click.command()
@click.option("--quick", is_flag=True, help="One short round: does it run at all?")
def command(*, quick: bool) -> None:
    """Measure tools/call over HTTP; fails when a contender did."""
    failed = trio.run(main, 1, 1) if quick else trio.run(main, 5, 5)
    sys.exit(min(failed, 1))


if __name__ == "__main__":
    command()
