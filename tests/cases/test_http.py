"""The endpoint: what is negotiated, refused, mounted, slow, too big, dropped and forgotten."""

import json
import logging

import pytest
import trio
import trio.testing

from mcp_trio import HTTPOptions
from tests.cases.endpoint import endpoint, head, in_session, post, stateless
from tests.cases.speakers import SESSIONS, speaking
from tests.http.asgi import META, STATELESS, serving
from tests.http.serving_tools import H2Client, read_all, read_until, reset
from tests.http.test_websocket import serving as serving_websocket
from tests.http.tools import make_server
from tests.messages import PING, initialize
from tests.server.test_lines_servers import serving as serving_lines

INITIALIZE = initialize("2025-06-18")
PREFLIGHT = "access-control-request-headers"


# -- what is negotiated -------------------------------------------------------------------


@pytest.mark.parametrize("era", ["stateless", "session"])
@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, "json"),
        ("", "json"),
        ("*/*", "json"),
        ("application/*, text/*", "json"),
        ("application/json", "json"),
        ("application/json;q=0.001", "json"),
        ("text/event-stream, application/json;charset=utf-8", "json"),
        ("APPLICATION/JSON", "json"),
        ("text/event-stream", "stream"),
        ("*/*, application/json;q=0", "stream"),
        ("application/*;q=0, */*;q=0.1", "stream"),
        ("text/html", None),
        ("application/json;q=0", None),
        ("application/json;Q=0", None),
        ("application/json; q=0.000", None),
        ("application/json;q=0, text/event-stream;q=0.0", None),
        ("*/*;q=0", None),
        ("*/*, application/json;q=0, text/event-stream;q=0", None),
        ("application/*;q=0, text/*;q=0, */*", None),
        ("application/json;q=nonsense", None),
    ],
)
async def test_accept_is_obeyed_weights_and_wildcards_included(era, accept, form):
    server, _ = make_server()
    async with serving(server) as client:
        call = {"name": "add", "arguments": {"a": 1, "b": 2}}
        if era == "stateless":
            response = await client.stateless("tools/call", call, headers={"accept": accept})
        else:
            session = await client.open_session("2025-06-18")
            request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
            response = await session.post(request, {"accept": accept})
        if form is None:
            assert response.status == 406
        else:
            assert response.status == 200
            assert response.is_stream is (form == "stream")
            assert response.message()["result"]["content"][0]["text"] == "3"


@pytest.mark.parametrize(
    ("accept", "status"),
    [("*/*", 200), (None, 200), ("text/*", 200), ("text/event-stream;q=0", 406), ("*/*;q=0", 406)],
)
async def test_accept_of_the_streams_is_obeyed_too(accept, status):
    server, _ = make_server()
    async with serving(server) as client:
        session = await client.open_session()
        for stream in (
            session.start_get({"accept": accept}),
            client.start("GET", path="/sse", headers={"accept": accept}),
        ):
            await stream.started.wait()
            assert stream.status == status
            if status == 200:
                stream.disconnect()
            await stream.ended.wait()


@pytest.mark.parametrize("channel", SESSIONS)
async def test_a_second_initialize_is_refused_and_changes_nothing(channel):
    server, _ = make_server()
    async with speaking(server, channel) as speaker:
        again = initialize("2024-11-05", id_=77)
        refused = await speaker.ask(again)
        assert (refused["id"], refused["error"]["code"]) == (77, -32600)
        await speaker.works()
        if channel != "sse":
            answer = await speaker.ask(speaker.call(5, "add", a=1, b=2))
            assert answer["result"]["structuredContent"] == {"result": 3}


@pytest.mark.parametrize("channel", ["lines", "websocket"])
async def test_what_is_pipelined_behind_initialize_is_answered(channel):
    server, _ = make_server()
    list_ = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    if channel == "lines":
        async with serving_lines(server) as connect:
            peer = await connect(initialized=False)
            await peer.say(INITIALIZE, list_, note, {**list_, "id": 2})
            answers = [await peer.hear() for _ in range(3)]
    else:
        async with serving_websocket(server) as world:
            peer = await world.peer()
            await peer.open()
            for message in (INITIALIZE, list_, note, {**list_, "id": 2}):
                await peer.tell(message)
            answers = [await peer.answer() for _ in range(3)]
    assert {answer["id"] for answer in answers} == {0, 1, 2}
    assert all("result" in answer for answer in answers)


