"""Every example is run here, and does what its page and its comments say."""

import json
import os
import sys
import tomllib
from pathlib import Path

import pytest
import trio
import trio.testing

from mcp_trio import ClientCallbacks, ClientOptions, Command, MCPClient, RemoteError
from mcp_trio.client.answers import prefilled
from mcp_trio.config import load_settings
from mcp_trio.transports.lines import LineTransport, ProgramLine
from mcp_trio.transports.stdio_client import running
from mcp_trio.wire import REVISIONS, TextContent
from mcp_trio.wire.elicitation import ElicitResult
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28
from mcp_trio.wire.roots import Root
from mcp_trio.wire.sampling import CreateMessageResult, ToolUseContent
from tests.programs import ROOT, load, run

EXAMPLES = ROOT / "examples"
PRINTED = {
    "asking": [
        "Your table is waiting (terrace, receipt 1)",
        "Your table is waiting (terrace, receipt 2)",
    ],
    "client": [
        "examples 1.0.0 2026-07-28",
        "['add', 'weather', 'count', 'crunch']",
        "{'city': 'Rome', 'degrees': 21.0, 'unit': 'C'}",
        "True There is no weather under water",
        "-32602 MCP.NOT_FOUND Unknown tool: no_such_tool",
        "tools/call was not answered within 0.15 s",
    ],
    "resuming": ["1 3 None", "2 3 None", "3 3 None", "the cake is done"],
    "sockets": [f"HELLO OVER {line}" for line in ("HTTP", "WS", "TCP", "UNIX", "MEMORY")],
}
"""What the examples print that have a client of their own."""
SERVERS = [path.stem for path in EXAMPLES.glob("*.py") if "server.run()" in path.read_text()]
both_eras = pytest.mark.parametrize("revision", [R2025_11_25, R2026_07_28], ids=str)


def connected(name, revision=R2026_07_28, **callbacks):
    """A client of an example, which is in the same process."""
    server = load(EXAMPLES / f"{name}.py").server
    options = ClientOptions(revisions=(revision,))
    return MCPClient(server, callbacks=ClientCallbacks(**callbacks), options=options)


async def text_of(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.content[0].text


async def error_of(client, method, params):
    with pytest.raises(RemoteError) as caught:
        await client.call(method, params)
    return caught.value


def test_every_example_is_known_here():
    special = {"embedded", "publish", "headers", "tools"}
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*PRINTED, *SERVERS, *special}


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_a_program_prints_what_it_promises(name):
    assert run(EXAMPLES / f"{name}.py").stdout.splitlines() == PRINTED[name]


def test_the_embedded_example_runs():
    printed = run(EXAMPLES / "embedded.py").stdout.splitlines()
    assert printed[0] == "['slow']"
    assert set(printed[1:]) == {"the tool has ended", "given up: True"}


@pytest.mark.parametrize("name", [*sorted(SERVERS), "tools"])
async def test_a_server_serves_stdio_and_ends_with_its_input(name):
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = Command([sys.executable, EXAMPLES / f"{name}.py"], env=env)
    with trio.fail_after(30):
        async with running(command) as program:
            line = ProgramLine(program.stdout, program.stdin, fate=program.fate)
            async with MCPClient(line) as client:
                assert client.server_info.name == {"tools": "examples"}.get(name, name)
            await program.wait()
            assert "exit status 0" in await program.fate()


# -- tools -----------------------------------------------------------------------------


async def test_tools():
    seen = []
    async with connected("tools") as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}
        weather = await client.call_tool("weather", {"city": "Rome", "unit": "F"})
        assert weather.structured_content == {"city": "Rome", "degrees": 69.8, "unit": "F"}
        wet = await client.call_tool("weather", {"city": "Atlantis"})
        assert (wet.is_error, wet.content[0].text) == (True, "There is no weather under water")
        assert (await client.call_tool("weather", {"city": ""})).is_error
        counted = await client.call_tool(
            "count", {"to": 3, "pause": 0}, on_progress=lambda *report: seen.append(report)
        )
        assert counted.content[0].text == "counted to 3"
        assert seen == [(1, 3, "at 1"), (2, 3, "at 2"), (3, 3, "at 3")]
        assert (await client.call_tool("crunch", {"n": 10})).structured_content == {"result": 45}
        tools = {tool.name: tool async for tool in client.tools()}
        assert tools["weather"].input_schema["properties"]["city"]["description"] == "where."


