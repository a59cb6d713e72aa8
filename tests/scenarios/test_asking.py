"""One handler, both eras: what it asks reaches the client, whatever carries the call (X1)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict

import attrs
import msgspec
import pytest
import trio
import trio.testing

from mcp_trio import (
    ClientCallbacks,
    ClientOptions,
    Context,
    MCPClient,
    MCPServer,
    RemoteError,
    RequestTimeoutError,
    ServerOptions,
)
from mcp_trio.client.answers import prefilled
from mcp_trio.errors import (
    InvalidParamsError,
    MCPError,
    MissingCapabilityError,
    ProtocolError,
    RequestCancelledError,
)
from mcp_trio.json_schema import SchemaError
from mcp_trio.wire import METHODS, REVISIONS, ImageContent, TextContent, Tool
from mcp_trio.wire.elicitation import ElicitResult, forms_exist, pages_exist
from mcp_trio.wire.revisions import R2025_06_18, R2025_11_25, R2026_07_28
from mcp_trio.wire.roots import Root
from mcp_trio.wire.sampling import (
    CreateMessageResult,
    ModelHint,
    ModelPreferences,
    SamplingMessage,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)
from tests.http.tools import Record
from tests.scenarios.manifest import in_worlds, shows
from tests.scenarios.worlds import WORLDS, world

everywhere = in_worlds(WORLDS)
_FORMS = [w for w in WORLDS if forms_exist(w[1])]
with_forms = in_worlds(_FORMS)
_PAGES = [w for w in WORLDS if pages_exist(w[1])]
with_pages = in_worlds(_PAGES)
both_eras = pytest.mark.parametrize("revision", [R2025_11_25, R2026_07_28], ids=str)


@dataclass
class Person:
    name: Annotated[str, msgspec.Meta(min_length=1)]
    age: int = 30


@attrs.frozen
class Pet:
    species: Literal["cat", "dog"]


class Place(TypedDict):
    city: str


FORM = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


def said(text: str) -> CreateMessageResult:
    return CreateMessageResult(
        role="assistant", content=[TextContent(text=text)], model="test", stop_reason="endTurn"
    )


def make_server(**options: Any) -> tuple[MCPServer, Record]:
    return MCPServer("test", version="1", options=ServerOptions(**options)), Record()


async def text_of(client: MCPClient, name: str, **arguments: Any) -> str:
    with trio.fail_after(10):
        result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    return result.content[0].text


# -- the same handler everywhere ---------------------------------------------------


@with_forms
@shows("X1", "F4")
async def test_a_form_is_filled_in_and_typed(transport, revision):
    server, record = make_server()

    @server.tool
    async def register(ctx: Context, greeting: str) -> str:
        record.add("run")
        person = await ctx.elicit("Who are you?", Person)
        assert person.accepted
        assert isinstance(person.content, Person)
        pet = await ctx.elicit("Which pet?", Pet)
        place = await ctx.elicit("Where?", Place)
        free = await ctx.elicit("Really?", FORM)
        return f"{greeting} {person.content} {pet.content} {place.content} {free.content}"

    asked = []

    async def fill(params):
        asked.append(params)
        await trio.lowlevel.checkpoint()
        return {
            "Who are you?": {"name": "Bob"},
            "Which pet?": {"species": "cat"},
            "Where?": {"city": "Rome"},
            "Really?": {"ok": True},
        }[params.message]

    async with world(server, transport, revision, ClientCallbacks(elicitation=fill)) as client:
        text = await text_of(client, "register", greeting="Hi")
    assert text == (
        "Hi Person(name='Bob', age=30) Pet(species='cat') {'city': 'Rome'} {'ok': True}"
    )
    assert [params.message for params in asked] == [
        "Who are you?",
        "Which pet?",
        "Where?",
        "Really?",
    ]
    assert asked[3].requested_schema == FORM
    assert len(record.events) == (5 if revision.stateless else 1)


@everywhere
@shows("X1", "F1")
async def test_the_model_is_asked(transport, revision):
    server, _ = make_server()

    @server.tool
    async def think(ctx: Context) -> str:
        messages = [
            SamplingMessage.user("2 and 2?"),
            SamplingMessage.assistant("4"),
            SamplingMessage(
                role="user",
                content=[
                    TextContent(text="and this?"),
                    ImageContent(data="AAAA", mime_type="image/png"),
                ],
            ),
        ]
        answer = await ctx.sample(
            messages,
            max_tokens=7,
            system_prompt="Be brief",
            temperature=0.5,
            stop_sequences=["."],
            metadata={"x": 1},
            include_context="none",
            model_preferences=ModelPreferences(hints=[ModelHint(name="m")], cost_priority=0.1),
        )
        return f"{answer.text} by {answer.model}"

    asked = []

    def sample(params):
        asked.append(params)
        return said("a cat")

    async with world(server, transport, revision, ClientCallbacks(sampling=sample)) as client:
        assert await text_of(client, "think") == "a cat by test"
    (params,) = asked
    assert (params.max_tokens, params.system_prompt, params.temperature) == (7, "Be brief", 0.5)
    assert params.model_preferences.hints == [ModelHint(name="m")]
    # One message has one block in the revisions that know no other.
    sizes = [len(message.content) for message in params.messages]
    assert sizes == ([1, 1, 2] if revision >= R2025_11_25 else [1, 1, 1, 1])


@everywhere
async def test_the_roots_are_asked_for(transport, revision):
    server, _ = make_server()

    @server.tool
    async def roots(ctx: Context) -> str:
        return " ".join(root.uri for root in await ctx.list_roots())

    async def list_roots():
        await trio.lowlevel.checkpoint()
        return [Root(uri="file:///a", name="a"), Root(uri="file:///b")]

    async with world(server, transport, revision, ClientCallbacks(roots=list_roots)) as client:
        assert await text_of(client, "roots") == "file:///a file:///b"
        await client.notify_roots_changed()


@with_pages
@shows("F7")
async def test_a_page_is_visited(transport, revision):
    server, _ = make_server()

    @server.tool
    async def visit(ctx: Context) -> str:
        visited = await ctx.elicit_url("Log in", "https://example.com/connect")
        assert visited.content is None
        assert (visited.elicitation_id is not None) == (ctx.revision is R2025_11_25)
        await ctx.elicitation_completed(visited.elicitation_id or "none")
        return visited.action

    asked = []

    def open_page(params):
        asked.append(params)
        return ElicitResult(action="accept", content={"never": "sent"})

    callbacks = ClientCallbacks(elicitation_url=open_page)
    async with world(server, transport, revision, callbacks) as client:
        assert await text_of(client, "visit") == "accept"
    assert (asked[0].url, asked[0].mode) == ("https://example.com/connect", "url")
    assert (asked[0].elicitation_id is not None) == (revision is R2025_11_25)


@with_forms
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_may_say_no_or_nothing(transport, revision, action):
    server, _ = make_server()

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", FORM)
        assert not answer.accepted
        assert answer.content is None
        return answer.action

    callbacks = ClientCallbacks(
        elicitation=lambda _: ElicitResult(action=action, content={"ok": True})
    )
    async with world(server, transport, revision, callbacks) as client:
        assert await text_of(client, "ask") == action


@with_forms
async def test_tasks_that_ask_together_ask_in_one_round(transport, revision):
    server, record = make_server()

    @server.tool
    async def ask(ctx: Context) -> str:
        record.add("run")
        answers = {}

        async def one(number):
            if number % 2:
                await ctx.progress(number)
            answers[number] = (await ctx.elicit(f"Number {number}?", Place)).content["city"]

        async def model():
            answers["model"] = (await ctx.sample("hello", max_tokens=1)).text

        async with trio.open_nursery() as nursery:
            nursery.start_soon(model)
            for number in range(4):
                nursery.start_soon(one, number)
        return " ".join(f"{key}={answers[key]}" for key in (0, 1, 2, 3, "model"))

    waiting, release = [], trio.Event()

    async def fill(params):
        # Every question is there before the first one is answered.
        waiting.append(params.message)
        if len(waiting) == 4:
            release.set()
        await release.wait()
        return {"city": params.message[7:8]}

    callbacks = ClientCallbacks(elicitation=fill, sampling=lambda _: said("hi"))
    async with world(server, transport, revision, callbacks) as client:
        assert await text_of(client, "ask") == "0=0 1=1 2=2 3=3 model=hi"
    assert len(waiting) == 4
    assert len(record.events) == (2 if revision.stateless else 1)


@with_forms
async def test_prompts_and_resources_ask_like_tools(transport, revision):
    server, _ = make_server()

    @server.prompt
    async def greet(ctx: Context) -> str:
        return f"Greet {(await ctx.elicit('Whom?', Place)).content['city']}"

    @server.resource("test://{kind}/mine")
    async def mine(ctx: Context, kind: str) -> str:
        return f"{kind} of {(await ctx.elicit('Whose?', Place)).content['city']}"

    callbacks = ClientCallbacks(elicitation=lambda _: {"city": "Rome"})
    async with world(server, transport, revision, callbacks) as client:
        got = await client.call("prompts/get", {"name": "greet"})
        assert got["messages"][0]["content"]["text"] == "Greet Rome"
        read = await client.call("resources/read", {"uri": "test://map/mine"})
        assert read["contents"][0]["text"] == "map of Rome"


@with_forms
async def test_side_effects_happen_one_time(transport, revision):
    server, record = make_server()

    @server.tool
    async def pay(ctx: Context) -> str:
        async def charge(amount):
            await trio.lowlevel.checkpoint()
            record.add(f"charged {amount}")
            return {"receipt": amount, "stdio": (1, 2)}

        receipt = await ctx.once("charge", charge, 5)
        assert receipt == {"receipt": 5, "stdio": [1, 2]}
        await ctx.once("note", record.add, "noted")
        await ctx.elicit("Rate us", FORM, key="rate")
        assert await ctx.once("charge", charge, 5) == receipt
        await ctx.elicit("Rate us again", FORM)
        return str(receipt["receipt"])

    callbacks = ClientCallbacks(elicitation=lambda _: {"ok": True})
    async with world(server, transport, revision, callbacks) as client:
        assert await text_of(client, "pay") == "5"
    assert record.events == ["charged 5", "noted"]


# -- what was not declared is not asked --------------------------------------------


@everywhere
@shows("F1", "R3", "LC3")
async def test_nothing_is_asked_that_was_not_declared(transport, revision):
    server, _ = make_server()
    refused = {}

    @server.tool
    async def ask(ctx: Context, what: str) -> str:
        questions = {
            "form": lambda: ctx.elicit("?", FORM),
            "url": lambda: ctx.elicit_url("?", "https://example.com"),
            "sampling": lambda: ctx.sample("?", max_tokens=1),
            "roots": ctx.list_roots,
        }
        try:
            await questions[what]()
        except MissingCapabilityError as error:
            refused[what] = error.data["requiredCapabilities"]
            raise
        return "asked"

    async with world(server, transport, revision) as client:
        for what in ("form", "url", "sampling", "roots"):
            with pytest.raises(RemoteError) as caught:
                await client.call_tool("ask", {"what": what})
            if revision.stateless:
                assert caught.value.rpc_code == -32021
                assert caught.value.data == {"requiredCapabilities": refused[what]}
            else:
                assert caught.value.rpc_code == (-32602 if what == "url" else -32601)
    assert refused == {
        "form": {"elicitation": {}},
        "url": {"elicitation": {"url": {}}},
        "sampling": {"sampling": {}},
        "roots": {"roots": {}},
    }


@both_eras
async def test_a_model_without_tools_is_offered_none(revision):
    server, _ = make_server()
    tool = Tool(name="weather", input_schema={"type": "object"})

    @server.tool
    async def agent(ctx: Context) -> str:
        talk = [SamplingMessage.user("Weather?")]
        options = {"tools": [tool], "tool_choice": ToolChoice(mode="auto")}
        for _ in range(3):
            answer = await ctx.sample(talk, max_tokens=5, **options)
            if not answer.tool_uses:
                return answer.text
            talk.append(SamplingMessage(role="assistant", content=answer.content))
            results = [
                ToolResultContent(tool_use_id=use.id, content=[TextContent(text="sunny")])
                for use in answer.tool_uses
            ]
            talk.append(SamplingMessage(role="user", content=results))
        return "too long"

    def sample(params):
        last = params.messages[-1].content[0]
        if isinstance(last, ToolResultContent):
            return said(f"it is {last.content[0].text}")
        assert params.tools == [tool]
        uses = [ToolUseContent(id=i, name="weather", input={}) for i in ("a", "b")]
        return attrs.evolve(said(""), content=uses, stop_reason="toolUse")

    callbacks = ClientCallbacks(sampling=sample, sampling_tools=True)
    async with world(server, "memory", revision, callbacks) as client:
        assert await text_of(client, "agent") == "it is sunny"
    async with world(server, "memory", revision, ClientCallbacks(sampling=sample)) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("agent")
        assert caught.value.data["requiredCapabilities"] == {"sampling": {"tools": {}}}
        assert caught.value.rpc_code == (-32021 if revision.stateless else -32602)


# -- wrong answers, failing callbacks ----------------------------------------------


@both_eras
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (ElicitResult(action="accept", content={"ok": "yes"}), "content/ok"),
        (ElicitResult(action="accept"), "misses ok"),
        (ElicitResult(action="perhaps"), "action"),
    ],
)
async def test_an_answer_that_does_not_fit_is_refused(monkeypatch, revision, answer, told):
    # A client that does not look at the form itself.
    monkeypatch.setattr("mcp_trio.client.answers.Validator.is_valid", lambda *_: True)
    server, _ = make_server()

    @server.tool
    async def ask(ctx: Context, x: Literal["y"] = "y") -> str:
        await ctx.elicit("?", FORM, key="q")
        return "done"

    callbacks = ClientCallbacks(elicitation=lambda _: answer)
    async with world(server, "memory", revision, callbacks) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call("tools/call", {"name": "ask"})
    assert caught.value.rpc_code == -32602
    assert told in caught.value.message


class OopsError(Exception):
    """A fault of a callback."""


@with_forms
async def test_a_callback_that_raises(transport, revision, caplog):
    server, record = make_server()

    @server.tool
    async def ask(ctx: Context) -> str:
        try:
            await ctx.elicit("?", FORM)
        except RemoteError as error:
            record.add(f"failed {error.rpc_code}")
            return "no answer"
        return "answer"

    def fill(params):
        raise OopsError("secret")

    async with world(server, transport, revision, ClientCallbacks(elicitation=fill)) as client:
        if revision.stateless:
            with pytest.raises(OopsError):
                await client.call_tool("ask")
        else:
            assert await text_of(client, "ask") == "no answer"
            assert record.events == ["failed -32603"]
            assert "secret" in caplog.text


@both_eras
async def test_a_callback_may_refuse_with_a_code(revision):
    server, _ = make_server()

    @server.tool
    async def think(ctx: Context) -> str:
        await ctx.sample("?", max_tokens=1)
        return "thought"

    def sample(params):
        raise RemoteError("The user said no", rpc_code=-1)

    async with world(server, "memory", revision, ClientCallbacks(sampling=sample)) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("think")
        assert caught.value.rpc_code == -1


@both_eras
@pytest.mark.parametrize("more", [{"ok": 3}, {"x": {}}, {"x": None}, {"x": ["a", 1]}])
async def test_a_callback_is_held_to_the_form_and_to_what_any_form_takes(revision, more):
    server, _ = make_server()

    @server.tool
    async def ask(ctx: Context) -> str:
        return str(await ctx.elicit("?", FORM))

    callbacks = ClientCallbacks(elicitation=lambda _: {"ok": True, **more})
    async with world(server, "memory", revision, callbacks) as client:
        with pytest.raises((RemoteError, ValueError)):
            await client.call_tool("ask")


# -- cancellation ------------------------------------------------------------------


@with_forms
async def test_leaving_a_call_ends_the_question_on_both_sides(transport, revision):
    server, record = make_server()

    @server.tool
    async def ask(ctx: Context) -> str:
        try:
            await ctx.elicit("?", FORM)
        finally:
            if not ctx.revision.stateless:
                record.add("tool over")
        return ""

    async def fill(params):
        record.add("shown")
        try:
            await trio.sleep_forever()
        finally:
            record.add("hidden")

    async with world(server, transport, revision, ClientCallbacks(elicitation=fill)) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "ask")
            await record.until("shown")
            nursery.cancel_scope.cancel()
        with trio.fail_after(10):
            while len(record.events) < (2 if revision.stateless else 3):
                await record._added.park()
        assert set(record.events) == {"shown", "hidden", "tool over"} - (
            {"tool over"} if revision.stateless else set()
        )
        await client.ping()


@with_forms
async def test_a_call_over_its_time_ends_the_question(transport, revision):
    server, record = make_server()

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("?", FORM)).action

    async def fill(params):
        try:
            await trio.sleep_forever()
        finally:
            record.add("hidden")

    async with world(server, transport, revision, ClientCallbacks(elicitation=fill)) as client:
        with pytest.raises(RequestTimeoutError):
            await client.call_tool("ask", timeout=0.2)
        await record.until("hidden")


@pytest.mark.parametrize(
    ("transport", "revision"), [w for w in _FORMS if not w[1].stateless], ids=str
)
async def test_a_handler_that_stops_waiting_takes_its_question_back(transport, revision):
    server, record = make_server()

    @server.tool
    async def ask(ctx: Context) -> str:
        with trio.move_on_after(0.1):
            await ctx.elicit("?", FORM)
        await record.until("shown", "hidden")
        return "gave up"

    async def fill(params):
        record.add("shown")
        try:
            await trio.sleep_forever()
        finally:
            record.add("hidden")

    async with world(server, transport, revision, ClientCallbacks(elicitation=fill)) as client:
        assert await text_of(client, "ask") == "gave up"


@pytest.mark.parametrize("transport", ["memory", "stdio", "http"])
async def test_a_request_over_its_time_on_the_server_ends_the_question(transport):
    server, record = make_server(request_timeout=0.2)

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("?", FORM)).action

    async def fill(params):
        try:
            await trio.sleep_forever()
        finally:
            record.add("hidden")

    callbacks = ClientCallbacks(elicitation=fill)
    async with world(server, transport, R2025_11_25, callbacks) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("ask")
        assert caught.value.data["code"] == "MCP.TIMEOUT"
        await record.until("hidden")


@both_eras
async def test_a_context_that_outlives_its_request_cannot_ask(revision):
    server, _ = make_server()
    kept: list[Context] = []

    @server.tool
    async def keep(ctx: Context) -> str:
        kept.append(ctx)
        return "kept"

    callbacks = ClientCallbacks(elicitation=lambda _: {"ok": True})
    async with world(server, "memory", revision, callbacks) as client:
        await client.call_tool("keep")
        with pytest.raises(RequestCancelledError):
            await kept[0].elicit("?", FORM)


@both_eras
async def test_a_question_of_a_task_outside_ends_with_the_request(revision):
    server, record = make_server()

    async def fill(params):
        await trio.sleep_forever()

    callbacks = ClientCallbacks(elicitation=fill)
    async with trio.open_nursery() as outside:

        @server.tool
        async def stray(ctx: Context) -> str:
            async def ask():
                with pytest.raises(RequestCancelledError):
                    await ctx.elicit("?", FORM)
                record.add("told")

            outside.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked(0.01)
            return "done"

        async with world(server, "memory", revision, callbacks) as client:
            if revision.stateless:
                # The round has ended, and with it the handler.
                with pytest.raises(RequestTimeoutError):
                    await client.call_tool("stray", timeout=1)
            else:
                assert await text_of(client, "stray") == "done"
            await record.until("told")


async def test_a_synchronous_tool_can_ask_from_its_thread():
    server, _ = make_server()

    @server.tool
    def ask(ctx: Context) -> str:
        return trio.from_thread.run(ctx.elicit, "?", FORM).action

    callbacks = ClientCallbacks(elicitation=lambda _: {"ok": True})
    for revision in (R2025_11_25, R2026_07_28):
        async with world(server, "memory", revision, callbacks) as client:
            assert await text_of(client, "ask") == "accept"
        # A thread that was left when its round ended is told so, and ends.
        with trio.fail_after(10):
            while server.threads.running:  # noqa: ASYNC110 - a thread sets no event of Trio's
                await trio.sleep(0.001)


# -- the rules of rounds -----------------------------------------------------------


def raw_caller(client: MCPClient):
    """Call without the client's own answers."""

    async def call(name: str, **more: Any) -> dict[str, Any]:
        with trio.fail_after(10):
            return await client.session.call("tools/call", {"name": name, "arguments": {}, **more})

    return call


