"""Who calls, in the words of logs and of the admin listener."""

from __future__ import annotations

from mcp_trio.engine.envelope import Principal
from mcp_trio.telemetry.plain_text import cut
from mcp_trio.wire import JSONObject


def who_calls(principal: Principal | None) -> JSONObject:
    """A principal, and the issuer that vouches for it: a subject means nothing without."""
    if principal is None:
        return {"principal": None, "issuer": None}
    return {"principal": cut(principal.subject), "issuer": cut(principal.issuer)}


def client_name(info: JSONObject | None) -> str | None:
    """What a client calls itself, as it said it; None if it has not said."""
    told = [] if info is None else [info.get("name"), info.get("version")]
    return cut(" ".join(part for part in told if isinstance(part, str) and part)) or None
