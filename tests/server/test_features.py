"""Prompts, resources, templates and completion, through a client in memory."""

import base64
import enum

import msgspec
import pytest
import trio
import trio.testing

from mcp_trio import ClientOptions, Context, MCPClient, MCPServer, RemoteError, ServerOptions
from mcp_trio.errors import (
    ConfigurationError,
    DuplicateRegistrationError,
    NotFoundError,
)
from mcp_trio.framing.uri_template import UriTemplateError
from mcp_trio.server.completions import Completions
from mcp_trio.server.signature import SignatureError
from mcp_trio.wire import REVISIONS, ImageContent, ResourceContents, TextContent
from mcp_trio.wire.completion import CompletedArgument, CompleteParams, Completion, Reference
from mcp_trio.wire.prompts import GetPromptResult, PromptMessage
from mcp_trio.wire.revisions import R2024_11_05, R2026_07_28

each = pytest.mark.parametrize("revision", REVISIONS, ids=str)


def speaking(server, revision):
    return MCPClient(server, options=ClientOptions(revisions=(revision,)))


class Tone(enum.Enum):
    FRIENDLY = "friendly"
    CURT = "curt"


def make_server(**options):
    server = MCPServer("s", options=ServerOptions(**options))

    @server.prompt(title="Greeting")
    async def greet(name: str, tone: Tone = Tone.FRIENDLY, times: int = 1) -> str:
        """Greet somebody.

        Args:
            name: whom.
            tone: how.
            times: how often.
        """
        return f"{tone.value} {name} {times + 0}"

    @server.prompt
    def picture(ctx: Context):
        """Look at it."""
        return [ImageContent(data="aa", mime_type="image/png"), f"asked by {ctx.method}"]

    @server.prompt
    def talk():
        message = PromptMessage(role="assistant", content=TextContent(text="hi"))
        return GetPromptResult(messages=[message], description="said")

    @server.resource("test://text", mime_type="text/markdown", size=3)
    def text() -> str:
        """A text."""
        return "abc"

    @server.resource("test://bytes", name="Some bytes")
    async def some_bytes() -> bytes:
        return b"\0\1"

    @server.resource("test://items/{item}{?full}")
    def item(item: int, full: bool = False) -> dict:
        """An item."""
        if item > 100:
            raise NotFoundError("no such item")
        return {"item": item, "full": full}

    @server.resource("test://many")
    def many():
        return [ResourceContents(uri="test://many/1", text="1")]

    @server.completion("name", prompt="greet")
    def names(typed, known):
        return [name for name in ("Ada", "Alan", "Grace") if name.startswith(typed)]

    @server.completion("item", resource="test://items/{item}{?full}")
    async def items(typed, known):
        return [str(number) for number in range(250)]

    @server.completion("tone", prompt="greet")
    def tones(typed, known):
        return Completion(values=[known.get("name", "?")], total=7)

    return server


@each
async def test_prompts_are_listed_and_filled(revision):
    async with speaking(make_server(), revision) as client:
        listed = await client.call("prompts/list")
        greet = listed["prompts"][0]
        assert greet["name"] == "greet"
        assert greet["description"] == "Greet somebody."
        assert greet["arguments"] == [
            {"name": "name", "description": "whom.", "required": True},
            {"name": "tone", "description": "how.", "required": False},
            {"name": "times", "description": "how often.", "required": False},
        ]
        assert ("title" in greet) is (revision.version_header)
        got = await client.call(
            "prompts/get",
            {"name": "greet", "arguments": {"name": "Ada", "tone": "curt", "times": "3"}},
        )
        assert got["messages"] == [
            {"role": "user", "content": {"type": "text", "text": "curt Ada 3"}}
        ]
        assert got["description"] == "Greet somebody."
        picture = await client.call("prompts/get", {"name": "picture"})
        assert [message["content"]["type"] for message in picture["messages"]] == ["image", "text"]
        assert picture["messages"][1]["content"]["text"] == "asked by prompts/get"
        talk = await client.call("prompts/get", {"name": "talk"})
        assert (talk["messages"][0]["role"], talk["description"]) == ("assistant", "said")


@each
@pytest.mark.parametrize(
    "params",
    [
        {"name": "nope"},
        {"name": "greet"},
        {"name": "greet", "arguments": {"name": "a", "other": "b"}},
        {"name": "greet", "arguments": {"name": "a", "tone": "loud"}},
        {"name": "greet", "arguments": {"name": "a", "times": "many"}},
        {"name": "greet", "arguments": {"name": 5}},
        {"name": "greet", "arguments": []},
        {},
    ],
)
async def test_a_prompt_that_cannot_be_filled_is_refused(revision, params):
    async with speaking(make_server(), revision) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call("prompts/get", params)
        assert caught.value.rpc_code == -32602
        assert "object has no attribute" not in str(caught.value)


