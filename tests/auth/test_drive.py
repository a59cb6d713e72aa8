"""Requests, authorized on Trio: who gets a token when, what is cancelled, and what is not."""

import contextlib
import logging
import traceback

import httpx2
import pytest
import trio
import trio.testing

from mcp_trio.auth import (
    BearerToken,
    ClientCredentials,
    EnterpriseManaged,
    MemoryStore,
    OAuth,
    Redirect,
    RegisteredClient,
    Secret,
    WorkloadIdentity,
)
from mcp_trio.errors import ConfigurationError, UnauthorizedError
from tests.auth.world import REDIRECT, SECRET_TEXTS, World, WorldTransport


class Site:
    """A world, and a client in it."""

    def __init__(self, world=None, **choices):
        self.world = world or World()
        self.transport = WorldTransport(self.world)
        self.now = 1_000_000.0
        self.auth = OAuth(
            **{
                "redirect": Redirect(REDIRECT, self.world.visit),
                "http": self.transport,
                "clock": lambda: self.now,
                **choices,
            }
        )
        self.http = self.client(self.auth)

    def client(self, auth):
        bound = auth.bind(self.world.url)
        return httpx2.AsyncClient(transport=self.transport, auth=bound, timeout=None)

    async def post(self):
        return await self.http.post(self.world.url, content=b"{}")


async def test_a_refused_request_is_sent_again_with_a_token():
    site = Site()
    answer = await site.post()
    assert (answer.status_code, answer.text) == (200, "welcome")
    assert site.world.paths.count("POST /mcp") == 2
    assert (await site.post()).status_code == 200
    assert site.world.paths.count("POST /mcp") == 3
    assert len(site.world.visits) == 1


async def test_many_requests_at_once_send_the_person_away_once():
    site = Site()
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(site.post)
    assert len(site.world.visits) == 1
    assert len(site.world.tokens) == 1


async def test_no_token_goes_to_another_origin():
    site = Site()
    await site.post()
    for url in ("https://other.example/mcp", "http://mcp.example/mcp", "https://mcp.example:8443/"):
        request = site.http.build_request("GET", url)
        answer = await site.http.send(request)
        assert answer.status_code == 404
        assert "authorization" not in request.headers


async def test_an_old_token_is_refreshed_before_it_is_refused():
    site = Site()
    await site.post()
    site.now += 3600
    refused = site.world.paths.count("POST /mcp")
    await site.post()
    assert site.world.paths.count("POST /mcp") == refused + 1
    assert [form["grant_type"] for form in site.world.forms][1:] == ["refresh_token"]


async def test_an_old_token_whose_refresh_is_refused_needs_the_person():
    site = Site()
    await site.post()
    site.now += 3600
    site.world.refreshes.clear()
    await site.post()
    assert len(site.world.visits) == 2


async def test_a_token_that_is_revoked_is_refreshed():
    site = Site()
    await site.post()
    site.world.tokens.clear()
    await site.post()
    assert len(site.world.visits) == 1
    assert site.world.forms[-1]["grant_type"] == "refresh_token"


class Forgetful(World):
    """Its tokens are worth nothing."""

    def issue(self, scopes):
        given = super().issue(scopes)
        self.tokens.clear()
        return given


async def test_a_server_that_refuses_what_it_gave_is_not_asked_for_ever():
    site = Site(Forgetful())
    for _ in range(2):
        with pytest.raises(UnauthorizedError, match="made for it just now"):
            await site.post()
    assert len(site.world.visits) == 1


async def test_a_refreshed_token_that_is_refused_leads_to_the_person_and_then_no_further():
    site = Site()
    await site.post()
    site.world.__class__ = Forgetful
    site.world.tokens.clear()
    with pytest.raises(UnauthorizedError, match="made for it just now"):
        await site.post()
    assert [form["grant_type"] for form in site.world.forms] == [
        "authorization_code",
        "refresh_token",
        "authorization_code",
    ]


# -- scopes --------------------------------------------------------------------------


async def test_missing_scopes_are_added_by_a_new_grant_although_there_is_a_refresh_token():
    site = Site(World(needed=("read",)))
    await site.post()
    site.world.needed = ("write",)
    assert (await site.post()).status_code == 200
    assert [visit["scope"] for visit in site.world.visits] == ["read", "read write"]
    assert {form["grant_type"] for form in site.world.forms} == {"authorization_code"}


async def test_scopes_that_asking_does_not_bring_are_asked_for_once():
    site = Site(World(needed=("admin",), granted=lambda scopes: []))
    for _ in range(5):
        with pytest.raises(UnauthorizedError, match="although they were asked for") as caught:
            await site.post()
    assert len(site.world.visits) == 1
    assert caught.value.data["scope"] == "admin"


