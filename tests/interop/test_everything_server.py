"""Our client on the server that shows everything, of npm, over each transport it has.

It speaks the handshake era only, which is tested too, so that another version of it that speaks
more is noticed. Everything it can do is done to it here, as a user would.
"""

import base64
import gzip
import json
import os
import re
import signal

import pytest
import trio

from mcp_trio.errors import MCPError, RemoteError, TransportError, VersionMismatchError
from mcp_trio.wire import ImageContent, ResourceLink
from mcp_trio.wire.elicitation import ElicitResult
from mcp_trio.wire.roots import Root
from tests.interop.their_servers import (
    HANDSHAKE,
    STATELESS,
    User,
    children,
    failure,
    is_gone,
    members,
    reached,
    text,
    texts,
)

pytestmark = pytest.mark.interop

SCRIPT = "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
MODES = {"stdio": "stdio", "http": "streamableHttp", "sse": "sse"}
ALWAYS = [
    "echo",
    "get-annotated-message",
    "get-env",
    "get-resource-links",
    "get-resource-reference",
    "get-structured-content",
    "get-sum",
    "get-tiny-image",
    "gzip-file-as-resource",
    "toggle-simulated-logging",
    "toggle-subscriber-updates",
    "trigger-long-running-operation",
]
RESEARCH = "simulate-research-query"
"""Offered to everybody once the handshake is over; it can be called as a task only."""
TIED = {
    "roots": "get-roots-list",
    "elicitation": "trigger-elicitation-request",
    "elicitation_url": "trigger-url-elicitation",
    "sampling": "trigger-sampling-request",
}
"""The tools that are there only for clients that declare something."""
DOCUMENTS = "demo://resource/static/document/"
TEXT_3 = "demo://resource/dynamic/text/3"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
async def everything(servers, transport):
    command = [*servers.command(SCRIPT), MODES[transport]]
    async with reached(command, transport, preload=servers.home / "loopback.mjs") as server:
        yield server


everywhere = pytest.mark.parametrize("transport", MODES)


@everywhere
async def test_it_speaks_the_handshake_era_and_tells_of_itself(everything):
    async with everything.connected() as client:
        assert client.revision == HANDSHAKE[0]
        assert client.server_info.name == "mcp-servers/everything"
        assert client.server_info.title == "Everything Reference Server"
        assert client.instructions.startswith("# Everything Server")
        offers = client.capabilities
        assert offers.tools == offers.prompts == {"listChanged": True}
        assert offers.resources == {"subscribe": True, "listChanged": True}
        assert offers.logging == offers.completions == {}
        await client.ping()


@everywhere
async def test_it_speaks_no_stateless_revision(everything, transport):
    # Where there is nothing at all at the place of the newer transport, the URL may be wrong.
    expected = TransportError if transport == "sse" else VersionMismatchError
    with pytest.raises(expected):
        async with everything.connected(revisions=STATELESS):
            pass


@everywhere
@pytest.mark.parametrize("revision", HANDSHAKE, ids=str)
async def test_a_revision_that_is_asked_for_is_agreed_on(everything, revision):
    async with everything.connected(revisions=[revision]) as client:
        assert client.revision == revision
        assert text(await client.call_tool("echo", {"message": "hi"})) == "Echo: hi"
        result = await client.call_tool("get-structured-content", {"location": "Chicago"})
        assert '"humidity":82' in text(result)


