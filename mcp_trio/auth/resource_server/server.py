"""`ResourceServer`: several ways to prove who calls, in order, and the challenges between them.

It reads what a request shows, has it judged, demands the rest of the proof where a token is bound
to a key or a certificate, and says to HTTP clients what would be accepted. How each kind of proof
is judged is written in the other modules.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import cast
from urllib.parse import urlsplit

import attrs

from mcp_trio.abc import Authenticator, ChallengeError, Credentials, RequestHead
from mcp_trio.auth.resource_server.audience import check_resource, normal
from mcp_trio.auth.resource_server.bearer import BEARER, DPOP, MalformedError, Shown, read_token
from mcp_trio.auth.resource_server.client_certificates import is_bound_to
from mcp_trio.auth.resource_server.dpop import DPoP, ProofError
from mcp_trio.auth.resource_server.protected_resource import NOT_LISTED, ProtectedResource
from mcp_trio.auth.resource_server.scopes import ScopeHierarchy
from mcp_trio.auth.urls import origin_of
from mcp_trio.engine.envelope import Principal
from mcp_trio.errors import ConfigurationError, UnauthorizedError
from mcp_trio.framing.challenge import write_challenge
from mcp_trio.session.middleware import check_scopes
from mcp_trio.wire import JSONObject

logger = logging.getLogger("mcp_trio.auth")


def _tuple(authenticators: Iterable[Authenticator]) -> tuple[Authenticator, ...]:
    return tuple(authenticators)


def _hierarchy(implies: ScopeHierarchy | Mapping[str, Iterable[str]]) -> ScopeHierarchy:
    return implies if isinstance(implies, ScopeHierarchy) else ScopeHierarchy(implies)


@attrs.frozen(kw_only=True, eq=False)
class ResourceServer:
    """An MCP endpoint as an OAuth protected resource. Goes into `HTTPOptions.auth`.

    Each request proves itself anew; sessions prove nothing (AR4). It keeps no socket, no task and
    no file open. What is remembered (keys, answers, used proofs) is in the parts it is made of,
    which endpoints of one server share.
    """

    resource: str
    """The URL of the endpoint as clients see it; tokens have to be meant for it (RFC 8707)."""
    authenticators: Sequence[Authenticator] = attrs.field(converter=_tuple)
    """Asked in this order until one knows who calls."""
    authorization_servers: tuple[str, ...] | None = None
    """Told to clients; None for the issuers of the authenticators. With none at all nothing is
    published, and clients have to know by themselves what to send."""
    scopes_supported: tuple[str, ...] | None = None
    """Told to clients, who ask for all of them when no challenge names others; None for those that
    everybody needs. Few are best: the rest is asked for when it is needed."""
    implies: ScopeHierarchy = attrs.field(factory=ScopeHierarchy, converter=_hierarchy)
    """Scopes that hold others: a mapping from a broad one to narrower ones."""
    anonymous: bool = False
    """Let requests without any proof pass, as nobody in particular; scopes they have not got are
    then answered with a challenge. A proof that does not hold is refused in any case."""
    dpop: DPoP = attrs.field(factory=DPoP)
    """How proofs of possession are judged."""
    name: str | None = None
    """What people call the resource, for its metadata."""
    documentation: str | None = None
    """URL of a page for people, for its metadata."""

    def __attrs_post_init__(self) -> None:
        """Raise `ConfigurationError` now if something does not fit."""
        check_resource(self.resource)
        if not self.authenticators:
            raise ConfigurationError("there has to be at least one authenticator")
        check_scopes(self.scopes_supported or (), "scopes_supported")
        for scope, narrower in self.implies.implies.items():
            check_scopes({scope, *narrower}, "implies")

    # -- the guard's contract --------------------------------------------------------

    async def identify(self, head: RequestHead, scopes: frozenset[str]) -> Principal | None:
        """Say who sends a request; see `mcp_trio.abc.ResourceGuard`."""
        try:
            shown = read_token(head)
        except MalformedError as error:
            raise self._refused("invalid_request", str(error), scopes, status=400) from None
        token, scheme = (None, BEARER) if shown is None else (shown.token, shown.scheme)
        credentials = Credentials(
            head=head, audiences=frozenset({normal(self.resource)}), token=token
        )
        try:
            principal = await self._ask(credentials)
            if principal is not None:
                self._check_binding(principal, head, shown)
        except ChallengeError:
            raise
        except UnauthorizedError as error:
            logger.debug("a proof was refused: %s", error.message)
            told = error.oauth_code if isinstance(error, ProofError) else "invalid_token"
            raise self._refused(told, error.message, scopes, scheme=scheme) from None
        if principal is not None:
            return attrs.evolve(principal, scopes=self.implies.expand(principal.scopes))
        if shown is not None:
            told = "nobody here knows such a token"
            raise self._refused("invalid_token", told, scopes, scheme=scheme)
        if self.anonymous:
            return None
        raise self._refused(None, "Prove who you are", scopes)

    def lacking(self, scopes: Iterable[str], *, known: bool) -> ChallengeError:
        """The refusal of a request that needs all of these scopes."""
        if not known:
            return self._refused(None, "Prove who you are", scopes)
        return self._refused("insufficient_scope", "more scopes are needed", scopes, status=403)

    def document(self, scopes: frozenset[str]) -> JSONObject | None:
        """The protected-resource metadata; None if there is no authorization server."""
        published = self._published
        return None if published is None else published.document(self.implies.least(scopes))

    def moved(self, path: str, to: str) -> ResourceServer:
        """The same for another endpoint of the server; what is remembered is shared."""
        own, old = self.resource.rstrip("/"), path.rstrip("/")
        if not own.endswith(old):
            raise ConfigurationError(f"the resource {self.resource} does not end with {path}")
        return attrs.evolve(self, resource=own.removesuffix(old) + to.rstrip("/"))

    # -- parts -----------------------------------------------------------------------

    @property
    def _published(self) -> ProtectedResource | None:
        servers = self.authorization_servers
        if servers is None:
            named = [issuer for each in self.authenticators for issuer in each.issuers]
            servers = tuple(dict.fromkeys(named))
        if not servers:
            return None
        return ProtectedResource(
            resource=self.resource,
            authorization_servers=servers,
            scopes_supported=self.scopes_supported,
            name=self.name,
            documentation=self.documentation,
            dpop_algorithms=self.dpop.algorithms,
            dpop_required=self.dpop.required,
        )

    async def _ask(self, credentials: Credentials) -> Principal | None:
        for authenticator in self.authenticators:
            principal = await authenticator.authenticate(credentials)
            if principal is not None:
                return principal
        return None

    def _check_binding(self, principal: Principal, head: RequestHead, shown: Shown | None) -> None:
        """Demand the rest of the proof for a token that is bound to something (RFC 7800).

        Raises:
            UnauthorizedError: it is missing or does not hold.
            OverloadedError: it cannot be judged now.
        """
        if shown is None:
            return
        bound = principal.claims.get("cnf")
        if bound is None:
            if shown.scheme == DPOP:
                raise UnauthorizedError("the token is not bound to a key")
            if self.dpop.required and principal.token is not None:
                raise UnauthorizedError("the token has to be bound to a key")
            return
        known: Mapping[str, object] = {}
        if isinstance(bound, Mapping):
            known = cast("Mapping[str, object]", bound)
        if not known or known.keys() - {_KEY, _CERTIFICATE}:
            raise UnauthorizedError("the token is bound to something unknown")
        if (_KEY in known) != (shown.scheme == DPOP):
            raise UnauthorizedError(
                "the token is bound to a key, and has to be sent with a proof"
                if _KEY in known
                else "the token is not bound to a key"
            )
        if _CERTIFICATE in known and not is_bound_to(known[_CERTIFICATE], head.certificate):
            raise UnauthorizedError("the token is bound to another certificate")
        if _KEY in known:
            self.dpop.check(head, self._target(head), shown.token, str(known[_KEY]))

    def _target(self, head: RequestHead) -> str:
        """The URL of a request as the client sees it, though a proxy may have changed it."""
        seen, own = urlsplit(head.url).path, urlsplit(self.resource).path
        path = own if own.endswith(seen) else seen
        return f"{origin_of(self.resource)}{path}"

    def _refused(
        self,
        error: str | None,
        text: str,
        scopes: Iterable[str],
        *,
        status: int = 401,
        scheme: str = BEARER,
    ) -> ChallengeError:
        """A refusal with its challenge (RFC 6750, section 3; RFC 9728, section 5.1).

        Args:
            error: what is wrong with the proof; None if there was none.
            text: the same for people.
            scopes: that the request needs.
            status: of the answer.
            scheme: with which the proof was sent.
        """
        parameters: dict[str, str] = {}
        if error is not None:
            parameters = {"error": error, "error_description": text}
        named = [scope for scope in self.implies.least(scopes) if scope not in NOT_LISTED]
        if named:
            parameters["scope"] = " ".join(named)
        published = self._published
        if published is not None:
            parameters["resource_metadata"] = published.url
        if self.dpop.required or scheme == DPOP:
            scheme, parameters["algs"] = DPOP, " ".join(self.dpop.algorithms)
        nonce = self.dpop.nonce_headers() if scheme == DPOP else ()
        challenges = (write_challenge(scheme, parameters),)
        data = {"requiredScopes": named} if error == "insufficient_scope" else None
        return ChallengeError(text, status=status, challenges=challenges, headers=nonce, data=data)


_KEY, _CERTIFICATE = "jkt", "x5t#S256"
"""What a token may be bound to: a key (RFC 9449) or a certificate (RFC 8705)."""
