"""HTTP+SSE of the first revision: a stream that is the session, and POSTs beside it."""

import contextlib
import json

import httpx2
import pytest
import trio
import trio.testing

from mcp_trio import ClientOptions, HTTPOptions, MCPClient
from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import TransportClosedError, TransportError
from mcp_trio.jsonrpc.messages import Notification
from mcp_trio.session.limits import LoadLimits
from mcp_trio.transports.http_sse import HTTPSSETransport
from mcp_trio.wire.revisions import HANDSHAKE
from tests.http.asgi import serving
from tests.http.tools import make_server
from tests.messages import PING, initialize

NOTE = Envelope(Notification("n"))
STREAM = {"accept": "text/event-stream", "content-type": None}
INITIALIZE = initialize("2024-11-05")


class Old:
    """An old client in a session."""

    def __init__(self, client, stream, endpoint):
        self.client, self.stream, self.endpoint = client, stream, endpoint

    async def post(self, message, **headers):
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        path, _, query = self.endpoint.partition("?")
        return await self.client.request(
            "POST", body=body, path=path, query=query.encode(), headers=headers
        )

    async def tell(self, message):
        response = await self.post(message)
        assert (response.status, response.body) == (202, b"")

    async def call(self, name, *, id_=1, **arguments):
        params = {"name": name, "arguments": arguments}
        await self.tell({"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params})

    async def hear(self, number):
        """The message with this number, from 0; the first event named the endpoint."""
        while self.stream.body.count(b"\n\n") - self.stream.body.count(b":\n\n") < number + 2:
            assert not self.stream.ended.is_set(), self.stream.body
            await self.stream.changed.wait()
        return json.loads(self.stream.raw_events()[number + 1][1])


async def start(client, **headers):
    stream = client.start("GET", path="/sse", headers={**STREAM, **headers})
    while b"\n\n" not in stream.body and not stream.ended.is_set():
        await stream.changed.wait()
    return stream


async def open_old(client):
    stream = await start(client)
    assert stream.status == 200
    assert stream.is_stream
    assert stream.body.startswith(b"event: endpoint\ndata: /messages?session_id=")
    old = Old(client, stream, stream.raw_events()[0][1])
    await old.tell(INITIALIZE)
    assert (await old.hear(0))["result"]["protocolVersion"] == "2024-11-05"
    await old.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
    return old


async def test_the_stream_names_the_endpoint_first_and_brings_every_message():
    server, _ = make_server()
    async with serving(server) as client:
        old = await open_old(client)
        await old.tell(PING)
        assert await old.hear(1) == {"jsonrpc": "2.0", "id": 1, "result": {}}
        await old.call("add", id_="x", a=1, b=2)
        answer = await old.hear(2)
        assert answer["id"] == "x"
        assert "structuredContent" not in answer["result"]
        server.remove_tool("add")
        assert (await old.hear(3))["method"] == "notifications/tools/list_changed"


async def test_ids_are_long_and_different():
    server, _ = make_server()
    async with serving(server) as client:
        endpoints = {(await open_old(client)).endpoint for _ in range(10)}
        assert len(endpoints) == 10
        assert all(len(endpoint.partition("=")[2]) >= 32 for endpoint in endpoints)


@pytest.mark.parametrize("body", [b"", b"no json", b"[]", b"{}", b"\xff", b"[" * 100])
async def test_what_is_no_message_is_refused_and_the_session_goes_on(body):
    server, _ = make_server()
    async with serving(server) as client:
        old = await open_old(client)
        response = await old.post(body)
        assert response.status == 400
        assert response.json()["error"]["code"] in {-32700, -32600}
        await old.tell(PING)
        assert (await old.hear(1))["id"] == 1


@pytest.mark.parametrize("query", ["", "session_id=", "session_id=made-up", "other=1", "\xff"])
async def test_a_session_that_does_not_exist_is_not_found(query):
    server, _ = make_server()
    async with serving(server) as client:
        old = await open_old(client)
        old.endpoint = f"/messages?{query}".encode("latin-1").decode("latin-1")
        path, _, rest = old.endpoint.partition("?")
        response = await client.request(
            "POST", body=json.dumps(PING).encode(), path=path, query=rest.encode("latin-1")
        )
        assert response.status == 404


async def test_bodies_are_bounded_and_have_to_be_json():
    server, _ = make_server()
    async with serving(server, HTTPOptions(max_body=1000)) as client:
        old = await open_old(client)
        assert (await old.post(b"x" * 1001)).status == 413
        assert (await old.post(PING, **{"content-type": "text/plain"})).status == 415
        assert (await old.post(PING, accept=None)).status == 202


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "http://evil.example"}])
async def test_the_gate_is_the_same(headers):
    server, _ = make_server()
    async with serving(server) as client:
        assert (await start(client, **headers)).status == 403
        old = await open_old(client)
        assert (await old.post(PING, **headers)).status == 403
        allowed = await start(client, origin="http://localhost:5")
        assert allowed.headers["access-control-allow-origin"] == "http://localhost:5"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/sse", 405),
        ("DELETE", "/sse", 405),
        ("GET", "/messages", 405),
        ("OPTIONS", "/sse", 204),
        ("OPTIONS", "/messages", 204),
        ("GET", "/sse/", 404),
    ],
)
async def test_other_methods(method, path, status):
    server, _ = make_server()
    async with serving(server) as client:
        assert (await client.request(method, path=path)).status == status


