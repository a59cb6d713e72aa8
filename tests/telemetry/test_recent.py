"""Rates, latencies and failures of the last minutes: what is counted, where, and how long."""

import datetime as dt
import json

import pytest
import trio

import mcp_trio
from mcp_trio.events import ToolCompleted
from mcp_trio.runtime.stages import ERROR_KEY
from mcp_trio.telemetry.recent import MAX_ERRORS, SHOWN, WINDOW, Recent
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28
from tests.scenarios.worlds import world

both_eras = pytest.mark.parametrize("revision", [R2025_11_25, R2026_07_28], ids=str)
AT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def make_server():
    server = mcp_trio.MCPServer("counted")

    @server.tool
    async def wait(seconds: float) -> str:
        await trio.sleep(seconds)
        return "done"

    @server.tool
    async def clean_up(seconds: float) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(seconds)

    @server.tool
    async def bad(secret: str) -> str:
        raise mcp_trio.ToolError(f"no {secret}")

    return server


def at(histogram, milliseconds):
    """The count of the class that holds a value."""
    place = next(
        (n for n, bound in enumerate(histogram["bounds"]) if milliseconds <= bound),
        len(histogram["bounds"]),
    )
    return histogram["counts"][place]


@both_eras
async def test_each_request_is_counted_in_its_second_and_in_its_class(revision, autojump_clock):
    server, recent = make_server(), Recent()
    async with world(server, "memory", revision) as client:
        with server.events.attach(recent):
            await trio.sleep(1 - trio.current_time() % 1)
            for _ in range(3):
                await client.call_tool("wait", {"seconds": 0.15})
            await trio.sleep(1)
            told = recent.rates()
            assert told["total"] == {"success": 3, "error": 0, "cancelled": 0}
            assert len(told["seconds"]) == SHOWN
            assert told["seconds"][-1] == [3, 0, 0]
            assert sum(sum(second) for second in told["seconds"]) == 3
            assert at(told["latency_ms"], 150) == sum(told["latency_ms"]["counts"]) == 3
            assert sum(told["cancel_ms"]["counts"]) == 0
            await trio.sleep(WINDOW)
            told = recent.rates()
            assert told["total"]["success"] == 3
            assert sum(told["latency_ms"]["counts"]) == 0


@both_eras
async def test_the_time_from_a_cancellation_to_the_end_has_a_histogram(revision, autojump_clock):
    server, recent = make_server(), Recent()
    async with world(server, "memory", revision) as client:
        with server.events.attach(recent):
            with trio.move_on_after(1):
                await client.call_tool("clean_up", {"seconds": 0.15})
            await trio.sleep(1)
            told = recent.rates()
    assert told["total"] == {"success": 0, "error": 0, "cancelled": 1}
    assert at(told["cancel_ms"], 150) == sum(told["cancel_ms"]["counts"]) == 1


async def test_a_deadline_of_the_server_counts_from_the_deadline(autojump_clock):
    options = mcp_trio.ServerOptions(request_timeout=1)
    server, recent = mcp_trio.MCPServer("timed", options=options), Recent()

    @server.tool
    async def slow() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.3)

    async with world(server, "memory", R2025_11_25) as client:
        with server.events.attach(recent):
            with pytest.raises(mcp_trio.MCPError, match="longer"):
                await client.call_tool("slow")
            told = recent.rates()
            assert at(told["cancel_ms"], 300) == 1
            (failure,) = recent.errors()["errors"]
            assert failure["code"] == "MCP.TIMEOUT"


@both_eras
async def test_failures_are_told_without_any_text(revision, autojump_clock):
    server, recent = make_server(), Recent(lambda: AT)
    async with world(server, "memory", revision) as client:
        with server.events.attach(recent):
            await client.call_tool("bad", {"secret": "canary"})
            with pytest.raises(mcp_trio.MCPError):
                await client.call_tool("missing")
            with pytest.raises(mcp_trio.MCPError):
                await client.read_resource("made:up?canary")
            told = recent.errors()
    newest, middle, oldest = told["errors"]
    assert told["by_stage"] == {"handler": 3}
    assert (newest["method"], newest["at"]) == ("resources/read", "2026-01-02T03:04:05.000+00:00")
    assert (middle["tool"], middle["code"]) == ("missing", "MCP.NOT_FOUND")
    assert (oldest["tool"], oldest["code"]) == ("bad", None)
    assert "canary" not in json.dumps(told)


async def test_the_stage_of_a_published_operation_is_told():
    recent = Recent()
    meta = {ERROR_KEY: {"stage": "mapping", "sub": "missing", "code": "x", "operation_id": "a.b"}}
    recent(
        ToolCompleted(
            side="server",
            tool="t" * 1000,
            id=1,
            duration_ms=2.0,
            outcome="error",
            subject="s",
            meta=meta,
        )
    )
    told = recent.errors()
    assert told["by_stage"] == {"mapping": 1}
    (failure,) = told["errors"]
    assert (failure["stage"], failure["sub"], failure["operation_id"]) == (
        "mapping",
        "missing",
        "a.b",
    )
    assert len(failure["tool"]) == 128


async def test_a_flood_of_failures_is_bounded():
    recent = Recent()
    for number in range(3 * MAX_ERRORS):
        recent(
            ToolCompleted(
                side="server", tool="t", id=number, duration_ms=1.0, outcome="error", subject=None
            )
        )
    told = recent.errors()
    assert told["by_stage"] == {"handler": 3 * MAX_ERRORS}
    assert [failure["request_id"] for failure in told["errors"]][:2] == ["599", "598"]
    assert len(told["errors"]) == MAX_ERRORS