async def test_a_server_that_wants_other_scopes_each_time_is_given_up():
    world = World(needed=("s0",), granted=lambda scopes: [])
    visit = world.visit

    async def consent(url):
        world.needed = (f"s{len(world.visits) + 1}",)
        return await visit(url)

    site = Site(world, redirect=Redirect(REDIRECT, consent))
    for _ in range(5):
        with pytest.raises(UnauthorizedError):
            await site.post()
    assert len(world.visits) <= 4
    assert world.visits[-1]["scope"].split()[:2] == ["s0", "s1"]


async def test_another_refusal_is_the_callers_business():
    site = Site()
    await site.post()
    site.world.pages[site.world.url] = 403
    assert (await site.post()).status_code == 403
    assert len(site.world.visits) == 1


# -- cancelling ----------------------------------------------------------------------


async def turns(count):
    for _ in range(count):
        await trio.lowlevel.checkpoint()


async def cancelled_after(count, call):
    """Whether the call ended before it was cancelled, `count` turns of the loop later."""
    async with trio.open_nursery() as nursery:
        ended = trio.Event()

        async def run():
            await call()
            ended.set()

        nursery.start_soon(run)
        await turns(count)
        nursery.cancel_scope.cancel()
    return ended.is_set()


async def test_a_first_login_may_be_cancelled_at_any_await():
    for count in range(200):
        site = Site()
        ended = await cancelled_after(count, site.post)
        redeemed = site.world.made
        with trio.fail_after(5):
            assert (await site.post()).status_code == 200
        # A token that was given is never lost, nor asked for twice.
        assert site.world.made == 1
        assert len(site.world.visits) == 1 or not redeemed
        if ended:
            break
    assert ended
    assert count > 20


async def test_a_refresh_may_be_cancelled_at_any_await_and_no_refresh_token_is_lost():
    for count in range(200):
        site = Site()
        await site.post()
        site.world.tokens.clear()
        ended = await cancelled_after(count, site.post)
        with trio.fail_after(5):
            assert (await site.post()).status_code == 200
        assert len(site.world.visits) == 1
        assert site.world.made == 2
        if ended:
            break
    assert ended
    assert count > 10


async def test_who_waits_for_a_login_that_is_cancelled_begins_anew():
    site = Site()
    gate = site.transport.gates["POST /token"] = trio.Event()
    async with trio.open_nursery() as nursery:
        first = trio.CancelScope()

        async def one():
            with first:
                await site.post()

        await _start(nursery, one)
        del site.transport.gates["POST /token"]
        answers = []

        async def another():
            answers.append((await site.post()).status_code)

        await _start(nursery, another)
        first.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert not answers
        gate.set()
    assert answers == [200]
    assert len(site.world.visits) == 1


async def _start(nursery, call):
    nursery.start_soon(call)
    await trio.testing.wait_all_tasks_blocked()


async def test_a_token_endpoint_that_never_answers_holds_a_cancelled_request_for_a_bounded_time(
    autojump_clock,
):
    site = Site()
    site.transport.gates["POST /token"] = trio.Event()
    began = trio.current_time()
    with trio.move_on_after(1) as scope:
        await site.post()
    assert scope.cancelled_caught
    assert trio.current_time() - began <= 10.0


async def test_a_failure_is_told_to_all_who_waited_and_the_next_one_tries_again():
    site = Site(World(token_error="server_error"))
    failures = []

    async def fail():
        with pytest.raises(UnauthorizedError, match="server_error") as caught:
            await site.post()
        failures.append(caught.value)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(fail)
    assert len(site.world.visits) == 1
    assert len({id(failure) for failure in failures}) == 5
    site.world.token_error = None
    assert (await site.post()).status_code == 200


async def test_a_long_stream_holds_nothing_while_another_request_refreshes():
    site = Site()
    await site.post()
    site.transport.gates["GET /mcp"] = trio.Event()
    async with trio.open_nursery() as nursery:
        await _start(nursery, lambda: site.http.get(site.world.url))
        site.now += 3600
        site.world.tokens.clear()
        with trio.fail_after(5):
            assert (await site.post()).status_code == 200
        nursery.cancel_scope.cancel()
    del site.transport.gates["GET /mcp"]
    async with site.http.stream("GET", site.world.url) as stream:
        site.world.tokens.clear()
        with trio.fail_after(5):
            assert (await site.post()).status_code == 200
        assert stream.status_code == 200


# -- stores --------------------------------------------------------------------------


