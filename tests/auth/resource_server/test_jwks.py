"""The keys of an issuer: one look for many, renewed in place, and what happens without them."""

import httpx2
import pytest
import trio
from joserfc.jwk import OctKey, RSAKey
from trio.testing import wait_all_tasks_blocked

from mcp_trio.auth.resource_server import Reach, jwks
from mcp_trio.auth.resource_server.jwks import KeySource, lifetime
from mcp_trio.errors import OverloadedError, TransportError, UnauthorizedError
from tests.auth.resource_server.authority import ISSUER, Authority, credentials, key


def source(authority, url=f"{ISSUER}/jwks"):
    return KeySource(authority.issuer, url, authority.reach)


async def test_a_set_is_fetched_when_it_is_needed_and_once_for_all_who_wait(autojump_clock):
    authority = Authority()
    keys = source(authority)
    assert authority.asked == []
    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(keys.find, "k1", "ES256")
    assert authority.asked == ["/jwks"]
    assert len(await keys.find("k1", "ES256")) == 1
    assert authority.asked == ["/jwks"]


async def test_ten_thousand_unknown_keys_lead_to_one_look_in_each_interval(autojump_clock):
    authority = Authority()
    keys = source(authority)
    await keys.find("k1", "ES256")
    await trio.sleep(jwks.INTERVAL)
    async with trio.open_nursery() as nursery:
        for number in range(1000):
            nursery.start_soon(keys.find, f"x{number}", "ES256")
    assert authority.asked == ["/jwks"] * 2
    for number in range(9000):
        assert await keys.find(f"y{number}", "ES256") == ()
    assert authority.asked == ["/jwks"] * 2
    await trio.sleep(jwks.INTERVAL)
    assert await keys.find("z", "ES256") == ()
    assert authority.asked == ["/jwks"] * 3


async def test_a_new_key_is_found_without_a_restart_and_an_old_one_is_forgotten(autojump_clock):
    authority = Authority()
    tokens = authority.tokens()
    old = authority.sign()
    assert await tokens.authenticate(credentials(old))
    authority.keys = [key("k2")]
    new = authority.sign()
    with pytest.raises(UnauthorizedError, match="no key that fits"):  # within the interval
        await tokens.authenticate(credentials(new))
    await trio.sleep(jwks.INTERVAL)
    assert await tokens.authenticate(credentials(new))
    with pytest.raises(UnauthorizedError, match="the issuer has no key that fits the token"):
        await tokens.authenticate(credentials(old))


async def test_a_key_that_was_withdrawn_is_good_until_its_set_is_old(autojump_clock):
    authority = Authority()
    authority.cache_control = "public, max-age=120"
    keys = source(authority)
    await keys.find("k1", "ES256")
    authority.keys = [key("k2")]
    await trio.sleep(119)
    assert await keys.find("k1", "ES256")
    assert authority.asked == ["/jwks"]
    await trio.sleep(1)
    assert await keys.find("k1", "ES256") == ()
    assert authority.asked == ["/jwks"] * 2


@pytest.mark.parametrize("failure", [500, 404, 302, b"no json", b"[]", {"keys": []}, {"keys": 5}])
async def test_the_last_good_keys_stay_for_a_while(autojump_clock, failure, caplog):
    authority = Authority()
    keys = source(authority)
    await keys.find("k1", "ES256")
    authority.answers["/jwks"] = failure
    await trio.sleep(jwks.LIFETIME)
    for _ in range(3):
        assert await keys.find("k1", "ES256")
    assert authority.asked == ["/jwks"] * 2  # not asked again at once
    assert caplog.text.count(f"the keys of {ISSUER}") == 1
    await trio.sleep(jwks.KEEP - jwks.LIFETIME - 1)
    assert await keys.find("k1", "ES256")
    await trio.sleep(jwks.AGAIN)
    with pytest.raises(OverloadedError):
        await keys.find("k1", "ES256")
    del authority.answers["/jwks"]
    await trio.sleep(jwks.AGAIN)
    assert await keys.find("k1", "ES256")


