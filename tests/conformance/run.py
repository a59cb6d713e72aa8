"""Run the official conformance suite against the fixture server and judge it.

Installs the suite at the version that `suite/package-lock.json` pins; `benchmarks/node.py` says
what that needs. What counts as good is written in `baseline.toml` and decided in `judge.py`;
nothing here forgives.
"""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path

import click
import trio

from benchmarks.node import NodePackages, install
from benchmarks.processes import ProgramError, output_of, serving
from tests.conformance import everything_server
from tests.conformance.judge import Report, judge, read_baseline, read_listing, read_results

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


async def run() -> int:
    """Run every revision; the number of problems."""
    suite = await install(HERE / "suite")
    reports = [await check(suite, revision) for revision in REVISIONS]
    for report in reports:
        tell(report)
    failed = sum(len(report.problems) for report in reports)
    click.echo(f"{sum(report.passed for report in reports)} passed, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(min(trio.run(run), 1))
