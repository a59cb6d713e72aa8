"""Access tokens that are JWTs: which are taken, and the many that are not."""

import hmac
import json

import pytest
from joserfc.jwk import ECKey, OKPKey, RSAKey

from mcp_trio.auth.resource_server.signed import MAX_TOKEN
from mcp_trio.errors import ConfigurationError, UnauthorizedError
from tests.auth.resource_server.authority import (
    ISSUER,
    NOW,
    RESOURCE,
    Authority,
    credentials,
    encode,
    key,
    raw_token,
)


async def judge(authority, token, **options):
    return await authority.tokens(**options).authenticate(credentials(token))


async def refused(authority, token, match, **options):
    with pytest.raises(UnauthorizedError, match=match) as caught:
        await judge(authority, token, **options)
    assert token not in f"{caught.value!r} {caught.value} {caught.value.data}"
    return caught.value


async def test_a_good_token_says_who_calls():
    authority = Authority()
    token = authority.sign()
    principal = await judge(authority, token, access_tokens_only=True)
    assert (principal.subject, principal.issuer) == ("ann", ISSUER)
    assert principal.scopes == {"read", "write"}
    assert principal.claims["client_id"] == "client"
    assert principal.token.reveal() == token
    assert token not in repr(principal)


@pytest.mark.parametrize(
    ("changes", "scopes"),
    [
        ({"scope": None}, set()),
        ({"scope": " a  b "}, {"a", "b"}),
        ({"scope": None, "scp": ["a", "b", 3]}, {"a", "b"}),
        ({"scope": "a", "scp": "b"}, {"a", "b"}),
        ({"scope": 5}, set()),
    ],
)
async def test_scopes_are_found_where_servers_put_them(changes, scopes):
    authority = Authority()
    assert (await judge(authority, authority.sign(**changes))).scopes == scopes


@pytest.mark.parametrize(
    "audience",
    [
        RESOURCE,
        "HTTPS://MCP.example:443/mcp",
        f"{RESOURCE}/",
        ["https://other.example", RESOURCE],
    ],
)
async def test_a_token_is_for_us_in_any_spelling_of_our_name(audience):
    authority = Authority()
    assert await judge(authority, authority.sign(aud=audience))


async def test_a_token_may_be_for_another_name_that_is_configured():
    authority = Authority()
    token = authority.sign(aud="api://mcp")
    assert await judge(authority, token, audiences=("api://mcp",))
    await refused(authority, token, "not meant for this server")


@pytest.mark.parametrize(
    "audience",
    [
        None,
        "",
        [],
        {RESOURCE: 1},
        5,
        [5],
        "https://mcp.example",
        "https://mcp.example/mcp/crm",
        "https://mcp.example/MCP",
        "http://mcp.example/mcp",
        "https://mcp.example:8443/mcp",
        "https://mcp.example.evil/mcp",
        f"{RESOURCE}?a",
        f"{RESOURCE}#a",
        f"x {RESOURCE}",
        "https://[",
    ],
)
async def test_a_token_for_somebody_else_is_refused_before_any_key_is_fetched(audience):
    authority = Authority()
    await refused(authority, authority.sign(aud=audience), "not meant for this server")
    assert authority.asked == []


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"exp": NOW - 31}, "expired"),
        ({"exp": None}, "never expires"),
        ({"exp": "2099"}, "no time"),
        ({"exp": True}, "no time"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"nbf": "x"}, "no time"),
        ({"iat": NOW + 31}, "in the future"),
        ({"iat": [1]}, "no time"),
        ({"sub": None}, "no subject"),
        ({"sub": ""}, "no subject"),
        ({"sub": 5}, "no subject"),
        ({"sub": "x" * 1025}, "no subject"),
    ],
)
async def test_what_a_token_says_has_to_be_right(changes, match):
    authority = Authority()
    await refused(authority, authority.sign(**changes), match)


@pytest.mark.parametrize(
    "changes", [{"exp": NOW - 29}, {"nbf": NOW + 29}, {"iat": NOW + 29}, {"iat": None}]
)
async def test_clocks_may_differ_a_little(changes):
    authority = Authority()
    assert await judge(authority, authority.sign(**changes))


