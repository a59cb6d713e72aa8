"""One walk through the whole protocol, in the order in which a client would take it.

What is looked at is what goes over the line, not what the client's methods make of it, and
what is left on the server once the client has gone. `process` is stdio as hosts use it: the
server is a program of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections import Counter
from copy import deepcopy

import httpx2
import pytest
import trio
import trio.testing

from mcp_trio import ClientCallbacks, ClientOptions, Command, MCPClient, MemoryTransport
from mcp_trio.jsonrpc.messages import Error, Notification, Request, Result
from mcp_trio.transports.lines import LineTransport, ProgramLine
from mcp_trio.transports.stdio_client import running
from mcp_trio.transports.streamable_http import StreamableHTTPTransport
from mcp_trio.wire import REVISIONS, TextContent
from mcp_trio.wire.meta import LOG_LEVEL, PROTOCOL_VERSION, SUBSCRIPTION_ID
from mcp_trio.wire.revisions import HANDSHAKE, R2024_11_05, STATELESS
from mcp_trio.wire.roots import Root
from mcp_trio.wire.sampling import CreateMessageResult
from tests.scenarios import walk_server
from tests.scenarios.walk_server import NOTE, OTHER, SUMMARY, left_of, make_server

PLACES = ("memory", "lines", "process", "http")
UPDATED = "notifications/resources/updated"


# -- the line, overheard ---------------------------------------------------------------


class Overheard:
    """Keeps every message of the client's line: `>` for what it sends, `<` for what it gets."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.heard = []

    async def send(self, envelope):
        self.heard.append((">", deepcopy(envelope.message)))
        await super().send(envelope)

    async def receive(self):
        envelope = await super().receive()
        self.heard.append(("<", deepcopy(envelope.message)))  # its reader may take it apart
        return envelope


class OverheardMemory(Overheard, MemoryTransport):
    pass


class OverheardLines(Overheard, LineTransport):
    pass


class OverheardProgram(Overheard, ProgramLine):
    pass


class OverheardHTTP(Overheard, StreamableHTTPTransport):
    pass


class Transcript:
    """What was said on a line, so far."""

    def __init__(self, heard):
        self._heard = heard

    def __iter__(self):
        """Every message as a line of text; notices of resources have a place of their own.

        Those belong to no request, so nothing says between which two answers they come.
        """
        asked = {}
        for direction, message in self._heard:
            match message:
                case Request():
                    tool = message.params.get("name") if message.params else None
                    what = f"{message.method} {tool}" if tool else message.method
                    asked[direction, message.id] = what
                    yield f"{direction} {what}"
                case Notification() if message.method != UPDATED:
                    yield f"{direction} {message.method}"
                case Result() | Error():
                    what = asked["<" if direction == ">" else ">", message.id]
                    yield f"{direction} {type(message).__name__.lower()} of {what}"

    def notices(self, method):
        """The parameters of every notification of this method."""
        return [
            message.params
            for _, message in self._heard
            if isinstance(message, Notification) and message.method == method
        ]

    def requests(self, method, tool=None):
        return [
            message
            for _, message in self._heard
            if isinstance(message, Request)
            and message.method == method
            and tool in {None, message.params.get("name")}
        ]

    def answers(self, request):
        """Every answer to a request."""
        (asker,) = {way for way, message in self._heard if message is request}
        return [
            message
            for way, message in self._heard
            if isinstance(message, Result | Error) and message.id == request.id and way != asker
        ]


def exchanged(*methods):
    """The lines of calls that are answered at once."""
    return [line for method in methods for line in (f"> {method}", f"< result of {method}")]


# -- the places ------------------------------------------------------------------------


def tasks_in(nursery):
    """How many tasks of each name live in a nursery, at whatever depth."""
    found, queue = Counter(), list(nursery.child_tasks)
    while queue:
        task = queue.pop()
        found[task.name] += 1
        for inner in task.child_nurseries:
            queue.extend(inner.child_tasks)
    return found


async def until_only(tasks, nursery):
    """Wait until a nursery has these tasks and no others."""
    with trio.fail_after(10):
        while tasks_in(nursery) != tasks:
            await trio.testing.wait_all_tasks_blocked()