async def test_what_is_pipelined_on_one_connection_of_a_new_session_is_answered():
    server, _ = make_server()
    list_ = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    async with endpoint(server) as place:
        id_ = await place.open_session()
        async with await place.connect() as stream:
            messages = (list_, note, {**list_, "id": 2})
            await stream.send_all(b"".join(post(each, mcp_session_id=id_) for each in messages))
            data = await read_until(stream, b'"id":2')
            assert data.count(b"HTTP/1.1 200") == 2
            assert data.count(b"HTTP/1.1 202") == 1


# -- who may come --------------------------------------------------------------------------

DOORS = [
    ("POST", "/mcp"),
    ("GET", "/mcp"),
    ("DELETE", "/mcp"),
    ("OPTIONS", "/mcp"),
    ("GET", "/sse"),
    ("POST", "/messages"),
    ("OPTIONS", "/sse"),
]


@pytest.mark.parametrize("bind", ["127.0.0.1", "0.0.0.0", "::"])
@pytest.mark.parametrize(("method", "path"), DOORS)
async def test_a_rebound_name_is_refused_at_every_door_whatever_is_bound(bind, method, path):
    server, _ = make_server()
    async with serving(server, host=bind) as client:
        for host, origin in (
            ("evil.test", "http://evil.test"),
            ("evil.test:8000", "http://evil.test:8000"),
            ("127.0.0.1:8000", "http://evil.test"),
            ("127.0.0.1:8000", "null"),
            ("evil.test", None),
            ("127.0.0.1@evil.test", None),
        ):
            headers = {"host": host, "origin": origin}
            response = await client.request(method, path=path, headers=headers)
            assert response.status == 403, headers
            assert "access-control-allow-origin" not in response.headers
        assert client.app.statistics().sessions == 0


async def test_the_log_names_the_setting_that_admits_a_name_and_it_does(caplog):
    server, _ = make_server()
    call = {"name": "add", "arguments": {"a": 1, "b": 2}}
    wanted = {"host": "example.com:443", "origin": "https://app.example.com"}
    async with serving(server) as client:
        assert (await client.stateless("tools/call", call, headers=wanted)).status == 403
    assert "'example.com:443'" in caplog.text
    assert "allowed_hosts" in caplog.text
    hosts = frozenset({"example.com"})
    caplog.clear()
    async with serving(server, HTTPOptions(allowed_hosts=hosts)) as client:
        assert (await client.stateless("tools/call", call, headers=wanted)).status == 403
    assert "allowed_origins" in caplog.text
    origins = frozenset({"https://app.example.com"})
    options = HTTPOptions(allowed_hosts=hosts, allowed_origins=origins)
    async with serving(server, options) as client:
        assert (await client.stateless("tools/call", call, headers=wanted)).status == 200


ORIGIN = {"origin": "http://localhost:6274"}


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/sse", "/messages"])
async def test_a_preflight_allows_every_header_a_client_may_need(path):
    server, _ = make_server()
    needed = {
        "content-type",
        "accept",
        "authorization",
        "dpop",
        "mcp-protocol-version",
        "mcp-session-id",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-param-region",
        "mcp-param-x_y",
    }
    asked = ", ".join([*sorted(needed), "Cookie", "mcp-param-", "mcp-param-a b", "é"])
    async with serving(server) as client:
        response = await client.request("OPTIONS", path=path, headers={**ORIGIN, PREFLIGHT: asked})
        assert (response.status, response.body) == (204, b"")
        allowed = response.headers["access-control-allow-headers"].split(", ")
        assert {name.lower() for name in allowed} == needed
        assert response.headers["access-control-allow-methods"] == "POST, GET, DELETE"
        assert response.headers["access-control-allow-origin"] == ORIGIN["origin"]


async def test_a_page_can_read_every_answer_refusals_included():
    server, _ = make_server()
    async with serving(server, HTTPOptions(max_body=1000, max_sessions=1)) as client:
        opened = await client.post(INITIALIZE, ORIGIN)
        headers = {**ORIGIN, "mcp-session-id": opened.headers["mcp-session-id"]}
        answers = [
            opened,
            await client.post(PING, headers),
            await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, headers),
            await client.post(b"{", headers),
            await client.post(PING, ORIGIN),
            await client.post(PING, {**ORIGIN, "mcp-session-id": "dead"}),
            await client.post(PING, {**headers, "accept": "text/html"}),
            await client.post(PING, {**headers, "content-type": "text/plain"}),
            await client.post(b" " * 1001, headers),
            await client.post(INITIALIZE, ORIGIN),
            await client.request("PUT", headers=headers),
            await client.stateless("no/such", headers=ORIGIN),
            await client.request("DELETE", headers=headers),
        ]
        statuses = [answer.status for answer in answers]
        assert statuses == [200, 200, 202, 400, 400, 404, 406, 415, 413, 503, 405, 404, 204]
        for answer in answers:
            assert answer.headers["access-control-allow-origin"] == ORIGIN["origin"]
            exposed = answer.headers["access-control-expose-headers"]
            assert "Mcp-Session-Id" in exposed
            assert "WWW-Authenticate" in exposed


