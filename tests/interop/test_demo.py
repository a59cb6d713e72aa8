"""The demo of the command line, as the official Python client sees it in both eras."""

import sys
from pathlib import Path

import pytest

from benchmarks.processes import serving

pytestmark = pytest.mark.interop

COMMAND = [Path(sys.executable).with_name("mcp-trio"), "serve", "--demo", "--port", "0"]
CALLS = [
    ("crm_create_lead", {"email": "grace@example.com", "name": "Grace"}),
    ("user_get_profile", {"user_id": "u-1"}),
    ("inventory_list_items", {"warehouse": "north", "limit": 2}),
]
SLOW = ("inventory_list_items", {"wait_seconds": 50})


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_demo_serves_its_tools_and_a_cancelled_call_reaches_the_upstream(session, mode):
    async with serving(COMMAND) as program:
        task = {"mode": mode, "url": program.url, "calls": CALLS, "slow": SLOW}
        async with session(sections=["demo"], **task) as report:
            seen = report["demo"]
            assert seen["given_up"] is True
            # The session is still open, so nothing but the cancellation can have told it.
            await program.wait_for("left before the answer", within=10)

    assert sorted(seen["tools"]) == sorted(name for name, _ in CALLS)
    calls = seen["calls"]
    assert calls["crm_create_lead"]["structuredContent"]["url"].startswith("/tenants/acme/leads/")
    assert calls["crm_create_lead"]["content"][0]["text"].startswith("Lead created: ")
    assert calls["user_get_profile"]["structuredContent"]["name"] == "Ada"
    items = calls["inventory_list_items"]["structuredContent"]
    assert len(items["items"]) == 2
    assert items["total"] == 4
