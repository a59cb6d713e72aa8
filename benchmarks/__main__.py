"""`python -m benchmarks [NAMES]`: runs benchmarks, one after the other, and tells what they found.

Each is a module beside this one, whose first line is its question and whose `measure` gives its
findings. Nothing is measured here.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import click
import trio

from benchmarks import page, report
from benchmarks.findings import Finding, Outcome

NAMES = (
    "import_time",
    "codec",
    "converter",
    "schema",
    "tools_call_memory",
    "tools_call_http",
    "tools_call_stdio",
    "client_http",
    "cancel_latency",
    "cancel_client",
    "cancel_waste",
    "cancel_storm",
    "timeout_storm",
    "session_memory",
    "session_churn",
    "listen_fanout",
    "catalog_refresh",
    "catalog_list",
)
"""In the order in which they are run."""


def run(name: str, *, quick: bool) -> Outcome:
    """Run one benchmark.

    Raises:
        ProgramError: a program that belongs to it did not run.
    """
    module = importlib.import_module(f"benchmarks.{name}")
    measure: Callable[[bool], Awaitable[list[Finding]]] = module.measure
    question = str(module.__doc__).partition("\n")[0]
    began = time.monotonic()
    findings = trio.run(measure, quick)
    seconds = time.monotonic() - began
    return Outcome(name=name, question=question, findings=findings, seconds=seconds)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES), metavar="[NAMES]...")
@click.option("--quick", is_flag=True, help="Few and small samples: does it run at all?")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="All numbers.")
@click.option("--html", "html_file", type=click.Path(path_type=Path), help="A page of pictures.")
@click.option("--png", "png_folder", type=click.Path(path_type=Path), help="The pictures alone.")
def command(
    names: tuple[str, ...],
    *,
    quick: bool,
    json_file: Path | None,
    html_file: Path | None,
    png_folder: Path | None,
) -> None:
    """Run benchmarks, all of them if none is named; exits with 1 if anybody failed.

    Names: import_time, codec, converter, schema, tools_call_memory, tools_call_http,
    tools_call_stdio, client_http, cancel_latency, cancel_client, cancel_waste, cancel_storm,
    timeout_storm, session_memory, session_churn, listen_fanout, catalog_refresh, catalog_list.
    """
    if html_file is not None or png_folder is not None:
        page.need_pictures()
    machine = report.machine()
    click.echo(f"{machine}{', quick' if quick else ''}\n")
    outcomes: list[Outcome] = []
    for name in names or NAMES:
        outcomes.append(run(name, quick=quick))
        click.echo(report.text_of(outcomes[-1]))
    if json_file is not None:
        told = {"machine": machine, "quick": quick, "outcomes": [o.as_json() for o in outcomes]}
        json_file.write_text(json.dumps(told, indent=1) + "\n")
    if html_file is not None:
        html_file.write_text(page.html_of(outcomes, machine, quick=quick))
    if png_folder is not None:
        page.write_pictures(outcomes, png_folder)
    sys.exit(any(outcome.faults for outcome in outcomes))


if __name__ == "__main__":
    command()
