"""The flow by hand, without a loop: from a refusal to a token, by every way there is."""

import math
import traceback

import pytest

from mcp_trio.auth.flow import Situation, acquire
from mcp_trio.auth.grants import Consent, Enterprise, Machine, Workload
from mcp_trio.auth.keys import ProofKey
from mcp_trio.auth.tokens import Grant, RegisteredClient
from mcp_trio.errors import ConfigurationError, UnauthorizedError
from mcp_trio.framing.challenge import Challenge
from mcp_trio.secrets import Secret
from tests.auth.world import REDIRECT, SECRET_TEXTS, World, basic, by_hand, proof_of

DOCUMENT = "https://app.example/client.json"
NOW = 1_000_000.0


def obtain(world, method=None, kept=None, **situation):
    """The outcome of one flow."""
    challenges = situation.pop("challenges", (Challenge("Bearer", situation.pop("told", {})),))
    asked = Situation(url=world.url, now=NOW, challenges=challenges, **situation)
    return by_hand(acquire(method or Consent(), asked), world, kept)


def held(**changes):
    fields = {
        "issuer": "https://as.example",
        "resource": "https://mcp.example/mcp",
        "client_id": "registered-1",
        "access_token": Secret("access-0"),
        "refresh_token": Secret("refresh-0"),
        "scopes": ("read",),
        **changes,
    }
    return Grant(**fields)


REGISTERED = RegisteredClient(
    client_id="registered-1", auth_method="none", redirect_uris=(REDIRECT,)
)


# -- consent -----------------------------------------------------------------------


def test_a_person_consents_and_the_code_becomes_a_token():
    world = World()
    outcome = obtain(world, told={"scope": "read"})
    (visit,) = world.visits
    assert visit["kept"] == "1"
    assert (visit["response_type"], visit["client_id"]) == ("code", "registered-1")
    assert (visit["code_challenge_method"], visit["scope"]) == ("S256", "read")
    assert visit["redirect_uri"] == world.forms[0]["redirect_uri"] == REDIRECT
    grant = outcome.grant
    assert grant.access_token.reveal() == "access-1"
    assert grant.refresh_token.reveal() == "refresh-1"
    assert (grant.issuer, grant.resource) == (world.issuer, world.url)
    assert (grant.token_type, grant.scopes) == ("Bearer", ("read",))
    assert grant.expires_at == NOW + 3600 - 30


@pytest.mark.parametrize("resource", ["https://mcp.example", "https://mcp.example/mcp/"])
def test_the_resource_is_named_to_the_letter_in_both_requests(resource):
    world = World()
    world.resource["resource"] = resource
    obtain(world)
    assert world.visits[0]["resource"] == world.forms[0]["resource"] == resource


@pytest.mark.parametrize("methods", [None, [], ["plain"], "S256"])
def test_a_server_without_s256_is_refused_before_anybody_is_sent_to_it(methods):
    world = World()
    world.metadata["code_challenge_methods_supported"] = methods
    with pytest.raises(UnauthorizedError, match="PKCE"):
        obtain(world)
    assert not world.visits
    assert not world.registrations


def test_every_visit_has_a_state_and_a_challenge_of_its_own():
    world = World()
    for _ in range(2):
        obtain(world)
    first, second = world.visits
    assert first["state"] != second["state"]
    assert first["code_challenge"] != second["code_challenge"]


WRONG = [
    ({"state": "other"}, False, "another question"),
    ({"state": None}, False, "another question"),
    ({"iss": "https://evil.example"}, False, "https://evil.example.*https://as.example"),
    ({"iss": "https://as.example/"}, True, "https://as.example/"),
    ({"iss": ""}, True, "the answer is of ''"),
    ({}, True, "does not say that it is of https://as.example"),
    ({"code": None}, False, "no code"),
    ({"error": "access_denied"}, False, "access_denied"),
    ({"error": "a\nforged line"}, False, "says: an error"),
]


