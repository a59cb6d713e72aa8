"""Listeners (U1, U2, U7, X4): what is honoured, and that what waits is bounded."""

from __future__ import annotations

import pytest

from mcp_trio.engine.subscriptions import TOOLS_CHANGED, Mailbox, Notice, honoured
from mcp_trio.wire.notices import SubscriptionFilter

TOOLS = SubscriptionFilter(tools_list_changed=True)


@pytest.mark.parametrize(
    ("wanted", "tools", "expected"),
    [
        (TOOLS, True, TOOLS),
        (TOOLS, False, SubscriptionFilter()),
        (SubscriptionFilter(tools_list_changed=False), True, SubscriptionFilter()),
        (SubscriptionFilter(), True, SubscriptionFilter()),
        (
            SubscriptionFilter(
                tools_list_changed=True,
                prompts_list_changed=True,
                resources_list_changed=True,
                resource_subscriptions=["file:///a"],
            ),
            True,
            TOOLS,
        ),
    ],
)
def test_only_what_was_asked_for_and_can_be_served_is_honoured(
    wanted: SubscriptionFilter, tools: bool, expected: SubscriptionFilter
) -> None:
    assert honoured(wanted, tools=tools) == expected


def test_a_burst_of_one_change_is_one_notice() -> None:
    box = Mailbox(TOOLS)
    assert [box.put(Notice(TOOLS_CHANGED)) for _ in range(1000)] == [True] + [False] * 999
    assert box.coalesced == 999
    assert box.take() == Notice(TOOLS_CHANGED)
    assert box.take() is None


def test_a_change_after_the_last_was_taken_is_told_again() -> None:
    box = Mailbox(TOOLS)
    box.put(Notice(TOOLS_CHANGED))
    box.take()
    assert box.put(Notice(TOOLS_CHANGED))
    assert box.take() == Notice(TOOLS_CHANGED)


def test_nothing_unwanted_waits() -> None:
    box = Mailbox(TOOLS)
    assert not box.put(Notice("notifications/prompts/list_changed"))
    assert not box.put(Notice("notifications/resources/updated", "file:///a"))
    assert not Mailbox(SubscriptionFilter()).put(Notice(TOOLS_CHANGED))
    assert box.take() is None


def test_a_notice_names_its_resource_if_it_has_one() -> None:
    assert Notice(TOOLS_CHANGED).params() == {}
    assert Notice("notifications/resources/updated", "file:///a").params() == {"uri": "file:///a"}
