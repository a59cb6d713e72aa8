"""The ways to a token, each as a flow: by a person's consent, or by what a program holds.

All of them begin where `discovery` has ended, name the resource in every request (RFC 8707), and
show what they hold to one authorization server only.
"""

from __future__ import annotations

import hmac
from typing import TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

import attrs

from mcp_trio.auth.discovery import Place
from mcp_trio.auth.keys import PrivateKey, ProofKey
from mcp_trio.auth.metadata import ServerMetadata
from mcp_trio.auth.pkce import METHOD, challenge_of, random_text
from mcp_trio.auth.registration import check_issuer, register
from mcp_trio.auth.steps import (
    Flow,
    get_assertion,
    load_client,
    open_redirect,
    save_client,
    visit,
)
from mcp_trio.auth.token_requests import (
    ERROR_CODE,
    Applicant,
    RefusedError,
    read_grant,
    request_token,
)
from mcp_trio.auth.tokens import Grant, RegisteredClient
from mcp_trio.errors import UnauthorizedError
from mcp_trio.secrets import shown_url

OFFLINE = "offline_access"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 - a name
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - a name
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"

Scopes: TypeAlias = tuple[str, ...]


@attrs.frozen(kw_only=True)
class Moment:
    """What a grant needs to know beside the place."""

    now: float
    """Seconds since the epoch."""
    scopes: Scopes = ()
    """To ask for; empty: none is named."""
    proof_key: ProofKey | None = None
    """To bind the token to."""


def pinned(client: RegisteredClient, server: ServerMetadata) -> Flow[RegisteredClient]:
    """Make sure that a client registered by hand is shown to one server only.

    Raises:
        UnauthorizedError: this is another server than the configured, or the first one.
    """
    if client.issuer is not None:
        return check_issuer(client, server)
    name = f"registered:{client.client_id}"
    first = yield from load_client(name)
    if first is None:
        first = RegisteredClient(client_id=client.client_id, issuer=server.issuer)
        yield from save_client(name, first)
    check_issuer(first, server)
    return client


@attrs.frozen(kw_only=True)
class Consent:
    """A person consents in a browser (authorization code with PKCE)."""

    registered: RegisteredClient | None = None
    document_url: str | None = None
    client_name: str = "mcp_trio"

    def known(self, place: Place, now: float) -> Flow[RegisteredClient | None]:
        """Who we are at a server, if that needs no registration."""
        if self.registered is not None:
            return (yield from pinned(self.registered, place.server))
        if self.document_url is not None and place.server.takes_client_urls:
            return RegisteredClient(client_id=self.document_url, auth_method="none")
        found = yield from load_client(place.server.issuer)
        expired = found is not None and (found.secret_expires_at or now) < now
        return None if expired else found

    def scopes(self, wanted: Scopes, server: ServerMetadata) -> Scopes:
        """Add what refresh tokens may need, where the server knows it, and only there (AC9)."""
        others = [scope for scope in wanted if scope != OFFLINE]
        return (*others, OFFLINE) if others and OFFLINE in server.scopes_supported else (*others,)

    def obtain(self, place: Place, moment: Moment) -> Flow[Grant]:
        """Send a person to the authorization server and redeem the code they come back with.

        Raises:
            UnauthorizedError: no consent, or the answer is not one to our question.
        """
        server = place.server
        if server.authorization_endpoint is None:
            raise UnauthorizedError(f"{shown_url(server.issuer)} has no authorization endpoint")
        if METHOD not in server.challenge_methods:
            raise UnauthorizedError(
                f"{shown_url(server.issuer)} does not support PKCE with {METHOD}"
            )
        redirect_uri = yield from open_redirect()
        fixed = self.registered is not None or (
            self.document_url is not None and server.takes_client_urls
        )
        client = (yield from self.known(place, moment.now)) if fixed else None
        if client is None:
            client = yield from register(
                server, redirect_uri, client_name=self.client_name, now=moment.now
            )
        verifier, state = random_text(), random_text()
        fields = {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": redirect_uri,
            "code_challenge": challenge_of(verifier),
            "code_challenge_method": METHOD,
            "state": state,
            "resource": place.resource,
        }
        if moment.scopes:
            fields["scope"] = " ".join(moment.scopes)
        if OFFLINE in moment.scopes:
            # Without it, OpenID Connect lets a server ignore the scope (core, section 11).
            fields["prompt"] = "consent"
        back = yield from visit(_with_query(server.authorization_endpoint, fields))
        code = read_redirect(back, redirect_uri, state, server)
        applicant = Applicant(client=client, proof_key=moment.proof_key, now=moment.now)
        redeemed = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
            "resource": place.resource,
        }
        try:
            document = yield from request_token(
                server.token_endpoint, server, redeemed, applicant, once=True
            )
        except RefusedError as error:
            if error.error == "invalid_client" and not fixed:
                # It has forgotten us; the next try registers anew.
                yield from save_client(server.issuer, None)
            raise
        return read_grant(document, place, applicant, moment.scopes)