@pytest.mark.parametrize(("answer", "names_itself", "message"), WRONG)
def test_an_answer_that_is_none_leads_to_no_token_request(answer, names_itself, message):
    world = World(answer=answer)
    world.metadata["authorization_response_iss_parameter_supported"] = names_itself
    with pytest.raises(UnauthorizedError, match=message):
        obtain(world)
    assert world.visits
    assert not world.forms


def test_the_error_of_another_issuer_is_not_shown():
    world = World(answer={"iss": "https://evil.example", "error": "look_here"})
    with pytest.raises(UnauthorizedError) as caught:
        obtain(world)
    assert "look_here" not in str(caught.value)


@pytest.mark.parametrize("names_itself", [True, False])
def test_the_right_issuer_is_taken_whether_announced_or_not(names_itself):
    world = World(answer={"iss": "https://as.example"})
    world.metadata["authorization_response_iss_parameter_supported"] = names_itself
    assert obtain(world).grant


@pytest.mark.parametrize(
    "twist",
    [
        lambda back: back.replace("/callback", "/elsewhere"),
        lambda back: back.replace("1234", "1235"),
        lambda back: back + "&code=other",
        lambda back: back + "&iss=a&iss=b",
    ],
)
def test_an_answer_to_another_place_or_with_two_codes_is_refused(twist):
    world = World()
    honest = world.consent
    world_with_twist = type("Twisted", (World,), {"consent": lambda self, url: twist(honest(url))})
    with pytest.raises(UnauthorizedError, match="another place"):
        obtain(world_with_twist())


def test_an_answer_that_is_no_url_is_refused():
    world = type("Twisted", (World,), {"consent": lambda self, url: "http://[x"})()
    with pytest.raises(UnauthorizedError, match="no URL"):
        obtain(world)


def test_a_server_without_authorization_endpoint_is_no_place_for_a_person():
    world = World()
    del world.metadata["authorization_endpoint"]
    with pytest.raises(UnauthorizedError, match="no authorization endpoint"):
        obtain(world)


# -- who we are ----------------------------------------------------------------------


def test_a_client_registered_by_hand_comes_first():
    world = World()
    world.metadata["client_id_metadata_document_supported"] = True
    client = RegisteredClient(client_id="by hand", client_secret=Secret("s3cret: &%"))
    obtain(world, Consent(registered=client, document_url=DOCUMENT))
    assert world.visits[0]["client_id"] == "by hand"
    assert basic(world.headers[0]) == ["by hand", "s3cret: &%"]
    assert not world.registrations


def test_then_its_document_where_the_server_takes_one():
    world = World()
    world.metadata["client_id_metadata_document_supported"] = True
    obtain(world, Consent(document_url=DOCUMENT))
    assert world.visits[0]["client_id"] == world.forms[0]["client_id"] == DOCUMENT
    assert not world.registrations


def test_then_it_registers_and_remembers_that_by_issuer():
    world, kept = World(), {}
    for _ in range(2):
        obtain(world, Consent(document_url=DOCUMENT, client_name="mine"), kept)
    (wanted,) = world.registrations
    assert wanted == {
        "client_name": "mine",
        "redirect_uris": [REDIRECT],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
    }
    assert kept["https://as.example"].client_id == "registered-1"


@pytest.mark.parametrize(
    ("given", "expected"), [(0, None), (10**400, math.inf), (float("nan"), None), ("x", None)]
)
def test_an_end_of_a_secret_that_is_none_is_not_known(given, expected):
    world = World()
    world.registration = {"client_id": "c", "client_secret": "s", "client_secret_expires_at": given}
    kept = {}
    obtain(world, kept=kept)
    assert kept[world.issuer].secret_expires_at == expected


def test_a_server_that_registers_nobody_says_what_to_do():
    world = World()
    del world.metadata["registration_endpoint"]
    with pytest.raises(UnauthorizedError, match="register one by hand"):
        obtain(world)


@pytest.mark.parametrize("status", [400, 403, 500])
def test_a_registration_that_is_refused_says_as_what(status):
    world = World()
    world.pages["https://as.example/register"] = status
    with pytest.raises(UnauthorizedError, match=f"native client: status {status}"):
        obtain(world)