@pytest.mark.parametrize("issuer", [None, "https://evil.example", f"{ISSUER}/", 5, [ISSUER]])
async def test_a_token_of_another_issuer_is_none_of_ours(issuer):
    authority = Authority()
    assert await judge(authority, authority.sign(iss=issuer)) is None
    assert authority.asked == []


@pytest.mark.parametrize(
    "token",
    [
        None,
        "opaque",
        "a.b.c",
        "..",
        "a" * (MAX_TOKEN + 1),
        f"{encode({'alg': 'ES256'})}.{encode([1])}.x",
        f"{encode({'alg': 'ES256'})}.{encode(b'[' * 9000)}.x",
        f"{encode(b'[' * 3000)}.{encode({})}.x",
        f"{encode({'alg': 'ES256', 'x': 'y' * 5000})}.{encode({})}.x",
        f"{encode({})}.{encode({'iss': 'x'})}.x",
        "é.é.é",
    ],
)
async def test_what_is_no_jwt_is_left_to_others(token):
    assert await judge(Authority(), token) is None


async def test_a_giant_token_is_not_looked_at():
    authority = Authority()
    assert await judge(authority, authority.sign(filler="x" * MAX_TOKEN)) is None


@pytest.mark.parametrize("kind", ["at+jwt", "application/at+jwt", "AT+JWT", "JWT", None])
async def test_a_token_may_say_what_it_is(kind):
    authority = Authority()
    assert await judge(authority, authority.sign(header={"typ": kind}))


@pytest.mark.parametrize("kind", ["dpop+jwt", "logout+jwt", "secevent+jwt", "at", "id+jwt"])
async def test_a_jwt_of_another_kind_is_no_access_token(kind):
    authority = Authority()
    await refused(authority, authority.sign(header={"typ": kind}), "another kind")


@pytest.mark.parametrize(
    ("header", "changes"),
    [
        ({"typ": "JWT"}, {}),
        ({"typ": None}, {}),
        ({}, {"client_id": None}),
        ({}, {"jti": None}),
        ({}, {"iat": None}),
    ],
)
async def test_the_profile_of_access_tokens_can_be_demanded(header, changes):
    authority = Authority()
    token = authority.sign(header=header, **changes)
    assert await judge(authority, token)
    await refused(authority, token, "another kind|lacks claims", access_tokens_only=True)


# -- signatures ------------------------------------------------------------------------


async def test_no_signature_is_no_token():
    authority = Authority()
    for algorithm in ("none", "None", "NONE", ""):
        header, claims = {"alg": algorithm, "kid": "k1"}, authority.claims()
        for signature in ("", encode(b"x" * 64)):
            token = f"{encode(header)}.{encode(claims)}.{signature}"
            await refused(authority, token, "algorithm")
    assert authority.asked == []


async def test_a_public_key_is_no_password():
    authority = Authority()
    public = authority.keys[0]
    for secret in (
        public.as_pem(private=False),
        public.as_der(private=False),
        json.dumps(public.as_dict(private=False)).encode(),
        public.as_dict(private=False)["x"].encode(),
    ):
        for algorithm in ("HS256", "HS384", "HS512"):
            header = {"alg": algorithm, "kid": "k1"}
            start = f"{encode(header)}.{encode(authority.claims())}"
            name = f"sha{algorithm[2:]}"
            token = f"{start}.{encode(hmac.digest(secret, start.encode(), name))}"
            await refused(authority, token, "algorithm")


async def test_an_algorithm_is_not_believed_for_another_kind_of_key():
    authority = Authority()
    claims = authority.claims()
    for algorithm in ("RS256", "PS256", "ES384", "ES512", "EdDSA", "Ed25519"):
        token = raw_token({"alg": algorithm, "kid": "k1"}, claims, authority.keys[0], "ES256")
        await refused(authority, token, "no key that fits the token")


async def test_only_the_algorithms_that_are_allowed_are_taken():
    authority = Authority()
    await refused(authority, authority.sign(), "algorithm", algorithms=("RS256",))
    assert await judge(authority, authority.sign(), algorithms=("ES256",))


