"""Run the official conformance suite against both our sides and judge it.

Installs the suite at the version that `suite/package-lock.json` pins; `benchmarks/node.py` says
what that needs. The server is `everything_server.py`, the client `client.py`. What counts as good
is written in `baseline.toml` and decided in `judge.py`; nothing here forgives.

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
from tests.conformance.judge import (
    Outcome,
    Report,
    judge,
    read_baseline,
    read_listing,
    read_results,
)
from tests.scenarios.everything import play
from tests.scenarios.quarrels import TRANSPORTS, quarrel
from tests.scenarios.worlds import TAPPED
from tests.wire.official import Conversation

HERE = Path(__file__).resolve().parent
SUITE = "node_modules/@modelcontextprotocol/conformance/dist/index.js"
REVISIONS = ("2025-11-25", "2026-07-28")
ELSEWHERE = "elsewhere"
"""Stands for a revision: the client scenarios that are in no requirements."""
RUN_TIMEOUT = 600.0
"""Seconds for one run of the suite. The suite itself gives each server scenario 30."""
CLIENT_TIMEOUT = 120.0
"""Seconds for each client; some forty of them start at once, and the slowest is no fault."""


class Suite:
    """The installed suite."""

    def __init__(self, packages: NodePackages) -> None:
        self._packages = packages
        self._command = packages.command(SUITE)
        self._baseline = tomllib.loads((HERE / "baseline.toml").read_text())

    async def listed(self, side: str, *chosen: str) -> list[str]:
        """The scenarios of a side that the suite would run."""
        command = [*self._command, "list", f"--{side}", *chosen]
        return read_listing(await output_of(command, within=60, what="list"), side)

    async def play(
        self, side: str, revision: str, target: list[str], chosen: list[list[str]]
    ) -> dict[str, Outcome]:
        """Run one side as often as there are choices of scenarios, and read what came out."""
        results = self._packages.home / "results" / side / revision
        shutil.rmtree(results, ignore_errors=True)
        with trio.fail_after(RUN_TIMEOUT):
            for part in chosen:
                command = [*self._command, side, *target, *part, "--output-dir", str(results)]
                # The exit status says whether a scored scenario failed, which today some must.
                # What it says stands in the results, too.
                await trio.run_process(
                    command, stdin=b"", capture_stdout=True, capture_stderr=True, check=False
                )
        return read_results(results, side)

    def judge(
        self, side: str, revision: str, names: list[str], outcomes: dict[str, Outcome]
    ) -> Report:
        """Compare with the baseline."""
        tools = everything_server.server.listing.entries if side == "server" else ()
        baseline = read_baseline(self._baseline, side, revision)
        run = f"{side} {revision}"
        return judge(run, baseline, listed=names, outcomes=outcomes, tools=tools)


async def check_server(suite: Suite, revision: str) -> Report:
    """Run and judge a server of its own in one revision."""
    server = [sys.executable, HERE / "everything_server.py", "--port", "0"]
    chosen = ["--requirements", revision]
    async with serving(server) as program:
        outcomes = await suite.play("server", revision, ["--url", program.url], [chosen])
        if not program.alive:
            raise ProgramError(f"the fixture server died: {' / '.join(program.said)}")
    return suite.judge("server", revision, await suite.listed("server", *chosen), outcomes)


async def check_client(suite: Suite, revision: str) -> Report:
    """Run and judge the client in one revision, or in what no revision's requirements have."""
    # The suite takes the command apart at spaces.
    command = f"{sys.executable} {HERE / 'client.py'}"
    target = ["--command", command, "--timeout", str(round(CLIENT_TIMEOUT * 1000))]
    if revision == ELSEWHERE:
        names = await suite.listed("client")
        for required in REVISIONS:
            known = await suite.listed("client", "--requirements", required)
            names = [name for name in names if name not in known]
        chosen = [["--scenario", name] for name in names]
    else:
        chosen = [["--requirements", revision]]
        names = await suite.listed("client", *chosen[0])
    return suite.judge(
        "client", revision, names, await suite.play("client", revision, target, chosen)
    )


def tell(report: Report) -> None:
    """Print one run's report."""
    click.echo(
        f"{report.run}: {report.green} scenarios green with {report.passed} checks, "
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
    suite = Suite(await install(HERE / "suite"))
    reports = [await check_server(suite, revision) for revision in REVISIONS]
    reports += [await check_client(suite, revision) for revision in (*REVISIONS, ELSEWHERE)]
    for report in reports:
        tell(report)
    bad = sum([tell_messages(revision, talks) for revision, talks in heard.items()])
    passed = sum(report.passed for report in reports) + sum(map(len, heard.values())) - bad
    failed = sum(len(report.problems) for report in reports) + bad
    click.echo(f"{passed} passed, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(min(trio.run(run, conversations()), 1))
