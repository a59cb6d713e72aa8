"""What a client sees when the connection itself is the problem."""

import contextlib
from typing import Annotated

import msgspec
import pytest
import trio
import trio.testing

from mcp_trio import (
    ClientCallbacks,
    ClientOptions,
    MCPClient,
    MCPError,
    MCPServer,
    RemoteError,
    ServerOptions,
)
from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import (
    AlreadyConnectedError,
    ConfigurationError,
    TransportClosedError,
    TransportError,
    VersionMismatchError,
)
from mcp_trio.jsonrpc.messages import Error, Notification, Request, Result
from mcp_trio.testing import MemoryTransport, ScriptedPeer
from mcp_trio.transports.lines import LineTransport
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28
from mcp_trio.wire.roots import Root
from tests.http.tools import make_server

DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "resultType": "complete"}
INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "serverInfo": {"name": "old", "version": "1"},
}


async def _script(peer, answers):
    """Answer requests by method name until the line is closed."""
    asked = []
    while True:
        try:
            message = await peer.hear(within=1000)
        except trio.EndOfChannel:
            return asked
        if isinstance(message, Request):
            asked.append(message)
            answer = answers.get(message.method)
            if callable(answer):
                answer = answer(message)
            if answer is not None:
                await peer.say(answer)


async def _connect(answers, **options):
    """Connect to a script; gives the revision, or raises; and what was asked."""
    ours, theirs = MemoryTransport.pair()
    asked = []

    async def serve():
        asked.extend(await _script(ScriptedPeer(theirs), answers))

    failure = revision = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        try:
            async with MCPClient(ours, options=ClientOptions(**options)) as client:
                revision = client.revision
        except MCPError as error:
            failure = error
    await theirs.aclose()
    if failure is not None:
        assert [request.method for request in asked].count("initialize") == (
            "server/discover" not in [request.method for request in asked]
        )
        raise failure
    return revision, [request.method for request in asked]


def result(body):
    return lambda request: Result(request.id, body)


def error(code, data=None):
    return lambda request: Error(request.id, code, "no", data)


UNSUPPORTED = {"requested": "2026-07-28"}


@pytest.mark.parametrize(
    ("discover", "revision", "asked"),
    [
        (result(DISCOVERED), R2026_07_28, ["server/discover"]),
        (error(-32601), R2025_11_25, ["server/discover", "initialize"]),
        (error(-32602), R2025_11_25, ["server/discover", "initialize"]),
        (error(-32000), R2025_11_25, ["server/discover", "initialize"]),
        (None, R2025_11_25, ["server/discover", "initialize"]),
        (
            error(-32022, {**UNSUPPORTED, "supported": ["2025-11-25"]}),
            R2025_11_25,
            ["server/discover", "initialize"],
        ),
    ],
)
async def test_the_era_is_found_out(autojump_clock, discover, revision, asked):
    answers = {"server/discover": discover, "initialize": result(INITIALIZED)}
    assert await _connect(answers) == (revision, asked)


@pytest.mark.parametrize(
    ("discover", "kind"),
    [
        (error(-32022, {**UNSUPPORTED, "supported": ["3000-01-01"]}), VersionMismatchError),
        (error(-32020), MCPError),
    ],
)
async def test_a_stateless_server_is_never_sent_initialize(autojump_clock, discover, kind):
    answers = {"server/discover": discover, "initialize": result(INITIALIZED)}
    with pytest.raises(kind):
        await _connect(answers)


