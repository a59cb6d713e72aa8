"""Listeners (U1, U2, U7, X4): what is honoured, and that what waits is bounded."""

from __future__ import annotations

import pytest

from mcp_trio.engine.subscriptions import (
    MAX_WATCHED,
    RESOURCE_UPDATED,
    TOOLS_CHANGED,
    Mailbox,
    Notice,
    honoured,
)
from mcp_trio.errors import OverloadedError
from mcp_trio.wire import ServerCapabilities
from mcp_trio.wire.notices import SubscriptionFilter

TOOLS = SubscriptionFilter(tools_list_changed=True)


EVERYTHING = SubscriptionFilter(
    tools_list_changed=True,
    prompts_list_changed=True,
    resources_list_changed=True,
    resource_subscriptions=["file:///a", "file:///b", "file:///a"],
)


@pytest.mark.parametrize(
    ("wanted", "offered", "expected"),
    [
        (TOOLS, ServerCapabilities(tools={}), TOOLS),
        (TOOLS, ServerCapabilities(), SubscriptionFilter()),
        (
            SubscriptionFilter(tools_list_changed=False),
            ServerCapabilities(tools={}),
            SubscriptionFilter(),
        ),
        (SubscriptionFilter(), ServerCapabilities(tools={}), SubscriptionFilter()),
        (EVERYTHING, ServerCapabilities(tools={}), TOOLS),
        (
            EVERYTHING,
            ServerCapabilities(prompts={}, resources={}),
            SubscriptionFilter(
                prompts_list_changed=True,
                resources_list_changed=True,
                resource_subscriptions=["file:///a", "file:///b"],
            ),
        ),
    ],
)
def test_only_what_was_asked_for_and_can_be_served_is_honoured(
    wanted: SubscriptionFilter, offered: ServerCapabilities, expected: SubscriptionFilter
) -> None:
    assert honoured(wanted, offered) == expected


def test_a_listener_watches_a_bounded_number_of_resources() -> None:
    many = [f"file:///{number}" for number in range(MAX_WATCHED + 5)]
    served = honoured(
        SubscriptionFilter(resource_subscriptions=many), ServerCapabilities(resources={})
    )
    assert served.resource_subscriptions == many[:MAX_WATCHED]
    box = Mailbox(served)
    box.watch(many[0])
    with pytest.raises(OverloadedError):
        box.watch("file:///more")
    box.unwatch(many[0])
    box.unwatch("file:///never")
    box.watch("file:///more")


def test_watched_resources_are_told_each_for_itself() -> None:
    box = Mailbox(SubscriptionFilter(resource_subscriptions=["file:///a"]))
    assert box.wants_anything
    assert box.put(Notice(RESOURCE_UPDATED, "file:///a"))
    assert not box.put(Notice(RESOURCE_UPDATED, "file:///b"))
    box.watch("file:///b")
    assert box.put(Notice(RESOURCE_UPDATED, "file:///b"))
    assert not box.put(Notice(RESOURCE_UPDATED, "file:///a"))
    assert [box.take().uri, box.take().uri, box.take()] == ["file:///a", "file:///b", None]  # type: ignore[union-attr]


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