def asking_server(record: Record | None = None, **options: Any) -> MCPServer:
    server, _ = make_server(**options)

    @server.tool
    async def ask(ctx: Context) -> str:
        if record is not None:
            await ctx.once("effect", record.add, "effect")
        name = await ctx.elicit("Name?", Place, key="name")
        color = await ctx.elicit("Color?", Place, key="color")
        return f"{name.content['city']} {color.content['city']}"

    return server


def accept(city: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"city": city}}


EVERYTHING = ClientCallbacks(
    elicitation=lambda _: {"city": "x"}, sampling=lambda _: said("x"), roots=list
)


async def test_a_state_works_on_another_replica_and_after_a_restart():
    record, key = Record(), b"k" * 32
    one = asking_server(record, state_keys=(key,))
    two = asking_server(record, state_keys=(b"n" * 32, key))
    async with world(one, "memory", R2026_07_28, EVERYTHING) as client:
        first = await raw_caller(client)("ask")
    async with world(two, "memory", R2026_07_28, EVERYTHING) as client:
        call = raw_caller(client)
        second = await call(
            "ask", requestState=first["requestState"], inputResponses={"name": accept("Ann")}
        )
        assert list(second["inputRequests"]) == ["color"]
        third = await call(
            "ask", requestState=second["requestState"], inputResponses={"color": accept("red")}
        )
    assert third["content"][0]["text"] == "Ann red"
    assert record.events == ["effect"]
    stranger = asking_server(record)
    async with world(stranger, "memory", R2026_07_28, EVERYTHING) as client:
        with pytest.raises(RemoteError) as caught:
            await raw_caller(client)("ask", requestState=first["requestState"])
        assert caught.value.rpc_code == -32602


