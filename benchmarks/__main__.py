"""`python -m benchmarks [NAMES]`: runs benchmarks, one after the other, and tells what they found.

Each is a module beside this one, whose first line is its question and whose `measure` gives its
findings. Nothing is measured here.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import click
import trio

from benchmarks import page, report
from benchmarks.findings import Finding, Growth, Outcome
from benchmarks.processes import ROOT, ProgramError

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
INTERRUPTED = 128 + signal.SIGINT
"""Status of a run that was interrupted, as shells have it."""


def run(name: str, *, quick: bool) -> Outcome:
    """Run one benchmark; one that does not come to its end tells why.

    Raises:
        KeyboardInterrupt: it was interrupted, and has ended the programs that it had started.
    """
    module = importlib.import_module(f"benchmarks.{name}")
    measure: Callable[[bool], Awaitable[list[Finding]]] = module.measure
    question = str(module.__doc__).partition("\n")[0]
    began = time.monotonic()
    findings: list[Finding] = []
    failure: str | None = None
    try:
        findings = trio.run(measure, quick)
        if quick:
            # A power out of so few samples says nothing.
            findings = [
                attrs.evolve(each, most={}) if isinstance(each, Growth) else each
                for each in findings
            ]
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is not None:
            raise KeyboardInterrupt from None
        failure = _told(group)
    except Exception as error:  # noqa: BLE001 - whatever it is, the others are measured
        failure = _told(error)
    seconds = time.monotonic() - began
    return Outcome(
        name=name, question=question, findings=findings, seconds=seconds, failure=failure
    )


def _told(error: BaseException) -> str:
    """An error in one line; what is no fault of a program is shown as a whole beside it."""
    if isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        return _told(error.exceptions[0])
    if isinstance(error, ProgramError):
        return error.reason
    if not isinstance(error, subprocess.CalledProcessError):
        traceback.print_exception(error)
    return f"{type(error).__name__}: {error}"


def measure_checkout() -> None:
    """Have programs that are started from now on import this checkout, whatever is installed."""
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *([others] if others else [])])


def _room(place: Path, *, folder: bool = False) -> None:
    """See that there is room for a file or folder, before the time for what goes there is spent."""
    try:
        (place if folder else place.parent).mkdir(parents=True, exist_ok=True)
        if folder:
            tempfile.TemporaryFile(dir=place).close()
        else:
            place.open("a").close()
    except OSError as error:
        raise click.ClickException(f"{place} cannot be written: {error.strerror}") from None


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES), metavar="[NAMES]...")
@click.option(
    "--quick", is_flag=True, help="Few and small samples: does it run at all? Growth is not judged."
)
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

    Ctrl-C ends the run; what was measured until then is written. Run it in the folder of the
    checkout. The first run installs whom mcp_trio is compared with.

    Names: import_time, codec, converter, schema, tools_call_memory, tools_call_http,
    tools_call_stdio, client_http, cancel_latency, cancel_client, cancel_waste, cancel_storm,
    timeout_storm, session_memory, session_churn, listen_fanout, catalog_refresh, catalog_list.
    """
    if html_file is not None or png_folder is not None:
        page.need_pictures()
    for file in (json_file, html_file):
        if file is not None:
            _room(file)
    if png_folder is not None:
        _room(png_folder, folder=True)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Nobody else would end the programs that a benchmark has started.
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    measure_checkout()
    machine = report.machine()
    click.echo(f"{machine}{', quick' if quick else ''}\n")
    outcomes: list[Outcome] = []
    chosen, interrupted = names or NAMES, False
    try:
        for place, name in enumerate(chosen, 1):
            click.echo(f"({place} of {len(chosen)}: {name})", err=True)
            outcomes.append(run(name, quick=quick))
            click.echo(report.text_of(outcomes[-1]))
    except KeyboardInterrupt:
        interrupted = True
        click.echo(f"interrupted; {len(outcomes)} of {len(chosen)} were measured", err=True)
    if json_file is not None:
        told = {"machine": machine, "quick": quick, "outcomes": [o.as_json() for o in outcomes]}
        json_file.write_text(json.dumps(told, indent=1) + "\n")
    if html_file is not None:
        html_file.write_text(page.html_of(outcomes, machine, quick=quick))
    if png_folder is not None:
        page.write_pictures(outcomes, machine, png_folder, quick=quick)
    sys.exit(INTERRUPTED if interrupted else any(outcome.faults for outcome in outcomes))


if __name__ == "__main__":
    command()
