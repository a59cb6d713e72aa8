"""All 15 error codes, each raised by a real path and seen by whoever is meant to see it."""

import pytest
import trio
import trio.testing

from mcp_trio import ClientOptions, Context, ErrorCode, MCPClient, MCPServer, ServerOptions
from mcp_trio.errors import (
    AlreadyConnectedError,
    DuplicateRegistrationError,
    RemoteError,
    RequestCancelledError,
    RequestTimeoutError,
    TransportClosedError,
    TransportError,
)
from mcp_trio.jsonrpc.messages import Error, Result
from mcp_trio.testing import ScriptedPeer
from mcp_trio.transports.memory import MemoryTransport
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28
from tests.scenarios.manifest import in_worlds
from tests.scenarios.worlds import WORLDS, world

everywhere = in_worlds(WORLDS)
walked: set[ErrorCode] = set()
"""What the tests of this module have seen."""


def make_server(**options):
    server = MCPServer("s", options=ServerOptions(**options))

    @server.tool
    async def hold() -> None:
        await trio.sleep_forever()

    @server.prompt
    def broken() -> str:
        raise RuntimeError("secret")

    @server.resource("test://a")
    def a() -> str:
        return "a"

    return server


def saw(error, code: ErrorCode, rpc_code: int | None = None):
    """Note a code, and see that it travelled where there is room for it."""
    assert error.code is code
    if rpc_code is not None:
        assert error.rpc_code == rpc_code
    walked.add(code)


@everywhere
async def test_codes_that_a_server_answers_with(transport, revision):
    server = make_server()
    server.authorize("tools/call")(lambda context: context.target != "hold")
    async with world(server, transport, revision) as client:

        async def fault(method, params=None) -> RemoteError:
            with pytest.raises(RemoteError) as caught:
                await client.call(method, params)
            return caught.value

        saw(await fault("no/such/method"), ErrorCode.METHOD_NOT_FOUND, -32601)
        saw(await fault("tools/call", {"name": 5}), ErrorCode.INVALID_PARAMS, -32602)
        saw(await fault("tools/call", {"name": "none"}), ErrorCode.NOT_FOUND, -32602)
        saw(await fault("prompts/get", {"name": "none"}), ErrorCode.NOT_FOUND, -32602)
        saw(
            await fault("resources/read", {"uri": "test://none"}),
            ErrorCode.NOT_FOUND,
            revision.resource_not_found,
        )
        saw(await fault("tools/call", {"name": "hold"}), ErrorCode.UNAUTHORIZED, 1401)
        failed = await fault("prompts/get", {"name": "broken"})
        saw(failed, ErrorCode.HANDLER_FAILED, -32603)
        assert "secret" not in f"{failed} {failed.data}"


@pytest.mark.parametrize("revision", [R2025_11_25, R2026_07_28], ids=str)
async def test_a_request_that_takes_too_long(revision, autojump_clock):
    async with world(make_server(request_timeout=3), "memory", revision) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("hold")
        saw(caught.value, ErrorCode.TIMEOUT, -32603)
        with pytest.raises(RequestTimeoutError) as caught:
            await client.call_tool("hold", timeout=1)
        saw(caught.value, ErrorCode.TIMEOUT)


@pytest.mark.parametrize("revision", [R2025_11_25, R2026_07_28], ids=str)
async def test_a_fault_of_ours_is_an_internal_error(revision):
    server = make_server()

    @server.middleware
    async def wrong(context: Context, call_next):
        result = await call_next(context)
        if context.method == "tools/list":
            return object()  # no result of any method, which nobody notices before it is sealed
        return result

    async with world(server, "memory", revision) as client:
        with pytest.raises(RemoteError) as caught:
            await client.list_tools()
        # The one who gets it cannot tell a bug of a handler from one of ours.
        assert caught.value.rpc_code == -32603
    answer = await scripted_client({"code": -32603, "message": "ouch"})
    saw(answer, ErrorCode.INTERNAL_ERROR, -32603)


async def scripted_client(error):
    """A client whose server answers `server/discover`, and a call with an error."""
    ours, theirs = MemoryTransport.pair()
    peer, caught = ScriptedPeer(theirs), []

    async def call():
        options = ClientOptions(revisions=(R2025_11_25,))
        async with MCPClient(ours, options=options) as client:
            try:
                await client.call_tool("x")
            except RemoteError as fault:
                caught.append(fault)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await answer_initialize(peer)
        asked = await peer.hear()
        await peer.say(Error(asked.id, error["code"], error["message"], None))
    return caught[0]


