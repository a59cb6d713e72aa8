"""What a question looks like on the wire, live and as a result, and which answers count."""

import trio.testing

from mcp_trio import Context
from mcp_trio.errors import MCPError
from mcp_trio.wire import METHODS, TextContent, Tool
from mcp_trio.wire.sampling import SamplingMessage, ToolResultContent, ToolUseContent
from tests.http.tools import make_server
from tests.scenarios.manifest import scenario
from tests.scenarios.peers import CAPABILITIES, peer_of
from tests.scenarios.servers import FORM, MODEL, full_server

FORMS = {"elicitation": {}}
PAGES = {"elicitation": {"url": {}}}
YES = {"action": "accept", "content": {"ok": True}}


async def asked(peer, method, tool, arguments=None):
    """Call a tool that asks one thing; gives the question and how to answer it."""
    call = await peer.start_call(tool, arguments)
    if not peer.revision.stateless:
        question = await peer.question(method, len(peer.questions()))

        async def reply(answer):
            await peer.reply(question, answer)
            return await peer.answer(call)

        return question, reply
    result = (await peer.answer(call))["result"]
    ((key, question),) = result["inputRequests"].items()
    assert question["method"] == method

    async def come_back(answer):
        params = {
            "name": tool,
            "arguments": arguments or {},
            "requestState": result["requestState"],
            "inputResponses": {key: answer},
        }
        return await peer.ask("tools/call", params)

    return question, come_back


@scenario("F1")
async def test_what_may_be_asked_is_declared_in_the_way_of_the_era(transport, revision):
    server, _ = full_server()
    said = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "four"}}
    async with peer_of(server, transport, revision, MODEL) as peer:
        question, reply = await asked(peer, "sampling/createMessage", "think")
        assert question["params"]["maxTokens"] == 1
        assert question["params"]["messages"][0]["role"] == "user"
        assert (await reply(said))["result"]["content"][0]["text"] == "four"
    async with peer_of(server, transport, revision) as peer:
        # Neither era believes what the other one would.
        claim = {"capabilities": MODEL, "_meta": {}}
        error = await peer.error("tools/call", {"name": "think", "arguments": {}, **claim})
        assert error["code"] == (-32021 if revision.stateless else -32601)
        assert peer.questions() == []
    if not revision.stateless:
        async with peer_of(server, transport, revision) as peer:
            params = {"name": "think", "arguments": {}}
            extra = {"x/clientCapabilities": MODEL}
            assert (await peer.error("tools/call", params, meta=extra))["code"] == -32601
    else:
        async with peer_of(server, transport, revision, MODEL) as peer:
            meta = {CAPABILITIES: {}}
            assert await peer.error("tools/call", {"name": "think"}, meta=meta)


@scenario("F3")
async def test_a_model_is_offered_tools_only_if_it_takes_them(transport, revision):
    server, record = make_server()
    use = ToolUseContent(id="u", name="x", input={})
    result = ToolResultContent(tool_use_id="u", content=[TextContent(text="r")])
    bad = {
        "unanswered": [[use]],
        "mixed": [[use], [result, TextContent(text="and")]],
        "other": [[use], [ToolResultContent(tool_use_id="v", content=[])]],
    }

    @server.tool
    async def agent(ctx: Context, talk: str = "good") -> str:
        turns = bad.get(talk, [[use], [result]])
        messages = [SamplingMessage.user("?")] + [
            SamplingMessage(role=("assistant", "user")[number % 2], content=blocks)
            for number, blocks in enumerate(turns)
        ]
        try:
            answer = await ctx.sample(
                messages,
                max_tokens=1,
                key="k",
                tools=[Tool(name="x", input_schema={"type": "object"})],
            )
        except ValueError:
            record.add("refused")
            return "refused"
        return answer.text

    async with peer_of(server, transport, revision, {"sampling": {"tools": {}}}) as peer:
        for talk in bad:
            result_ = await peer.call("agent", {"talk": talk})
            assert result_["content"][0]["text"] == "refused"
        assert len(record.events) == len(bad)
        question, reply = await asked(peer, "sampling/createMessage", "agent")
        assert question["params"]["tools"][0]["name"] == "x"
        text = {"type": "text", "text": "done"}
        answer = await reply({"role": "assistant", "model": "m", "content": text})
        assert answer["result"]["content"] == [text]
    async with peer_of(server, transport, revision, MODEL) as peer:
        error = await peer.error("tools/call", {"name": "agent", "arguments": {}})
        assert error["code"] == (-32021 if revision.stateless else -32602)
        assert peer.questions() == []


def asking_server():
    server, record = make_server()

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", FORM, key="sure")
        return f"{answer.action} {answer.content}"

    @server.tool
    async def visit(ctx: Context) -> str:
        visit = await ctx.elicit_url("Go", "https://example.com/x", key="go")
        await ctx.elicitation_completed(visit.elicitation_id or "none")
        return f"{visit.action} {visit.content}"

    return server, record


@scenario("F4", "F5")
async def test_a_form_is_flat_and_its_content_counts_only_with_a_yes(transport, revision):
    server, _ = asking_server()
    async with peer_of(server, transport, revision, FORMS) as peer:
        question, reply = await asked(peer, "elicitation/create", "ask")
        assert question["params"]["message"] == "Sure?"
        assert question["params"]["requestedSchema"] == FORM
        assert (await reply(YES))["result"]["content"][0]["text"] == "accept {'ok': True}"
        for action in ("decline", "cancel"):
            _, reply = await asked(peer, "elicitation/create", "ask")
            answer = await reply({"action": action, "content": {"ok": True}})
            assert answer["result"]["content"][0]["text"] == f"{action} None"
        for wrong in (
            {"action": "accept", "content": {"ok": "yes"}},
            {"action": "accept", "content": {}},
            {"action": "accept"},
            {"action": "maybe"},
            {},
        ):
            _, reply = await asked(peer, "elicitation/create", "ask")
            assert (await reply(wrong))["error"]["code"] == -32602, wrong


@scenario("F7")
async def test_a_visit_has_a_name_where_visits_have_names(transport, revision):
    server, _ = asking_server()
    async with peer_of(server, transport, revision, PAGES) as peer:
        question, reply = await asked(peer, "elicitation/create", "visit")
        params = question["params"]
        assert (params["mode"], params["url"]) == ("url", "https://example.com/x")
        named = METHODS["notifications/elicitation/complete"].exists_in(revision)
        assert ("elicitationId" in params) is named
        answer = await reply({"action": "accept"})
        assert answer["result"]["content"][0]["text"] == "accept None"
        told = peer.notes("notifications/elicitation/complete")
        ids = [note["params"]["elicitationId"] for note in told]
        assert ids == ([params["elicitationId"]] if named else [])


@scenario("F9")
async def test_nothing_is_asked_when_no_request_is_running(transport, revision):
    server, record = make_server()
    kept = []

    @server.tool
    async def keep(ctx: Context) -> str:
        kept.append(ctx)
        return "kept"

    async with peer_of(server, transport, revision, {**MODEL, "roots": {}}) as peer:
        await peer.call("keep")
        for ask in (kept[0].list_roots, lambda: kept[0].sample("?", max_tokens=1)):
            try:
                await ask()
            except MCPError:
                record.add("refused")
        assert record.events == ["refused", "refused"]
        await trio.testing.wait_all_tasks_blocked()
        assert peer.questions() == []
