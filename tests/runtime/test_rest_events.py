"""Answers that are streams: what is told as progress, what the result is, and what ends them."""

from __future__ import annotations

import h11
import pytest
import trio

from mcp_trio.catalog.operation import OperationError
from mcp_trio.runtime import expressions
from mcp_trio.runtime.adapters import rest_events
from mcp_trio.runtime.http_connection import Auth
from mcp_trio.secrets import Secret

TARGET = {"connection": "crm", "method": "POST", "path": "/run", "content_type": "none"}
SSE = "text/event-stream; charset=utf-8"


def streaming(stream=None, **changes):
    target = TARGET if stream is None else {**TARGET, "stream": stream}
    return {
        "target": target,
        "input_mapping": {},
        "execution_config": {"stream_progress": True},
        **changes,
    }


async def test_each_event_is_progress_and_the_last_is_the_result(bench, upstream, recorded):
    upstream.says(
        b': hi\n\nevent: step\ndata: {"at": 5, "of": 20, "say": "half <b>way</b>"}\n\n'
        b'data: {"at": 20,\ndata: "of": 20}\n\ndata: {"lost": "no blank line"',
        kind=SSE,
    )
    context, told = recorded()
    stream = {"progress": {"message": "=data.say", "value": "=data.at", "total": "=data.of"}}
    mapping = {"result": {"last": "=body.at", "events": "=events", "status": "=status"}}
    operation = bench.compile(**streaming(stream, output_mapping=mapping))
    result = await operation.call(context, {})
    assert result.structured_content == {"last": 20, "events": 2, "status": 200}
    assert told == [(5, 20, "half way"), (20, 20, None)]
    assert upstream.last.header("accept").startswith("text/event-stream, application/x-ndjson")


async def test_lines_of_json_are_collected(bench, upstream, recorded):
    upstream.says(b'{"a": 1}\r\n\n[2]\n"3"', kind="application/x-ndjson")
    context, told = recorded()
    result = await bench.compile(**streaming({"collect": "all"})).call(context, {})
    assert result.content[0].text == '[{"a":1},[2],"3"]'
    assert told == [(1, None, None), (2, None, None), (3, None, None)]


async def test_text_is_text_and_an_event_can_end_the_stream(bench, upstream):
    async def ends(line, seen):
        await line.head(200, [("content-type", SSE)])
        for part in (b"data: Hel\n\ndata: l\xc3", b"\xb6\n\ndata: [DO", b"NE]\n\n"):
            await line.stream.send_all(line.http.send(h11.Data(data=part)))
        await upstream.hang(line, seen)

    upstream.handler = ends
    stream = {"collect": "all", "until": "=data == '[DONE]'"}
    mapping = {"text": "=join('', body)"}
    result = await bench.call({}, **streaming(stream, output_mapping=mapping))
    assert result.content[0].text == "Hell\u00f6"
    # The socket is not left to an upstream that goes on.
    with trio.fail_after(5):
        await upstream.hung_up.wait()


async def test_each_event_is_told_when_it_comes_and_not_at_the_end(bench, upstream, recorded):
    first = trio.Event()

    async def handler(line, _seen):
        await line.head(200, [("content-type", SSE)])
        await line.stream.send_all(line.http.send(h11.Data(data=b"data: 1\n\n")))
        await first.wait()
        await line.stream.send_all(line.http.send(h11.Data(data=b"data: 2\n\n")))
        await line.stream.send_all(line.http.send(h11.EndOfMessage()))

    upstream.handler = handler
    context, told = recorded(first)
    with trio.fail_after(5):
        result = await bench.compile(**streaming()).call(context, {})
    assert [value for value, *_ in told] == [1, 2]
    assert result.content[0].text == "2"


@pytest.mark.parametrize("kind", [SSE, "application/x-ndjson"])
async def test_cancelling_closes_the_socket_in_the_middle_of_a_stream(bench, upstream, kind):
    async def handler(line, seen):
        await line.head(200, [("content-type", kind)])
        await line.stream.send_all(line.http.send(h11.Data(data=b"1\n\n")))
        nursery.cancel_scope.cancel()
        await upstream.hang(line, seen)

    upstream.handler = handler
    async with trio.open_nursery() as nursery:
        await bench.call({}, **streaming())
        pytest.fail("it was cancelled")
    with trio.fail_after(5):
        await upstream.hung_up.wait()


async def test_a_stream_that_stalls_meets_the_deadline(bench, upstream, failure):
    async def handler(line, seen):
        await line.head(200, [("content-type", SSE)])
        await line.stream.send_all(line.http.send(h11.Data(data=b"data: 1\n\n")))
        await upstream.hang(line, seen)

    upstream.handler = handler
    config = {"stream_progress": True, "timeout_ms": {"total": 200}}
    _, told = failure(await bench.call({}, **streaming(execution_config=config)))
    assert (told["sub"], told["code"]) == ("timeout", "total")
    with trio.fail_after(5):
        await upstream.hung_up.wait()


@pytest.mark.parametrize(
    ("body", "kind", "sub"),
    [
        (b"data: " + b"x" * 300 + b"\n\n", SSE, "response_bytes"),
        (b"1\n" * 200, "application/x-ndjson", "response_bytes"),
        (b"1\n{\n", "application/jsonl", "malformed_reply"),
        (b"1\n{", "application/ndjson", "malformed_reply"),
    ],
)
async def test_a_stream_is_bounded_and_has_to_be_sound(bench, upstream, failure, body, kind, sub):
    upstream.says(body, kind=kind)
    config = {"stream_progress": True, "limits": {"response_bytes": 200}}
    _, told = failure(await bench.call({}, **streaming(execution_config=config)))
    assert (told["stage"], told["sub"]) == ("adapter_execution", sub)


