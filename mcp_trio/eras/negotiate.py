"""How a client finds out which era its server speaks, as a table (V8 to V10).

The client asks `server/discover` first, which no server mistakes for real work, and
falls back to `initialize` unless the answer proves the server stateless. Where the question
has ended the line, as it ends some programs, `initialize` goes over a new one; where HTTP
knows no such endpoint, over the older HTTP transport. No other request is ever sent while
guessing, so nothing is done twice.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterable
from typing import cast

import attrs

from mcp_trio.errors import (
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    ErrorCode,
    MCPError,
    ProtocolError,
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
    INITIALIZE_FIRST = "send initialize, over a line on which nothing else was said"
    EVENT_STREAM = "send initialize over HTTP+SSE"
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
    UNAUTHORIZED = "the server wants to know first who asks"
    NO_ENDPOINT = "HTTP 400, 404 or 405 without an error that only a stateless server sends"
    LINE_ENDED = "the line ended"
    OTHER = "any other error, or silence"


TABLE: dict[tuple[Step, Reply], Step] = {
    (Step.DISCOVER, Reply.RESULT): Step.STATELESS,
    (Step.DISCOVER, Reply.COMMON_STATELESS): Step.DISCOVER_AGAIN,
    (Step.DISCOVER, Reply.COMMON_HANDSHAKE): Step.INITIALIZE,
    (Step.DISCOVER, Reply.NO_ENDPOINT): Step.INITIALIZE,
    (Step.DISCOVER, Reply.LINE_ENDED): Step.INITIALIZE_FIRST,
    (Step.DISCOVER, Reply.OTHER): Step.INITIALIZE,
    (Step.DISCOVER_AGAIN, Reply.RESULT): Step.STATELESS,
    (Step.DISCOVER_AGAIN, Reply.COMMON_HANDSHAKE): Step.INITIALIZE,
    (Step.INITIALIZE, Reply.RESULT): Step.HANDSHAKE,
    (Step.INITIALIZE, Reply.NO_ENDPOINT): Step.EVENT_STREAM,
    (Step.INITIALIZE, Reply.LINE_ENDED): Step.INITIALIZE_FIRST,
    (Step.INITIALIZE_FIRST, Reply.RESULT): Step.HANDSHAKE,
    (Step.INITIALIZE_FIRST, Reply.NO_ENDPOINT): Step.EVENT_STREAM,
    (Step.EVENT_STREAM, Reply.RESULT): Step.HANDSHAKE,
}
"""Whatever is not here is final: the client gives up."""
ANEW = frozenset({Step.INITIALIZE_FIRST, Step.EVENT_STREAM})
"""Steps that need a line of their own."""


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


def classify(
    error: MCPError,
    ours: Iterable[Revision],
    *,
    status: int | None = None,
    ended: bool = False,
) -> Reply:
    """Read an error that answered an opening.

    An HTTP answer that is no message arrives as a `TransportError`; it is what an older
    server says (V9). A result that is none is a `ProtocolError`.

    Args:
        error: what came.
        ours: the revisions that this side speaks.
        status: of HTTP, where that was the line.
        ended: the line has ended.

    Raises:
        MCPError: the error itself, when it came from this side, or is about who we are.
    """
    if not isinstance(error, RemoteError | RequestTimeoutError | TransportError | ProtocolError):
        raise error
    if error.code is ErrorCode.UNAUTHORIZED or status in {401, 403}:
        return Reply.UNAUTHORIZED
    if error.rpc_code == UNSUPPORTED_VERSION:
        common = best_common(supported_by(error), ours)
        if common is None:
            return Reply.NOTHING_COMMON
        return Reply.COMMON_STATELESS if common.stateless else Reply.COMMON_HANDSHAKE
    if error.rpc_code in {HEADER_MISMATCH, MISSING_CAPABILITY}:
        return Reply.STATELESS_ERROR
    if ended:
        return Reply.LINE_ENDED
    return Reply.NO_ENDPOINT if status in {400, 404, 405} else Reply.OTHER


@attrs.frozen
class Known:
    """How a server was opened."""

    step: Step
    """The step to begin with the next time."""
    revision: Revision


def first_step(ours: Iterable[Revision], known: Known | None = None) -> Step:
    """How to begin: as it worked before, else by asking, if there is anything to ask about."""
    if known is not None:
        return known.step
    return Step.DISCOVER if any(r.stateless for r in ours) else Step.INITIALIZE_FIRST


class EraCache:
    """Remembers how servers were opened, so that nobody has to ask again (V10, X8).

    Each client has one, for the case that its server is started again. Share one between
    clients by giving it in `ClientOptions.eras`. It is kept per command line and per URL, which
    is finer than an origin: one origin may hold servers of both eras. What does not work any
    more is forgotten, and the server is asked again.
    """

    def __init__(self, size: int = 1000) -> None:
        """Make an empty one.

        Args:
            size: servers to remember; those not used for longest are forgotten.
        """
        self._size = size
        self._known: OrderedDict[str, Known] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, server: str, ours: Iterable[Revision]) -> Known | None:
        """How a server was opened, if that was in a revision of ours."""
        known = self._known.get(server)
        if known is None or known.revision not in ours:
            return None
        self._known.move_to_end(server)
        return known

    def learn(self, server: str, step: Step, revision: Revision) -> None:
        """Note that a server was opened by a step, in a revision."""
        begin = {Step.DISCOVER_AGAIN: Step.DISCOVER, Step.INITIALIZE: Step.INITIALIZE_FIRST}
        self._known[server] = Known(begin.get(step, step), revision)
        self._known.move_to_end(server)
        if len(self._known) > self._size:
            self._known.popitem(last=False)

    def forget(self, server: str) -> None:
        """Ask this server again the next time."""
        self._known.pop(server, None)


def nothing_common(ours: Iterable[Revision], theirs: Iterable[str]) -> VersionMismatchError:
    """The error of a client that shares no revision with its server."""
    supported = list(theirs)
    return VersionMismatchError(
        f"no common protocol revision: the server speaks {', '.join(supported)[:200] or 'none'}",
        data={"supported": supported, "requested": ", ".join(r.date for r in ours)},
    )
