"""Rounds of questions, as a script asks them (R4, R5, R8)."""

import pytest
import trio
import trio.testing

from mcp_trio import ClientCallbacks, RequestTimeoutError
from mcp_trio.client.answers import MAX_QUESTIONS
from mcp_trio.errors import ProtocolError
from mcp_trio.wire.elicitation import ElicitResult
from tests.client.scripts import scripted

FORM = {"type": "object", "properties": {"ok": {"type": "boolean"}}}


def question(message):
    return {
        "method": "elicitation/create",
        "params": {"message": message, "requestedSchema": FORM},
    }


def round_of(*messages, **more):
    return {
        "resultType": "input_required",
        "inputRequests": {message: question(message) for message in messages},
        **more,
    }


class Rounds:
    """Answers a call with one result after the other."""

    def __init__(self, *results):
        self.results = list(results)

    def __call__(self, request):
        return self.results.pop(0)


STATE = 'not-base64 \u2028 "quoted" \\ \U0001f600 '


async def test_the_state_goes_back_as_it_came_under_a_new_id():
    answers = {
        "tools/call": Rounds(
            round_of("a", "b", requestState=STATE),
            {"resultType": "input_required", "requestState": ""},
            round_of("c"),
            {"content": []},
        )
    }
    callbacks = ClientCallbacks(elicitation=lambda params: {"ok": params.message == "a"})
    async with scripted(answers, callbacks=callbacks) as (client, script):
        await client.call_tool("x", {"n": 1})
    calls = [request for request in script.asked if request.method == "tools/call"]
    assert len({call.id for call in calls}) == 4
    said = [{k: v for k, v in call.params.items() if k != "_meta"} for call in calls]
    plain = {"name": "x", "arguments": {"n": 1}}

    def answer(ok):
        return {"action": "accept", "content": {"ok": ok}}

    assert said == [
        plain,
        {
            **plain,
            "inputResponses": {"a": answer(True), "b": answer(False)},
            "requestState": STATE,
        },
        {**plain, "requestState": ""},
        {**plain, "inputResponses": {"c": answer(False)}},
    ]


async def test_a_question_that_fails_ends_the_others_and_the_call(autojump_clock):
    steps = []

    async def fill(params):
        if params.message == "bad":
            await trio.sleep(1)
            raise RuntimeError("mine")
        try:
            await trio.sleep_forever()
        finally:
            steps.append(f"{params.message} over")

    answers = {"tools/call": Rounds(round_of("good", "bad"), {"content": []})}
    callbacks = ClientCallbacks(elicitation=fill)
    async with scripted(answers, callbacks=callbacks) as (client, script):
        with pytest.raises(RuntimeError, match="mine"):
            await client.call_tool("x")
        assert steps == ["good over"]
        assert script.count("tools/call") == 1  # half an answer is not sent
        script.answers["tools/call"] = {"content": []}
        await client.call_tool("x")  # and the session lives


async def test_a_refusal_beside_an_answer_is_an_answer():
    def fill(params):
        return {"ok": True} if params.message == "a" else ElicitResult(action="decline")

    answers = {"tools/call": Rounds(round_of("a", "b"), {"content": []})}
    async with scripted(answers, callbacks=ClientCallbacks(elicitation=fill)) as (client, script):
        await client.call_tool("x")
    responses = script.asked[-1].params["inputResponses"]
    assert [answer["action"] for answer in responses.values()] == ["accept", "decline"]


async def test_the_total_is_for_the_rounds_and_the_user_together(autojump_clock):
    async def fill(_params):
        await trio.sleep(4)
        return {"ok": True}

    answers = {"tools/call": lambda _: round_of("again")}
    async with scripted(answers, callbacks=ClientCallbacks(elicitation=fill)) as (client, _):
        began = trio.current_time()
        with pytest.raises(RequestTimeoutError):
            await client.call_tool("x", timeout=10)
        assert trio.current_time() - began == pytest.approx(10)


async def test_a_deadline_that_falls_together_with_an_answer_is_a_timeout(autojump_clock):
    async def fill(_params):
        with trio.CancelScope(shield=True):
            await trio.sleep(20)
        return {"ok": True}

    answers = {"tools/call": lambda _: round_of("slow")}
    async with scripted(answers, callbacks=ClientCallbacks(elicitation=fill)) as (client, _):
        with pytest.raises(RequestTimeoutError):
            await client.call_tool("x", timeout=10)


ASKED = {
    "elicitation/create": {"message": "m", "requestedSchema": FORM},
    "a page": {"mode": "url", "message": "m", "url": "https://example.invalid/"},
    "sampling/createMessage": {"messages": [], "maxTokens": 1},
    "roots/list": {},
}


@pytest.mark.parametrize("given", [None, True, "yes", 5, (), [5]], ids=repr)
@pytest.mark.parametrize("what", ASKED)
async def test_what_a_callback_gives_is_an_answer_only_if_it_is_one(what, given):
    if what == "roots/list" and given == ():
        return  # no places at all, which is an answer
    callbacks = ClientCallbacks(
        elicitation=lambda _: given,
        elicitation_url=lambda _: given,
        sampling=lambda _: given,
        roots=lambda: given,
    )
    method = "elicitation/create" if what == "a page" else what
    request = {"method": method, "params": ASKED[what]}
    round_ = {"resultType": "input_required", "inputRequests": {"a": request}}
    async with scripted({"tools/call": Rounds(round_)}, callbacks=callbacks) as (client, script):
        with pytest.raises(TypeError):
            await client.call_tool("x")
        assert script.count("tools/call") == 1
    async with scripted({}, callbacks=callbacks, revisions=("2025-11-25",)) as (_, script):
        await script.peer.ask("mine", method, ASKED[what])
        await trio.testing.wait_all_tasks_blocked()
        (answer,) = script.said
        assert (answer.id, answer.code) == ("mine", -32603)


async def test_the_questions_of_a_round_are_bounded():
    asked = []
    questions = {str(number): question("m") for number in range(MAX_QUESTIONS + 1)}
    round_ = {"resultType": "input_required", "inputRequests": questions}
    callbacks = ClientCallbacks(elicitation=asked.append)
    async with scripted({"tools/call": Rounds(round_)}, callbacks=callbacks) as (client, _):
        with pytest.raises(ProtocolError, match="1001 questions at once"):
            await client.call_tool("x")
    assert asked == []
