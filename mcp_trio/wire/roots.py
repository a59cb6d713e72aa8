"""Roots: the places in the file system that a client lets a server work in (F8)."""

from __future__ import annotations

import attrs

from mcp_trio.wire.basic import JSONObject
from mcp_trio.wire.marks import optional
from mcp_trio.wire.revisions import R2025_06_18, R2025_11_25


@attrs.frozen(kw_only=True)
class Root:
    """One place, as a `file://` URI."""

    uri: str
    name: str | None = optional()
    meta: JSONObject | None = optional(name="_meta", since=R2025_06_18)


@attrs.frozen(kw_only=True)
class ListRootsResult:
    """All places; none is an answer too."""

    roots: list[Root]
    meta: JSONObject | None = optional(name="_meta", until=R2025_11_25)