async def test_without_any_keys_nobody_is_let_in_and_the_issuer_is_asked_now_and_then(
    autojump_clock,
):
    authority = Authority()
    authority.answers["/jwks"] = 503
    keys = source(authority)
    for _ in range(20):
        with pytest.raises(OverloadedError, match="cannot be had now"):
            await keys.find("k1", "ES256")
    assert authority.asked == ["/jwks"]
    await trio.sleep(jwks.AGAIN)
    del authority.answers["/jwks"]
    assert await keys.find("k1", "ES256")


async def test_an_issuer_that_hangs_holds_nobody_for_ever(autojump_clock):
    authority = Authority()
    authority.hangs = True
    keys = source(authority)
    began = trio.current_time()

    async def ask():
        with pytest.raises(OverloadedError):
            await keys.find("k1", "ES256")

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(ask)
    assert trio.current_time() - began <= jwks.PATIENCE
    assert authority.asked == ["/jwks"]


async def test_an_issuer_that_hangs_later_holds_nobody_who_uses_a_known_key(autojump_clock):
    authority = Authority()
    keys = source(authority)
    await keys.find("k1", "ES256")
    authority.hangs = True
    await trio.sleep(jwks.LIFETIME)
    began = trio.current_time()
    times = []

    async def ask():
        assert await keys.find("k1", "ES256")
        times.append(trio.current_time() - began)

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(ask)
    # One has tried, a little; the others did not wait.
    assert sorted(times) == [0.0] * 9 + [pytest.approx(jwks.STALE_PATIENCE)]


async def test_an_issuer_that_hangs_later_is_asked_now_and_then(autojump_clock, caplog):
    authority = Authority()
    keys = source(authority)
    await keys.find("k1", "ES256")
    authority.hangs = True
    await trio.sleep(jwks.LIFETIME)
    end = trio.current_time() + 10 * (jwks.STALE_PATIENCE + jwks.AGAIN)
    while trio.current_time() < end:
        assert await keys.find("k1", "ES256")
        await trio.sleep(0.5)
    assert 9 <= authority.asked.count("/jwks") - 1 <= 10
    assert "did not come in time" in caplog.text
    authority.hangs = False
    await trio.sleep(jwks.AGAIN)
    authority.keys = [key("k1")]
    fresh = await keys.find("k1", "ES256")
    assert fresh[0].thumbprint() == authority.keys[0].thumbprint()


async def test_who_is_cancelled_while_he_fetches_leaves_it_to_the_next(autojump_clock):
    authority = Authority()
    authority.hangs = True
    keys = source(authority)
    found = []
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def first():
            with scope:
                await keys.find("k1", "ES256")

        async def second():
            found.append(await keys.find("k1", "ES256"))

        nursery.start_soon(first)
        await wait_all_tasks_blocked()
        nursery.start_soon(second)
        await wait_all_tasks_blocked()
        authority.hangs = False
        scope.cancel()
    assert len(found[0]) == 1
    assert authority.asked == ["/jwks"] * 2


async def test_coming_and_leaving_makes_no_storm(autojump_clock):
    authority = Authority()
    authority.hangs = True
    keys = source(authority)
    for _ in range(100):
        with trio.move_on_after(0.01):
            await keys.find("k1", "ES256")
    # Not once for each: a second lies between two looks.
    assert len(authority.asked) <= 2


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("", jwks.LIFETIME),
        ("public", jwks.LIFETIME),
        ("max-age=3600", 3600),
        ('public, Max-Age="300", must-revalidate', 300),
        ("max-age=0", jwks.SHORTEST),
        ("max-age=999999999", jwks.LONGEST),
        ("max-age=99999999999999999999", jwks.LONGEST),
        ("max-age=x", jwks.LIFETIME),
        ("s-max-age=5", jwks.LIFETIME),
        ("no-store, max-age=3600", jwks.SHORTEST),
    ],
)
def test_keys_are_fresh_for_as_long_as_the_issuer_says_within_bounds(said, seconds):
    assert lifetime(said) == seconds


@pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")
async def test_what_cannot_be_used_is_left_out_of_a_set(autojump_clock):
    authority = Authority()
    good = authority.keys[0].as_dict(private=False)
    weak = RSAKey.generate_key(1024).as_dict(private=False)
    secret = OctKey.generate_key(256).as_dict()
    authority.answers["/jwks"] = {
        "keys": [
            5,
            {},
            {"kty": "EC"},
            {"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"},
            {**secret, "kid": "k1"},
            {**weak, "kid": "k1"},
            {**good, "kid": "enc", "use": "enc"},
            {**good, "kid": "other", "alg": "ES384"},
            {**good, "kid": "ops", "key_ops": ["sign"]},
            good,
        ]
    }
    keys = source(authority)
    assert len(await keys.find("k1", "ES256")) == 1
    for kid in ("enc", "other", "ops"):
        assert await keys.find(kid, "ES256") == ()
    assert await keys.find("k1", "RS256") == ()
    assert await keys.find("k1", "HS256") == ()


async def test_a_token_without_the_name_of_a_key_is_tried_with_a_few(autojump_clock):
    authority = Authority()
    authority.keys = [key(f"k{number}") for number in range(10)]
    keys = source(authority)
    assert len(await keys.find(None, "ES256")) == jwks.MAX_TRIED


# -- where they are --------------------------------------------------------------------


async def test_the_metadata_of_the_issuer_say_where_its_keys_are(autojump_clock):
    authority = Authority()
    assert await source(authority, None).find("k1", "ES256")
    assert authority.asked == ["/.well-known/oauth-authorization-server", "/jwks"]
    authority = Authority("https://as.example/tenant")
    authority.answers["/.well-known/openid-configuration/tenant"] = {
        "issuer": "https://as.example/tenant",
        "jwks_uri": f"{ISSUER}/jwks",
    }
    assert await source(authority, None).find("k1", "ES256")


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://evil.example", "jwks_uri": f"{ISSUER}/jwks"},
        {"issuer": f"{ISSUER}/", "jwks_uri": f"{ISSUER}/jwks"},
        {"issuer": ISSUER},
        {"issuer": ISSUER, "jwks_uri": "http://as.example/jwks"},
        {"issuer": ISSUER, "jwks_uri": "http://127.0.0.1/jwks"},
        {"issuer": ISSUER, "jwks_uri": "https://u:p@as.example/jwks"},
        404,
    ],
)
async def test_metadata_that_lead_elsewhere_are_not_followed(autojump_clock, document):
    authority = Authority()
    authority.answers["/.well-known/oauth-authorization-server"] = document
    with pytest.raises(OverloadedError):
        await source(authority, None).find("k1", "ES256")
    assert "/jwks" not in authority.asked


@pytest.mark.parametrize("address", ["10.0.0.7", "127.0.0.1", "169.254.169.254", "::1"])
async def test_addresses_that_a_name_leads_to_are_judged(address, caplog):
    url = "https://keys.internal/jwks"

    async def resolve(host, port):
        return [address]

    with pytest.raises(OverloadedError):
        await KeySource(ISSUER, url, Reach(resolver=resolve)).find("k1", "ES256")
    assert "must not be reached" in caplog.text
    assert address not in caplog.text


async def test_the_authorities_that_certificates_are_judged_by_are_read_once(
    monkeypatch, autojump_clock
):
    made = []
    original = httpx2.create_ssl_context
    monkeypatch.setattr(httpx2, "create_ssl_context", lambda: made.append(1) or original())

    async def resolve(host, port):
        return ["10.0.0.7"]

    reach = Reach(resolver=resolve)
    for _ in range(3):
        with pytest.raises(TransportError, match="must not be reached"):
            await reach.fetch("https://keys.internal/jwks")
    assert made == [1]