@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_what_a_question_looks_like_on_the_wire(transport):
    async with world(asking_server(), transport, R2026_07_28, EVERYTHING) as client:
        result = await raw_caller(client)("ask")
    state = result.pop("requestState")
    meta = result.pop("_meta")
    assert isinstance(state, str)
    assert "io.modelcontextprotocol/serverInfo" in meta
    assert result == {
        "resultType": "input_required",
        "inputRequests": {
            "name": {
                "method": "elicitation/create",
                "params": {
                    "mode": "form",
                    "message": "Name?",
                    "requestedSchema": {
                        "type": "object",
                        "properties": {"city": {"type": "string"}},
                        "required": ["city"],
                    },
                },
            }
        },
    }


@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_bad_states_and_answers_are_refused_or_asked_again(transport):
    server = asking_server()
    async with world(server, transport, R2026_07_28, EVERYTHING) as client:
        call = raw_caller(client)
        state = (await call("ask"))["requestState"]
        for bad in (state + "-TAMPERED", "x", "", 7):
            with pytest.raises(RemoteError) as caught:
                await call("ask", requestState=bad, inputResponses={"name": accept("Ann")})
            assert caught.value.rpc_code == -32602
        with pytest.raises(RemoteError) as caught:
            await call("ask", requestState=state, more=1)
        assert caught.value.rpc_code == -32602
        for again in (None, {}, {"wrong": accept("x")}, {"name": None}):
            result = await call("ask", requestState=state, inputResponses=again)
            assert list(result["inputRequests"]) == ["name"]
        for wrong in ({"name": 12345}, {"name": {}}, {"name": accept(7)}, 7):
            with pytest.raises(RemoteError) as caught:
                await call("ask", inputResponses=wrong)
            assert caught.value.rpc_code == -32602
        result = await call("ask", inputResponses={"name": accept("A"), "color": accept("b")})
        assert result["content"][0]["text"] == "A b"


