"""What the interop tests share: other people's programs, and one session of an official client."""

import contextlib
import functools
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio

from benchmarks.node import install
from benchmarks.peers import peer_python
from benchmarks.processes import serving

HERE = Path(__file__).resolve().parent
SERVER = HERE / "our_server.py"
DEADLINE = 60.0
"""Seconds for one session and what is looked at while it is open."""


def pytest_configure(config):
    config.addinivalue_line("markers", "interop: runs other people's programs against ours")


@pytest.fixture(scope="session")
def peer():
    """The interpreter that other people's packages live in; made on first use."""
    return peer_python()


@pytest.fixture(scope="session")
def node():
    """The Node packages of other people; installed on first use."""
    return trio.run(install, HERE / "node")


@pytest.fixture(scope="session")
def servers():
    """The servers from npm; installed on first use."""
    return trio.run(install, HERE / "servers")


@pytest.fixture(scope="session")
def running():
    """Start a program that serves at a URL, unless it runs already, and give the URL.

    It serves until the end of all tests; those who share it must not be in each other's way.
    """
    programs = {}

    def url_of(command, key):
        if key not in programs:
            started = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            line = next(line for line in started.stderr if b"://" in line)
            # What it says later is read, too, so that it never waits for a reader.
            reader = threading.Thread(target=started.stderr.read)
            reader.start()
            programs[key] = (line.decode().strip(), started, reader)
        return programs[key][0]

    yield url_of
    for _, started, reader in programs.values():
        started.kill()
        started.wait()
        reader.join()
        started.stderr.close()


@pytest.fixture
def session(peer):
    """Run one session of the official Python client; inside the block it is over but open."""
    return functools.partial(run_session, [peer, HERE / "peer_client.py"])


@pytest.fixture(scope="session")
def drivers(peer, node):
    """How to run a session of each official client."""
    return {
        "python": [peer, HERE / "peer_client.py"],
        "typescript": node.command("client.mjs"),
    }


@contextlib.asynccontextmanager
async def reachable(transport):
    """What a client needs to know to reach our server over a transport."""
    if transport == "stdio":
        yield {"command": [sys.executable, str(SERVER), "stdio"]}
    else:
        async with serving([sys.executable, SERVER, "http"]) as program:
            yield {"url": program.url}


@contextlib.asynccontextmanager
async def run_session(driver, **task):
    """Run one session of an official client and give what it reports.

    Inside the block the client is done but the session is still open.
    """
    command = [*map(str, driver), json.dumps(task)]
    async with trio.open_nursery() as nursery:
        start = functools.partial(
            trio.run_process, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        process = await nursery.start(start)
        with trio.fail_after(DEADLINE):
            said = b""
            async for chunk in process.stdout:
                said += chunk
                if said.endswith(b"\n"):
                    break
            yield json.loads(said)
            await process.stdin.aclose()
            await process.wait()
