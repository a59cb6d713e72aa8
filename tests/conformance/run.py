"""Run the official conformance suite against the fixture server and judge it.

Installs the suite at the version that `suite/package-lock.json` pins; `benchmarks/node.py` says
what that needs. What counts as good is written in `baseline.toml` and decided in `judge.py`;
nothing here forgives.

The suite holds our messages against the schemas of two revisions only. That every message in
all five is what its official schema says is checked here too, as `tests/scenarios` does it.
"""

from __future__ import annotations

import logging
import shutil
import sys
import tomllib
from pathlib import Path

import click
import trio
import trio.testing

from benchmarks.node import NodePackages, install
from benchmarks.processes import ProgramError, output_of, serving
from mcp_trio.wire import REVISIONS as ALL_REVISIONS
from tests.conformance import everything_server
from tests.conformance.judge import Report, judge, read_baseline, read_listing, read_results
from tests.scenarios.everything import play
from tests.scenarios.quarrels import TRANSPORTS, quarrel
from tests.scenarios.worlds import TAPPED
from tests.wire.official import Conversation

HERE = Path(__file__).resolve().parent
SUITE = "node_modules/@modelcontextprotocol/conformance/dist/index.js"
REVISIONS = ("2025-11-25", "2026-07-28")
RUN_TIMEOUT = 600.0
"""Seconds for one revision. The suite itself gives each scenario 30."""


async def run_suite(suite: NodePackages, url: str, revision: str) -> Path:
    """Run all server scenarios of a revision and return the folder of results."""
    results = suite.home / "results" / revision
    shutil.rmtree(results, ignore_errors=True)
    chosen = ["--requirements", revision, "--output-dir", str(results)]
    command = [*suite.command(SUITE), "server", "--url", url, *chosen]
    with trio.fail_after(RUN_TIMEOUT):
        # The exit status says whether a scored scenario failed, which today some must.
        await trio.run_process(command, stdin=b"", capture_stdout=True, check=False)
    return results


async def check(suite: NodePackages, revision: str) -> Report:
    """Run and judge one revision with a server of its own."""
    server = [sys.executable, HERE / "everything_server.py", "--port", "0"]
    async with serving(server) as program:
        results = await run_suite(suite, program.url, revision)
        if not program.alive:
            raise ProgramError(f"the fixture server died: {' / '.join(program.said)}")
    chosen = ["list", "--server", "--requirements", revision]
    listing = await output_of([*suite.command(SUITE), *chosen], within=60, what="list")
    baseline = tomllib.loads((HERE / "baseline.toml").read_text())
    return judge(
        revision,
        read_baseline(baseline, revision),
        listed=read_listing(listing),
        outcomes=read_results(results),
        tools=everything_server.server.listing.entries,
    )


def tell(report: Report) -> None:
    """Print one revision's report."""
    click.echo(
        f"{report.revision}: {report.green} scenarios green with {report.passed} checks, "
        f"{len(report.expected)} explained by the baseline, {len(report.problems)} problems"
    )
    for name, reason in sorted(report.expected.items(), key=lambda item: (item[1], item[0])):
        click.echo(f"  not counted  {name}  ({reason})")
    for problem in report.problems:
        click.echo(f"  PROBLEM  {problem}")


def conversations() -> dict[str, list[Conversation]]:
    """Everything our two sides can say, and all answers to what is wrong, by revision."""
    logging.disable(logging.ERROR)  # what fails in there fails on purpose
    talks = [(play, transport) for transport in TAPPED]
    talks += [(quarrel, transport) for transport in TRANSPORTS]
    return {
        str(revision): [
            trio.run(
                talk,
                revision,
                transport,
                clock=trio.testing.MockClock(autojump_threshold=0),
            )
            for talk, transport in talks
        ]
        for revision in ALL_REVISIONS
    }


def tell_messages(revision: str, talks: list[Conversation]) -> int:
    """Print what is wrong with the messages of one revision; the number of bad conversations.

    As with the suite's own check of shapes, a conversation counts once, not each message.
    """
    click.echo(
        f"{revision}: {sum(talk.judged for talk in talks)} messages in {len(talks)} conversations, "
        f"{sum(talk.wrong for talk in talks)} not as the official schema says"
    )
    for talk in talks:
        for fault in talk.faults:
            click.echo(f"  PROBLEM  {fault}")
    return sum(bool(talk.faults) for talk in talks)


async def run(heard: dict[str, list[Conversation]]) -> int:
    """Run every revision of the suite and count its checks with ours; the number of problems."""
    suite = await install(HERE / "suite")
    reports = [await check(suite, revision) for revision in REVISIONS]
    for report in reports:
        tell(report)
    bad = sum([tell_messages(revision, talks) for revision, talks in heard.items()])
    passed = sum(report.passed for report in reports) + sum(map(len, heard.values())) - bad
    failed = sum(len(report.problems) for report in reports) + bad
    click.echo(f"{passed} passed, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(min(trio.run(run, conversations()), 1))
