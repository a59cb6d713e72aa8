"""Tokens for upstreams: of our own (client credentials) or on behalf of a caller (RFC 8693).

A token is kept until shortly before its end, and got anew when the upstream refuses it. The
caller's own token goes to the authorization server that exchanges it and nowhere else.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

import attrs
import trio

from mcp_trio.auth.discovery import Place
from mcp_trio.auth.keys import PrivateKey
from mcp_trio.auth.metadata import ServerMetadata
from mcp_trio.auth.outward import Outward
from mcp_trio.auth.steps import Answer, Ask, Flow
from mcp_trio.auth.token_requests import Applicant, RefusedError, read_grant, request_token
from mcp_trio.auth.tokens import Grant, RegisteredClient
from mcp_trio.engine.envelope import Principal
from mcp_trio.errors import ConfigurationError, UnauthorizedError
from mcp_trio.network_guard import is_loopback
from mcp_trio.runtime.stages import Stage, StageError
from mcp_trio.secrets import Secret

TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 - a name
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a name
LIFETIME = 300.0
"""Seconds that a token is kept of which the server does not say how long it lives."""
MAX_CALLERS = 10_000
"""Callers whose tokens are kept; the one that was asked for longest ago goes first."""


@attrs.frozen(kw_only=True)
class TokenEndpoint:
    """Where tokens come from, and as whom we ask for them."""

    url: str
    client_id: str
    client_secret: Secret | None = None
    private_key: PrivateKey | None = None
    """In place of a secret (private_key_jwt)."""
    auth_method: str = "client_secret_basic"
    """How the secret is shown: that, or `client_secret_post`."""
    scopes: tuple[str, ...] = ()
    audience: str | None = None
    resource: str | None = None
    subject_token_type: str | None = None
    """What kind of token a caller's is; None for tokens of our own."""
    allow_private: bool = False
    """Whether it may have an address that is not public."""

    def __attrs_post_init__(self) -> None:
        """Raise `ConfigurationError` unless there is exactly one proof, and a safe URL."""
        if (self.client_secret is None) is (self.private_key is None):
            raise ConfigurationError("a token endpoint needs either a secret or a private key")
        url = urlsplit(self.url)
        if not url.hostname or url.username is not None or url.fragment:
            raise ConfigurationError("token_url must be an https URL without a user name")
        if url.scheme != "https" and not (url.scheme == "http" and is_loopback(url.hostname)):
            raise ConfigurationError("token_url must be https, except on this machine")

    def secrets(self) -> tuple[Secret, ...]:
        """What must not be shown."""
        key = None if self.private_key is None else self.private_key.pem
        return tuple(secret for secret in (self.client_secret, key) if secret is not None)

    def fields(self, caller: Secret | None) -> dict[str, str]:
        """The form of a request, without the proof of who we are."""
        made = {"grant_type": "client_credentials"}
        if caller is not None:
            made = {
                "grant_type": TOKEN_EXCHANGE,
                "subject_token": caller.reveal(),
                "subject_token_type": self.subject_token_type or ACCESS_TOKEN,
            }
        if self.scopes:
            made["scope"] = " ".join(self.scopes)
        more = {"audience": self.audience, "resource": self.resource}
        return made | {name: value for name, value in more.items() if value is not None}


@attrs.define(eq=False)
class _Place:
    """The token of one caller, or our own."""

    grant: Grant | None = None
    asking: trio.Lock = attrs.field(factory=trio.Lock)
    """One request at a time; the others use what it brings, also where that is a failure."""
    failures: int = 0
    failure: UnauthorizedError | None = None
    """The latest of them."""


class Tokens:
    """The tokens from one endpoint. A resource of `Connections`.

    Cancelling a call that asks for a token leaves the others waiting for none: the next of them
    asks itself. A failure is that of everybody who waited for it.
    """

    def __init__(
        self,
        endpoint: TokenEndpoint,
        outward: Outward,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._endpoint = endpoint
        self._outward = outward
        self._clock = clock
        self._places: dict[bytes, _Place] = {}

    async def token(self, principal: Principal | None) -> Secret:
        """A token that is good at this moment.

        Raises:
            StageError: there is none to be had.
        """
        caller = self._caller(principal)
        place = self._place(caller)
        if self._is_good(place):
            return cast("Grant", place.grant).access_token
        failures = place.failures
        async with place.asking:
            if not self._is_good(place):
                if place.failures == failures:
                    await self._renew(place, caller)
                if place.failures != failures:
                    raise _no_token(cast("UnauthorizedError", place.failure))
            return cast("Grant", place.grant).access_token

    def refused(self, principal: Principal | None, token: Secret) -> None:
        """Take note that the upstream does not take a token; the next call asks for another."""
        place = self._place(self._caller(principal))
        if place.grant is not None and place.grant.access_token == token:
            place.grant = None

    async def aclose(self) -> None:
        """Close the sockets to the authorization server, and forget everything."""
        self._places.clear()
        await self._outward.__aexit__(None, None, None)

    def _caller(self, principal: Principal | None) -> Secret | None:
        if self._endpoint.subject_token_type is None:
            return None
        token = None if principal is None else principal.token
        if token is None:
            raise StageError(
                Stage.ADAPTER_EXECUTION,
                "the operation acts on behalf of its caller, who is not known by a token",
                sub="credentials",
                code="no_caller",
                step="operator",
            )
        return token

    def _place(self, caller: Secret | None) -> _Place:
        key = b"" if caller is None else hashlib.sha256(caller.reveal().encode()).digest()
        place = self._places.pop(key, None) or _Place()
        self._places[key] = place
        while len(self._places) > MAX_CALLERS:
            self._places.pop(next(iter(self._places)))
        return place

    def _is_good(self, place: _Place) -> bool:
        grant = place.grant
        return grant is not None and self._clock() < cast("float", grant.expires_at)

    async def _renew(self, place: _Place, caller: Secret | None) -> None:
        """Ask once. It goes well, or is one more failure."""
        try:
            place.grant = await self._ask(caller)
        except UnauthorizedError as error:
            place.failures += 1
            place.failure = error

    async def _ask(self, caller: Secret | None) -> Grant:
        endpoint, now = self._endpoint, self._clock()
        server = ServerMetadata(
            issuer=endpoint.url, token_endpoint=endpoint.url, auth_methods=(endpoint.auth_method,)
        )
        applicant = Applicant(
            client=RegisteredClient(
                client_id=endpoint.client_id,
                client_secret=endpoint.client_secret,
                auth_method=endpoint.auth_method,
            ),
            private_key=endpoint.private_key,
            now=now,
        )
        flow = request_token(endpoint.url, server, endpoint.fields(caller), applicant)
        document = await _performed(flow, self._outward)
        found = read_grant(document, Place(resource="", server=server), applicant, endpoint.scopes)
        return found if found.expires_at else attrs.evolve(found, expires_at=now + LIFETIME)


def _no_token(error: UnauthorizedError) -> StageError:
    refused = isinstance(error, RefusedError)
    return StageError(
        Stage.ADAPTER_EXECUTION,
        f"no credentials for the upstream: {error.message}",
        sub="credentials",
        code=error.error if isinstance(error, RefusedError) else "unavailable",
        retryable=not refused,
        step="operator" if refused else None,
    )


async def _performed(flow: Flow[dict[str, object]], outward: Outward) -> dict[str, object]:
    """Perform a flow that does nothing but ask."""
    answer: Answer | None = None
    try:
        while True:
            answer = await outward.ask(cast("Ask", flow.send(answer)))
    except StopIteration as stop:
        return cast("dict[str, object]", stop.value)
