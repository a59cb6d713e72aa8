"""Proofs of possession: what is taken, once, and what is not."""

import base64
import json
import uuid

import pytest
from joserfc.jwk import ECKey, OKPKey, RSAKey

from mcp_trio.auth.keys import ProofKey
from mcp_trio.auth.resource_server import DPoP, Nonces
from mcp_trio.auth.resource_server.dpop import NONCE_LIFETIME, ProofError
from mcp_trio.errors import ConfigurationError, OverloadedError, UnauthorizedError
from mcp_trio.secrets import Secret
from tests.auth.resource_server.authority import (
    NOW,
    RESOURCE,
    digest,
    encode,
    head,
    key,
    raw_token,
)

TOKEN = Secret("bound-access-token")
KEY = key()


def proof(signer=KEY, header=None, using=None, **changes):
    public = signer.as_dict(private=False)
    fields = {"typ": "dpop+jwt", "alg": "ES256", "jwk": public, **(header or {})}
    claims = {
        "jti": uuid.uuid4().hex,
        "htm": "POST",
        "htu": RESOURCE,
        "iat": NOW,
        "ath": digest(TOKEN.reveal()),
        **changes,
    }
    return raw_token(
        {name: value for name, value in fields.items() if value is not None},
        {name: value for name, value in claims.items() if value is not None},
        signer,
        using,
    )


def judge(*proofs, dpop=None, method="POST", target=RESOURCE, bound_to=KEY):
    made = dpop or DPoP(clock=lambda: NOW)
    fields = [("dpop", each) for each in proofs]
    thumbprint = bound_to.thumbprint()
    made.check(head(*fields, method=method), target, TOKEN, thumbprint)


def test_a_good_proof_is_taken():
    judge(proof())
    judge(proof(htm="GET"), method="GET")


def test_so_is_the_one_that_our_own_client_makes():
    made = ProofKey()
    thumbprint = ECKey.import_key(made.pem.reveal()).thumbprint()
    shown = made.proof("POST", f"{RESOURCE}?a=b", now=NOW, token=TOKEN)
    DPoP(clock=lambda: NOW).check(head(("dpop", shown)), RESOURCE, TOKEN, thumbprint)


@pytest.mark.parametrize(
    ("algorithm", "made"),
    [
        ("RS256", RSAKey.generate_key(4096)),
        ("ES384", ECKey.generate_key("P-384")),
        ("Ed25519", OKPKey.generate_key("Ed25519")),
    ],
)
def test_keys_of_every_kind_prove(algorithm, made):
    judge(proof(made, {"alg": algorithm}), bound_to=made)


@pytest.mark.parametrize(
    "htu",
    [RESOURCE, "HTTPS://MCP.example/mcp", "https://mcp.example:443/mcp", f"{RESOURCE}?a=b#c"],
)
def test_a_url_is_the_same_in_other_spellings(htu):
    judge(proof(htu=htu))


def test_a_websocket_is_opened_by_a_request():
    judge(proof(htm="GET"), method="GET", target="wss://mcp.example/mcp")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"htm": "GET"}, "another method"),
        ({"htm": "post"}, "another method"),
        ({"htm": None}, "another method"),
        ({"htu": "https://mcp.example/mcp/"}, "another URL"),
        ({"htu": "https://mcp.example/mcp/crm"}, "another URL"),
        ({"htu": "http://mcp.example/mcp"}, "another URL"),
        ({"htu": "https://mcp.example:444/mcp"}, "another URL"),
        ({"htu": "https://evil.example/mcp"}, "another URL"),
        ({"htu": None}, "another URL"),
        ({"htu": 5}, "another URL"),
        ({"iat": None}, "when it was made"),
        ({"iat": NOW - 91}, "too old"),
        ({"iat": NOW + 31}, "from the future"),
        ({"ath": None}, "another token"),
        ({"ath": digest("other")}, "another token"),
        ({"ath": 5}, "another token"),
        ({"jti": None}, "no id"),
        ({"jti": ""}, "no id"),
        ({"jti": 5}, "no id"),
        ({"jti": "x" * 1025}, "no id"),
    ],
)
def test_a_proof_for_something_else_is_none(changes, match):
    with pytest.raises(ProofError, match=match) as caught:
        judge(proof(**changes))
    assert caught.value.oauth_code == "invalid_dpop_proof"


@pytest.mark.parametrize("time", [{"iat": "x"}, {"iat": True}])
def test_a_time_has_to_be_one(time):
    with pytest.raises(UnauthorizedError, match="no time"):
        judge(proof(**time))


@pytest.mark.parametrize(
    ("header", "match"),
    [
        ({"typ": None}, "another kind"),
        ({"typ": "JWT"}, "another kind"),
        ({"typ": "at+jwt"}, "another kind"),
        ({"jwk": None}, "has no key"),
        ({"jwk": "x"}, "has no key"),
        ({"jwk": {}}, "none for its algorithm"),
        ({"jwk": {"kty": "oct", "k": "AAAA"}}, "private key"),
        ({"jwk": KEY.as_dict(private=True)}, "private key"),
        ({"jwk": {**KEY.as_dict(private=False), "x": "AAAA"}}, "cannot be read"),
        ({"jwk": {**KEY.as_dict(private=False), "use": "enc"}}, "none for its algorithm"),
        ({"crit": ["x"]}, "something unknown"),
    ],
)
def test_a_proof_that_is_made_wrong_is_none(header, match):
    with pytest.raises(UnauthorizedError, match=match):
        judge(proof(header=header))