@each
async def test_resources_are_listed_and_read(revision):
    async with speaking(make_server(), revision) as client:
        listed = (await client.call("resources/list"))["resources"]
        assert [resource["uri"] for resource in listed] == [
            "test://text",
            "test://bytes",
            "test://many",
        ]
        assert listed[0]["mimeType"] == "text/markdown"
        assert listed[0]["size"] == 3
        assert listed[1]["name"] == "Some bytes"
        templates = (await client.call("resources/templates/list"))["resourceTemplates"]
        assert [template["uriTemplate"] for template in templates] == ["test://items/{item}{?full}"]

        async def read(uri):
            return (await client.call("resources/read", {"uri": uri}))["contents"]

        assert await read("test://text") == [
            {"uri": "test://text", "mimeType": "text/markdown", "text": "abc"}
        ]
        (blob,) = await read("test://bytes")
        assert base64.b64decode(blob["blob"]) == b"\0\1"
        (item,) = await read("test://items/7?full=true")
        assert item == {
            "uri": "test://items/7?full=true",
            "mimeType": "application/json",
            "text": '{"item":7,"full":true}',
        }
        assert await read("test://many") == [{"uri": "test://many/1", "text": "1"}]


MISSING = ["test://nope", "test://items/x", "test://items/%2e%2e", "test://items/101", "", "no"]


@each
@pytest.mark.parametrize("uri", MISSING)
async def test_a_resource_that_is_not_there_has_the_code_of_its_era(revision, uri):
    async with speaking(make_server(), revision) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call("resources/read", {"uri": uri})
        assert caught.value.rpc_code == (-32602 if revision.stateless else -32002)
        assert caught.value.data["uri"] == uri


@each
async def test_what_a_function_says_of_a_missing_resource_is_kept(revision):
    server = make_server()

    @server.resource("test://shelf/{book}")
    async def book(book: str) -> str:
        async with trio.open_nursery():
            raise NotFoundError(f"there is no book {book!r}", data={"shelf": 3})

    async with speaking(server, revision) as client:
        with pytest.raises(RemoteError, match="there is no book 'x'") as caught:
            await client.call("resources/read", {"uri": "test://shelf/x"})
        assert caught.value.rpc_code == (-32602 if revision.stateless else -32002)
        assert caught.value.data.items() >= {"uri": "test://shelf/x", "shelf": 3}.items()


async def test_data_that_a_function_cannot_read_is_not_a_missing_resource():
    server = make_server()

    @server.resource("test://rows/{row}")
    def row(row: int) -> str:
        return msgspec.json.decode(b"1", type=str) * row

    async with speaking(server, R2026_07_28) as client:
        with pytest.raises(RemoteError, match="Internal error") as caught:
            await client.call("resources/read", {"uri": "test://rows/1"})
        assert caught.value.rpc_code == -32603


async def test_listings_carry_caching_hints_in_the_stateless_era():
    async with speaking(make_server(), R2026_07_28) as client:
        for method in ("prompts/list", "resources/list", "resources/templates/list"):
            answer = await client.call(method)
            assert answer["ttlMs"] > 0
            assert answer["cacheScope"] == "public"
        answer = await client.call("resources/read", {"uri": "test://text"})
        assert (answer["ttlMs"], answer["cacheScope"]) == (0, "private")


@each
async def test_arguments_are_completed(revision):
    async with speaking(make_server(), revision) as client:

        async def complete(ref, argument, value, **more):
            params = {"ref": ref, "argument": {"name": argument, "value": value}, **more}
            return (await client.call("completion/complete", params))["completion"]

        greet = {"type": "ref/prompt", "name": "greet"}
        template = {"type": "ref/resource", "uri": "test://items/{item}{?full}"}
        assert await complete(greet, "name", "A") == {
            "values": ["Ada", "Alan"],
            "total": 2,
            "hasMore": False,
        }
        many = await complete(template, "item", "")
        assert (len(many["values"]), many["total"], many["hasMore"]) == (100, 250, True)
        assert await complete(greet, "times", "1") == {"values": []}
        known = await complete(greet, "tone", "", context={"arguments": {"name": "Ada"}})
        assert known["values"] == ["Ada"]
        for wrong in (
            {"type": "ref/prompt", "name": "nope"},
            {"type": "ref/resource", "uri": "test://nope"},
            {"type": "ref/other", "name": "greet"},
            {"type": "ref/prompt"},
        ):
            with pytest.raises(RemoteError) as caught:
                await complete(wrong, "name", "")
            assert caught.value.rpc_code == -32602


@pytest.mark.parametrize("total", [None, 900])
async def test_suggestions_made_by_hand_are_cut_to_what_one_answer_holds(total):
    completions = Completions(lambda: None)
    made = Completion(values=[str(number) for number in range(101)], total=total)
    completions.add(lambda *_: made, "x", prompt="p", resource=None)
    params = CompleteParams(
        ref=Reference(type="ref/prompt", name="p"), argument=CompletedArgument(name="x", value="")
    )
    found = await completions.complete(params)
    assert (len(found.values), found.total, found.has_more) == (100, total or 101, True)


