"""What travels between a transport and a session: a message and where it belongs."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from mcp_trio.jsonrpc.messages import Message
from mcp_trio.wire.basic import RequestId


@attrs.frozen
class Envelope:
    """One message on its way in or out."""

    message: Message
    related: RequestId | None = None
    """On the way out the peer's running request that this message belongs to, so that a
    transport with several streams can choose the right one. On the way in, beside a
    `Malformed` message, the request of ours whose answer was lost; beside a request, the
    call of ours on whose stream it came."""
    headers: Mapping[str, str] | None = None
    """Header fields that came with it or shall go with it, lower-case names; None where
    there are none."""
