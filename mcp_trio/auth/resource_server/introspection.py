"""Tokens that only their authorization server can read: it is asked about each (RFC 7662)."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import cast

import attrs
import trio

from mcp_trio.abc import Credentials
from mcp_trio.auth.keys import PrivateKey
from mcp_trio.auth.resource_server.asking import Reach, check_url, read_document
from mcp_trio.auth.resource_server.claims import (
    SCOPE_CLAIMS,
    check_audience,
    check_times,
    principal_of,
)
from mcp_trio.auth.resource_server.signed import MAX_TOKEN
from mcp_trio.auth.steps import form
from mcp_trio.auth.token_requests import basic_proof, signed_proof
from mcp_trio.engine.envelope import Principal
from mcp_trio.errors import (
    ConfigurationError,
    MCPError,
    OverloadedError,
    TransportError,
    UnauthorizedError,
)
from mcp_trio.secrets import Secret

PATIENCE = 10.0
"""Seconds that a request waits for an answer, its turn included."""
AT_ONCE = 20
"""Questions under way; more wait, so that a flood of made-up tokens does not pass through us."""


@attrs.frozen
class _Answered:
    claims: Mapping[str, object]
    until: float
    """On Trio's clock."""


class _Memory:
    """Answers by the digest of their token, the oldest of them dropped first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._answers: OrderedDict[bytes, _Answered] = OrderedDict()
        self.asked: dict[bytes, trio.Event] = {}
        """Questions under way."""
        self.turns = trio.Semaphore(AT_ONCE)

    def find(self, digest: bytes) -> Mapping[str, object] | None:
        answered = self._answers.get(digest)
        if answered is not None and trio.current_time() < answered.until:
            return answered.claims
        self._answers.pop(digest, None)
        return None

    def keep(self, digest: bytes, claims: Mapping[str, object], seconds: float) -> None:
        if seconds <= 0:
            return
        self._answers[digest] = _Answered(claims, trio.current_time() + seconds)
        self._answers.move_to_end(digest)
        while len(self._answers) > self._most:
            self._answers.popitem(last=False)


@attrs.frozen(kw_only=True, eq=False)
class IntrospectedTokens:
    """Takes every token that an introspection endpoint calls active. An `Authenticator`.

    An answer is used again for `kept_for` seconds, and never beyond the end of the token, so a
    token that is revoked works at most that much longer. Requests with the same token wait for one
    question. If there is no answer within 10 seconds, requests get 503.
    """

    url: str
    """The endpoint."""
    issuer: str
    """The authorization server it belongs to: subjects are its own, and clients are told of it."""
    client_id: str
    """Who we are at the endpoint."""
    client_secret: Secret | None = attrs.field(default=None, repr=False)
    """What proves that, sent as Basic."""
    private_key: PrivateKey | None = attrs.field(default=None, repr=False)
    """Proves it in its place, by a signed assertion (RFC 7523)."""
    audiences: tuple[str, ...] = ()
    """What tokens may be meant for beside the URL of the endpoint."""
    trusts_audience: bool = False
    """Take answers that say nothing of the audience: for an authorization server that calls only
    those tokens active that are meant for whoever asks."""
    scope_claims: tuple[str, ...] = SCOPE_CLAIMS
    """Where scopes are."""
    kept_for: float = 60.0
    """Seconds."""
    max_kept: int = 10_000
    """Answers that are kept."""
    leeway: float = 30.0
    """Seconds by which clocks may differ."""
    reach: Reach = attrs.field(factory=Reach)
    """How the endpoint is reached."""
    clock: Callable[[], float] = attrs.field(default=time.time, repr=False)
    """The time, in seconds since the epoch."""
    _memory: _Memory = attrs.field(
        default=attrs.Factory(lambda self: _Memory(self.max_kept), takes_self=True),
        init=False,
        repr=False,
    )

    def __attrs_post_init__(self) -> None:
        """Raise `ConfigurationError` now if something does not fit."""
        check_url(self.url, "the introspection endpoint")
        check_url(self.issuer, "the issuer")
        if (self.client_secret is None) == (self.private_key is None):
            raise ConfigurationError("introspection needs either client_secret or private_key")

    @property
    def issuers(self) -> tuple[str, ...]:
        """The one."""
        return (self.issuer,)

    async def authenticate(self, credentials: Credentials) -> Principal | None:
        """Have a token looked at."""
        token = credentials.token
        if token is None:
            return None
        if len(token.reveal()) > MAX_TOKEN:
            raise UnauthorizedError("the token is too long")
        claims = await self._claims(token)
        if claims.get("active") is not True:
            raise UnauthorizedError("the token is not active")
        if claims.get("iss", self.issuer) != self.issuer:
            raise UnauthorizedError("the token is of another issuer")
        if "aud" in claims or not self.trusts_audience:
            check_audience(claims, {*self.audiences, *credentials.audiences})
        expires = check_times(claims, self.clock(), self.leeway)
        return principal_of(
            claims,
            self.issuer,
            token,
            scope_claims=self.scope_claims,
            expires=None if expires is None else expires + self.leeway,
        )

    async def _claims(self, token: Secret) -> Mapping[str, object]:
        memory = self._memory
        digest = hashlib.sha256(token.reveal().encode()).digest()
        with trio.move_on_after(PATIENCE):
            while True:
                known = memory.find(digest)
                if known is not None:
                    return known
                under_way = memory.asked.get(digest)
                if under_way is None:
                    return await self._ask(digest, token)
                # Whoever asks may be cancelled; then one of those who wait asks anew.
                await under_way.wait()
        raise OverloadedError("the token cannot be looked at now")

    async def _ask(self, digest: bytes, token: Secret) -> Mapping[str, object]:
        memory = self._memory
        over = memory.asked[digest] = trio.Event()
        try:
            async with memory.turns:
                claims = await self._answer(token)
            memory.keep(digest, claims, self._lasts(claims))
            return claims
        finally:
            del memory.asked[digest]
            over.set()

    async def _answer(self, token: Secret) -> Mapping[str, object]:
        fields = {"token": token.reveal(), "token_type_hint": "access_token"}
        own, headers = self._proof()
        answer = await self.reach.ask(form(self.url, {**fields, **own}, headers))
        try:
            return read_document(answer, self.url)
        except TransportError as error:
            raise OverloadedError("the token cannot be looked at now") from error

    def _proof(self) -> tuple[dict[str, str], dict[str, str]]:
        """Form fields and header fields that prove who asks."""
        if self.private_key is not None:
            return signed_proof(self.private_key, self.client_id, self.issuer, self.clock()), {}
        return {}, basic_proof(self.client_id, cast("Secret", self.client_secret))

    def _lasts(self, claims: Mapping[str, object]) -> float:
        try:
            expires = check_times(claims, self.clock(), self.leeway)
        except MCPError:
            return self.kept_for  # refused as long as it is kept, which cannot be wrong for long
        return self.kept_for if expires is None else min(self.kept_for, expires - self.clock())