@contextlib.asynccontextmanager
async def on_a_line(ours, theirs):
    """Serve one end of a line; afterwards the server must have returned by itself."""
    server = make_server()
    async with trio.open_nursery() as serving:
        session = await serving.start(serve, server, theirs)
        yield ours
        await until_only(Counter(), serving)
    counted = session.statistics()
    assert (counted.in_flight, counted.pending) == (0, 0)
    assert (counted.malformed, counted.late_answers, counted.shields_lifted) == (0, 0, 0)
    assert not any(left_of(server).values())


async def serve(server, transport, *, task_status):
    await server.serve(transport, task_status=task_status)


@contextlib.asynccontextmanager
async def over_http(books_are_closed):
    """Serve HTTP; afterwards the server must be as it was before the client came."""
    server = make_server()
    async with (
        trio.open_nursery() as serving,
        httpx2.AsyncClient(timeout=None, trust_env=False) as http,
    ):
        (url,) = await serving.start(server.serve_http, "127.0.0.1", 0)
        before = tasks_in(serving)
        yield OverheardHTTP(url, http)
        await http.aclose()
        await until_only(before, serving)
        books_are_closed()  # while the endpoint is still up: no session, nothing that runs
        assert left_of(server) == {"listeners": 0, "services": 1, "threads": 0}
        serving.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def in_a_process():
    """Start the server as a program; afterwards it must have ended well by itself."""
    said = []
    # Of the environment only where this package is found.
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, walk_server.__file__]
    async with running(Command(command, env=env, stderr=said.append, grace=10.0)) as program:
        yield OverheardProgram(program.stdout, program.stdin, fate=program.fate)
        with trio.fail_after(10):
            await program.wait()
            assert "exit status 0" in await program.fate(), said
        assert not any(json.loads("".join(said)).values()), said


@pytest.fixture
def place(transport, books_are_closed):
    """A server in the place, and a line to it."""
    match transport:
        case "memory":
            return on_a_line(*OverheardMemory.pair())
        case "lines":
            left_out, right_in = trio.testing.lockstep_stream_one_way_pair()
            right_out, left_in = trio.testing.lockstep_stream_one_way_pair()
            ours, theirs = OverheardLines(left_in, left_out), LineTransport(right_in, right_out)
            return on_a_line(ours, theirs)
        case "process":
            return in_a_process()
        case _:
            return over_http(books_are_closed)


# -- the steps that both eras share ----------------------------------------------------


class Walk:
    """A client on its way, and what it was asked on it."""

    def __init__(self):
        self.model_was_asked = []
        self.roots_were_asked = 0
        self.callbacks = ClientCallbacks(sampling=self._model, roots=self._roots)

    async def _model(self, params):
        self.model_was_asked.append(params)
        await trio.lowlevel.checkpoint()
        return CreateMessageResult(
            role="assistant", content=[TextContent(text="Milk!")], model="test"
        )

    def _roots(self):
        self.roots_were_asked += 1
        return [Root(uri="file:///a"), Root(uri="file:///b", name="b")]


async def recalled(client, until):
    """The server's journal, once it holds an entry."""
    result = await client.call_tool("recall", {"until": until})
    return json.loads(result.content[0].text)


async def tools(client):
    names = [tool.name async for tool in client.tools()]
    assert names == ["report", "toil", "recall", "touch", "think", "speak"]


TOOLS = exchanged("tools/list")


async def progress(client):
    seen = []
    result = await client.call_tool(
        "report", {"steps": 4}, on_progress=lambda *report: seen.append(report)
    )
    assert result.content[0].text == "reported"
    message = client.revision is not R2024_11_05  # which has no text there
    assert seen == [(n / 2, 4, f"step {n}" if message else None) for n in range(1, 5)]


PROGRESS = [
    "> tools/call report",
    *["< notifications/progress"] * 4,
    "< result of tools/call report",
]


async def cancellation(client):
    started = trio.Event()
    async with trio.open_nursery() as nursery:
        call = client.call_tool
        nursery.start_soon(lambda: call("toil", on_progress=lambda *_: started.set()))
        await started.wait()
        nursery.cancel_scope.cancel()
    over = await recalled(client, "toil over")
    assert over == ["child started", "child over", "toil over, cancelled: True"]
    assert client.session.statistics().pending == 0


