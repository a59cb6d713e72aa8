"""`HTTPOptions.auth`: what a guard publishes, and how a client that lacks scopes hears of it."""

import time

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcp_trio import ConfigurationError, HTTPOptions, MCPServer, Principal
from mcp_trio.abc import ChallengeError, ResourceGuard
from mcp_trio.http.by_path import ByPath
from mcp_trio.session.middleware import RequiresScopes
from tests.http.asgi import Client, serving
from tests.messages import initialize

PRM = "/.well-known/oauth-protected-resource"
CALL = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "pay"}}
NOTE = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Guard:
    """Takes `Authorization: NAME SCOPES...` for granted."""

    def __init__(self, place="/mcp", published=True):
        self.place = place
        self.published = published
        self.asked = []

    async def identify(self, head, scopes):
        self.asked.append(scopes)
        subject, _, held = head.headers.get("authorization", "").partition(" ")
        if subject == "bad":
            raise ChallengeError("bad", status=400, challenges=("Bearer x",))
        await trio.lowlevel.checkpoint()
        issuer = head.headers.get("x-issuer")
        found = Principal(subject=subject, issuer=issuer, scopes=frozenset(held.split()))
        return found if subject else None

    def lacking(self, scopes, *, known):
        told = f"Bearer {self.place} {' '.join(sorted(scopes))}"
        return ChallengeError("more", status=403 if known else 401, challenges=(told,))

    def document(self, scopes):
        return {"resource": self.place, "scopes": sorted(scopes)} if self.published else None

    def moved(self, path, to):
        return Guard(to)


def make_server(*base):
    server = MCPServer("s")
    if base:
        server.add_authorizer(RequiresScopes(base))
    server.authorize("tools/call")(RequiresScopes({"calls"}))

    @server.tool(required_scopes=["pay", "read"])
    async def pay() -> str:
        return "paid"

    @server.prompt(required_scopes=["ask"])
    def prompt() -> str:
        return "text"

    @server.resource("test://{name}", required_scopes=["see"])
    def shown(name: str) -> str:
        return name

    return server


def told(response):
    return response.headers.get("www-authenticate")


async def test_it_is_a_guard_by_its_methods():
    assert isinstance(Guard(), ResourceGuard)


# -- metadata --------------------------------------------------------------------------


@pytest.mark.parametrize("path", [PRM, f"{PRM}/mcp", f"{PRM}/mcp/"])
async def test_the_metadata_are_at_the_well_known_places_for_everybody(path):
    async with serving(make_server("base"), HTTPOptions(auth=Guard())) as client:
        origin = {"origin": "https://other.example", "host": "whoever.example"}
        got = await client.request("GET", path=path, headers=origin)
        assert (got.status, got.json()) == (200, {"resource": "/mcp", "scopes": ["base"]})
        assert got.headers["content-type"] == "application/json"
        assert got.headers["access-control-allow-origin"] == "*"
        assert (await client.request("HEAD", path=path)).status == 200
        preflight = await client.request("OPTIONS", path=path)
        assert (preflight.status, preflight.headers["access-control-allow-methods"]) == (
            204,
            "GET, HEAD",
        )
        assert (await client.request("POST", path=path)).status == 405
        assert (await client.request("GET", path=f"{PRM}/other")).status == 404


@pytest.mark.parametrize("auth", [None, Guard(published=False)])
async def test_where_nothing_is_published_nothing_is_found(auth):
    async with serving(make_server(), HTTPOptions(auth=auth)) as client:
        assert (await client.request("GET", path=f"{PRM}/mcp")).status == 404


async def test_each_endpoint_of_a_port_has_its_own():
    options = HTTPOptions(auth=Guard())
    first = make_server().asgi_app(options)
    second = make_server("crm").asgi_app(options.at("/mcp/crm"))
    app = ByPath(first, {"/mcp/crm": second})
    async with trio.open_nursery() as nursery:
        client = Client(app, nursery)
        for path, place, scopes in (
            (f"{PRM}/mcp/crm", "/mcp/crm", ["crm"]),
            (f"{PRM}/mcp/crm/", "/mcp/crm", ["crm"]),
            (f"{PRM}/mcp", "/mcp", []),
            (PRM, "/mcp", []),
        ):
            got = await client.request("GET", path=path)
            assert got.json() == {"resource": place, "scopes": scopes}


def test_only_one_may_say_who_calls():
    with pytest.raises(ConfigurationError, match="either identify or auth"):
        HTTPOptions(auth=Guard(), identify=lambda head: None)


# -- scopes ----------------------------------------------------------------------------

EVERY = "Bearer /mcp base calls pay read"


@pytest.mark.parametrize("held", ["base", "base calls pay", "x", "calls pay read"])
async def test_who_lacks_a_scope_hears_of_all_that_the_call_needs_at_once(held):
    async with serving(make_server("base"), HTTPOptions(auth=Guard())) as client:
        who = {"authorization": f"ann {held}"}
        refused = await client.stateless("tools/call", {"name": "pay"}, headers=who)
        assert (refused.status, told(refused)) == (403, EVERY)
        assert refused.json()["error"]["data"]["requiredScopes"] == EVERY.split()[2:]
        who = {"authorization": "ann base calls pay read more"}
        assert (await client.stateless("tools/call", {"name": "pay"}, headers=who)).status == 200


