"""A small world for authorization: an MCP server, its authorization server, and a person.

The servers are one plain function from request to answer. It is asked by hand, through an
`httpx2` transport without sockets, or as an ASGI application.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

import attrs
import httpx2
import trio

from mcp_trio.auth.steps import (
    Answer,
    Ask,
    Flow,
    GetAssertion,
    LoadClient,
    LoadGrant,
    OpenRedirect,
    SaveClient,
    Visit,
)
from mcp_trio.secrets import Secret

REDIRECT = "http://127.0.0.1:1234/callback"
PRM = "/.well-known/oauth-protected-resource"
ASM = "/.well-known/oauth-authorization-server"
OIDC = "/.well-known/openid-configuration"
SECRET_TEXTS = ("code-", "access-", "refresh-", "s3cret")
"""What no text for people may contain."""


@attrs.define(slots=False)
class World:
    """The servers, and everything they were asked."""

    server: str = "https://mcp.example"
    url: str = "https://mcp.example/mcp"
    issuer: str = "https://as.example"
    needed: tuple[str, ...] = ()
    """Scopes that the MCP server wants to see."""
    challenge: str | None = None
    """What stands in the challenge beside what is needed."""
    scheme: str = "Bearer"
    expires_in: float | None = 3600
    rotates: bool = True
    granted: Callable[[list[str]], list[str]] | None = None
    dpop_nonce: str | None = None
    """That the token endpoint wants to see."""
    server_nonce: str | None = None
    """That the MCP server wants to see."""
    proofs: list[dict[str, Any]] = attrs.field(factory=list)
    """What was shown to the MCP server together with good tokens."""
    token_error: str | None = None
    asked: list[tuple[str, str]] = attrs.field(factory=list)
    """Method and URL of every request, without queries."""
    forms: list[dict[str, str]] = attrs.field(factory=list)
    """Of the token requests."""
    headers: list[dict[str, str]] = attrs.field(factory=list)
    """Of the token requests."""
    visits: list[dict[str, str]] = attrs.field(factory=list)
    registrations: list[dict[str, Any]] = attrs.field(factory=list)
    pages: dict[str, Any] = attrs.field(factory=dict)
    """Documents by URL: a dict, or a status, or a redirect target."""
    codes: dict[str, tuple[str, list[str]]] = attrs.field(factory=dict)
    tokens: dict[str, list[str]] = attrs.field(factory=dict)
    refreshes: dict[str, list[str]] = attrs.field(factory=dict)
    registration: dict[str, Any] = attrs.field(factory=lambda: {"client_id": "registered-1"})
    answer: dict[str, str | None] = attrs.field(factory=dict)
    """Changes to what the person brings back."""
    made: int = 0
    serves_consent: bool = False
    """Whether the authorization endpoint is there for browsers, where everybody consents."""

    def __attrs_post_init__(self) -> None:
        self.pages[f"{self.server}{PRM}/mcp"] = {
            "resource": self.url,
            "authorization_servers": [self.issuer],
        }
        self.publish(self.issuer)

    def publish(self, issuer: str, at: str | None = None, **changes: Any) -> dict[str, Any]:
        """Publish the metadata of an authorization server."""
        parts = urlsplit(issuer)
        base = f"{parts.scheme}://{parts.netloc}"
        document = {
            "issuer": issuer,
            "authorization_endpoint": f"{issuer.rstrip('/')}/authorize?kept=1",
            "token_endpoint": f"{issuer.rstrip('/')}/token",
            "registration_endpoint": f"{issuer.rstrip('/')}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            **changes,
        }
        document = {name: value for name, value in document.items() if value is not None}
        self.pages[at or f"{base}{ASM}{parts.path.rstrip('/')}"] = document
        return document

    @property
    def metadata(self) -> dict[str, Any]:
        """Of the first authorization server, to be changed."""
        return self.pages[f"{self.issuer}{ASM}"]

    @property
    def resource(self) -> dict[str, Any]:
        """The metadata of the MCP server, to be changed."""
        return self.pages[f"{self.server}{PRM}/mcp"]

    @property
    def paths(self) -> list[str]:
        """What was asked, for short."""
        return [f"{method} {urlsplit(url).path}" for method, url in self.asked]

    # -- the servers ---------------------------------------------------------------

    def respond(
        self, method: str, url: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(url)
        bare = f"{parts.scheme}://{parts.netloc}{parts.path}"
        self.asked.append((method, bare))
        page = self.pages.get(bare)
        if isinstance(page, str):
            return 302, {"location": page}, b""
        if isinstance(page, int):
            return page, {}, b""
        if page is not None:
            return 200, {"content-type": "application/json"}, json.dumps(page).encode()
        if bare == self.url:
            return self.refusal(headers) or (200, {"content-type": "text/plain"}, b"welcome")
        match method, parts.path.rpartition("/")[2]:
            case "POST", "register":
                self.registrations.append(json.loads(body))
                return 201, {}, json.dumps(self.registration).encode()
            case "POST", "token":
                return self._token(headers, body)
            case "GET", "authorize" if self.serves_consent:
                return 302, {"location": self.consent(url)}, b""
        return 404, {}, b"not here"

    def refusal(self, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes] | None:
        """What the MCP server has against a request."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        scopes = self.tokens.get(token) if scheme == self.scheme else None
        if scopes is not None and "dpop" in headers:
            self.proofs.append(proof_of(headers))
            if self.proofs[-1].get("nonce") != self.server_nonce:
                header = {"www-authenticate": 'DPoP error="use_dpop_nonce"'}
                return 401, {**header, "dpop-nonce": self.server_nonce or ""}, b""
        if scopes is not None and set(self.needed) <= set(scopes):
            return None
        found = [f'resource_metadata="{self.server}{PRM}/mcp"']
        if self.challenge is not None:
            found = [self.challenge] if self.challenge else []
        if self.needed:
            found.append(f'scope="{" ".join(self.needed)}"')
        if scopes is not None:
            found.append('error="insufficient_scope"')
        header = {"www-authenticate": f"{self.scheme} {', '.join(found)}".strip()}
        return (401 if scopes is None else 403), header, b"no"

    def _token(self, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        self.forms.append(form)
        self.headers.append(headers)
        if self.dpop_nonce is not None and proof_of(headers).get("nonce") != self.dpop_nonce:
            return _error("use_dpop_nonce", {"dpop-nonce": self.dpop_nonce})
        if self.token_error is not None:
            return _error(self.token_error)
        match form["grant_type"]:
            case "authorization_code":
                challenge, scopes = self.codes.pop(form["code"], ("", []))
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                if base64.urlsafe_b64encode(digest).decode().rstrip("=") != challenge:
                    return _error("invalid_grant")
            case "refresh_token":
                taken = form["refresh_token"]
                if taken not in self.refreshes:
                    return _error("invalid_grant")
                scopes = self.refreshes.pop(taken) if self.rotates else self.refreshes[taken]
            case "urn:ietf:params:oauth:grant-type:token-exchange":
                jag = "urn:ietf:params:oauth:token-type:id-jag"
                given = {"access_token": "jag-1", "issued_token_type": jag, "token_type": "N_A"}
                return 200, {}, json.dumps(given).encode()
            case _:
                scopes = form.get("scope", "").split()
        return 200, {}, json.dumps(self.issue(scopes)).encode()

    def issue(self, scopes: list[str]) -> dict[str, Any]:
        """Make a token."""
        self.made += 1
        scopes = self.granted(scopes) if self.granted is not None else scopes
        self.tokens[f"access-{self.made}"] = scopes
        given: dict[str, Any] = {"access_token": f"access-{self.made}", "token_type": self.scheme}
        if self.rotates or not self.refreshes:
            self.refreshes[f"refresh-{self.made}"] = scopes
            given["refresh_token"] = f"refresh-{self.made}"
        if self.expires_in is not None:
            given["expires_in"] = self.expires_in
        return given

    # -- the person ----------------------------------------------------------------

    def consent(self, url: str) -> str:
        """Consent at the authorization endpoint, and come back."""
        parts = urlsplit(url)
        fields = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.visits.append(fields)
        code = f"code-{len(self.visits)}"
        self.codes[code] = (fields["code_challenge"], fields.get("scope", "").split())
        back = {"code": code, "state": fields["state"], **self.answer}
        query = urlencode({name: value for name, value in back.items() if value is not None})
        return f"{fields['redirect_uri']}?{query}"

    async def visit(self, url: str) -> str:
        await trio.lowlevel.checkpoint()
        return self.consent(url)


def _error(code: str, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
    told = {"error": code, "error_description": "you sent s3cret"}
    return 400, headers or {}, json.dumps(told).encode()


def proof_of(headers: dict[str, str]) -> dict[str, Any]:
    """The claims of a DPoP proof, unchecked."""
    part = headers["dpop"].split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def basic(headers: dict[str, str]) -> list[str]:
    """Name and secret of Basic."""
    pair = base64.b64decode(headers["authorization"].removeprefix("Basic ")).decode()
    return [unquote_plus(part) for part in pair.split(":")]


class WorldTransport(httpx2.AsyncBaseTransport):
    """The servers as an httpx2 transport; each request takes a few turns of the loop."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.gates: dict[str, trio.Event] = {}
        """Methods with paths whose answers wait."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await trio.lowlevel.checkpoint()
        body = await request.aread()
        headers = {name.lower(): value for name, value in request.headers.items()}
        answer = self.world.respond(request.method, str(request.url), headers, body)
        await trio.lowlevel.checkpoint()
        gate = self.gates.get(f"{request.method} {request.url.path}")
        if gate is not None:
            await gate.wait()
        status, told, content = answer
        return httpx2.Response(status, headers=told, stream=Chunks(content))


class Chunks(httpx2.AsyncByteStream):
    """A body that takes a turn of the loop."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def __aiter__(self):
        await trio.lowlevel.checkpoint()
        yield self.content

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


def by_hand(flow: Flow[Any], world: World, kept: dict[str, Any] | None = None) -> Any:
    """Perform a flow without any loop.

    Args:
        flow: to perform.
        world: answers.
        kept: what is stored, by issuer.
    """
    kept = {} if kept is None else kept
    try:
        step = next(flow)
        while True:
            match step:
                case Ask():
                    sent = dict(step.headers)
                    status, headers, body = world.respond(
                        step.method, step.url, sent, step.body or b""
                    )
                    reply = Answer(status=status, headers=headers, body=body)
                case OpenRedirect():
                    reply = REDIRECT
                case Visit(url):
                    reply = world.consent(url)
                case LoadClient(issuer):
                    reply = kept.get(issuer)
                case LoadGrant(url):
                    reply = kept.get(f"grant {url}")
                case SaveClient(issuer, client):
                    kept[issuer] = client
                    reply = None
                case GetAssertion(audience):
                    reply = Secret(f"assertion for {audience}")
            step = flow.send(reply)
    except StopIteration as stop:
        return stop.value
