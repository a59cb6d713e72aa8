"""Who may do what: asked for each request and each entry of a listing; refusals and their codes."""

import base64

import httpx2
import pytest
import trio
import trio.testing

from mcp_trio import (
    ClientOptions,
    ConfigurationError,
    Context,
    HTTPOptions,
    MCPClient,
    MCPServer,
    NotFoundError,
    Principal,
    RemoteError,
    ServerOptions,
    UnauthorizedError,
)
from mcp_trio.engine.subscriptions import MAX_WATCHED
from mcp_trio.errors import ErrorCode, TransportError
from mcp_trio.testing import ScriptedPeer
from mcp_trio.transports.http_sse import HTTPSSETransport
from mcp_trio.transports.memory import MemoryTransport
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28
from tests.http.asgi import META, STATELESS, serving
from tests.messages import initialize
from tests.scenarios.manifest import in_worlds
from tests.scenarios.worlds import WORLDS, world

everywhere = in_worlds(WORLDS)
both_eras = pytest.mark.parametrize("revision", [R2025_11_25, R2026_07_28], ids=str)


def allowed_by_name(context: Context) -> bool:
    return not (context.target or "").startswith(("secret", "test://secret"))


def make_server(**options):
    server = MCPServer("s", options=ServerOptions(**options))
    for name in ("open", "secret_one", "other", "secret_two", "last"):
        server.add_tool(lambda: "ran", name=name)
        server.add_prompt(lambda: "text", name=name)
        server.add_resource(f"test://{name}", lambda: "text", name=name)
        server.add_resource(f"test://{name}/{{x}}", lambda x: x, name=name)
    return server


VISIBLE = ["open", "other", "last"]


@everywhere
async def test_what_may_not_be_called_is_neither_listed_nor_served(transport, revision):
    server = make_server()
    server.authorize(allowed_by_name)
    async with world(server, transport, revision) as client:
        assert [tool.name async for tool in client.tools()] == VISIBLE
        lists = {
            "prompts/list": ("prompts", "name", VISIBLE),
            "resources/list": ("resources", "uri", [f"test://{name}" for name in VISIBLE]),
            "resources/templates/list": (
                "resourceTemplates",
                "uriTemplate",
                [f"test://{name}/{{x}}" for name in VISIBLE],
            ),
        }
        for method, (key, field, expected) in lists.items():
            listed = await client.call(method)
            assert [entry[field] for entry in listed[key]] == expected
            if revision.stateless:
                assert listed["cacheScope"] == "private"
        for method, params in {
            "tools/call": {"name": "secret_one"},
            "prompts/get": {"name": "secret_one"},
            "resources/read": {"uri": "test://secret_one"},
            "completion/complete": {
                "ref": {"type": "ref/prompt", "name": "secret_one"},
                "argument": {"name": "x", "value": ""},
            },
        }.items():
            if method == "completion/complete":
                continue  # not offered by this server
            with pytest.raises(RemoteError) as caught:
                await client.call(method, params)
            assert caught.value.code is ErrorCode.UNAUTHORIZED
            assert not -32768 <= caught.value.rpc_code <= -32000
        assert (await client.call_tool("open")).content[0].text == "ran"


