"""An endpoint as a protected resource: what is asked of whom, over HTTP, and what never shows."""

import json
import logging

import attrs
import pytest
import trio

from mcp_trio import ConfigurationError, Context, HTTPOptions, MCPServer, Principal
from mcp_trio.abc import ResourceGuard
from mcp_trio.auth.resource_server import (
    APIKeys,
    CertificateIdentity,
    ClientCertificates,
    DPoP,
    Nonces,
    ResourceServer,
    ScopeHierarchy,
)
from mcp_trio.auth.resource_server.api_keys import new_key
from mcp_trio.errors import UnauthorizedError
from mcp_trio.framing.challenge import read_challenges
from mcp_trio.session.middleware import RequiresScopes
from tests.auth.resource_server.authority import ISSUER, NOW, RESOURCE, Authority, key
from tests.auth.resource_server.test_client_certificates import NOW as CERTIFIED
from tests.auth.resource_server.test_client_certificates import PEM
from tests.auth.resource_server.test_dpop import proof
from tests.http.asgi import Client, serving
from tests.messages import initialize

PRM = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
STREAM = {"accept": "text/event-stream"}


def make_server(*base):
    server = MCPServer("s")
    if base:
        server.add_authorizer(RequiresScopes(base))

    @server.tool
    async def who(ctx: Context) -> str:
        return "-" if ctx.principal is None else ctx.principal.subject

    @server.tool(required_scopes=["read", "write"])
    async def save() -> str:
        return "saved"

    return server


def guard(authority, *others, **options):
    given = {"resource": RESOURCE, "dpop": DPoP(clock=lambda: NOW), **options}
    return ResourceServer(authenticators=(authority.tokens(), *others), **given)


def challenge(response):
    """The one challenge of an answer."""
    (found,) = read_challenges([response.headers["www-authenticate"]])
    return found.scheme, dict(found.parameters)


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def call(client, name="who", **headers):
    return client.stateless("tools/call", {"name": name}, headers=headers)


async def test_it_is_a_guard():
    assert isinstance(guard(Authority()), ResourceGuard)


async def test_who_shows_nothing_is_told_where_to_get_a_token_and_no_error():
    async with serving(make_server("base"), HTTPOptions(auth=guard(Authority()))) as client:
        refused = await call(client)
        assert refused.status == 401
        assert challenge(refused) == ("Bearer", {"scope": "base", "resource_metadata": PRM})
        # Another scheme is nothing to us.
        assert challenge(await call(client, authorization="Basic eDp5")) == challenge(refused)
        for method in ("GET", "DELETE"):
            assert (await client.request(method, headers=STREAM)).status == 401
        assert (await client.request("GET", path="/sse", headers=STREAM)).status == 401
        assert (await client.websocket()).status == 401
        assert (await client.post(initialize())).status == 401


async def test_a_good_token_is_enough_on_every_way_in():
    authority = Authority()
    async with serving(make_server(), HTTPOptions(auth=guard(authority))) as client:
        good = bearer(authority.sign())
        assert "ann" in (await call(client, **good)).body.decode()
        assert (await client.post(initialize(), good)).status == 200
        assert (await client.websocket(**good)).accepted
        lower = {"authorization": good["authorization"].replace("Bearer", "bEARER ")}
        assert (await call(client, **lower)).status == 200


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"exp": NOW - 60}, "the token has expired"),
        ({"aud": "https://other.example"}, "the token is not meant for this server"),
        ({"iss": "https://other.example"}, "nobody here knows such a token"),
    ],
)
async def test_a_bad_token_is_a_401_that_says_what_is_wrong(changes, told):
    authority = Authority()
    async with serving(make_server("base"), HTTPOptions(auth=guard(authority))) as client:
        token = authority.sign(**changes)
        refused = await call(client, **bearer(token))
        assert refused.status == 401
        assert challenge(refused) == (
            "Bearer",
            {
                "error": "invalid_token",
                "error_description": told,
                "scope": "base",
                "resource_metadata": PRM,
            },
        )
        assert refused.json()["error"]["data"]["code"] == "MCP.UNAUTHORIZED"
        assert token not in refused.body.decode() + str(refused.headers)


