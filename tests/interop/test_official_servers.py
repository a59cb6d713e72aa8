"""Our client on servers made with the official SDKs, over each transport, in both eras.

`servers/official.py` and `servers/official.mjs` offer the same. A world is an SDK, a transport
and what the client speaks: one era, or both, which has it find out.
"""

import base64
import itertools
import re

import attrs
import pytest
import trio

from mcp_trio.errors import (
    MCPError,
    ProtocolError,
    RemoteError,
    RequestTimeoutError,
    TransportError,
)
from mcp_trio.wire import AudioContent, EmbeddedResource, ImageContent, ResourceLink, TextContent
from mcp_trio.wire.elicitation import ElicitResult
from mcp_trio.wire.revisions import REVISIONS
from tests.interop.conftest import HERE
from tests.interop.our_server import PIXEL, SILENCE
from tests.interop.their_servers import (
    HANDSHAKE,
    STATELESS,
    Reached,
    User,
    children,
    failure,
    is_gone,
    members,
    reached,
    text,
)

pytestmark = pytest.mark.interop

SPOKEN = {"handshake": HANDSHAKE, "stateless": STATELESS, "probing": REVISIONS}
TOOLS = {
    "add", "ask_all", "ask_form", "ask_model", "ask_page", "ask_roots", "count", "grow",
    "hold", "refuse", "show", "speak", "tell", "touch", "wait_for",
}  # fmt: skip
WATCHED = "official://watched"
NUMBERS = itertools.count()


@attrs.frozen
class World:
    sdk: str
    transport: str
    spoken: str
    form: str = "sse"
    """Of the answers over HTTP, where the SDK leaves the choice to the server."""

    def __str__(self):
        form = "-json" if self.form == "json" else ""
        return f"{self.sdk}-{self.transport}{form}-{self.spoken}"

    @property
    def stateless(self):
        """Whether the two end up without a session. The transport `sse` is of the first era."""
        return self.spoken != "handshake" and self.transport != "sse"


ERAS = ("handshake", "stateless")
WORLDS = [
    *(
        World(*world)
        for world in itertools.product(("python", "typescript"), ("stdio", "http"), ERAS)
    ),
    World("python", "sse", "handshake"),
]
PROBES = [
    *(
        World(*world, "probing")
        for world in itertools.product(("python", "typescript"), ("stdio", "http"))
    ),
    World("python", "sse", "probing"),
    World("python", "http", "probing", "json"),
    World("typescript", "plain", "probing"),
]


def command_of(world, peer, servers):
    transport = "http" if world.transport == "plain" else world.transport
    if world.sdk == "python":
        form = [world.form] if transport == "http" else []
        return [peer, str(HERE / "servers" / "official.py"), transport, *form]
    return [*servers.command("official.mjs"), world.transport]


@pytest.fixture
async def official(request, peer, servers, running):
    """A server as the client will see it. Over HTTP the tests of a world share one."""
    world = request.param
    command = command_of(world, peer, servers)
    if world.transport == "stdio":
        async with reached(command, "stdio") as server:
            yield attrs.evolve(server, world=world)
    else:
        yield Reached(running(command, str(world)), world=world)


@pytest.fixture
async def own(request, peer, servers):
    """A server of the test's own, which it may change or kill."""
    world = request.param
    transport = "stdio" if world.transport == "stdio" else "http"
    async with reached(command_of(world, peer, servers), transport) as server:
        yield attrs.evolve(server, world=world)


def on(*worlds, server="official"):
    return pytest.mark.parametrize(server, worlds, indirect=True, ids=str)


everywhere = on(*WORLDS)


@pytest.fixture
def name():
    """What a moment of this test is called."""
    return f"moment {next(NUMBERS)}"


def spoken(official):
    return SPOKEN[official.world.spoken]


async def refusal(call):
    """Why a call was refused: with an error of the protocol, or with a result that is one."""
    try:
        return failure(await call)
    except (RemoteError, ProtocolError) as error:
        return error.message


# -- opening -----------------------------------------------------------------------------


@on(*PROBES)
async def test_probing_finds_the_newest_revision_and_the_tools_work(official):
    async with official.connected() as client:
        assert client.revision == (STATELESS if official.world.stateless else HANDSHAKE)[0]
        assert {tool.name async for tool in client.tools()} == TOOLS
        result = await client.call_tool("add", {"a": 2, "b": 40})
    assert result.structured_content == {"result": 42}


@everywhere
async def test_it_tells_of_itself(official):
    async with official.connected(revisions=spoken(official)) as client:
        assert client.revision == spoken(official)[0]
        assert client.server_info.name == "official"
        assert client.server_info.title == "Official"
        assert client.instructions == "Try everything."
        assert client.capabilities.completions == {}
        assert client.capabilities.tools is not None
        await client.ping()
        if official.world.stateless:
            found = await client.discover()
            assert STATELESS[0].date in found.supported_versions