def test_a_registration_that_names_nobody_is_none():
    world = World(registration={"client_id": 7})
    with pytest.raises(UnauthorizedError, match="client_id"):
        obtain(world)


@pytest.mark.parametrize(
    ("offered", "given", "proof"),
    [
        (["client_secret_basic"], None, "basic"),
        (["client_secret_post"], None, "post"),
        (["none"], None, "none"),
        (["client_secret_post", "client_secret_basic"], "client_secret_post", "post"),
        (None, None, "basic"),
    ],
)
def test_a_client_proves_itself_as_the_server_takes_it(offered, given, proof):
    world = World(registration={"client_id": "c", "client_secret": "s3cret"})
    if given is not None:
        world.registration["token_endpoint_auth_method"] = given
    world.metadata["token_endpoint_auth_methods_supported"] = offered
    obtain(world)
    form, headers = world.forms[0], world.headers[0]
    assert ("authorization" in headers) is (proof == "basic")
    assert form.get("client_secret") == ("s3cret" if proof == "post" else None)
    assert form.get("client_id") == (None if proof == "basic" else "c")


def test_a_server_that_takes_no_proof_of_ours_is_refused():
    world = World()
    world.metadata["token_endpoint_auth_methods_supported"] = ["tls_client_auth"]
    with pytest.raises(UnauthorizedError, match="tls_client_auth"):
        obtain(world)
    client = RegisteredClient(client_id="c", client_secret=Secret("s3cret"))
    with pytest.raises(UnauthorizedError, match="tls_client_auth"):
        obtain(world, Consent(registered=client))


def test_a_secret_that_has_expired_or_another_redirect_needs_a_new_registration():
    for stored in (
        RegisteredClient(client_id="old", secret_expires_at=NOW - 1, redirect_uris=(REDIRECT,)),
        RegisteredClient(client_id="old", redirect_uris=("http://127.0.0.1:1/callback",)),
    ):
        world = World()
        obtain(world, kept={world.issuer: stored})
        assert world.visits[0]["client_id"] == "registered-1"


def test_a_server_that_has_forgotten_us_is_asked_anew_the_next_time():
    world, kept = World(token_error="invalid_client"), {"https://as.example": REGISTERED}
    with pytest.raises(UnauthorizedError, match="invalid_client"):
        obtain(world, kept=kept)
    assert kept["https://as.example"] is None


def test_another_authorization_server_sees_nothing_of_the_first_ones():
    world, kept = World(), {}
    grant = obtain(world, kept=kept).grant
    world.resource["authorization_servers"] = ["https://as2.example"]
    world.publish("https://as2.example")
    world.registration = {"client_id": "registered-2"}
    begun = len(world.asked)
    outcome = obtain(world, kept=kept, held=grant)
    assert not outcome.refreshed
    assert outcome.grant.client_id == world.visits[-1]["client_id"] == "registered-2"
    assert len(world.registrations) == 2
    assert not [url for _, url in world.asked[begun:] if "as.example" in url]


@pytest.mark.parametrize("issuer", [None, "https://as.example"])
def test_a_client_registered_by_hand_is_shown_to_one_server_only(issuer):
    world, kept = World(), {}
    client = RegisteredClient(client_id="c", client_secret=Secret("s3cret"), issuer=issuer)
    obtain(world, Consent(registered=client), kept)
    world.resource["authorization_servers"] = ["https://as2.example"]
    world.publish("https://as2.example")
    for method in (Consent(registered=client), Machine(client=client)):
        with pytest.raises(UnauthorizedError, match=r"https://as\.example.*https://as2\.example"):
            obtain(world, method, kept)
    assert len(world.forms) == 1


# -- scopes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("challenged", "supported", "wanted", "expected"),
    [
        ("a b", ["x"], (), "a b"),
        (None, ["x", "y"], (), "x y"),
        (None, None, (), None),
        (None, [], (), None),
        ("a", ["x"], ("z",), "z a"),
    ],
)
def test_which_scopes_are_asked_for(challenged, supported, wanted, expected):
    world = World()
    world.resource["scopes_supported"] = supported
    told = {} if challenged is None else {"scope": challenged}
    obtain(world, told=told, scopes=wanted)
    assert world.visits[0].get("scope") == expected


