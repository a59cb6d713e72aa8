"""What a listener wants and what waits for it: coalesced, so bounded by its own filter.

One pending notice per kind or URI is enough: a notice says "look again", and two of
them say no more than one (X4, U7).
"""

from __future__ import annotations

import attrs

from mcp_trio.errors import OverloadedError
from mcp_trio.framing.uri_template import normal
from mcp_trio.wire.basic import JSONObject, ServerCapabilities
from mcp_trio.wire.notices import SubscriptionFilter

TOOLS_CHANGED = "notifications/tools/list_changed"
PROMPTS_CHANGED = "notifications/prompts/list_changed"
RESOURCES_CHANGED = "notifications/resources/list_changed"
RESOURCE_UPDATED = "notifications/resources/updated"

MAX_WATCHED = 1000
"""Resources that one listener may watch."""


@attrs.frozen
class Notice:
    """One change, as it is told."""

    method: str
    uri: str | None = None

    def params(self) -> JSONObject:
        """The parameters of the notification."""
        return {} if self.uri is None else {"uri": self.uri}


def honoured(wanted: SubscriptionFilter, offered: ServerCapabilities) -> SubscriptionFilter:
    """The part of a filter that the server can serve (U2)."""
    watched = list(dict.fromkeys(wanted.resource_subscriptions or ()))[:MAX_WATCHED]
    has_resources = offered.resources is not None
    return SubscriptionFilter(
        tools_list_changed=(wanted.tools_list_changed and offered.tools is not None) or None,
        prompts_list_changed=(wanted.prompts_list_changed and offered.prompts is not None) or None,
        resources_list_changed=(wanted.resources_list_changed and has_resources) or None,
        resource_subscriptions=watched if watched and has_resources else None,
    )


class Mailbox:
    """The notices that wait for one listener, in order of first arrival."""

    __slots__ = ("_lists", "_waiting", "_watched", "coalesced")

    def __init__(self, wanted: SubscriptionFilter) -> None:
        lists = {
            TOOLS_CHANGED: wanted.tools_list_changed,
            PROMPTS_CHANGED: wanted.prompts_list_changed,
            RESOURCES_CHANGED: wanted.resources_list_changed,
        }
        self._lists = tuple(method for method, asked in lists.items() if asked)
        self._watched = {normal(uri): uri for uri in wanted.resource_subscriptions or ()}
        self._waiting: dict[Notice, None] = {}
        self.coalesced = 0
        """Notices that were already waiting when they came again."""

    @property
    def wants_anything(self) -> bool:
        """Whether any notice can ever be wanted."""
        return bool(self._lists or self._watched)

    def watch(self, uri: str) -> None:
        """Want to know when a resource changes.

        Raises:
            OverloadedError: `MAX_WATCHED` are watched already.
        """
        if normal(uri) not in self._watched and len(self._watched) >= MAX_WATCHED:
            raise OverloadedError("too many resources are watched")
        self._watched[normal(uri)] = uri

    def unwatch(self, uri: str) -> None:
        """Not want to know it any more. Unknown is no error."""
        self._watched.pop(normal(uri), None)

    def put(self, notice: Notice) -> bool:
        """Take a notice if it is wanted; True if it is new.

        A resource is told under the spelling of its URI by which the listener knows it.
        """
        if notice.uri:
            known = self._watched.get(normal(notice.uri))
            if known is None:
                return False
            notice = Notice(notice.method, known)
        elif notice.method not in self._lists:
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
