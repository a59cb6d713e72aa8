"""`[admin]`: the listener for operators."""

from __future__ import annotations

import attrs

from mcp_trio.config.addresses import HOST, HOSTS
from mcp_trio.framing.gate import GatePolicy
from mcp_trio.http.options import HTTPOptions
from mcp_trio.setting_rules import PORT


@attrs.frozen(kw_only=True)
class AdminSection:
    """`[admin]`: a listener for operators, apart from what clients reach. Off without this table.

    It asks nobody who he is.
    """

    host: str = attrs.field(default="127.0.0.1", validator=HOST)
    """Address to listen on."""
    port: int = attrs.field(default=8001, validator=PORT)
    """Port to listen on; 0 picks a free one."""
    allow_remote: bool = False
    """Listen beyond this machine, although nobody is asked who he is."""
    allowed_hosts: list[str] = attrs.field(factory=list[str], validator=HOSTS)
    """Host names served besides those of the address; `*` for every name."""

    def policy(self) -> GatePolicy:
        """Which Host values are served."""
        return HTTPOptions(allowed_hosts=frozenset(self.allowed_hosts)).gate(self.host)