@pytest.mark.parametrize(
    "headers",
    [
        [("authorization", "Bearer")],
        [("authorization", "Bearer ")],
        [("authorization", "Bearer a b")],
        [("authorization", "Bearer a,b")],
        [("authorization", "Bearer a, Bearer b")],
        [("authorization", "Bearer é")],
        [("authorization", "Bearer a"), ("authorization", "Bearer b")],
        [("authorization", "Bearer a"), ("Authorization", "Basic b")],
    ],
)
async def test_a_malformed_proof_is_a_400(headers):
    async with serving(make_server(), HTTPOptions(auth=guard(Authority()))) as client:
        fields = [(name.encode(), value.encode("latin-1")) for name, value in headers]

        async def app(scope, receive, send):
            kept = [pair for pair in scope["headers"] if pair[0] != b"authorization"]
            await client.app({**scope, "headers": [*kept, *fields]}, receive, send)

        refused = await call(Client(app, client.nursery))
        assert refused.status == 400
        assert challenge(refused)[1]["error"] == "invalid_request"


async def test_a_token_in_the_url_is_a_400_and_never_taken():
    authority = Authority()
    async with serving(make_server(), HTTPOptions(auth=guard(authority))) as client:
        token = authority.sign()
        for query in (f"access_token={token}", f"a=b&access_token={token}", "access_token="):
            for headers in (STREAM, {**STREAM, **bearer(token)}):
                refused = await client.request("GET", headers=headers, query=query.encode())
                assert refused.status == 400
                assert challenge(refused)[1]["error"] == "invalid_request"
                assert token not in refused.body.decode()


async def test_step_by_step_a_client_hears_of_the_scopes_it_needs():
    authority = Authority()
    auth = guard(authority, implies={"write": ["read"], "admin": ["write"]})
    async with serving(make_server("base"), HTTPOptions(auth=auth)) as client:
        refused = await call(client, "save", **bearer(authority.sign(scope="base")))
        assert refused.status == 403
        assert challenge(refused) == (
            "Bearer",
            {
                "error": "insufficient_scope",
                "error_description": "more scopes are needed",
                # `read` comes with `write`.
                "scope": "base write",
                "resource_metadata": PRM,
            },
        )
        for scope in ("base write", "admin base", "base read write"):
            token = authority.sign(scope=scope)
            assert (await call(client, "save", **bearer(token))).status == 200
        assert (await call(client, "save", **bearer(authority.sign(scope="admin")))).status == 403


async def test_scopes_that_are_no_affair_of_ours_are_never_asked_for():
    auth = guard(Authority(), scopes_supported=("a", "offline_access"))
    async with serving(make_server("base", "offline_access"), HTTPOptions(auth=auth)) as client:
        assert challenge(await call(client))[1]["scope"] == "base"
    assert auth.document(frozenset())["scopes_supported"] == ["a"]


async def test_the_metadata_are_those_of_rfc_9728():
    auth = guard(Authority(), name="Our tools", documentation="https://mcp.example/docs")
    async with serving(make_server("base"), HTTPOptions(auth=auth)) as client:
        got = await client.request("GET", path="/.well-known/oauth-protected-resource/mcp")
        document = got.json()
    algorithms = document.pop("dpop_signing_alg_values_supported")
    assert "ES256" in algorithms
    assert not {"none", "HS256"} & set(algorithms)
    assert document == {
        "resource": RESOURCE,
        "authorization_servers": [ISSUER],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["base"],
        "resource_name": "Our tools",
        "resource_documentation": "https://mcp.example/docs",
    }


async def test_a_toolset_is_a_resource_of_its_own():
    authority = Authority()
    options = HTTPOptions(auth=guard(authority)).at("/mcp/crm")
    where = "https://mcp.example/.well-known/oauth-protected-resource/mcp/crm"
    async with serving(make_server("crm"), options) as client:

        async def ask(**headers):
            return await client.request("GET", path="/mcp/crm", headers={**STREAM, **headers})

        refused = await ask()
        told = {"scope": "crm", "resource_metadata": where}
        assert (refused.status, challenge(refused)) == (401, ("Bearer", told))
        assert (await ask(**bearer(authority.sign()))).status == 401
        token = authority.sign(aud=f"{RESOURCE}/crm")
        assert challenge(await ask(**bearer(token)))[1]["error"] == "insufficient_scope"
        good = authority.sign(aud=f"{RESOURCE}/crm", scope="crm")
        assert (await ask(**bearer(good))).status == 405  # no session: it has passed