@on(*(world for world in WORLDS if world.spoken == "handshake" and world.transport != "sse"))
@pytest.mark.parametrize("revision", HANDSHAKE, ids=str)
async def test_each_revision_of_the_handshake_era_is_spoken(official, revision):
    async with official.connected(revisions=[revision]) as client:
        assert client.revision == revision
        assert {tool.name async for tool in client.tools()} == TOOLS
        assert text(await client.call_tool("tell", {"moment": "hi"})) == "hi"


@on(World("python", "sse", "handshake"))
async def test_the_older_transport_has_no_stateless_era(official):
    with pytest.raises(MCPError):
        async with official.connected(revisions=STATELESS):
            pass


# -- listing and calling -----------------------------------------------------------------


@everywhere
async def test_lists_are_walked_page_by_page(official):
    async with official.connected(revisions=spoken(official)) as client:
        page = await client.list_resources()
        rest = await client.list_resources(page.next_cursor)
        resources = [resource async for resource in client.resources()]
        templates = [template async for template in client.resource_templates()]
        (prompt,) = [prompt async for prompt in client.prompts()]
        with pytest.raises(RemoteError) as stray:
            await client.list_resources("nowhere")

    assert [len(page.resources), len(rest.resources)] == [2, 1]
    assert rest.next_cursor is None
    assert [resource.name for resource in resources] == ["text", "pixel", "watched"]
    assert resources[0].title == "A text"
    assert [template.uri_template for template in templates] == ["official://people/{name}"]
    assert prompt.name == "greet"
    assert [(given.name, given.required) for given in prompt.arguments] == [
        ("name", True),
        ("tone", False),
    ]
    assert stray.value.rpc_code == -32602


@everywhere
async def test_answers_of_every_kind_arrive(official):
    async with official.connected(revisions=spoken(official)) as client:
        assert {tool.name async for tool in client.tools()} == TOOLS  # so that outputs are checked
        total = await client.call_tool("add", {"a": -1, "b": 2**40})
        words, image, sound, embedded, link = (await client.call_tool("show")).content

    assert total.structured_content == {"result": 2**40 - 1}
    assert words == TextContent(text="all kinds")
    assert isinstance(image, ImageContent)
    assert (base64.b64decode(image.data), image.mime_type) == (PIXEL, "image/png")
    assert isinstance(sound, AudioContent)
    assert (base64.b64decode(sound.data), sound.mime_type) == (SILENCE, "audio/wav")
    assert isinstance(embedded, EmbeddedResource)
    assert (embedded.resource.uri, embedded.resource.text) == ("official://inside", "inside")
    assert isinstance(link, ResourceLink)
    assert link.uri == "official://text"


@everywhere
async def test_what_goes_wrong_is_told_and_the_next_call_works(official):
    async with official.connected(revisions=spoken(official)) as client:
        assert "this tool never works" in failure(await client.call_tool("refuse"))
        wrong = failure(await client.call_tool("add", {"a": "two", "b": 40}))
        assert re.search("integer|number", wrong)
        assert "no_such_tool" in await refusal(client.call_tool("no_such_tool"))
        with pytest.raises(RemoteError) as method:
            await client.call("no/such/method")
        assert method.value.rpc_code == -32601
        with pytest.raises(RemoteError) as missing:
            await client.read_resource("official://nothing")
        assert missing.value.rpc_code in {-32602, -32002}
        again = await client.call_tool("add", {"a": 2, "b": 40})
    assert again.structured_content == {"result": 42}


@everywhere
async def test_progress_is_heard_while_the_call_runs(official, name):
    heard = []
    async with official.connected(revisions=spoken(official)) as client:

        async def note(value, total, message):
            heard.append((value, total, message))
            if value == 3:  # the call is not answered before this is heard
                await client.call_tool("tell", {"moment": name})

        asked = {"to": 3, "until": name}
        result = await client.call_tool("count", asked, on_progress=note)
    assert text(result) == "counted to 3"
    assert heard == [(step, 3, f"step {step}") for step in (1, 2, 3)]


@everywhere
async def test_a_call_that_is_given_up_is_cancelled_over_there(official, name):
    async with official.connected(revisions=spoken(official)) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "hold", {"name": name})
            began = await client.call_tool("wait_for", {"moment": f"{name} began"})
            nursery.cancel_scope.cancel()
        ended = await client.call_tool("wait_for", {"moment": f"{name} ended"})
        seen = client.session.statistics()
    assert "true" in text(began).lower()
    assert "true" in text(ended).lower()
    assert (seen.pending, seen.late_answers, seen.malformed) == (0, 0, 0)


