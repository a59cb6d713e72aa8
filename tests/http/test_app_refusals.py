"""Every refusal of the endpoint: HTTP status, JSON-RPC code and id, to the letter."""

import json

import pytest
import trio
import trio.testing

from mcp_trio import HTTPOptions, Principal
from mcp_trio.session.limits import LoadLimits
from tests.http.asgi import META, STATELESS, serving
from tests.http.tools import make_server
from tests.messages import initialize

INITIALIZE = initialize(id_=1)
PING = {"jsonrpc": "2.0", "id": 2, "method": "ping"}


def call(**more):
    return {
        "jsonrpc": "2.0",
        "id": 5,
        "method": "tools/call",
        "params": {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": META},
        **more,
    }


HEADERS = {"mcp-protocol-version": STATELESS, "mcp-method": "tools/call", "mcp-name": "add"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 403),
        ({"host": "evil.example:8000", "origin": "http://evil.example:8000"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": None}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "file://"}, 403),
        ({"accept": "text/html"}, 406),
        ({"accept": "application/json;q=0"}, 406),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": None}, 415),
        ({"content-length": "5000000"}, 413),
    ],
)
async def test_the_gate_refuses(headers, status):
    server, _ = make_server()
    async with serving(server) as client:
        response = await client.post(call(), {**HEADERS, **headers})
        assert response.status == status
        assert response.json()["error"]["code"] == -32600
        assert "id" not in response.json()


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "localhost"},
        {"host": "LOCALHOST:9"},
        {"host": "[::1]:8000"},
        {"origin": "http://localhost:5173"},
        {"origin": "http://127.0.0.1:8000"},
        {"accept": "*/*"},
        {"accept": None},
        {"accept": "application/*, text/*"},
        {"accept": "application/json"},
        {"content-type": "application/json; charset=utf-8"},
    ],
)
async def test_the_gate_lets_pass(headers):
    server, _ = make_server()
    async with serving(server) as client:
        response = await client.post(call(), {**HEADERS, **headers})
        assert response.status == 200
        assert response.json()["result"]["structuredContent"] == {"result": 3}


async def test_a_client_that_takes_only_streams_gets_one():
    server, _ = make_server()
    async with serving(server) as client:
        response = await client.post(call(), {**HEADERS, "accept": "text/event-stream"})
        assert response.is_stream
        assert response.events()[0]["result"]["structuredContent"] == {"result": 3}


async def test_beyond_loopback_an_address_is_served_and_a_name_is_not():
    server, _ = make_server()
    async with serving(server, host="0.0.0.0") as client:
        for host, status in (("192.168.1.9:8000", 200), ("evil.example", 403)):
            assert (await client.post(call(), {**HEADERS, "host": host})).status == status
        foreign = {"host": "192.168.1.9:8000", "origin": "http://evil.example"}
        assert (await client.post(call(), {**HEADERS, **foreign})).status == 403


async def test_configured_names_and_origins_are_served():
    server, _ = make_server()
    options = HTTPOptions(
        allowed_hosts=frozenset({"API.example"}),
        allowed_origins=frozenset({"https://app.example/"}),
    )
    async with serving(server, options) as client:
        headers = {"host": "api.example:443", "origin": "https://app.example"}
        response = await client.post(call(), {**HEADERS, **headers})
        assert response.status == 200
        assert response.headers["access-control-allow-origin"] == "https://app.example"


@pytest.mark.parametrize(
    ("body", "code", "id_"),
    [
        (b"", -32700, None),
        (b'{"jsonrpc":"2.0","id":1', -32700, None),
        (b"\xff\xfe", -32700, None),
        (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\\ud800"}}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 100_000, -32600, 1),
        (b"[]", -32600, None),
        (b"3", -32600, None),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600, None),
        (b'{"id":1,"method":"ping"}', -32600, 1),
        (b'{"jsonrpc":"1.0","id":"x","method":"ping"}', -32600, "x"),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":null}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":1}', -32600, 1),
    ],
)
async def test_a_body_that_is_no_message_is_refused(body, code, id_):
    server, _ = make_server()
    async with serving(server) as client:
        response = await client.post(body)
        assert response.status == 400
        error = response.json()
        assert (error["error"]["code"], error.get("id")) == (code, id_)
        assert error["error"]["data"] == {"code": "MCP.PROTOCOL_INVALID"}
        assert len(client.app.sessions) == 0


