"""Proofs that whoever sends a token holds its key (DPoP, RFC 9449), judged."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from typing import cast

import attrs
from joserfc.errors import JoseError

from mcp_trio.abc import RequestHead
from mcp_trio.auth.pkce import unpadded
from mcp_trio.auth.resource_server.audience import normal_target
from mcp_trio.auth.resource_server.claims import number
from mcp_trio.auth.resource_server.signed import (
    ASYMMETRIC,
    Signed,
    check_algorithms,
    fits,
    public_key,
    take_apart,
)
from mcp_trio.errors import OverloadedError, UnauthorizedError
from mcp_trio.secrets import Secret

_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
MAX_ID = 1024
"""Characters of a `jti`."""
SWEEP = 1.0
"""Seconds between two searches for used proofs that are too old to be used again."""
NONCE_LIFETIME = 300.0
"""Seconds for which a nonce is the one to use; for as long again it is still accepted."""


class ProofError(UnauthorizedError):
    """The proof does not hold. `oauth_code` is what OAuth calls that."""

    def __init__(self, message: str, oauth_code: str = "invalid_dpop_proof") -> None:
        super().__init__(message)
        self.oauth_code = oauth_code


class Nonces:
    """Makes nonces and knows its own again, without keeping any.

    A nonce is the HMAC of the part of time it belongs to.
    """

    def __init__(self, key: Secret | None = None) -> None:
        """Make one.

        Args:
            key: shared by those who shall know each other's nonces; a new one if None.
        """
        self._key = secrets.token_bytes(32) if key is None else key.reveal().encode()

    def now(self, clock: float) -> str:
        """The nonce to use."""
        return self._of(int(clock // NONCE_LIFETIME))

    def knows(self, nonce: object, clock: float) -> bool:
        """Whether a nonce is the present one or the one before it."""
        part = int(clock // NONCE_LIFETIME)
        return isinstance(nonce, str) and any(
            hmac.compare_digest(nonce.encode(), self._of(each).encode())
            for each in (part, part - 1)
        )

    def _of(self, part: int) -> str:
        return unpadded(hmac.digest(self._key, part.to_bytes(8, "big"), "sha256"))


class _Seen:
    """Proofs that were used, until they are too old to be used again."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._swept = 0.0
        """When what is over was last looked for, which no flood makes us do all the time."""
        self._until: dict[bytes, float] = {}

    def add(self, digest: bytes, until: float, now: float) -> bool:
        """Note a proof; False if it was used before.

        Raises:
            OverloadedError: there is no room for more. To forget one would let it be used again.
        """
        if self._until.get(digest, 0) > now:
            return False
        if len(self._until) >= self._most and abs(now - self._swept) >= SWEEP:
            self._swept = now
            self._until = {each: end for each, end in self._until.items() if end > now}
        if len(self._until) >= self._most:
            raise OverloadedError("too many requests with a proof of possession")
        self._until[digest] = until
        return True