LEG = {"origin": "Rome", "destination": "Milan", "leaves": "2026-08-01T10:00:00+00:00"}
BACK = {**LEG, "origin": "Milan", "destination": "Rome"}


async def test_structured_arguments_and_results():
    async with connected("structured") as client:
        (book, numbers, picture) = [tool async for tool in client.tools()]
        fields = book.input_schema["properties"]
        assert fields["legs"] == {
            "type": "array",
            "items": {"$ref": "#/$defs/Leg"},
            "minItems": 1,
            "maxItems": 5,
            "description": "in their order.",
        }
        assert (fields["seats"]["minimum"], fields["seats"]["default"]) == (1, 1)
        assert fields["pay"]["enum"] == ["now", "on board"]
        assert book.output_schema["required"] == ["number", "legs", "comfort", "euros"]
        assert (book.title, book.icons[0].mime_type) == ("Book a journey", "image/png")
        assert book.annotations.destructive_hint is False
        assert (numbers.annotations.read_only_hint, picture.output_schema) == (True, None)
        passenger = {"name": "Ada", "born": "1815-12-10"}
        arguments = {"passenger": passenger, "legs": [LEG, BACK], "comfort": "first", "seats": 2}
        booked = await client.call_tool("book", arguments)
        ticket = {"number": "ADA-1", "legs": [LEG, BACK], "comfort": "first", "euros": 160.0}
        as_sent = json.loads(booked.content[0].text)
        assert as_sent == booked.structured_content
        assert as_sent == {**ticket, "legs": as_sent["legs"]}
        assert [leg["origin"] for leg in as_sent["legs"]] == ["Rome", "Milan"]
        listed = await client.call_tool("numbers")
        assert listed.structured_content == {"result": ["ADA-1"]}
        shown = await client.call_tool("picture")
        assert [block.mime_type for block in shown.content[1:]] == ["image/png"]
        torn = await client.call_tool("book", {**arguments, "legs": [LEG, LEG]})
        assert (torn.is_error, torn.content[0].text) == (True, "No way from Milan to Rome")
        wrong = await client.call_tool("book", {**arguments, "seats": 10, "class": "business"})
        assert wrong.is_error
        assert "/seats" in wrong.content[0].text
        assert "class" in wrong.content[0].text


async def test_an_argument_travels_as_a_header_where_the_revision_has_that():
    server = load(EXAMPLES / "headers.py").server
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(server.serve_http, "127.0.0.1", 0)
        async with MCPClient(url) as client:
            arguments = {"region": "eu-süd", "sql": "select 1"}
            # It learns from the listing which argument is mirrored; a call without is refused.
            params = {"name": "query", "arguments": arguments}
            assert (await error_of(client, "tools/call", params)).rpc_code == -32020
            assert await text_of(client, "query", **arguments) == "8 characters were run in eu-süd"
            (query,) = [tool async for tool in client.tools()]
            assert query.input_schema["properties"]["region"]["x-mcp-header"] == "Region"
        nursery.cancel_scope.cancel()


# -- resources, prompts, completion ----------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS, ids=str)
async def test_resources(revision):
    async def read(uri):
        (contents,) = (await client.call("resources/read", {"uri": uri}))["contents"]
        return contents

    async with connected("resources", revision) as client:
        listed = await client.call("resources/list")
        assert [item["uri"] for item in listed["resources"]] == ["note:///all", "note:///logo"]
        listed = await client.call("resources/templates/list")
        templates = [item["uriTemplate"] for item in listed["resourceTemplates"]]
        assert templates == ["note:///{name}", "search:///{+folder}{?words,limit}"]
        every = await read("note:///all")
        assert json.loads(every["text"]) == {"first": "Buy milk", "second": "Write tests"}
        assert (await read("note:///logo"))["blob"] == "iVBORw0KGgo="
        assert (await read("note:///first"))["text"] == "Buy milk"
        found = await read("search:///my/notes?words=MILK&limit=5")
        assert (json.loads(found["text"]), found["mimeType"]) == (
            ["my/notes/first"],
            "application/json",
        )
        for uri in (
            "note:///third",
            "note:///a/b",
            "note:///..",
            "note:///%2e%2e",
            "search:///x?limit=many",
            "other:///x",
        ):
            error = await error_of(client, "resources/read", {"uri": uri})
            assert error.rpc_code == revision.resource_not_found, uri
            assert error.data["uri"] == uri


