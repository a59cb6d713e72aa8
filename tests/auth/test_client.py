"""A whole client against a server that wants tokens, over sockets, in both eras."""

import httpx2
import pytest
import trio

import mcp_trio
from mcp_trio.auth import BearerToken, ClientCredentials, LoopbackRedirect, OAuth
from mcp_trio.errors import ConfigurationError, ErrorCode
from mcp_trio.transports.http_sse import HTTPSSETransport
from tests.auth.guarded import guarded

REVISIONS = ("2026-07-28", "2025-11-25")


def by_person(world):
    """A person whose browser follows the redirect to the loopback port."""

    async def browse(url):
        async with httpx2.AsyncClient(trust_env=False) as http:
            answer = await http.get(world.consent(url))
        assert answer.status_code == 200

    return OAuth(redirect=LoopbackRedirect(open_page=browse))


def options(auth, revision, **more):
    return mcp_trio.ClientOptions(auth=auth, revisions=(revision,), **more)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_client_gets_a_token_while_it_connects(revision):
    async with guarded() as world:
        auth = by_person(world)
        async with mcp_trio.MCPClient(world.url, options=options(auth, revision)) as client:
            result = await client.call_tool("add", {"a": 1, "b": 2})
            assert result.structured_content == {"result": 3}
        assert len(world.visits) == 1
        # What it has learnt is kept by the choices, for the next connection.
        async with mcp_trio.MCPClient(world.url, options=options(auth, revision)) as client:
            await client.ping()
        assert len(world.visits) == 1


async def test_a_client_of_all_revisions_is_not_misled_by_a_refusal():
    async with guarded() as world:
        async with mcp_trio.MCPClient(
            world.url, options=mcp_trio.ClientOptions(auth=by_person(world))
        ) as client:
            assert client.revision.stateless
        assert len(world.visits) == 1


async def test_a_person_may_take_longer_than_a_probe():
    async with guarded() as world:

        async def dawdle(url):
            await trio.sleep(0.2)
            await consent(url)

        auth = by_person(world)
        consent = auth.redirect.open_page
        slow = OAuth(redirect=LoopbackRedirect(open_page=dawdle))
        chosen = mcp_trio.ClientOptions(auth=slow, probe_timeout=0.05)
        async with mcp_trio.MCPClient(world.url, options=chosen) as client:
            assert client.revision.stateless


@pytest.mark.parametrize("revision", [*REVISIONS, None])
async def test_a_refusal_of_the_authorization_server_is_the_end_and_says_why(revision):
    async with guarded(token_error="unauthorized_client") as world:
        auth = ClientCredentials(client_id="c", client_secret="s3cret")
        chosen = mcp_trio.ClientOptions(auth=auth) if revision is None else options(auth, revision)
        with pytest.raises(mcp_trio.MCPError, match="unauthorized_client") as caught:
            async with mcp_trio.MCPClient(world.url, options=chosen):
                pytest.fail("connected without a token")
        assert caught.value.code is ErrorCode.UNAUTHORIZED
        assert len(world.forms) == 1
        assert "s3cret" not in str(caught.value)


async def test_a_refusal_later_concerns_the_call_only():
    async with guarded() as world:
        auth = ClientCredentials(client_id="c", client_secret="s3cret")
        async with mcp_trio.MCPClient(world.url, options=options(auth, REVISIONS[0])) as client:
            world.tokens.clear()
            world.token_error = "invalid_client"
            with pytest.raises(mcp_trio.MCPError) as caught:
                await client.call_tool("add", {"a": 1, "b": 2})
            assert caught.value.code is ErrorCode.UNAUTHORIZED
            world.token_error = None
            result = await client.call_tool("add", {"a": 1, "b": 2})
            assert result.structured_content == {"result": 3}


@pytest.mark.parametrize("revision", REVISIONS)
async def test_connecting_may_be_cancelled_at_any_time(revision):
    async with guarded() as world:
        for moment in range(0, 60, 6):
            auth = ClientCredentials(client_id="c", client_secret="s3cret")
            chosen = options(auth, revision)
            with trio.move_on_after(moment / 1000):
                async with mcp_trio.MCPClient(world.url, options=chosen) as client:
                    await client.ping()
            async with mcp_trio.MCPClient(world.url, options=chosen) as client:
                await client.ping()


async def test_a_token_of_the_programs_own_works_on_every_http_transport():
    async with guarded() as world:
        world.tokens["mine"] = []
        auth = BearerToken("mine").bind(f"{world.server}/sse")
        async with httpx2.AsyncClient(auth=auth, timeout=None, trust_env=False) as http:
            transport = HTTPSSETransport(f"{world.server}/sse", http)
            first = mcp_trio.ClientOptions(revisions=("2024-11-05",))
            async with mcp_trio.MCPClient(transport, options=first) as client:
                result = await client.call_tool("add", {"a": 1, "b": 2})
                assert result.content[0].text == "3"
        refused = BearerToken("other").bind(f"{world.server}/sse")
        async with httpx2.AsyncClient(auth=refused, timeout=None, trust_env=False) as http:
            transport = HTTPSSETransport(f"{world.server}/sse", http)
            with pytest.raises(mcp_trio.MCPError, match="refuses the token"):
                async with mcp_trio.MCPClient(transport, options=first):
                    pytest.fail("connected without a token")