async def answer_initialize(peer, version="2025-11-25"):
    asked = await peer.hear()
    result = {
        "protocolVersion": version,
        "capabilities": {},
        "serverInfo": {"name": "x", "version": "1"},
    }
    await peer.say(Result(asked.id, result))
    if version == "2025-11-25":
        assert (await peer.hear()).method == "notifications/initialized"


async def test_malformed_messages_and_calls_before_the_handshake():
    ours, theirs = MemoryTransport.pair()
    peer = ScriptedPeer(ours)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(make_server().serve, theirs)
        await peer.ask(1, "tools/list")
        refused = await peer.hear_error()
        assert (refused.code, refused.data["code"]) == (-32600, "MCP.NOT_INITIALIZED")
        walked.add(ErrorCode.NOT_INITIALIZED)
        await ours._outgoing.send(b'{"jsonrpc":"2.0","id":1,"method":')
        refused = await peer.hear_error()
        assert (refused.code, refused.data["code"]) == (-32700, "MCP.PROTOCOL_INVALID")
        await ours._outgoing.send(b'{"jsonrpc":"1.0","id":1,"method":"ping"}')
        refused = await peer.hear_error()
        assert (refused.code, refused.data["code"]) == (-32600, "MCP.PROTOCOL_INVALID")
        walked.add(ErrorCode.PROTOCOL_INVALID)
        nursery.cancel_scope.cancel()


async def test_no_revision_in_common():
    ours, theirs = MemoryTransport.pair()
    peer = ScriptedPeer(ours)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(make_server().serve, theirs)
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2099-01-01",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        await peer.ask(1, "tools/list", {"_meta": meta})
        refused = await peer.hear_error()
        assert refused.code == -32022
        assert refused.data["requested"] == "2099-01-01"
        nursery.cancel_scope.cancel()
    ours, theirs = MemoryTransport.pair()
    with pytest.RaisesGroup(
        pytest.RaisesExc(Exception, check=lambda e: e.code is ErrorCode.PROTOCOL_VERSION_MISMATCH),
        flatten_subgroups=True,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_initialize, ScriptedPeer(theirs), "1999-01-01")
            async with MCPClient(ours, options=ClientOptions(revisions=(R2025_11_25,))):
                pass
    walked.add(ErrorCode.PROTOCOL_VERSION_MISMATCH)


async def test_local_misuse_is_told_locally():
    server = make_server()
    with pytest.raises(DuplicateRegistrationError) as caught:
        server.add_tool(lambda: "x", name="hold")
    saw(caught.value, ErrorCode.DUPLICATE_REGISTRATION)
    client = MCPClient(server)
    async with client:
        pass
    with pytest.raises(AlreadyConnectedError) as caught:
        async with client:
            pass
    saw(caught.value, ErrorCode.ALREADY_CONNECTED)
    with pytest.raises(TransportClosedError) as caught:
        await client.list_tools()
    saw(caught.value, ErrorCode.TRANSPORT_CLOSED)


async def test_a_line_that_breaks():
    ours, theirs = MemoryTransport.pair()
    caught = []

    async def call(*, task_status):
        options = ClientOptions(revisions=(R2025_11_25,))
        async with MCPClient(ours, options=options) as client:
            task_status.started()
            with pytest.raises(TransportError) as fault:
                await client.call_tool("x")
            caught.append(fault.value)

    async with trio.open_nursery() as nursery:
        peer = ScriptedPeer(theirs)
        nursery.start_soon(nursery.start, call)
        await answer_initialize(peer)
        await peer.hear()
        await theirs.aclose()
    saw(caught[0], ErrorCode.TRANSPORT_ERROR)


@pytest.mark.parametrize("revision", [R2025_11_25, R2026_07_28], ids=str)
async def test_asking_in_a_request_that_was_cancelled(revision):
    """It is never sent: whoever hears of it is a task that the request does not own."""
    server, caught, began = make_server(), [], trio.Event()
    contexts = []

    @server.tool
    async def leave(ctx: Context) -> None:
        contexts.append(ctx)
        began.set()
        await trio.sleep_forever()

    async with world(server, "memory", revision) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "leave")
            await began.wait()
            nursery.cancel_scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        (context,) = contexts
        context.capabilities = {"roots": {}}
        with pytest.raises(RequestCancelledError) as fault:
            await context.list_roots()
        caught.append(fault.value)
    saw(caught[0], ErrorCode.REQUEST_CANCELLED)


def test_every_code_was_walked(request):
    """Last in the module: the tests above have seen all of them, and there are 15."""
    here = [item for item in request.session.items if item.path == request.path]
    chosen = {item.originalname for item in here}
    mine = {name for name in globals() if name.startswith("test_")}
    if not mine <= chosen:
        pytest.skip("needs all other tests of this module in the same run")
    assert walked == set(ErrorCode)
    assert len(ErrorCode) == 15