@both_eras
async def test_one_tool_prompt_or_resource_can_have_its_own(revision):
    server, asked = MCPServer("s"), []

    async def never(context: Context) -> bool:
        asked.append((context.method, context.target))
        await trio.lowlevel.checkpoint()
        return False

    server.add_tool(lambda: "x", name="shut", authorize=never)
    server.add_tool(lambda: "x", name="free")
    server.add_prompt(lambda: "x", name="shut", authorize=never)
    server.add_resource("test://shut", lambda: "x", name="shut", authorize=never)
    server.add_resource("test://shut/{x}", lambda x: x, name="shut", authorize=never)
    server.add_completion("y", lambda typed, known: ["z"], prompt="shut")
    async with world(server, "memory", revision) as client:
        assert [tool.name async for tool in client.tools()] == ["free"]
        assert (await client.call("prompts/list"))["prompts"] == []
        assert (await client.call("resources/list"))["resources"] == []
        assert (await client.call("resources/templates/list"))["resourceTemplates"] == []
        assert asked == [
            ("tools/call", "shut"),
            ("prompts/get", "shut"),
            ("resources/read", "test://shut"),
            ("resources/read", "test://shut/{x}"),
        ]
        asked.clear()
        calls = [
            ("tools/call", {"name": "shut"}),
            ("prompts/get", {"name": "shut"}),
            ("resources/read", {"uri": "test://shut"}),
            ("resources/read", {"uri": "test://shut/7"}),
            (
                "completion/complete",
                {
                    "ref": {"type": "ref/prompt", "name": "shut"},
                    "argument": {"name": "y", "value": ""},
                },
            ),
        ]
        if not revision.stateless:
            calls.append(("resources/subscribe", {"uri": "test://shut"}))
        for method, params in calls:
            with pytest.raises(RemoteError) as caught:
                await client.call(method, params)
            assert caught.value.code is ErrorCode.UNAUTHORIZED
        assert [target for _, target in asked] == [
            "shut",
            "shut",
            "test://shut",
            "test://shut/7",
            "shut",
            *(["test://shut"] if not revision.stateless else []),
        ]


@both_eras
@pytest.mark.parametrize("uri", ["test://s%65cret", "test://%73ecret_one", "TEST://secret"])
async def test_another_spelling_of_a_uri_does_not_get_past_it(revision, uri):
    server = make_server()
    server.add_resource("test://secret", lambda: "classified", name="secret")
    server.authorize(allowed_by_name)
    async with world(server, "memory", revision) as client:
        with pytest.raises(RemoteError):
            await client.call("resources/read", {"uri": uri})


async def test_pages_are_full_and_the_hidden_leave_no_gaps():
    server = make_server(page_size=2)
    server.authorize(allowed_by_name)
    async with MCPClient(server) as client:
        first = await client.list_tools()
        assert [tool.name for tool in first.tools] == ["open", "other"]
        second = await client.list_tools(first.next_cursor)
        assert [tool.name for tool in second.tools] == ["last"]
        assert second.next_cursor is None


@both_eras
async def test_it_is_asked_for_the_methods_it_was_registered_for(revision):
    server, asked = make_server(), []

    @server.authorize("tools/call", "prompts/get")
    def some(context: Context) -> bool:
        asked.append(context.method)
        return context.method == "tools/call"

    async with world(server, "memory", revision) as client:
        await client.call_tool("open")
        await client.call("resources/read", {"uri": "test://open"})
        with pytest.raises(RemoteError):
            await client.call("prompts/get", {"name": "open"})
    assert asked == ["tools/call", "prompts/get"]
    with pytest.raises(ConfigurationError, match="tools/cal"):
        server.authorize("tools/cal")(some)


async def test_all_of_them_have_to_agree_and_one_may_say_why():
    server = make_server()
    answers = {"first": True, "second": True}
    server.authorize(lambda context: answers["first"])

    @server.authorize
    async def second(context: Context) -> bool:
        if not answers["second"]:
            raise UnauthorizedError("only on Sundays", data={"when": "Sunday"})
        return True

    async with MCPClient(server) as client:
        await client.call_tool("open")
        answers["second"] = False
        with pytest.raises(RemoteError, match="only on Sundays") as caught:
            await client.call_tool("open")
        assert caught.value.data["when"] == "Sunday"
        assert caught.value.data["code"] == "MCP.UNAUTHORIZED"
        answers.update(first=False, second=True)
        with pytest.raises(RemoteError, match="may not"):
            await client.call_tool("open")


@pytest.mark.parametrize("answer", [None, 1, "yes", 0])
async def test_anything_but_true_is_no(answer):
    server = make_server()
    server.authorize("tools/call")(lambda context: answer)
    async with MCPClient(server) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("open")
        assert caught.value.code is ErrorCode.UNAUTHORIZED
        assert [tool async for tool in client.tools()] == []


@both_eras
async def test_one_that_fails_lets_nobody_in_and_tells_nothing(revision, caplog):
    server = make_server()

    @server.authorize("tools/call")
    def broken(context: Context) -> bool:
        raise RuntimeError("secret")

    async with world(server, "memory", revision) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("open")
        assert caught.value.rpc_code == -32603
        assert "secret" not in str(caught.value)