@pytest.mark.parametrize(
    ("algorithm", "made"),
    [
        ("RS256", RSAKey.generate_key(2048)),
        ("PS512", RSAKey.generate_key(2048)),
        ("ES384", ECKey.generate_key("P-384")),
        ("ES512", ECKey.generate_key("P-521")),
        ("EdDSA", OKPKey.generate_key("Ed25519")),
        ("Ed25519", OKPKey.generate_key("Ed25519")),
    ],
)
async def test_every_algorithm_there_is_works(algorithm, made):
    authority = Authority()
    authority.keys = [key("other"), made]
    token = raw_token({"alg": algorithm}, authority.claims(), made)
    assert await judge(authority, token)


async def test_a_signature_by_anybody_else_is_none():
    authority, thief = Authority(), key("k1")
    await refused(authority, authority.sign(thief), "does not verify")
    start, _, signature = authority.sign().rpartition(".")
    forged = f"{start.split('.')[0]}.{encode(authority.claims(sub='root'))}.{signature}"
    await refused(authority, forged, "does not verify")
    for bad in ("", "AAAA", signature[:-4], signature + "AAAA", encode(b"\0" * 64)):
        await refused(authority, f"{start}.{bad}", "does not verify")


async def test_a_token_does_not_choose_its_key():
    authority, thief = Authority(), key("k1")
    public = thief.as_dict(private=False)
    for header in (
        {"jku": "https://evil.example/jwks"},
        {"x5u": "https://evil.example/cert"},
        {"x5c": ["MIIB"]},
        {"jwk": public},
        {"kid": None, "jwk": public},
        {"kid": None, "jku": "https://evil.example/jwks"},
    ):
        await refused(authority, authority.sign(thief, header=header), "does not verify")
    assert set(authority.asked) == {"/jwks"}
    # They are no fault either.
    assert await judge(authority, authority.sign(header={"jku": "https://evil.example/jwks"}))


@pytest.mark.parametrize(
    "kid", ["../../k1", "k1\x00", "' OR 1=1", "/dev/null", "K1", "k1 ", "https://evil.example/k1"]
)
async def test_the_name_of_a_key_is_only_compared(kid):
    authority = Authority()
    await refused(authority, authority.sign(header={"kid": kid}), "no key that fits the token")
    assert authority.asked == ["/jwks"]


@pytest.mark.parametrize("kid", ["", "x" * 257, 5, ["k1"], {"k1": 1}])
async def test_a_name_of_a_key_that_cannot_be_one_is_refused_at_once(kid):
    authority = Authority()
    token = raw_token(
        {"alg": "ES256", "typ": "at+jwt", "kid": kid}, authority.claims(), authority.keys[0]
    )
    await refused(authority, token, "names its key|does not verify")
    assert authority.asked == []


@pytest.mark.parametrize(
    "header", [{"crit": ["exp"]}, {"crit": []}, {"b64": True}, {"b64": True, "crit": ["b64"]}]
)
async def test_what_we_do_not_know_of_is_not_passed_over(header):
    authority = Authority()
    await refused(authority, authority.sign(header=header), "something unknown")


async def test_a_payload_that_is_not_encoded_is_none():
    authority = Authority()
    assert await judge(authority, authority.sign(header={"b64": False, "crit": ["b64"]})) is None


# -- settings --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"algorithms": ()}, "at least one"),
        ({"algorithms": ("none",)}, "no algorithm for tokens"),
        ({"algorithms": ("HS256",)}, "no algorithm for tokens"),
        ({"keys_url": "http://as.example/jwks"}, "has to be https"),
        ({"keys_url": "file:///etc/passwd"}, "no http or https URL"),
        ({"keys_url": "https://me:pass@as.example/jwks"}, "user or a fragment"),
    ],
)
def test_what_cannot_be_is_told_at_once(options, match):
    with pytest.raises(ConfigurationError, match=match) as caught:
        Authority().tokens(**options)
    assert "pass@" not in str(caught.value)


def test_an_issuer_in_the_clear_is_on_this_machine():
    assert Authority("http://127.0.0.1:9000").tokens().issuers == ("http://127.0.0.1:9000",)
    with pytest.raises(ConfigurationError, match="https"):
        Authority("http://as.example").tokens()
