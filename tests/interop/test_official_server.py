"""Our client against a server made with the official SDK, in both eras over HTTP."""

import contextlib
import functools
import time

import pytest
import trio

from benchmarks.moments import Moments
from benchmarks.processes import ROOT, serving
from benchmarks.servers.telling import BEGAN, ENDED
from mcp_trio.client.client import ClientOptions, MCPClient
from mcp_trio.wire.revisions import REVISIONS

pytestmark = pytest.mark.interop

SERVER = ROOT / "benchmarks" / "servers" / "official.py"
HANDSHAKE = tuple(revision for revision in REVISIONS if not revision.stateless)
STATELESS = tuple(revision for revision in REVISIONS if revision.stateless)


@contextlib.asynccontextmanager
async def connected(peer, revisions, form="sse"):
    """A client of ours that speaks some revisions, connected to the official server."""
    async with serving([peer, SERVER, "uvicorn", form]) as program:
        with trio.fail_after(30):
            async with MCPClient(program.url, options=ClientOptions(revisions=revisions)) as client:
                yield client


@pytest.mark.parametrize("form", ["json", "sse"])
@pytest.mark.parametrize(
    ("revisions", "spoken"),
    [
        pytest.param(HANDSHAKE, HANDSHAKE[0], id="handshake"),
        pytest.param(STATELESS, STATELESS[0], id="stateless"),
        pytest.param(REVISIONS, REVISIONS[0], id="probing"),
    ],
)
async def test_tools_are_listed_and_called(peer, revisions, spoken, form):
    async with connected(peer, revisions, form) as client:
        assert client.revision == spoken
        names = [tool.name async for tool in client.tools()]
        result = await client.call_tool("add", {"a": 2, "b": 40})

    assert names == ["add", "add_talking", "add_rest", "hold", "work"]
    assert result.structured_content == {"result": 42}


@pytest.mark.parametrize("revisions", [HANDSHAKE, STATELESS], ids=["handshake", "stateless"])
async def test_a_cancelled_call_ends_over_there_and_its_progress_was_heard(peer, revisions):
    heard, told = [], trio.Event()

    def note(value, _total, _message):
        heard.append(value)
        told.set()

    moments = Moments()
    arguments = {"name": "held", "port": moments.port, "talk": True}
    async with connected(peer, revisions) as client:
        async with trio.open_nursery() as nursery:
            call = functools.partial(client.call_tool, on_progress=note)
            nursery.start_soon(call, "hold", arguments)
            await told.wait()
            begun = await trio.to_thread.run_sync(moments.wait, "held", BEGAN, 10)
            cancelled = time.monotonic()
            nursery.cancel_scope.cancel()
        ended = await trio.to_thread.run_sync(moments.wait, "held", ENDED, 10)
    moments.close()

    assert heard == [1]
    assert begun < cancelled < ended