@pytest.mark.parametrize("algorithm", ["none", "HS256", "RS256", "ES384"])
def test_a_proof_is_signed_with_the_key_it_shows(algorithm):
    with pytest.raises(UnauthorizedError, match="algorithm"):
        judge(proof(header={"alg": algorithm}, using="ES256"))


@pytest.mark.parametrize(
    "jwk",
    [
        {"kty": "RSA", "n": encode(b"\xff" * 128), "e": "AQAB"},
        {"kty": "RSA", "n": 5, "e": "AQAB"},
        {"kty": "RSA", "n": encode(b"\xff" * 1100), "e": "AQAB"},
        {"kty": "RSA", "n": encode(b"\xff" * 256), "e": encode(b"\xff" * 255)},
    ],
)
def test_a_key_that_is_weak_or_for_wasting_time_is_none(jwk):
    with pytest.raises(ProofError, match="none for its algorithm"):
        judge(proof(header={"alg": "RS256", "jwk": jwk}, using="ES256"))


def test_somebody_elses_key_proves_nothing():
    thief = key()
    with pytest.raises(ProofError, match="another key"):
        judge(proof(thief))
    with pytest.raises(UnauthorizedError, match="does not verify"):
        judge(proof(thief, {"jwk": KEY.as_dict(private=False)}))


def test_a_proof_is_good_once():
    dpop = DPoP(clock=lambda: NOW)
    shown = proof()
    judge(shown, dpop=dpop)
    with pytest.raises(ProofError, match="used before"):
        judge(shown, dpop=dpop)
    with pytest.raises(ProofError, match="used before"):
        judge(proof(jti=json.loads(_claims(shown))["jti"], iat=NOW - 5), dpop=dpop)
    # The same id of another key is another proof.
    other = key()
    same = proof(other, jti=json.loads(_claims(shown))["jti"])
    judge(same, dpop=dpop, bound_to=other)


def _claims(shown):

    part = shown.split(".")[1]
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def test_a_proof_cannot_be_used_again_when_it_is_forgotten_either():
    now = [NOW]
    dpop = DPoP(clock=lambda: now[0], max_remembered=3)
    shown = proof()
    for each in (shown, proof(), proof()):
        judge(each, dpop=dpop)
    # Full: nothing is forgotten to make room.
    with pytest.raises(OverloadedError):
        judge(proof(), dpop=dpop)
    with pytest.raises(ProofError, match="used before"):
        judge(shown, dpop=dpop)
    for later in (89, 90, 91, 92):
        now[0] = NOW + later
        with pytest.raises(ProofError, match=r"used before|too old"):
            judge(shown, dpop=dpop)
    judge(proof(iat=NOW + 92), dpop=dpop)


def test_a_refused_proof_takes_no_room():
    dpop = DPoP(clock=lambda: NOW, max_remembered=1)
    for _ in range(10):
        with pytest.raises(ProofError):
            judge(proof(htm="GET"), dpop=dpop)
        with pytest.raises(UnauthorizedError):
            judge(proof(key(), {"jwk": KEY.as_dict(private=False)}), dpop=dpop)
    judge(proof(), dpop=dpop)


@pytest.mark.parametrize("shown", [[], ["x", "y"], [proof(), proof()], ["x"], ["a.b.c"]])
def test_exactly_one_proof_is_shown(shown):
    with pytest.raises(ProofError, match=r"exactly one|no JWT"):
        judge(*shown)


def test_a_nonce_of_ours_can_be_demanded():
    now = [NOW]
    dpop = DPoP(clock=lambda: now[0], nonces=Nonces(), window=10_000)
    ((name, nonce),) = dpop.nonce_headers()
    assert name == "dpop-nonce"
    for bad in (None, "", "x", 5, Nonces().now(NOW)):
        with pytest.raises(ProofError) as caught:
            judge(proof(nonce=bad), dpop=dpop)
        assert caught.value.oauth_code == "use_dpop_nonce"
    judge(proof(nonce=nonce), dpop=dpop)
    now[0] += NONCE_LIFETIME
    judge(proof(nonce=nonce), dpop=dpop)
    now[0] += NONCE_LIFETIME
    with pytest.raises(ProofError):
        judge(proof(nonce=nonce), dpop=dpop)


def test_those_who_share_a_key_know_each_others_nonces():
    one, two = Nonces(Secret("shared")), Nonces(Secret("shared"))
    assert two.knows(one.now(NOW), NOW)
    assert not Nonces(Secret("other")).knows(one.now(NOW), NOW)


def test_algorithms_for_proofs_are_asymmetric():
    with pytest.raises(ConfigurationError):
        DPoP(algorithms=("HS256",))