def cancellation_is_heard(*, told):
    return [
        "> tools/call toil",
        "< notifications/progress",
        *(["> notifications/cancelled"] if told else []),
        *exchanged("tools/call recall"),
    ]


async def resources(client):
    (listed,) = (await client.call("resources/list"))["resources"]
    assert (listed["uri"], listed["description"]) == (NOTE, "The first note.")
    (read,) = (await client.call("resources/read", {"uri": NOTE}))["contents"]
    assert read == {"uri": NOTE, "mimeType": "text/plain", "text": "buy milk"}


RESOURCES = exchanged("resources/list", "resources/read")


async def watching(client):
    """Each change of the watched resource is heard, none of the other one."""
    async with client.listen(resource=NOTE) as changes:
        for uri in (NOTE, OTHER):
            await client.call_tool("touch", {"uri": uri})
        with trio.fail_after(10):
            assert await anext(changes) == f"{UPDATED} {NOTE}"
        await client.call_tool("touch", {"uri": NOTE})
        with trio.fail_after(10):
            assert await anext(changes) == f"{UPDATED} {NOTE}"


TOUCHES = exchanged(*["tools/call touch"] * 3)


async def prompts(client):
    (listed,) = (await client.call("prompts/list"))["prompts"]
    assert [argument["name"] for argument in listed["arguments"]] == ["name", "tone"]
    got = await client.call("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}})
    said = {"type": "text", "text": "Greet Ada kindly"}
    assert got["messages"] == [{"role": "user", "content": said}]
    completed = await client.call(
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "greet"},
            "argument": {"name": "tone", "value": "ki"},
        },
    )
    assert completed["completion"]["values"] == ["kindly", "kiddingly"]


PROMPTS = exchanged("prompts/list", "prompts/get greet", "completion/complete")


async def asking(client, walk):
    result = await client.call_tool("think")
    assert result.content[0].text == "Milk! ['file:///a', 'file:///b']"
    (asked,) = walk.model_was_asked
    assert (asked.messages, asked.max_tokens, asked.system_prompt) == (SUMMARY, 9, "Be brief")
    assert walk.roots_were_asked == 1


def nothing_answered_the_cancelled_call(said, session):
    (toil,) = said.requests("tools/call", "toil")
    assert said.answers(toil) == []
    counted = session.statistics()
    assert (counted.pending, counted.in_flight) == (0, 0)
    assert (counted.late_answers, counted.malformed) == (0, 0)
    return toil


# -- the walks -------------------------------------------------------------------------

HANDSHAKE_WALKS = [(place, revision) for place in PLACES for revision in HANDSHAKE]
STATELESS_WALKS = [(place, revision) for place in PLACES for revision in STATELESS]


def everywhere(walks):
    names = [f"{place}-{revision}" for place, revision in walks]
    return pytest.mark.parametrize(("transport", "revision"), walks, ids=names)


@everywhere(HANDSHAKE_WALKS)
async def test_a_session_from_initialize_to_the_end(place, revision):
    walk = Walk()
    options = ClientOptions(revisions=(revision,))
    with trio.fail_after(60):
        async with place as line:
            async with MCPClient(line, callbacks=walk.callbacks, options=options) as client:
                assert (client.server_info.name, client.instructions) == ("walk", "Walk on")
                await tools(client)
                await progress(client)
                await cancellation(client)
                await resources(client)
                await watching(client)
                await prompts(client)
                await asking(client, walk)
                await client.call("logging/setLevel", {"level": "warning"})
                await client.call_tool("speak")
    said = Transcript(line.heard)
    assert list(said) == [
        *exchanged("initialize"),
        "> notifications/initialized",
        *TOOLS,
        *PROGRESS,
        *cancellation_is_heard(told=True),
        *RESOURCES,
        *exchanged("resources/subscribe"),
        *TOUCHES,
        *exchanged("resources/unsubscribe"),
        *PROMPTS,
        "> tools/call think",
        "< sampling/createMessage",
        "> result of sampling/createMessage",
        "< roots/list",
        "> result of roots/list",
        "< result of tools/call think",
        *exchanged("logging/setLevel"),
        "> tools/call speak",
        "< notifications/message",
        "< result of tools/call speak",
    ]
    (opening,) = said.requests("initialize")
    assert opening.params["protocolVersion"] == revision.date
    assert opening.params["capabilities"] == {"sampling": {}, "roots": {"listChanged": True}}
    (opened,) = said.answers(opening)
    assert opened.result["protocolVersion"] == revision.date
    toil = nothing_answered_the_cancelled_call(said, client.session)
    (cancelled,) = said.notices("notifications/cancelled")
    assert cancelled == {"requestId": toil.id, "reason": "the caller went away"}
    assert said.notices(UPDATED) == [{"uri": NOTE}, {"uri": NOTE}]
    (question,) = said.requests("sampling/createMessage")
    assert isinstance(question.params["messages"][0]["content"], dict)
    (logged,) = said.notices("notifications/message")
    assert logged == {"level": "error", "data": {"disk": "full"}, "logger": "walk"}