async def test_a_client_that_takes_no_stream_is_told_so():
    server, _ = make_server()
    async with serving(server) as client:
        assert (await start(client, accept="application/json")).status == 406


async def test_it_can_be_switched_off_and_moved():
    server, _ = make_server()
    async with serving(server, HTTPOptions(legacy_sse_path=None)) as client:
        assert (await start(client)).status == 404
        assert (await client.request("POST", path="/messages")).status == 404
    options = HTTPOptions(legacy_sse_path="/old", legacy_messages_path="/old/in")
    async with serving(server, options) as client:
        stream = client.start("GET", path="/old", headers=STREAM)
        while b"\n\n" not in stream.body:
            await stream.changed.wait()
        assert stream.raw_events()[0][1].startswith("/old/in?session_id=")


async def test_the_endpoint_says_where_the_application_is_mounted():
    server, _ = make_server()
    async with serving(server) as client:
        client.root_path = "/a b"
        stream = client.start("GET", path="/a b/sse", headers=STREAM)
        while b"\n\n" not in stream.body:
            await stream.changed.wait()
        assert stream.raw_events()[0][1].startswith("/a%20b/messages?session_id=")


@pytest.mark.parametrize("extension", [True, False])
async def test_the_session_ends_with_its_stream(extension):
    server, record = make_server()
    async with serving(server) as client:
        client.extension = extension
        old = await open_old(client)
        await old.call("wait")
        await record.until("wait started")
        old.stream.disconnect()
        await record.until("wait started", "wait over")
        await old.stream.ended.wait()
        assert client.app.statistics().sessions == 0
        assert (await old.post(PING)).status == 404


async def test_a_call_is_cancelled_by_its_notification():
    server, record = make_server()
    async with serving(server) as client:
        old = await open_old(client)
        await old.call("wait", id_=4)
        await record.until("wait started")
        cancelled = {"method": "notifications/cancelled", "params": {"requestId": 4}}
        await old.tell({"jsonrpc": "2.0", **cancelled})
        await record.until("wait started", "wait over")


async def test_streams_count_as_sessions_and_one_too_many_is_refused():
    server, _ = make_server()
    async with serving(server, HTTPOptions(max_sessions=2)) as client:
        old = await open_old(client)
        await client.open_session()
        refused = await start(client)
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        assert client.app.statistics().refused == 1
        old.stream.disconnect()
        await old.stream.ended.wait()
        await open_old(client)


async def test_a_quiet_stream_is_kept_alive_and_a_silent_session_ends(autojump_clock):
    server, _ = make_server()
    async with serving(server, HTTPOptions(session_idle_timeout=100)) as client:
        old = await open_old(client)
        await trio.sleep(50)
        assert old.stream.body.count(b":\n\n") == 3
        await trio.sleep(51)
        assert old.stream.ended.is_set()
        assert client.app.statistics().sessions == 0


async def test_draining_lets_calls_finish_and_opens_nothing_new():
    server, record = make_server()
    async with serving(server) as client:
        idle, busy = await open_old(client), await open_old(client)
        await busy.call("wait", id_=3)
        await record.until("wait started")
        client.app.drain()
        await idle.stream.ended.wait()
        refused = await start(client)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert not busy.stream.ended.is_set()
        record.release.set()
        await busy.stream.ended.wait()
        assert (await busy.hear(1))["id"] == 3