async def test_one_that_fails_hides_its_own_entry_and_no_other(caplog):
    server = make_server()
    server.add_tool(lambda: "x", name="broken", authorize=lambda ctx: "a" in ctx.principal.scopes)
    async with MCPClient(server) as client:
        names = [tool.name async for tool in client.tools()]
        assert "broken" not in names
        assert "open" in names
    assert "the authorizer of broken failed" in caplog.text


async def test_a_refused_handshake_is_not_one():
    server, open_ = make_server(), [False]
    server.authorize("initialize")(lambda context: open_[0])
    ours, theirs = MemoryTransport.pair()
    peer = ScriptedPeer(ours)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, theirs)
        hello = initialize("2025-11-25")["params"]
        await peer.ask(1, "initialize", hello)
        assert (await peer.hear_error()).code == 1401
        await peer.ask(2, "tools/call", {"name": "open"})
        assert "nitialize" in (await peer.hear_error()).message
        open_[0] = True
        await peer.ask(3, "initialize", hello)
        await peer.hear_result()
        await peer.ask(4, "tools/call", {"name": "open"})
        await peer.hear_result()
        nursery.cancel_scope.cancel()


async def test_who_calls_is_known_on_a_line():
    server = make_server()

    @server.authorize
    def only_ann(context: Context) -> bool:
        return context.principal is not None and context.principal.subject == "ann"

    for subject, code in (("ann", None), ("bob", ErrorCode.UNAUTHORIZED)):
        ours, theirs = MemoryTransport.pair()
        async with trio.open_nursery() as nursery:

            async def serve(theirs=theirs, subject=subject, *, task_status):
                principal = Principal(subject=subject)
                await server.serve(theirs, principal=principal, task_status=task_status)

            await nursery.start(serve)
            if code is None:
                async with MCPClient(ours) as client:
                    await client.call_tool("open")
            else:
                with pytest.raises(RemoteError) as caught:
                    async with MCPClient(ours):
                        pass
                assert caught.value.code is code
            nursery.cancel_scope.cancel()


# -- over HTTP -----------------------------------------------------------------------


def who(head) -> Principal | None:
    token = head.headers.get("authorization", "").removeprefix("Bearer ")
    if token == "wrong":
        raise UnauthorizedError("this token has expired")
    return Principal(subject=token) if token else None


def only_known(context: Context) -> bool:
    return context.principal is not None


async def serve(nursery, server):
    serve_http = server.serve_http

    async def run(*, task_status):
        options = HTTPOptions(identify=who)
        await serve_http("127.0.0.1", 0, options=options, task_status=task_status)

    (url,) = await nursery.start(run)
    return url


async def post(http, url, message, token="", **headers):
    fields = {"Accept": "application/json, text/event-stream", **headers}
    if token:
        fields["Authorization"] = f"Bearer {token}"
    return await http.post(url, json=message, headers=fields)


def stateless_call(name):
    return {
        "jsonrpc": "2.0",
        "id": 5,
        "method": "tools/call",
        "params": {"name": name, "_meta": META},
    }


STATELESS_CALL = {
    "MCP-Protocol-Version": STATELESS,
    "Mcp-Method": "tools/call",
    "Mcp-Name": "open",
}


async def test_over_http_a_refusal_is_403_and_an_unknown_caller_401():
    server = make_server()
    server.authorize("tools/call")(only_known)
    async with trio.open_nursery() as nursery:
        url = await serve(nursery, server)
        async with httpx2.AsyncClient(trust_env=False) as http:
            refused = await post(http, url, stateless_call("open"), **STATELESS_CALL)
            assert refused.status_code == 403
            assert refused.json()["id"] == 5
            assert refused.json()["error"]["data"]["code"] == "MCP.UNAUTHORIZED"
            served = await post(http, url, stateless_call("open"), "ann", **STATELESS_CALL)
            assert served.status_code == 200
            expired = await post(http, url, stateless_call("open"), "wrong", **STATELESS_CALL)
            assert expired.status_code == 401
            assert expired.headers["www-authenticate"] == "Bearer"
            assert expired.json()["error"]["message"] == "this token has expired"

            opened = await post(http, url, initialize("2025-11-25"), "ann")
            session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
            call = {
                "jsonrpc": "2.0",
                "id": 9,
                "method": "tools/call",
                "params": {"name": "open"},
            }
            assert (await post(http, url, call, "ann", **session)).status_code == 200
            # A session belongs to the one who opened it.
            for other in ("", "bob"):
                assert (await post(http, url, call, other, **session)).status_code == 404
                get = await http.get(
                    url,
                    headers={
                        **session,
                        "Accept": "text/event-stream",
                        "Authorization": f"Bearer {other}" if other else "",
                    },
                )
                assert get.status_code == 404
            opened = await post(http, url, initialize("2025-11-25"))
            session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
            refused = await post(http, url, call, **session)
            assert (refused.status_code, refused.json()["id"]) == (403, 9)
        nursery.cancel_scope.cancel()


