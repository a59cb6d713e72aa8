"""How long one `tools/call` takes in memory, client and server in one process.

Ours goes through the real codec in both eras. The official SDK's client has two ways in memory: a
stream transport with messages, and a direct path that hands Python objects over unencoded; both
are shown, on asyncio, its default. Rounds are interleaved, each in a fresh process.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import trio

from benchmarks import report
from benchmarks.calls import HANDSHAKE, STATELESS
from benchmarks.peers import peer_python
from benchmarks.workers.results import samples

WORKERS = Path(__file__).resolve().parent / "workers"


def contenders(peer: Path, what: str) -> dict[str, list[str | Path]]:
    """The commands of everybody who can be measured in memory, but for the count.

    Each starts with ours in the era that the name says.
    """
    ours: list[str | Path] = [sys.executable, "-m", "benchmarks.workers.memory_ours", what]
    official: list[str | Path] = [peer, WORKERS / "memory_official.py", what]
    return {
        f"mcp_trio, {STATELESS}": [*ours, "{count}", STATELESS],
        f"mcp_trio, {HANDSHAKE}": [*ours, "{count}", HANDSHAKE],
        "official, direct (no messages)": [*official, "{count}", "auto", "asyncio"],
        "official, streams": [*official, "{count}", "legacy", "asyncio"],
    }


async def measure(commands: dict[str, list[str | Path]], rounds: int, count: int) -> None:
    """Measure round by round and print."""
    figures: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            taken = await samples(command, count)
            figures[name].append(1 / statistics.mean(taken))
    click.echo(report.rates("tools/call in memory, one after the other", figures, "calls/s"))
    click.echo(microseconds(figures))


def microseconds(figures: dict[str, list[float]]) -> str:
    """The same as time for one call."""

    def middle(rounds: Sequence[float]) -> float:
        return 1e6 / statistics.median(rounds)

    return "".join(f"- {name}: {middle(rounds):.0f} µs\n" for name, rounds in figures.items())


@click.command()
@click.option("--quick", is_flag=True, help="One short round: does it run at all?")
def command(*, quick: bool) -> None:
    """Measure tools/call in memory."""
    click.echo(report.machine())
    commands = contenders(peer_python(), "call")
    trio.run(measure, commands, *((1, 300) if quick else (5, 4000)))


if __name__ == "__main__":
    command()