@each
async def test_only_what_is_registered_is_declared_and_answered(revision):
    server = MCPServer("s")
    async with speaking(server, revision) as client:
        offered = client.capabilities
        assert (offered.prompts, offered.resources, offered.completions) == (None, None, None)
        for method in ("prompts/list", "resources/list", "completion/complete", "tools/list"):
            with pytest.raises(RemoteError) as caught:
                await client.call(method)
            assert caught.value.rpc_code == -32601
    async with speaking(make_server(), revision) as client:
        assert client.capabilities.prompts == {"listChanged": True}
        assert client.capabilities.resources == {"subscribe": True, "listChanged": True}
        assert (client.capabilities.completions is not None) is (revision is not R2024_11_05)


async def test_suggestions_that_are_no_texts_are_a_failure():
    server = MCPServer("s")
    server.add_prompt(lambda x: x, name="p")
    server.add_completion("x", lambda typed, known: [1, 2], prompt="p")
    async with MCPClient(server) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call(
                "completion/complete",
                {
                    "ref": {"type": "ref/prompt", "name": "p"},
                    "argument": {"name": "x", "value": ""},
                },
            )
        assert caught.value.rpc_code == -32603


async def test_pages_of_one_kind_are_no_pages_of_another():
    server = make_server(page_size=1)
    async with MCPClient(server) as client:
        cursor = (await client.call("prompts/list"))["nextCursor"]
        second = await client.call("prompts/list", {"cursor": cursor})
        assert second["prompts"][0]["name"] == "picture"
        with pytest.raises(RemoteError):
            await client.call("resources/list", {"cursor": cursor})


@each
async def test_changes_of_every_list_are_told(revision):
    server = make_server()
    heard = []
    async with speaking(server, revision) as client:
        async with trio.open_nursery() as nursery:
            ready = trio.Event()

            async def hear():
                async with client.listen(prompts=True, resources=True) as changes:
                    ready.set()
                    while True:
                        heard.append(await anext(changes))

            nursery.start_soon(hear)
            await ready.wait()
            server.add_prompt(lambda: "x", name="another")
            await trio.testing.wait_all_tasks_blocked()
            server.resources.remove("test://text")
            await trio.testing.wait_all_tasks_blocked()
            server.templates.remove("test://items/{item}{?full}")
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert heard == [
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/list_changed",
    ]


@each
async def test_a_watched_resource_is_told_once_to_everybody_who_watches_it(revision):
    server = make_server()
    async with speaking(server, revision) as client, speaking(server, revision) as other:
        heard = []
        async with trio.open_nursery() as nursery:
            ready = trio.Event()

            async def hear():
                async with client.listen(resource="test://text") as changes:
                    ready.set()
                    while True:
                        heard.append(await anext(changes))

            nursery.start_soon(hear)
            await ready.wait()
            server.notify_resource_updated("test://text")
            server.notify_resource_updated("test://text")
            server.notify_resource_updated("test://bytes")
            await trio.testing.wait_all_tasks_blocked()
            assert heard == ["notifications/resources/updated test://text"]
            server.notify_resource_updated("test://text")
            await trio.testing.wait_all_tasks_blocked()
            assert len(heard) == 2
            nursery.cancel_scope.cancel()
        await other.ping()


async def test_watching_what_is_not_there_is_refused_and_unwatching_it_is_not():
    server = make_server()
    async with speaking(server, R2024_11_05) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call("resources/subscribe", {"uri": "test://nope"})
        assert caught.value.rpc_code == -32002
        assert await client.call("resources/unsubscribe", {"uri": "test://nope"}) == {}


async def test_an_exception_of_a_resource_is_masked():
    server = MCPServer("s")

    @server.resource("test://broken")
    def broken() -> str:
        raise RuntimeError("secret")

    async with MCPClient(server) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call("resources/read", {"uri": "test://broken"})
        assert caught.value.rpc_code == -32603
        assert "secret" not in str(caught.value)


def test_what_cannot_be_registered_says_why():
    server = make_server()
    with pytest.raises(DuplicateRegistrationError):
        server.add_prompt(lambda: "x", name="greet")
    with pytest.raises(DuplicateRegistrationError):
        server.add_resource("test://text", lambda: "x", name="x")
    with pytest.raises(DuplicateRegistrationError):
        server.completion("name", prompt="greet")(lambda typed, known: [])
    with pytest.raises(ConfigurationError):
        server.completion("name")(lambda typed, known: [])
    with pytest.raises(ConfigurationError, match="scheme"):
        server.add_resource("no-scheme", lambda: "x", name="x")
    with pytest.raises(SignatureError, match="variables"):
        server.add_resource("test://{a}", lambda b: "x", name="x")
    with pytest.raises(SignatureError, match="variables"):
        server.add_resource("test://a", lambda b: "x", name="x")
    with pytest.raises(UriTemplateError):
        server.add_resource("test://{a*}", lambda a: "x", name="x")