@everywhere
async def test_the_lists_depend_on_what_the_client_can_do(everything):
    user = User()
    async with everything.connected() as client:
        assert [tool.name async for tool in client.tools()] == [*ALWAYS, RESEARCH]
    async with everything.connected(user) as client:
        tools = [tool async for tool in client.tools()]
        prompts = [prompt async for prompt in client.prompts()]
        resources = [resource async for resource in client.resources()]
        templates = [template async for template in client.resource_templates()]

    assert [tool.name for tool in tools] == [*ALWAYS, *_tied_in_order(), RESEARCH]
    sum_tool = next(tool for tool in tools if tool.name == "get-sum")
    assert sum_tool.title == "Get Sum Tool"
    assert sum_tool.annotations.read_only_hint is True
    assert sum_tool.annotations.open_world_hint is False
    assert sorted(sum_tool.input_schema["properties"]) == ["a", "b"]
    assert [prompt.name for prompt in prompts] == [
        "simple-prompt",
        "args-prompt",
        "completable-prompt",
        "resource-prompt",
    ]
    wanted = [(argument.name, argument.required) for argument in prompts[1].arguments]
    assert wanted == [("city", True), ("state", False)]
    assert f"{DOCUMENTS}features.md" in [resource.uri for resource in resources]
    assert {resource.mime_type for resource in resources} == {"text/markdown"}
    assert [template.uri_template for template in templates] == [
        "demo://resource/dynamic/text/{resourceId}",
        "demo://resource/dynamic/blob/{resourceId}",
    ]


def _tied_in_order():
    return [TIED[name] for name in ("roots", "elicitation", "elicitation_url", "sampling")]


@everywhere
@pytest.mark.parametrize("offer", TIED)
async def test_a_client_is_taken_at_its_word(everything, offer):
    async with everything.connected(User(), [offer]) as client:
        names = {tool.name async for tool in client.tools()}
    forms = {TIED["elicitation"]} if offer == "elicitation_url" else set()
    assert names - set(ALWAYS) - {RESEARCH} == {TIED[offer]} | forms


# -- calling -----------------------------------------------------------------------------


@everywhere
async def test_every_tool_that_only_answers_is_called(everything):
    async with everything.connected() as client:
        listed = [tool.name async for tool in client.tools()]  # so that outputs are checked
        assert listed[: len(ALWAYS)] == ALWAYS

        for message in ["grüß dich", "日本", "", "x" * 300_000, "line\nbreak \u2028 \0"]:
            assert text(await client.call_tool("echo", {"message": message})) == f"Echo: {message}"
        total = await client.call_tool("get-sum", {"a": 0.5, "b": -3})
        assert text(total) == "The sum of 0.5 and -3 is -2.5."

        before, picture, after = (await client.call_tool("get-tiny-image")).content
        assert before.text == "Here's the image you requested:"
        assert after.text == "The image above is the MCP logo."
        assert isinstance(picture, ImageContent)
        assert picture.mime_type == "image/png"
        assert base64.b64decode(picture.data).startswith(PNG)

        asked = {"messageType": "error", "includeImage": True}
        words, picture = (await client.call_tool("get-annotated-message", asked)).content
        assert words.text == "Error: Operation failed"
        assert words.annotations.priority == 1
        assert words.annotations.audience == ["user", "assistant"]
        assert picture.annotations.priority == 0.5
        assert picture.annotations.audience == ["user"]

        _, *links = (await client.call_tool("get-resource-links", {"count": 4})).content
        assert [type(link) for link in links] == [ResourceLink] * 4
        for link in links:
            (contents,) = (await client.read_resource(link.uri)).contents
            assert contents.uri == link.uri
            assert contents.mime_type == link.mime_type

        asked = {"resourceType": "Blob", "resourceId": 12}
        _, embedded, _ = (await client.call_tool("get-resource-reference", asked)).content
        assert embedded.resource.uri == "demo://resource/dynamic/blob/12"
        assert base64.b64decode(embedded.resource.blob).startswith(b"Resource 12: ")

        for place, degrees in [("New York", 33), ("Chicago", 36), ("Los Angeles", 73)]:
            weather = await client.call_tool("get-structured-content", {"location": place})
            assert weather.structured_content["temperature"] == degrees
            assert json.loads(text(weather)) == weather.structured_content


