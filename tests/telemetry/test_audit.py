"""The audit log: each call once, with its outcome and without its arguments."""

import hashlib
import hmac
import json
from pathlib import Path

import pytest
import trio

import mcp_trio
from mcp_trio.catalog.actor import CatalogActor
from mcp_trio.catalog.searching import SearchableTools
from mcp_trio.engine.envelope import Envelope, Principal
from mcp_trio.errors import MCPError
from mcp_trio.events import ToolCompleted
from mcp_trio.jsonrpc.messages import Request
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.stages import ERROR_KEY
from mcp_trio.telemetry import audit
from mcp_trio.telemetry.audit import AuditLog
from mcp_trio.telemetry.line_writer import LineWriter
from mcp_trio.telemetry.plain_text import MAX_TEXT
from mcp_trio.wire import CallToolResult, TextContent
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28
from tests.catalog.conftest import MemoryRegistry
from tests.cli.test_serve import HELLO
from tests.programs import ROOT
from tests.scenarios.worlds import world

both_eras = pytest.mark.parametrize("revision", [R2025_11_25, R2026_07_28], ids=str)
KEY = bytes(range(32))


class Lines:
    """A writer that keeps lines, or fails."""

    def __init__(self):
        self.lines = []
        self.works = True

    def put(self, line):
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        self.lines.append(json.loads(line))
        return True

    async def put_and_wait(self, line, patience):
        await trio.lowlevel.checkpoint()
        return self.works and self.put(line)


def make_server(log):
    server = mcp_trio.MCPServer("audited", options=mcp_trio.ServerOptions(request_timeout=30))
    server.add_middleware(log)
    record = {"ran": 0, "began": trio.Event()}

    @server.tool
    async def good(secret: str) -> str:
        record["ran"] += 1
        return "ok"

    @server.tool
    async def bad(secret: str) -> CallToolResult:
        told = {"stage": "mapping", "sub": "mapping", "code": "no"}
        return CallToolResult(
            content=[TextContent(text=secret)], is_error=True, meta={ERROR_KEY: told}
        )

    @server.tool
    async def broken(secret: str) -> str:
        raise ValueError(secret)

    @server.tool
    async def hold(secret: str) -> str:
        record["began"].set()
        await trio.sleep_forever()

    @server.tool
    async def ask(secret: str, ctx: mcp_trio.Context) -> str:
        await ctx.elicit("really?", {"type": "object", "properties": {}})
        return "done"

    @server.tool(authorize=lambda context: False)
    async def closed(secret: str) -> str:
        return "never"

    return server, record


def outcomes(lines):
    return [(line["tool"], line["outcome"]) for line in lines.lines]


@both_eras
async def test_every_call_is_written_once_with_its_outcome(revision, autojump_clock):
    lines = Lines()
    server, record = make_server(AuditLog(lines, key=KEY))
    arguments = {"secret": "hidden-canary"}
    async with world(server, "memory", revision) as client:
        await client.call_tool("good", arguments)
        await client.call_tool("bad", arguments)
        await client.call_tool("broken", arguments)
        for name in ("closed", "no such tool"):
            with pytest.raises(MCPError):
                await client.call_tool(name, arguments)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "hold", arguments)
            await record["began"].wait()
            nursery.cancel_scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(MCPError):
            await client.call_tool("hold", arguments)
        await client.list_tools()
    assert outcomes(lines) == [
        ("good", "success"),
        ("bad", "error"),
        ("broken", "error"),
        ("closed", "refused"),
        ("no such tool", "error"),
        ("hold", "cancelled"),
        ("hold", "error"),
    ]
    told = [line.get("code") for line in lines.lines]
    assert told == [None, "no", None, "MCP.UNAUTHORIZED", "MCP.NOT_FOUND", None, "MCP.TIMEOUT"]
    assert lines.lines[1]["stage"] == "mapping"
    assert lines.lines[6]["duration_ms"] == pytest.approx(30_000, abs=10)
    assert "canary" not in json.dumps(lines.lines)
    # The same arguments in any order of keys have the same digest, and it needs the key.
    wanted = hmac.new(KEY, b'{"secret":"hidden-canary"}', hashlib.sha256).hexdigest()
    assert {line["arguments_hmac"] for line in lines.lines} == {wanted}
    assert len({line["hmac_key"] for line in lines.lines}) == 1


@both_eras
async def test_a_call_over_a_limit_of_its_tool_is_refused_and_says_which(revision):
    lines = Lines()
    server = mcp_trio.MCPServer("audited")
    server.add_middleware(AuditLog(lines, key=KEY))

    @server.tool(rate=mcp_trio.Rate(per_minute=1, burst=1))
    async def seldom() -> str:
        return "ok"

    ended = []
    with server.events.attach(ended.append):
        async with world(server, "memory", revision) as client:
            await client.call_tool("seldom")
            with pytest.raises(MCPError):
                await client.call_tool("seldom")
    told = [(line["outcome"], line.get("code"), line.get("limit")) for line in lines.lines]
    assert told == [("success", None, None), ("refused", "overloaded", "tool_rate")]
    codes = [each.code for each in ended if isinstance(each, ToolCompleted)]
    assert codes == [None, "overloaded"]


async def test_the_digest_is_the_one_that_the_page_for_operators_shows_how_to_verify():
    lines = Lines()
    server = mcp_trio.MCPServer("audited")
    key = bytes.fromhex("00112233445566778899aabbccddeeff" * 2)
    server.add_middleware(AuditLog(lines, key=key))

    @server.tool
    async def search(city: str, limit: float) -> str:
        return "ok"

    async with world(server, "websocket", R2026_07_28) as client:
        await client.call_tool("search", {"limit": 1e22, "city": "K\u00f6ln"})
    page = (ROOT / "docs" / "operating.md").read_text()
    (line,) = lines.lines
    for told in (line["arguments_hmac"], line["hmac_key"]):
        assert f"\n{told}\n" in page


