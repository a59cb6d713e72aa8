"""Requests to upstreams are watched: a span for each attempt, and its `traceparent` goes along."""

import trio
from opentelemetry.trace import SpanKind, StatusCode

from mcp_trio.runtime import watching
from mcp_trio.telemetry.tracing import Tracing
from tests.runtime.conftest import make_context
from tests.telemetry.test_tracing import PARENT, Tracer


async def called(bench, context=None, tracer=None, **changes):
    """Call an operation within the span of a request."""
    tracer = tracer or Tracer()
    operation, context = bench.compile(**changes), context or make_context()

    async def handler(context):
        return await operation.call(context, {"id": "1"})

    await Tracing(tracer.provider).serve(context, handler)
    return tracer.spans


def traceparent(span):
    found = span.get_span_context()
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"


async def test_an_attempt_is_a_child_of_its_request_and_the_upstream_is_told_of_it(bench, upstream):
    upstream.says({"ok": True})
    context = make_context()
    context.meta = {"traceparent": PARENT, "baggage": "private=1"}
    attempt, request = await called(bench, context)
    assert (attempt.name, attempt.kind) == ("crm crm.leads.get", SpanKind.CLIENT)
    assert attempt.parent.span_id == request.get_span_context().span_id
    assert attempt.attributes["http.response.status_code"] == 200
    assert attempt.attributes["mcp_trio.operation.id"] == "crm.leads.get"
    assert upstream.last.header("traceparent") == traceparent(attempt)
    assert upstream.last.header("traceparent").split("-")[1] == PARENT.split("-")[1]
    assert upstream.last.header("baggage") is None


async def test_each_attempt_has_a_span_of_its_own_and_says_how_it_failed(
    bench, upstream, autojump_clock
):
    upstream.says({"error": "canary"}, status=503)
    spans = await called(bench, execution_config={"retry": {"max_attempts": 2}})
    *attempts, request = spans
    assert len(attempts) == 2
    told = [seen.header("traceparent") for seen in upstream.seen]
    assert told == [traceparent(span) for span in attempts]
    for span in attempts:
        assert span.attributes["error.type"] == "503"
        assert span.status.status_code is StatusCode.ERROR
        assert "canary" not in str(span.attributes) + str(span.status.description)
    assert request.attributes["error.type"] == "tool_error"


async def test_one_that_reached_nobody_says_why(make_bench):
    bench = make_bench("http://127.0.0.1:9")
    async with bench.connections:
        attempt, _ = await called(bench)
    assert attempt.attributes["error.type"] == "connect"
    assert "http.response.status_code" not in attempt.attributes


async def test_one_that_is_cancelled_ends_its_span(bench, upstream):
    upstream.handler = upstream.hang
    tracer = Tracer()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: called(bench, tracer=tracer))
        await upstream.asked.wait()
        nursery.cancel_scope.cancel()
    assert [span.attributes["error.type"] for span in tracer.spans] == ["cancelled"] * 2


async def test_what_an_operation_itself_sends_is_not_replaced(bench, upstream):
    upstream.says({})
    mapping = {"path": {"id": "=args.id"}, "headers": {"traceparent": "mine"}}
    await called(bench, input_mapping=mapping)
    assert upstream.last.header("traceparent") == "mine"


async def test_nobody_watches_by_default(bench, upstream):
    upstream.says({})
    await bench.call()
    assert upstream.last.header("traceparent") is None
    assert watching.WATCHER.get() is None
    assert watching.fields() == {}