def test_more_scopes_are_asked_for_beside_the_earlier_ones_and_by_consent():
    world = World()
    world.refreshes["refresh-0"] = ["read"]
    kept = {world.issuer: REGISTERED}
    told = {"scope": "write", "error": "insufficient_scope"}
    outcome = obtain(world, kept=kept, held=held(), refreshable=False, told=told)
    assert world.visits[0]["scope"] == "read write"
    assert world.forms[0]["grant_type"] == "authorization_code"
    assert outcome.grant.scopes == ("read", "write")


@pytest.mark.parametrize(
    ("known", "named", "expected"),
    [
        (["offline_access"], "a", "a offline_access"),
        (["a"], "a", "a"),
        (None, "a", "a"),
        (["a"], "a offline_access", "a"),
        (["offline_access"], None, None),
    ],
)
def test_offline_access_is_asked_for_only_where_the_server_lists_it(known, named, expected):
    world = World()
    world.metadata["scopes_supported"] = known
    obtain(world, told={} if named is None else {"scope": named})
    assert world.visits[0].get("scope") == expected
    asks = expected is not None and "offline_access" in expected
    assert world.visits[0].get("prompt") == ("consent" if asks else None)


# -- refreshing ----------------------------------------------------------------------


@pytest.mark.parametrize("rotates", [True, False])
def test_a_refresh_token_does_without_anybody(rotates):
    world = World(rotates=rotates)
    world.refreshes["refresh-0"] = ["read"]
    outcome = obtain(world, kept={world.issuer: REGISTERED}, held=held())
    assert outcome.refreshed
    assert not world.visits
    assert world.forms[0]["resource"] == world.url
    assert outcome.grant.refresh_token.reveal() == ("refresh-1" if rotates else "refresh-0")
    assert outcome.grant.scopes == ("read",)


@pytest.mark.parametrize("kept", [{}, {"https://as.example": REGISTERED}])
def test_a_person_is_asked_again_when_it_does_not(kept):
    world = World()
    outcome = obtain(world, kept=dict(kept), held=held(refresh_token=Secret("refresh-gone")))
    assert not outcome.refreshed
    assert world.visits[0]["scope"] == "read"


def test_but_not_when_the_server_is_out_of_order():
    world = World()
    world.pages["https://as.example/token"] = 503
    with pytest.raises(UnauthorizedError, match="503"):
        obtain(world, kept={world.issuer: REGISTERED}, held=held())
    assert not world.visits


@pytest.mark.parametrize("status", [408, 425, 429])
def test_nor_when_it_only_wants_to_be_asked_later(status):
    world = World()
    world.pages["https://as.example/token"] = status
    with pytest.raises(UnauthorizedError, match=str(status)):
        obtain(world, kept={world.issuer: REGISTERED}, held=held())
    assert not world.visits


@pytest.mark.parametrize(
    ("changes", "taken"),
    [
        ({}, True),
        ({"expires_at": NOW - 1}, False),
        ({"issuer": "https://other.example"}, False),
        ({"access_token": Secret("access-0")}, False),
    ],
)
def test_a_refresh_token_that_another_program_has_used_leads_to_its_token(changes, taken):
    world = World()
    other = held(**{"access_token": Secret("access-9"), "expires_at": NOW + 9, **changes})
    kept = {world.issuer: REGISTERED, f"grant {world.url}": other}
    outcome = obtain(world, kept=kept, held=held(refresh_token=Secret("refresh-gone")))
    assert (outcome.grant == other) is taken
    assert len(world.visits) == (not taken)


def test_a_client_that_is_forgotten_at_a_refresh_registers_anew():
    world = World(token_error="invalid_client")
    kept = {world.issuer: REGISTERED}
    with pytest.raises(UnauthorizedError):
        obtain(world, kept=kept, held=held())
    assert len(world.registrations) == 1


