"""Private keys and what is signed with them: DPoP proofs and client assertions.

A proof shows that the holder of a token has the key it was issued for (RFC 9449); an assertion is
what a client shows in place of a password (RFC 7523).
"""

from __future__ import annotations

import hashlib
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import attrs
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from mcp_trio.auth.pkce import random_text, unpadded
from mcp_trio.errors import ConfigurationError
from mcp_trio.secrets import Secret

PROOF_ALGORITHM = "ES256"
ASSERTION_LIFETIME = 300
"""Seconds that a client assertion is good for."""

Algorithm: TypeAlias = Literal[
    "ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "Ed25519"
]
_KEYS: dict[str, type[ECKey | RSAKey | OKPKey]] = {
    "ES": ECKey,
    "RS": RSAKey,
    "PS": RSAKey,
    "Ed": OKPKey,
}


def _secret(value: str | Secret) -> Secret:
    return value if isinstance(value, Secret) else Secret(value)


class ProofKey:
    """The key that the tokens of one server are bound to."""

    def __init__(self, pem: Secret | None = None) -> None:
        """Make one.

        Args:
            pem: a private key on P-256 that was made before; a new one if None.

        Raises:
            ConfigurationError: `pem` is no such key.
        """
        try:
            made = ECKey.generate_key("P-256") if pem is None else ECKey.import_key(pem.reveal())
        except (ValueError, TypeError, JoseError) as error:
            raise ConfigurationError("the stored key for DPoP cannot be read") from error
        self._key = made
        self._public = made.as_dict(private=False)

    def __repr__(self) -> str:
        return "ProofKey(***)"

    @property
    def pem(self) -> Secret:
        """The private key, to be stored."""
        return Secret(self._key.as_pem(private=True).decode())

    def proof(
        self,
        method: str,
        url: str,
        *,
        now: float,
        nonce: str | None = None,
        token: Secret | None = None,
    ) -> str:
        """Make the proof for one request; each one is new.

        Args:
            method: of the request.
            url: of the request; query and fragment are left out.
            now: seconds since the epoch.
            nonce: the last one that the receiver asked for.
            token: sent with the request.
        """
        claims: dict[str, object] = {
            "jti": random_text(),
            "htm": method,
            "htu": urlsplit(url)._replace(query="", fragment="").geturl(),
            "iat": int(now),
        }
        if nonce is not None:
            claims["nonce"] = nonce
        if token is not None:
            claims["ath"] = unpadded(hashlib.sha256(token.reveal().encode()).digest())
        kept = {name: self._public[name] for name in ("kty", "crv", "x", "y")}
        header = {"typ": "dpop+jwt", "alg": PROOF_ALGORITHM, "jwk": kept}
        return jwt.encode(header, claims, self._key, algorithms=[PROOF_ALGORITHM])


@attrs.frozen(kw_only=True)
class PrivateKey:
    """The key a client proves itself with (private_key_jwt)."""

    pem: Secret = attrs.field(converter=_secret)
    """The private key, as PEM."""
    algorithm: Algorithm = "ES256"
    key_id: str | None = None
    """The `kid` under which the server knows it."""

    def __attrs_post_init__(self) -> None:
        """Raise `ConfigurationError` now if the key does not fit."""
        try:
            self.assertion("", "", now=0)
        except (ValueError, TypeError, JoseError) as error:
            # A TypeError is one that is encrypted.
            raise ConfigurationError(f"the private key is none for {self.algorithm}") from error

    def _key(self) -> ECKey | RSAKey | OKPKey:
        kind = _KEYS.get(self.algorithm[:2])
        if kind is None:
            raise ConfigurationError(f"{self.algorithm[:20]!r} is no algorithm for a private key")
        return kind.import_key(self.pem.reveal())

    def assertion(self, client_id: str, audience: str, *, now: float) -> Secret:
        """Make an assertion, each one new and good for `ASSERTION_LIFETIME` seconds."""
        header: dict[str, object] = {"typ": "JWT", "alg": self.algorithm}
        if self.key_id is not None:
            header["kid"] = self.key_id
        claims: dict[str, object] = {
            "iss": client_id,
            "sub": client_id,
            "aud": audience,
            "jti": random_text(),
            "iat": int(now),
            "exp": int(now) + ASSERTION_LIFETIME,
        }
        return Secret(jwt.encode(header, claims, self._key(), algorithms=[self.algorithm]))
