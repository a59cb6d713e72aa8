"""Spans of both sides, and the trace context that travels in `_meta` (ME3)."""

import pytest
import trio
import trio.testing
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from mcp_trio import (
    ClientCallbacks,
    Context,
    MCPServer,
    NotFoundError,
    RemoteError,
    ServerOptions,
    ToolError,
)
from mcp_trio.telemetry.instrument import instrument
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28
from tests.scenarios.manifest import in_worlds
from tests.scenarios.worlds import WORLDS, world

everywhere = in_worlds(WORLDS)
both_eras = pytest.mark.parametrize("revision", [R2025_11_25, R2026_07_28], ids=str)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"


class Tracer:
    """A tracer provider, and the spans that ended."""

    def __init__(self):
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def spans(self):
        return self.exporter.get_finished_spans()


def make_server():
    server = MCPServer("s")

    @server.tool
    async def good(ctx: Context) -> str:
        inner = trace.get_current_span().get_span_context()
        await trio.lowlevel.checkpoint()
        return f"{inner.trace_id:032x}"

    @server.tool
    async def bad() -> str:
        raise ToolError("no")

    @server.tool
    async def broken() -> str:
        raise NotFoundError("gone")

    @server.resource("test://a")
    def a() -> str:
        return "a"

    return server


@everywhere
async def test_the_span_of_the_server_is_a_child_of_the_clients(transport, revision):
    server, here, there = make_server(), Tracer(), Tracer()
    async with world(server, transport, revision) as client:
        with (
            instrument(server, tracer_provider=there.provider),
            instrument(client, tracer_provider=here.provider),
        ):
            told = (await client.call_tool("good")).content[0].text
    (mine,), (yours,) = here.spans, there.spans
    assert mine.kind is SpanKind.CLIENT
    assert yours.kind is SpanKind.SERVER
    assert mine.name == yours.name == "tools/call good"
    assert yours.parent.span_id == mine.context.span_id
    assert yours.parent.is_remote
    assert told == f"{mine.context.trace_id:032x}"
    assert yours.attributes["gen_ai.tool.name"] == "good"
    assert yours.attributes["mcp.method.name"] == "tools/call"
    assert yours.attributes["mcp.protocol.version"] == revision.date


@both_eras
@pytest.mark.parametrize(
    "meta",
    [
        {"traceparent": "nonsense"},
        {"traceparent": "00-" + "0" * 32 + "-00f067aa0ba902b7-01"},
        {"traceparent": 7},
        {"traceparent": {"a": 1}},
        {"tracestate": "a=b"},
        {"baggage": "%%%=;,"},
        {"traceparent": PARENT.upper()},
    ],
)
async def test_what_cannot_be_read_is_ignored(revision, meta):
    server, tracer = make_server(), Tracer()
    async with world(server, "memory", revision) as client:
        with instrument(server, tracer_provider=tracer.provider):
            answer = await client.call("tools/call", {"name": "good", "_meta": meta})
    assert "isError" not in answer
    (span,) = tracer.spans
    assert span.parent is None


@both_eras
async def test_what_a_client_says_is_the_parent_with_its_state_and_baggage(revision):
    server, tracer = make_server(), Tracer()
    meta = {"traceparent": PARENT, "tracestate": "vendor=1"}
    async with world(server, "memory", revision) as client:
        with instrument(server, tracer_provider=tracer.provider):
            await client.call("resources/read", {"uri": "test://a", "_meta": meta})
    (span,) = tracer.spans
    assert f"{span.context.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{span.parent.span_id:016x}" == PARENT.split("-")[2]
    assert span.context.trace_state.get("vendor") == "1"
    # A URI has too many values for a name.
    assert (span.name, span.attributes["mcp.resource.uri"]) == ("resources/read", "test://a")


@both_eras
async def test_failures_are_marked_and_texts_of_bugs_are_not_told(revision):
    server, here, there = make_server(), Tracer(), Tracer()

    @server.prompt
    def bug() -> str:
        raise RuntimeError("secret")

    async with world(server, "memory", revision) as client:
        with (
            instrument(server, tracer_provider=there.provider),
            instrument(client, tracer_provider=here.provider),
        ):
            await client.call_tool("bad")
            with pytest.raises(Exception, match="gone"):
                await client.call_tool("broken")
            with pytest.raises(Exception, match="reference"):
                await client.call("prompts/get", {"name": "bug"})
    for spans in (here.spans, there.spans):
        assert [span.status.status_code for span in spans] == [StatusCode.ERROR] * 3
        assert [span.attributes["error.type"] for span in spans[:2]] == ["tool_error", "-32602"]
        assert not any("secret" in str(span.to_json()) for span in spans)


