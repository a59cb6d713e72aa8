"""One service for all attacks of the package; each test sees that nothing of its own stays."""

import functools

import pytest
import trio

from tests.hardening.attackers import ask, call, opening, post
from tests.hardening.target import OPERATIONS, Target, Upstream, descriptors, document


@pytest.fixture(scope="session")
def upstream(tmp_path_factory):
    registry = tmp_path_factory.mktemp("registry") / "operations.json"
    registry.write_text(document(*OPERATIONS))
    upstream = Upstream(registry)
    upstream.start()
    yield upstream
    upstream.kill()


@pytest.fixture(scope="session")
def service(tmp_path_factory, upstream):
    """The process. It is warm: what is made at first use is there."""
    descriptors(13_000)
    target = Target(tmp_path_factory.mktemp("service"), upstream=upstream.url)
    for name in ("hello", "bulk", "half", "junk"):
        trio.run(functools.partial(ask, target, post(call(name))))
    trio.run(functools.partial(ask, target, opening()))
    yield target
    target.close()


@pytest.fixture
def target(service):
    """The same, with a fresh log; no attack may bring forth a fault of ours."""
    del service.lines[:]
    yield service
    assert service.process.poll() is None
    assert service.faults() == []