async def test_over_http_a_refused_handshake_leaves_no_session():
    server = make_server()
    server.authorize(only_known)
    async with serving(server, HTTPOptions(identify=who)) as client:
        refused = await client.post(initialize("2025-11-25"))
        assert refused.status == 403
        assert "mcp-session-id" not in refused.headers
        assert client.app.statistics().sessions == 0
        served = await client.post(initialize("2025-11-25"), {"authorization": "Bearer ann"})
        assert "mcp-session-id" in served.headers
        assert client.app.statistics().sessions == 1


async def test_over_the_other_transports_of_http_the_caller_is_known_too():
    server = make_server()
    server.authorize("tools/call")(only_known)
    async with trio.open_nursery() as nursery:
        url = await serve(nursery, server)
        auth = {"Authorization": "Bearer ann"}
        async with httpx2.AsyncClient(trust_env=False, timeout=None, headers=auth) as http:
            line = HTTPSSETransport(url.replace("/mcp", "/sse"), http)
            options = ClientOptions(revisions=(R2025_11_25,))
            async with MCPClient(line, options=options) as client:
                assert (await client.call_tool("open")).content[0].text == "ran"
        async with httpx2.AsyncClient(trust_env=False) as http:
            bad = {"Authorization": "Bearer wrong", "Accept": "text/event-stream"}
            got = await http.get(url.replace("/mcp", "/sse"), headers=bad)
            assert got.status_code == 401
        async with MCPClient(url.replace("http", "ws"), options=options) as client:
            with pytest.raises(RemoteError):
                await client.call_tool("open")
        nursery.cancel_scope.cancel()


async def test_a_websocket_of_an_unknown_caller_is_refused_before_it_opens():
    def refuse(head):
        raise UnauthorizedError("no")

    server = make_server()
    async with trio.open_nursery() as nursery:

        async def run(*, task_status):
            options = HTTPOptions(identify=refuse)
            await server.serve_http("127.0.0.1", 0, options=options, task_status=task_status)

        (url,) = await nursery.start(run)
        with pytest.raises(TransportError, match="401"):
            async with MCPClient(url.replace("http", "ws")):
                pass
        nursery.cancel_scope.cancel()


# -- what must not be told -----------------------------------------------------------


def shut(context: Context) -> bool:
    return False


def make_paged(hidden=(), names="abcdef"):
    server = MCPServer("s", options=ServerOptions(page_size=2))
    for name in names:
        if name in hidden:
            server.add_tool(lambda: "x", name=name, authorize=shut)
        else:
            server.add_tool(lambda: "x", name=name)
    return server


@both_eras
@pytest.mark.parametrize(
    ("hidden", "pages"),
    [("cdef", ["ab"]), ("bcde", ["af"]), ("abcdef", [""]), ("acef", ["bd"]), ("df", ["ab", "ce"])],
)
async def test_no_page_says_that_there_is_something_behind_it_which_is_hidden(
    revision, hidden, pages
):
    async with world(make_paged(hidden), "memory", revision) as client:
        seen, cursor = [], None
        while True:
            page = await client.list_tools(cursor)
            seen.append("".join(tool.name for tool in page.tools))
            cursor = page.next_cursor
            if cursor is None:
                break
    assert seen == pages


async def test_a_cursor_does_not_say_how_much_was_left_out():
    async with MCPClient(make_paged("b")) as client:
        page = await client.list_tools()
    text = base64.urlsafe_b64decode(page.next_cursor + "==")
    # Neither the place nor the list it is in stands there for everybody to read.
    assert str(3).encode() + b":" not in text


