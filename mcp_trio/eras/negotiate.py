"""How a client finds out which era its server speaks, as a table (V8 to V10).

The client asks `server/discover` first, which no server mistakes for real work, and
falls back to `initialize` unless the answer proves the server stateless. No other
request is ever sent while guessing, so nothing is done twice.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import cast

from mcp_trio.errors import (
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    ErrorCode,
    MCPError,
    RemoteError,
    RequestTimeoutError,
    TransportError,
    VersionMismatchError,
)
from mcp_trio.wire.revisions import BY_DATE, Revision


class Step(enum.Enum):
    """What the client does next."""

    DISCOVER = "send server/discover"
    DISCOVER_AGAIN = "send server/discover in a revision the server named"
    INITIALIZE = "send initialize"
    STATELESS = "done: no session"
    HANDSHAKE = "done: a session"
    FAIL = "give up"


class Reply(enum.Enum):
    """What came back, as far as the choice is concerned."""

    RESULT = "a result"
    COMMON_STATELESS = "unsupported version, with a stateless one in common"
    COMMON_HANDSHAKE = "unsupported version, with only a handshake one in common"
    NOTHING_COMMON = "unsupported version, none in common"
    STATELESS_ERROR = "another error that only a stateless server sends"
    OTHER = "any other error, or silence"


TABLE: dict[tuple[Step, Reply], Step] = {
    (Step.DISCOVER, Reply.RESULT): Step.STATELESS,
    (Step.DISCOVER, Reply.COMMON_STATELESS): Step.DISCOVER_AGAIN,
    (Step.DISCOVER, Reply.COMMON_HANDSHAKE): Step.INITIALIZE,
    (Step.DISCOVER, Reply.NOTHING_COMMON): Step.FAIL,
    (Step.DISCOVER, Reply.STATELESS_ERROR): Step.FAIL,
    (Step.DISCOVER, Reply.OTHER): Step.INITIALIZE,
    (Step.DISCOVER_AGAIN, Reply.RESULT): Step.STATELESS,
    (Step.DISCOVER_AGAIN, Reply.COMMON_STATELESS): Step.FAIL,
    (Step.DISCOVER_AGAIN, Reply.COMMON_HANDSHAKE): Step.INITIALIZE,
    (Step.DISCOVER_AGAIN, Reply.NOTHING_COMMON): Step.FAIL,
    (Step.DISCOVER_AGAIN, Reply.STATELESS_ERROR): Step.FAIL,
    (Step.DISCOVER_AGAIN, Reply.OTHER): Step.FAIL,
    (Step.INITIALIZE, Reply.RESULT): Step.HANDSHAKE,
}
"""Whatever follows `initialize` other than a result is final."""


def following(step: Step, reply: Reply) -> Step:
    """The step after a reply."""
    return TABLE.get((step, reply), Step.FAIL)


def supported_by(error: MCPError) -> list[str]:
    """The versions that an unsupported-version error names."""
    supported = (error.data or {}).get("supported")
    if not isinstance(supported, list):
        return []
    return [name for name in cast("list[object]", supported) if isinstance(name, str)]


def best_common(names: Iterable[str], ours: Iterable[Revision]) -> Revision | None:
    """The newest of our revisions that the server names. `ours` is newest first."""
    theirs = {BY_DATE[name] for name in names if name in BY_DATE}
    return next((revision for revision in ours if revision in theirs), None)


def classify(error: MCPError, ours: Iterable[Revision]) -> Reply:
    """Read an error that answered `server/discover`.

    An HTTP answer that is no message arrives as a `TransportError`; it is what an older
    server says (V9). If it is the line that broke, `initialize` will find the same.

    Raises:
        MCPError: the error itself, when it came from this side, or is about who we are.
    """
    if isinstance(error, RequestTimeoutError | TransportError):
        return Reply.OTHER
    if not isinstance(error, RemoteError):
        raise error
    if error.rpc_code == UNSUPPORTED_VERSION:
        common = best_common(supported_by(error), ours)
        if common is None:
            return Reply.NOTHING_COMMON
        return Reply.COMMON_STATELESS if common.stateless else Reply.COMMON_HANDSHAKE
    if error.code is ErrorCode.UNAUTHORIZED:
        # Whatever is sent next is refused for the same reason.
        raise error
    if error.rpc_code in {HEADER_MISMATCH, MISSING_CAPABILITY}:
        return Reply.STATELESS_ERROR
    return Reply.OTHER


def nothing_common(ours: Iterable[Revision], theirs: Iterable[str]) -> VersionMismatchError:
    """The error of a client that shares no revision with its server."""
    supported = list(theirs)
    return VersionMismatchError(
        f"no common protocol revision: the server speaks {', '.join(supported)[:200] or 'none'}",
        data={"supported": supported, "requested": ", ".join(r.date for r in ours)},
    )