async def test_an_expired_state_is_refused():
    async with world(asking_server(state_ttl=-1), "memory", R2026_07_28, EVERYTHING) as client:
        call = raw_caller(client)
        state = (await call("ask"))["requestState"]
        with pytest.raises(RemoteError, match="expired") as caught:
            await call("ask", requestState=state)
        assert caught.value.rpc_code == -32602


async def test_rounds_are_bounded_on_both_sides():
    server, record = make_server(max_rounds=3)

    @server.tool
    async def endless(ctx: Context) -> str:
        while True:
            await ctx.elicit("More?", FORM)

    callbacks = ClientCallbacks(elicitation=lambda _: record.add("asked") or {"ok": True})
    async with world(server, "memory", R2026_07_28, callbacks) as client:
        with pytest.raises(RemoteError, match="3 rounds"):
            await client.call_tool("endless")
    assert len(record.events) == 3
    options = ClientOptions(revisions=(R2026_07_28,), max_rounds=2)
    async with MCPClient(server, callbacks=callbacks, options=options) as client:
        with pytest.raises(ProtocolError, match="2 rounds"):
            await client.call_tool("endless")


async def test_a_side_effect_is_let_finish_before_the_round_ends():
    server, record = make_server()

    @server.tool
    async def busy(ctx: Context) -> str:
        async def effect():
            record.add("begun")
            await record.release.wait()
            record.add("done")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.once, "effect", effect)
            nursery.start_soon(ctx.once, "effect", effect)
            await ctx.elicit("?", FORM)
        return "over"

    callbacks = ClientCallbacks(elicitation=lambda _: {"ok": True})
    async with world(server, "memory", R2026_07_28, callbacks) as client:
        async with trio.open_nursery() as nursery:

            async def call():
                assert await text_of(client, "busy") == "over"

            nursery.start_soon(call)
            await trio.testing.wait_all_tasks_blocked()
            assert record.events == ["begun"]
            record.release.set()
    assert record.events == ["begun", "done"]