def test_a_resource_stands_where_its_endpoint_does():
    auth = guard(Authority())
    assert auth.moved("/mcp", "/mcp/crm").resource == f"{RESOURCE}/crm"
    assert attrs.evolve(auth, resource="https://x.example/a/mcp/").moved(
        "/mcp/", "/b"
    ).resource == ("https://x.example/a/b")
    with pytest.raises(ConfigurationError, match="does not end with /other"):
        auth.moved("/other", "/x")
    with pytest.raises(ConfigurationError, match="does not end with /other"):
        HTTPOptions(auth=auth, path="/other").at("/x")


async def test_anonymous_callers_may_be_served_until_they_need_scopes():
    authority = Authority()
    auth = guard(authority, anonymous=True)
    async with serving(make_server(), HTTPOptions(auth=auth)) as client:
        assert "-" in (await call(client)).body.decode()
        refused = await call(client, "save")
        told = {"scope": "read write", "resource_metadata": PRM}
        assert (refused.status, challenge(refused)) == (401, ("Bearer", told))
        assert (await call(client, **bearer(authority.sign(exp=NOW - 60)))).status == 401
        assert (await call(client, "save", **bearer(authority.sign()))).status == 200


# -- several kinds of proof ------------------------------------------------------------


def with_tls(client, pem):
    async def app(scope, receive, send):
        tls = {"client_cert_chain": [pem], "client_cert_error": None}
        extensions = {**scope["extensions"], "tls": tls}
        await client.app({**scope, "extensions": extensions}, receive, send)

    return Client(app, client.nursery)


async def test_several_ways_to_prove_it_stand_side_by_side(tmp_path):
    shown, line = new_key("laptop", "bob", ["read"])
    file = tmp_path / "keys.toml"
    file.write_text(line)
    file.chmod(0o600)
    one, two = Authority(), Authority("https://other.example")
    agent = ClientCertificates(
        identities={"cn:agent": CertificateIdentity(subject="the agent")}, clock=lambda: CERTIFIED
    )
    auth = guard(one, two.tokens(), APIKeys(path=file), agent)
    async with serving(make_server(), HTTPOptions(auth=auth)) as client:
        for headers, subject in (
            (bearer(one.sign()), "ann"),
            (bearer(two.sign(sub="ann2")), "ann2"),
            (bearer(shown.reveal()), "bob"),
            ({"x-api-key": shown.reveal()}, "bob"),
        ):
            for each in (client, with_tls(client, PEM)):
                assert f'"{subject}"' in (await call(each, **headers)).body.decode()
        assert "the agent" in (await call(with_tls(client, PEM))).body.decode()
        # A bad token is not made good by a certificate.
        assert (await call(with_tls(client, PEM), **bearer("rubbish"))).status == 401
        assert (await call(with_tls(client, PEM), **bearer(one.sign(exp=NOW - 60)))).status == 401
    assert auth.document(frozenset())["authorization_servers"] == [ISSUER, "https://other.example"]


async def test_one_issuer_does_not_speak_for_another():
    one, two = Authority(), Authority("https://other.example")
    auth = guard(one, two.tokens())
    async with serving(make_server(), HTTPOptions(auth=auth)) as client:
        for forged in (one.sign(iss=two.issuer), two.sign(iss=one.issuer)):
            assert (await call(client, **bearer(forged))).status == 401


async def test_with_keys_alone_nothing_is_published(tmp_path):
    file = tmp_path / "keys.toml"
    file.write_text("")
    file.chmod(0o600)
    auth = ResourceServer(resource=RESOURCE, authenticators=[APIKeys(path=file)])
    async with serving(make_server(), HTTPOptions(auth=auth)) as client:
        assert challenge(await call(client)) == ("Bearer", {})
        path = "/.well-known/oauth-protected-resource/mcp"
        assert (await client.request("GET", path=path)).status == 404


