"""The proof that who redeems a code is who asked for it (RFC 7636), and other random values."""

from __future__ import annotations

import base64
import hashlib
import secrets

METHOD = "S256"


def random_text() -> str:
    """A value nobody can guess: 43 URL-safe characters, as a verifier needs."""
    return secrets.token_urlsafe(32)


def challenge_of(verifier: str) -> str:
    """The S256 challenge of a verifier."""
    return unpadded(hashlib.sha256(verifier.encode()).digest())


def unpadded(data: bytes) -> str:
    """URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