async def test_so_does_a_client_with_a_session():
    async with serving(make_server("base"), HTTPOptions(auth=Guard())) as client:
        opened = await client.post(initialize(), {"authorization": "ann base"})
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        refused = await client.post(CALL, {**session, "authorization": "ann base"})
        assert (refused.status, told(refused)) == (403, EVERY)
        assert refused.json()["id"] == 7
        more = {**session, "authorization": "ann base calls pay read"}
        assert (await client.post(CALL, more)).status == 200


@pytest.mark.parametrize(
    ("method", "params", "scopes"),
    [
        ("prompts/get", {"name": "prompt"}, "ask base"),
        ("resources/read", {"uri": "test://x"}, "base see"),
    ],
)
async def test_prompts_and_resources_need_scopes_too(method, params, scopes):
    async with serving(make_server("base"), HTTPOptions(auth=Guard())) as client:
        who = {"authorization": "ann", "mcp-name": params.get("name") or params["uri"]}
        refused = await client.stateless(method, params, headers=who)
        assert (refused.status, told(refused)) == (403, f"Bearer /mcp {scopes}")


async def test_nobody_in_particular_is_asked_to_prove_who_he_is():
    async with serving(make_server(), HTTPOptions(auth=Guard())) as client:
        assert (await client.stateless("tools/list")).status == 200
        refused = await client.stateless("tools/call", {"name": "pay"})
        assert (refused.status, told(refused)) == (401, "Bearer /mcp calls pay read")


async def test_without_a_guard_a_client_hears_of_the_scopes_all_the_same():
    async with serving(make_server(), HTTPOptions(identify=lambda head: None)) as client:
        refused = await client.stateless("tools/call", {"name": "pay"})
        wanted = 'Bearer error="insufficient_scope", scope="calls pay read"'
        assert (refused.status, told(refused)) == (403, wanted)


async def test_what_is_no_request_needs_what_everybody_needs():
    async with serving(make_server("base"), HTTPOptions(auth=Guard())) as client:
        opened = await client.post(initialize(), {"authorization": "ann base"})
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        low = {**session, "authorization": "ann"}
        answer = {"jsonrpc": "2.0", "id": 1, "result": {}}
        stream = {**low, "accept": "text/event-stream"}
        with trio.fail_after(5):  # a stream that is opened instead has no end
            for refused in (
                await client.post(NOTE, low),
                await client.post(answer, low),
                await client.request("GET", headers=stream),
                await client.request("GET", headers={**stream, "last-event-id": "1-0"}),
                await client.request("DELETE", headers=low),
                await client.request("GET", path="/sse", headers=stream),
            ):
                assert (refused.status, told(refused)) == (403, "Bearer /mcp base")
        assert (await client.websocket(authorization="ann")).status == 403
        assert (await client.websocket(authorization="ann base")).accepted
        assert (await client.post(NOTE, {**session, "authorization": "ann base"})).status == 202


async def test_a_guard_is_told_what_everybody_needs():
    guard = Guard()
    async with serving(make_server("base"), HTTPOptions(auth=guard)) as client:
        refused = await client.post(initialize(), {"authorization": "bad"})
        assert (refused.status, told(refused)) == (400, "Bearer x")
    assert guard.asked == [frozenset({"base"})]


# -- who is who ------------------------------------------------------------------------


async def test_the_same_name_from_another_issuer_is_another_caller():
    async with serving(make_server(), HTTPOptions(auth=Guard())) as client:
        ann = {"authorization": "ann calls pay read", "x-issuer": "https://a"}
        opened = await client.post(initialize(), ann)
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        for issuer in ("https://b", None):
            other = {**session, **ann, "x-issuer": issuer}
            assert (await client.post(CALL, other)).status == 404
        assert (await client.post(CALL, {**session, **ann})).status == 200


# -- how long a proof lasts ------------------------------------------------------------


async def for_a_minute(head):
    return Principal(subject="ann", expires=time.time() + 60)


async def test_a_websocket_lasts_as_long_as_its_proof(autojump_clock):
    began = trio.current_time()
    async with serving(make_server(), HTTPOptions(identify=for_a_minute)) as client:
        socket = await client.websocket()
        assert socket.accepted
        async for _ in socket.texts():
            pass
        assert trio.current_time() - began == pytest.approx(60, abs=1)
        assert socket.farewell["code"] == 1001
        await wait_all_tasks_blocked()
        assert client.app.statistics().sessions == 0


async def test_a_stream_that_is_only_listened_to_ends_with_the_proof(autojump_clock):
    async with serving(make_server(), HTTPOptions(identify=for_a_minute)) as client:
        session = await client.open_session()
        for begin in (
            session.start_get,
            lambda: client.start_stateless(
                "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
            ),
        ):
            began = trio.current_time()
            stream = begin()
            await stream.ended.wait()
            assert stream.status == 200
            assert trio.current_time() - began == pytest.approx(60, abs=1)
        # The session is still there for who proves himself anew.
        assert (await session.post(CALL)).status in {200, 403}


async def test_a_call_that_runs_when_the_proof_ends_is_answered(autojump_clock):
    server = make_server()

    @server.tool
    async def slow() -> str:
        await trio.sleep(50)
        return "done"

    async def for_a_moment(head):
        return Principal(subject="ann", scopes=frozenset({"calls"}), expires=time.time() + 1)

    async with serving(server, HTTPOptions(identify=for_a_moment)) as client:
        answered = await client.stateless("tools/call", {"name": "slow"})
        assert answered.message()["result"]["content"][0]["text"] == "done"
