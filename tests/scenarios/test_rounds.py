"""Questions as results: what they look like, and which answers are believed."""

import trio.testing

from mcp_trio import Context
from mcp_trio.errors import MCPError
from tests.http.tools import make_server
from tests.scenarios.manifest import scenario
from tests.scenarios.peers import CAPABILITIES, peer_of
from tests.scenarios.servers import FORM

FORMS = {"elicitation": {}}
EVERYTHING = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
YES = {"action": "accept", "content": {"ok": True}}
MODEL_SAYS = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}}


def asking_server(**options):
    server, record = make_server(**options)

    @server.tool
    async def ask(ctx: Context, about: str = "it") -> str:
        await ctx.elicit(f"Sure about {about}?", FORM, key="sure")
        await ctx.elicit("Really?", FORM, key="really")
        return f"done {about}"

    @server.tool
    async def other(ctx: Context, about: str = "it") -> str:
        await ctx.elicit("Sure?", FORM, key="sure")
        return "other"

    @server.tool
    async def many(ctx: Context) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.elicit, "Form?", FORM)
            nursery.start_soon(ctx.elicit_url, "Page?", "https://example.com/x")
            nursery.start_soon(ctx.list_roots)

            async def sample():
                await ctx.sample("?", max_tokens=3)

            nursery.start_soon(sample)
        return "asked"

    @server.prompt
    async def greet(ctx: Context) -> str:
        await ctx.elicit("Whom?", FORM, key="whom")
        return "Hello"

    @server.resource("test://asking")
    async def asking(ctx: Context) -> str:
        await ctx.elicit("Whose?", FORM, key="whose")
        return "mine"

    return server, record


def call(name="ask", state=None, answers=None, **arguments):
    params = {"name": name, "arguments": arguments}
    if state is not None:
        params["requestState"] = state
    if answers is not None:
        params["inputResponses"] = answers
    return params


@scenario("R1")
async def test_only_three_methods_answer_with_a_question(transport, revision):
    server, record = asking_server()

    async def nosy(context):
        try:
            await context.elicit("?", FORM)
        except MCPError:
            record.add("refused")
            raise

    elsewhere = ("tools/list", "prompts/list", "completion/complete", "subscriptions/listen")
    server.completion("x", prompt="greet")(lambda *_: [])
    server.handlers = {**server.handlers, **dict.fromkeys(elsewhere, nosy)}
    async with peer_of(server, transport, revision, FORMS) as peer:
        for method, params in {
            "tools/call": call(),
            "prompts/get": {"name": "greet"},
            "resources/read": {"uri": "test://asking"},
        }.items():
            assert (await peer.result(method, params))["resultType"] == "input_required"
        good = {
            "completion/complete": {
                "ref": {"type": "ref/prompt", "name": "greet"},
                "argument": {"name": "x", "value": ""},
            },
            "subscriptions/listen": {"notifications": {}},
        }
        for method in elsewhere:
            assert await peer.error(method, good.get(method, {}))
        assert record.events == ["refused"] * len(elsewhere)
        assert peer.questions() == []


@scenario("R2")
async def test_questions_have_keys_and_no_ids(transport, revision):
    server, _ = asking_server()
    async with peer_of(server, transport, revision, EVERYTHING) as peer:
        asked = await peer.result("tools/call", call("many"))
        assert asked["resultType"] == "input_required"
        assert isinstance(asked["requestState"], str)
        questions = asked["inputRequests"]
        assert sorted(question["method"] for question in questions.values()) == [
            "elicitation/create",
            "elicitation/create",
            "roots/list",
            "sampling/createMessage",
        ]
        for question in questions.values():
            assert question.keys() <= {"method", "params"}
        answers = {}
        for key, question in questions.items():
            answers[key] = {
                "roots/list": {"roots": [{"uri": "file:///a"}]},
                "sampling/createMessage": MODEL_SAYS,
            }.get(question["method"], YES)
        done = await peer.result("tools/call", call("many", asked["requestState"], answers))
        assert (done["resultType"], done["content"][0]["text"]) == ("complete", "asked")


