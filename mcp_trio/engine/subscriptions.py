"""What a listener wants and what waits for it: coalesced, so bounded by its own filter.

One pending notice per kind or URI is enough: a notice says "look again", and two of
them say no more than one (X4, U7).
"""

from __future__ import annotations

import attrs

from mcp_trio.wire.basic import JSONObject
from mcp_trio.wire.notices import SubscriptionFilter

TOOLS_CHANGED = "notifications/tools/list_changed"


@attrs.frozen
class Notice:
    """One change, as it is told."""

    method: str
    uri: str | None = None

    def params(self) -> JSONObject:
        """The parameters of the notification."""
        return {} if self.uri is None else {"uri": self.uri}


def honoured(wanted: SubscriptionFilter, *, tools: bool) -> SubscriptionFilter:
    """The part of a filter that the server can serve (U2)."""
    served = bool(wanted.tools_list_changed and tools)
    return SubscriptionFilter(tools_list_changed=served or None)


class Mailbox:
    """The notices that wait for one listener, in order of first arrival."""

    def __init__(self, wanted: SubscriptionFilter) -> None:
        self._wants_tools = bool(wanted.tools_list_changed)
        self._waiting: dict[Notice, None] = {}
        self.coalesced = 0
        """Notices that were already waiting when they came again."""

    def put(self, notice: Notice) -> bool:
        """Take a notice if it is wanted; True if it is new."""
        if not (self._wants_tools and notice.method == TOOLS_CHANGED):
            return False
        if notice in self._waiting:
            self.coalesced += 1
            return False
        self._waiting[notice] = None
        return True

    def take(self) -> Notice | None:
        """Give the oldest notice, or None."""
        for notice in self._waiting:
            del self._waiting[notice]
            return notice
        return None