@pytest.mark.parametrize(
    ("options", "root", "paths"),
    [
        ({}, "", ["/mcp", "/mcp/"]),
        ({}, "/api", ["/api/mcp", "/api/mcp/", "/mcp"]),
        ({}, "/api/", ["/api/mcp", "/api/mcp/"]),
        ({}, "/mcp", ["/mcp/mcp", "/mcp/mcp/"]),
        ({"path": "/"}, "/mcp", ["/mcp", "/mcp/"]),
        ({"path": "/"}, "/mcp/", ["/mcp/"]),
        ({"path": "/"}, "", ["/"]),
        ({"path": "/a/b/"}, "/x", ["/x/a/b", "/x/a/b/"]),
    ],
)
async def test_a_mounted_endpoint_is_served_with_and_without_the_last_slash(options, root, paths):
    server, _ = make_server()
    headers = {
        "mcp-protocol-version": STATELESS,
        "mcp-method": "tools/call",
        "mcp-name": "add",
    }
    params = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    async with serving(server, HTTPOptions(**options)) as client:
        client.root_path = root
        for path in paths:
            response = await client.request("POST", path=path, headers=headers, body=body.encode())
            assert response.status == 200, path
            assert response.json()["result"]["structuredContent"] == {"result": 3}
        for path in ("/apimcp", "/api", "/other", "//mcp"):
            if path.rstrip("/") not in {root.rstrip("/"), ""}:
                assert (await client.request("POST", path=path)).status == 404


# -- what is left ---------------------------------------------------------------------------


async def test_a_thousand_refusals_of_each_kind_leave_no_session():
    server, _ = make_server()
    bad = {**INITIALIZE, "params": {"protocolVersion": "2025-11-25"}}
    async with serving(server, HTTPOptions(max_body=1000)) as client:
        for _ in range(1000):
            refused = [
                client.start_post(INITIALIZE, {"accept": "text/html"}),
                client.start_post(INITIALIZE, {"content-type": "text/plain"}),
                client.start_post(INITIALIZE, {"host": "evil.test"}),
                client.start_post(b"{"),
                client.start_post(b" " * 1001),
                client.start_post(bad),
                client.start_post([INITIALIZE]),
                client.start_post(PING),
                client.start("GET"),
                client.start("DELETE"),
                client.start("GET", path="/sse", headers={"accept": "text/html"}),
                client.start("POST", path="/messages"),
            ]
            for response in refused:
                await response.ended.wait()
                assert "mcp-session-id" not in response.headers
        await trio.testing.wait_all_tasks_blocked()
        gauges = client.app.statistics()
        assert (gauges.sessions, gauges.in_flight, gauges.listeners) == (0, 0, 0)


@pytest.mark.parametrize("step", range(1, 16))
async def test_a_client_lost_while_it_initializes_leaves_no_session_it_does_not_know(step):
    server, _ = make_server()
    async with serving(server) as client:
        response = client.start_post(INITIALIZE)
        for _ in range(step):
            await trio.lowlevel.checkpoint()
        response.disconnect()
        await response.ended.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert client.app.statistics().sessions == (1 if response.body else 0)


async def test_a_thousand_sessions_deleted_are_gone_and_their_ids_with_them():
    server, _ = make_server()
    async with serving(server, HTTPOptions(max_sessions=10)) as client:
        for _ in range(1000):
            session = await client.open_session()
            assert (await session.delete()).status == 204
            assert (await session.post(PING)).status == 404
            assert (await session.delete()).status == 404
        await trio.testing.wait_all_tasks_blocked()
        gauges = client.app.statistics()
        assert (gauges.sessions, gauges.in_flight, gauges.listeners) == (0, 0, 0)


async def test_thousands_of_calls_cancelled_or_dropped_leave_nothing_in_their_session():
    server, record = make_server()
    options = HTTPOptions()
    async with serving(server, options) as client:
        session = await client.open_session()
        (inside,) = client.app.sessions
        for batch in range(10):
            calls = [session.start_call("wait", id_=f"{batch}-{n}") for n in range(300)]
            await trio.testing.wait_all_tasks_blocked()
            assert client.app.statistics().in_flight == 300
            for number, call in enumerate(calls):
                if number % 2:
                    call.disconnect()
                else:
                    cancel = {"requestId": f"{batch}-{number}"}
                    note = {
                        "jsonrpc": "2.0",
                        "method": "notifications/cancelled",
                        "params": cancel,
                    }
                    session.start_post(note)
            await trio.testing.wait_all_tasks_blocked()
            assert client.app.statistics().in_flight == 150
            record.release.set()
            await trio.testing.wait_all_tasks_blocked()
            record.release = trio.Event()
            assert all(call.ended.is_set() for call in calls)
            assert not inside.dispatcher.peer.running
            assert not inside.streams._by_id
            assert not inside.streams._open
        assert record.events.count("wait over") == 3000
        kept = inside.streams.replay
        assert len(kept.after(1, 0)) <= options.replay_events


