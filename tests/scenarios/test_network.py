"""HTTP+SSE, and who may connect at all over any network transport."""

import json

from mcp_trio import HTTPOptions
from mcp_trio.session.limits import LoadLimits
from tests.http.tools import make_server
from tests.messages import initialize
from tests.scenarios.manifest import scenario
from tests.scenarios.peers import house, peer_of
from tests.scenarios.servers import MODEL, full_server

FOREIGN = ({"origin": "https://evil.example"}, {"origin": "null"}, {"host": "evil.example"})


@scenario("E1")
async def test_the_address_comes_first_and_every_message_on_the_stream(transport, revision):
    server, _ = full_server()
    async with peer_of(server, transport, revision, MODEL) as peer:
        assert peer.stream.headers["content-type"] == "text/event-stream"
        assert peer.stream.body.startswith(b"event: endpoint\ndata: " + peer.endpoint.encode())
        await peer.result("tools/list")
        call = await peer.start_call("think")
        question = await peer.question("sampling/createMessage")
        await peer.reply(question, {"role": "assistant", "model": "m", "content": []})
        await peer.answer(call)
        assert {post.status for post in peer.posts} == {202}
        assert {post.body for post in peer.posts} == {b""}
        first, *events, _ = peer.stream.body.decode().split("\n\n")
        assert first.count("\n") == 1
        for event in events:
            # Without a name an event is a "message".
            data = event.removeprefix("event: message\n")
            assert json.loads(data.removeprefix("data: "))["jsonrpc"] == "2.0"
        for fields in FOREIGN:
            assert (await peer.http.request("GET", path="/sse", headers=fields)).status == 403
            path, _, query = peer.endpoint.partition("?")
            body = json.dumps(peer.request("tools/list")).encode()
            post = await peer.http.request(
                "POST", path=path, query=query.encode(), body=body, headers=fields
            )
            assert post.status == 403


@scenario("H14")
async def test_both_http_transports_stand_beside_each_other(transport, revision):
    server, _ = make_server()
    async with peer_of(server, transport, revision) as peer:
        assert (await peer.http.stateless("tools/list")).status == 200
        session = await peer.http.open_session("2025-06-18")
        listed = await session.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert (await peer.result("tools/list"))["tools"][0]["name"] == "add"
        assert listed.json()["result"]["tools"][0]["name"] == "add"


@scenario("SEC3")
async def test_only_names_and_origins_of_ours_are_served(transport, revision):
    server, _ = make_server()
    async with house(server, transport) as place:

        async def knock(**fields):
            if transport == "websocket":
                socket = await place.http.websocket(**fields)
                return 101 if socket.accepted else socket.status
            if transport == "sse":
                response = place.http.start("GET", path="/sse", headers=fields)
            else:
                response = place.http.start_post(initialize(), headers=fields)
            await response.started.wait()
            return response.status

        for fields in (*FOREIGN, {"host": "localhost.evil.example"}, {"host": "127.0.0.1@x"}):
            assert await knock(**fields) == 403
        for fields in ({}, {"host": "localhost"}, {"origin": "http://localhost:1"}):
            assert await knock(**fields) in {200, 101}


@scenario("SEC2", transports=("http", "sse", "websocket"))
async def test_sessions_and_messages_are_bounded(transport, revision):
    server, _ = make_server(load=LoadLimits(max_in_flight=2))
    options = HTTPOptions(max_body=5000, max_sessions=2)
    async with house(server, transport, options) as place:
        peer = await place.connect(revision)
        big = peer.request("tools/list", {"pad": "x" * 5001}, id_="big")
        if transport == "websocket":
            await peer.say(big)
            await peer.closed()
            assert peer.socket.farewell["code"] == 1009
            peer = await place.connect(revision)
        elif transport == "sse":
            await peer.say(big)
            assert peer.posts[-1].status == 413
        else:
            await peer.write(json.dumps(big).encode(), big)
            await peer.post("big").ended.wait()
            assert peer.status("big") == 413
        in_sessions = not (transport == "http" and revision.stateless)
        if in_sessions:
            await place.connect(revision)
        for number in range(2):
            await peer.start_call("wait", id_=f"w{number}")
        error = await peer.error("tools/call", {"name": "add"})
        assert error["data"]["reason"] == "overloaded"
        if in_sessions:
            if transport == "websocket":
                assert (await place.http.websocket()).status == 503
            elif transport == "sse":
                assert (await place.http.request("GET", path="/sse")).status == 503
            else:
                assert (await place.http.post(initialize(revision.date))).status == 503


@scenario("SEC2")
async def test_depth_and_numbers_are_bounded(transport, revision, autojump_clock):
    server, _ = make_server()
    async with peer_of(server, transport, revision) as peer:
        deep = (
            b'{"jsonrpc":"2.0","id":"deep","method":"ping","params":'
            + b'{"a":' * 100
            + b"1"
            + b"}" * 101
        )
        assert (await peer.refused(deep, "deep"))["code"] == -32600
        assert (await peer.refused(b"[" * 100_000))["code"] == -32600
        long_id = {**peer.request("tools/list"), "id": "x" * 10_000}
        assert (await peer.refused(long_id))["code"] == -32600
        error = await peer.error("tools/call", {"name": "n" * 10_000})
        assert len(json.dumps(error)) < 1000
        error = await peer.error("m" * 10_000)
        assert len(json.dumps(error)) < 1000
        await peer.result("tools/list")


@scenario("SEC2", transports=("memory", "stdio"))
async def test_requests_at_once_are_bounded(transport, revision):
    server, record = make_server(load=LoadLimits(max_in_flight=2))
    async with peer_of(server, transport, revision) as peer:
        for number in range(2):
            await peer.start_call("wait", id_=f"w{number}")
        error = await peer.error("tools/call", {"name": "add"})
        assert error["data"]["reason"] == "overloaded"
        record.release.set()
        await peer.answer("w1")
        await peer.call("add", {"a": 1, "b": 1})