@attrs.frozen(kw_only=True, eq=False)
class DPoP:
    """What proofs of possession have to look like.

    Each one is good for one request. Used ones are remembered in this process; with several of
    them, `nonces` bound by time what one process does not know of another.
    """

    required: bool = False
    """Take no token that is not bound to a key. (One that is needs a proof in any case.)"""
    algorithms: tuple[str, ...] = ASYMMETRIC
    """That may have signed a proof."""
    window: float = 60.0
    """Seconds for which a proof can be used."""
    leeway: float = 30.0
    """Seconds by which clocks may differ."""
    nonces: Nonces | None = None
    """Demand nonces of the server's in proofs, so that none can be made in advance."""
    max_remembered: int = 200_000
    """Proofs remembered; beyond it requests with one get 503."""
    clock: Callable[[], float] = attrs.field(default=time.time, repr=False)
    """The time, in seconds since the epoch."""
    _seen: _Seen = attrs.field(
        default=attrs.Factory(lambda self: _Seen(self.max_remembered), takes_self=True),
        init=False,
        repr=False,
    )

    def __attrs_post_init__(self) -> None:
        """Raise `ConfigurationError` now if an algorithm is none for proofs."""
        check_algorithms(self.algorithms)

    def check(self, head: RequestHead, target: str, token: Secret, thumbprint: str) -> None:
        """Judge the proof of a request (RFC 9449, section 4.3).

        Args:
            head: of the request.
            target: its URL as the client sees it.
            token: that is sent with it.
            thumbprint: of the key the token is bound to.

        Raises:
            ProofError: the proof does not hold, or lacks our nonce.
            UnauthorizedError: it is no JWT that anybody accepts.
            OverloadedError: too many proofs are remembered.
        """
        shown = head.values("dpop")
        if len(shown) != 1:
            raise ProofError("exactly one DPoP proof is needed")
        parts = take_apart(shown[0].strip())
        if parts is None:
            raise ProofError("the DPoP proof is no JWT")
        parts.check(self.algorithms, "the DPoP proof")
        if parts.kind != "dpop+jwt":
            raise ProofError("the DPoP proof is a JWT of another kind")
        jwk = parts.header.get("jwk")
        if not isinstance(jwk, dict):
            raise ProofError("the DPoP proof has no key")
        claims = self._verified(parts, cast("dict[str, object]", jwk), thumbprint)
        self._check_claims(claims, head.method, target, token)
        if self.nonces is not None and not self.nonces.knows(claims.get("nonce"), self.clock()):
            raise ProofError("the DPoP proof needs a nonce of ours", "use_dpop_nonce")
        self._use(claims, thumbprint)

    def _verified(
        self, parts: Signed, jwk: Mapping[str, object], thumbprint: str
    ) -> Mapping[str, object]:
        if _PRIVATE & jwk.keys():
            raise ProofError("the DPoP proof shows a private key")
        try:
            key = public_key(jwk) if fits(jwk, parts.algorithm) else None
            if key is None:
                raise ProofError("the key of the DPoP proof is none for its algorithm")
            found = key.thumbprint()
        except (JoseError, ValueError, TypeError) as error:
            raise ProofError("the key of the DPoP proof cannot be read") from error
        if not hmac.compare_digest(found.encode(), thumbprint.encode()):
            raise ProofError("the token is bound to another key")
        return parts.verified([key])

    def _check_claims(
        self, claims: Mapping[str, object], method: str, target: str, token: Secret
    ) -> None:
        if claims.get("htm") != method:
            raise ProofError("the DPoP proof is for another method")
        url = claims.get("htu")
        if not isinstance(url, str) or normal_target(url) != normal_target(target):
            raise ProofError("the DPoP proof is for another URL")
        issued, now = number(claims, "iat"), self.clock()
        if issued is None:
            raise ProofError("the DPoP proof does not say when it was made")
        if not now - self.window - self.leeway <= issued <= now + self.leeway:
            raise ProofError("the DPoP proof is too old, or from the future")
        digest = unpadded(hashlib.sha256(token.reveal().encode()).digest())
        bound = claims.get("ath")
        if not isinstance(bound, str) or not hmac.compare_digest(bound.encode(), digest.encode()):
            raise ProofError("the DPoP proof is for another token")

    def _use(self, claims: Mapping[str, object], thumbprint: str) -> None:
        id_, issued = claims.get("jti"), number(claims, "iat") or 0.0
        if not isinstance(id_, str) or not 0 < len(id_) <= MAX_ID:
            raise ProofError("the DPoP proof has no id")
        digest = hashlib.sha256(f"{thumbprint} {id_}".encode()).digest()
        if not self._seen.add(digest, issued + self.window + self.leeway + 1, self.clock()):
            raise ProofError("the DPoP proof was used before")

    def nonce_headers(self) -> tuple[tuple[str, str], ...]:
        """The header field with the nonce to use, where one is demanded."""
        return () if self.nonces is None else (("dpop-nonce", self.nonces.now(self.clock())),)
