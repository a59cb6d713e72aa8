"""Operations behind the door of a service: whose credentials go where, and who is refused.

What was published is refused just as what was written by hand.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from mcp_trio import HTTPOptions, MCPServer, Principal, ServerOptions, UnauthorizedError
from mcp_trio.catalog.actor import CatalogActor
from mcp_trio.catalog.searching import SearchableTools
from mcp_trio.errors import OverloadedError
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.http_connection import Auth, HttpConnection
from mcp_trio.secrets import Secret
from mcp_trio.session.limits import LoadLimits
from mcp_trio.session.middleware import RequiresScopes
from tests.catalog.conftest import MemoryRegistry
from tests.http.asgi import serving
from tests.runtime.conftest import Upstream, make_view

TOKEN = "token-of-the-caller"
CALLER = {
    "authorization": f"Bearer {TOKEN}",
    "cookie": f"session={TOKEN}",
    "proxy-authorization": f"Basic {TOKEN}",
    "x-api-key": TOKEN,
}
ERAS = pytest.mark.parametrize("stateless", [True, False], ids=["stateless", "handshake"])


def identify(head):
    """Ann; the scopes stand in a header."""
    token = head.headers.get("authorization", "").removeprefix("Bearer ")
    scopes = frozenset(head.headers.get("x-scopes", "").split())
    return Principal(subject="ann", scopes=scopes, token=Secret(token) if token else None)


def operation(name, connection="crm", **changes):
    target = {"connection": connection, "method": "GET", "path": f"/{name}"}
    changes = {"input_mapping": {"query": {}}, "input_schema": {"type": "object"}, **changes}
    return make_view(operation_id=name, name=name, **{"target": target, **changes})


class Door:
    """Calls tools of a service as its clients do."""

    def __init__(self, client):
        self.client = client

    async def ask(self, method, params=None, *, stateless=True, headers=None):
        if stateless:
            return await self.client.stateless(method, params, headers=headers)
        session = await self.client.open_session()
        asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        return await session.post(asked, headers)

    async def call(self, name, *, arguments=None, **options):
        asked = {"name": name, "arguments": arguments or {}}
        return await self.ask("tools/call", asked, **options)


@asynccontextmanager
async def service(views, *connections, server=None, above=None, **options):
    """A service that publishes views; gives its door."""
    server = server or MCPServer("service")
    async with Connections(connections) as opened, trio.open_nursery() as nursery:
        actor = CatalogActor(MemoryRegistry(*views), Compiler(opened))
        server.add_provider(actor if above is None else SearchableTools(actor, above=above))
        await nursery.start(actor.run)
        with trio.fail_after(10):
            await actor.ready.wait()
        async with serving(server, HTTPOptions(identify=identify, **options)) as client:
            yield Door(client)
        nursery.cancel_scope.cancel()


def text_of(response):
    return response.message()["result"]["content"][0]["text"]


# -- whose credentials go where --------------------------------------------------------


@ERAS
@pytest.mark.parametrize("known", [False, True], ids=["nobody", "ourselves"])
async def test_nothing_by_which_a_caller_proves_itself_reaches_an_upstream(
    upstream, stateless, known
):
    auth = Auth(kind="bearer", secret=Secret("ours")) if known else Auth()
    crm = HttpConnection(name="crm", base_url=upstream.url, auth=auth)
    document = {"connection": "crm", "document": "query Q { a }", "path": "/graphql"}
    views = [
        operation("read"),
        operation("write", target={"connection": "crm", "method": "POST", "path": "/write"}),
        operation("query", protocol="graphql", target=document, input_mapping={}),
    ]
    async with service(views, crm) as door:
        for name in ("read", "write", "query"):
            upstream.says({"data": {"a": 1}})
            response = await door.call(name, stateless=stateless, headers=CALLER)
            assert response.status == 200
            assert response.message()["result"].get("isError", False) is False
    assert [seen.target for seen in upstream.seen] == ["/read", "/write", "/graphql"]
    for seen in upstream.seen:
        assert TOKEN not in repr(seen)
        assert seen.header("authorization") == ("Bearer ours" if known else None)
        assert seen.header("cookie") is None


@pytest.fixture
async def two(nursery):
    """Two upstreams, and a connection with a secret to each."""
    made = []
    for name in ("first", "second"):
        upstream = Upstream()
        listeners = await nursery.start(
            partial(trio.serve_tcp, upstream.serve, 0, host="127.0.0.1")
        )
        upstream.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        auth = Auth(kind="bearer", secret=Secret(f"secret-of-{name}"))
        made.append((upstream, HttpConnection(name=name, base_url=upstream.url, auth=auth)))
    return made


async def test_each_upstream_sees_its_own_secret_whatever_the_other_says(two):
    (first, one), (second, other) = two
    elsewhere = second.url.removeprefix("http:")

    def goes_to(place, **more):
        target = {"connection": "first", "method": "GET", "path": place, **more}
        return {"target": target, "input_mapping": {"path": {}, "query": {}}}

    into = {"target": {"connection": "first", "method": "GET", "path": "/x/{id}"}}
    views = [
        operation("plain", "first"),
        operation("other", "second"),
        operation("slashes", **goes_to(f"{elsewhere}/x")),
        operation("user", **goes_to(f"/@{elsewhere[2:]}/x")),
        operation(
            "value",
            **into,
            input_mapping={"path": {"id": "=args.id"}},
            input_schema={"type": "object", "properties": {"id": {"type": "string"}}},
        ),
        operation("pages", **goes_to("/pages", pagination={"by": "link", "items": "=body"})),
    ]
    async with service(views, one, other) as door:
        assert (await door.call("other")).status == 200
        assert len(second.seen) == 1
        places = [f"{second.url}/stolen", f"{elsewhere}/stolen", "http://169.254.169.254/latest"]
        for status in (301, 302, 303, 307, 308):
            for place in places:
                first.says({}, status=status, headers=[("location", place)])
                assert "redirects are not followed" in text_of(await door.call("plain"))
        first.says([1], headers=[("link", f'<{second.url}/stolen>; rel="next"')])
        assert (await door.call("pages")).message()["result"]["isError"] is True
        first.says({})
        for name in ("slashes", "user"):
            await door.call(name)
        for place in (second.url, f"{elsewhere}/x", f"../..{elsewhere}/x", f"@{elsewhere[2:]}"):
            await door.call("value", arguments={"id": place})
    assert len(second.seen) == 1
    assert {seen.header("authorization") for seen in first.seen} == {"Bearer secret-of-first"}
    assert {seen.header("authorization") for seen in second.seen} == {"Bearer secret-of-second"}
    host = first.url.removeprefix("http://")
    assert {seen.header("host") for seen in first.seen} == {host}


# -- the same refusals -----------------------------------------------------------------


def hand_written(**more):
    server = MCPServer("service")
    ran = []

    @server.tool(**more)
    async def written() -> str:
        ran.append("written")
        return "ran"

    return server, ran


def shape(response, name):
    """A refusal, with the name of the tool taken out."""
    headers = {k: v for k, v in response.headers.items() if k not in {"content-length", "date"}}
    return response.status, headers, response.body.decode().replace(name, "NAME")


@ERAS
@pytest.mark.parametrize("scopes", ["", "read", "admin", "write admin"])
async def test_scopes_are_demanded_of_both_in_the_same_words(upstream, stateless, scopes):
    wanted = {"admin", "write"}
    server, ran = hand_written(authorize=RequiresScopes(wanted, "the tool written"))
    view = operation("published", execution_config={"required_scopes": sorted(wanted)})
    crm = HttpConnection(name="crm", base_url=upstream.url)
    options = {"stateless": stateless, "headers": {"x-scopes": scopes}}
    async with service([view], crm, server=server) as door:
        by_hand, published = [await door.call(n, **options) for n in ("written", "published")]
        listed = await door.ask("tools/list", **options)
        names = {tool["name"] for tool in listed.message()["result"]["tools"]}
        if scopes == "write admin":
            assert ran == ["written"]
            assert len(upstream.seen) == 1
            assert names == {"written", "published"}
            return
        assert shape(published, "published") == shape(by_hand, "written")
        assert published.status == 403
        assert published.json()["error"]["data"]["requiredScopes"] == ["admin", "write"]
        assert names == set()
    assert (ran, upstream.seen) == ([], [])


async def test_no_way_round_leads_to_what_a_caller_may_not_call(upstream):
    view = operation("published", execution_config={"required_scopes": ["admin"]})
    crm = HttpConnection(name="crm", base_url=upstream.url)
    async with service([view, operation("open")], crm, above=1) as door:
        for through in ("call_tool", "describe_tool"):
            await door.call(through, arguments={"name": "published"})
        assert upstream.seen == []
        await door.call("call_tool", arguments={"name": "published"}, headers={"x-scopes": "admin"})
    assert len(upstream.seen) == 1


@ERAS
async def test_rules_and_quotas_of_the_server_hold_for_both(upstream, stateless):
    server, ran = hand_written()
    left = {"written": 2, "published": 2}
    seen = []

    @server.middleware
    async def quota(context, call_next):
        if context.method == "tools/call":
            seen.append(context.target)
            left[context.target] -= 1
            if left[context.target] < 0:
                raise OverloadedError("the quota is used up")
        return await call_next(context)

    @server.authorize("tools/call")
    def no_guests(context):
        if "guest" in context.principal.scopes:
            raise UnauthorizedError("not for guests")
        return True

    crm = HttpConnection(name="crm", base_url=upstream.url)
    async with service([operation("published")], crm, server=server) as door:
        for headers in ({}, {}, {}, {"x-scopes": "guest"}):
            by_hand, published = [
                await door.call(name, stateless=stateless, headers=headers)
                for name in ("written", "published")
            ]
            if left["written"] >= 0:
                assert "result" in by_hand.message()
                assert "result" in published.message()
            else:
                assert "error" in published.message()
                assert shape(published, "published") == shape(by_hand, "written")
    assert (len(ran), len(upstream.seen)) == (2, 2)
    assert seen.count("published") == seen.count("written")


async def test_the_limit_of_requests_that_run_holds_for_both():
    entered, release = trio.Event(), trio.Event()
    limits = LoadLimits(max_in_flight=1)
    server = MCPServer("service", options=ServerOptions(load=limits))

    @server.tool
    async def written() -> str:
        entered.set()
        await release.wait()
        return "ran"

    static = operation(
        "published", protocol="static", target={}, output_mapping={"result": {"v": 1}}
    )
    async with service([static], server=server) as door:
        waiting = door.client.start_stateless("tools/call", {"name": "written"})
        with trio.fail_after(10):
            await entered.wait()
        by_hand, published = [await door.call(name) for name in ("written", "published")]
        assert (published.status, published.headers["retry-after"]) == (503, "1")
        assert shape(published, "published") == shape(by_hand, "written")
        release.set()
        await waiting.ended.wait()
        assert (await door.call("published")).status == 200


@ERAS
async def test_the_rate_of_an_operation_is_kept_at_the_door(upstream, stateless):
    rate = {"rate_per_minute": {"limit": 2, "per": "principal"}}
    crm = HttpConnection(name="crm", base_url=upstream.url)
    async with service([operation("published", execution_config=rate)], crm) as door:
        answers = [await door.call("published", stateless=stateless) for _ in range(4)]
    failed = [response.message()["result"].get("isError", False) for response in answers]
    assert failed == [False, False, True, True]
    assert "only 2 calls a minute are let through for each caller" in text_of(answers[3])
    assert len(upstream.seen) == 2