@pytest.mark.parametrize(
    ("change", "headers", "status", "code"),
    [
        ({}, {"mcp-protocol-version": None}, 400, -32020),
        ({}, {"mcp-protocol-version": "2025-11-25"}, 400, -32020),
        ({}, {"mcp-protocol-version": "2026-07-28, 2026-07-28"}, 400, -32020),
        ({}, {"mcp-method": None}, 400, -32020),
        ({}, {"mcp-method": "TOOLS/CALL"}, 400, -32020),
        ({}, {"mcp-method": "tools/list"}, 400, -32020),
        ({}, {"mcp-name": None}, 400, -32020),
        ({}, {"mcp-name": "sub"}, 400, -32020),
        ({}, {"mcp-name": "=?base64?YWRk!?="}, 400, -32020),
        ({"method": "initialize"}, {"mcp-method": "initialize"}, 404, -32601),
        ({"method": "ping"}, {"mcp-method": "ping"}, 404, -32601),
        ({"method": "logging/setLevel"}, {"mcp-method": "logging/setLevel"}, 404, -32601),
        ({"method": "resources/subscribe"}, {"mcp-method": "resources/subscribe"}, 404, -32601),
        ({"method": "prompts/list"}, {"mcp-method": "prompts/list"}, 404, -32601),
        ({"method": "no/such"}, {"mcp-method": "no/such"}, 404, -32601),
        ({"params": {"name": "add"}}, {}, 400, -32602),
        ({"params": {"_meta": {}}}, {}, 400, -32602),
        (
            {
                "params": {
                    "name": "add",
                    "_meta": {**META, "io.modelcontextprotocol/clientCapabilities": 1},
                }
            },
            {},
            400,
            -32602,
        ),
        ({"params": {"name": "add", "arguments": [], "_meta": META}}, {}, 400, -32602),
        ({"params": {"arguments": {}, "_meta": META}}, {}, 400, -32602),
        ({"params": {"name": "nope", "_meta": META}}, {"mcp-name": "nope"}, 200, -32602),
        (
            {"params": {"name": "needs_sampling", "_meta": META}},
            {"mcp-name": "needs_sampling"},
            400,
            -32021,
        ),
    ],
)
async def test_the_stateless_era_refuses(change, headers, status, code):
    server, _ = make_server()
    async with serving(server) as client:
        response = await client.post(call(**change), {**HEADERS, **headers})
        assert response.status == status
        assert response.headers["content-type"] == "application/json"
        assert response.json()["error"]["code"] == code
        assert response.json()["id"] == 5


async def test_a_missing_capability_is_named():
    server, _ = make_server()
    async with serving(server) as client:
        response = await client.stateless("tools/call", {"name": "needs_sampling"})
        assert response.json()["error"]["data"] == {"requiredCapabilities": {"sampling": {}}}


@pytest.mark.parametrize("version", ["v999.0.0", "2099-01-01", "2025-11-25"])
async def test_an_unsupported_version_is_answered_with_the_ones_that_work(version):
    server, _ = make_server()
    async with serving(server) as client:
        response = await client.stateless(
            "server/discover",
            meta={"io.modelcontextprotocol/protocolVersion": version},
            headers={"mcp-protocol-version": version},
        )
        assert response.status == 400
        assert response.json()["error"]["code"] == -32022
        data = response.json()["error"]["data"]
        assert data["requested"] == version
        assert data["supported"][0] == STATELESS