@pytest.mark.parametrize(
    ("told", "shown"), [("it has expired", "given: it has expired"), ("s3cr3t is bad", "given$")]
)
async def test_why_a_token_is_refused_is_told_unless_that_repeats_it(told, shown):
    challenge = {"www-authenticate": f'Bearer error="invalid_token", error_description="{told}"'}
    server = httpx2.MockTransport(lambda _request: httpx2.Response(401, headers=challenge))
    auth = BearerToken("s3cr3t").bind("https://mcp.example/mcp")
    async with httpx2.AsyncClient(auth=auth, transport=server, trust_env=False) as http:
        with pytest.raises(mcp_trio.MCPError, match=shown):
            await http.get("https://mcp.example/mcp")


@pytest.mark.parametrize(
    "target", ["ws://127.0.0.1:1/mcp", "unix:///nowhere", mcp_trio.MCPServer("x")]
)
def test_only_http_takes_tokens(target):
    with pytest.raises(ConfigurationError, match="auth"):
        mcp_trio.MCPClient(target, options=mcp_trio.ClientOptions(auth=BearerToken("t")))


async def read(client):
    return (await client.read_resource("who:///am-i")).contents[0].text


async def test_nobody_gets_from_the_cache_what_was_answered_to_another_token():
    async with guarded() as world:
        world.tokens |= {"anns": [], "bobs": []}
        now = "anns"
        auth = BearerToken(lambda _url: now)
        async with mcp_trio.MCPClient(world.url, options=options(auth, REVISIONS[0])) as client:
            assert [await read(client), await read(client)] == ["Bearer anns"] * 2
            assert world.reads == 1
            now = "bobs"
            assert [await read(client), await read(client)] == ["Bearer bobs"] * 2
            assert world.reads == 2
            now = "anns"
            assert await read(client) == "Bearer anns"
            assert world.reads == 3


async def test_an_answer_to_one_who_is_no_longer_asking_is_not_kept():
    async with guarded() as world:
        world.tokens |= {"anns": [], "bobs": []}
        script = []
        auth = BearerToken(lambda _url: script.pop(0) if script else "anns")
        async with mcp_trio.MCPClient(world.url, options=options(auth, REVISIONS[0])) as client:
            # The look into the cache asks as ann, and the request itself is sent as bob.
            script += ["anns", "bobs"]
            assert await read(client) == "Bearer bobs"
            assert script == []
            assert [await read(client), await read(client)] == ["Bearer anns"] * 2
            assert world.reads == 2


async def test_a_refreshed_token_is_the_same_persons_and_a_new_login_may_be_anybodys():
    async with guarded(expires_in=None) as world:
        auth = by_person(world)
        async with mcp_trio.MCPClient(world.url, options=options(auth, REVISIONS[0])) as client:
            assert await read(client) == "Bearer access-1"
            world.tokens.pop("access-1")
            await client.call_tool("add", {"a": 1, "b": 2})
            assert (world.forms[-1]["grant_type"], len(world.visits)) == ("refresh_token", 1)
            assert (await read(client), world.reads) == ("Bearer access-1", 1)
            world.tokens.pop("access-2")
            world.refreshes.clear()
            await client.call_tool("add", {"a": 1, "b": 2})
            assert len(world.visits) == 2
            assert (await read(client), world.reads) == ("Bearer access-3", 2)


async def test_of_credentials_that_tell_nobody_apart_nothing_private_is_kept():
    class Own(httpx2.Auth):
        def auth_flow(self, request):
            request.headers["authorization"] = "Bearer mine"
            yield request

    class Mine:
        patience = 1.0

        def bind(self, url):
            return Own()

    async with guarded() as world:
        world.tokens["mine"] = []
        async with mcp_trio.MCPClient(world.url, options=options(Mine(), REVISIONS[0])) as client:
            await read(client)
            await read(client)
            assert world.reads == 2


async def test_credentials_that_do_not_come_cost_the_time_of_the_call():
    async with guarded() as world:
        world.tokens["mine"] = []
        hang = False

        async def supply(_url):
            if hang:
                await trio.sleep_forever()
            return "mine"

        chosen = options(BearerToken(supply), REVISIONS[0])
        async with mcp_trio.MCPClient(world.url, options=chosen) as client:
            hang = True
            with pytest.raises(mcp_trio.RequestTimeoutError):
                await client.read_resource("who:///am-i", timeout=0.1)
            hang = False
            assert await read(client) == "Bearer mine"
