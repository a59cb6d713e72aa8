"""Who sends a request: `HTTPOptions.identify` on every HTTP transport, well-behaved or not."""

import json

import pytest
import trio
import trio.testing

from mcp_trio import Context, HTTPOptions, MCPServer, Principal, UnauthorizedError
from mcp_trio.abc import ChallengeError
from mcp_trio.errors import InvalidParamsError, OverloadedError
from mcp_trio.http.options import IDENTIFY_TIMEOUT
from tests.http.asgi import Client, serving
from tests.messages import PING, initialize

STREAM = {"accept": "text/event-stream", "content-type": None}
WAYS = ("stateless", "handshake", "GET", "DELETE", "sse", "messages", "websocket")
everywhere = pytest.mark.parametrize("way", WAYS)


def make_server():
    server, seen = MCPServer("s"), []

    @server.tool
    async def who(ctx: Context) -> str:
        seen.append(ctx.principal)
        return "-" if ctx.principal is None else " ".join(sorted(ctx.principal.scopes))

    return server, seen


async def send(client, way, **headers):
    """Send the least that reaches `identify`; gives status and body, None where there is none."""
    match way:
        case "websocket":
            socket = await client.websocket(**headers)
            return socket.status, None
        case "stateless":
            got = await client.stateless("tools/call", {"name": "who"}, headers=headers)
        case "handshake":
            got = await client.post(initialize(), headers)
        case "GET" | "DELETE":
            session = {"mcp-session-id": "x", "accept": "text/event-stream"}
            got = await client.request(way, headers={**session, **headers})
        case "sse":
            got = await client.request("GET", path="/sse", headers={**STREAM, **headers})
        case "messages":
            body = json.dumps(PING).encode()
            got = await client.request(
                "POST", path="/messages", query=b"session_id=x", body=body, headers=headers
            )
    return got.status, got.json()


def raising(error):
    def identify(head):
        raise error

    return identify


async def in_a_group(head):
    async with trio.open_nursery():
        raise UnauthorizedError("expired")


@everywhere
@pytest.mark.parametrize(
    "identify",
    [
        raising(RuntimeError("secret")),
        raising(SystemExit("secret")),
        raising(InvalidParamsError("secret")),
        lambda head: "secret",
        lambda head: True,
        lambda head: {"subject": "secret"},
    ],
)
async def test_one_that_fails_or_gives_no_principal_lets_nobody_in(way, identify, caplog):
    server, seen = make_server()
    async with serving(server, HTTPOptions(identify=identify)) as client:
        status, body = await send(client, way, origin="http://localhost:3000")
        assert status == 500
        assert body is None or body["error"]["data"]["code"] == "MCP.HANDLER_FAILED"
        assert "secret" not in json.dumps(body)
        assert client.app.statistics().sessions == 0
    assert seen == []
    assert "identify failed, reference" in caplog.text


@everywhere
async def test_one_that_takes_for_ever_is_given_up(way, autojump_clock):
    async def identify(head):
        await trio.sleep_forever()

    server, seen = make_server()
    async with serving(server, HTTPOptions(identify=identify)) as client:
        began = trio.current_time()
        status, body = await send(client, way)
        assert trio.current_time() - began == pytest.approx(IDENTIFY_TIMEOUT)
        assert status == 503
        assert body is None or body["error"]["data"]["reason"] == "overloaded"
        assert client.app.statistics().refused == 1
    assert seen == []


@everywhere
@pytest.mark.parametrize(
    ("identify", "status"),
    [
        (in_a_group, 401),
        (raising(UnauthorizedError("expired")), 401),
        (raising(OverloadedError("not now")), 503),
    ],
)
async def test_one_may_say_no_in_its_own_words(way, identify, status):
    server, _ = make_server()
    async with serving(server, HTTPOptions(identify=identify)) as client:
        got, body = await send(client, way)
        assert got == status
        assert body is None or body["error"]["message"] in {"expired", "not now"}


# -- sessions and who may use them ---------------------------------------------------


async def slow(head):
    await trio.testing.wait_all_tasks_blocked()
    return by_token(head)


