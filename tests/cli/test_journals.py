"""What a service writes down: where its settings say, without secrets, also after a rename."""

import json
import logging
import signal

import pytest
import structlog
import trio

from mcp_trio import MCPClient
from mcp_trio.cli.journals import Journals
from mcp_trio.config import parse_settings
from mcp_trio.errors import ConfigurationError
from tests.cli.test_serve import PATIENCE, Service


@pytest.fixture
def root_logger():
    """What a process logs is a matter of all tests."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield root
    root.handlers[:], root.level = before
    structlog.reset_defaults()


SETTINGS = """
[server]
port = 0
[catalog]
registry = "registry.sqlite"
[logging]
file = "service.log"
[access_log]
file = "access.log"
[audit]
file = "audit.log"
required = true
[connections.up]
base_url = "http://127.0.0.1:9"
auth = { kind = "bearer", secret_env = "UP_TOKEN" }
"""


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


async def settled(condition):
    for _ in range(100 * PATIENCE):
        if condition():
            return
        await trio.sleep(0.01)
    raise AssertionError("it never came")


async def test_logs_are_files_that_a_hangup_opens_anew_and_a_drain_completes(tmp_path):
    (tmp_path / "config.toml").write_text(SETTINGS)
    service = Service(tmp_path / "config.toml", env={"UP_TOKEN": "canary-token"})
    try:
        async with MCPClient(service.url) as client:
            await client.list_tools()
            await settled(lambda: "tools/list" in (tmp_path / "access.log").read_text())
            for name in ("service", "access", "audit"):
                (tmp_path / f"{name}.log").rename(tmp_path / f"{name}.log.1")
            service.process.send_signal(signal.SIGHUP)
            await settled((tmp_path / "audit.log").exists)
            with pytest.raises(Exception, match="Unknown tool"):
                await client.call_tool("nothing")
        assert await trio.to_thread.run_sync(service.stop) == 0
    finally:
        service.close()
    assert {line["call"] for line in lines(tmp_path / "access.log.1")} >= {"tools/list"}
    (access,) = [line for line in lines(tmp_path / "access.log") if line["call"] == "tools/call"]
    assert (access["client"], access["path"], access["era"]) == ("127.0.0.1", "/mcp", "stateless")
    told = lines(tmp_path / "audit.log")
    assert [(line["event"], line["tool"]) for line in told] == [
        ("tool.begin", "nothing"),
        ("tool.end", "nothing"),
    ]
    assert lines(tmp_path / "service.log")[-1]["event"] == "drained"
    everything = "".join(path.read_text() for path in tmp_path.glob("*.log*"))
    assert "canary" not in everything


def settings(**sections):
    return parse_settings({"catalog": {"registry": "r.sqlite"}, **sections})


@pytest.mark.parametrize("table", ["logging", "access_log", "audit"])
def test_a_file_that_cannot_be_written_is_told_before_anything_starts(tmp_path, table):
    with pytest.raises(ConfigurationError, match=r"cannot write .*none/log: No such file"):
        Journals.open(settings(**{table: {"file": "none/log"}}), tmp_path)


def test_a_key_of_digests_that_is_none_is_told(tmp_path):
    with pytest.raises(ConfigurationError, match=r"audit\.key"):
        Journals.open(settings(audit={"file": "stderr", "key": "env:NOT_THERE"}), tmp_path)


def test_logs_of_one_place_share_its_writer_so_that_lines_do_not_mix(tmp_path, root_logger):
    one = {"file": "all.log"}
    journals = Journals.open(settings(logging=one, access_log=one, audit=one), tmp_path)
    assert len(journals.writers) == 1
    apart = Journals.open(settings(logging=one, access_log={}, audit=one), tmp_path)
    assert len(apart.writers) == 2
    for writer in (*journals.writers, *apart.writers):
        writer.close()