def read_redirect(back: str, redirect_uri: str, state: str, server: ServerMetadata) -> str:
    """Take the code out of the URI that somebody came back to.

    Raises:
        UnauthorizedError: it is no answer to our question, or the answer is no.
    """
    try:
        came, meant = urlsplit(back), urlsplit(redirect_uri)
    except ValueError as fault:
        raise UnauthorizedError("the person came back to something that is no URL") from fault
    pairs = parse_qsl(came.query, keep_blank_values=True)
    fields = dict(pairs)
    same = (came.scheme, came.netloc, came.path) == (meant.scheme, meant.netloc, meant.path)
    if not same or len(fields) != len(pairs):
        raise UnauthorizedError("the answer of the authorization server came to another place")
    if not hmac.compare_digest(fields.get("state", "").encode(), state.encode()):
        raise UnauthorizedError("the answer of the authorization server is to another question")
    issuer = fields.get("iss")
    if issuer is None and server.names_itself:
        raise UnauthorizedError(f"the answer does not say that it is of {server.issuer[:200]}")
    if issuer is not None and issuer != server.issuer:
        # Compared to the letter (RFC 9207, section 2.4), and nothing else of it is looked at.
        raise UnauthorizedError(
            f"the answer is of {issuer[:200]!r}, the question was to {server.issuer[:200]!r}"
        )
    error = fields.get("error")
    if error is not None:
        told = error if ERROR_CODE.fullmatch(error) else "an error"
        raise UnauthorizedError(f"the authorization server says: {told}", data={"error": told})
    code = fields.get("code")
    if not code:
        raise UnauthorizedError("the answer of the authorization server has no code")
    return code


def _with_query(url: str, fields: dict[str, str]) -> str:
    parts = urlsplit(url)
    query = "&".join(filter(None, [parts.query, urlencode(fields)]))
    return parts._replace(query=query, fragment="").geturl()


class _Alone:
    """What the grants have in common that need no person: they ask anew, and never refresh."""

    def known(self, place: Place, now: float) -> Flow[RegisteredClient | None]:  # noqa: ARG002 - the contract
        """Who we are where a token is refreshed: nobody."""
        yield from ()
        return None

    def scopes(self, wanted: Scopes, server: ServerMetadata) -> Scopes:  # noqa: ARG002 - the contract
        """Nothing to add."""
        return wanted


@attrs.frozen(kw_only=True)
class Machine(_Alone):
    """A program with credentials of its own (client credentials)."""

    client: RegisteredClient
    private_key: PrivateKey | None = None

    def obtain(self, place: Place, moment: Moment) -> Flow[Grant]:
        """Ask for a token."""
        client = yield from pinned(self.client, place.server)
        applicant = Applicant(
            client=client,
            private_key=self.private_key,
            proof_key=moment.proof_key,
            now=moment.now,
        )
        fields = _scoped(place, moment, grant_type="client_credentials")
        return (yield from _redeem(place, moment, applicant, fields))


@attrs.frozen(kw_only=True)
class Enterprise(_Alone):
    """A person's identity token is exchanged at the company for one the MCP server's side takes."""

    client: RegisteredClient
    """At the MCP server's authorization server."""
    idp_client: RegisteredClient
    idp_token_endpoint: str

    def obtain(self, place: Place, moment: Moment) -> Flow[Grant]:
        """Exchange (RFC 8693), then redeem (RFC 7523)."""
        client = yield from pinned(self.client, place.server)
        subject = yield from get_assertion(place.server.issuer)
        company = ServerMetadata(
            issuer=self.idp_token_endpoint,
            token_endpoint=self.idp_token_endpoint,
            auth_methods=("client_secret_post",),
        )
        fields = _scoped(
            place,
            moment,
            grant_type=TOKEN_EXCHANGE,
            requested_token_type=ID_JAG,
            audience=place.server.issuer,
            subject_token=subject.reveal(),
            subject_token_type=ID_TOKEN,
        )
        document = yield from request_token(
            self.idp_token_endpoint,
            company,
            fields,
            Applicant(client=self.idp_client, now=moment.now),
        )
        assertion = document.get("access_token")
        if not isinstance(assertion, str) or document.get("issued_token_type") != ID_JAG:
            raise UnauthorizedError(
                f"{shown_url(self.idp_token_endpoint)} gave no identity assertion"
            )
        applicant = Applicant(client=client, proof_key=moment.proof_key, now=moment.now)
        redeemed = _scoped(place, moment, grant_type=JWT_BEARER, assertion=assertion)
        return (yield from _redeem(place, moment, applicant, redeemed))


@attrs.frozen(kw_only=True)
class Workload(_Alone):
    """A program proves what it is by a token of the platform it runs on (RFC 7523)."""

    client: RegisteredClient

    def obtain(self, place: Place, moment: Moment) -> Flow[Grant]:
        """Redeem the platform's token. One request: a refusal is final."""
        client = yield from pinned(self.client, place.server)
        assertion = yield from get_assertion(place.server.issuer)
        applicant = Applicant(client=client, proof_key=moment.proof_key, now=moment.now)
        fields = _scoped(place, moment, grant_type=JWT_BEARER, assertion=assertion.reveal())
        return (yield from _redeem(place, moment, applicant, fields))


Method: TypeAlias = Consent | Machine | Enterprise | Workload


def _scoped(place: Place, moment: Moment, **fields: str) -> dict[str, str]:
    scope = {"scope": " ".join(moment.scopes)} if moment.scopes else {}
    return {**fields, "resource": place.resource, **scope}


def _redeem(
    place: Place, moment: Moment, applicant: Applicant, fields: dict[str, str]
) -> Flow[Grant]:
    document = yield from request_token(
        place.server.token_endpoint, place.server, fields, applicant
    )
    return read_grant(document, place, applicant, moment.scopes)