async def test_a_token_in_the_store_needs_no_person():
    store = MemoryStore()
    first = Site(store=store)
    await first.post()
    second = Site(first.world, store=store)
    assert (await second.post()).status_code == 200
    assert len(first.world.visits) == 1
    # And what the other one has refreshed meanwhile is taken, not refreshed again.
    first.world.tokens.clear()
    await second.post()
    made = first.world.made
    assert (await first.post()).status_code == 200
    assert first.world.made == made


async def test_an_old_token_of_the_store_is_refreshed_once_the_server_has_said_who_gives_them():
    store = MemoryStore()
    first = Site(store=store)
    await first.post()
    second = Site(first.world, store=store)
    second.now += 3600
    assert (await second.post()).status_code == 200
    assert len(first.world.visits) == 1
    assert first.world.forms[-1]["grant_type"] == "refresh_token"


async def test_many_clients_of_one_program_send_the_person_away_once():
    site = Site()
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(site.client(site.auth).post, site.world.url)
    assert len(site.world.visits) == 1
    assert site.world.made == 1


async def test_and_refresh_once():
    site = Site()
    clients = [site.client(site.auth) for _ in range(5)]
    for http in clients:
        await http.post(site.world.url)
    site.now += 3600
    site.world.tokens.clear()
    answers = []

    async def post(http):
        answers.append((await http.post(site.world.url)).status_code)

    async with trio.open_nursery() as nursery:
        for http in clients:
            nursery.start_soon(post, http)
    assert answers == [200] * 5
    assert site.world.made == 2
    assert len(site.world.visits) == 1


async def test_an_old_token_that_another_program_has_refreshed_is_not_refreshed_again():
    store = MemoryStore()
    first = Site(store=store)
    second = Site(first.world, store=store)
    await first.post()
    await second.post()
    for site in (first, second):
        site.now += 3600
    first.world.tokens.clear()
    await second.post()
    made, asked = first.world.made, len(first.world.forms)
    # The first one only sees that its token is old; the refresh token it knows is used up.
    assert (await first.post()).status_code == 200
    assert (first.world.made, len(first.world.forms)) == (made, asked)
    assert len(first.world.visits) == 1


class FullDisk(MemoryStore):
    async def save_grant(self, url, grant):
        await trio.lowlevel.checkpoint()
        raise OSError("disk full")

    async def save_client(self, issuer, client):
        await trio.lowlevel.checkpoint()
        raise OSError("disk full")


async def test_a_store_that_cannot_be_written_costs_no_request(caplog):
    site = Site(store=FullDisk())
    for _ in range(2):
        assert (await site.post()).status_code == 200
    assert len(site.world.visits) == 1
    assert "disk full" in caplog.text


# -- keys ----------------------------------------------------------------------------


async def test_a_bound_token_is_shown_with_a_new_proof_each_time():
    world = World(scheme="DPoP", server_nonce="n1")
    world.metadata["dpop_signing_alg_values_supported"] = ["ES256"]
    site = Site(world)
    for nonce in ("n1", "n1", "n2"):
        world.server_nonce = nonce
        assert (await site.post()).status_code == 200
    assert [proof.get("nonce") for proof in world.proofs] == [None, "n1", "n1", "n1", "n2"]
    assert len({proof["jti"] for proof in world.proofs}) == 5
    assert {(proof["htm"], proof["htu"]) for proof in world.proofs} == {("POST", world.url)}
    assert all(proof["ath"] for proof in world.proofs)
    assert len(world.visits) == 1


def _renonced(world, refused):
    world.server_nonce = f"n{len(world.proofs)}"
    return refused


async def test_a_server_that_takes_no_nonce_is_given_up():
    world = World(scheme="DPoP", server_nonce="n1")
    world.metadata["dpop_signing_alg_values_supported"] = ["ES256"]
    site = Site(world)
    # A nonce that is never the one that was just given.
    world.refusal = lambda headers: _renonced(world, World.refusal(world, headers))
    with pytest.raises(UnauthorizedError):
        await site.post()
    assert len(world.proofs) <= 3 * 3


# -- other ways ----------------------------------------------------------------------


def machine(world, transport, now):
    return ClientCredentials(
        client_id="c", client_secret="s3cret", http=transport, clock=lambda: now[0]
    )


async def test_a_machine_gets_the_next_token_when_the_first_is_old():
    site, now = Site(World(rotates=False)), [0.0]
    auth = machine(site.world, site.transport, now)
    async with site.client(auth) as http:
        for _ in range(3):
            assert (await http.post(site.world.url)).status_code == 200
        site.world.tokens.clear()
        now[0] += 3600
        assert (await http.post(site.world.url)).status_code == 200
    assert {form["grant_type"] for form in site.world.forms} == {"client_credentials"}
    assert len(site.world.forms) == 2