@everywhere
async def test_a_resource_that_a_tool_made_is_listed_and_read(everything):
    user = User()
    data = "data:text/plain;base64," + base64.b64encode(b"squeeze me " * 100).decode()
    async with everything.connected(user) as client:
        before = [resource.uri async for resource in client.resources()]
        made = await client.call_tool("gzip-file-as-resource", {"name": "n.gz", "data": data})
        (link,) = made.content
        after = [resource.uri async for resource in client.resources()]
        (contents,) = (await client.read_resource(link.uri)).contents
        asked = {"name": "n.gz", "data": data, "outputType": "resource"}
        (embedded,) = (await client.call_tool("gzip-file-as-resource", asked)).content
        await user.wait_for(lambda: "resources" in user.heard("list"))

    assert set(after) - set(before) == {link.uri}
    assert contents.mime_type == embedded.resource.mime_type == "application/gzip"
    for blob in (contents.blob, embedded.resource.blob):
        assert gzip.decompress(base64.b64decode(blob)) == b"squeeze me " * 100


async def test_a_program_sees_the_variables_that_it_was_given_and_no_secrets(servers, monkeypatch):
    monkeypatch.setenv("INTEROP_SECRET", "hush")
    command = [*servers.command(SCRIPT), "stdio"]
    async with reached(command, "stdio", env={"INTEROP_GIVEN": "here"}) as server:
        async with server.connected() as client:
            seen = json.loads(text(await client.call_tool("get-env")))
    assert seen["INTEROP_GIVEN"] == "here"
    assert seen["PATH"] == os.environ["PATH"]
    assert "INTEROP_SECRET" not in seen


@everywhere
async def test_what_goes_wrong_is_told_and_the_session_goes_on(everything):
    async with everything.connected() as client:
        unknown = await client.call_tool("no-such-tool")
        assert "no-such-tool not found" in failure(unknown)
        wrong = await client.call_tool("get-sum", {"a": "one", "b": 2})
        assert "expected number, received string" in failure(wrong)
        missing = await client.call_tool("echo")
        assert "message" in failure(missing)
        refused = await client.call_tool("gzip-file-as-resource", {"data": "ftp://example.com/x"})
        assert "Unsupported URL protocol" in failure(refused)
        as_task = await client.call_tool(RESEARCH, {"topic": "cancellation"})
        assert "requires task augmentation" in failure(as_task)
        with pytest.raises(RemoteError) as method:
            await client.call("no/such/method")
        assert method.value.rpc_code == -32601
        with pytest.raises(RemoteError) as cursor:
            await client.call("tools/call", {"name": ["not", "text"]})
        assert cursor.value.rpc_code in {-32602, -32603}
        assert text(await client.call_tool("echo", {"message": "still here"})) == "Echo: still here"


@everywhere
async def test_progress_is_heard_step_by_step_before_the_answer(everything):
    heard = []

    def note(value, total, _message):
        heard.append((value, total))

    async with everything.connected() as client:
        asked = {"duration": 0.2, "steps": 4}
        result = await client.call_tool(
            "trigger-long-running-operation", asked, on_progress=note, timeout=30
        )
    assert text(result) == "Long running operation completed. Duration: 0.2 seconds, Steps: 4."
    assert heard == [(1, 4), (2, 4), (3, 4), (4, 4)]


@everywhere
async def test_a_call_that_is_given_up_is_not_answered_and_the_session_goes_on(everything):
    async with everything.connected() as client:
        with trio.CancelScope() as given_up:
            asked = {"duration": 0.4, "steps": 2}
            await client.call_tool(
                "trigger-long-running-operation",
                asked,
                on_progress=lambda *_: given_up.cancel(),
            )
        assert given_up.cancelled_caught
        # This one ends after that one would have: the timers of a server go off in order. Had it
        # not been told, its answer were there by then.
        longer = await client.call_tool("trigger-long-running-operation", {"duration": 0.5})
        seen = client.session.statistics()

    assert "Duration: 0.5" in text(longer)
    assert (seen.pending, seen.late_answers, seen.malformed) == (0, 0, 0)


