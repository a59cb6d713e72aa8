"""The handshake as a table: what may come when (LC1, LC2).

All of its logic stands in `TABLE`; a pair that is not there is illegal and raises.
"""

from __future__ import annotations

import enum

from mcp_trio.errors import MCPError, NotInitializedError, ProtocolError


class Stage(enum.Enum):
    """How far a handshake has come."""

    NEW = "nothing yet"
    OPENED = "initialize was answered"
    READY = "the client said initialized"


class Event(enum.Enum):
    """What a client can do, as far as the handshake is concerned."""

    INITIALIZE = "initialize"
    INITIALIZED = "notifications/initialized"
    PING = "ping"
    OTHER = "any other request"


TABLE: dict[tuple[Stage, Event], Stage] = {
    (Stage.NEW, Event.INITIALIZE): Stage.OPENED,
    (Stage.NEW, Event.PING): Stage.NEW,
    (Stage.OPENED, Event.PING): Stage.OPENED,
    (Stage.OPENED, Event.INITIALIZED): Stage.READY,
    # A client may send its first call without waiting for the answer to `initialize`.
    (Stage.OPENED, Event.OTHER): Stage.OPENED,
    (Stage.READY, Event.PING): Stage.READY,
    (Stage.READY, Event.INITIALIZED): Stage.READY,
    (Stage.READY, Event.OTHER): Stage.READY,
}


def advance(stage: Stage, event: Event) -> Stage:
    """The stage after an event.

    Raises:
        NotInitializedError: the handshake has to come first.
        ProtocolError: the handshake is done already.
    """
    following = TABLE.get((stage, event))
    if following is None:
        raise _refusal(event)
    return following


def _refusal(event: Event) -> MCPError:
    if event is Event.INITIALIZE:
        return ProtocolError("Invalid request: already initialized")
    return NotInitializedError("Invalid request: initialize first")