async def test_a_side_effect_that_fails_is_run_again_and_one_without_json_is_refused():
    server, record = make_server()

    @server.tool
    async def fragile(ctx: Context) -> str:
        def effect():
            record.add("tried")
            if len(record.events) == 1:
                raise OopsError

        with pytest.raises(OopsError):
            await ctx.once("effect", effect)
        await ctx.once("effect", effect)
        with pytest.raises(ValueError, match="JSON"):
            await ctx.once("odd", object)
        return "ok"

    async with MCPClient(server) as client:
        assert await text_of(client, "fragile") == "ok"
    assert record.events == ["tried", "tried"]


async def test_a_failure_beside_a_question_is_answered_with_the_failure():
    server, _ = make_server()

    @server.tool
    async def broken(ctx: Context) -> str:
        try:
            await ctx.elicit("?", FORM)
        finally:
            raise OopsError("in the cleanup")

    async with world(server, "memory", R2026_07_28, EVERYTHING) as client:
        result = await client.call_tool("broken")
    assert result.is_error


async def test_cleanup_after_a_question_is_bounded(autojump_clock):
    server, _ = make_server(cleanup_timeout=1.0)

    @server.tool
    async def stuck(ctx: Context) -> str:
        try:
            await ctx.elicit("?", FORM, key="q")
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3600)
        return "?"

    async with world(server, "memory", R2026_07_28, EVERYTHING) as client:
        began = trio.current_time()
        result = await client.session.call("tools/call", {"name": "stuck"})
        assert list(result["inputRequests"]) == ["q"]
        assert trio.current_time() - began < 10


