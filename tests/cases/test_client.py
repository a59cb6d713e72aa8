"""What went wrong in other clients, shown on ours: large messages, cancelling, stuck servers."""

import contextlib
import itertools
import json
import sys

import pytest
import trio
import trio.testing

from mcp_trio import ClientOptions, Command, MCPClient, MCPServer
from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import MCPError, ProtocolError, TransportError
from mcp_trio.jsonrpc.messages import Result
from mcp_trio.testing import MemoryTransport
from mcp_trio.transports.lines import LineTransport
from mcp_trio.wire import REVISIONS
from tests.cases.test_lifecycle import steps_of_two_seconds
from tests.client.scripts import INITIALIZED
from tests.scenarios.worlds import WORLDS, world
from tests.transports.web import (
    HANDSHAKE,
    STATELESS,
    Web,
    answering,
    connected,
    event,
    opened,
    result,
    streaming,
)

BOTH_ENDS = [w for w in WORLDS if w[1] in {REVISIONS[0], REVISIONS[1], REVISIONS[-1]}]
each_world = pytest.mark.parametrize(
    ("transport", "revision"), BOTH_ENDS, ids=[f"{t}-{r}" for t, r in BOTH_ENDS]
)
LIMIT = 100_000


def make_server():
    server = MCPServer("s")

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def give(size: int) -> str:
        return "x" * size

    return server


async def text_of(client, name, **arguments):
    return (await client.call_tool(name, arguments)).content[0].text


# -- lines and events -----------------------------------------------------------------------


@each_world
async def test_separators_of_text_arrive_as_they_are(transport, revision):
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\rh\ni\r\nj\u200bk\ufeffl\N{GRINNING FACE}"
    async with world(make_server(), transport, revision) as client:
        assert await text_of(client, "echo", text=text) == text
        assert await text_of(client, "echo", text=text * 1000) == text * 1000


PROGRAM = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = {"protocolVersion": "2025-11-25", "capabilities": {}, "content": [],
              "serverInfo": {"name": "p", "version": "1"}}
    if message["method"] == "tools/call":
        arguments = message["params"]["arguments"]
        text = arguments["text"] * arguments.get("times", 1)
        result["content"] = [{"type": "text", "text": text}]
    answer = {"result": result, "jsonrpc": "2.0", "id": message["id"]}
    out = json.dumps(answer, ensure_ascii=False).encode()
    sys.stdout.buffer.write(b"\\xff\\xfe\\n" + out + b"\\r\\n")
    sys.stdout.buffer.flush()
