"""What belongs to a caller is of no use to another one, whoever has a good token."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcp_trio import Context, HTTPOptions, MCPServer
from tests.auth.resource_server.authority import Authority
from tests.auth.resource_server.test_server import bearer, guard
from tests.http.asgi import META, serving
from tests.messages import initialize

OTHERS = ("bob", "ann of another issuer")
others = pytest.mark.parametrize("other", OTHERS)
STREAM = {"accept": "text/event-stream"}
PATIENCE = 5
"""Seconds for a refusal; a stream that is opened instead has no end."""


def call(name, id_=1, **arguments):
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params}


class World:
    """A server, two issuers, and tokens of three people."""

    def __init__(self):
        self.one, self.two = Authority(), Authority("https://other.example")
        self.server = MCPServer("s")
        self.release = trio.Event()
        self.ran = []

        @self.server.tool
        async def ask(ctx: Context) -> str:
            answer = await ctx.elicit("Sure?", {"type": "object", "properties": {}})
            self.ran.append(ctx.principal.subject)
            return answer.action

        @self.server.tool
        async def slow(ctx: Context) -> str:
            await ctx.progress(1, 2)
            await self.release.wait()
            return "for ann only"

        @self.server.resource("test://guarded", required_scopes=["secret"])
        def guarded() -> str:
            return "text"

    @property
    def options(self):
        return HTTPOptions(auth=guard(self.one, self.two.tokens()))

    def ann(self, **changes):
        return bearer(self.one.sign(**changes))  # each time another token

    def other(self, who):
        return bearer(self.one.sign(sub="bob") if who == "bob" else self.two.sign())


@others
async def test_a_session(other):
    world = World()
    async with serving(world.server, world.options) as client:
        opened = await client.post(initialize(), world.ann())
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        theirs = {**session, **world.other(other)}
        with trio.fail_after(PATIENCE):
            for refused in (
                await client.post(call("slow"), theirs),
                await client.request("GET", headers={**STREAM, **theirs}),
                await client.request("DELETE", headers=theirs),
            ):
                assert refused.status == 404
        # Nor is the session itself a proof.
        assert (await client.post(call("slow"), session)).status == 401
        assert client.app.statistics().sessions == 1
        ended = await client.request("DELETE", headers={**session, **world.ann()})
        assert ended.status == 204


@others
async def test_a_stream_that_is_resumed(other):
    world = World()
    async with serving(world.server, world.options) as client:
        opened = await client.post(initialize(), world.ann())
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        message = call("slow")
        message["params"]["_meta"] = {"progressToken": 1}
        response = client.start_post(message, {**session, **world.ann()})
        await response.event(0)
        last = response.raw_events()[0][0]
        response.disconnect()
        world.release.set()
        await wait_all_tasks_blocked()
        resume = {**STREAM, **session, "last-event-id": last}
        with trio.fail_after(PATIENCE):
            refused = await client.request("GET", headers={**resume, **world.other(other)})
        assert refused.status == 404
        assert "ann" not in refused.body.decode()
        again = await client.request("GET", headers={**resume, **world.ann()})
        assert "for ann only" in again.body.decode()


@others
async def test_what_a_question_remembers(other):
    world = World()

    async def ask(client, headers, **more):
        meta = {**META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
        params = {"name": "ask", "arguments": {}, **more}
        return (await client.stateless("tools/call", params, headers=headers, meta=meta)).message()

    async with serving(world.server, world.options) as client:
        asked = (await ask(client, world.ann()))["result"]
        assert asked["resultType"] == "input_required"
        (name,) = asked["inputRequests"]
        brought = {
            "requestState": asked["requestState"],
            "inputResponses": {name: {"action": "accept", "content": {}}},
        }
        refused = await ask(client, world.other(other), **brought)
        assert "error" in refused
        assert world.ran == []
        answered = await ask(client, world.ann(), **brought)
        assert answered["result"]["content"][0]["text"] == "accept"
        assert world.ran == ["ann"]


async def test_a_subscription_tells_only_what_its_caller_may_read():
    world = World()
    wanted = {"notifications": {"resourceSubscriptions": ["test://guarded"]}}
    async with serving(world.server, world.options) as client:
        streams = {}
        for who, headers in (
            ("ann", world.ann(scope="secret")),
            ("low", world.ann(scope="read")),
            ("bob", world.other("bob")),
        ):
            stream = client.start_stateless("subscriptions/listen", wanted, headers=headers)
            honoured = (await stream.event(0))["params"]["notifications"]
            assert honoured.get("resourceSubscriptions", []) == (
                ["test://guarded"] if who == "ann" else []
            )
            streams[who] = stream
        world.server.notify_resource_updated("test://guarded")
        await streams["ann"].event(1)
        await wait_all_tasks_blocked()
        told = {
            who: [event.get("method", "over").split("/")[-1] for event in stream.events()]
            for who, stream in streams.items()
        }
        nothing = ["acknowledged", "over"]  # a stream that could never tell anything ends
        assert told == {"ann": ["acknowledged", "updated"], "low": nothing, "bob": nothing}


async def test_each_request_of_the_stateless_era_proves_itself():
    world = World()
    world.release.set()
    async with serving(world.server, world.options) as client:
        good = await client.stateless("tools/call", {"name": "slow"}, headers=world.ann())
        assert good.status == 200
        assert (await client.stateless("tools/call", {"name": "slow"})).status == 401