async def test_a_session_that_is_full_makes_its_own_posts_wait():
    server, record = make_server(load=LoadLimits(max_in_flight=1))
    async with serving(server) as client:
        old = await open_old(client)
        for id_ in range(3):
            await old.call("wait", id_=id_)
        refused = {(await old.hear(number))["error"]["code"] for number in (1, 2)}
        assert len(refused) == 1
        record.release.set()
        assert (await old.hear(3))["id"] == 0


@pytest.mark.parametrize("step", range(1, 30, 2))
async def test_a_stream_lost_at_any_step_leaves_nothing(step):
    server, record = make_server()
    async with serving(server) as client:
        stream = client.start("GET", path="/sse", headers=STREAM)
        for _ in range(step):
            await trio.lowlevel.checkpoint()
        stream.disconnect()
        await stream.ended.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert client.app.statistics().sessions == 0
        assert client.app._legacy._lines == {}
        old = await open_old(client)
        await old.call("wait")
        for _ in range(step):
            await trio.lowlevel.checkpoint()
        old.stream.disconnect()
        await old.stream.ended.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert record.events in ([], ["wait started", "wait over"])


# -- the client's end --------------------------------------------------------------------


@contextlib.asynccontextmanager
async def both_ends(server):
    """A URL that is served, and an HTTP client."""
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(server.serve_http, "127.0.0.1", 0)
        async with httpx2.AsyncClient(timeout=None, trust_env=False) as http:
            yield url.replace("/mcp", "/sse"), http
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("revision", HANDSHAKE, ids=str)
async def test_our_client_speaks_it(revision):
    server, _ = make_server()
    options = ClientOptions(revisions=(revision,))
    async with both_ends(server) as (url, http):
        async with MCPClient(HTTPSSETransport(url, http), options=options) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).content[0].text == "3"


def scripted(respond):
    return httpx2.AsyncClient(transport=httpx2.MockTransport(respond))


def events(data, status=200, media="text/event-stream; charset=utf-8"):
    return httpx2.Response(status, content=data, headers={"content-type": media})


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (events(b"", status=404), "404"),
        (events(b"{}", media="application/json"), "200 without a stream"),
        (events(b""), "closed the stream"),
        (events(b"data: {}\n\n"), "closed the stream"),
        (events(b"event: endpoint\ndata: http://evil.example/in\n\n"), "another origin"),
        (events(b"event: endpoint\ndata: //evil.example/in\n\n"), "another origin"),
        (events(b"event: endpoint\ndata: http://x:81/in\n\n"), "another origin"),
        (events(b"event: endpoint\ndata: file:///etc/passwd\n\n"), "another origin"),
        (events(b"data: " + b"x" * 2000), "larger than"),
    ],
)
async def test_a_server_that_is_none_is_left(answer, match):
    async def respond(request):
        assert request.method == "GET"
        return answer

    async with scripted(respond) as http, trio.open_nursery() as nursery:
        line = HTTPSSETransport("http://x/sse", http, max_event=1000)
        nursery.start_soon(line.pump)
        with pytest.raises(TransportError, match=match):
            await line.send(NOTE)
        with contextlib.suppress(trio.EndOfChannel):
            await line.receive()
        with pytest.raises(trio.EndOfChannel):
            await line.receive()
        await line.aclose()


async def test_a_server_that_names_no_endpoint_is_given_up(autojump_clock):
    async def respond(request):
        await trio.sleep_forever()

    async with scripted(respond) as http, trio.open_nursery() as nursery:
        line = HTTPSSETransport("http://x/sse", http)
        nursery.start_soon(line.pump)
        with pytest.raises(TransportError, match="in time"):
            await line.send(NOTE)
        await line.aclose()
        with pytest.raises(TransportClosedError):
            await line.send(NOTE)


async def test_a_message_that_is_not_taken_is_an_error():
    class Endless(httpx2.AsyncByteStream):
        async def __aiter__(self):
            yield b"event: endpoint\ndata: /in?a=b\n\n"
            await trio.sleep_forever()

    async def respond(request):
        if request.method == "POST":
            assert str(request.url) == "http://x/in?a=b"
            return httpx2.Response(404)
        return httpx2.Response(200, stream=Endless(), headers={"content-type": "text/event-stream"})

    async with scripted(respond) as http, trio.open_nursery() as nursery:
        line = HTTPSSETransport("http://x/sse", http)
        nursery.start_soon(line.pump)
        with pytest.raises(TransportError, match="404"):
            await line.send(NOTE)
        await line.aclose()
        await line.aclose()
