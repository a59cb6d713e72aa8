"""The client's end of Streamable HTTP without a socket: the HTTP client is handed in."""

import json

import httpx2
import pytest
import trio
import trio.testing

import mcp_trio
from mcp_trio.engine.envelope import Envelope
from mcp_trio.jsonrpc.messages import Request
from mcp_trio.transports.streamable_http import StreamableHTTPTransport


async def test_closing_at_the_moment_an_answer_arrives_is_no_fault():
    may_answer = trio.Event()

    async def answer(request):
        await may_answer.wait()
        return httpx2.Response(200, json={"jsonrpc": "2.0", "id": 1, "result": {}})

    # Trio takes the tasks that are ready in random order, so the moment has to come often.
    for _ in range(20):
        may_answer = trio.Event()
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
            transport = StreamableHTTPTransport("http://x/mcp", client)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(transport.pump)
                await transport.send(Envelope(Request(1, "ping")))
                await trio.testing.wait_all_tasks_blocked()
                may_answer.set()
                await transport.aclose()


@pytest.mark.parametrize(("date", "kept"), [("2026-07-28", False), ("2025-11-25", True)])
async def test_an_id_of_a_session_means_nothing_where_there_are_no_sessions(date, kept):
    """A server may send one all the same; nothing of ours may depend on it."""
    seen = []

    async def answer(request):
        seen.append((request.method, request.headers.get("mcp-session-id")))
        if request.method != "POST":
            return httpx2.Response(405)
        message = json.loads(request.content)
        if "id" not in message:
            return httpx2.Response(202)
        revision = {"protocolVersion": date, "supportedVersions": [date], "resultType": "complete"}
        about = {"capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
        result = {**revision, **about, "ttlMs": 0, "cacheScope": "private", "tools": []}
        return httpx2.Response(
            200,
            json={"jsonrpc": "2.0", "id": message["id"], "result": result},
            headers={"mcp-session-id": "theirs"},
        )

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        transport = StreamableHTTPTransport("http://x/mcp", client)
        options = mcp_trio.ClientOptions(revisions=(date,))
        async with mcp_trio.MCPClient(transport, options=options) as connected:
            await connected.list_tools()
    assert (("POST", "theirs") in seen) is kept
    assert (("DELETE", "theirs") in seen) is kept


@pytest.mark.parametrize("alone", [True, False])
async def test_giving_a_request_up_says_whether_the_server_knows_by_that(alone):
    # A handshake without a session is no cancellation by closing either: the peer has to be told.
    closed = trio.Event()

    async def never(_request):
        try:
            await trio.sleep_forever()
        finally:
            closed.set()

    headers = {"mcp-method": "m"} if alone else {"mcp-protocol-version": "2025-11-25"}
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(never)) as http:
        transport = StreamableHTTPTransport("http://x/mcp", http)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.pump)
            await transport.send(Envelope(Request(1, "m"), headers=headers))
            await trio.testing.wait_all_tasks_blocked()
            assert transport.abandon(1) is alone
            await closed.wait()
            await transport.aclose()
