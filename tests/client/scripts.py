"""A server that says what the test tells it to, and the client that talks to it."""

from __future__ import annotations

import contextlib

import trio

from mcp_trio import ClientOptions, MCPClient
from mcp_trio.jsonrpc.messages import Error, Notification, Request, Result
from mcp_trio.testing import MemoryTransport, ScriptedPeer

DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "resultType": "complete"}
INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "serverInfo": {"name": "old", "version": "1"},
}


class Script:
    """Answers each method with what stands for it, a body or a function of the request.

    A function may return a body, a whole message, or nothing at all, which is silence.
    """

    def __init__(self, peer, answers):
        self.peer = peer
        self.answers = {"server/discover": DISCOVERED, "initialize": INITIALIZED, **answers}
        self.heard = []
        self.asked = []
        self.told = []
        self.said = []
        """What the client answered."""

    def count(self, method):
        return [request.method for request in self.asked].count(method)

    async def run(self):
        with contextlib.suppress(trio.EndOfChannel):
            while True:
                message = await self.peer.hear(within=1e9)
                self.heard.append(message)
                if isinstance(message, Notification):
                    self.told.append(message)
                if isinstance(message, Result | Error):
                    self.said.append(message)
                if isinstance(message, Request):
                    self.asked.append(message)
                    await self._answer(message)

    async def _answer(self, request):
        answer = self.answers.get(request.method, Error(request.id, -32601, "Method not found"))
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, dict):
            answer = Result(request.id, answer)
        if answer is not None:
            await self.peer.say(answer)

    async def notice(self, method, subscription=None, **params):
        """Tell of a change, on a subscription if there is one."""
        if subscription is not None:
            params["_meta"] = {"io.modelcontextprotocol/subscriptionId": subscription}
        await self.peer.tell(method, params)


@contextlib.asynccontextmanager
async def scripted(answers, *, callbacks=None, **options):
    """A client that is connected to a script. Gives both."""
    ours, theirs = MemoryTransport.pair()
    script = Script(ScriptedPeer(theirs), answers)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(script.run)
        async with MCPClient(ours, callbacks=callbacks, options=ClientOptions(**options)) as client:
            yield client, script
    await theirs.aclose()