@pytest.mark.parametrize(
    ("data", "probes"),
    [
        (None, 1),
        (5, 1),
        (["2025-11-25"], 1),
        ({}, 1),
        ({"supported": None}, 1),
        ({"supported": "2025-11-25"}, 1),
        ({"supported": {"2025-11-25": 1}}, 1),
        ({"supported": [1, None, {}, "x" * 5000]}, 1),
        ({"supported": ["2026-07-28"]}, 2),  # the same again, and so no third time
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_a_refusal_of_the_version_ends_soon_whatever_it_names(data, probes):
    asked = []

    def refuse(request):
        asked.append(request)
        return Error(request.id, -32022, "no", data)

    with pytest.raises(VersionMismatchError) as caught:
        await _connect({"server/discover": refuse, "initialize": result(INITIALIZED)})
    assert len(str(caught.value)) < 300
    assert len(asked) == probes


async def test_a_client_without_handshakes_says_what_a_server_lacks_that_wants_one():
    ours, theirs = MemoryTransport.pair()
    async with trio.open_nursery() as nursery:
        answers = {"server/discover": lambda request: Error(request.id, -32601, "Method not found")}
        nursery.start_soon(_script, ScriptedPeer(theirs), answers)
        with pytest.raises(VersionMismatchError, match="without a handshake") as refused:
            async with MCPClient(ours, options=ClientOptions(revisions=[R2026_07_28])):
                pass
    assert refused.value.data == {"supported": [], "requested": "2026-07-28"}
    await theirs.aclose()


async def test_an_answer_to_the_question_that_comes_too_late_changes_nothing(autojump_clock):
    late = []

    async def serve(peer):
        late.append((await peer.hear(within=1000)).id)
        await peer.hear(within=1000)  # the question is taken back
        initialize = await peer.hear(within=1000)
        await peer.say(Result(late[0], DISCOVERED))
        await peer.say(Result(initialize.id, INITIALIZED))
        await peer.say(Result(late[0], DISCOVERED))

    ours, theirs = MemoryTransport.pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, ScriptedPeer(theirs))
        async with MCPClient(ours) as client:
            await trio.testing.wait_all_tasks_blocked()
            assert client.revision is R2025_11_25
            assert client.session.statistics().late_answers == 2  # counted, dropped
    await theirs.aclose()


@pytest.mark.parametrize("how", ["cancel", "timeout"])
async def test_a_handshake_that_is_given_up_is_not_taken_back(autojump_clock, how):
    ours, theirs = MemoryTransport.pair()
    options = ClientOptions(revisions=(R2025_11_25,), probe_timeout=5)
    with trio.move_on_after(1 if how == "cancel" else 100), contextlib.suppress(MCPError):
        await MCPClient(ours, options=options).__aenter__()
    peer = ScriptedPeer(theirs)
    assert (await peer.hear()).method == "initialize"
    with pytest.raises(trio.EndOfChannel):
        await peer.hear()  # LC4
    await theirs.aclose()


class Impatient:
    """A server that asks while it is still being told that the client is ready."""

    def __init__(self):
        self.says, self._says = trio.open_memory_channel(10)
        self.answer = None

    async def send(self, envelope):
        await trio.lowlevel.checkpoint()
        match envelope.message:
            case Request(method="initialize") as request:
                await self.says.send(Envelope(Result(request.id, INITIALIZED)))
            case Notification(method="notifications/initialized"):
                await self.says.send(Envelope(Request("mine", "roots/list", {})))
                await trio.testing.wait_all_tasks_blocked()
            case message:
                self.answer = message

    async def receive(self):
        return await self._says.receive()

    async def pump(self):
        await trio.sleep_forever()

    def abandon(self, request_id):
        return False

    async def aclose(self):
        await self.says.aclose()
        await self._says.aclose()


async def test_a_server_may_ask_as_soon_as_it_hears_that_the_client_is_ready():
    server = Impatient()
    callbacks = ClientCallbacks(roots=lambda: [Root(uri="file:///a")])
    options = ClientOptions(revisions=(R2025_11_25,))
    async with MCPClient(server, callbacks=callbacks, options=options):
        assert server.answer == Result("mine", {"roots": [{"uri": "file:///a"}]})


async def test_a_forced_revision_is_not_probed_for():
    answers = {"initialize": result(INITIALIZED)}
    assert await _connect(answers, revisions=(R2025_11_25,)) == (R2025_11_25, ["initialize"])


async def test_a_server_that_chooses_a_revision_nobody_knows_is_left():
    answers = {"initialize": result({**INITIALIZED, "protocolVersion": "1999-01-01"})}
    with pytest.raises(VersionMismatchError, match="1999-01-01"):
        await _connect(answers, revisions=(R2025_11_25,))


async def test_a_failed_connection_is_a_plain_exception():
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        for listener in listeners:
            await listener.aclose()
        with pytest.raises(TransportError):
            async with MCPClient(f"http://127.0.0.1:{port}/mcp"):
                raise AssertionError("connected to nothing")
        nursery.cancel_scope.cancel()


async def test_an_exception_of_the_block_surfaces_as_itself():
    server, _ = make_server()
    with pytest.raises(KeyError, match="mine"):
        async with MCPClient(server):
            raise KeyError("mine")


async def test_several_real_exceptions_stay_a_group():
    server, _ = make_server()

    async def fail(number):
        raise ValueError(number)

    with pytest.raises(ExceptionGroup) as caught:
        async with MCPClient(server), trio.open_nursery() as nursery:
            nursery.start_soon(fail, 1)
            nursery.start_soon(fail, 2)
    assert {error.args[0] for error in caught.value.exceptions} == {1, 2}


async def test_connecting_twice_and_using_it_unconnected_are_errors():
    server, _ = make_server()
    client = MCPClient(server)
    with pytest.raises(TransportClosedError):
        await client.call_tool("add")
    async with client:
        with pytest.raises(AlreadyConnectedError) as caught:
            await client.__aenter__()
        assert caught.value.code == "MCP.ALREADY_CONNECTED"
    with pytest.raises(AlreadyConnectedError):
        await client.__aenter__()


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("ftp://example.com", "not a URL of a scheme we know"),
        ("python server.py", "a command is a list"),
        ([], "list of text"),
        (b"python", "list of text"),
        (["python", 3], "list of text"),
        (7, "not a URL, a command, a server or a transport"),
        (None, "not a URL, a command, a server or a transport"),
    ],
)
async def test_a_target_that_is_none_is_refused(target, told):
    with pytest.raises(ConfigurationError, match=told):
        MCPClient(target)
    await trio.lowlevel.checkpoint()


