"""What a token says, judged: of whom, for whom, how long, with which scopes.

Used for JWTs and for the answers of introspection alike. Every text here may be told to the
client; none repeats the token or what stands in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import cast

from mcp_trio.auth.resource_server.audience import normal
from mcp_trio.engine.envelope import Principal
from mcp_trio.errors import UnauthorizedError
from mcp_trio.secrets import Secret

MAX_SUBJECT = 1024
"""Characters of a subject."""
SCOPE_CLAIMS = ("scope", "scp")
"""Where scopes are: RFC 9068 has `scope`, some servers say `scp`."""


def number(claims: Mapping[str, object], name: str) -> float | None:
    """A time of the claims, in seconds since the epoch; None if it is not there.

    Raises:
        UnauthorizedError: it is there and no number.
    """
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UnauthorizedError(f"the token's {name} is no time")
    return float(value)


def check_times(claims: Mapping[str, object], now: float, leeway: float) -> float | None:
    """Judge the times of a token, and give the one at which it ends, without leeway.

    Raises:
        UnauthorizedError: it is over, has not begun, or comes from the future.
    """
    expires = number(claims, "exp")
    if expires is not None and now >= expires + leeway:
        raise UnauthorizedError("the token has expired")
    begins = number(claims, "nbf")
    if begins is not None and now < begins - leeway:
        raise UnauthorizedError("the token is not valid yet")
    issued = number(claims, "iat")
    if issued is not None and now < issued - leeway:
        raise UnauthorizedError("the token was issued in the future")
    return expires


def check_audience(claims: Mapping[str, object], audiences: Iterable[str]) -> None:
    """Demand that a token is meant for us (RFC 8707, section 2; RFC 9068, section 4).

    Raises:
        UnauthorizedError: it is meant for somebody else, or for nobody.
    """
    told = claims.get("aud")
    named = cast("list[object]", told) if isinstance(told, list) else [told]
    ours = {normal(audience) for audience in audiences}
    if not any(isinstance(name, str) and normal(name) in ours for name in named):
        raise UnauthorizedError("the token is not meant for this server")


def scopes_in(claims: Mapping[str, object], names: Iterable[str] = SCOPE_CLAIMS) -> frozenset[str]:
    """The scopes of a token: a text with blanks, or a list."""
    found: set[str] = set()
    for name in names:
        value = claims.get(name)
        if isinstance(value, str):
            found.update(value.split())
        elif isinstance(value, list):
            found.update(item for item in cast("list[object]", value) if isinstance(item, str))
    return frozenset(found)


def principal_of(
    claims: Mapping[str, object],
    issuer: str,
    token: Secret,
    *,
    scope_claims: Iterable[str] = SCOPE_CLAIMS,
    expires: float | None,
) -> Principal:
    """Who a token is about.

    Args:
        claims: of the token.
        issuer: of the token.
        token: itself.
        scope_claims: where scopes are.
        expires: when it ends, with leeway.

    Raises:
        UnauthorizedError: it does not say.
    """
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT:
        raise UnauthorizedError("the token names no subject")
    scopes = scopes_in(claims, scope_claims)
    return Principal(
        subject=subject,
        issuer=issuer,
        scopes=scopes,
        claims=claims,
        token=token,
        expires=expires,
    )
