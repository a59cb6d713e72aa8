"""Completion of the arguments of prompts and resource templates (O5)."""

from __future__ import annotations

import attrs

from mcp_trio.wire.basic import JSONObject
from mcp_trio.wire.marks import defaulted, optional
from mcp_trio.wire.revisions import R2025_06_18, R2026_07_28

MAX_VALUES = 100
"""Suggestions in one answer."""


@attrs.frozen(kw_only=True)
class Reference:
    """What is completed: `ref/prompt` with a name, or `ref/resource` with a URI or template."""

    type: str
    name: str | None = optional()
    uri: str | None = optional()
    title: str | None = optional(since=R2025_06_18)


@attrs.frozen(kw_only=True)
class CompletedArgument:
    """The argument, and what was typed so far."""

    name: str
    value: str


@attrs.frozen(kw_only=True)
class CompletionContext:
    """Arguments that are known already."""

    arguments: dict[str, str] | None = optional()


@attrs.frozen(kw_only=True)
class CompleteParams:
    """`completion/complete`."""

    ref: Reference
    argument: CompletedArgument
    context: CompletionContext | None = optional(since=R2025_06_18)
    meta: JSONObject | None = optional(name="_meta")


@attrs.frozen(kw_only=True)
class Completion:
    """Suggestions, best first."""

    values: list[str]
    total: int | None = optional()
    has_more: bool | None = optional()


@attrs.frozen(kw_only=True)
class CompleteResult:
    """What `completion/complete` answers."""

    completion: Completion
    result_type: str = defaulted("complete", since=R2026_07_28)
    meta: JSONObject | None = optional(name="_meta")
    extra: JSONObject = attrs.field(factory=dict[str, object])
