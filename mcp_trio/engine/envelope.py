"""What travels between a transport and a session: a message, where it belongs, who sent it."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from mcp_trio.jsonrpc.messages import Message
from mcp_trio.secrets import Secret
from mcp_trio.wire.basic import RequestId


@attrs.frozen(kw_only=True)
class Principal:
    """Who calls, as established by the transport. Anonymous callers have none."""

    subject: str
    issuer: str | None = None
    """Who vouches for the subject, where several may: the same subject of another is another
    caller."""
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, object] = attrs.field(factory=dict[str, object])
    token: Secret | None = attrs.field(default=None, eq=False, repr=False)
    """The token that proved it. It is never sent on; an authorization server may exchange it for
    one of an upstream. Another token of the same caller makes no other caller."""

    expires: float | None = attrs.field(default=None, eq=False)
    """When that proof ends, in seconds since the epoch; None if it does not. What a connection
    goes on to be told because of it ends then."""

    @property
    def identity(self) -> str:
        """Tells callers apart. What belongs to a caller is bound to this, and to nothing else."""
        return repr((self.issuer, self.subject))


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
    principal: Principal | None = None
    """On the way in who sent it, where messages of one session come each with a proof of their
    own; elsewhere None, and the session itself knows who is there."""
