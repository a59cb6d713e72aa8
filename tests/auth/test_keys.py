"""What is signed: proofs and assertions, checked with the public key as a receiver does."""

import base64
import hashlib
import json

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from mcp_trio.auth import PrivateKey, Secret
from mcp_trio.auth.keys import ProofKey
from mcp_trio.errors import ConfigurationError


def pem(key):
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def header_of(token):
    part = token.split(".")[0]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def test_a_proof_is_checked_with_the_key_it_carries():
    proof = ProofKey().proof(
        "POST", "https://h/mcp?a=b#c", now=5.7, nonce="n", token=Secret("access")
    )
    header = header_of(proof)
    assert (header["typ"], header["alg"]) == ("dpop+jwt", "ES256")
    assert set(header["jwk"]) == {"kty", "crv", "x", "y"}
    claims = jwt.decode(proof, ECKey.import_key(header["jwk"]), algorithms=["ES256"]).claims
    digest = hashlib.sha256(b"access").digest()
    assert claims.pop("jti")
    assert claims == {
        "htm": "POST",
        "htu": "https://h/mcp",
        "iat": 5,
        "nonce": "n",
        "ath": base64.urlsafe_b64encode(digest).decode().rstrip("="),
    }


def test_each_proof_is_new_and_a_stored_key_is_the_same_key():
    key = ProofKey()
    again = ProofKey(key.pem)
    first, second = (k.proof("GET", "https://h", now=1) for k in (key, again))
    assert first != second
    assert header_of(first)["jwk"] == header_of(second)["jwk"]
    assert header_of(ProofKey().proof("GET", "https://h", now=1))["jwk"] != header_of(first)["jwk"]
    assert "PRIVATE" not in repr(key)


KEYS = {
    "ES256": (ec.generate_private_key(ec.SECP256R1()), ECKey),
    "ES384": (ec.generate_private_key(ec.SECP384R1()), ECKey),
    "RS256": (rsa.generate_private_key(65537, 2048), RSAKey),
    "PS256": (rsa.generate_private_key(65537, 2048), RSAKey),
    "Ed25519": (ed25519.Ed25519PrivateKey.generate(), OKPKey),
}


@pytest.mark.parametrize("algorithm", KEYS)
def test_an_assertion_says_who_and_to_whom_and_is_short_lived(algorithm):
    key, kind = KEYS[algorithm]
    made = PrivateKey(pem=pem(key), algorithm=algorithm, key_id="k1")
    token = made.assertion("me", "https://as/", now=100).reveal()
    assert header_of(token) == {"typ": "JWT", "alg": algorithm, "kid": "k1"}
    claims = jwt.decode(token, kind.import_key(pem(key)), algorithms=[algorithm]).claims
    assert claims.pop("jti")
    assert claims == {"iss": "me", "sub": "me", "aud": "https://as/", "iat": 100, "exp": 400}


LOCKED = (
    KEYS["ES256"][0]
    .private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"s3cret"),
    )
    .decode()
)


@pytest.mark.parametrize(
    ("text", "algorithm"),
    [
        ("s3cret", "ES256"),
        (pem(KEYS["ES256"][0]), "RS256"),
        (pem(KEYS["RS256"][0]), "ES256"),
        (pem(KEYS["ES256"][0]), "HS256"),
        (pem(KEYS["ES256"][0]), "none"),
        (pem(KEYS["ES384"][0]), "ES256"),
        (LOCKED, "ES256"),
        (pem(KEYS["ES256"][0]), ""),
        (pem(KEYS["ES256"][0]), "EdDSA"),
    ],
)
def test_a_key_that_does_not_fit_is_refused_when_it_is_given(text, algorithm):
    with pytest.raises(ConfigurationError) as caught:
        PrivateKey(pem=text, algorithm=algorithm)
    assert "s3cret" not in str(caught.value)


def test_a_key_is_not_shown():
    assert "PRIVATE" not in repr(PrivateKey(pem=pem(KEYS["ES256"][0])))