@both_eras
async def test_a_walk_in_an_older_list_does_not_show_what_was_hidden_in_it(revision):
    server = make_paged("d", names="abcd")
    async with world(server, "memory", revision) as client:
        page = await client.list_tools()
        assert page.next_cursor is not None
        server.remove_tool("d")  # now nothing in the list is hidden from anybody
        page = await client.list_tools(page.next_cursor)
        assert [tool.name for tool in page.tools] == ["c"]


async def test_the_cursor_of_one_caller_shows_another_nothing_that_is_hidden_from_him():
    server = make_server(page_size=2)

    @server.authorize
    def by_caller(context: Context) -> bool:
        secret = (context.target or "").startswith("secret")
        return not secret or (context.principal is not None and context.principal.subject == "ann")

    pages = {}
    ours, theirs = MemoryTransport.pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: server.serve(theirs, principal=Principal(subject="ann")))
        async with MCPClient(ours) as ann, MCPClient(server) as other:
            first = await ann.list_tools()
            for name, client in (("ann", ann), ("other", other)):
                page = await client.list_tools(first.next_cursor)
                pages[name] = [tool.name for tool in page.tools]
        nursery.cancel_scope.cancel()
    assert pages == {"ann": ["other", "secret_two"], "other": ["other", "last"]}


@both_eras
async def test_one_that_becomes_strict_half_way_hides_the_rest(revision):
    server, strict = make_paged(), [False]

    @server.authorize("tools/call")
    async def some(context: Context) -> bool:
        if context.target == "b":
            strict[0] = True
        await trio.lowlevel.checkpoint()
        return not strict[0]

    async with world(server, "memory", revision) as client:
        page = await client.list_tools()
        assert [tool.name for tool in page.tools] == ["a"]
        assert page.next_cursor is None


@both_eras
async def test_a_long_list_of_which_little_is_shown_can_be_cancelled_and_lets_others_run(revision):
    server, steps = MCPServer("s"), []
    for number in range(500):
        server.add_tool(lambda: "x", name=f"t{number}", authorize=lambda _: bool(steps.append(1)))

    async def count():
        while True:
            steps.append(0)
            await trio.lowlevel.checkpoint()

    async with world(server, "memory", revision) as client, trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await client.list_tools()
        nursery.cancel_scope.cancel()
    asked = "".join(map(str, steps)).split("0")
    assert max(map(len, asked)) < 250  # of 500, in the turns of a scheduler that throws dice


async def test_many_uris_to_listen_to_are_cut_before_anybody_is_asked():
    server, asked = make_server(), []
    server.authorize("resources/read")(lambda context: not asked.append(context.target))
    wanted = [f"test://open/{number}" for number in range(MAX_WATCHED)]
    async with MCPClient(server) as client, trio.open_nursery() as nursery:
        told = []

        async def listen():
            await client.session.call(
                "subscriptions/listen",
                {"notifications": {"resourceSubscriptions": wanted * 3 + ["test://open/more"]}},
                on_notification=told.append,
            )

        nursery.start_soon(listen)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert asked == wanted
    assert told[0].params["notifications"]["resourceSubscriptions"] == wanted


@both_eras
@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("error", [UnauthorizedError("no"), NotFoundError("Unknown tool: shut")])
async def test_however_an_entry_says_no_it_costs_the_list_nothing_else(revision, wrapped, error):
    async def deny(context: Context) -> bool:
        if not wrapped:
            raise error
        async with trio.open_nursery():
            raise error

    server = MCPServer("s")
    server.add_tool(lambda: "x", name="shut", authorize=deny)
    server.add_tool(lambda: "x", name="free")
    async with world(server, "memory", revision) as client:
        assert [tool.name async for tool in client.tools()] == ["free"]
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("shut")
        assert caught.value.message == error.message


