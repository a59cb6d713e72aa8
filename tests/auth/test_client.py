"""A whole client against a server that wants tokens, over sockets, in both eras."""

from contextlib import asynccontextmanager

import httpx2
import pytest
import trio

import mcp_trio
from mcp_trio.auth import BearerToken, ClientCredentials, LoopbackRedirect, OAuth
from mcp_trio.errors import ConfigurationError, ErrorCode
from mcp_trio.transports.http_sse import HTTPSSETransport
from tests.auth.world import World
from tests.http.serving_tools import read_body, served

REVISIONS = ("2026-07-28", "2025-11-25")


@asynccontextmanager
async def guarded(**changes):
    """An MCP server behind a guard; gives its world, which knows the URLs."""
    server = mcp_trio.MCPServer("guarded")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    inner = server.asgi_app()
    world = None

    async def app(scope, receive, send):
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        protected = scope["path"] in {"/mcp", "/sse", "/messages"}
        if protected and world.refusal(headers) is None:
            await inner(scope, receive, send)
            return
        url = f"{world.server}{scope['path']}"
        body = await read_body(receive)
        answer = world.refusal(headers) if protected else None
        answer = answer or world.respond(scope["method"], url, headers, body)
        await reply(send, *answer)

    async with trio.open_nursery() as nursery:
        await nursery.start(inner.run)
        async with served(app) as port:
            base = f"http://127.0.0.1:{port}"
            world = World(server=base, url=f"{base}/mcp", issuer=base, **changes)
            yield world
        nursery.cancel_scope.cancel()


async def reply(send, status, headers, body):
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    pairs.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


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
    "target", ["ws://127.0.0.1:1/mcp", "unix:///nowhere", mcp_trio.MCPServer("x")]
)
def test_only_http_takes_tokens(target):
    with pytest.raises(ConfigurationError, match="auth"):
        mcp_trio.MCPClient(target, options=mcp_trio.ClientOptions(auth=BearerToken("t")))