@everywhere
async def test_calls_at_the_same_time_do_not_wait_for_each_other(everything):
    answers = {}

    async def one(number, duration):
        asked = {"duration": duration, "steps": 1}
        answers[number] = text(await client.call_tool("trigger-long-running-operation", asked))

    async with everything.connected() as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, 0, 0.4)
            for number in range(1, 20):
                nursery.start_soon(one, number, 0.01)
    assert len(answers) == 20
    assert list(answers)[-1] == 0


# -- asking ------------------------------------------------------------------------------


@everywhere
async def test_the_model_is_asked(everything):
    user = User()
    async with everything.connected(user, ["sampling"]) as client:
        asked = {"prompt": "Are you there?", "maxTokens": 17}
        said = text(await client.call_tool(TIED["sampling"], asked))

    ((_, question),) = user.asked
    assert question.max_tokens == 17
    assert question.system_prompt == "You are a helpful test server."
    assert json.loads(said.partition("\n")[2]) == {
        "model": "oracle-1",
        "role": "assistant",
        "content": {
            "type": "text",
            "text": "Re: Resource trigger-sampling-request context: Are you there?",
        },
    }


@everywhere
async def test_the_user_fills_a_form_in_or_does_not(everything):
    user = User()
    answers = []
    async with everything.connected(user, ["elicitation"]) as client:
        accepted = texts(await client.call_tool(TIED["elicitation"]))
        for action in ("decline", "cancel"):
            user.form = ElicitResult(action=action)
            answers.append(texts(await client.call_tool(TIED["elicitation"]))[0])
        user.form = {"name": "Ada", "integer": 1000}  # which the form does not allow
        unfit = failure(await client.call_tool(TIED["elicitation"]))

    assert [kind for kind, _ in user.asked] == ["form"] * 4
    assert user.asked[0][1].requested_schema["required"] == ["name"]
    assert accepted[0] == "✅ User provided the requested information!"
    assert "- Name: Ada\n- Agreed to terms: true\n- Favorite Integer: 7" in accepted[1]
    assert answers == [
        "❌ User declined to provide the requested information.",
        "⚠️ User cancelled the elicitation dialog.",
    ]
    assert "1000" not in unfit


@everywhere
async def test_the_user_is_sent_to_a_page_or_told_to_go_there_first(everything):
    user = User()
    url = "https://example.com/sign-in?next=%2F"
    async with everything.connected(user, ["elicitation_url"]) as client:
        visit = {"url": url, "message": "Please sign in", "elicitationId": "visit-1"}
        went = texts(await client.call_tool(TIED["elicitation_url"], visit))
        user.page = "decline"
        stayed = texts(await client.call_tool(TIED["elicitation_url"], visit))
        with pytest.raises(RemoteError) as first:
            await client.call_tool(TIED["elicitation_url"], {**visit, "errorPath": True})
        user.page = "accept"
        again = texts(await client.call_tool(TIED["elicitation_url"], {**visit, "errorPath": True}))

    pages = [question for _, question in user.asked]
    assert {(page.url, page.message) for page in pages} == {(url, "Please sign in")}
    assert pages[0].elicitation_id == "visit-1"
    assert went[0].startswith("✅ User completed the URL elicitation flow.")
    assert stayed[0].startswith("❌ User declined to open the URL")
    assert first.value.rpc_code == -32042
    (needed,) = first.value.data["elicitations"]
    assert needed["url"] == "https://modelcontextprotocol.io"
    assert again[0] == went[0]


@everywhere
async def test_the_roots_are_asked_for_and_asked_for_again_when_they_change(everything):
    user = User()

    def told_of(count):
        return [line for line in user.heard("log") if f"{count} root(s)" in str(line.data)]

    async with everything.connected(user, ["roots"]) as client:
        before = text(await client.call_tool(TIED["roots"]))
        user.roots = [
            Root(uri="file:///srv/a", name="first"),
            Root(uri="file:///srv/b%20c"),
        ]
        await client.notify_roots_changed()
        await user.wait_for(lambda: told_of(2))
        after = text(await client.call_tool(TIED["roots"]))

    assert "Current MCP Roots (1 total):\n\n1. data\n   URI: file:///srv/data\n" in before
    assert "1. first\n   URI: file:///srv/a\n" in after
    assert "2. Unnamed Root\n   URI: file:///srv/b%20c\n" in after