@pytest.mark.parametrize("version", ["2099-01-01", "abc", "2025-11-25, 2025-06-18", ""])
async def test_an_unknown_version_header_alone_is_refused(version):
    server, _ = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        ping = {"jsonrpc": "2.0", "id": 3, "method": "ping"}
        response = await session.post(ping, {"mcp-protocol-version": version})
        assert response.status == 400
        assert (await session.post(ping)).json()["result"] == {}


async def test_a_known_version_that_was_not_negotiated_is_refused():
    server, _ = make_server()
    async with serving(server) as client:
        session = await client.open_session("2025-06-18")
        ping = {"jsonrpc": "2.0", "id": 3, "method": "ping"}
        assert (await session.post(ping, {"mcp-protocol-version": "2025-11-25"})).status == 400
        assert (await session.post(ping, {"mcp-protocol-version": "2025-06-18"})).status == 200


async def test_answers_and_batches_are_refused_in_the_stateless_era():
    server, _ = make_server()
    async with serving(server) as client:
        headers = {"mcp-protocol-version": STATELESS}
        for body in (
            {"jsonrpc": "2.0", "id": 1, "result": {}},
            {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "m"}},
            [call()],
        ):
            response = await client.post(body, headers)
            assert (response.status, response.json()["error"]["code"]) == (400, -32600)


async def test_a_notification_is_accepted_without_more_headers():
    server, _ = make_server()
    async with serving(server) as client:
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        response = await client.post(note, {"mcp-protocol-version": STATELESS})
        assert (response.status, response.body) == (202, b"")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize(
    "headers", [{}, {"mcp-protocol-version": STATELESS, "mcp-session-id": "x"}]
)
async def test_the_stateless_era_has_no_get_and_no_delete(method, headers):
    server, _ = make_server()
    async with serving(server) as client:
        response = await client.request(method, headers=headers)
        assert response.status == 405
        assert "POST" in response.headers["allow"]


async def test_session_and_event_ids_are_ignored_in_the_stateless_era():
    server, _ = make_server()
    async with serving(server) as client:
        headers = {"mcp-session-id": "dead", "last-event-id": "9-9"}
        response = await client.post(call(), {**HEADERS, **headers})
        assert response.status == 200
        assert "mcp-session-id" not in response.headers


async def test_a_session_that_is_missing_unknown_or_ended():
    server, _ = make_server()
    async with serving(server) as client:
        ping = {"jsonrpc": "2.0", "id": 3, "method": "ping"}
        missing = await client.post(ping)
        assert (missing.status, missing.json()["id"]) == (400, 3)
        unknown = await client.post(ping, {"mcp-session-id": "nope"})
        assert (unknown.status, unknown.json()["id"]) == (404, 3)
        session = await client.open_session()
        assert (await session.delete()).status == 204
        assert (await session.post(ping)).status == 404
        assert (await session.delete()).status == 404
        assert (await session.start_get().ended.wait()) is None
        got = session.start_get()
        await got.ended.wait()
        assert got.status == 404


async def test_refused_requests_leave_no_session():
    server, _ = make_server()
    async with serving(server) as client:
        bad = {**INITIALIZE, "params": {"protocolVersion": "2025-11-25"}}
        for _ in range(20):
            response = await client.post(bad)
            assert response.json()["error"]["code"] == -32602
            assert "mcp-session-id" not in response.headers
            await client.post(INITIALIZE, {"accept": "text/html"})
            await client.post(b"{")
            await client.request("GET")
        await trio.testing.wait_all_tasks_blocked()
        assert len(client.app.sessions) == 0


async def test_one_session_too_many_is_refused_until_one_ends():
    server, _ = make_server()
    async with serving(server, HTTPOptions(max_sessions=2)) as client:
        first = await client.open_session()
        await client.open_session()
        refused = await client.post(INITIALIZE)
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["id"] == 1
        assert refused.json()["error"]["data"]["reason"] == "overloaded"
        assert client.app.statistics().refused == 1
        await first.delete()
        await client.open_session()


