"""Access tokens that are JWTs of one issuer, verified with its published keys (RFC 9068)."""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs

from mcp_trio.abc import Credentials
from mcp_trio.auth.resource_server.asking import Reach, check_url
from mcp_trio.auth.resource_server.claims import (
    SCOPE_CLAIMS,
    check_audience,
    check_times,
    principal_of,
)
from mcp_trio.auth.resource_server.jwks import KeySource
from mcp_trio.auth.resource_server.signed import ASYMMETRIC, Signed, check_algorithms, take_apart
from mcp_trio.engine.envelope import Principal
from mcp_trio.errors import UnauthorizedError

_ACCESS_TOKEN = "at+jwt"  # noqa: S105 - the name of a type
_KINDS = frozenset({_ACCESS_TOKEN, "jwt", ""})
"""What a token may call itself: other kinds of JWT are no access tokens (RFC 8725, 3.11)."""
_PROFILE = ("client_id", "iat", "jti")
"""Claims that the profile demands beside those that are demanded of every token."""
MAX_KEY_ID = 256
"""Characters of a `kid`."""


@attrs.frozen(kw_only=True, eq=False)
class JWTTokens:
    """Takes the JWTs of one issuer. An `Authenticator`.

    Its keys are fetched when the first token comes, kept as long as the issuer says (a minute to
    a day), and looked at again for a key that is unknown, at most every 30 seconds. If the issuer
    cannot be reached its last keys are good for 12 hours; without any, requests get 503.
    """

    issuer: str
    """As tokens name it in `iss`, to the letter."""
    keys_url: str | None = None
    """Where its keys are (JWKS); None has its metadata say so."""
    audiences: tuple[str, ...] = ()
    """What tokens may be meant for beside the URL of the endpoint."""
    algorithms: tuple[str, ...] = ASYMMETRIC
    """That may have signed a token."""
    access_tokens_only: bool = False
    """Demand the profile of RFC 9068: `typ` is `at+jwt`, and `client_id`, `iat` and `jti` are
    there. Otherwise `JWT` and none will do, which many servers still issue."""
    scope_claims: tuple[str, ...] = SCOPE_CLAIMS
    """Where scopes are."""
    leeway: float = 30.0
    """Seconds by which clocks may differ."""
    reach: Reach = attrs.field(factory=Reach)
    """How the issuer is reached."""
    clock: Callable[[], float] = attrs.field(default=time.time, repr=False)
    """The time, in seconds since the epoch."""
    _keys: KeySource = attrs.field(
        default=attrs.Factory(
            lambda self: KeySource(self.issuer, self.keys_url, self.reach), takes_self=True
        ),
        init=False,
        repr=False,
    )

    def __attrs_post_init__(self) -> None:
        """Raise `ConfigurationError` now if something does not fit."""
        check_url(self.issuer, "the issuer")
        if self.keys_url is not None:
            check_url(self.keys_url, "the URL of the keys")
        check_algorithms(self.algorithms)

    @property
    def issuers(self) -> tuple[str, ...]:
        """The one."""
        return (self.issuer,)

    async def authenticate(self, credentials: Credentials) -> Principal | None:
        """Verify a token of this issuer."""
        token = credentials.token
        parts = None if token is None else take_apart(token.reveal())
        if token is None or parts is None or parts.claims.get("iss") != self.issuer:
            return None
        self._check_header(parts)
        # Before any key is looked for, so that what is over or another's costs nothing.
        check_audience(parts.claims, {*self.audiences, *credentials.audiences})
        expires = self._end(parts)
        keys = await self._keys.find(parts.key_id, parts.algorithm)
        if not keys:
            raise UnauthorizedError("the issuer has no key that fits the token")
        claims = parts.verified(keys)
        return principal_of(
            claims, self.issuer, token, scope_claims=self.scope_claims, expires=expires
        )

    def _check_header(self, parts: Signed) -> None:
        parts.check(self.algorithms, "the token")
        kinds = frozenset({_ACCESS_TOKEN}) if self.access_tokens_only else _KINDS
        if parts.kind not in kinds:
            raise UnauthorizedError("the token is of another kind than access tokens are")
        if self.access_tokens_only and not all(parts.claims.get(name) for name in _PROFILE):
            raise UnauthorizedError("the token lacks claims that access tokens have")
        if "kid" in parts.header and not 0 < len(parts.key_id or "") <= MAX_KEY_ID:
            raise UnauthorizedError("the token names its key in a way that is not accepted")

    def _end(self, parts: Signed) -> float:
        expires = check_times(parts.claims, self.clock(), self.leeway)
        if expires is None:
            raise UnauthorizedError("the token never expires")
        return expires + self.leeway