# -- slow and big ---------------------------------------------------------------------------


async def test_half_a_body_of_one_client_does_not_keep_another_from_being_served(autojump_clock):
    server, _ = make_server()
    async with endpoint(server, HTTPOptions(body_timeout=30), body_timeout=40) as place:
        slow = await place.connect()
        whole = post(INITIALIZE)
        await slow.send_all(whole[: len(whole) - 20])
        await trio.testing.wait_all_tasks_blocked()
        id_ = await place.open_session()
        async with await place.connect() as other:
            await other.send_all(in_session(id_, "add", a=1, b=2))
            await read_until(other, b'"structuredContent":{"result":3}')
        assert trio.current_time() < 1
        assert place.app.statistics().sessions == 1
        assert (await read_all(slow)).startswith(b"HTTP/1.1 408 ")
        assert trio.current_time() == pytest.approx(30)
        assert place.app.statistics().sessions == 1


@pytest.mark.parametrize("part", ["head", "body"])
async def test_a_request_of_one_byte_a_second_ends_at_its_deadline(autojump_clock, part):
    server, _ = make_server()
    limits = {"header_timeout": 10, "body_timeout": 12}
    async with endpoint(server, HTTPOptions(body_timeout=60), **limits) as place:
        stream = await place.connect()
        whole = stateless("add", a=1, b=2)
        at_once = 0 if part == "head" else whole.index(b"\r\n\r\n") + 4
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def drip() -> None:
                await stream.send_all(whole[:at_once])
                for byte in whole[at_once:]:
                    await stream.send_all(bytes([byte]))
                    await trio.sleep(1)

            data = await read_all(stream)
            nursery.cancel_scope.cancel()
        assert data.startswith(b"HTTP/1.1 408 ")
        assert trio.current_time() == pytest.approx(10 if part == "head" else 12)


FIVE = 5_000_000