@both_eras
async def test_subscriptions(revision):
    async with connected("subscriptions", revision) as client:
        async with client.listen(resource="stock:///tea", tools=True) as changes:
            await client.call_tool("sell", {"item": "milk"})
            await client.call_tool("sell", {"item": "tea"})
            assert await anext(changes) == "notifications/resources/updated stock:///tea"
            await client.call_tool("open_till")
            assert await anext(changes) == "notifications/tools/list_changed"
        assert await text_of(client, "pay", euros=3) == "3 euros, thank you"
        if not revision.stateless:
            error = await error_of(client, "resources/subscribe", {"uri": "other:///gold"})
            assert error.rpc_code == -32002


async def test_prompts():
    async def got(name, **arguments):
        return await client.call("prompts/get", {"name": name, "arguments": arguments})

    async with connected("prompts") as client:
        listed = (await client.call("prompts/list"))["prompts"]
        assert [prompt["name"] for prompt in listed] == ["review", "debate", "describe"]
        assert listed[0]["arguments"][0] == {
            "name": "code",
            "description": "to be read.",
            "required": True,
        }
        review = await got("review", code="x = 1", tone="blunt", points="2")
        text = review["messages"][0]["content"]["text"]
        assert text == "In a blunt tone, name at most 2 faults of:\nx = 1"
        debate = await got("debate", claim="tea cools")
        assert [message["role"] for message in debate["messages"]] == ["user", "assistant"]
        described = await got("describe")
        kinds = [message["content"]["type"] for message in described["messages"]]
        assert kinds == ["image", "text"]
        for wrong in ({}, {"code": "x", "tone": "loud"}, {"code": "x", "points": "few"}):
            params = {"name": "review", "arguments": wrong}
            assert (await error_of(client, "prompts/get", params)).rpc_code == -32602


async def test_completion():
    async def complete(ref, argument, value, **known):
        params = {
            "ref": ref,
            "argument": {"name": argument, "value": value},
            "context": {"arguments": known},
        }
        return (await client.call("completion/complete", params))["completion"]

    guide = {"type": "ref/prompt", "name": "guide"}
    template = {"type": "ref/resource", "uri": "city:///{city}"}
    async with connected("completion") as client:
        assert (await complete(guide, "country", "f"))["values"] == ["fr"]
        french = await complete(guide, "city", "L", country="fr")
        assert french == {"values": ["Lyon", "Lille"], "total": 2, "hasMore": False}
        every = await complete(template, "city", "")
        assert every == {"values": ["Paris", "Lyon"], "total": 5, "hasMore": True}
        assert (await complete(guide, "nothing", ""))["values"] == []
        params = {
            "ref": {"type": "ref/prompt", "name": "x"},
            "argument": {"name": "a", "value": ""},
        }
        assert (await error_of(client, "completion/complete", params)).rpc_code == -32602


# -- while a call runs -----------------------------------------------------------------


async def test_progress_and_cancellation(autojump_clock):
    module = load(EXAMPLES / "progress.py")
    seen = []
    async with MCPClient(module.server) as client:
        result = await client.call_tool(
            "copy", {"files": 3}, on_progress=lambda *report: seen.append(report)
        )
        assert result.content[0].text == "copied 3 files"
        # Two files that are done at the same moment may be told as one step.
        assert seen[-1] == (3, 3, "3 of 3 files")
        assert seen == sorted(set(seen))
        with trio.move_on_after(0.25):
            await client.call_tool("copy", {"files": 100})
        await trio.testing.wait_all_tasks_blocked()
    assert module.ended == ["3 of 3", "4 of 100"]


async def test_a_thread_sees_its_cancellation():
    module = load(EXAMPLES / "progress.py")
    async with MCPClient(module.server) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "count")
            with trio.fail_after(10):
                while not module.server.threads.running:
                    await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert await trio.to_thread.run_sync(module.stopped.wait, 10)