# -- tokens --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"access_token": 7, "token_type": "Bearer"},
        {"access_token": "", "token_type": "Bearer"},
        {"access_token": "a\r\nx: y", "token_type": "Bearer"},
        {"access_token": "é", "token_type": "Bearer"},
        {"access_token": " ", "token_type": "Bearer"},
        {"access_token": "a ", "token_type": "Bearer"},
        {"access_token": "a"},
        {"access_token": "a", "token_type": "mac"},
        {"access_token": "a", "token_type": "DPoP"},
    ],
)
def test_a_token_that_cannot_be_used_is_none(given):
    world = World()
    world.pages["https://as.example/token"] = given
    with pytest.raises(UnauthorizedError, match="token endpoint gave"):
        obtain(world)


@pytest.mark.parametrize(
    ("lifetime", "expected"),
    [
        (3600, 3570),
        (10, 9),
        ("3600", 3570),
        (None, None),
        ("x", None),
        # What is no length of time says nothing.
        (0, None),
        (-5, None),
        (True, None),
        ([], None),
        (float("nan"), None),
        (float("inf"), None),
        (10**400, None),
        ("9" * 500, None),
    ],
)
def test_a_token_counts_as_old_a_little_early(lifetime, expected):
    world = World()
    given = {"access_token": "a", "token_type": "bearer", "expires_in": lifetime}
    world.pages["https://as.example/token"] = given
    expires_at = obtain(world).grant.expires_at
    assert expires_at == (None if expected is None else NOW + expected)


def test_no_secret_is_in_an_error_or_in_a_text_of_anything():
    world = World(token_error="invalid_grant")
    client = RegisteredClient(client_id="c", client_secret=Secret("s3cret"))
    with pytest.raises(UnauthorizedError) as caught:
        obtain(world, Consent(registered=client))
    text = "".join(traceback.format_exception(caught.value)) + repr(caught.value.data)
    assert "invalid_grant" in text
    grant = obtain(World(), Consent(registered=client)).grant
    text += repr(grant) + repr(client) + str(Consent(registered=client))
    assert not [secret for secret in SECRET_TEXTS if secret in text]


# -- keys ----------------------------------------------------------------------------


DPOP = (Challenge("DPoP", {"algs": "ES256"}),)


def dpop_world(**changes):
    world = World(scheme="DPoP", **changes)
    world.metadata["dpop_signing_alg_values_supported"] = ["ES256"]
    return world


def test_a_token_is_bound_to_a_key_where_the_server_wants_that():
    world = dpop_world()
    grant = obtain(world, challenges=DPOP).grant
    proof = proof_of(world.headers[0])
    assert (proof["htm"], proof["htu"]) == ("POST", "https://as.example/token")
    assert grant.token_type == "DPoP"
    assert ProofKey(grant.dpop_key)


def test_a_nonce_is_used_once_it_is_asked_for_and_not_for_ever():
    world = dpop_world(dpop_nonce="n1")
    obtain(world, challenges=DPOP)
    first, second = map(proof_of, world.headers)
    assert ("nonce" not in first, second["nonce"]) == (True, "n1")
    assert first["jti"] != second["jti"]
    world = dpop_world(dpop_nonce="n1", token_error="use_dpop_nonce")
    with pytest.raises(UnauthorizedError, match="use_dpop_nonce"):
        obtain(world, challenges=DPOP)
    assert len(world.forms) == 2


def test_the_same_key_is_used_for_the_next_token():
    world = dpop_world()
    kept = {}
    grant = obtain(world, challenges=DPOP, kept=kept).grant
    again = obtain(world, challenges=DPOP, kept=kept, held=grant)
    assert again.refreshed
    assert again.grant.dpop_key == grant.dpop_key
    third = obtain(world, challenges=DPOP, kept=kept, held=grant, refreshable=False)
    assert third.grant.dpop_key == grant.dpop_key


