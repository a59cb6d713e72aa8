"""Tokens that their authorization server is asked about."""

import base64

import pytest
import trio
from joserfc.jwk import ECKey
from trio.testing import wait_all_tasks_blocked

from mcp_trio.auth import PrivateKey, Secret
from mcp_trio.auth.resource_server import IntrospectedTokens
from mcp_trio.auth.resource_server.introspection import AT_ONCE, PATIENCE
from mcp_trio.auth.resource_server.signed import MAX_TOKEN
from mcp_trio.errors import ConfigurationError, OverloadedError, UnauthorizedError
from tests.auth.resource_server.authority import (
    ISSUER,
    NOW,
    RESOURCE,
    Authority,
    credentials,
)

URL = f"{ISSUER}/introspect"
TOKEN = "opaque-token-1"


def tokens(authority, **options):
    given = {
        "client_id": "us and them",
        "client_secret": Secret("pass:word/1"),
        "clock": lambda: NOW,
        **options,
    }
    return IntrospectedTokens(url=URL, issuer=ISSUER, reach=authority.reach, **given)


@pytest.fixture
def authority():
    made = Authority()
    made.active[TOKEN] = {"active": True, **made.claims()}
    return made


async def test_an_active_token_says_who_calls_and_we_prove_who_asks(authority):
    principal = await tokens(authority).authenticate(credentials(TOKEN))
    assert (principal.subject, principal.issuer) == ("ann", ISSUER)
    assert principal.scopes == {"read", "write"}
    assert authority.forms == [{"token": TOKEN, "token_type_hint": "access_token"}]
    scheme, _, pair = authority.headers[0]["authorization"].partition(" ")
    assert scheme == "Basic"
    assert base64.b64decode(pair) == b"us+and+them:pass%3Aword%2F1"


async def test_we_may_prove_it_by_a_key(authority):
    pem = ECKey.generate_key("P-256").as_pem(private=True).decode()
    ways = {"client_secret": None, "private_key": PrivateKey(pem=pem)}
    assert await tokens(authority, **ways).authenticate(credentials(TOKEN))
    assert authority.forms[0]["client_id"] == "us and them"
    assert authority.forms[0]["client_assertion"].count(".") == 2
    assert "authorization" not in authority.headers[0]


async def test_without_a_token_nobody_is_asked(authority):
    assert await tokens(authority).authenticate(credentials(None)) is None
    with pytest.raises(UnauthorizedError, match="too long"):
        await tokens(authority).authenticate(credentials("x" * (MAX_TOKEN + 1)))
    assert authority.asked == []


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ({"active": False}, "not active"),
        ({"active": "true"}, "not active"),
        ({"active": 1}, "not active"),
        ({}, "not active"),
        ({"active": True, "aud": "https://other.example"}, "not meant for"),
        ({"active": True, "aud": None}, "not meant for"),
        ({"active": True, "aud": RESOURCE, "iss": "https://other.example"}, "another issuer"),
        ({"active": True, "aud": RESOURCE, "iss": None}, "another issuer"),
        ({"active": True, "aud": RESOURCE, "exp": NOW - 31}, "expired"),
        ({"active": True, "aud": RESOURCE, "nbf": NOW + 31}, "not valid yet"),
        ({"active": True, "aud": RESOURCE, "exp": "x"}, "no time"),
        ({"active": True, "aud": RESOURCE}, "no subject"),
    ],
)
async def test_what_is_not_ours_or_not_good_is_refused(authority, said, match):
    authority.active[TOKEN] = said
    for _ in range(2):
        with pytest.raises(UnauthorizedError, match=match):
            await tokens(authority).authenticate(credentials(TOKEN))


async def test_a_server_may_be_trusted_to_look_at_the_audience(authority):
    del authority.active[TOKEN]["aud"]
    with pytest.raises(UnauthorizedError):
        await tokens(authority).authenticate(credentials(TOKEN))
    trusting = tokens(authority, trusts_audience=True)
    assert await trusting.authenticate(credentials(TOKEN))
    authority.active["other"] = {**authority.active[TOKEN], "aud": "https://other.example"}
    with pytest.raises(UnauthorizedError):
        await trusting.authenticate(credentials("other"))