@both_eras
async def test_logs(revision):
    heard = []

    class Overheard(LineTransport):
        async def receive(self):
            envelope = await super().receive()
            if getattr(envelope.message, "method", None) == "notifications/message":
                params = dict(envelope.message.params)
                heard.append((params["level"], params["data"], params.get("logger")))
            return envelope

    server = load(EXAMPLES / "logs.py").server
    left_out, right_in = trio.testing.memory_stream_one_way_pair()
    right_out, left_in = trio.testing.memory_stream_one_way_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, LineTransport(right_in, right_out))
        options = ClientOptions(revisions=(revision,))
        async with MCPClient(Overheard(left_in, left_out), options=options) as client:
            await client.call_tool("tidy", {"disk_free": 5})
            without_asking = [*heard]
            heard.clear()
            meta = {"io.modelcontextprotocol/logLevel": "debug"}
            params = {"name": "tidy", "arguments": {"disk_free": 5}}
            if revision.stateless:
                params["_meta"] = meta
            else:
                await client.call("logging/setLevel", {"level": "debug"})
            await client.call("tools/call", params)
    warned = ("warning", "only 5 GB are free", "disk")
    # With a handshake the level is `info` until the client says another one.
    assert without_asking == ([] if revision.stateless else [warned, ("info", "tidied", None)])
    assert heard == [("debug", {"free": 5}, "disk"), warned, ("info", "tidied", None)]


# -- asking ----------------------------------------------------------------------------


def answer(*content):
    return CreateMessageResult(role="assistant", content=list(content), model="test")


@both_eras
async def test_sampling(revision):
    asked = []

    def model(params):
        asked.append(params)
        if params.tools and len(params.messages) == 1:
            return answer(ToolUseContent(id="1", name="clock", input={}))
        if params.tools:
            (result,) = params.messages[-1].content
            return answer(TextContent(text=f"It is {result.content[0].text}: eat"))
        return answer(TextContent(text="On Milk"))

    async with connected("sampling", revision, sampling=model, sampling_tools=True) as client:
        assert await text_of(client, "title", text="We are out of milk") == "On Milk (by test)"
        assert asked[0].model_preferences.hints[0].name == "small"
        assert await text_of(client, "plan") == "It is 12:00: eat"
        assert [tool.name for tool in asked[1].tools] == ["clock"]
    async with connected("sampling", revision, sampling=model) as client:
        params = {"name": "plan"}  # this client's model takes no tools
        error = await error_of(client, "tools/call", params)
        assert error.rpc_code == (-32021 if revision.stateless else -32602)


@both_eras
async def test_elicitation(revision):
    def fill(params):
        assert prefilled(params) == {"scoops": 1, "size": "small"}
        return {**prefilled(params), "flavour": "lemon", "scoops": 3}

    def visit(params):
        assert params.url == "https://ice.example/connect"
        return ElicitResult(action="accept")

    callbacks = {"elicitation": fill, "elicitation_url": visit}
    async with connected("elicitation", revision, **callbacks) as client:
        assert await text_of(client, "order") == "3 of lemon, small"
        assert await text_of(client, "connect") == "Finish in your browser"
    for action, text in {"decline": "No ice, then", "cancel": "Come back when you know"}.items():
        say = ElicitResult(action=action)
        async with connected("elicitation", revision, elicitation=lambda _, say=say: say) as client:
            assert await text_of(client, "order") == text


@both_eras
async def test_roots(revision, tmp_path):
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "x.txt").touch()
    where = [
        Root(uri=(tmp_path / "a b").as_uri(), name="mine"),
        Root(uri=(tmp_path / "gone").as_uri()),
    ]
    async with connected("roots", revision, roots=lambda: where) as client:
        result = await client.call_tool("count_files", {"suffix": ".txt"})
        assert result.structured_content == {"mine": 1}


# -- the service -----------------------------------------------------------------------


def test_a_registry_and_its_settings_fit(tmp_path):
    text = (EXAMPLES / "service.toml").read_text()
    (tmp_path / "service.toml").write_text(text)
    settings = load_settings(tmp_path / "service.toml")
    run(EXAMPLES / "publish.py", settings.catalog.registry)
    assert Path(settings.catalog.registry).parent == tmp_path
    # What is commented out has to be right, too.
    whole = text.replace("# [conn", "[conn").replace("# base", "base").replace("# kind", "kind")
    assert tomllib.loads(whole.replace("# secret", "secret"))["connections"]["crm"]


def test_what_is_published_is_served():
    module = load(EXAMPLES / "publish.py")
    assert json.loads(json.dumps(module.GREETING))["name"] == "greeting"
    from mcp_trio.catalog.operation import parse
    from mcp_trio.runtime.compiler import Compiler
    from mcp_trio.runtime.connections import Connections

    assert Compiler(Connections()).compile(parse(module.GREETING)).definition.name == "greeting"