async def test_only_three_methods_are_answered_with_a_question():
    server, record = make_server()
    handlers = dict(server.handlers)

    async def nosy(context):
        try:
            await context.elicit("?", FORM)
        except MCPError:
            record.add("refused")
            raise

    server.add_tool(lambda: "x", name="x")
    server.handlers = {**handlers, "tools/list": nosy}
    async with world(server, "memory", R2026_07_28, EVERYTHING) as client:
        with pytest.raises(RemoteError):
            await client.list_tools()
    assert record.events == ["refused"]


# -- small rules -------------------------------------------------------------------


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Order:
    size: Size
    extras: list[Literal["milk", "sugar"]] = field(default_factory=list)
    note: str | None = None
    gift: Size = Size.SMALL


@both_eras
async def test_a_class_becomes_a_flat_form_with_defaults(revision):
    server, _ = make_server()

    @server.tool
    async def order(ctx: Context) -> str:
        return str((await ctx.elicit("What?", Order)).content)

    asked = []

    def fill(params):
        asked.append(params.requested_schema)
        return {**prefilled(params), "size": "l"}

    async with world(server, "memory", revision, ClientCallbacks(elicitation=fill)) as client:
        assert "Size.LARGE" in await text_of(client, "order")
    assert asked[0] == {
        "type": "object",
        "properties": {
            "size": {"type": "string", "title": "Size", "enum": ["l", "s"]},
            "extras": {
                "type": "array",
                "items": {"type": "string", "enum": ["milk", "sugar"]},
                "default": [],
            },
            "note": {"type": "string"},
            "gift": {"type": "string", "title": "Size", "enum": ["l", "s"], "default": "s"},
        },
        "required": ["size"],
    }