# -- reading -----------------------------------------------------------------------------


@everywhere
async def test_resources_are_read(everything):
    async with everything.connected() as client:
        for resource in [item async for item in client.resources()]:
            (contents,) = (await client.read_resource(resource.uri)).contents
            assert contents.mime_type == "text/markdown"
            assert contents.text.startswith("# Everything Server")
        (words,) = (await client.read_resource(TEXT_3)).contents
        (bytes_,) = (await client.read_resource("demo://resource/dynamic/blob/4")).contents
        for uri in ("demo://resource/nothing", "demo://resource/dynamic/text/three"):
            with pytest.raises(RemoteError, match=re.escape(uri)):
                await client.read_resource(uri)

    assert words.text.startswith("Resource 3: This is a plaintext resource created at ")
    assert base64.b64decode(bytes_.blob).startswith(b"Resource 4: This is a base64 blob")


@everywhere
async def test_updates_come_for_what_is_subscribed_to_and_for_nothing_else(everything):
    user = User()
    other = "demo://resource/dynamic/text/4"
    async with everything.connected(user) as client:
        async with client.listen(resource=TEXT_3) as changes:
            await client.subscribe(other)
            await client.unsubscribe(other)
            await client.call_tool("toggle-subscriber-updates")
            change = await anext(changes)
            await user.wait_for(lambda: user.heard("resource"))
        await client.call_tool("toggle-subscriber-updates")

    assert change == f"notifications/resources/updated {TEXT_3}"
    assert set(user.heard("resource")) == {TEXT_3}
    said = [
        line.data for line in user.heard("log") if "ubscribe Resource request" in str(line.data)
    ]
    assert [other in line for line in said] == [False, True, True, False]


@everywhere
async def test_log_lines_come_from_the_level_that_was_set(everything):
    user = User()
    async with everything.connected(user) as client:
        await client.set_log_level("error")
        await client.subscribe(TEXT_3)  # which it tells at the level `info`
        await client.set_log_level("debug")
        # The first line of its random levels comes at once.
        await client.call_tool("toggle-simulated-logging")
        await user.wait_for(lambda: user.heard("log"))
        await client.call_tool("toggle-simulated-logging")
        await client.unsubscribe(TEXT_3)
        lines = await user.wait_for(
            lambda: [line for line in user.heard("log") if "Unsubscribe" in str(line.data)]
        )

    assert [line.level for line in lines] == ["info"]
    assert not [line for line in user.heard("log") if "Received Subscribe" in str(line.data)]
    assert re.match(r"\w+[- ]level[- ]message", user.heard("log")[0].data)


@everywhere
async def test_prompts_are_filled_in_and_completed(everything):
    async with everything.connected() as client:
        simple = await client.get_prompt("simple-prompt")
        filled = await client.get_prompt("args-prompt", {"city": "Rome", "state": "Lazio"})
        partly = await client.get_prompt("args-prompt", {"city": "Rome"})
        cited = await client.get_prompt(
            "resource-prompt", {"resourceType": "Text", "resourceId": "5"}
        )
        for name, arguments in [("no-such-prompt", {}), ("args-prompt", {})]:
            with pytest.raises(RemoteError) as refused:
                await client.get_prompt(name, arguments)
            assert refused.value.rpc_code == -32602
        prompt = "completable-prompt"
        departments = await client.complete("department", "", prompt=prompt)
        sales = await client.complete("name", "E", prompt=prompt, known={"department": "Sales"})
        nobody = await client.complete("name", "E", prompt=prompt)
        uri = "demo://resource/dynamic/text/{resourceId}"
        number = await client.complete("resourceId", "12", resource=uri)
        letters = await client.complete("resourceId", "twelve", resource=uri)

    assert simple.messages[0].content.text == "This is a simple prompt without arguments."
    assert filled.messages[0].content.text == "What's weather in Rome, Lazio?"
    assert partly.messages[0].content.text == "What's weather in Rome?"
    assert cited.messages[1].content.resource.uri == "demo://resource/dynamic/text/5"
    assert departments.values == ["Engineering", "Sales", "Marketing", "Support"]
    assert (sales.values, nobody.values) == (["Eve"], [])
    assert (number.values, letters.values) == (["12"], [])


