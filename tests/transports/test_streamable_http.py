"""The client's end of Streamable HTTP without a socket: the HTTP client is handed in."""

import httpx2
import trio
import trio.testing

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