def five_megabytes(how: str) -> tuple[bytes, list[bytes]]:
    """Head and body of a request that is too big, as it is sent."""
    if how == "chunked":
        chunk = b"%x\r\n" % 50_000 + bytes(50_000) + b"\r\n"
        return head(transfer_encoding="chunked"), [chunk] * (FIVE // 50_000) + [b"0\r\n\r\n"]
    more = {"expect": "100-continue"} if how == "expecting" else {}
    return head(content_length=str(FIVE), **more), [bytes(50_000)] * (FIVE // 50_000)


@pytest.mark.parametrize("path", ["/mcp", "/messages"])
@pytest.mark.parametrize("how", ["announced", "chunked", "expecting"])
@pytest.mark.parametrize("reading", ["afterwards", "meanwhile"])
async def test_too_big_a_body_is_told_so_in_a_way_that_can_be_read(path, how, reading):
    server, _ = make_server()
    async with endpoint(server, sockets=True) as place:
        first, body = five_megabytes(how)
        if path == "/messages":
            await _too_big_for_an_old_client(place, first, body)
            return
        async with await place.connect() as stream:
            got = bytearray()
            async with trio.open_nursery() as nursery:

                async def send() -> None:
                    for piece in (first, *body):
                        await stream.send_all(piece)

                if reading == "meanwhile":
                    nursery.start_soon(send)
                else:
                    await send()
                got += await read_all(stream)
                nursery.cancel_scope.cancel()
        assert got.startswith(b"HTTP/1.1 413 ")
        assert b"connection: close" in got.lower()
        assert b"larger than 4194304 bytes" in got
        async with await place.connect() as stream:
            await stream.send_all(stateless("add", a=1, b=2))
            await read_until(stream, b'"result":3')


async def _too_big_for_an_old_client(place, first: bytes, body: list[bytes]) -> None:
    async with await place.connect() as events:
        await events.send_all(head("GET", "/sse", accept="text/event-stream", content_type=None))
        opening = await read_until(events, b"\n\n")
        target = opening.partition(b"data: ")[2].split(b"\n")[0].strip()
        async with await place.connect() as stream:
            await stream.send_all(first.replace(b"/mcp", target, 1))
            for piece in body:
                await stream.send_all(piece)
            got = await read_all(stream)
            assert got.startswith(b"HTTP/1.1 413 ")
        async with await place.connect() as stream:
            await stream.send_all(post(PING, path=target.decode()))
            await read_until(stream, b"HTTP/1.1 202")
        await read_until(events, b'"result":{}')


async def test_too_big_a_body_over_http_2_is_told_so_and_the_connection_goes_on():
    server, _ = make_server()
    async with endpoint(server, sockets=True) as place, await place.connect() as stream:
        client = H2Client(stream)
        fields = [
            (":method", "POST"),
            (":path", "/mcp"),
            (":scheme", "http"),
            (":authority", "127.0.0.1"),
            ("content-type", "application/json"),
        ]
        for announced in (True, False):
            id_ = client.h2.get_next_available_stream_id()
            length = [("content-length", str(FIVE))] if announced else []
            client.h2.send_headers(id_, [*fields, *length])
            await client.flush()
            sent = 0
            while id_ not in client.ended:
                room = min(client.h2.local_flow_control_window(id_), 16_384, FIVE - sent)
                if room:
                    client.h2.send_data(id_, bytes(room))
                    sent += room
                    await client.flush()
                else:
                    assert await client.pump()
            assert client.status[id_] == "413"
            assert b"larger than 4194304 bytes" in client.bodies[id_]


# -- dropped --------------------------------------------------------------------------------

FORMS = {
    "json": ("wait", {}, {}),
    "stream": ("report", {"progressToken": 1}, {"stay": True}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_lost_connection_ends_a_stateless_call_in_both_forms(form, how, caplog):
    server, record = make_server()
    name, meta, arguments = FORMS[form]
    async with endpoint(server, sockets=True) as place:
        stream = await place.connect()
        await stream.send_all(stateless(name, meta, **arguments))
        if form == "json":
            await record.until("wait started")
        else:
            await read_until(stream, b'"progress":2')
        if how == "reset":
            reset(stream)
        else:
            await stream.aclose()
        await record.until(*(["wait started"] if form == "json" else []), f"{name} over")
        async with await place.connect() as other:
            await other.send_all(stateless("add", a=1, b=2))
            await read_until(other, b'"result":3')
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_lost_connection_leaves_a_call_of_a_session_alone_and_its_answer_waits(
    form, how, caplog
):
    server, record = make_server()
    name, meta, arguments = FORMS[form]
    async with endpoint(server, HTTPOptions(sse_after=0.01), sockets=True) as place:
        id_ = await place.open_session("2025-11-25")
        stream = await place.connect()
        await stream.send_all(in_session(id_, name, meta, **arguments))
        first = await read_until(stream, b'"progress":2' if form == "stream" else b"\ndata: ")
        last = first.rpartition(b"id: ")[2].split(b"\n")[0].strip().decode()
        if how == "reset":
            reset(stream)
        else:
            await stream.aclose()
        record.release.set()
        await record.until(*(["wait started"] if form == "json" else []), f"{name} over")
        async with await place.connect() as back:
            await back.send_all(
                head(
                    "GET",
                    accept="text/event-stream",
                    content_type=None,
                    mcp_session_id=id_,
                    last_event_id=last,
                )
            )
            data = await read_until(back, b"0\r\n\r\n")
            assert data.count(b'"result":{') == 1
            assert b'"id":1' in data
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("form", FORMS)
async def test_delete_from_another_connection_ends_a_call_cleanly(form, caplog):
    server, record = make_server()
    name, meta, arguments = FORMS[form]
    async with endpoint(server, sockets=True) as place:
        id_ = await place.open_session()
        stream = await place.connect()
        await stream.send_all(in_session(id_, name, meta, **arguments))
        if form == "json":
            await record.until("wait started")
        else:
            await read_until(stream, b'"progress":2')
        async with await place.connect() as other:
            await other.send_all(head("DELETE", content_type=None, mcp_session_id=id_))
            await read_until(other, b"HTTP/1.1 204")
            ending = await read_until(stream, b"\r\n\r\n" if form == "json" else b"0\r\n\r\n")
            assert ending.startswith(b"HTTP/1.1 404") is (form == "json")
            await record.until(*(["wait started"] if form == "json" else []), f"{name} over")
            await other.send_all(in_session(id_, "add", a=1, b=2))
            await read_until(other, b"HTTP/1.1 404")
            await other.send_all(stateless("add", a=1, b=2))
            await read_until(other, b'"result":3')
        await stream.aclose()
        assert place.app.statistics().sessions == 0
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
