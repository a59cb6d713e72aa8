"""OAuth from a refusal to a token, as a generator: find, refresh or obtain.

The decisions that span the steps stand here: when a refresh token will do, which scopes are asked
for, whether the token is bound to a key.
"""

from __future__ import annotations

import attrs

from mcp_trio.auth.discovery import Place, find
from mcp_trio.auth.grants import Method, Moment, Scopes
from mcp_trio.auth.keys import PROOF_ALGORITHM, ProofKey
from mcp_trio.auth.steps import Flow, load_grant, save_client
from mcp_trio.auth.token_requests import Applicant, RefusedError, refresh
from mcp_trio.auth.tokens import Grant
from mcp_trio.errors import UnauthorizedError
from mcp_trio.framing.challenge import Challenge, bearing
from mcp_trio.secrets import shown_url


@attrs.frozen(kw_only=True)
class Situation:
    """What is known when a token is needed."""

    url: str
    """Of the MCP server."""
    now: float
    """Seconds since the epoch."""
    challenges: tuple[Challenge, ...] = ()
    """What the server answered."""
    held: Grant | None = None
    """The token that is not good any more, or not good enough."""
    refreshable: bool = True
    """Whether a refresh token may do: not where scopes are missing (AC8)."""
    scopes: Scopes = ()
    """That the program wants in any case."""
    dpop: bool | None = None
    """Bind tokens to a key: always, never, or as server and authorization server wish."""


@attrs.frozen(kw_only=True)
class Outcome:
    """A token and where it is from."""

    grant: Grant
    place: Place
    refreshed: bool = False


def acquire(method: Method, situation: Situation) -> Flow[Outcome]:
    """Get a token after a server refused a request.

    Raises:
        UnauthorizedError: there is none to be had.
    """
    held = situation.held
    challenge = bearing(situation.challenges)
    place = yield from find(situation.url, challenge, None if held is None else held.issuer)
    if held is not None and held.issuer != place.server.issuer:
        # Another authorization server: nothing of the old one is of use, or shown, there (AC6).
        held = None
    if held is not None and situation.refreshable:
        grant = yield from renew(method, place, held, situation.url, situation.now)
        if grant is not None:
            return Outcome(grant=grant, place=place, refreshed=True)
    named = challenge.scopes if challenge is not None else ()
    earlier = held.scopes if held is not None else ()
    wanted = tuple(dict.fromkeys([*earlier, *situation.scopes, *named]))
    wanted = wanted or place.scopes_supported or ()
    moment = Moment(
        now=situation.now,
        scopes=method.scopes(wanted, place.server),
        proof_key=_proof_key(situation, place, held),
    )
    grant = yield from method.obtain(place, moment)
    return Outcome(grant=grant, place=place)


def renew(method: Method, place: Place, held: Grant, url: str, now: float) -> Flow[Grant | None]:
    """Get the next token by a refresh token, without anybody's help. None if that cannot be.

    Args:
        method: the way to a token.
        place: where the token is from.
        held: the token.
        url: the server it is for.
        now: seconds since the epoch.

    Raises:
        UnauthorizedError: it cannot be said now whether it can be.
    """
    if held.refresh_token is None:
        return None
    client = yield from method.known(place, now)
    if client is None or client.client_id != held.client_id:
        return None
    key = None if held.dpop_key is None else ProofKey(held.dpop_key)
    try:
        return (yield from refresh(place, held, Applicant(client=client, proof_key=key, now=now)))
    except RefusedError as error:
        if error.error == "invalid_client":
            yield from save_client(place.server.issuer, None)
        # A refresh token is good once: another program that shares the store may have used it.
        other = yield from load_grant(url)
        return other if other is not None and _follows(other, held, now) else None


def _follows(other: Grant, held: Grant, now: float) -> bool:
    fresh = other.expires_at is None or other.expires_at > now
    same = (other.issuer, other.client_id) == (held.issuer, held.client_id)
    return fresh and same and other.access_token != held.access_token


def _proof_key(situation: Situation, place: Place, held: Grant | None) -> ProofKey | None:
    offered = {challenge.scheme.lower() for challenge in situation.challenges}
    able = PROOF_ALGORITHM in place.server.dpop_algorithms
    needed = place.dpop_required or ("dpop" in offered and "bearer" not in offered)
    if situation.dpop is False or not (situation.dpop or needed or ("dpop" in offered and able)):
        return None
    if not able:
        raise UnauthorizedError(
            f"{shown_url(place.server.issuer)} does not bind tokens to keys with {PROOF_ALGORITHM}"
        )
    return ProofKey(None if held is None else held.dpop_key)