def by_token(head):
    subject, _, scopes = head.headers.get("authorization", "").partition(" ")
    return Principal(subject=subject, scopes=frozenset(scopes.split())) if subject else None


async def test_sockets_that_are_identified_at_the_same_time_are_not_more_than_allowed():
    server, _ = make_server()
    sockets = []
    async with serving(server, HTTPOptions(identify=slow, max_sessions=2)) as client:

        async def connect():
            sockets.append(await client.websocket(authorization="ann"))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(connect)
        assert [socket.status for socket in sockets if not socket.accepted] == [503] * 3
        assert client.app.statistics().sessions == 2


async def test_a_socket_that_is_identified_during_a_drain_is_refused():
    server, _ = make_server()
    go = trio.Event()

    async def identify(head):
        await go.wait()

    async with serving(server, HTTPOptions(identify=identify)) as client:
        async with trio.open_nursery() as nursery:
            sockets = []

            async def connect():
                sockets.append(await client.websocket())

            nursery.start_soon(connect)
            await trio.testing.wait_all_tasks_blocked()
            client.app.drain()
            go.set()
        assert [socket.status for socket in sockets] == [503]


CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "who"}}


async def test_each_request_of_a_session_has_the_principal_that_it_came_with():
    server, seen = make_server()
    async with serving(server, HTTPOptions(identify=by_token)) as client:
        opened = await client.post(initialize("2025-03-26"), {"authorization": "ann admin"})
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        for scopes in ("", "user", "admin user"):
            headers = {**session, "authorization": f"ann {scopes}"}
            for message in (CALL, [CALL, {**CALL, "id": 2}]):
                await client.post(message, headers)
                found = [" ".join(sorted(principal.scopes)) for principal in seen]
                assert found == [scopes] * (len(message) if isinstance(message, list) else 1)
                seen.clear()


async def test_each_message_of_the_old_transport_has_the_principal_that_it_came_with():
    server, seen = make_server()
    async with serving(server, HTTPOptions(identify=by_token)) as client:
        stream = client.start("GET", path="/sse", headers={**STREAM, "authorization": "ann admin"})
        while not stream.raw_events():
            await stream.changed.wait()
        query = stream.raw_events()[0][1].partition("?")[2].encode()

        async def post(message, who):
            return await client.request(
                "POST",
                path="/messages",
                query=query,
                body=json.dumps(message).encode(),
                headers={"authorization": who},
            )

        assert (await post(initialize("2024-11-05"), "ann admin")).status == 202
        assert (await post(CALL, "ann user")).status == 202
        while len(stream.raw_events()) < 3:
            await stream.changed.wait()
        for other in ("bob admin", ""):
            assert (await post({**CALL, "id": 2}, other)).status == 404
    assert [principal.scopes for principal in seen] == [frozenset({"user"})]


@pytest.mark.parametrize("other", ["bob", ""])
async def test_another_caller_can_do_nothing_with_a_session(other):
    server, seen = make_server()
    async with serving(server, HTTPOptions(identify=by_token)) as client:
        anns = {"authorization": "ann"}
        opened = await client.post(initialize(), anns)
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        theirs = {**session, "authorization": other}
        stream = {**theirs, "accept": "text/event-stream"}
        unknown = await client.post(CALL, {**theirs, "mcp-session-id": "unknown"})
        for refused in (
            await client.post(CALL, theirs),
            await client.request("GET", headers=stream),
            await client.request("GET", headers={**stream, "last-event-id": "1-0"}),
            await client.request("DELETE", headers=theirs),
        ):
            assert refused.status == 404
            assert refused.json()["error"]["message"] == unknown.json()["error"]["message"]
        assert seen == []
        assert (await client.post(CALL, {**session, **anns})).status == 200


@pytest.mark.parametrize("error", [InvalidParamsError("no"), RuntimeError("bug")])
async def test_a_handshake_that_is_refused_in_any_way_names_no_session(error):
    server, _ = make_server()

    @server.middleware
    async def deny(context, call_next):
        raise error

    async with serving(server) as client:
        refused = await client.post(initialize())
        assert "error" in refused.message()
        assert "mcp-session-id" not in refused.headers
        assert client.app.statistics().sessions == 0