@both_eras
async def test_who_may_not_read_gets_no_suggestions_and_may_not_subscribe(revision):
    server = make_server()
    server.add_completion("x", lambda typed, known: ["classified"], prompt="secret_one")
    server.add_completion(
        "x", lambda typed, known: ["classified"], resource="test://secret_one/{x}"
    )
    server.add_completion("x", lambda typed, known: ["free"], prompt="open")
    server.add_completion("x", lambda typed, known: ["free"], resource="test://open/{x}")
    server.authorize("prompts/get", "resources/read")(allowed_by_name)

    def complete(kind, field, target):
        ref = {"type": f"ref/{kind}", field: target}
        return "completion/complete", {"ref": ref, "argument": {"name": "x", "value": ""}}

    refused = [
        complete("prompt", "name", "secret_one"),
        complete("resource", "uri", "test://secret_one/{x}"),
    ]
    served = [
        complete("prompt", "name", "open"),
        complete("resource", "uri", "test://open/{x}"),
    ]
    if not revision.stateless:
        refused += [
            ("resources/subscribe", {"uri": "test://secret_one"}),
            ("resources/subscribe", {"uri": "test://secret_one/1"}),
        ]
        served.append(("resources/subscribe", {"uri": "test://open"}))
    async with world(server, "memory", revision) as client:
        for method, params in refused:
            with pytest.raises(RemoteError) as caught:
                await client.call(method, params)
            assert caught.value.code is ErrorCode.UNAUTHORIZED
        for method, params in served:
            await client.call(method, params)


# -- scopes of entries ---------------------------------------------------------------


async def test_an_entry_may_need_scopes_and_ask_somebody_beside():
    server = MCPServer("s")
    asked = []

    def ask(context: Context) -> bool:
        asked.append(context.principal.subject)
        return context.principal.subject == "ann"

    @server.tool(required_scopes=("write",), authorize=ask)
    async def tool() -> str:
        return "ran"

    async def call(subject, *scopes):
        ours, theirs = MemoryTransport.pair()
        who = Principal(subject=subject, scopes=frozenset(scopes))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: server.serve(theirs, principal=who))
            async with MCPClient(ours) as client:
                listed = [tool.name async for tool in client.tools()]
                try:
                    return listed, (await client.call_tool("tool")).content[0].text
                except RemoteError as error:
                    return listed, error.data.get("requiredScopes")

    assert await call("ann", "write") == (["tool"], "ran")
    assert await call("ann") == ([], ["write"])
    assert "bob" not in asked
    assert await call("bob", "write") == ([], None)


@pytest.mark.parametrize("scopes", ["write", ["two words"], [""], ['a"b'], ["a\\b"], ["ä"]])
def test_what_cannot_be_a_scope_is_refused_at_once(scopes):
    server = MCPServer("s")
    with pytest.raises(ConfigurationError, match="tool"):
        server.add_tool(lambda: "x", name="tool", required_scopes=scopes)


@pytest.mark.parametrize(
    ("beyond", "scopes", "listed"),
    [
        (False, set(), ["open"]),
        (False, {"write"}, ["open", "write"]),
        (True, set(), ["open", "write", "ann_writes"]),
        (True, {"other"}, ["open", "write", "ann_writes"]),
        (True, None, ["open", "write", "ann_writes", "bob_writes"]),
    ],
)
async def test_what_takes_more_scopes_may_be_listed_to_who_can_get_them(beyond, scopes, listed):
    server = MCPServer("s", options=ServerOptions(list_beyond_scopes=beyond))
    server.add_tool(lambda: "x", name="open")
    server.add_tool(lambda: "x", name="write", required_scopes=["write"])
    for who in ("ann", "bob"):

        def only(context: Context, who=who) -> bool:
            return context.principal.subject == who and "write" in context.principal.scopes

        name = f"{who}_writes"
        server.add_tool(lambda: "x", name=name, required_scopes=["write"], authorize=only)
    server.add_tool(lambda: "x", name="shut", authorize=shut)
    caller = None if scopes is None else Principal(subject="ann", scopes=frozenset(scopes))
    ours, theirs = MemoryTransport.pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: server.serve(theirs, principal=caller))
        async with MCPClient(ours) as client:
            found = [tool.name async for tool in client.tools()]
            # A listing promises nothing.
            if "write" not in (scopes or ()):
                with pytest.raises(RemoteError):
                    await client.call_tool("write")
    expected = listed if "write" not in (scopes or ()) else [*listed, "ann_writes"]
    assert found == expected