async def test_misuse_is_told_to_the_handler():
    server, record = make_server()

    @dataclass
    class Deep:
        person: Person

    @server.tool
    async def misuse(ctx: Context) -> str:
        for wrong in (Deep, {"type": "object"}, int):
            with pytest.raises(SchemaError):
                await ctx.elicit("?", wrong)
        for url in ("example.com", "ftp://example.com", "javascript:alert(1)"):
            with pytest.raises(ValueError, match="http"):
                await ctx.elicit_url("?", url)
        for key in ("", "x" * 129):
            with pytest.raises(ValueError, match="key"):
                await ctx.elicit("?", FORM, key=key)
        use = SamplingMessage(
            role="assistant", content=[ToolUseContent(id="a", name="b", input={})]
        )
        with pytest.raises(ValueError, match="tool use"):
            await ctx.sample([use], max_tokens=1)
        record.add("told")
        return "ok"

    async with world(server, "memory", R2026_07_28, EVERYTHING) as client:
        assert await text_of(client, "misuse") == "ok"


async def test_a_question_the_client_did_not_offer_is_not_answered():
    server, _ = make_server()

    @server.tool
    async def rude(ctx: Context) -> str:
        ctx.capabilities = {"sampling": {"tools": {}}, "elicitation": {"url": {}}, "roots": {}}
        if ctx.meta.get("what") == "roots":
            await ctx.list_roots()
        if ctx.meta.get("what") == "url":
            await ctx.elicit_url("?", "https://example.com")
        tool = Tool(name="x", input_schema={"type": "object"})
        await ctx.sample("?", max_tokens=1, tools=[tool])
        return "?"

    plain = ClientCallbacks(sampling=lambda _: said("x"), elicitation=lambda _: {"ok": True})
    for revision in (R2025_11_25, R2026_07_28):
        for what, code in (("roots", -32601), ("url", -32602), ("tools", -32602)):
            async with world(server, "memory", revision, plain) as client:
                with pytest.raises(MCPError) as caught:
                    await client.call("tools/call", {"name": "rude", "_meta": {"what": what}})
                assert caught.value.rpc_code == code


async def test_a_stateless_server_cannot_ask_live(autojump_clock, caplog):
    server, _ = make_server()

    @server.tool
    async def rude(ctx: Context) -> str:
        with trio.move_on_after(5) as scope:
            await ctx.exchange.ask("roots/list", {})
        return "not answered" if scope.cancelled_caught else "answered"

    async with world(server, "memory", R2026_07_28, EVERYTHING) as client:
        assert await text_of(client, "rude") == "not answered"
    assert "what the server said is not answered" in caplog.text


@pytest.mark.parametrize("revision", REVISIONS, ids=str)
def test_a_client_declares_what_it_has_callbacks_for(revision):
    assert ClientCallbacks().capabilities(revision) == {}
    rich = pages_exist(revision)
    everything = ClientCallbacks(
        sampling=lambda _: said("x"),
        sampling_tools=True,
        sampling_context=True,
        elicitation=lambda _: {},
        elicitation_url=lambda _: ElicitResult(action="accept"),
        roots=list,
    ).capabilities(revision)
    assert everything["sampling"] == ({"tools": {}, "context": {}} if rich else {})
    assert everything["roots"] == ({} if revision.stateless else {"listChanged": True})
    forms = {"form": {}, "url": {}} if rich else {}
    assert everything.get("elicitation") == (forms if forms_exist(revision) else None)
    pages = ClientCallbacks(elicitation_url=lambda _: ElicitResult(action="accept"))
    assert pages.capabilities(revision) == ({"elicitation": {"url": {}}} if rich else {})


