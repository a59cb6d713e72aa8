"""What is attacked: a process of `mcp-trio serve`, and the means to see that nothing stays.

A `Target` is the command with a catalog, an admin listener and short times, so that attacks on its
patience end soon. `footprint` says what the process holds; after each attack it has to come back to
what it held before, and serve whoever is no attacker.

Sizes are quick ones unless `MCP_TRIO_TEST_SIZE` is `full`.
"""

import contextlib
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import attrs
import pytest
import trio

from mcp_trio.wire import REVISIONS
from tests.cli.test_serve import PATIENCE, Service

FULL = os.environ.get("MCP_TRIO_TEST_SIZE") == "full"
STATELESS, HANDSHAKE = REVISIONS[0].date, REVISIONS[1].date
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
}
UPSTREAM = Path(__file__).with_name("upstream.py")
MEGABYTE = 1024 * 1024


def size(quick, full):
    """How many of them this run has."""
    return full if FULL else quick


def operation(name, path="/", method="GET", **changes):
    """A view of an operation that asks the upstream; the arguments go where they go by name."""
    return {
        "operation_id": name,
        "name": name,
        "protocol": "rest",
        "target": {"connection": "up", "method": method, "path": path},
        "input_schema": {"type": "object"},
        "output_schema": None,
        "input_mapping": {},
        "output_mapping": {},
        "execution_config": {},
        "tool_description": name,
        **changes,
    }


HELLO = operation(
    "hello",
    protocol="static",
    target={},
    output_mapping={"result": {"said": "hello"}},
)
OPERATIONS = [
    HELLO,
    operation("slow", "/slow"),
    operation("bulk", "/bulk"),
    operation("half", "/half"),
    operation("junk", "/junk"),
    operation(
        "place",
        "/things/{name}/end",
        input_schema={
            "type": "object",
            "properties": {key: {"type": "string"} for key in ("name", "q", "note", "cookie")},
        },
        input_mapping={
            "path": {"name": "=args.name"},
            "query": {"q": {"expr": "args.q", "default": None}},
            "headers": {"x-note": {"expr": "args.note", "default": None}},
            "cookies": {"c": {"expr": "args.cookie", "default": None}},
        },
    ),
    operation("keep", "/keep", "POST", input_mapping={"body": "=args"}),
]


HEADER_TIMEOUT = size(2.0, 20.0)
"""Seconds for a head. Thousands have to be there at once before the first one is given up."""
TIMES = f"""
header_timeout = {HEADER_TIMEOUT}
body_timeout = 2.0
write_timeout = 2.0
"""


def document(*views):
    """The registry as a document."""
    return json.dumps({"format": "mcp-operations/1", "operations": views})