async def test_the_session_that_is_silent_longest_makes_room_after_a_minute(autojump_clock):
    server, record = make_server()
    async with serving(server, HTTPOptions(max_sessions=4)) as client:
        busy, streaming, first, second = [await client.open_session() for _ in range(4)]
        busy.start_call("wait")
        streaming.start_get()
        await trio.sleep(50)
        await first.post(PING)  # so that it is not the oldest any more
        await trio.sleep(9)
        assert (await client.post(INITIALIZE)).status == 503
        await trio.sleep(2)
        third = await client.open_session()
        assert (await second.post(PING)).status == 404
        assert len(client.app.sessions) == 4
        # The next one has to wait until another has been silent for as long.
        assert (await client.post(INITIALIZE)).status == 503
        assert (await client.websocket()).status == 503
        await trio.sleep(50)
        assert (await client.websocket()).accepted
        assert (await first.post(PING)).status == 404
        await trio.sleep(300)
        await client.open_session()
        assert (await third.post(PING)).status == 404
        record.release.set()
        await record.until("wait started", "wait over")
        for session in (busy, streaming):
            assert (await session.post(PING)).status == 200


def told(request):
    return Principal(subject=request.headers["x-who"])


async def test_who_hoards_sessions_gives_them_up_to_others_though_none_is_silent(autojump_clock):
    server, _ = make_server()
    async with serving(server, HTTPOptions(max_sessions=20, identify=told)) as client:

        async def opened(who):
            return (await client.post(INITIALIZE, {"x-who": who})).headers.get("mcp-session-id")

        async def alive(session, who):
            fields = {"x-who": who, "mcp-session-id": session}
            return (await client.post(PING, fields)).status == 200

        hoard = [await opened("hog") for _ in range(19)]
        lonely = await opened("ann")
        for _ in range(3):
            await trio.sleep(30)
            assert await alive(lonely, "ann")
            assert all([await alive(session, "hog") for session in hoard])
        # Not for himself, and of his the ones that are silent longest.
        assert await opened("hog") is None
        for who in ("bob", "cy"):
            session = await opened(who)
            assert await alive(session, who)
        assert [await alive(session, "hog") for session in hoard] == [False] * 2 + [True] * 17
        assert await alive(lonely, "ann")
        # No further than to a fair part.
        taken = [await opened("dan") for _ in range(12)]
        assert [session is None for session in taken] == [False] * 8 + [True] * 4
        assert len(client.app.sessions) == 20
        for who, session in (("hog", hoard[-1]), ("dan", taken[0])):
            await client.request("DELETE", headers={"x-who": who, "mcp-session-id": session})
        assert None not in [await opened("eve"), await opened("eve")]
        assert sum(client.app.sessions._held.values()) == 20


async def test_who_hoards_sockets_gives_them_up_to_others(autojump_clock):
    server, _ = make_server()
    async with serving(server, HTTPOptions(max_sessions=5, identify=told)) as client:
        hog = {"x-who": "hog"}
        hoard = [await client.websocket(**hog) for _ in range(5)]
        assert all(socket.accepted for socket in hoard)
        assert (await client.websocket(**hog)).status == 503
        assert (await client.post(INITIALIZE, {"x-who": "ann"})).status == 200
        assert [text async for text in hoard[0].texts()] == []
        assert [socket.farewell is None for socket in hoard] == [False] + [True] * 4
        assert len(client.app.sessions) == 5


async def test_a_flood_of_sessions_ends_none_that_was_used_within_a_minute(autojump_clock):
    server, _ = make_server()
    async with serving(server, HTTPOptions(max_sessions=3)) as client:
        sessions = [await client.open_session() for _ in range(3)]
        for _ in range(20):
            await trio.sleep(30)
            for session in sessions:
                assert (await session.post(PING)).status == 200
            refused = await client.post(INITIALIZE)
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert client.app.statistics().refused == 20


