"""All tools of a server as one immutable listing, paged and encoded once per revision.

Functions come first, in the order of registration, then each provider's tools in its
own order. The cost of a page does not grow with the listing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

import msgspec

from mcp_trio.framing.param_headers import ParamHeader, ParamHeaderError, param_headers
from mcp_trio.jsonrpc import codec
from mcp_trio.server.providers import ToolEntry
from mcp_trio.wire import JSONObject, Revision, Tool
from mcp_trio.wire.converter import to_wire
from mcp_trio.wire.revisions import Structured


class Listing:
    """One state of the tool list."""

    def __init__(self, parts: Iterable[tuple[str, Mapping[str, ToolEntry]]]) -> None:
        """Merge.

        Args:
            parts: revision and entries of each contributor. On a name that comes twice
                the first contributor wins; a provider was told before that it is taken.
        """
        digest = hashlib.sha256()
        self.entries: dict[str, ToolEntry] = {}
        for revision, entries in parts:
            digest.update(revision.encode())
            digest.update(b"\0")
            for name, entry in entries.items():
                self.entries.setdefault(name, entry)
        self.revision = digest.hexdigest()[:16]
        self._names = tuple(self.entries)
        self._pages: dict[tuple[Revision, int, int], msgspec.Raw] = {}
        self._headers: dict[str, tuple[ParamHeader, ...]] = {}

    def __len__(self) -> int:
        return len(self._names)

    def page(self, revision: Revision, start: int, size: int) -> msgspec.Raw:
        """The encoded array of up to `size` tools from `start`, in a revision's terms."""
        key = (revision, start, size)
        page = self._pages.get(key)
        if page is None:
            page = self._pages[key] = codec.raw(list(self._project(revision, start, size)))
        return page

    def _project(self, revision: Revision, start: int, size: int) -> Iterator[JSONObject]:
        for name in self._names[start : start + size]:
            yield project(self.entries[name].definition, revision)

    def tool_headers(self, name: str) -> tuple[ParamHeader, ...]:
        """The mirrored arguments of a tool; none for an unknown one."""
        found = self._headers.get(name)
        if found is None:
            entry = self.entries.get(name)
            if entry is None:
                return ()
            try:
                found = param_headers(entry.definition.input_schema)
            except ParamHeaderError:
                found = ()  # clients drop such a tool; a call that comes anyway has no headers
            self._headers[name] = found
        return found


def project(tool: Tool, revision: Revision) -> JSONObject:
    """A definition in a revision's terms; an output schema it cannot have is left out."""
    plain = to_wire(tool, revision)
    output = plain.get("outputSchema")
    if (
        revision.structured is Structured.OBJECT
        and isinstance(output, dict)
        and cast("JSONObject", output).get("type") != "object"
    ):
        del plain["outputSchema"]
    return plain
