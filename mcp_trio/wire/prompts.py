"""Prompts: definition, listing and getting (O4)."""

from __future__ import annotations

import attrs
import msgspec

from mcp_trio.wire.basic import Icon, JSONObject
from mcp_trio.wire.content import ContentBlock
from mcp_trio.wire.marks import defaulted, optional
from mcp_trio.wire.revisions import R2025_06_18, R2025_11_25, R2026_07_28


@attrs.frozen(kw_only=True)
class PromptArgument:
    """One argument of a prompt; its value is a string."""

    name: str
    title: str | None = optional(since=R2025_06_18)
    description: str | None = optional()
    required: bool | None = optional()


@attrs.frozen(kw_only=True)
class Prompt:
    """One prompt as it is listed."""

    name: str
    title: str | None = optional(since=R2025_06_18)
    description: str | None = optional()
    arguments: list[PromptArgument] | None = optional()
    icons: list[Icon] | None = optional(since=R2025_11_25)
    meta: JSONObject | None = optional(name="_meta", since=R2025_06_18)


@attrs.frozen(kw_only=True)
class ListPromptsResult:
    """One page of prompts."""

    prompts: list[Prompt] | msgspec.Raw
    """A server may hand over the array already encoded for the revision at hand."""
    next_cursor: str | None = optional()
    ttl_ms: int = defaulted(0, since=R2026_07_28)
    cache_scope: str = defaulted("private", since=R2026_07_28)
    result_type: str = defaulted("complete", since=R2026_07_28)
    meta: JSONObject | None = optional(name="_meta")
    extra: JSONObject = attrs.field(factory=dict[str, object])


@attrs.frozen(kw_only=True)
class GetPromptParams:
    """A prompt that is asked for. `arguments` may be missing, which means none."""

    name: str
    arguments: dict[str, str] | None = optional()
    meta: JSONObject | None = optional(name="_meta")


@attrs.frozen(kw_only=True)
class PromptMessage:
    """One message of a filled prompt; `role` is user or assistant."""

    role: str
    content: ContentBlock


@attrs.frozen(kw_only=True)
class GetPromptResult:
    """A filled prompt."""

    messages: list[PromptMessage]
    description: str | None = optional()
    result_type: str = defaulted("complete", since=R2026_07_28)
    meta: JSONObject | None = optional(name="_meta")
    extra: JSONObject = attrs.field(factory=dict[str, object])