@pytest.mark.parametrize(
    ("schemes", "able", "required", "dpop", "bound"),
    [
        ("Bearer", True, False, None, False),
        ("Bearer", True, True, None, True),
        ("Bearer", True, False, True, True),
        ("Bearer DPoP", True, False, None, True),
        ("Bearer DPoP", False, False, None, False),
        ("DPoP", True, False, False, False),
        ("DPoP", False, False, None, None),
        ("Bearer", False, True, None, None),
        ("Bearer", False, False, True, None),
    ],
)
def test_when_a_token_is_bound(schemes, able, required, dpop, bound):
    world = dpop_world() if bound else World()
    world.metadata["dpop_signing_alg_values_supported"] = ["ES256"] if able else ["RS256"]
    world.resource["dpop_bound_access_tokens_required"] = required
    challenges = tuple(Challenge(scheme, {}) for scheme in schemes.split())
    if bound is None:
        with pytest.raises(UnauthorizedError, match="does not bind"):
            obtain(world, challenges=challenges, dpop=dpop)
        return
    grant = obtain(world, challenges=challenges, dpop=dpop).grant
    assert (grant.token_type == "DPoP") is bound


def test_a_token_that_is_not_bound_does_not_do_where_it_has_to_be():
    world = dpop_world()
    world.scheme = "Bearer"
    world.resource["dpop_bound_access_tokens_required"] = True
    with pytest.raises(UnauthorizedError, match="not bound"):
        obtain(world)


# -- without a person ----------------------------------------------------------------


def test_a_machine_shows_its_secret():
    world = World()
    client = RegisteredClient(client_id="c", client_secret=Secret("s3cret"))
    grant = obtain(world, Machine(client=client), told={"scope": "a"}).grant
    assert basic(world.headers[0]) == ["c", "s3cret"]
    assert world.forms == [
        {"grant_type": "client_credentials", "resource": world.url, "scope": "a"}
    ]
    assert grant.access_token.reveal() == "access-1"
    assert not world.registrations


def test_a_company_exchanges_what_it_knows_of_a_person():
    world = World()
    method = Enterprise(
        client=RegisteredClient(client_id="c", client_secret=Secret("s3cret")),
        idp_client=RegisteredClient(client_id="at idp"),
        idp_token_endpoint="https://idp.example/token",
    )
    obtain(world, method, told={"scope": "a"})
    exchange, redeemed = world.forms
    assert exchange == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
        "audience": "https://as.example",
        "resource": world.url,
        "scope": "a",
        "subject_token": "assertion for https://as.example",
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "client_id": "at idp",
    }
    assert redeemed == {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "assertion": "jag-1",
        "resource": world.url,
        "scope": "a",
    }
    assert [url for method, url in world.asked if method == "POST"] == [
        "https://idp.example/token",
        "https://as.example/token",
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"access_token": "jag-1", "token_type": "N_A"},
        {"issued_token_type": "urn:ietf:params:oauth:token-type:id-jag"},
        {"access_token": "x", "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"},
    ],
)
def test_what_a_company_gives_has_to_be_an_assertion(given):
    world = World()
    world.pages["https://idp.example/token"] = given
    method = Enterprise(
        client=RegisteredClient(client_id="c"),
        idp_client=RegisteredClient(client_id="at idp"),
        idp_token_endpoint="https://idp.example/token",
    )
    with pytest.raises(UnauthorizedError, match="no identity assertion"):
        obtain(world, method)


def test_a_workload_shows_its_token_once_and_a_refusal_is_final():
    method = Workload(client=RegisteredClient(client_id="w"))
    world = World()
    obtain(world, method)
    assert world.forms == [
        {
            "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "assertion": "assertion for https://as.example",
            "resource": world.url,
            "client_id": "w",
        }
    ]
    world = World(token_error="invalid_grant")
    with pytest.raises(UnauthorizedError, match="invalid_grant"):
        obtain(world, method)
    assert len(world.forms) == 1


def test_a_key_that_cannot_be_read_is_said_so_without_being_shown():
    with pytest.raises(ConfigurationError) as caught:
        ProofKey(Secret("s3cret"))
    assert "s3cret" not in str(caught.value)