async def test_an_answer_is_used_again_for_a_bounded_time(authority, autojump_clock):
    asker = tokens(authority)
    for _ in range(5):
        assert await asker.authenticate(credentials(TOKEN))
    assert len(authority.asked) == 1
    del authority.active[TOKEN]  # revoked
    await trio.sleep(59)
    assert await asker.authenticate(credentials(TOKEN))
    await trio.sleep(1)
    with pytest.raises(UnauthorizedError, match="not active"):
        await asker.authenticate(credentials(TOKEN))
    with pytest.raises(UnauthorizedError, match="not active"):
        await asker.authenticate(credentials(TOKEN))
    assert len(authority.asked) == 2


async def test_an_answer_is_never_used_beyond_the_end_of_its_token(authority, autojump_clock):
    began = trio.current_time()
    authority.active[TOKEN]["exp"] = NOW + 5
    asker = tokens(authority, leeway=0, clock=lambda: NOW + trio.current_time() - began)
    assert await asker.authenticate(credentials(TOKEN))
    await trio.sleep(5)
    with pytest.raises(UnauthorizedError, match="expired"):
        await asker.authenticate(credentials(TOKEN))
    assert len(authority.asked) == 2


async def test_many_with_one_token_ask_once(authority, autojump_clock):
    asker = tokens(authority)
    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(asker.authenticate, credentials(TOKEN))
    assert len(authority.asked) == 1


async def test_a_flood_of_made_up_tokens_does_not_pass_through_us(authority, autojump_clock):
    asker = tokens(authority, max_kept=10)
    authority.hangs = True
    refused, began = [], trio.current_time()

    async def ask(number):
        try:
            await asker.authenticate(credentials(f"made-up-{number}"))
        except OverloadedError:
            refused.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(ask, number)
        await wait_all_tasks_blocked()
        assert len(authority.asked) == AT_ONCE
    assert len(refused) == 100
    assert trio.current_time() - began <= PATIENCE
    authority.hangs = False
    for number in range(100):
        with pytest.raises(UnauthorizedError):
            await asker.authenticate(credentials(f"made-up-{number}"))
    assert len(asker._memory._answers) == 10


async def test_who_is_cancelled_while_he_asks_leaves_it_to_the_next(authority, autojump_clock):
    asker = tokens(authority)
    authority.hangs = True
    found = []
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def first():
            with scope:
                await asker.authenticate(credentials(TOKEN))

        async def second():
            found.append(await asker.authenticate(credentials(TOKEN)))

        nursery.start_soon(first)
        await wait_all_tasks_blocked()
        nursery.start_soon(second)
        await wait_all_tasks_blocked()
        authority.hangs = False
        scope.cancel()
    assert found[0].subject == "ann"


@pytest.mark.parametrize("answer", [500, 401, 302, 404, b"no json", b"[]", b"[" * 100_000])
async def test_without_an_answer_nobody_is_let_in(authority, answer, caplog):
    authority.answers["/introspect"] = answer
    with pytest.raises(OverloadedError, match="cannot be looked at now") as caught:
        await tokens(authority).authenticate(credentials(TOKEN))
    assert TOKEN not in f"{caught.value} {caught.value.__cause__} {caplog.text}"


@pytest.mark.parametrize(
    "options",
    [
        {"url": "http://as.example/introspect"},
        {"issuer": "as.example"},
        {"client_secret": None},
        {"private_key": PrivateKey(pem=ECKey.generate_key("P-256").as_pem(private=True).decode())},
    ],
)
def test_what_cannot_be_is_told_at_once(options):
    given = {"url": URL, "issuer": ISSUER, "client_id": "us", "client_secret": Secret("pass")}
    with pytest.raises(ConfigurationError):
        IntrospectedTokens(**{**given, **options})


def test_no_secret_is_shown(authority):
    assert "pass" not in repr(tokens(authority))
