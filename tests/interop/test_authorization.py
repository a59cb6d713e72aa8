"""The official clients at a server that wants tokens: discovery, consent, a call, and a step up."""

import itertools
import socket
import sys

import pytest

from benchmarks.processes import serving
from tests.interop.conftest import HERE, run_session
from tests.interop.offered import STATELESS
from tests.programs import ROOT

pytestmark = pytest.mark.interop

EXAMPLE = ROOT / "examples" / "authorization"


@pytest.fixture(scope="module")
def clients(peer, node):
    """How to run a session of each official client."""
    return {
        "python": [peer, HERE / "authorized_client.py"],
        "typescript": node.command("authorized.mjs"),
    }


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as made:
        return made.getsockname()[1]


@pytest.mark.parametrize(
    ("client", "mode"), [*itertools.product(("python", "typescript"), ("legacy", STATELESS))]
)
async def test_a_client_finds_its_way_to_a_token_and_to_more_scopes(clients, client, mode):
    authority, port = free_port(), str(free_port())
    issuer = f"http://127.0.0.1:{authority}"
    async with (
        serving([sys.executable, EXAMPLE / "authorization_server.py", str(authority)]),
        serving([sys.executable, EXAMPLE / "server.py", port, issuer]) as program,
        run_session(clients[client], mode=mode, url=program.url) as seen,
    ):
        first, written, second = seen["said"]
        assert (first, written) == ("nothing yet", "written")
        assert second == {"python": "by Python", "typescript": "by TypeScript"}[client]
        # What the token cannot be used for is not listed.
        assert seen["listed"] == ["read_note"]
        asked = [set(scopes.split()) - {"offline_access"} for scopes in seen["scopes"]]
        # The least first, and what was held before beside what is needed then.
        assert asked == [{"notes:read"}, {"notes:read", "notes:write"}]
