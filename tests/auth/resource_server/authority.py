"""An authorization server without sockets, and what is signed in its name, good and bad."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from typing import Any
from urllib.parse import parse_qs

import httpx2
import trio
from joserfc.jwk import ECKey
from joserfc.jws import JWSRegistry

from mcp_trio.abc import Credentials, RequestHead
from mcp_trio.auth.resource_server import JWTTokens, Reach
from mcp_trio.auth.resource_server.audience import normal
from mcp_trio.secrets import Secret

ISSUER = "https://as.example"
RESOURCE = "https://mcp.example/mcp"
NOW = 1_800_000_000.0


def encode(value: object) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def digest(text: str) -> str:
    return encode(hashlib.sha256(text.encode()).digest())


def key(kid: str | None = None, curve: str = "P-256") -> ECKey:
    made = ECKey.generate_key(curve)
    return ECKey.import_key({**made.as_dict(private=True), **({"kid": kid} if kid else {})})


def head(
    *fields: tuple[str, str],
    method: str = "POST",
    url: str = RESOURCE,
    certificate: str | None = None,
) -> RequestHead:
    joined: dict[str, str] = {}
    for name, value in fields:
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return RequestHead(
        method=method, url=url, headers=joined, fields=fields, certificate=certificate
    )


def credentials(token: str | None, **more: Any) -> Credentials:
    return Credentials(
        head=more.pop("head", head()),
        audiences=frozenset({normal(RESOURCE)}),
        token=None if token is None else Secret(token),
        **more,
    )


class Authority:
    """Publishes keys, signs tokens, answers questions about tokens; and fails on demand."""

    def __init__(self, issuer: str = ISSUER) -> None:
        self.issuer = issuer
        self.keys = [key("k1")]
        self.asked: list[str] = []
        """Path of every request."""
        self.forms: list[dict[str, str]] = []
        self.headers: list[httpx2.Headers] = []
        self.answers: dict[str, Any] = {}
        """By path: what is answered in place of the truth, as status, JSON, or bytes."""
        self.cache_control: str | None = None
        self.hangs = False
        self.active: dict[str, dict[str, Any]] = {}
        """What introspection says, by token."""

    @property
    def http(self) -> httpx2.MockTransport:
        return httpx2.MockTransport(self._respond)

    @property
    def reach(self) -> Reach:
        return Reach(http=self.http)

    def tokens(self, **options: Any) -> JWTTokens:
        """What verifies this authority's tokens."""
        given = {"keys_url": f"{self.issuer}/jwks", "clock": lambda: NOW, **options}
        return JWTTokens(issuer=self.issuer, reach=self.reach, **given)

    async def _respond(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        self.asked.append(path)
        self.headers.append(request.headers)
        if self.hangs:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        if path in self.answers:
            answer = self.answers[path]
            if isinstance(answer, int):
                return httpx2.Response(answer)
            if isinstance(answer, bytes):
                return httpx2.Response(200, content=answer)
            return httpx2.Response(200, json=answer)
        headers = {} if self.cache_control is None else {"cache-control": self.cache_control}
        match path:
            case "/jwks":
                public = [each.as_dict(private=False) for each in self.keys]
                return httpx2.Response(200, json={"keys": public}, headers=headers)
            case "/.well-known/oauth-authorization-server":
                document = {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/jwks"}
                return httpx2.Response(200, json=document)
            case "/introspect":
                form = {
                    name: values[0] for name, values in parse_qs(request.content.decode()).items()
                }
                self.forms.append(form)
                return httpx2.Response(200, json=self.active.get(form["token"], {"active": False}))
            case _:
                return httpx2.Response(404)

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Good claims, changed; None takes one out."""
        good = {
            "iss": self.issuer,
            "sub": "ann",
            "aud": RESOURCE,
            "exp": NOW + 300,
            "iat": NOW - 10,
            "jti": uuid.uuid4().hex,
            "client_id": "client",
            "scope": "read write",
            **changes,
        }
        return {name: value for name, value in good.items() if value is not None}

    def sign(
        self,
        key_: Any = None,
        header: dict[str, Any] | None = None,
        claims: dict[str, Any] | None = None,
        **changes: Any,
    ) -> str:
        """A token of this authority, with any flaw."""
        signer = key_ or self.keys[0]
        fields = {"typ": "at+jwt", "alg": "ES256", "kid": signer.kid, **(header or {})}
        fields = {name: value for name, value in fields.items() if value is not None}
        said = self.claims(**changes) if claims is None else claims
        return raw_token(fields, said, signer)


def raw_token(header: dict[str, Any], claims: object, signer: Any, using: str | None = None) -> str:
    """Sign anything, as a library would refuse to; `using` is the true algorithm."""
    start = f"{encode(header)}.{encode(claims)}"
    algorithm = JWSRegistry.algorithms[using or header["alg"]]
    return f"{start}.{encode(algorithm.sign(start.encode(), signer))}"
