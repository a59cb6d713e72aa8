"""The official Python client against a server of ours, in both eras, over HTTP and stdio."""

import contextlib
import sys
from pathlib import Path

import pytest

from benchmarks.processes import serving

pytestmark = pytest.mark.interop

SERVER = Path(__file__).resolve().parent / "our_server.py"
HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
MODES = [
    pytest.param("legacy", HANDSHAKE, id="handshake"),
    pytest.param(STATELESS, STATELESS, id="stateless"),
    pytest.param("auto", STATELESS, id="probing"),
]


@contextlib.asynccontextmanager
async def reachable(transport):
    """What a client needs to know to reach the server over a transport."""
    if transport == "stdio":
        yield {"command": [sys.executable, str(SERVER), "stdio"]}
    else:
        async with serving([sys.executable, SERVER, "http"]) as program:
            yield {"url": program.url}


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize(("mode", "revision"), MODES)
async def test_a_whole_session(session, transport, mode, revision):
    async with (
        reachable(transport) as where,
        session(plan="interop", mode=mode, **where) as seen,
    ):
        pass

    assert seen["protocol"] == revision
    assert seen["server"] in {"interop", None if mode == STATELESS else "interop"}
    assert seen["tools"] == ["add", "count", "refuse", "hold", "wait_for", "grow"]

    assert seen["add"]["content"][0]["text"] == "42"
    assert seen["add"]["structuredContent"] == {"result": 42}
    assert seen["bad_arguments"]["isError"] is True
    assert "/a" in seen["bad_arguments"]["content"][0]["text"]
    assert seen["refuse"]["isError"] is True
    assert seen["refuse"]["content"][0]["text"] == "this tool never works"

    assert seen["count"]["content"][0]["text"] == "counted to 3"
    assert seen["progress"] == [[step, 3, f"step {step}"] for step in (1, 2, 3)]

    assert seen["began"]["structuredContent"] == {"result": True}
    assert seen["ended"]["structuredContent"] == {"result": True}


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize(
    ("mode", "heard"), [("legacy", "notification"), (STATELESS, "ToolsListChanged")]
)
async def test_a_new_tool_is_heard_of(session, transport, mode, heard):
    async with (
        reachable(transport) as where,
        session(plan="changes", mode=mode, **where) as seen,
    ):
        pass

    assert seen["heard"] == heard
    assert seen["tools_after"] == [*seen["tools"], "grown"]