# -- the order of closing --------------------------------------------------------------


async def works(client):
    result = await client.call_tool("add", {"a": 1, "b": 1})
    return result.structured_content == {"result": 2}


async def test_closing_in_the_order_of_opening_says_what_to_do_and_closes_nothing():
    server, _ = make_server()
    first, second = MCPClient(server), MCPClient(server)
    await first.__aenter__()
    await second.__aenter__()
    with pytest.raises(RuntimeError, match="closed before it"):
        await first.__aexit__(None, None, None)
    assert await works(first)
    assert await works(second)
    await second.__aexit__(None, None, None)
    assert await works(first)
    await first.__aexit__(None, None, None)


async def test_another_task_may_use_a_client_and_is_told_that_it_cannot_close_it():
    server, _ = make_server()
    client = MCPClient(server)

    async def other():
        assert await works(client)
        with pytest.raises(RuntimeError, match="by the task that opened it"):
            await client.__aexit__(None, None, None)
        assert await works(client)

    async with client, trio.open_nursery() as nursery:
        nursery.start_soon(other)


async def test_clients_may_be_handed_from_one_exit_stack_to_another():
    server, _ = make_server()
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(MCPClient(server)) for _ in range(2)]
        taken_over = stack.pop_all()
    for client in clients:
        assert await works(client)
    await taken_over.aclose()
    for client in clients:
        with pytest.raises(TransportClosedError):
            await works(client)


async def test_clients_in_tasks_of_their_own_are_closed_in_any_order():
    server, _ = make_server()
    closed = []

    async def use(name, until, then):
        async with MCPClient(server) as client:
            await until.wait()
            assert await works(client)
        closed.append(name)
        then.set()

    first, second, done = trio.Event(), trio.Event(), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(use, "first", first, second)
        nursery.start_soon(use, "second", second, done)
        first.set()
    assert closed == ["first", "second"]


async def test_a_server_that_hangs_up_on_the_question_is_called_again():
    heard = []

    async def serve(stream):
        line = LineTransport(stream, stream)
        message = (await line.receive()).message
        heard.append(message.method)
        if message.method == "initialize":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(line.pump)
                await line.send(Envelope(Result(message.id, INITIALIZED)))
                await line.receive()  # the end of the handshake
                nursery.cancel_scope.cancel()
        await line.aclose()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        async with MCPClient(f"tcp://127.0.0.1:{port}") as client:
            assert client.revision is R2025_11_25
        nursery.cancel_scope.cancel()
    assert heard == ["server/discover", "initialize"]


@pytest.mark.parametrize("scheme", ["tcp", "ws", "http"])
async def test_a_server_that_hangs_up_at_once_is_what_is_told_of(scheme):
    async def serve(stream):
        await stream.aclose()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        for _ in range(5):  # it may win or lose the race with the first message
            with pytest.raises(TransportError):
                await MCPClient(f"{scheme}://127.0.0.1:{port}").__aenter__()
        nursery.cancel_scope.cancel()


async def test_a_transport_of_the_callers_cannot_be_opened_again():
    ours, theirs = MemoryTransport.pair()

    async def hang_up():
        await theirs.receive()
        await theirs.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hang_up)
        with pytest.raises(TransportError, match="closed the line"):
            await MCPClient(ours).__aenter__()


@pytest.mark.parametrize("step", range(1, 45))
async def test_connecting_can_be_cancelled_at_any_step(step):
    server, _ = make_server()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def connect():
                async with MCPClient(server) as client:
                    await client.call_tool("add", {"a": 1, "b": 1})

            nursery.start_soon(connect)
            for _ in range(step):
                await trio.lowlevel.checkpoint()
            scope.cancel()