@both_eras
async def test_a_call_that_asks_is_written_for_each_of_its_rounds(revision):
    lines = Lines()
    server, _ = make_server(AuditLog(lines))

    callbacks = mcp_trio.ClientCallbacks(elicitation=lambda _: {})
    async with world(server, "memory", revision, callbacks) as client:
        await client.call_tool("ask", {"secret": "x"})
    rounds = 1 if revision is R2025_11_25 else 2
    assert [line["outcome"] for line in lines.lines][-1] == "success"
    assert len(lines.lines) == rounds
    assert all(line["outcome"] == "input_required" for line in lines.lines[:-1])


async def test_it_says_who_called_in_which_session():
    lines = Lines()
    server, _ = make_server(AuditLog(lines))
    ours, theirs = mcp_trio.MemoryTransport.pair()
    who = Principal(subject="ada", issuer="https://idp.example")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            lambda: server.serve(theirs, principal=who),
        )
        options = mcp_trio.ClientOptions(revisions=(R2025_11_25,))
        async with mcp_trio.MCPClient(ours, options=options) as client:
            await client.call_tool("good", {"secret": "x"})
        nursery.cancel_scope.cancel()
    (line,) = lines.lines
    assert (line["principal"], line["issuer"]) == ("ada", "https://idp.example")
    assert line["session"].startswith("server-")
    assert line["revision"] == str(R2025_11_25)
    assert line["event"] == "tool.end"


@pytest.mark.parametrize(
    ("info", "told"),
    [
        (None, None),
        ({}, None),
        ({"name": "", "version": 5}, None),
        ({"name": "agent"}, "agent"),
        ({"version": "2"}, "2"),
        ({"name": "agent", "version": "2"}, "agent 2"),
        ({"name": "n" * 5000, "version": "2"}, "n" * MAX_TEXT),
    ],
)
async def test_a_client_is_called_what_it_calls_itself_and_nothing_if_it_does_not(info, told):
    lines = Lines()
    server, _ = make_server(AuditLog(lines))
    ours, theirs = mcp_trio.MemoryTransport.pair()
    meta = {
        "io.modelcontextprotocol/protocolVersion": R2026_07_28.date,
        "io.modelcontextprotocol/clientCapabilities": {},
        **({} if info is None else {"io.modelcontextprotocol/clientInfo": info}),
    }
    params = {"name": "good", "arguments": {"secret": "x"}, "_meta": meta}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, theirs)
        await ours.send(Envelope(Request(1, "tools/call", params)))
        await ours.receive()
        nursery.cancel_scope.cancel()
    (line,) = lines.lines
    assert (line["outcome"], line["client"]) == ("success", told)
    assert (line["principal"], line["issuer"]) == (None, None)


async def test_where_it_is_required_the_beginning_is_written_before_the_call():
    lines = Lines()
    server, record = make_server(AuditLog(lines, required=True))
    async with world(server, "memory", R2026_07_28) as client:
        await client.call_tool("good", {"secret": "x"})
        assert [line["event"] for line in lines.lines] == ["tool.begin", "tool.end"]
        assert "outcome" not in lines.lines[0]
        lines.works = False
        with pytest.raises(MCPError, match="cannot be recorded"):
            await client.call_tool("good", {"secret": "x"})
        assert record["ran"] == 1
        lines.works = True
        await client.call_tool("good", {"secret": "x"})
    assert record["ran"] == 2


async def test_a_tool_that_is_called_through_another_one_is_named_with_its_operation():
    lines = Lines()
    server = mcp_trio.MCPServer("searched")
    server.add_middleware(AuditLog(lines))
    registry = MemoryRegistry(HELLO)
    actor = CatalogActor(registry, Compiler(Connections([])))
    server.add_provider(SearchableTools(actor, above=0))
    async with trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        await actor.ready.wait()
        async with world(server, "memory", R2026_07_28) as client:
            await client.call_tool("call_tool", {"name": "hello", "arguments": {}})
            await client.call_tool("call_tool", {"name": "no such tool"})
            with pytest.raises(MCPError):  # it can be called in the other way only
                await client.call_tool("hello", {})
            await client.call_tool("search_tools", {"query": "hello"})
        nursery.cancel_scope.cancel()
    told = [(each["tool"], each["through"], each.get("operation_id")) for each in lines.lines]
    assert told == [
        ("hello", "call_tool", "hello"),
        ("no such tool", "call_tool", None),
        ("hello", None, None),
        ("search_tools", None, None),
    ]
    assert len(lines.lines[0]["operation_revision"]) > 8


@pytest.mark.parametrize("required", [False, True])
async def test_a_full_disk_stops_calls_only_where_the_log_is_required(required, monkeypatch):
    monkeypatch.setattr(audit, "PATIENCE", 0.05)
    told = []
    writer = LineWriter(Path("/dev/full"), "the audit log", report=told.append)
    server, record = make_server(AuditLog(writer, required=required))
    with trio.fail_after(20):
        async with writer.running(), world(server, "memory", R2026_07_28) as client:
            if required:
                with pytest.raises(MCPError, match="cannot be recorded"):
                    await client.call_tool("good", {"secret": "x"})
            else:
                await client.call_tool("good", {"secret": "x"})
    assert record["ran"] == (0 if required else 1)
    assert told == [
        "the audit log cannot be written: No space left on device",
        "the audit log has lost 1 lines",
    ]
    writer.close()


def test_without_a_key_of_its_own_each_log_has_another_one():
    one, two = AuditLog(Lines()), AuditLog(Lines())
    assert one._digest(b"{}") != two._digest(b"{}")
