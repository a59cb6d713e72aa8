"""Content blocks, as tools return them and prompts hold them (T5).

A block that a revision does not know is projected to text by the converter.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from mcp_trio.wire.basic import Icon, JSONObject
from mcp_trio.wire.marks import kind, optional
from mcp_trio.wire.revisions import R2025_03_26, R2025_06_18, R2025_11_25


@attrs.frozen(kw_only=True)
class Annotations:
    """Hints for whoever shows the block. Untrusted (SEC4)."""

    audience: list[str] | None = optional()
    priority: float | None = optional()
    last_modified: str | None = optional(since=R2025_06_18)


@kind("text", lambda block: block.text)
@attrs.frozen(kw_only=True)
class TextContent:
    """Plain text."""

    text: str
    annotations: Annotations | None = optional()
    meta: JSONObject | None = optional(name="_meta", since=R2025_06_18)


@kind("image", lambda block: f"[image, {block.mime_type}]")
@attrs.frozen(kw_only=True)
class ImageContent:
    """A picture, base64."""

    data: str
    mime_type: str
    annotations: Annotations | None = optional()
    meta: JSONObject | None = optional(name="_meta", since=R2025_06_18)


def _audio(block: AudioContent) -> str:
    return f"[audio, {block.mime_type}, {len(block.data) * 3 // 4} bytes]"


@kind("audio", _audio, since=R2025_03_26)
@attrs.frozen(kw_only=True)
class AudioContent:
    """Sound, base64."""

    data: str
    mime_type: str
    annotations: Annotations | None = optional()
    meta: JSONObject | None = optional(name="_meta", since=R2025_06_18)


@attrs.frozen(kw_only=True)
class ResourceContents:
    """What a resource holds: `text` or base64 `blob`, one of the two (O1)."""

    uri: str
    mime_type: str | None = optional()
    text: str | None = optional()
    blob: str | None = optional()
    meta: JSONObject | None = optional(name="_meta", since=R2025_06_18)


@kind("resource", lambda block: f"[resource {block.resource.uri}]")
@attrs.frozen(kw_only=True)
class EmbeddedResource:
    """A resource carried inside the message."""

    resource: ResourceContents
    annotations: Annotations | None = optional()
    meta: JSONObject | None = optional(name="_meta", since=R2025_06_18)


@kind("resource_link", lambda link: f"{link.title or link.name}: {link.uri}", since=R2025_06_18)
@attrs.frozen(kw_only=True)
class ResourceLink:
    """A pointer to a resource that the client may read."""

    uri: str
    name: str
    title: str | None = optional()
    description: str | None = optional()
    mime_type: str | None = optional()
    size: int | None = optional()
    annotations: Annotations | None = optional()
    icons: list[Icon] | None = optional(since=R2025_11_25)
    meta: JSONObject | None = optional(name="_meta")


ContentBlock: TypeAlias = (
    TextContent | ImageContent | AudioContent | EmbeddedResource | ResourceLink
)
