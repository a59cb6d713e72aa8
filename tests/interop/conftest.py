"""What the interop tests share: the peers' environment, and one session of the official client."""

import contextlib
import functools
import json
import subprocess
from pathlib import Path

import pytest
import trio

from benchmarks.peers import peer_python

HERE = Path(__file__).resolve().parent
DEADLINE = 60.0
"""Seconds for one session and what is looked at while it is open."""


def pytest_configure(config):
    config.addinivalue_line("markers", "interop: runs other people's programs against ours")


@pytest.fixture(scope="session")
def peer():
    """The interpreter that other people's packages live in; made on first use."""
    return peer_python()


@pytest.fixture
def session(peer):
    """Run one session of the official client; inside the block it is over but still open."""
    return functools.partial(run_session, peer)


@contextlib.asynccontextmanager
async def run_session(peer, **task):
    command = [str(peer), str(HERE / "peer_client.py"), json.dumps(task)]
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
