"""Where a question travels over HTTP: on the POST of its call, and nowhere else (X2, F9)."""

import pytest
import trio
import trio.testing

from mcp_trio import Context
from tests.http.asgi import serving
from tests.http.tools import make_server

FORM = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
ELICITATION = {"elicitation": {}}
WITH_FORMS = {"io.modelcontextprotocol/clientCapabilities": ELICITATION}
REVISIONS = ["2025-06-18", "2025-11-25"]


def make_asking_server(**options):
    server, record = make_server(**options)

    @server.tool
    async def ask(ctx: Context, report: bool = False) -> str:
        """Ask."""
        if report:
            await ctx.progress(1)
        try:
            return (await ctx.elicit("Sure?", FORM, key="sure")).action
        finally:
            record.add("ask over")

    return server, record


def answer(question, **result):
    return {"jsonrpc": "2.0", "id": question["id"], "result": result}


async def question_on(response, number=0):
    with trio.fail_after(10):
        return await response.event(number)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_question_comes_on_the_stream_of_its_call_and_is_answered_by_post(revision):
    server, _ = make_asking_server()
    async with serving(server) as client:
        session = await client.open_session(revision, ELICITATION)
        listening = session.start_get()
        response = session.start_call("ask")
        question = await question_on(response)
        assert question["method"] == "elicitation/create"
        assert question["params"]["message"] == "Sure?"
        told = await session.post(answer(question, action="accept", content={"ok": True}))
        assert told.status == 202
        await response.ended.wait()
        assert response.is_stream
        assert response.message()["result"]["content"][0]["text"] == "accept"
        await trio.testing.wait_all_tasks_blocked()
        assert listening.events() == []


async def test_two_calls_that_ask_have_their_questions_on_their_own_streams():
    server, _ = make_asking_server()
    async with serving(server) as client:
        session = await client.open_session(capabilities=ELICITATION)
        one, two = session.start_call("ask", id_=1), session.start_call("ask", id_="1")
        first, second = await question_on(one), await question_on(two)
        assert first["id"] != second["id"]
        await session.post(answer(second, action="cancel"))
        await session.post(answer(first, action="decline"))
        await one.ended.wait()
        await two.ended.wait()
        assert one.message()["result"]["content"][0]["text"] == "decline"
        assert two.message()["result"]["content"][0]["text"] == "cancel"


async def test_a_client_that_takes_no_stream_is_not_asked():
    server, record = make_asking_server()
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ask"}}
    async with serving(server) as client:
        session = await client.open_session(capabilities=ELICITATION)
        with trio.fail_after(10):
            response = await session.post(call, {"accept": "application/json"})
        error = response.json()["error"]
        assert error["code"] == -32600
        assert "text/event-stream" in error["message"]
        assert record.events == ["ask over"]


@pytest.mark.parametrize("revision", ["2024-11-05", *REVISIONS])
async def test_a_client_that_takes_no_stream_gets_its_answer_all_the_same(revision):
    server, _ = make_server()
    params = {"name": "report", "_meta": {"progressToken": 1}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with serving(server) as client:
        session = await client.open_session(revision)
        response = await session.post(call, {"accept": "application/json"})
        assert response.json()["result"]["content"][0]["text"] == "reported"


async def test_a_cancelled_call_takes_its_question_back_on_the_same_stream():
    server, record = make_asking_server()
    async with serving(server) as client:
        session = await client.open_session(capabilities=ELICITATION)
        listening = session.start_get()
        response = session.start_call("ask", id_=5)
        question = await question_on(response)
        cancel = {"method": "notifications/cancelled", "params": {"requestId": 5}}
        await session.post({"jsonrpc": "2.0", **cancel})
        await response.ended.wait()
        told = response.events()[-1]
        assert told["method"] == "notifications/cancelled"
        assert told["params"]["requestId"] == question["id"]
        assert record.events == ["ask over"]
        assert listening.events() == []
        # The answer that comes all the same is nobody's.
        late = await session.post(answer(question, action="accept", content={"ok": True}))
        assert late.status == 202
        (kept,) = client.app.sessions
        assert kept.dispatcher.statistics().late_answers == 1


async def test_a_question_outlives_its_connection():
    server, _ = make_asking_server()
    async with serving(server) as client:
        session = await client.open_session(capabilities=ELICITATION)
        response = session.start_call("ask", {"report": True}, token=1)
        assert (await question_on(response))["method"] == "notifications/progress"
        response.disconnect()
        await response.ended.wait()
        await trio.testing.wait_all_tasks_blocked()
        first = next(id_ for id_, data in response.raw_events() if id_ and data)
        resumed = session.start_get({"last-event-id": first})
        question = await question_on(resumed)
        await session.post(answer(question, action="decline"))
        await resumed.ended.wait()
        assert resumed.events()[-1]["result"]["content"][0]["text"] == "decline"


async def test_the_end_of_a_session_ends_its_questions():
    server, record = make_asking_server()
    async with serving(server) as client:
        session = await client.open_session(capabilities=ELICITATION)
        response = session.start_call("ask")
        await question_on(response)
        assert (await session.delete()).status == 204
        await record.until("ask over")
        await response.ended.wait()


@pytest.mark.parametrize("report", [False, True])
async def test_without_a_session_the_question_is_the_result(report):
    server, record = make_asking_server()
    arguments = {"name": "ask", "arguments": {"report": report}}
    meta = {**WITH_FORMS, "progressToken": 1} if report else WITH_FORMS
    async with serving(server) as client:
        response = await client.stateless("tools/call", arguments, meta=meta)
        assert (response.status, response.is_stream) == (200, report)
        result = response.message()["result"]
        assert result["resultType"] == "input_required"
        assert list(result["inputRequests"]) == ["sure"]
        assert "ttlMs" not in result
        assert record.events == ["ask over"]
        retry = {
            **arguments,
            "requestState": result["requestState"],
            "inputResponses": {"sure": {"action": "accept", "content": {"ok": True}}},
        }
        response = await client.stateless("tools/call", retry, id_=2, meta=WITH_FORMS)
        done = response.message()["result"]
        assert (done["resultType"], done["content"][0]["text"]) == ("complete", "accept")
        changed = {**retry, "arguments": {"report": not report}}
        response = await client.stateless("tools/call", changed, id_=3, meta=WITH_FORMS)
        assert response.message()["error"]["code"] == -32602


async def test_without_a_session_what_was_not_declared_is_refused_with_400():
    server, _ = make_asking_server()
    async with serving(server) as client:
        response = await client.stateless("tools/call", {"name": "ask"})
        assert response.status == 400
        error = response.json()["error"]
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": {"elicitation": {}}}


async def test_a_peer_that_leaves_while_the_round_ends_is_not_answered():
    server, _ = make_server()
    record_over = trio.Event()

    @server.tool
    async def slow(ctx: Context) -> str:
        try:
            await ctx.elicit("Sure?", FORM)
        finally:
            with trio.CancelScope(shield=True):
                await record_over.wait()
        return ""

    async with serving(server) as client:
        response = client.start_stateless("tools/call", {"name": "slow"}, meta=WITH_FORMS)
        await trio.testing.wait_all_tasks_blocked()
        response.disconnect()
        await trio.testing.wait_all_tasks_blocked()
        record_over.set()
        await response.ended.wait()
        assert response.status is None
