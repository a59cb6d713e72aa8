"""A small authorization server, to try things with: everything is in memory, and there is one user.

    python authorization_server.py [PORT]

It does what MCP asks of one: metadata (RFC 8414), registration (RFC 7591), the authorization code
with PKCE (S256 only), refresh tokens that are used once, client credentials, tokens that are JWTs
for one resource (RFC 8707, RFC 9068), its keys, and `iss` in its answers (RFC 9207). A page asks
the user, and no other site can show or send it. What a real one has beside: a log-in, a store,
limits, and TLS.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import json
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

import attrs
import trio
from joserfc import jwt
from joserfc.jwk import ECKey

from mcp_trio.http.serving import HTTPService

USER = "ann"
SCOPES = {"notes:read": "read your notes", "notes:write": "change your notes"}
CODE_LIFETIME, TOKEN_LIFETIME = 60, 300
MACHINE = {"client_id": "machine", "client_secret": "machine-secret", "scope": "notes:read"}
"""A client that was registered by hand."""


class RefusalError(Exception):
    """An error in the words of OAuth (RFC 6749, section 5.2)."""

    def __init__(self, error: str, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.answer = status, {"error": error, "error_description": why}


@attrs.frozen
class Wish:
    """What a client wants to be allowed, and by which way it hears of it."""

    client_id: str
    redirect_uri: str
    challenge: str
    resource: str
    scopes: tuple[str, ...]
    state: str | None
    until: float


@attrs.frozen
class Allowed:
    """What the user has allowed; behind a refresh token."""

    client_id: str
    resource: str
    scopes: tuple[str, ...]


class AuthorizationServer:
    """The endpoints, and what they remember."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        kid = secrets.token_hex(4)
        made = ECKey.generate_key("P-256").as_dict(private=True)
        self.key = ECKey.import_key({**made, "kid": kid})
        self.clients: dict[str, dict[str, Any]] = {MACHINE["client_id"]: dict(MACHINE)}
        self.asked: dict[str, Wish] = {}
        """Wishes that a page asks about, by the number in its form."""
        self.codes: dict[str, Wish] = {}
        self.refreshes: dict[str, Allowed] = {}

    # -- documents -----------------------------------------------------------------

    def metadata(self) -> dict[str, Any]:
        """RFC 8414."""
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "jwks_uri": f"{self.issuer}/jwks",
            "scopes_supported": [*SCOPES, "offline_access"],
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
            "token_endpoint_auth_methods_supported": [
                "none",
                "client_secret_basic",
                "client_secret_post",
            ],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }

    def jwks(self) -> dict[str, Any]:
        """RFC 7517."""
        return {"keys": [{**self.key.as_dict(private=False), "use": "sig", "alg": "ES256"}]}

    def register(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Take a new client in (RFC 7591)."""
        uris = document.get("redirect_uris")
        if not isinstance(uris, list) or not uris or not all(map(_is_redirect, uris)):
            raise RefusalError("invalid_redirect_uri", "https, or http on this machine")
        client = {
            "client_id": secrets.token_hex(8),
            "client_name": str(document.get("client_name", "somebody"))[:100],
            "redirect_uris": uris,
            "grant_types": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_method": "none",
        }
        self.clients[client["client_id"]] = client
        return client

    # -- the user ------------------------------------------------------------------

    def authorize(self, query: Mapping[str, str]) -> str:
        """The page that asks the user. What cannot be answered elsewhere is refused here."""
        client = self.clients.get(query.get("client_id", ""))
        if client is None or query.get("redirect_uri") not in client.get("redirect_uris", ()):
            raise RefusalError("invalid_request", "an unknown client, or another redirect URI")
        if query.get("response_type") != "code" or query.get("code_challenge_method") != "S256":
            raise RefusalError("invalid_request", "a code with a challenge by S256 is all there is")
        if not query.get("resource") or not query.get("code_challenge"):
            raise RefusalError("invalid_target", "for which resource, and where is the challenge?")
        wanted = query.get("scope", "").split() or ["notes:read"]
        wish = Wish(
            client_id=client["client_id"],
            redirect_uri=query["redirect_uri"],
            challenge=query["code_challenge"],
            resource=query["resource"],
            scopes=tuple(scope for scope in dict.fromkeys(wanted) if scope in SCOPES),
            state=query.get("state"),
            until=time.time() + CODE_LIFETIME,
        )
        number = secrets.token_urlsafe(16)
        self.asked[number] = wish
        told = "".join(f"<li>{html.escape(SCOPES[scope])}</li>" for scope in wish.scopes)
        return f"""<!doctype html><title>Consent</title>
<p>{html.escape(client["client_name"])} at {html.escape(urlsplit(wish.redirect_uri).netloc)}
wants to use {html.escape(wish.resource)} in the name of {USER}, and to</p><ul>{told}</ul>
<form method="post" action="/consent"><input type="hidden" name="number" value="{number}">
<button name="answer" value="yes">Allow</button>
<button name="answer" value="no">Deny</button></form>"""

    def consent(self, form: Mapping[str, str]) -> str:
        """Where to send the user after the answer."""
        wish = self.asked.pop(form.get("number", ""), None)
        if wish is None or wish.until < time.time():
            raise RefusalError("invalid_request", "nobody has asked, or it was too long ago")
        answer = {"iss": self.issuer}
        if wish.state is not None:
            answer["state"] = wish.state
        if form.get("answer") == "yes":
            code = secrets.token_urlsafe(24)
            self.codes[code] = attrs.evolve(wish, until=time.time() + CODE_LIFETIME)
            answer["code"] = code
        else:
            answer["error"] = "access_denied"
        mark = "&" if urlsplit(wish.redirect_uri).query else "?"
        return f"{wish.redirect_uri}{mark}{urlencode(answer)}"

    # -- tokens --------------------------------------------------------------------

    def token(self, form: Mapping[str, str], authorization: str | None) -> dict[str, Any]:
        """Give tokens for a code, a refresh token, or a secret."""
        client = self._client(form, authorization)
        match form.get("grant_type"):
            case "authorization_code":
                return self._redeem(client, form)
            case "refresh_token":
                return self._refresh(client, form)
            case "client_credentials":
                if "client_secret" not in client:
                    raise RefusalError("unauthorized_client", "a client with a secret is needed")
                return self._of_a_machine(client, form)
            case _:
                raise RefusalError("unsupported_grant_type", "code, refresh token or secret")

    def _client(self, form: Mapping[str, str], authorization: str | None) -> dict[str, Any]:
        name, secret = form.get("client_id", ""), form.get("client_secret", "")
        if authorization is not None and authorization.lower().startswith("basic "):
            try:
                pair = base64.b64decode(authorization[6:], validate=True).decode()
            except ValueError:
                raise RefusalError("invalid_client", "no name and secret", 401) from None
            name, secret = map(unquote_plus, pair.partition(":")[::2])
        client = self.clients.get(name)
        if client is None or not hmac.compare_digest(
            secret.encode(), client.get("client_secret", "").encode()
        ):
            raise RefusalError("invalid_client", "an unknown client, or a wrong secret", 401)
        return client

    def _redeem(self, client: dict[str, Any], form: Mapping[str, str]) -> dict[str, Any]:
        wish = self.codes.pop(form.get("code", ""), None)  # once, whatever comes of it
        verifier = form.get("code_verifier", "")
        shown = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=")
        if (
            wish is None
            or wish.until < time.time()
            or wish.client_id != client["client_id"]
            or wish.redirect_uri != form.get("redirect_uri")
            or not hmac.compare_digest(shown, wish.challenge.encode())
        ):
            raise RefusalError("invalid_grant", "the code is none, or is not yours")
        if form.get("resource") != wish.resource:
            raise RefusalError("invalid_target", "the code is for another resource")
        return self._allowed(Allowed(wish.client_id, wish.resource, wish.scopes))

    def _refresh(self, client: dict[str, Any], form: Mapping[str, str]) -> dict[str, Any]:
        allowed = self.refreshes.pop(form.get("refresh_token", ""), None)
        if allowed is None or allowed.client_id != client["client_id"]:
            raise RefusalError("invalid_grant", "the refresh token is none, or is not yours")
        return self._allowed(allowed)

    def _allowed(self, allowed: Allowed) -> dict[str, Any]:
        refresh = secrets.token_urlsafe(24)
        self.refreshes[refresh] = allowed
        made = self._made(USER, allowed.client_id, allowed.resource, allowed.scopes)
        return {**made, "refresh_token": refresh}

    def _of_a_machine(self, client: dict[str, Any], form: Mapping[str, str]) -> dict[str, Any]:
        if not form.get("resource"):
            raise RefusalError("invalid_target", "for which resource?")
        may = client["scope"].split()
        wanted = form.get("scope", "").split() or may
        scopes = tuple(scope for scope in may if scope in wanted)
        return self._made(client["client_id"], client["client_id"], form["resource"], scopes)

    def _made(
        self, subject: str, client_id: str, resource: str, scopes: tuple[str, ...]
    ) -> dict[str, Any]:
        """An access token for one resource (RFC 9068)."""
        now = int(time.time())
        header = {"typ": "at+jwt", "alg": "ES256", "kid": self.key.kid}
        claims = {
            "iss": self.issuer,
            "sub": subject,
            "aud": resource,
            "client_id": client_id,
            "scope": " ".join(scopes),
            "iat": now,
            "exp": now + TOKEN_LIFETIME,
            "jti": secrets.token_hex(8),
        }
        return {
            "access_token": jwt.encode(header, claims, self.key, algorithms=["ES256"]),
            "token_type": "Bearer",
            "expires_in": TOKEN_LIFETIME,
            "scope": " ".join(scopes),
        }

    # -- HTTP ----------------------------------------------------------------------

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            raise ValueError(f"an ASGI scope of an unknown type: {scope['type']!r}")
        body = await _body(receive)
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            status, answer = self._answer(scope, headers, body)
        except RefusalError as refusal:
            status, answer = refusal.answer
        fields = [(b"cache-control", b"no-store"), (b"access-control-allow-origin", b"*")]
        if status == 302:
            fields.append((b"location", answer.encode()))
            data = b""
        elif isinstance(answer, str):
            data = answer.encode()
            fields.append((b"content-type", b"text/html; charset=utf-8"))
            # No other site may show it in a frame, and its form goes nowhere else.
            policy = b"default-src 'none'; frame-ancestors 'none'"
            fields.append((b"content-security-policy", policy))
        else:
            data = json.dumps(answer).encode()
            fields.append((b"content-type", b"application/json"))
        fields.append((b"content-length", b"%d" % len(data)))
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": data})

    def _answer(self, scope: Any, headers: Mapping[str, str], body: bytes) -> tuple[int, Any]:
        match scope["method"], scope["path"]:
            case "GET", "/.well-known/oauth-authorization-server":
                return 200, self.metadata()
            case "GET", "/jwks":
                return 200, self.jwks()
            case "POST", "/register":
                return 201, self.register(_object(body))
            case "GET", "/authorize":
                return 200, self.authorize(_fields(scope["query_string"]))
            case "POST", "/consent":
                # A form of another site would carry that site's origin.
                if headers.get("origin", self.issuer) != self.issuer:
                    raise RefusalError("access_denied", "not from here", 403)
                return 302, self.consent(_fields(body))
            case "POST", "/token":
                return 200, self.token(_fields(body), headers.get("authorization"))
            case _:
                return 404, {"error": "not_found"}


def _is_redirect(uri: object) -> bool:
    try:
        parts = urlsplit(uri if isinstance(uri, str) else "")
    except ValueError:
        return False
    local = parts.scheme == "http" and parts.hostname in {"localhost", "127.0.0.1", "::1"}
    return (parts.scheme == "https" or local) and not parts.fragment


def _fields(data: bytes) -> dict[str, str]:
    """Form fields or a query; what stands there twice is nothing (RFC 6749, section 3.1)."""
    found = parse_qs(data.decode("latin-1"), keep_blank_values=True)
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RefusalError("invalid_client_metadata", "no JSON object")
    return found


async def _body(receive: Callable[[], Awaitable[Any]]) -> bytes:
    data = b""
    while len(data) < 65536:
        message = await receive()
        data += message.get("body", b"")
        if not message.get("more_body"):
            break
    return data


async def main(port: int) -> None:
    """Serve until interrupted."""
    app = AuthorizationServer(f"http://127.0.0.1:{port}")
    async with trio.open_nursery() as nursery:
        await nursery.start(HTTPService(app).run, "127.0.0.1", port)
        print(f"the authorization server is {app.issuer}", file=sys.stderr)


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 9000)
