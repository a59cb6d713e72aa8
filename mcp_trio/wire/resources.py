"""Resources and their templates: definition, listing, reading and watching (O1 to O3)."""

from __future__ import annotations

import attrs
import msgspec

from mcp_trio.wire.basic import Icon, JSONObject
from mcp_trio.wire.content import Annotations, ResourceContents
from mcp_trio.wire.marks import defaulted, optional
from mcp_trio.wire.revisions import R2025_06_18, R2025_11_25, R2026_07_28


@attrs.frozen(kw_only=True)
class Resource:
    """One resource as it is listed."""

    uri: str
    name: str
    title: str | None = optional(since=R2025_06_18)
    description: str | None = optional()
    mime_type: str | None = optional()
    size: int | None = optional()
    annotations: Annotations | None = optional()
    icons: list[Icon] | None = optional(since=R2025_11_25)
    meta: JSONObject | None = optional(name="_meta", since=R2025_06_18)


@attrs.frozen(kw_only=True)
class ResourceTemplate:
    """Many resources, named by a URI template (RFC 6570)."""

    uri_template: str
    name: str
    title: str | None = optional(since=R2025_06_18)
    description: str | None = optional()
    mime_type: str | None = optional()
    annotations: Annotations | None = optional()
    icons: list[Icon] | None = optional(since=R2025_11_25)
    meta: JSONObject | None = optional(name="_meta", since=R2025_06_18)


@attrs.frozen(kw_only=True)
class ListResourcesResult:
    """One page of resources."""

    resources: list[Resource] | msgspec.Raw
    """A server may hand over the array already encoded for the revision at hand."""
    next_cursor: str | None = optional()
    ttl_ms: int = defaulted(0, since=R2026_07_28)
    cache_scope: str = defaulted("private", since=R2026_07_28)
    result_type: str = defaulted("complete", since=R2026_07_28)
    meta: JSONObject | None = optional(name="_meta")
    extra: JSONObject = attrs.field(factory=dict[str, object])


@attrs.frozen(kw_only=True)
class ListResourceTemplatesResult:
    """One page of templates."""

    resource_templates: list[ResourceTemplate] | msgspec.Raw
    """A server may hand over the array already encoded for the revision at hand."""
    next_cursor: str | None = optional()
    ttl_ms: int = defaulted(0, since=R2026_07_28)
    cache_scope: str = defaulted("private", since=R2026_07_28)
    result_type: str = defaulted("complete", since=R2026_07_28)
    meta: JSONObject | None = optional(name="_meta")
    extra: JSONObject = attrs.field(factory=dict[str, object])


@attrs.frozen(kw_only=True)
class ReadResourceParams:
    """A resource that is asked for; also the parameters of subscribing to it."""

    uri: str
    meta: JSONObject | None = optional(name="_meta")


@attrs.frozen(kw_only=True)
class ReadResourceResult:
    """What a resource holds; several contents are allowed, none is not a missing resource."""

    contents: list[ResourceContents]
    ttl_ms: int = defaulted(0, since=R2026_07_28)
    cache_scope: str = defaulted("private", since=R2026_07_28)
    result_type: str = defaulted("complete", since=R2026_07_28)
    meta: JSONObject | None = optional(name="_meta")
    extra: JSONObject = attrs.field(factory=dict[str, object])


@attrs.frozen(kw_only=True)
class ResourceUpdatedParams:
    """`notifications/resources/updated`: read it again."""

    uri: str
    meta: JSONObject | None = optional(name="_meta")