SETTINGS = """
[server]
port = 0
name = "target"
request_timeout = 20.0
max_connections = 12000
max_sessions = 60000
max_in_flight = 2000
{times}
listener_patience = 2.0
{server}
[limits]
max_connections_per_address = 12000
max_in_flight_per_caller = 2000
max_listeners_per_caller = 10000
{limits}
[catalog]
registry = "{registry}"
interval = 0.2
{catalog}
[admin]
port = 0
[connections.up]
base_url = "{upstream}"
{more}
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


class Upstream:
    """The program of `upstream.py`, to be started, killed and started again."""

    def __init__(self, registry, journal=None):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.killed = set()
        """The numbers of the processes that were killed."""
        self._files = [str(registry)] if journal is None else [str(registry), str(journal)]
        self._process = None

    def start(self):
        arguments = [sys.executable, str(UPSTREAM), str(self.port), *self._files]
        self._process = subprocess.Popen(arguments)
        until = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            assert time.monotonic() < until, "the upstream does not start"
            assert self._process.poll() is None, "the upstream has ended"
            time.sleep(0.05)

    def kill(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self.killed.add(self._process.pid)
            self._process = None

    def counts(self):
        with urllib.request.urlopen(f"{self.url}/counts", timeout=PATIENCE) as response:
            return json.load(response)


@attrs.frozen
class Footprint:
    """What a process holds."""

    files: int
    """Open descriptors."""
    tasks: int
    sessions: int
    memory: int
    """Resident, in bytes."""

    def within(self, other, megabytes):
        """Whether this is no more than another, but for so much memory."""
        return (
            self.files <= other.files
            and self.tasks <= other.tasks
            and self.sessions <= other.sessions
            and self.memory < other.memory + megabytes * MEGABYTE
        )


class Target(Service):
    """`mcp-trio serve` with an admin listener, in a process of its own."""

    def __init__(self, folder, *, upstream="http://127.0.0.1:9", registry=None, **parts):
        self.registry_file = folder / "operations.json"
        if not self.registry_file.exists():
            self.registry_file.write_text(document(*OPERATIONS))
        texts = {
            "times": TIMES,
            "server": "",
            "limits": "keep_alive_timeout = 5.0",
            "catalog": "",
            "more": "",
            **parts,
        }
        registry = "operations.json" if registry is None else registry
        settings = folder / "service.toml"
        settings.write_text(SETTINGS.format(registry=registry, upstream=upstream, **texts))
        super().__init__(str(settings))
        self.admin = re.search(r"admin on (\S+?);", self.opening)[1]
        self.port = urlsplit(self.url).port
        """None for a Unix socket."""
        self.until_log("operations at")
        assert self.catalog()["quarantined"] == 0
        several = self.page("/workers")["workers"] if "workers" in texts["server"] else []
        self._processes = [self.process.pid, *(worker["pid"] for worker in several)]

    def page(self, path):
        """A page of the admin listener."""
        with urllib.request.urlopen(self.admin + path, timeout=PATIENCE) as response:
            return json.load(response)

    def metrics(self):
        """The metrics, as text."""
        with urllib.request.urlopen(self.admin + "/metrics", timeout=PATIENCE) as response:
            return response.read().decode()

    def catalog(self):
        """How many operations are `published`, `served` and `quarantined`."""
        return self.page("/catalog")["counts"]

    async def until_catalog(self, what, count):
        """Wait until so many operations are."""
        await until(lambda: self.catalog()[what] == count)

    def publish(self, *views):
        """Write the registry."""
        new = self.registry_file.with_suffix(".new")
        new.write_text(views[0] if isinstance(views[0], str) else document(*views))
        new.replace(self.registry_file)

    def footprint(self):
        folders = [Path(f"/proc/{pid}") for pid in self._processes]
        status = [(folder / "status").read_text() for folder in folders]
        return Footprint(
            files=sum(len(os.listdir(folder / "fd")) for folder in folders),  # noqa: PTH208 - fast
            tasks=self.page("/tasks")["tasks"],
            sessions=self.page("/sessions")["count"],
            memory=sum(1024 * int(re.search(r"VmRSS:\s+(\d+)", text)[1]) for text in status),
        )

    def faults(self):
        """Lines of the log that tell of a fault of ours."""
        return [line for line in self.lines if "Traceback" in line or '"level": "error"' in line]


async def back_to_baseline(target, before, *, megabytes=24, within=PATIENCE):
    """Wait until a process holds no more than before, but for memory that Python keeps to itself.

    The service gives free memory back every few seconds.

    Returns:
        What it holds then.
    """
    now = before
    with trio.move_on_after(within):
        while True:
            now = await trio.to_thread.run_sync(target.footprint)
            if now.within(before, megabytes):
                break
            await trio.sleep(0.1)
    assert now.within(before, megabytes), f"before: {before}, now: {now}"
    return now


async def until(holds, within=30):
    """Wait for something that another process does; `holds` may block."""
    with trio.fail_after(within):
        while not await trio.to_thread.run_sync(holds):  # noqa: ASYNC110 - of another process
            await trio.sleep(0.05)


def descriptors(count):
    """Raise the limit of this process, and of those it starts; skip the test where it cannot be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard < count:
            pytest.skip(f"{count} descriptors are needed, {hard} are allowed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def program(name):
    """The path of an attacker from apt; skips where it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed; `.ci/run` installs it where apt can")
    return found
