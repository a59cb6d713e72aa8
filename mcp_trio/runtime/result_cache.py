"""Good results of operations that only read, kept for a while: by revision, arguments and caller.

Nobody gets what was answered to another principal. Failures are never kept. What is kept is
copied when it is given, so nobody can change what the next one gets.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from typing import TypeAlias, cast

import attrs
import msgspec

from mcp_trio.catalog.operation import canonical
from mcp_trio.engine.envelope import Principal
from mcp_trio.runtime.expressions import Expression, ExpressionError
from mcp_trio.wire import ABSENT, CallToolResult, JSONObject

Key: TypeAlias = "tuple[str, bytes, bytes]"


@attrs.frozen(kw_only=True, eq=False)
class CachePolicy:
    """How long, and for whom."""

    ttl: float
    """Seconds."""
    vary: tuple[Expression, ...] = ()
    """What else the answer depends on: expressions over the input context."""
    claims: frozenset[str | None] = frozenset()
    """What the mappings read of the principal; None for the whole of it."""
    by_token: bool = False
    """Whether the upstream is asked with what the caller's token is exchanged for. Another token of
    the same caller may be allowed less."""

    def key(
        self, revision: str, inputs: Mapping[str, object], principal: Principal | None
    ) -> Key | None:
        """Under what an answer is kept; None if that cannot be told, so nothing is."""
        who = None if principal is None else principal.identity
        token = principal.token if principal is not None and self.by_token else None
        digest = None if token is None else hashlib.sha256(token.reveal().encode()).hexdigest()
        held = cast("JSONObject | None", inputs.get("principal")) or {}
        seen = held if None in self.claims else {str(n): held.get(str(n)) for n in self.claims}
        try:
            told: list[object] = [who, digest, seen]
            told += [expression.evaluate(inputs) for expression in self.vary]
            return revision, canonical(inputs["args"]), canonical(told)
        except (ExpressionError, msgspec.EncodeError, TypeError, ValueError, RecursionError):
            return None


@attrs.frozen
class _Kept:
    result: CallToolResult
    until: float
    size: int


class ResultCache:
    """The results that one server keeps. Belongs to the loop's thread; the oldest goes first."""

    MAX_ENTRIES = 10_000
    MAX_BYTES = 64 << 20

    def __init__(self) -> None:
        self._kept: dict[Key, _Kept] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: Key, now: float) -> CallToolResult | None:
        """A result that is still good; None if there is none."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if now >= kept.until:
            self._drop(key)
            return None
        return copy.deepcopy(kept.result)

    def keep(self, key: Key, result: CallToolResult, until: float) -> None:
        """Keep a result until a time of Trio's clock."""
        size = _size(result)
        self._drop(key)
        if size > self.MAX_BYTES // 16:
            return
        self._kept[key] = _Kept(copy.deepcopy(result), until, size)
        self._size += size
        while len(self._kept) > self.MAX_ENTRIES or self._size > self.MAX_BYTES:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: Key) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._size -= kept.size


def _size(result: CallToolResult) -> int:
    """About how many bytes a result takes."""
    content: list[JSONObject] = [attrs.asdict(block) for block in result.content]
    structured = None if result.structured_content is ABSENT else result.structured_content
    return len(msgspec.json.encode([structured, content], enc_hook=repr))
