"""The files in `examples/deploy` are sound, hardened, and agree with each other and the service."""

import os
import re
import shutil
import subprocess
import sys

import pytest
import trio
import yaml

from mcp_trio.config import check_settings, draft_file
from mcp_trio.http.admin import AdminApp
from mcp_trio.http.options import HTTPOptions
from mcp_trio.http.serving import HTTPService
from tests.programs import ROOT

DEPLOY = ROOT / "examples" / "deploy"
UNITS = ("mcp-trio.service", "mcp-trio.socket")
LOGS = 5
"""Seconds that the logs may take at the end."""


def unit():
    text = (DEPLOY / "mcp-trio.service").read_text()
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


def container():
    """The instructions of the last stage, as (name, rest)."""
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and line[0] != "#"]
    found = [(line.split()[0], line.partition(" ")[2].strip()) for line in lines]
    last = max(place for place, (name, _) in enumerate(found) if name == "FROM")
    return found[last:], found


def settings():
    checked = check_settings(draft_file(DEPLOY / "service.toml"), {}, offline=True)
    assert checked.findings == ()
    return checked.settings


def stopping():
    """Seconds that the service may take to end."""
    section = settings().server
    return section.drain_delay + section.grace_period + LOGS


def analyze(*arguments):
    """What systemd says; a skip where it is not installed, unless CI demands it."""
    tool = shutil.which("systemd-analyze")
    if tool is None:
        missing = "systemd-analyze is missing: install systemd (apt-get install systemd)"
        assert not os.environ.get("MCP_TRIO_TEST_SYSTEMD"), missing
        pytest.skip(missing)
    done = subprocess.run(
        [tool, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_systemd_understands_every_line_of_the_units(tmp_path):
    for name in UNITS:
        text = (DEPLOY / name).read_text().replace("/opt/mcp-trio/bin/mcp-trio", sys.executable)
        (tmp_path / name).write_text(text)
    assert analyze("verify", "--man=no", *(str(tmp_path / name) for name in UNITS)) == (0, "")


def test_the_service_is_exposed_as_little_as_systemd_can_tell():
    code, told = analyze("security", "--offline=true", "--threshold=15", DEPLOY / UNITS[0])
    assert code == 0, told[-200:]


def test_the_unit_gives_the_service_the_time_it_needs_and_the_signals_it_knows():
    found = unit()
    assert int(found["TimeoutStopSec"]) > stopping()
    assert found["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert "KillSignal" not in found  # SIGTERM


def test_the_last_stage_of_the_container_is_nobody_in_particular_and_needs_no_shell():
    stage, every = container()
    names = [name for name, _ in stage]
    assert [rest for name, rest in stage if name == "USER"] == ["10001:10001"]
    # Nothing is run as root once the user is set, and what is run then needs no shell.
    assert "RUN" not in names[names.index("USER") :]
    for name, rest in stage:
        if name in {"ENTRYPOINT", "CMD"}:
            assert rest.startswith("[")
        if name == "HEALTHCHECK":
            assert " CMD [" in rest
    for name, rest in every:
        if name == "COPY" and not rest.startswith("--from"):
            assert all((ROOT / source).exists() for source in rest.split()[:-1]), rest


async def test_the_health_check_of_the_container_asks_the_admin_listener():
    stage, _ = container()
    (check,) = [rest for name, rest in stage if name == "HEALTHCHECK"]
    _, flag, program = yaml.safe_load(check.partition(" CMD ")[2])
    assert str(settings().admin.port) in program

    async def healthy(port):
        asked = program.replace("8001", str(port))
        run = trio.run_process
        done = await run([sys.executable, flag, asked], check=False, capture_stderr=True)
        return done.returncode == 0

    app = AdminApp({}, policy=HTTPOptions().gate("127.0.0.1"), ready=lambda: True)
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(HTTPService(app).run, "127.0.0.1", 0)
        port = int(url.rpartition(":")[2])
        assert await healthy(port)
        nursery.cancel_scope.cancel()
    assert not await healthy(port)


def test_the_composition_takes_away_what_the_service_does_not_need():
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["mcp-trio"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert int(service["stop_grace_period"].removesuffix("s")) > stopping()
    build = service["build"]
    assert (DEPLOY / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()
    files = [volume.split(":")[0] for volume in service["volumes"] if volume.startswith("./")]
    assert files == ["./service.toml"]


def test_logs_are_rotated_where_the_unit_puts_them_and_by_the_signal_that_opens_them():
    text = (DEPLOY / "logrotate.conf").read_text()
    assert f"/var/log/{unit()['LogsDirectory']}/*.log {{" in text
    assert "--signal=HUP mcp-trio.service" in text
    assert text.count("{") == text.count("}") == 1