async def test_a_revision_without_choices_of_several_is_not_shown_one():
    server, _ = make_server()

    @server.tool
    async def order(ctx: Context) -> str:
        return str((await ctx.elicit("What?", Order)).content)

    async with world(server, "memory", R2025_06_18, EVERYTHING) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("order")
        assert caught.value.rpc_code == InvalidParamsError.rpc_code


# -- a page without which nothing goes on -----------------------------------------------


@with_pages
async def test_a_page_that_is_required_ends_the_call_or_is_asked_for(transport, revision):
    server, visited = make_server()[0], []

    @server.tool
    async def report(ctx: Context) -> str:
        if not visited:
            answer = await ctx.require_url("Log in first", "https://example.com/login")
            return f"asked: {answer.action}"
        return "the report"

    callbacks = ClientCallbacks(elicitation_url=lambda _: ElicitResult(action="accept"))
    async with world(server, transport, revision, callbacks) as client:
        if METHODS["notifications/elicitation/complete"].exists_in(revision):
            with pytest.raises(RemoteError) as caught:
                await client.call_tool("report")
            assert caught.value.rpc_code == -32042
            (page,) = caught.value.data["elicitations"]
            assert page["url"] == "https://example.com/login"
            assert (page["mode"], page["message"]) == ("url", "Log in first")
            assert page["elicitationId"]
            visited.append(True)
            assert await text_of(client, "report") == "the report"
        else:
            assert await text_of(client, "report") == "asked: accept"


@everywhere
async def test_a_page_is_required_only_of_clients_that_open_pages(transport, revision):
    server, _ = make_server()

    @server.tool
    async def report(ctx: Context) -> None:
        await ctx.require_url("Log in first", "https://example.com/login")

    async with world(server, transport, revision) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("report")
        assert caught.value.rpc_code == (-32021 if revision.stateless else -32602)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("where", ["tool", "middleware"])
async def test_a_question_from_within_a_shield_is_a_question(where, wrapped):
    server = MCPServer("s")

    async def shielded(function, *args):
        results = []

        async def run():
            results.append(await function(*args))

        with trio.CancelScope(shield=True):
            if not wrapped:
                return await function(*args)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run)
        return results[0]

    @server.tool
    async def ask(ctx: Context) -> str:
        if where == "tool":
            await shielded(ctx.elicit, "Sure?", FORM)
        else:
            await ctx.elicit("Sure?", FORM)
        return "done"

    @server.middleware
    async def layer(context, call_next):
        if where == "middleware" and context.method == "tools/call":
            return await shielded(call_next, context)
        return await call_next(context)

    callbacks = ClientCallbacks(elicitation=lambda _: {"ok": True})
    async with world(server, "memory", R2026_07_28, callbacks) as client:
        assert (await client.call_tool("ask")).content[0].text == "done"


# -- found by somebody who tried -----------------------------------------------------------


@with_forms
async def test_one_key_for_two_questions_is_an_error_and_mixes_up_no_answers(transport, revision):
    server, _ = make_server()

    @server.tool
    async def delete(ctx: Context) -> str:
        refused = []

        async def one(path):
            try:
                await ctx.elicit(f"Delete {path}?", FORM, key="confirm")
            except ValueError as error:
                refused.append(str(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, "a")
            nursery.start_soon(one, "b")
        return " ".join(refused)

    callbacks = ClientCallbacks(elicitation=lambda _: {"ok": True})
    async with world(server, transport, revision, callbacks) as client:
        assert "'confirm' names two questions" in await text_of(client, "delete")


@with_forms
async def test_a_side_effect_may_ask_itself_and_still_happens_one_time(transport, revision):
    server, record = make_server()

    @server.tool
    async def order(ctx: Context) -> str:
        async def buy():
            answer = await ctx.elicit("Buy it?", FORM)
            record.add("bought")
            return answer.action

        async def other():
            await ctx.elicit("And a bag?", Place)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            bought = await ctx.once("buy", buy)
        await ctx.elicit("Rate us", FORM)
        return bought

    fill = {"And a bag?": {"city": "x"}}
    callbacks = ClientCallbacks(elicitation=lambda asked: fill.get(asked.message, {"ok": True}))
    async with world(server, transport, revision, callbacks) as client:
        assert await text_of(client, "order") == "accept"
    assert record.events == ["bought"]