async def test_one_bad_tool_does_not_cost_the_others(caplog):
    tools = [
        {"name": "good", "inputSchema": {"type": "object"}},
        {"name": "no schema"},
        {
            "name": "bad header",
            "inputSchema": {
                "type": "object",
                "properties": {"a": {"type": "number", "x-mcp-header": "A"}},
            },
        },
        7,
    ]
    ours, theirs = MemoryTransport.pair()
    async with trio.open_nursery() as nursery:
        answers = {"server/discover": result(DISCOVERED), "tools/list": result({"tools": tools})}
        nursery.start_soon(_script, ScriptedPeer(theirs), answers)
        async with MCPClient(ours) as client:
            assert [tool.name async for tool in client.tools()] == ["good"]
    assert caplog.text.count("is left out") == 3
    await theirs.aclose()


async def test_cursors_that_go_round_are_noticed_and_an_empty_one_is_a_cursor():
    pages = {None: "", "": "next", "next": "next"}

    def page(request):
        cursor = request.params.get("cursor")
        return Result(request.id, {"tools": [], "nextCursor": pages[cursor]})

    ours, theirs = MemoryTransport.pair()
    async with trio.open_nursery() as nursery:
        answers = {"server/discover": result(DISCOVERED), "tools/list": page}
        nursery.start_soon(_script, ScriptedPeer(theirs), answers)
        async with MCPClient(ours) as client:
            with pytest.raises(MCPError, match="circles"):
                async for _ in client.tools():
                    raise AssertionError("there are no tools")
    await theirs.aclose()


async def test_a_result_of_an_unknown_type_is_an_error():
    ours, theirs = MemoryTransport.pair()
    async with trio.open_nursery() as nursery:
        answers = {
            "server/discover": result(DISCOVERED),
            "tools/call": result({"resultType": "surprise", "content": []}),
        }
        nursery.start_soon(_script, ScriptedPeer(theirs), answers)
        async with MCPClient(ours) as client:
            with pytest.raises(MCPError, match="type"):
                await client.call_tool("x")
    await theirs.aclose()


async def test_revisions_may_be_named_by_date_and_a_wrong_date_is_refused():
    assert ClientOptions(revisions=("2025-11-25",)).revisions == (R2025_11_25,)
    for wrong in (("1999-01-01",), ()):
        with pytest.raises(ConfigurationError):
            ClientOptions(revisions=wrong)
    await trio.lowlevel.checkpoint()


async def test_an_error_of_the_peer_is_of_the_kind_it_names_or_its_number_means():
    server, _ = make_server()
    async with MCPClient(server) as client:
        for method, params, code in (
            ("tools/call", {"name": "nope"}, "MCP.NOT_FOUND"),
            ("tools/call", {}, "MCP.INVALID_PARAMS"),
            ("no/such", {}, "MCP.METHOD_NOT_FOUND"),
        ):
            with pytest.raises(MCPError) as caught:
                await client.call(method, params)
            assert caught.value.code == code
    assert RemoteError("m", rpc_code=-32601).code == "MCP.METHOD_NOT_FOUND"
    assert RemoteError("m", rpc_code=7, data={"code": "other"}).code == "MCP.INTERNAL_ERROR"


async def test_a_call_refused_for_its_headers_is_sent_again_once_the_tools_are_known():
    async def region_of(client):
        return (await client.call_tool("query", {"region": "eu"})).content[0].text

    def offer(name):
        Region = Annotated[str, msgspec.Meta(extra_json_schema={"x-mcp-header": name})]  # noqa: N806 - a type

        async def query(region: Region) -> str:
            runs.append(name)
            return region

        server.add_tool(query)

    server, runs = MCPServer("mirrored", options=ServerOptions(page_size=1)), []
    server.add_tool(lambda: "another page", name="first")
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(server.serve_http, "127.0.0.1", 0)
        async with MCPClient(url) as client:
            offer("Region")
            assert await region_of(client) == "eu"  # never listed
            server.remove_tool("query")
            offer("Area")
            assert await region_of(client) == "eu"  # listed, and changed since
        nursery.cancel_scope.cancel()
    assert runs == ["Region", "Area"]


async def test_a_call_that_is_refused_for_its_headers_again_is_an_error():
    def refuse(request):
        calls.append(request)
        return Error(request.id, -32020, "Header mismatch")

    ours, theirs = MemoryTransport.pair()
    calls = []
    async with trio.open_nursery() as nursery:
        answers = {
            "server/discover": result(DISCOVERED),
            "tools/list": result({"tools": []}),
            "tools/call": refuse,
        }
        nursery.start_soon(_script, ScriptedPeer(theirs), answers)
        async with MCPClient(ours) as client:
            with pytest.raises(RemoteError, match="Header mismatch"):
                await client.call_tool("any")
    assert len(calls) == 2
    await theirs.aclose()