@everywhere
async def test_a_call_that_takes_too_long_is_cancelled_over_there(official, name):
    async with official.connected(revisions=spoken(official)) as client:
        with pytest.raises(RequestTimeoutError):
            await client.call_tool("hold", {"name": name}, timeout=0.2)
        ended = await client.call_tool("wait_for", {"moment": f"{name} ended"})
    assert "true" in text(ended).lower()


@everywhere
async def test_log_lines_come_from_the_level_that_was_set(official):
    user, world = User(), official.world
    async with official.connected(user, ["roots"], revisions=spoken(official)) as client:
        if world.sdk == "python" and not world.stateless:
            # It sends all lines, and knows no levels.
            with pytest.raises(RemoteError) as refused:
                await client.set_log_level("warning")
            assert refused.value.rpc_code == -32601
            expected = ["debug", "warning", "error"]
        else:
            await client.set_log_level("warning")
            expected = ["warning", "error"]
        await client.call_tool("speak")
        lines = await user.wait_for(
            lambda: len(user.heard("log")) >= len(expected) and user.heard("log")
        )
    assert [line.level for line in lines] == expected
    assert (lines[-2].data, lines[-2].logger) == ("said", "official.speak")
    assert lines[-1].data == {"how": "shouted"}


# -- asking ------------------------------------------------------------------------------


@everywhere
async def test_the_user_fills_a_form_in_or_does_not(official):
    user = User()
    user.form = {"name": "Ada", "age": 36}
    answers = []
    async with official.connected(user, ["elicitation"], revisions=spoken(official)) as client:
        for form in (user.form, ElicitResult(action="decline"), ElicitResult(action="cancel")):
            user.form = form
            answer = await client.call_tool("ask_form", {"message": "Who are you?"})
            answers.append(answer.structured_content)

    message = "Who are you?"
    assert answers == [
        {"message": message, "action": "accept", "content": {"name": "Ada", "age": 36}},
        {"message": message, "action": "decline", "content": None},
        {"message": message, "action": "cancel", "content": None},
    ]
    assert [(kind, question.message) for kind, question in user.asked] == [("form", message)] * 3
    assert user.asked[0][1].requested_schema["properties"]["age"]["default"] == 30


@everywhere
async def test_the_user_is_sent_to_a_page(official):
    user = User()
    async with official.connected(user, ["elicitation_url"], revisions=spoken(official)) as client:
        went = text(await client.call_tool("ask_page"))
        user.page = "decline"
        stayed = text(await client.call_tool("ask_page"))
    assert (went, stayed) == ("accept", "decline")
    assert {question.url for _, question in user.asked} == {"https://example.com/sign-in"}
    assert {question.message for _, question in user.asked} == {"Please sign in"}


@everywhere
async def test_the_model_and_the_roots_are_asked(official):
    user = User()
    async with official.connected(
        user, ["sampling", "roots"], revisions=spoken(official)
    ) as client:
        said = text(await client.call_tool("ask_model", {"question": "Why?"}))
        roots = await client.call_tool("ask_roots")
    assert said == "Why? oracle-1: Re: Why?"
    assert roots.structured_content == {"result": ["data: file:///srv/data"]}
    (_, question), _ = user.asked
    assert question.max_tokens == 20


@everywhere
async def test_questions_of_several_rounds_are_answered_once_each(official):
    user = User()
    user.form = {"name": "Ada"}
    async with official.connected(user, revisions=spoken(official)) as client:
        result = await client.call_tool("ask_all")
    assert result.structured_content == {
        "user": "Ada",
        "model": "Re: Say hello",
        "roots": 1,
        "other": "accept",
    }
    assert sorted(kind for kind, _ in user.asked) == ["form", "form", "model", "roots"]
    forms = [question.message for kind, question in user.asked if kind == "form"]
    assert forms == ["Who are you?", "Who is with Ada?"]


@everywhere
async def test_a_question_that_was_not_declared_fails_that_call_only(official):
    async with official.connected(revisions=spoken(official)) as client:
        assert await refusal(client.call_tool("ask_form", {"message": "Who are you?"}))
        again = await client.call_tool("add", {"a": 2, "b": 40})
    assert again.structured_content == {"result": 42}


@everywhere
async def test_a_call_that_is_given_up_while_the_user_is_asked_cancels_the_question(official):
    user = User()
    asked, over = trio.Event(), trio.Event()

    async def never(_params):
        asked.set()
        try:
            await trio.sleep_forever()
        finally:
            over.set()

    user._fill_in = never
    async with official.connected(user, ["elicitation"], revisions=spoken(official)) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "ask_form", {"message": "Who are you?"})
            await asked.wait()
            nursery.cancel_scope.cancel()
        again = await client.call_tool("add", {"a": 2, "b": 40})
        if official.world.stateless:
            assert over.is_set()
    assert over.is_set()
    assert again.structured_content == {"result": 42}