async def test_a_trace_that_the_caller_sets_itself_stays():
    server, tracer = make_server(), Tracer()
    async with world(server, "memory", R2026_07_28) as client:
        with (
            instrument(client, tracer_provider=Tracer().provider),
            instrument(server, tracer_provider=tracer.provider),
        ):
            await client.call("tools/call", {"name": "good", "_meta": {"traceparent": PARENT}})
    assert f"{tracer.spans[0].context.trace_id:032x}" == PARENT.split("-")[1]


@both_eras
async def test_what_was_cancelled_or_took_too_long_is_marked(revision, autojump_clock):
    server, here, there = (
        MCPServer("s", options=ServerOptions(request_timeout=3)),
        Tracer(),
        Tracer(),
    )

    @server.tool
    async def hold() -> None:
        await trio.sleep_forever()

    async with world(server, "memory", revision) as client:
        with (
            instrument(server, tracer_provider=there.provider),
            instrument(client, tracer_provider=here.provider),
        ):
            with pytest.raises(Exception, match="longer than"):
                await client.call_tool("hold")
            with trio.move_on_after(1):
                await client.call_tool("hold")
            await trio.testing.wait_all_tasks_blocked()
    assert [span.attributes["error.type"] for span in there.spans] == ["timeout", "cancelled"]
    assert [span.attributes["error.type"] for span in here.spans] == ["-32603", "cancelled"]


@both_eras
async def test_names_that_a_peer_makes_up_never_become_names_of_spans(revision):
    server, tracer = make_server(), Tracer()

    @server.prompt
    def hello() -> str:
        return "hello"

    @server.authorize("tools/call")
    def some(context):
        return not context.target.startswith("refused")

    async with world(server, "memory", revision) as client:
        with instrument(server, tracer_provider=tracer.provider):
            for name in ("missing", "refused", "x" * 10_000, "a\nb"):
                with pytest.raises(RemoteError):
                    await client.call_tool(name)
                with pytest.raises(RemoteError):
                    await client.call("prompts/get", {"name": name})
            await client.call("prompts/get", {"name": "hello"})
            await client.call_tool("good")
    assert {span.name for span in tracer.spans} == {
        "tools/call",
        "prompts/get",
        "prompts/get hello",
        "tools/call good",
    }
    assert all(len(str(v)) <= 256 for span in tracer.spans for v in span.attributes.values())


async def test_a_call_that_a_callback_of_the_client_fails_is_marked():
    server, tracer = make_server(), Tracer()

    @server.tool
    async def roots(ctx: Context) -> int:
        return len(await ctx.list_roots())

    def broken():
        raise RuntimeError("secret")

    callbacks = ClientCallbacks(roots=broken)
    async with world(server, "memory", R2026_07_28, callbacks) as client:
        with instrument(client, tracer_provider=tracer.provider):
            with pytest.raises(RuntimeError):
                await client.call_tool("roots")
    (span,) = tracer.spans
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "RuntimeError"
    assert "secret" not in span.to_json()


@pytest.mark.parametrize(
    ("transport", "revision", "known"),
    [
        ("http", R2026_07_28, {"network.transport": "tcp", "network.protocol.name": "http"}),
        ("http", R2025_11_25, {"network.transport": "tcp", "network.protocol.name": "http"}),
        ("websocket", R2025_11_25, {"network.transport": "tcp"}),
        ("memory", R2025_11_25, {}),
    ],
    ids=str,
)
async def test_a_span_says_what_carried_it_and_in_which_session(transport, revision, known):
    server, tracer = make_server(), Tracer()
    async with world(server, transport, revision) as client:
        with instrument(server, tracer_provider=tracer.provider):
            await client.call_tool("good")
            with pytest.raises(RemoteError):
                await client.call_tool("missing")
    good, missing = tracer.spans
    assert {key: good.attributes[key] for key in known} == known
    assert ("network.transport" in good.attributes) == bool(known)
    # A POST of the stateless era belongs to no session.
    assert ("mcp.session.id" in good.attributes) == (revision is R2025_11_25)
    assert missing.attributes["rpc.response.status_code"] == "-32602"
