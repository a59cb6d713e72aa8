"""Messages without an answer, and the request that subscribes to them."""

from __future__ import annotations

import attrs

from mcp_trio.wire.basic import JSONObject, ProgressToken, RequestId
from mcp_trio.wire.marks import optional
from mcp_trio.wire.revisions import R2025_03_26

LOG_LEVELS = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
"""The eight syslog levels, least severe first (G1)."""


@attrs.frozen(kw_only=True)
class CancelledParams:
    """`notifications/cancelled`: the named request is no longer wanted (C1)."""

    request_id: RequestId | None = optional()
    reason: str | None = optional()
    meta: JSONObject | None = optional(name="_meta")


@attrs.frozen(kw_only=True)
class ProgressParams:
    """`notifications/progress`: how far the request with this token has come (P1)."""

    progress_token: ProgressToken
    progress: float
    total: float | None = optional()
    message: str | None = optional(since=R2025_03_26)
    meta: JSONObject | None = optional(name="_meta")


@attrs.frozen(kw_only=True)
class LogParams:
    """`notifications/message`: one line for the client's log."""

    level: str
    data: object
    logger: str | None = optional()
    meta: JSONObject | None = optional(name="_meta")


@attrs.frozen(kw_only=True)
class SetLevelParams:
    """`logging/setLevel`: the least severe level the client wants to see."""

    level: str
    meta: JSONObject | None = optional(name="_meta")


@attrs.frozen(kw_only=True)
class SubscriptionFilter:
    """Which kinds of change a listener asked for; absent means not (U1)."""

    tools_list_changed: bool | None = optional()
    prompts_list_changed: bool | None = optional()
    resources_list_changed: bool | None = optional()
    resource_subscriptions: list[str] | None = optional()


@attrs.frozen(kw_only=True)
class ListenParams:
    """`subscriptions/listen`: open a stream of change notices."""

    notifications: SubscriptionFilter
    meta: JSONObject | None = optional(name="_meta")


@attrs.frozen(kw_only=True)
class AcknowledgedParams:
    """`notifications/subscriptions/acknowledged`: the part of the filter that is honoured (U2)."""

    notifications: SubscriptionFilter
    meta: JSONObject | None = optional(name="_meta")