async def test_the_number_of_events_is_bounded(bench, upstream, failure, monkeypatch):
    monkeypatch.setattr(rest_events, "MAX_EVENTS", 5)
    upstream.says(b"1\n" * 6, kind="application/x-ndjson")
    text, told = failure(await bench.call({}, **streaming()))
    assert "more than 5 events" in text
    assert told["sub"] == "response_items"
    upstream.says(b"1\n" * 5, kind="application/x-ndjson")
    assert (await bench.call({}, **streaming())).content[0].text == "1"


async def test_the_expressions_over_all_events_have_their_steps_together(
    bench, upstream, failure, monkeypatch
):
    monkeypatch.setattr(expressions, "MAX_STEPS", 100)
    stream = {"until": "=data.x.y.z"}
    upstream.says(b"{}\n" * 5 + b'{"x": {"y": {"z": true}}}\n', kind="application/x-ndjson")
    assert (await bench.call({}, **streaming(stream))).structured_content == {}
    upstream.says(b"{}\n" * 50, kind="application/x-ndjson")
    text, _ = failure(await bench.call({}, **streaming(stream)))
    assert "target.stream.until: takes too many steps" in text


async def test_a_stream_that_breaks_off_is_told_as_disconnected(bench, upstream, failure):
    async def handler(line, _seen):
        await line.head(200, [("content-type", SSE)])
        await line.stream.send_all(line.http.send(h11.Data(data=b"data: 1\n\n")))
        await line.stream.aclose()

    upstream.handler = handler
    assert failure(await bench.call({}, **streaming()))[1]["sub"] == "disconnected"
    upstream.says(b"data: 1\n\n", kind=SSE)
    text, told = failure(await bench.call({}, **streaming({"until": "=data == 'end'"})))
    assert "ended before its last event" in text
    assert told["sub"] == "disconnected"


async def test_an_answer_that_is_no_stream_is_read_as_always(bench, upstream, failure):
    upstream.says({"a": 1})
    assert (await bench.call({}, **streaming())).structured_content == {"a": 1}
    upstream.says(b'data: {"message": "no"}\n\n', kind=SSE, status=500)
    assert failure(await bench.call({}, **streaming()))[1]["upstream_status"] == 500
    upstream.says(b"", status=302, headers=[("location", "http://169.254.169.254/")])
    assert failure(await bench.call({}, **streaming()))[1]["sub"] == "redirect"
    upstream.says(b"\x1f\x8b", kind=SSE, headers=[("content-encoding", "gzip")])
    assert failure(await bench.call({}, **streaming()))[1]["sub"] == "malformed_reply"


async def test_an_empty_stream_has_no_content(bench, upstream):
    upstream.says(b": nothing\n\n", kind=SSE)
    assert (await bench.call({}, **streaming())).content[0].text == "Done; there is no content."
    assert (await bench.call({}, **streaming({"collect": "all"}))).content[0].text == "[]"


async def test_success_when_finds_a_failure_at_the_end_of_a_stream(bench, upstream, failure):
    upstream.says(b'data: {"a": 1}\n\nevent: error\ndata: {"error": "quota"}\n\n', kind=SSE)
    mapping = {"success_when": "=body.error == `null`"}
    text, _ = failure(await bench.call({}, **streaming(output_mapping=mapping)))
    assert text.startswith("[external_service] the upstream reported a failure: quota. ")


async def test_a_broken_description_of_progress_fails_nothing(bench, upstream, recorded):
    upstream.says(b"1\n", kind="application/x-ndjson")
    context, told = recorded()
    progress = {"message": "=length(data)", "value": "=event", "total": "=event"}
    result = await bench.compile(**streaming({"progress": progress})).call(context, {})
    assert result.content[0].text == "1"
    assert told == [(1, None, None)]
    broken = {"until": "=length(data)"}
    result = await bench.call({}, **streaming(broken))
    assert "[mapping] target.stream.until" in result.content[0].text


async def test_a_secret_in_a_message_of_progress_is_masked(upstream, make_bench, recorded):
    bench = make_bench(upstream.url, auth=Auth(kind="bearer", secret=Secret("canary-5")))
    upstream.says(b'data: "key canary-5"\n\n', kind=SSE)
    context, told = recorded()
    async with bench.connections:
        stream = {"progress": {"message": "=data"}}
        await bench.compile(**streaming(stream)).call(context, {})
    assert told == [(1, None, "key ***")]


BAD = [
    ({"collect": "some"}, {}, "must be one of last, all"),
    ({"every": 1}, {}, "unknown key 'every'"),
    ({"until": "=body"}, {}, "there is no 'body' here"),
    ({"progress": {"message": "=args.x"}}, {}, "there is no 'args' here"),
    ({}, {"method": "GET", "pagination": {"by": "link"}}, "pages or a stream"),
]


@pytest.mark.parametrize(("stream", "target", "says"), BAD, ids=[says for *_, says in BAD])
def test_a_stream_that_cannot_work_is_refused_when_compiled(make_bench, stream, target, says):
    bench = make_bench("http://127.0.0.1:1")
    changes = streaming(stream)
    changes["target"].update(target)
    with pytest.raises(OperationError, match=rf"target\.stream.*{says}"):
        bench.compile(**changes)


def test_a_stream_needs_to_be_asked_for(make_bench):
    bench = make_bench("http://127.0.0.1:1")
    with pytest.raises(OperationError, match=r"needs execution_config\.stream_progress"):
        bench.compile(**streaming({"collect": "all"}, execution_config={}))
