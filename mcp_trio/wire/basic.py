"""The small shared types: ids, names of a program, icons, capabilities of both sides.

No methods and no messages; those stand in the module of their concept.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from mcp_trio.wire.marks import Before, defaulted, optional
from mcp_trio.wire.revisions import R2025_03_26, R2025_06_18, R2025_11_25, R2026_07_28

JSONObject: TypeAlias = dict[str, object]
RequestId: TypeAlias = int | str
"""Integer or string, never null (B2). `7` and `"7"` are two ids."""
ProgressToken: TypeAlias = int | str


@attrs.frozen(kw_only=True)
class Icon:
    """A picture of something, by `https:` or `data:` URI (IC1)."""

    src: str
    mime_type: str | None = optional()
    sizes: list[str] | None = optional()
    theme: str | None = optional()


@attrs.frozen(kw_only=True)
class Implementation:
    """Name and version of a program. For display only (V13)."""

    name: str
    version: str
    title: str | None = optional(since=R2025_06_18)
    description: str | None = optional(since=R2025_11_25)
    website_url: str | None = optional(since=R2025_11_25)
    icons: list[Icon] | None = optional(since=R2025_11_25)


def _bare(_details: JSONObject) -> JSONObject:
    """The declaration of a capability before it had details."""
    return {}


@attrs.frozen(kw_only=True)
class ClientCapabilities:
    """What a client can be asked for. Present means supported, the value holds details."""

    experimental: JSONObject | None = optional()
    roots: JSONObject | None = optional()
    sampling: JSONObject | None = optional(before=Before(R2025_11_25, _bare))
    elicitation: JSONObject | None = optional(since=R2025_06_18, before=Before(R2025_11_25, _bare))
    tasks: JSONObject | None = optional(since=R2025_11_25, until=R2025_11_25)
    extensions: JSONObject | None = optional(since=R2025_11_25)


@attrs.frozen(kw_only=True)
class ServerCapabilities:
    """What a server offers. Only what is registered is declared (V4)."""

    experimental: JSONObject | None = optional()
    logging: JSONObject | None = optional()
    completions: JSONObject | None = optional(since=R2025_03_26)
    prompts: JSONObject | None = optional()
    resources: JSONObject | None = optional()
    tools: JSONObject | None = optional()
    tasks: JSONObject | None = optional(since=R2025_11_25, until=R2025_11_25)
    extensions: JSONObject | None = optional(since=R2026_07_28)


@attrs.frozen(kw_only=True)
class EmptyResult:
    """A result that says only: done.

    `result_type` is, as in every result of a server, what kind of result it is (B6).
    """

    result_type: str = defaulted("complete", since=R2026_07_28)
    meta: JSONObject | None = optional(name="_meta")


@attrs.frozen(kw_only=True)
class EmptyParams:
    """Parameters of a method that takes none; `_meta` only."""

    meta: JSONObject | None = optional(name="_meta")