# -- reading -----------------------------------------------------------------------------


@everywhere
async def test_resources_are_read(official):
    async with official.connected(revisions=spoken(official)) as client:
        (words,) = (await client.read_resource("official://text")).contents
        (picture,) = (await client.read_resource("official://pixel")).contents
        (person,) = (await client.read_resource("official://people/ada")).contents
    assert (words.text, words.mime_type) == ("plain and simple", "text/plain")
    assert base64.b64decode(picture.blob) == PIXEL
    assert (person.uri, person.text) == ("official://people/ada", "This is ada.")


@on(*WORLDS, server="own")
async def test_changes_of_a_watched_resource_and_of_the_tools_are_heard(own):
    user = User()
    async with own.connected(user, ["roots"], revisions=spoken(own)) as client:
        before = {tool.name async for tool in client.tools()}
        async with client.listen(tools=True, resource=WATCHED) as changes:
            await client.call_tool("touch", {"uri": "official://other"})
            await client.call_tool("touch", {"uri": WATCHED})
            assert await anext(changes) == f"notifications/resources/updated {WATCHED}"
            (contents,) = (await client.read_resource(WATCHED)).contents
            await client.call_tool("touch", {"uri": WATCHED})
            assert await anext(changes) == f"notifications/resources/updated {WATCHED}"
            await client.call_tool("grow")
            assert await anext(changes) == "notifications/tools/list_changed"
        # The one of `grow` comes after this one would, if it came.
        await client.call_tool("touch", {"uri": WATCHED})
        after = {tool.name async for tool in client.tools()}
        grown = text(await client.call_tool("grown"))
        await user.wait_for(lambda: user.heard("list"))
    assert contents.text == "touched 1 times"
    assert set(user.heard("resource")) == {WATCHED}
    assert len(user.heard("resource")) == 2
    assert after - before == {"grown"}
    assert grown == "grown"


@everywhere
async def test_prompts_are_filled_in_and_completed(official):
    async with official.connected(revisions=spoken(official)) as client:
        filled = await client.get_prompt("greet", {"name": "Ada", "tone": "formal"})
        partly = await client.get_prompt("greet", {"name": "Ada"})
        for name, arguments in [("no_such_prompt", {}), ("greet", {})]:
            with pytest.raises(RemoteError) as refused:
                await client.get_prompt(name, arguments)
            assert refused.value.rpc_code in {-32602, -32603, 0}  # what Python raises has none
        people = await client.complete("name", "a", prompt="greet")
        anybody = await client.complete("tone", "f", prompt="greet")
        ada = await client.complete("tone", "f", prompt="greet", known={"name": "ada"})
        place = await client.complete("name", "g", resource="official://people/{name}")
    (message,) = filled.messages
    assert message.role == "user"
    assert message.content.text == "Give Ada a formal greeting."
    assert partly.messages[0].content.text == "Give Ada a friendly greeting."
    assert people.values == ["ada", "alan"]
    assert anybody.values == ["friendly", "formal", "frank"]
    assert ada.values == ["friendly", "frank"]
    assert place.values == ["grace"]


# -- ending ------------------------------------------------------------------------------


@on(*(world for world in WORLDS if world.transport == "stdio"))
async def test_nothing_is_left_of_the_program_though_a_call_ran(official, name):
    before = children()
    async with official.connected(revisions=spoken(official)) as client:
        (pid,) = children() - before
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "hold", {"name": name})
            await client.call_tool("wait_for", {"moment": f"{name} began"})
            nursery.cancel_scope.cancel()
    assert members(pid) == set()
    assert children() == before


@on(*(world for world in WORLDS if world.transport == "http" and world.spoken == "handshake"))
async def test_the_session_is_deleted(official):
    async with official.connected(revisions=HANDSHAKE) as client:
        session = client.session.transport.session_id
        assert not await is_gone(official.target, session)
    assert await is_gone(official.target, session)


@on(*(world for world in WORLDS if world.transport == "http"), server="own")
async def test_a_server_that_dies_fails_the_call_and_the_block_is_left(own, name):
    async with own.connected(revisions=spoken(own)) as client:

        async def kill():
            await client.call_tool("wait_for", {"moment": f"{name} began"})
            own.program.process.kill()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            with pytest.raises(TransportError):
                await client.call_tool("hold", {"name": name})
        with pytest.raises(MCPError):
            await client.call_tool("add", {"a": 1, "b": 2}, timeout=10)
