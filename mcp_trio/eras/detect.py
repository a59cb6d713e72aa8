"""Which era a message belongs to, decided from the message alone (V5, V14).

Two pure functions: one for lines that stay open, one for HTTP, where a header and a
session id have their say.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from mcp_trio.eras.admission import meta_of
from mcp_trio.framing import headers as names
from mcp_trio.jsonrpc.messages import Message, Request
from mcp_trio.wire.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from mcp_trio.wire.revisions import BY_DATE


class Kind(enum.Enum):
    """What to do with a message."""

    STATELESS = "serve it by itself"
    HANDSHAKE = "serve it in its session"
    UNKNOWN_VERSION = "refuse it: the version header names no revision"


_PER_REQUEST = frozenset({PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO})


def is_stateless(request: Request) -> bool:
    """Tell whether a request carries any of the per-request fields of the stateless era.

    One of them is enough: a client that forgot the version is told so (B10), and not that
    it has to shake hands first.
    """
    return not _PER_REQUEST.isdisjoint(meta_of(request))


def detect_http(message: Message, headers: Mapping[str, str]) -> Kind:
    """Decide for one HTTP POST.

    A stateless `_meta` wins, then `initialize`, which settles the version itself whatever
    the header says. For the rest the header decides; without one it is the handshake era.
    """
    if isinstance(message, Request):
        if is_stateless(message):
            return Kind.STATELESS
        if message.method == "initialize":
            return Kind.HANDSHAKE
    version = headers.get(names.VERSION)
    if version is None:
        return Kind.HANDSHAKE
    revision = BY_DATE.get(version.strip())
    if revision is None:
        return Kind.UNKNOWN_VERSION
    return Kind.STATELESS if revision.stateless else Kind.HANDSHAKE
