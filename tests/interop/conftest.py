"""What the interop tests share: the peers' environment, and one session of the official client."""

import functools
import json
from pathlib import Path

import pytest

from benchmarks.peers import peer_python
from benchmarks.processes import output_of

HERE = Path(__file__).resolve().parent


def pytest_configure(config):
    config.addinivalue_line("markers", "interop: runs other people's programs against ours")


@pytest.fixture(scope="session")
def peer():
    """The interpreter that other people's packages live in; made on first use."""
    return peer_python()


@pytest.fixture
def session(peer):
    """Run one session of the official client and return what it saw."""
    return functools.partial(run_session, peer)


async def run_session(peer, **task):
    command = [peer, HERE / "peer_client.py", json.dumps(task)]
    return json.loads(await output_of(command, within=60, what="the official client"))
