"""`mcp-trio check`: settings of a service, or operations, before anybody runs them.

Settings are judged by what `serve` judges them by. Operations are the matter of `author`, which
is loaded when it is wanted: an operator needs none of the authors' libraries.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from mcp_trio.cli.extras import missing_extra
from mcp_trio.cli.judging import config_option, count, json_option, secret_option, told
from mcp_trio.config import Fault, SettingsError, check_settings, draft_file
from mcp_trio.wire import JSONObject


@click.command()
@click.argument("target")
@config_option
@secret_option
@json_option
@click.option("--strict", is_flag=True, help="Let warnings fail, too.")
@click.option("--offline", is_flag=True, help="Do not ask the registry that settings name.")
def check(
    target: str,
    config: Path | None,
    secret_env: str | None,
    as_json: bool,
    strict: bool,
    offline: bool,
) -> None:
    """Find every fault of settings or of operations, with its place and what to do.

    TARGET is a TOML file with the settings of `mcp-trio serve`; or operations: a JSON or YAML
    file, a folder of them, or a registry.
    """
    if target.endswith(".toml") and "://" not in target:
        if config is not None or secret_env is not None:
            raise click.UsageError("--config and --secret-env go with operations")
        _check_file(Path(target), as_json=as_json, strict=strict, offline=offline)
    if offline:
        raise click.UsageError("--offline goes with settings")
    try:
        from mcp_trio.cli import author  # noqa: PLC0415  # needs an extra
    except ModuleNotFoundError as error:
        raise missing_extra("check", error) from error
    author.check_operations(target, config, secret_env, as_json=as_json, strict=strict)


def _check_file(path: Path, *, as_json: bool, strict: bool, offline: bool) -> NoReturn:
    findings: tuple[Fault, ...]
    try:
        findings = check_settings(draft_file(path), os.environ, offline=offline).findings
    except SettingsError as error:
        findings = error.faults
    faults = sum(each.severity == "fault" for each in findings)
    warnings = len(findings) - faults
    value: JSONObject = {
        "settings": str(path),
        "faults": faults,
        "warnings": warnings,
        "findings": [each.as_json() for each in findings],
    }
    lines = [each.as_text() for each in findings]
    lines.append(f"{path}: {count(faults, 'fault')}, {count(warnings, 'warning')}")
    told(value, "\n".join(lines), as_json=as_json)
    sys.exit(1 if faults or (strict and warnings) else 0)


COMMANDS = {"check": check}
"""By name."""
