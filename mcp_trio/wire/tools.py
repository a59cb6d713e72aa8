"""Tools: definition, listing and call (T1 to T10)."""

from __future__ import annotations

from typing import cast

import attrs
import msgspec

from mcp_trio.wire.basic import Icon, JSONObject
from mcp_trio.wire.content import ContentBlock
from mcp_trio.wire.marks import ABSENT, Before, defaulted, optional, required
from mcp_trio.wire.revisions import R2025_03_26, R2025_06_18, R2025_11_25, R2026_07_28


def object_only(value: object) -> object:
    """What structured content was at first: an object, or nothing."""
    return cast("JSONObject", value) if isinstance(value, dict) else ABSENT


def plain_schema(schema: JSONObject) -> JSONObject:
    """A schema whose properties are all objects, as the first revisions want them.

    `true` and `false` are schemas too; they are written out.
    """
    fields = schema.get("properties")
    if not isinstance(fields, dict) or not any(
        isinstance(field, bool) for field in cast("JSONObject", fields).values()
    ):
        return schema
    spelled: dict[object, JSONObject] = {True: {}, False: {"not": {}}}
    plain = {
        name: spelled[field] if isinstance(field, bool) else field
        for name, field in cast("JSONObject", fields).items()
    }
    return {**schema, "properties": plain}


def object_schema(schema: JSONObject) -> object:
    """A schema of objects, as the first revisions with output schemas want it, or nothing."""
    return plain_schema(schema) if schema.get("type") == "object" else ABSENT


@attrs.frozen(kw_only=True)
class ToolAnnotations:
    """Hints about behaviour. A client must not trust them (T6)."""

    title: str | None = optional()
    read_only_hint: bool | None = optional()
    destructive_hint: bool | None = optional()
    idempotent_hint: bool | None = optional()
    open_world_hint: bool | None = optional()


@attrs.frozen(kw_only=True)
class ToolExecution:
    """How a tool takes part in tasks (T10)."""

    task_support: str | None = optional()


@attrs.frozen(kw_only=True)
class Tool:
    """One tool as it is listed."""

    name: str
    input_schema: JSONObject = required(before=Before(R2026_07_28, plain_schema))
    title: str | None = optional(since=R2025_06_18)
    description: str | None = optional()
    output_schema: JSONObject | None = optional(
        since=R2025_06_18, before=Before(R2026_07_28, object_schema)
    )
    annotations: ToolAnnotations | None = optional(since=R2025_03_26)
    execution: ToolExecution | None = optional(since=R2025_11_25, until=R2025_11_25)
    icons: list[Icon] | None = optional(since=R2025_11_25)
    meta: JSONObject | None = optional(name="_meta", since=R2025_06_18)


@attrs.frozen(kw_only=True)
class PageParams:
    """Parameters of a paged listing. The cursor is opaque; an empty string is a cursor (K1)."""

    cursor: str | None = optional()
    meta: JSONObject | None = optional(name="_meta")


@attrs.frozen(kw_only=True)
class ListToolsResult:
    """One page of tools."""

    tools: list[Tool] | msgspec.Raw
    """A server may hand over the array already encoded for the revision at hand."""
    next_cursor: str | None = optional()
    ttl_ms: int = defaulted(0, since=R2026_07_28)
    cache_scope: str = defaulted("private", since=R2026_07_28)
    result_type: str = defaulted("complete", since=R2026_07_28)
    meta: JSONObject | None = optional(name="_meta")
    extra: JSONObject = attrs.field(factory=dict[str, object])


@attrs.frozen(kw_only=True)
class CallToolParams:
    """A call as it arrives. `arguments` may be missing, which means none."""

    name: str
    arguments: JSONObject | None = optional()
    meta: JSONObject | None = optional(name="_meta")


@attrs.frozen(kw_only=True)
class CallToolResult:
    """What a tool answered.

    `is_error` means the tool ran and failed, which the model should read; a fault of
    the protocol is a JSON-RPC error instead (T7).
    """

    content: list[ContentBlock] = defaulted(factory=list)
    structured_content: object = optional(
        since=R2025_06_18, before=Before(R2026_07_28, object_only), nullable=True
    )
    is_error: bool | None = optional()
    result_type: str = defaulted("complete", since=R2026_07_28)
    meta: JSONObject | None = optional(name="_meta")
    extra: JSONObject = attrs.field(factory=dict[str, object])
