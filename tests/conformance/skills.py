"""Loading a skill (SEP-2640) with the checks that a host owes its model.

An entry of `skills/list` says what each file of a skill has to be: its digest, its size and,
for `SKILL.md`, its frontmatter. Nothing is read before the skill is loaded, and what is not as
the entry says stops the loading. The frontmatter is read here as far as the suite goes, one
`key: value` a line; a host needs all of YAML, which is why this is no part of the package.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import mcp_trio


class ForgedSkillError(Exception):
    """A file of a skill is not what the entry says; nothing of the skill may be used."""


async def listed(client: mcp_trio.MCPClient) -> list[dict[str, Any]]:
    """The entries of all skills, page by page."""
    entries: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        page: Any = await client.call("skills/list", {"cursor": cursor} if cursor else None)
        entries += page["skills"]
        cursor = page.get("nextCursor")
        if cursor is None:
            return entries


async def load(client: mcp_trio.MCPClient, entry: dict[str, Any]) -> dict[str, bytes]:
    """Read every file of a skill, `SKILL.md` first, each one checked before the next is read.

    Raises:
        ForgedSkillError: a file is not what the entry says.
    """
    files: dict[str, bytes] = {}
    main_first = sorted(entry["resources"], key=lambda item: item["uri"] != entry["uri"])
    for item in main_first:
        data = await _read(client, item["uri"])
        if len(data) != item["size"]:
            raise ForgedSkillError(f"{item['uri']} has {len(data)} bytes, not {item['size']}")
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if digest != item["digest"]:
            raise ForgedSkillError(f"{item['uri']} has the digest {digest}")
        if item["uri"] == entry["uri"] and frontmatter(data.decode()) != entry["frontmatter"]:
            raise ForgedSkillError(f"{item['uri']} describes itself otherwise than its entry")
        files[item["uri"]] = data
    return files


async def _read(client: mcp_trio.MCPClient, uri: str) -> bytes:
    answer: Any = await client.call("resources/read", {"uri": uri})
    (content,) = answer["contents"]
    return base64.b64decode(content["blob"]) if "blob" in content else content["text"].encode()


def frontmatter(text: str) -> dict[str, str]:
    """The lines between the first two `---`; empty where there are none."""
    opening, *lines = text.split("\n")
    if opening != "---" or "---" not in lines:
        return {}
    pairs = (line.partition(":") for line in lines[: lines.index("---")])
    return {key.strip(): value.strip() for key, _, value in pairs}
