"""Requests to a token endpoint: who asks, with which proof, and what the answer means."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from typing import cast
from urllib.parse import quote_plus

import attrs

from mcp_trio.auth.discovery import Place
from mcp_trio.auth.keys import PrivateKey, ProofKey
from mcp_trio.auth.metadata import ServerMetadata
from mcp_trio.auth.steps import Answer, Flow, ask, form, read_object
from mcp_trio.auth.tokens import Grant, RegisteredClient, seconds, sendable
from mcp_trio.errors import UnauthorizedError
from mcp_trio.secrets import Secret, shown_url

LEEWAY = 30.0
"""Seconds before its end that a token counts as old; less for one that lives shorter."""
ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ERROR_CODE = re.compile(r"[\x20\x21\x23-\x5b\x5d-\x7e]{1,80}")
"""What an error code may consist of (RFC 6749, section 5.2). Descriptions are not repeated: they
may contain what was sent."""


_LATER = {408, 425, 429}
"""Statuses that refuse nothing: the same request may do later."""


class RefusedError(UnauthorizedError):
    """A token endpoint said no; `error` is its code."""

    def __init__(self, message: str, error: str) -> None:
        super().__init__(message, data={"error": error})
        self.error = error


@attrs.frozen(kw_only=True)
class Applicant:
    """Who asks for a token."""

    client: RegisteredClient
    private_key: PrivateKey | None = None
    proof_key: ProofKey | None = None
    """Tokens are bound to it, where given."""
    now: float

    def credentials(self, server: ServerMetadata) -> tuple[dict[str, str], dict[str, str]]:
        """The form fields and header fields that say and prove who asks.

        Raises:
            UnauthorizedError: the server takes no proof that we have.
        """
        client_id = self.client.client_id
        if self.private_key is not None:
            return signed_proof(self.private_key, client_id, server.issuer, self.now), {}
        if self.client.client_secret is None or self.client.auth_method == "none":
            return {"client_id": client_id}, {}
        secret = self.client.client_secret
        if self._method(server) == "client_secret_post":
            return {"client_id": client_id, "client_secret": secret.reveal()}, {}
        return {}, basic_proof(client_id, secret)

    def _method(self, server: ServerMetadata) -> str:
        known = ("client_secret_basic", "client_secret_post")
        if self.client.auth_method in known:
            return self.client.auth_method or ""
        found = next((method for method in known if method in server.auth_methods), None)
        if found is None:
            raise UnauthorizedError(
                f"the authorization server {shown_url(server.issuer)} takes no client secret, only "
                f"{', '.join(server.auth_methods)[:200]}"
            )
        return found


def signed_proof(key: PrivateKey, client_id: str, issuer: str, now: float) -> dict[str, str]:
    """The form fields that prove who asks by a signed assertion (RFC 7523).

    Args:
        key: that signs it.
        client_id: who asks.
        issuer: who is asked.
        now: seconds since the epoch.
    """
    return {
        "client_id": client_id,
        "client_assertion_type": ASSERTION_TYPE,
        "client_assertion": key.assertion(client_id, issuer, now=now).reveal(),
    }


def basic_proof(client_id: str, secret: Secret) -> dict[str, str]:
    """The header field that proves who asks by a secret (RFC 6749, section 2.3.1)."""
    pair = f"{quote_plus(client_id)}:{quote_plus(secret.reveal())}"
    return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def error_code(answer: Answer) -> str:
    """The error a server names, or what can be said of its answer otherwise."""
    try:
        code = read_object(answer, "the answer").get("error")
    except UnauthorizedError:
        code = None
    if isinstance(code, str) and ERROR_CODE.fullmatch(code):
        return code
    return answer.reason or f"status {answer.status}"


def request_token(
    url: str,
    server: ServerMetadata,
    fields: Mapping[str, str],
    applicant: Applicant,
    *,
    once: bool = False,
) -> Flow[dict[str, object]]:
    """Ask a token endpoint, a second time if it wants a nonce in the proof.

    Args:
        url: the endpoint.
        server: it belongs to.
        fields: of the grant.
        applicant: who asks.
        once: the fields hold something that is used up.

    Raises:
        RefusedError: it said no.
        UnauthorizedError: it said nothing that can be used.
    """
    nonce: str | None = None
    while True:
        own_fields, headers = applicant.credentials(server)
        if applicant.proof_key is not None:
            headers["dpop"] = applicant.proof_key.proof("POST", url, now=applicant.now, nonce=nonce)
        question = attrs.evolve(form(url, {**fields, **own_fields}, headers), settles=once)
        answer = yield from ask(question)
        if answer.status == 200:
            return read_object(answer, f"the answer of {shown_url(url)}")
        code = error_code(answer)
        fresh = answer.headers.get("dpop-nonce")
        if code == "use_dpop_nonce" and nonce is None and fresh and applicant.proof_key is not None:
            nonce = fresh
            continue
        if 400 <= answer.status < 500 and answer.status not in _LATER:
            raise RefusedError(f"{shown_url(url)} gives no token: {code}", code)
        raise UnauthorizedError(f"{shown_url(url)} gives no token: {code}")


def read_grant(
    document: dict[str, object], place: Place, applicant: Applicant, asked: tuple[str, ...]
) -> Grant:
    """Read what a token endpoint gave.

    Raises:
        UnauthorizedError: no token that we can use.
    """
    token, kind = document.get("access_token"), document.get("token_type")
    if not isinstance(token, str) or not sendable(token):
        raise UnauthorizedError("the token endpoint gave no access token")
    scheme = str(kind).lower()
    bound = scheme == "dpop" and applicant.proof_key is not None
    if scheme != "bearer" and not bound:
        raise UnauthorizedError("the token endpoint gave a token of a kind we did not ask for")
    if not bound and place.dpop_required:
        raise UnauthorizedError("the token endpoint gave a token that is not bound to our key")
    lifetime, scope = document.get("expires_in"), document.get("scope")
    expires_at = None
    if isinstance(lifetime, str) and lifetime.isdecimal():
        lifetime = float(lifetime)
    length = seconds(lifetime)
    if length is not None and 0 < length < math.inf:
        expires_at = applicant.now + length - min(LEEWAY, length / 10)
    granted = scope.split() if isinstance(scope, str) else []
    refresh = document.get("refresh_token")
    key = applicant.proof_key
    return Grant(
        issuer=place.server.issuer,
        resource=place.resource,
        client_id=applicant.client.client_id,
        access_token=Secret(token),
        token_type="DPoP" if bound else "Bearer",
        refresh_token=Secret(refresh) if isinstance(refresh, str) and refresh else None,
        expires_at=expires_at,
        scopes=tuple(dict.fromkeys([*asked, *granted])),
        dpop_key=key.pem if bound and key is not None else None,
    )


def refresh(place: Place, held: Grant, applicant: Applicant) -> Flow[Grant]:
    """Get the next token for one that has a refresh token.

    Raises:
        RefusedError: the refresh token is not taken any more.
        UnauthorizedError: the endpoint cannot be asked now.
    """
    fields = {
        "grant_type": "refresh_token",
        "refresh_token": cast("Secret", held.refresh_token).reveal(),
        "resource": place.resource,
    }
    endpoint = place.server.token_endpoint
    document = yield from request_token(endpoint, place.server, fields, applicant, once=True)
    grant = read_grant(document, place, applicant, held.scopes)
    # Whoever does not rotate it leaves it out (RFC 6749, section 6).
    return attrs.evolve(grant, refresh_token=grant.refresh_token or held.refresh_token)