async def supply(audience):
    await trio.lowlevel.checkpoint()
    return f"for {audience}"


@pytest.mark.parametrize("given", ["for https://as.example", lambda a: Secret(f"for {a}"), supply])
async def test_an_assertion_is_given_or_made_for_the_issuer(given):
    site = Site()
    auth = WorkloadIdentity(client_id="w", assertion=given, http=site.transport)
    async with site.client(auth) as http:
        assert (await http.post(site.world.url)).status_code == 200
    assert site.world.forms[0]["assertion"] == "for https://as.example"


async def test_a_company_asks_its_own_provider():
    site = Site()
    auth = EnterpriseManaged(
        client_id="c",
        client_secret="s3cret",
        idp_token_endpoint="https://idp.example/token",
        idp_client_id="i",
        idp_client_secret="other s3cret",
        id_token=supply,
        http=site.transport,
    )
    async with site.client(auth) as http:
        assert (await http.post(site.world.url)).status_code == 200
    assert site.world.forms[0]["client_secret"] == "other s3cret"
    assert site.world.forms[0]["subject_token"] == "for https://as.example"


async def test_a_supplier_that_gives_no_text_is_a_mistake_of_the_program():
    site = Site()
    auth = WorkloadIdentity(client_id="w", assertion=lambda audience: 7, http=site.transport)
    async with site.client(auth) as http:
        with pytest.raises(ConfigurationError):
            await http.post(site.world.url)


async def test_a_token_of_the_programs_own_is_sent_and_renewed_once():
    site = Site()
    site.world.tokens["second"] = []
    tokens = iter(["first", "second", "second", "third", "third"])
    async with site.client(BearerToken(lambda url: next(tokens))) as http:
        assert (await http.post(site.world.url)).status_code == 200
        assert (await http.post(site.world.url)).status_code == 200
        site.world.tokens.clear()
        with pytest.raises(UnauthorizedError, match="refuses the token"):
            await http.post(site.world.url)
        assert (await http.get("https://other.example")).status_code == 404


@pytest.mark.parametrize(
    "token", ["s3cret\n", "s3cret\r\nx: y", "s3crét", "", "s3cret\x00", "s\ud800"]
)
async def test_a_token_that_no_header_takes_is_refused_unseen(token):
    site = Site()
    async with site.client(BearerToken(token)) as http:
        with pytest.raises(ConfigurationError) as caught:
            await http.post(site.world.url)
    assert "s3c" not in "".join(traceback.format_exception(caught.value))
    assert not site.world.asked


MISTAKES = [
    lambda: ClientCredentials(client_id="c"),
    lambda: OAuth(client_metadata_url="http://app.example/client.json"),
    lambda: OAuth(client_metadata_url="https://app.example"),
    lambda: OAuth(client_metadata_url="https://app.example/a/../b"),
    lambda: OAuth(client_metadata_url="https://app.example/a#b"),
    lambda: OAuth().bind("ws://mcp.example"),
    lambda: BearerToken("t").bind("stdio"),
    lambda: EnterpriseManaged(
        client_id="c", idp_token_endpoint="http://idp.example", idp_client_id="i", id_token="t"
    ).bind("https://mcp.example"),
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told_when_they_are_made(mistake):
    with pytest.raises(ConfigurationError):
        mistake()


# -- what must not be seen -----------------------------------------------------------


async def test_no_secret_is_logged_or_shown(caplog):
    caplog.set_level(logging.DEBUG, logger="mcp_trio")
    site = Site(registered=RegisteredClient(client_id="c", client_secret=Secret("s3cret")))
    await site.post()
    site.world.token_error = "invalid_grant"
    site.world.tokens.clear()
    with contextlib.suppress(UnauthorizedError):
        await site.post()
    shown = caplog.text + repr(site.auth) + repr(site.auth.bind(site.world.url))
    for auth in (
        BearerToken("s3cret"),
        ClientCredentials(client_id="c", client_secret="s3cret"),
        WorkloadIdentity(client_id="c", assertion="s3cret"),
    ):
        shown += repr(auth)
    assert not [text for text in SECRET_TEXTS if text in shown]


def test_a_synchronous_client_is_told_that_it_is_none():
    for auth in (OAuth(), BearerToken("t")):
        with httpx2.Client(auth=auth.bind("https://mcp.example")) as http:
            with pytest.raises(RuntimeError):
                http.get("https://mcp.example")