@scenario("R3")
async def test_nothing_is_asked_that_the_request_does_not_offer(transport, revision):
    server, _ = make_server()

    @server.tool
    async def ask(ctx: Context, what: str) -> str:
        match what:
            case "form":
                await ctx.elicit("?", FORM)
            case "url":
                await ctx.elicit_url("?", "https://example.com")
            case "model":
                await ctx.sample("?", max_tokens=1)
            case "tools":
                await ctx.sample("?", max_tokens=1, tools=[])
            case "roots":
                await ctx.list_roots()
        return "asked"

    offers = {
        "form": ({"elicitation": {}}, {"elicitation": {"form": {}}}),
        "url": ({"elicitation": {"url": {}}},),
        "model": ({"sampling": {}}, {"sampling": {"tools": {}}}),
        "tools": ({"sampling": {"tools": {}}},),
        "roots": ({"roots": {}},),
    }
    everything = [offer for each in offers.values() for offer in each]
    async with peer_of(server, transport, revision) as peer:
        for what, enough in offers.items():
            for offer in ({}, *everything):
                params = {"name": "ask", "arguments": {"what": what}}
                answer = await peer.ask("tools/call", params, meta={CAPABILITIES: offer})
                if offer in enough:
                    (question,) = answer["result"]["inputRequests"].values()
                    if what == "form":
                        assert question["params"].get("mode", "form") == "form"
                else:
                    assert answer["error"]["code"] == -32021, (what, offer)


@scenario("R6")
async def test_a_state_is_believed_only_unchanged_and_for_its_own_call(transport, revision):
    server, _ = asking_server()
    stranger, _ = asking_server()
    old, _ = asking_server(state_ttl=-1)
    async with peer_of(stranger, transport, revision, FORMS) as peer:
        foreign = (await peer.result("tools/call", call()))["requestState"]
    async with peer_of(server, transport, revision, FORMS) as peer:
        state = (await peer.result("tools/call", call()))["requestState"]
        middle = len(state) // 2
        swapped = state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :]
        for bad in (foreign, swapped, state[:-4], state + "AAAA", "", "x", "\u00e9", 7, {}):
            error = await peer.error("tools/call", call("ask", bad, {"sure": YES}))
            assert error["code"] == -32602, bad
        for wrong in (call("other", state), call("ask", state, about="that")):
            assert (await peer.error("tools/call", wrong))["code"] == -32602
        again = await peer.result("tools/call", call("ask", state, {"sure": YES}))
        assert list(again["inputRequests"]) == ["really"]
    async with peer_of(old, transport, revision, FORMS) as peer:
        state = (await peer.result("tools/call", call()))["requestState"]
        assert (await peer.error("tools/call", call("ask", state)))["code"] == -32602


@scenario("R7")
async def test_answers_are_checked_and_missing_ones_asked_for_again(transport, revision):
    server, _ = asking_server(max_rounds=3)
    async with peer_of(server, transport, revision, FORMS) as peer:
        state = (await peer.result("tools/call", call()))["requestState"]
        for lacking in ({}, {"other": YES}, {"sure": None}):
            asked = await peer.result("tools/call", call("ask", state, lacking))
            assert list(asked["inputRequests"]) == ["sure"]
        for wrong in ({"sure": 7}, {"sure": {**YES, "content": {"ok": 1}}}, {"sure": {}}, 7):
            error = await peer.error("tools/call", call("ask", state, wrong))
            assert error["code"] == -32602, wrong
        extra = {"sure": YES, "really": YES, "more": {"x": 1}}
        asked = await peer.result("tools/call", call("ask", state, extra))
        assert list(asked["inputRequests"]) == ["really"]
        back = call("ask", asked["requestState"], {"really": YES})
        assert (await peer.result("tools/call", back))["content"][0]["text"] == "done it"
        for _ in range(2):
            state = (await peer.result("tools/call", call("ask", state)))["requestState"]
        assert await peer.error("tools/call", call("ask", state))


@scenario("R9")
async def test_a_question_says_nothing_of_caching(transport, revision):
    server, _ = asking_server()
    async with peer_of(server, transport, revision, FORMS) as peer:
        asked = await peer.result("resources/read", {"uri": "test://asking"})
        assert asked["resultType"] == "input_required"
        assert not {"ttlMs", "cacheScope"} & asked.keys()
        back = {"requestState": asked["requestState"], "inputResponses": {"whose": YES}}
        read = await peer.result("resources/read", {"uri": "test://asking", **back})
        assert read["contents"][0]["text"] == "mine"
        assert {"ttlMs", "cacheScope"} <= read.keys()
