"""Signed JWTs taken apart and verified, with the few ways that are allowed (RFC 8725).

Whoever asks brings key and algorithms. Nothing in a token chooses its key: `jku`, `x5u`, `x5c`
and `jwk` are never looked at here, and there are neither unsigned nor symmetric tokens.
"""

from __future__ import annotations

import base64
import warnings
from collections.abc import Iterable, Mapping
from typing import TypeAlias, cast

import attrs
import msgspec
from joserfc import jws
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import ECKey, OKPKey, RSAKey

from mcp_trio.errors import ConfigurationError, UnauthorizedError

Key: TypeAlias = ECKey | OKPKey | RSAKey

MAX_TOKEN = 16 * 1024
"""Characters of a token; beyond it nothing is looked at."""
MAX_HEADER = 4096
"""Of its header, as base64: a proof carries a key there."""
_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_EDWARDS = frozenset({"EdDSA", "Ed25519"})
_RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
MAX_EXPONENT_BITS = 32
MIN_RSA_BITS, MAX_RSA_BITS = 2048, 8192
"""What is smaller can be broken; what is larger is for wasting our time, as a client may that
chooses the key of its proofs."""

ASYMMETRIC = (*sorted(_RSA), *sorted(_CURVES), *sorted(_EDWARDS))
"""All algorithms there are here."""


class _Registry(jws.JWSRegistry):
    max_header_length = MAX_HEADER
    max_payload_length = MAX_TOKEN


_REGISTRY = _Registry(algorithms=list(ASYMMETRIC), strict_check_header=False)


@attrs.frozen
class Signed:
    """A JWT taken apart. Nothing in it is true before `verified` has said so."""

    header: Mapping[str, object]
    claims: Mapping[str, object] = attrs.field(repr=False)
    _parts: jws.CompactSignature = attrs.field(repr=False)

    @property
    def algorithm(self) -> str:
        """What its header names."""
        return str(self.header.get("alg"))

    @property
    def kind(self) -> str:
        """The `typ` of its header, in lower case and without `application/`; empty for none."""
        named = self.header.get("typ")
        return named.lower().removeprefix("application/") if isinstance(named, str) else ""

    @property
    def key_id(self) -> str | None:
        """The `kid` of its header."""
        named = self.header.get("kid")
        return named if isinstance(named, str) else None

    def check(self, algorithms: Iterable[str], what: str) -> None:
        """Judge the header.

        Raises:
            UnauthorizedError: nobody accepts such a one here.
        """
        if "crit" in self.header or "b64" in self.header:  # nothing that we know could stand there
            raise UnauthorizedError(f"{what} demands something unknown")
        if self.algorithm not in frozenset(algorithms):
            raise UnauthorizedError(f"{what} is signed with an algorithm that is not accepted")

    def verified(self, keys: Iterable[Key]) -> Mapping[str, object]:
        """The claims, once one of the keys has verified them.

        Raises:
            UnauthorizedError: none does.
        """
        with warnings.catch_warnings():
            # `EdDSA` is an old name of Ed25519, and many servers still use it.
            warnings.simplefilter("ignore", SecurityWarning)
            for key in keys:
                try:
                    if jws.validate_compact(self._parts, key, registry=_REGISTRY):
                        return self.claims
                except (JoseError, ValueError, TypeError):
                    continue  # no key for this algorithm
        raise UnauthorizedError("the signature does not verify")


def take_apart(token: str) -> Signed | None:
    """Take a JWT apart; None if it is none at all."""
    if token.count(".") != 2 or len(token) > MAX_TOKEN:
        return None
    try:
        parts = jws.extract_compact(token.encode("ascii"), registry=_REGISTRY)
        claims = cast("object", msgspec.json.decode(parts.payload))
    except (JoseError, ValueError, TypeError, RecursionError):
        return None
    if not isinstance(claims, dict):
        return None
    header = cast("Mapping[str, object]", parts.protected)
    return Signed(header, cast("dict[str, object]", claims), parts)


def check_algorithms(algorithms: Iterable[str]) -> None:
    """Judge algorithms of the configuration.

    Raises:
        ConfigurationError: there are none, or one of them is not asymmetric.
    """
    named = tuple(algorithms)
    for name in named:
        if name not in ASYMMETRIC:
            raise ConfigurationError(
                f"{name[:20]!r} is no algorithm for tokens: {', '.join(ASYMMETRIC)}"
            )
    if not named:
        raise ConfigurationError("at least one algorithm has to be accepted")


def public_key(document: Mapping[str, object]) -> Key | None:
    """Read a public key of a JWK; None for one that cannot be used here.

    Raises:
        ValueError, TypeError, JoseError: it is broken.
    """
    kinds: dict[object, type[Key]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
    kind = kinds.get(document.get("kty"))
    if kind is None:
        return None
    if kind is RSAKey:
        bits = _bits(document.get("n"))
        if not MIN_RSA_BITS <= bits <= MAX_RSA_BITS or _bits(document.get("e")) > MAX_EXPONENT_BITS:
            return None
    return kind.import_key(cast("dict[str, str | list[str]]", dict(document)))


def _bits(number: object) -> int:
    """How long a number of a JWK is (RFC 7518, section 2); 0 for what is none."""
    if not isinstance(number, str):
        return 0
    raw = base64.urlsafe_b64decode(number + "=" * (-len(number) % 4))
    return int.from_bytes(raw, "big").bit_length()


def fits(document: Mapping[str, object], algorithm: str) -> bool:
    """Whether a JWK is one for signatures of this algorithm (RFC 7517, section 4)."""
    if document.get("use") not in {None, "sig"} or document.get("alg") not in {None, algorithm}:
        return False
    uses = document.get("key_ops")
    if isinstance(uses, list) and "verify" not in uses:
        return False
    if algorithm in _RSA:
        return document.get("kty") == "RSA"
    if algorithm in _EDWARDS:
        return document.get("kty") == "OKP" and document.get("crv") == "Ed25519"
    return document.get("kty") == "EC" and document.get("crv") == _CURVES.get(algorithm)