async def test_a_way_of_your_own_may_be_one_of_them():
    class Mine:
        issuers = ()

        async def authenticate(self, credentials):
            await trio.lowlevel.checkpoint()
            if credentials.head.headers.get("x-mine") == "no":
                raise UnauthorizedError("mine is wrong")
            return Principal(subject="me") if "x-mine" in credentials.head.headers else None

    auth = ResourceServer(resource=RESOURCE, authenticators=[Mine()])
    async with serving(make_server(), HTTPOptions(auth=auth)) as client:
        assert '"me"' in (await call(client, **{"x-mine": "yes"})).body.decode()
        refused = await call(client, **{"x-mine": "no"})
        assert challenge(refused)[1]["error_description"] == "mine is wrong"
        assert (await call(client)).status == 401


async def test_an_issuer_that_is_gone_is_a_503():
    authority = Authority()
    authority.answers["/jwks"] = 500
    async with serving(make_server(), HTTPOptions(auth=guard(authority))) as client:
        refused = await call(client, **bearer(authority.sign()))
        assert refused.status == 503
        assert "retry-after" in refused.headers
        assert "www-authenticate" not in refused.headers


# -- tokens that are bound to something ------------------------------------------------

HOLDER = key()


def bound(authority, *, to=HOLDER, **changes):
    return authority.sign(cnf={"jkt": to.thumbprint()}, **changes)


def with_proof(token, signer=HOLDER, **changes):
    from tests.auth.resource_server.authority import digest

    shown = proof(signer, ath=digest(token), **changes)
    return {"authorization": f"DPoP {token}", "dpop": shown}


async def test_a_token_that_is_bound_to_a_key_needs_a_new_proof_for_each_request():
    authority = Authority()
    async with serving(make_server(), HTTPOptions(auth=guard(authority))) as client:
        token = bound(authority)
        shown = with_proof(token)
        assert (await call(client, **shown)).status == 200
        again = await call(client, **shown)
        assert again.status == 401
        scheme, told = challenge(again)
        assert scheme == "DPoP"
        assert told["error"] == "invalid_dpop_proof"
        assert "ES256" in told["algs"].split()
        assert told["resource_metadata"] == PRM
        assert (await call(client, **with_proof(token))).status == 200
        assert (await client.websocket(**with_proof(token, htm="GET"))).accepted


@pytest.mark.parametrize("flaw", ["bearer", "no proof", "thief", "unbound", "unknown", "empty"])
async def test_a_stolen_token_is_of_no_use(flaw):
    authority = Authority()
    token = bound(authority)
    shown = {
        "bearer": lambda: {**with_proof(token), **bearer(token)},
        "no proof": lambda: {"authorization": f"DPoP {token}"},
        "thief": lambda: with_proof(token, key()),
        "unbound": lambda: with_proof(authority.sign()),
        "unknown": lambda: bearer(authority.sign(cnf={"kid": "x"})),
        "empty": lambda: bearer(authority.sign(cnf={})),
    }[flaw]()
    async with serving(make_server(), HTTPOptions(auth=guard(authority))) as client:
        refused = await call(client, **shown)
        assert refused.status == 401
        assert challenge(refused)[1]["error"] in {"invalid_token", "invalid_dpop_proof"}


async def test_bound_tokens_can_be_demanded():
    authority = Authority()
    auth = guard(authority, dpop=DPoP(required=True, clock=lambda: NOW))
    assert auth.document(frozenset())["dpop_bound_access_tokens_required"] is True
    async with serving(make_server("read"), HTTPOptions(auth=auth)) as client:
        assert challenge(await call(client))[0] == "DPoP"
        refused = await call(client, **bearer(authority.sign()))
        assert (refused.status, challenge(refused)[0]) == (401, "DPoP")
        assert (await call(client, **with_proof(bound(authority)))).status == 200
        low = await call(client, "save", **with_proof(bound(authority, scope="read")))
        assert (low.status, challenge(low)[0]) == (403, "DPoP")


async def test_a_nonce_is_given_to_who_has_none():
    authority = Authority()
    dpop = DPoP(nonces=Nonces(), clock=lambda: NOW)
    async with serving(make_server(), HTTPOptions(auth=guard(authority, dpop=dpop))) as client:
        token = bound(authority)
        refused = await call(client, **with_proof(token))
        assert (refused.status, challenge(refused)[1]["error"]) == (401, "use_dpop_nonce")
        nonce = refused.headers["dpop-nonce"]
        assert (await call(client, **with_proof(token, nonce=nonce))).status == 200


