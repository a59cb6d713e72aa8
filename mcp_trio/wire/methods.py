"""Every method this package knows, as one table: types, direction, revisions, HTTP header.

What a method does is written elsewhere; who may send it, in which revision and with
which parameters is written here.
"""

from __future__ import annotations

import enum

import attrs

from mcp_trio.wire import (
    completion,
    elicitation,
    lifecycle,
    notices,
    prompts,
    resources,
    roots,
    sampling,
    tools,
)
from mcp_trio.wire.basic import EmptyParams, EmptyResult
from mcp_trio.wire.revisions import R2025_06_18, R2025_11_25, R2026_07_28, Revision


class Sender(enum.Flag):
    """Who sends a message of this method."""

    CLIENT = enum.auto()
    SERVER = enum.auto()
    BOTH = CLIENT | SERVER


@attrs.frozen(kw_only=True)
class Method:
    """One row of the method table."""

    name: str
    params: type
    result: type | None = None
    """None for a notification."""
    sender: Sender = Sender.CLIENT
    since: Revision | None = None
    until: Revision | None = None
    cacheable: bool = False
    """A complete result carries `ttlMs` and `cacheScope` (K2)."""
    named_by: str | None = None
    """The parameter that `Mcp-Name` mirrors (N9)."""
    capability: str | None = None
    """The server capability that must be declared for the method to exist (V4)."""

    def exists_in(self, revision: Revision) -> bool:
        """Tell whether the revision has this method."""
        return (self.since is None or revision >= self.since) and (
            self.until is None or self.until >= revision
        )


_ROWS = (
    Method(
        name="initialize",
        params=lifecycle.InitializeParams,
        result=lifecycle.InitializeResult,
        until=R2025_11_25,
    ),
    Method(name="notifications/initialized", params=EmptyParams, until=R2025_11_25),
    Method(
        name="ping",
        params=EmptyParams,
        result=EmptyResult,
        sender=Sender.BOTH,
        until=R2025_11_25,
    ),
    Method(
        name="server/discover",
        params=EmptyParams,
        result=lifecycle.DiscoverResult,
        since=R2026_07_28,
        cacheable=True,
    ),
    Method(
        name="tools/list",
        params=tools.PageParams,
        result=tools.ListToolsResult,
        cacheable=True,
        capability="tools",
    ),
    Method(
        name="tools/call",
        params=tools.CallToolParams,
        result=tools.CallToolResult,
        named_by="name",
        capability="tools",
    ),
    Method(
        name="prompts/list",
        params=tools.PageParams,
        result=prompts.ListPromptsResult,
        cacheable=True,
        capability="prompts",
    ),
    Method(
        name="prompts/get",
        params=prompts.GetPromptParams,
        result=prompts.GetPromptResult,
        named_by="name",
        capability="prompts",
    ),
    Method(
        name="resources/list",
        params=tools.PageParams,
        result=resources.ListResourcesResult,
        cacheable=True,
        capability="resources",
    ),
    Method(
        name="resources/templates/list",
        params=tools.PageParams,
        result=resources.ListResourceTemplatesResult,
        cacheable=True,
        capability="resources",
    ),
    Method(
        name="resources/read",
        params=resources.ReadResourceParams,
        result=resources.ReadResourceResult,
        cacheable=True,
        named_by="uri",
        capability="resources",
    ),
    Method(
        name="resources/subscribe",
        params=resources.ReadResourceParams,
        result=EmptyResult,
        until=R2025_11_25,
        capability="resources",
    ),
    Method(
        name="resources/unsubscribe",
        params=resources.ReadResourceParams,
        result=EmptyResult,
        until=R2025_11_25,
        capability="resources",
    ),
    Method(
        name="completion/complete",
        params=completion.CompleteParams,
        result=completion.CompleteResult,
        capability="completions",
    ),
    Method(
        name="logging/setLevel",
        params=notices.SetLevelParams,
        result=EmptyResult,
        until=R2025_11_25,
        capability="logging",
    ),
    Method(
        name="subscriptions/listen",
        params=notices.ListenParams,
        result=EmptyResult,
        since=R2026_07_28,
    ),
    # What is asked of the client. After the last handshake revision none of these is a request
    # any more: they travel inside a result (`wire.rounds`).
    Method(
        name="sampling/createMessage",
        params=sampling.CreateMessageParams,
        result=sampling.CreateMessageResult,
        sender=Sender.SERVER,
        until=R2025_11_25,
    ),
    Method(
        name="elicitation/create",
        params=elicitation.ElicitParams,
        result=elicitation.ElicitResult,
        sender=Sender.SERVER,
        since=R2025_06_18,
        until=R2025_11_25,
    ),
    Method(
        name="roots/list",
        params=EmptyParams,
        result=roots.ListRootsResult,
        sender=Sender.SERVER,
        until=R2025_11_25,
    ),
    Method(
        name="notifications/roots/list_changed",
        params=EmptyParams,
        until=R2025_11_25,
    ),
    Method(
        name="notifications/elicitation/complete",
        params=elicitation.ElicitationCompleteParams,
        sender=Sender.SERVER,
        since=R2025_11_25,
        until=R2025_11_25,
    ),
    Method(name="notifications/cancelled", params=notices.CancelledParams, sender=Sender.BOTH),
    Method(name="notifications/progress", params=notices.ProgressParams, sender=Sender.BOTH),
    Method(name="notifications/message", params=notices.LogParams, sender=Sender.SERVER),
    Method(name="notifications/tools/list_changed", params=EmptyParams, sender=Sender.SERVER),
    Method(name="notifications/prompts/list_changed", params=EmptyParams, sender=Sender.SERVER),
    Method(name="notifications/resources/list_changed", params=EmptyParams, sender=Sender.SERVER),
    Method(
        name="notifications/resources/updated",
        params=resources.ResourceUpdatedParams,
        sender=Sender.SERVER,
    ),
    Method(
        name="notifications/subscriptions/acknowledged",
        params=notices.AcknowledgedParams,
        sender=Sender.SERVER,
        since=R2026_07_28,
    ),
)

METHODS: dict[str, Method] = {row.name: row for row in _ROWS}