"""
OLD = ClientOptions(revisions=(HANDSHAKE,))


async def test_a_program_of_another_make_is_read_line_by_line():
    """It writes the id last, characters unescaped, CRLF, and noise that is no UTF-8."""
    noise = []
    command = Command(
        [sys.executable, "-I", "-S", "-c", PROGRAM], max_line=LIMIT, on_noise=noise.append
    )
    text = "a\u2028b\u2029c\x85d"
    async with MCPClient(command, options=OLD) as client:
        assert await text_of(client, "echo", text=text) == text
        with pytest.raises(ProtocolError) as caught:
            await text_of(client, "echo", text="x", times=LIMIT)
        assert str(caught.value) == f"no answer to tools/call: it is longer than {LIMIT} bytes"
        assert await text_of(client, "echo", text="x", times=70_000) == "x" * 70_000
    assert set(noise) == {"\ufffd\ufffd"}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
async def test_an_event_stream_may_be_written_in_any_way_and_cut_anywhere(
    autojump_clock, size, end
):
    def first(asked):
        return cut([": ping", "", "id: e-1", "data:", "", "event: other", "data: {}", "", ":", ""])

    def second(asked):
        (id_,) = [each.id for each in web.asked if each.what == "tools/call"]
        said = json.dumps(result(id_, text="\N{GRINNING FACE}\u2028"), ensure_ascii=False, indent=1)
        return cut([*(f"data:{line}" for line in said.split("\n")), "", ""])

    def cut(lines):
        data = "\ufeff".encode() + end.join([*lines, ""]).encode()
        return streaming(*[data[at : at + size] for at in range(0, len(data), size)])

    web = Web(tools_call=first, GET=[405, second])
    async with connected(web) as client:
        answer = await client.call("tools/call", {"name": "x"})
    assert answer["text"] == "\N{GRINNING FACE}\u2028"
    resumed = web.of("GET")[-1]
    assert resumed.headers["last-event-id"] == "e-1"


# -- sizes ----------------------------------------------------------------------------------


@each_world
@pytest.mark.parametrize("size", [70_000, 1_000_000])
async def test_results_beyond_64_kib_arrive_whole(transport, revision, size):
    async with world(make_server(), transport, revision) as client:
        assert len(await text_of(client, "give", size=size)) == size


@contextlib.asynccontextmanager
async def by_url(scheme, tmp_path, **options):
    """A client of our server that was given a URL."""
    server = make_server()
    async with trio.open_nursery() as nursery:
        if scheme == "unix":
            url = await nursery.start(server.serve_unix, tmp_path / "socket")
        else:
            (url,) = await nursery.start(server.serve_http, "127.0.0.1", 0)
            url = url.replace("http:", f"{scheme}:")
        async with MCPClient(url, options=ClientOptions(**options)) as client:
            yield client
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
@pytest.mark.parametrize(
    ("scheme", "kind", "goes_on"),
    [("http", TransportError, True), ("unix", ProtocolError, True), ("ws", TransportError, False)],
)
async def test_a_result_over_the_limit_is_an_error_that_names_it_and_the_limit_can_be_raised(
    tmp_path, revision, scheme, kind, goes_on
):
    chosen = {"revisions": (revision,)}
    async with by_url(scheme, tmp_path, max_message=LIMIT, **chosen) as client:
        with pytest.raises(kind, match=f"er than {LIMIT} bytes") as caught:
            await text_of(client, "give", size=LIMIT + 1)
        if goes_on:
            assert str(caught.value).startswith("no answer to tools/call: ")
            assert len(await text_of(client, "give", size=1000)) == 1000
    async with by_url(scheme, tmp_path, max_message=50_000_000, **chosen) as client:
        assert len(await text_of(client, "give", size=20_000_000)) == 20_000_000
    async with by_url(scheme, tmp_path, **chosen) as client:
        with pytest.raises(kind, match="er than 16777216 bytes"):
            await text_of(client, "give", size=20_000_000)


@pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
async def test_a_large_event_passes_and_a_larger_one_names_the_limit_and_the_request(revision):
    web = Web(tools_call=lambda a: streaming(event(result(a.id, text="x" * 2_000_000))))
    async with connected(web, revision) as client:
        assert len((await client.call("tools/call", {"name": "x"}))["text"]) == 2_000_000
    async with connected(web, revision, max_event=1_000_000) as client:
        told = "no answer to tools/call: an event is larger than 1000000 bytes"
        with pytest.raises(TransportError, match=told):
            await client.call("tools/call", {"name": "x"})
        await client.ping()


# -- cancelling -----------------------------------------------------------------------------


def without_a_session(asked):
    response = opened(asked)
    del response.headers["mcp-session-id"]
    return response


@pytest.mark.parametrize("how", ["scope", "timeout", "nursery"])
@pytest.mark.parametrize(
    ("revision", "opening", "told"),
    [(HANDSHAKE, opened, 1), (HANDSHAKE, without_a_session, 1), (STATELESS, opened, 0)],
    ids=["session", "handshake without a session", "stateless"],
)
async def test_the_server_is_told_once_that_nobody_waits_any_more(
    autojump_clock, revision, opening, told, how
):
    web = Web(initialize=opening, tools_call=lambda a: streaming(...))
    async with connected(web, revision) as client:
        with contextlib.suppress(MCPError):
            if how == "timeout":
                await client.call("tools/call", {"name": "x"}, timeout=0.2)
            elif how == "scope":
                with trio.move_on_after(0.2):
                    await client.call("tools/call", {"name": "x"})
            else:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(client.call, "tools/call", {"name": "x"})
                    await trio.testing.wait_all_tasks_blocked()
                    nursery.cancel_scope.cancel()
        await trio.sleep(10)
        assert web.open == 0
    (call,) = web.of("tools/call")
    cancelled = web.of("notifications/cancelled")
    assert [asked.message["params"]["requestId"] for asked in cancelled] == [call.id] * told


# -- servers that are stuck -----------------------------------------------------------------


@contextlib.asynccontextmanager
async def stuck(line):
    """A client whose server has opened the session and then neither reads nor says anything."""
    match line:
        case "http":
            hold = lambda a: streaming(...)  # noqa: E731 - one of many answers
            async with connected(Web(GET=hold, ping=..., tools_call=hold, DELETE=...)) as client:
                yield client
        case "memory":
            ours, theirs = MemoryTransport.pair()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(open_and_be_stuck, theirs)
                async with MCPClient(ours, options=OLD) as client:
                    yield client
            await theirs.aclose()
        case _:
            to_server, from_client = trio.testing.lockstep_stream_one_way_pair()
            to_client, from_server = trio.testing.lockstep_stream_one_way_pair()
            theirs = LineTransport(from_client, to_client)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(theirs.pump)
                nursery.start_soon(open_and_be_stuck, theirs)
                ours = LineTransport(from_server, to_server)
                async with MCPClient(ours, options=OLD) as client:
                    yield client
                nursery.cancel_scope.cancel()


async def open_and_be_stuck(theirs):
    request = (await theirs.receive()).message
    await theirs.send(Envelope(Result(request.id, INITIALIZED)))
    await theirs.receive()


@pytest.mark.parametrize("line", ["http", "memory", "lines"])
async def test_a_stuck_server_costs_no_time_after_the_calls_were_cancelled(autojump_clock, line):
    async with stuck(line) as client:
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                arguments = {"text": "x" * 100_000}
                nursery.start_soon(client.call_tool, "echo", arguments)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        await trio.sleep(5)
        assert await steps_of_two_seconds() < 50
        assert client.session.statistics().pending == 0
        began = trio.current_time()
    assert trio.current_time() - began < 10


# -- headers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ({"n": 42}, "42"),
        ({"n": 42.0}, "42"),
        ({"n": -0}, "0"),
        ({"n": None}, None),
        ({}, None),
        ({"s": "é"}, "=?base64?w6k=?="),
        ({"s": " a"}, "=?base64?IGE=?="),
        ({"s": "=?base64?x?="}, "=?base64?PT9iYXNlNjQ/eD89?="),
        ({"s": "plain"}, "plain"),
        ({"s": ""}, ""),
    ],
)
async def test_a_mirrored_argument_is_written_as_a_server_compares_it(
    autojump_clock, arguments, sent
):
    properties = {
        "n": {"type": "integer", "x-mcp-header": "N"},
        "s": {"type": "string", "x-mcp-header": "S"},
    }
    tool = {"name": "t", "inputSchema": {"type": "object", "properties": properties}}
    web = Web(
        tools_list=lambda a: answering(result(a.id, tools=[tool], ttlMs=0, cacheScope="private"))
    )
    async with connected(web, STATELESS) as client:
        await client.list_tools()
        await client.call_tool("t", arguments)
    (call,) = web.of("tools/call")
    named = {f"mcp-param-{name}": call.headers.get(f"mcp-param-{name}") for name in "ns"}
    expected = dict.fromkeys(named)
    for name in arguments:
        expected[f"mcp-param-{name}"] = sent
    assert named == expected


# -- who asks too much ----------------------------------------------------------------------


async def test_probing_takes_no_longer_than_it_may_whatever_the_server_does(autojump_clock):
    """Each opening has its time, and there are three of them at most."""
    for answers in itertools.product([..., 500, 404], repeat=2):
        web = Web(server_discover=answers[0], initialize=answers[1])
        began = trio.current_time()
        with pytest.raises(MCPError):
            async with connected(web, (STATELESS, HANDSHAKE)):
                raise AssertionError("connected")
        assert trio.current_time() - began <= 20