@everywhere(STATELESS_WALKS)
async def test_the_same_without_a_session_from_discover_to_the_end(place, transport, revision):
    walk = Walk()
    options = ClientOptions(revisions=(revision,))
    with trio.fail_after(60):
        async with place as line:
            async with MCPClient(line, callbacks=walk.callbacks, options=options) as client:
                assert (client.server_info.name, client.instructions) == ("walk", "Walk on")
                await tools(client)
                await progress(client)
                await cancellation(client)
                await resources(client)
                await watching(client)
                await prompts(client)
                await asking(client, walk)
                meta = {LOG_LEVEL: "warning"}
                await client.call("tools/call", {"name": "speak", "_meta": meta})
                again = await recalled(client, "think began")
                assert again.count("think began") == 3  # each question ends a round
    said = Transcript(line.heard)
    cancelled_by_notice = transport != "http"  # where the stream is the call's own, it is closed
    assert list(said) == [
        *exchanged("server/discover"),
        *TOOLS,
        *PROGRESS,
        *cancellation_is_heard(told=cancelled_by_notice),
        *RESOURCES,
        "> subscriptions/listen",
        "< notifications/subscriptions/acknowledged",
        *TOUCHES,
        *(["> notifications/cancelled"] if cancelled_by_notice else []),
        *PROMPTS,
        *exchanged(*["tools/call think"] * 3),
        "> tools/call speak",
        "< notifications/message",
        "< result of tools/call speak",
        *exchanged("tools/call recall"),
    ]
    (opening,) = said.requests("server/discover")
    assert opening.params["_meta"][PROTOCOL_VERSION] == revision.date
    (opened,) = said.answers(opening)
    assert opened.result["supportedVersions"] == [known.date for known in REVISIONS]
    toil = nothing_answered_the_cancelled_call(said, client.session)
    (listening,) = said.requests("subscriptions/listen")
    assert said.answers(listening) == []
    reason = "the caller went away"
    assert said.notices("notifications/cancelled") == [
        {"requestId": request.id, "reason": reason}
        for request in (toil, listening)
        if cancelled_by_notice
    ]
    mine = {SUBSCRIPTION_ID: listening.id}
    (acknowledged,) = said.notices("notifications/subscriptions/acknowledged")
    assert acknowledged == {"notifications": {"resourceSubscriptions": [NOTE]}, "_meta": mine}
    assert said.notices(UPDATED) == [{"uri": NOTE, "_meta": mine}] * 2
    the_rounds_fit_together(said)
    (logged,) = said.notices("notifications/message")
    assert logged == {"level": "error", "data": {"disk": "full"}, "logger": "walk"}


def the_rounds_fit_together(said):
    """Each round asks one thing, and the next one brings its answer and the state, untouched."""
    rounds = said.requests("tools/call", "think")
    assert len({request.id for request in rounds}) == 3
    results = [said.answers(request)[0].result for request in rounds]
    kinds = [result["resultType"] for result in results]
    assert kinds == ["input_required", "input_required", "complete"]
    assert "inputResponses" not in rounds[0].params
    expected = ["sampling/createMessage", "roots/list"]
    for question, retry, method in zip(results, rounds[1:], expected, strict=False):
        ((key, asked),) = question["inputRequests"].items()
        assert asked["method"] == method
        assert set(retry.params["inputResponses"]) == {key}
        assert retry.params["requestState"] == question["requestState"]
    assert "inputRequests" not in results[2]