async def test_one_request_too_many_is_refused_until_one_ends():
    server, record = make_server(load=LoadLimits(max_in_flight=2))
    async with serving(server) as client:
        running = [client.start_stateless("tools/call", {"name": "wait"}) for _ in range(2)]
        await trio.testing.wait_all_tasks_blocked()
        refused = await client.stateless("tools/call", {"name": "add"})
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert server.admission.statistics().refusals == {"requests": 1}
        record.release.set()
        for response in running:
            await response.ended.wait()
            assert response.status == 200
        again = await client.stateless("tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}})
        assert again.status == 200


async def test_a_body_over_the_limit_is_refused_whether_announced_or_not():
    server, _ = make_server()
    async with serving(server, HTTPOptions(max_body=300)) as client:
        body = json.dumps(call()).encode()
        exact = body + b" " * (300 - len(body))
        assert (await client.post(exact, HEADERS)).status == 200
        assert (await client.post(exact + b" ", HEADERS)).status == 413


async def test_a_body_that_does_not_come_is_given_up(autojump_clock):
    server, _ = make_server()
    async with serving(server, HTTPOptions(body_timeout=3)) as client:
        response = await client.request("POST", body=None)
        assert response.status == 408
        assert trio.current_time() == pytest.approx(3)


async def test_deep_json_is_refused_and_less_deep_json_is_not():
    server, _ = make_server()

    def nested(levels):
        value = {}
        for _ in range(levels - 1):
            value = {"a": value}
        return call(params={"name": "echo", "arguments": {"value": value}, "_meta": META})

    async with serving(server, HTTPOptions(max_depth=10)) as client:
        headers = {**HEADERS, "mcp-name": "echo"}
        # Three levels are the message's own.
        assert (await client.post(nested(7), headers)).status == 200
        assert (await client.post(nested(8), headers)).status == 400


async def test_a_second_initialize_and_a_call_before_it_are_refused():
    server, _ = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        again = await session.post(INITIALIZE)
        assert again.json()["error"]["code"] == -32600


async def test_initialize_needs_no_version_header_and_ignores_a_wrong_one():
    server, _ = make_server()
    async with serving(server) as client:
        for version in (None, "2025-11-25", "2099-01-01"):
            response = await client.post(INITIALIZE, {"mcp-protocol-version": version})
            assert response.status == 200
            assert len(response.headers["mcp-session-id"]) >= 22


async def test_other_paths_and_methods():
    server, _ = make_server()
    async with serving(server) as client:
        assert (await client.request("PUT")).status == 405
        assert (await client.request("POST", path="/other")).status == 404
        slash = client.start(
            "POST", path="/mcp/", body=json.dumps(call()).encode(), headers=HEADERS
        )
        await slash.ended.wait()
        assert slash.status == 200


async def test_the_probes():
    server, _ = make_server()
    ready = []
    async with serving(server, ready=lambda: bool(ready)) as client:
        assert (await client.request("GET", path="/healthz")).status == 200
        assert (await client.request("GET", path="/readyz")).status == 503
        ready.append(True)
        assert (await client.request("GET", path="/readyz")).status == 200
        client.app.drain()
        assert (await client.request("GET", path="/readyz")).status == 503
        assert (await client.request("GET", path="/healthz")).status == 200


async def test_a_preflight_is_answered_for_allowed_origins_only():
    server, _ = make_server()
    async with serving(server) as client:
        response = await client.request("OPTIONS", headers={"origin": "http://localhost:6274"})
        assert response.status == 204
        assert "Mcp-Session-Id" in response.headers["access-control-allow-headers"]
        assert "Mcp-Session-Id" in response.headers["access-control-expose-headers"]
        assert response.headers["access-control-allow-origin"] == "http://localhost:6274"
        refused = await client.request("OPTIONS", headers={"origin": "http://evil.example"})
        assert refused.status == 403
