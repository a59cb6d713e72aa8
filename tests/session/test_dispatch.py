"""Questions in rounds together with layers: whom the sealed state belongs to."""

import attrs
import pytest
import trio

from mcp_trio import ClientCallbacks, Context, MCPServer, Principal, RemoteError
from mcp_trio.wire.revisions import R2026_07_28
from tests.scenarios.servers import FORM
from tests.scenarios.worlds import world

YES = {"action": "accept", "content": {"ok": True}}


def setting(context, principal):
    context.principal = principal
    return context


def copying(context, principal):
    return attrs.evolve(context, principal=principal)


either_way = pytest.mark.parametrize("settle", [setting, copying])


def make_server(settle, *, confirm=False):
    """A server whose middleware settles who calls by what stands in `_meta`."""
    server, runs = MCPServer("s"), []

    if confirm:

        @server.middleware
        async def first(context: Context, call_next):
            if context.method == "tools/call":
                await context.elicit("May I?", FORM, key="may")
            return await call_next(context)

    @server.middleware
    async def who(context: Context, call_next):
        subject = context.meta.get("who")
        return await call_next(
            context if subject is None else settle(context, Principal(subject=subject))
        )

    @server.tool
    async def pay(ctx: Context) -> str:
        await ctx.elicit("Sure?", FORM, key="sure")
        secret = await ctx.once("secret", lambda: f"of {ctx.principal and ctx.principal.subject}")
        await ctx.elicit("Really?", FORM, key="really")
        runs.append(secret)
        return f"{ctx.principal and ctx.principal.subject} paid with the secret {secret}"

    return server, runs


def connected(server):
    callbacks = ClientCallbacks(elicitation=lambda _: {"ok": True})
    return world(server, "memory", R2026_07_28, callbacks)


async def call(client, who, state=None, **answers):
    params = {"name": "pay", "arguments": {}, "_meta": {} if who is None else {"who": who}}
    if state is not None:
        params.update(requestState=state, inputResponses=answers)
    return await client.session.call("tools/call", params)


async def refused(client, who, state, **answers):
    with pytest.raises(RemoteError, match="requestState is not valid") as caught:
        await call(client, who, state, **answers)
    assert caught.value.rpc_code == -32602


@either_way
async def test_a_state_belongs_to_the_caller_whom_a_layer_has_settled(settle):
    server, runs = make_server(settle)
    async with connected(server) as client:
        first = await call(client, "ann")
        second = await call(client, "ann", first["requestState"], sure=YES)
        assert list(second["inputRequests"]) == ["really"]
        for other in ("bob", None):
            for state in (first["requestState"], second["requestState"]):
                await refused(client, other, state, sure=YES, really=YES)
        assert runs == []
        done = await call(client, "ann", second["requestState"], really=YES)
        assert done["content"][0]["text"] == "ann paid with the secret of ann"
        nobodys = await call(client, None)
        await refused(client, "ann", nobodys["requestState"], sure=YES)
    assert runs == ["of ann"]


@either_way
async def test_a_layer_that_asks_before_the_caller_is_settled_hinders_nothing(settle):
    server, _ = make_server(settle, confirm=True)
    callbacks = ClientCallbacks(elicitation=lambda _: {"ok": True})
    async with world(server, "memory", R2026_07_28, callbacks) as client:
        params = {"name": "pay", "arguments": {}, "_meta": {"who": "ann"}}
        done = await client.call("tools/call", params)
    assert done["content"][0]["text"] == "ann paid with the secret of ann"


@either_way
async def test_what_was_answered_before_the_caller_was_settled_gives_nobody_more(settle):
    server, runs = make_server(settle, confirm=True)
    async with connected(server) as client:
        first = await call(client, "ann")
        assert list(first["inputRequests"]) == ["may"]
        second = await call(client, "ann", first["requestState"], may=YES)
        assert list(second["inputRequests"]) == ["sure"]
        await refused(client, "bob", second["requestState"], sure=YES)
        third = await call(client, "ann", second["requestState"], sure=YES)
        await refused(client, "bob", third["requestState"], really=YES)
    assert runs == []


async def test_a_state_may_be_used_at_the_same_time_and_each_use_is_its_own():
    server, runs = make_server(setting)
    async with connected(server) as client:
        first = await call(client, "ann")
        second = await call(client, "ann", first["requestState"], sure=YES)
        results = []

        async def use():
            results.append(await call(client, "ann", second["requestState"], really=YES))

        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(use)
    assert len(results) == len(runs) == 100
    assert {result["content"][0]["text"] for result in results} == {
        "ann paid with the secret of ann"
    }