# -- ending ------------------------------------------------------------------------------


async def test_nothing_is_left_of_the_program(servers):
    command = [*servers.command(SCRIPT), "stdio"]
    before = children()
    async with reached(command, "stdio") as server:
        async with server.connected() as client:
            (pid,) = children() - before
            # A timer of its own keeps it alive after its input has ended: it has to be told more.
            await client.call_tool("toggle-simulated-logging")
            assert members(pid)
    assert members(pid) == set()
    assert children() == before


async def test_nothing_is_left_of_the_program_after_a_cancelled_call(servers):
    command = [*servers.command(SCRIPT), "stdio"]
    before = children()
    async with reached(command, "stdio") as server:
        with trio.CancelScope() as scope:
            async with server.connected() as client:
                (pid,) = children() - before
                asked = {"duration": 60, "steps": 600}
                await client.call_tool(
                    "trigger-long-running-operation", asked, on_progress=lambda *_: scope.cancel()
                )
    assert scope.cancelled_caught
    assert members(pid) == set()
    assert children() == before


@pytest.mark.parametrize("transport", ["http"])
async def test_the_session_is_deleted(everything):
    async with everything.connected() as client:
        said = text(await client.call_tool("toggle-simulated-logging"))
        session = re.search(r"for session (\S+)", said)[1]
        assert not await is_gone(everything.target, session)
    assert await is_gone(everything.target, session)
    async with everything.connected() as client:  # another one may come
        await client.ping()


@pytest.mark.parametrize("transport", ["sse"])
async def test_the_stream_is_closed(everything):
    async with everything.connected() as client:
        said = text(await client.call_tool("toggle-simulated-logging"))
        session = re.search(r"for session (\S+)", said)[1]
    line = await everything.program.wait_for("Client Disconnected: ")
    assert session in line


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_server_that_dies_fails_the_call_and_the_block_is_left(everything):
    async with everything.connected() as client:
        with pytest.raises(TransportError):
            await client.call_tool(
                "trigger-long-running-operation",
                {"duration": 60, "steps": 600},
                on_progress=lambda *_: everything.program.process.kill(),
            )
        with pytest.raises(MCPError):
            await client.call_tool("echo", {"message": "anybody?"}, timeout=10)


async def test_a_program_that_was_killed_is_started_again_as_it_was(servers):
    user, before = User(), children()
    command = [*servers.command(SCRIPT), "stdio"]
    async with reached(command, "stdio", restarts=1) as server:
        async with server.connected(user) as client:
            await client.set_log_level("debug")
            await client.subscribe(TEXT_3)
            (first,) = children() - before
            with pytest.raises(TransportError):
                await client.call_tool(
                    "trigger-long-running-operation",
                    {"duration": 60, "steps": 600},
                    on_progress=lambda *_: os.killpg(first, signal.SIGKILL),
                )
            answer = text(await client.call_tool("echo", {"message": "again"}))
            (second,) = children() - before
            await client.call_tool("toggle-subscriber-updates")
            await user.wait_for(lambda: user.heard("resource"))
    assert answer == "Echo: again"
    assert first != second
    assert user.heard("resource") == [TEXT_3]
    assert members(first) == members(second) == set()