async def test_header_values_of_any_bytes_reach_it_as_text():
    server, seen = make_server()
    rubbish = {"authorization": "\xff\xfe\x01 a\x80", "x-rubbish": "\0" * 100, "cookie": "a" * 9999}
    async with serving(server, HTTPOptions(identify=by_token)) as client:
        got = await client.stateless("tools/call", {"name": "who"}, headers=rubbish)
        assert got.status == 200
    assert seen[0] == Principal(subject="\xff\xfe\x01", scopes=frozenset({"a\x80"}))


# -- what it is told ------------------------------------------------------------------


async def heads(way, scope=(), **headers):
    """What `identify` is given for a request of some kind, whose scope has more in it."""
    found = []

    async def app(given, receive, answer):
        await client.app({**given, **dict(scope)}, receive, answer)

    server, _ = make_server()
    async with serving(server, HTTPOptions(identify=found.append)) as client:
        await send(Client(app, client.nursery), way, **headers)
    return found


@pytest.mark.parametrize(
    ("way", "method", "url"),
    [
        ("stateless", "POST", "http://127.0.0.1:8000/mcp"),
        ("GET", "GET", "http://127.0.0.1:8000/mcp"),
        ("messages", "POST", "http://127.0.0.1:8000/messages?session_id=x"),
        ("websocket", "GET", "ws://127.0.0.1:8000/mcp"),
    ],
)
async def test_it_is_told_method_url_and_address(way, method, url):
    (head,) = await heads(way, {"client": ("192.0.2.7", 4711)})
    assert (head.method, head.url, head.client) == (method, url, "192.0.2.7")
    assert "192.0.2.7" in repr(head)
    assert "127.0.0.1" not in repr(head)


async def test_the_url_is_the_one_that_the_client_wrote():
    more = {"scheme": "https", "path": "/mcp", "root_path": "/töp", "query_string": b"a=%20"}
    (head,) = await heads("stateless", more, host="localhost")
    assert head.url == "https://localhost/t%C3%B6p/mcp?a=%20"


async def test_header_fields_are_there_one_by_one_too():
    fields = [(b"Authorization", b"a"), (b"host", b"localhost"), (b"authorization", b"b")]
    (head,) = await heads("GET", {"headers": fields})
    assert head.values("authorization") == ("a", "b")
    assert head.headers["authorization"] == "a, b"
    assert head.client is None


@pytest.mark.parametrize(
    ("tls", "found"),
    [
        (None, None),
        ({"client_cert_chain": []}, None),
        ({"client_cert_chain": ("leaf", "issuer"), "client_cert_error": None}, "leaf"),
        ({"client_cert_chain": ("leaf",), "client_cert_error": "expired"}, None),
    ],
)
async def test_only_a_verified_certificate_of_the_client_is_told(tls, found):
    extensions = {} if tls is None else {"tls": tls}
    for way in ("stateless", "websocket"):
        more = {"websocket.http.response": {}} if way == "websocket" else {}
        (head,) = await heads(way, {"extensions": {**extensions, **more}})
        assert head.certificate == found
        assert "leaf" not in repr(head)


@everywhere
async def test_a_refusal_may_say_what_would_be_accepted(way):
    error = ChallengeError(
        "no",
        status=400,
        challenges=('Bearer error="invalid_request"', "DPoP"),
        headers=(("dpop-nonce", "n"),),
    )
    server, _ = make_server()
    answers = []

    async def app(scope, receive, put):
        async def look(event):
            if event["type"].endswith("response.start"):
                answers.append((event["status"], event["headers"]))
            await put(event)

        await client.app(scope, receive, look)

    async with serving(server, HTTPOptions(identify=raising(error))) as client:
        await send(Client(app, client.nursery), way)
    ((status, fields),) = answers
    assert status == 400
    assert [value for name, value in fields if name == b"www-authenticate"] == [
        b'Bearer error="invalid_request"',
        b"DPoP",
    ]
    assert (b"dpop-nonce", b"n") in fields