async def test_a_token_may_be_bound_to_a_certificate():
    from mcp_trio.auth.resource_server.client_certificates import (
        read_certificate,
    )
    from tests.auth.resource_server.test_client_certificates import certificate

    authority = Authority()
    token = authority.sign(cnf={"x5t#S256": read_certificate(PEM).thumbprint})
    async with serving(make_server(), HTTPOptions(auth=guard(authority))) as client:
        assert (await call(with_tls(client, PEM), **bearer(token))).status == 200
        assert (await call(client, **bearer(token))).status == 401
        assert (await call(with_tls(client, certificate()), **bearer(token))).status == 401


async def test_a_proof_is_for_the_url_that_the_client_sees():
    authority = Authority()
    auth = guard(authority, resource="https://mcp.example/base/mcp")
    aud = "https://mcp.example/base/mcp"
    async with serving(make_server(), HTTPOptions(auth=auth)) as client:
        token = bound(authority, aud=aud)
        assert (await call(client, **with_proof(token, htu=aud))).status == 200
        inner = "http://127.0.0.1:8000/mcp"
        assert (await call(client, **with_proof(token, htu=inner))).status == 401


# -- settings --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"resource": "mcp.example/mcp"},
        {"resource": "https://mcp.example/mcp#x"},
        {"resource": "https://mcp.example/mcp?x"},
        {"resource": "https://me@mcp.example/mcp"},
        {"resource": "https://mcp.example:port/mcp"},
        {"resource": 'https://mcp.example/"'},
        {"resource": "https://mcp.example/\n"},
        {"authenticators": ()},
        {"scopes_supported": ["a b"]},
        {"implies": {"a": ["b c"]}},
    ],
)
def test_what_cannot_be_is_told_at_once(options):
    given = {"resource": RESOURCE, "authenticators": [Authority().tokens()], **options}
    with pytest.raises(ConfigurationError):
        ResourceServer(**given)


@pytest.mark.parametrize(
    ("implies", "held", "all_held"),
    [
        ({}, "a", "a"),
        ({"a": ["b"], "b": ["c"]}, "a", "a b c"),
        ({"a": ["b"], "b": ["a"]}, "b", "a b"),
        ({"a": ["a"]}, "a x", "a x"),
    ],
)
def test_scopes_hold_others(implies, held, all_held):
    assert ScopeHierarchy(implies).expand(held.split()) == set(all_held.split())


@pytest.mark.parametrize(
    ("implies", "needed", "least"),
    [
        ({}, "b a", "a b"),
        ({"a": ["b"], "b": ["c"]}, "a b c", "a"),
        ({"a": ["b"]}, "b", "b"),
        ({"a": ["b"], "b": ["a"]}, "a b", "b"),
    ],
)
def test_no_more_scopes_are_asked_for_than_it_takes(implies, needed, least):
    assert " ".join(ScopeHierarchy(implies).least(needed.split())) == least


# -- what never shows ------------------------------------------------------------------


async def test_no_token_shows_in_a_log_an_event_or_an_answer(caplog):
    caplog.set_level(logging.DEBUG)
    authority = Authority()
    auth = guard(authority, dpop=DPoP(clock=lambda: NOW))
    server = make_server("base")
    good, low = authority.sign(scope="base"), authority.sign(scope="x")
    bad = authority.sign(exp=NOW - 60)
    forged = authority.sign(key("k1"))
    held = bound(authority)
    shown = with_proof(held)
    seen = []
    async with (
        server.events.subscribe() as events,
        serving(server, HTTPOptions(auth=auth)) as client,
    ):
        for headers in (bearer(good), bearer(low), bearer(bad), bearer(forged), shown, shown):
            for name in ("who", "save", "nothing"):
                answer = await call(client, name, **headers)
                seen.append(f"{answer.headers} {answer.body.decode()}")
        while True:
            try:
                seen.append(repr(events.receive_nowait()))
            except trio.WouldBlock:
                break
    assert any("RequestCompleted" in each for each in seen)
    assert "a proof was refused" in caplog.text
    text = caplog.text + "".join(seen) + repr(auth) + json.dumps(auth.document(frozenset()))
    for secret in (good, low, bad, forged, held, shown["dpop"]):
        assert secret not in text
        assert secret.split(".")[2] not in text
