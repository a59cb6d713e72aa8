"""The rest adapter against a real upstream: what is sent, and every way it can go wrong."""

from __future__ import annotations

import json
import logging

import h11
import pytest
import trio

from mcp_trio.catalog.operation import OperationError
from mcp_trio.network_guard import NetworkPolicy
from mcp_trio.runtime.http_connection import Auth
from mcp_trio.secrets import Secret
from mcp_trio.wire import ABSENT

POST = {"connection": "crm", "method": "POST", "path": "/leads/{id}"}


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("a b", "/leads/a%20b"),
        ("a/b", "/leads/a%2Fb"),
        ("a?x=1#y", "/leads/a%3Fx%3D1%23y"),
        ("a..b/.c/d.", "/leads/a..b%2F.c%2Fd."),
        ("../../admin", "/leads/..%2F..%2Fadmin"),
        ("%2e%2e%2f", "/leads/%252e%252e%252f"),
        ("..\\..\\admin", "/leads/..%5C..%5Cadmin"),
        ("...", "/leads/..."),
        ("é", "/leads/%C3%A9"),
        ("a;b=c&d", "/leads/a%3Bb%3Dc%26d"),
        (9007199254740993, "/leads/9007199254740993"),
    ],
)
async def test_a_path_value_is_one_segment(bench, upstream, value, sent):
    result = await bench.call({"id": value})
    assert result.is_error is None
    assert upstream.last.target == sent


CLIMBING = [
    *(".", "..", "%2e", "%2E%2e", ".%2e", "%252e%252e", "%25252e"),
    *("..;/admin", "..;x=1", "%2e%2e%3b"),
]


@pytest.mark.parametrize("value", [*CLIMBING, "", "a\nb", "a\x00b"])
async def test_a_path_value_that_means_another_place_is_refused(bench, upstream, failure, value):
    text, told = failure(await bench.call({"id": value}))
    assert told["stage"] == "mapping"
    assert "input_mapping.path" in text
    assert upstream.seen == []


async def test_two_values_in_one_segment_cannot_add_up_to_dots(bench, upstream, failure):
    result = await bench.call(
        {"id": ".", "q": "."},
        target={"connection": "crm", "method": "GET", "path": "/x{id}{q}/y"},
        input_mapping={"path": {"id": "=args.id", "q": "=args.q"}},
    )
    assert failure(result)[1]["stage"] == "mapping"
    result = await bench.call(
        {"id": "%2", "q": "e"},
        target={"connection": "crm", "method": "GET", "path": "/{id}{q}/y"},
        input_mapping={"path": {"id": "=args.id", "q": "=args.q"}},
    )
    assert failure(result)[1]["stage"] == "mapping"
    assert upstream.seen == []


async def test_the_prefix_of_the_base_url_stays(upstream, make_bench):
    bench = make_bench(upstream.url + "/api/v2/")
    async with bench.connections:
        await bench.call({"id": "1"})
    assert upstream.last.target == "/api/v2/leads/1"


async def test_query_and_body_travel_together(bench, upstream):
    await bench.call(
        {"id": "1", "q": ["a b", "c&d"], "n": 3},
        target=POST,
        input_mapping={
            "path": {"id": "=args.id"},
            "query": {"tag": "=args.q", "none": None, "n": "=args.n", "yes": True},
            "body": {"id": "=args.id", "n": "=args.n", "fixed": [1, None]},
        },
    )
    assert upstream.last.target == "/leads/1?tag=a%20b&tag=c%26d&n=3&yes=true"
    assert upstream.last.json() == {"id": "1", "n": 3, "fixed": [1, None]}
    assert upstream.last.header("content-type") == "application/json"


async def test_an_empty_mapping_goes_by_name_to_the_query_of_a_read(bench, upstream):
    await bench.call({"id": "1", "q": "x", "n": 2}, input_mapping={})
    assert upstream.last.target == "/leads/1?q=x&n=2"
    assert upstream.last.body == b""


async def test_an_empty_mapping_goes_by_name_to_the_body_of_a_write(bench, upstream):
    await bench.call({"id": "1", "q": "x"}, target=POST, input_mapping={})
    assert upstream.last.target == "/leads/1"
    assert upstream.last.json() == {"q": "x"}


async def test_form_text_and_empty_bodies(bench, upstream):
    form = {**POST, "content_type": "form"}
    await bench.call(
        {"id": "1", "q": ["a b", "ü"]},
        target=form,
        input_mapping={"path": {"id": "1"}, "body": {"q": "=args.q", "n": 1}},
    )
    assert upstream.last.body == b"q=a+b&q=%C3%BC&n=1"
    assert upstream.last.header("content-type") == "application/x-www-form-urlencoded"
    await bench.call(
        {"id": "1", "q": "héllo"},
        target={**POST, "content_type": "text"},
        input_mapping={"path": {"id": "1"}, "body": "=args.q"},
    )
    assert upstream.last.body == "héllo".encode()
    result = await bench.call(
        {"id": "1", "q": "half \ud800"},
        target={**POST, "content_type": "text"},
        input_mapping={"path": {"id": "1"}, "body": "=args.q"},
    )
    assert "[mapping] input_mapping.body: makes what holds half a character" in str(result.content)
    await bench.call(target={**POST, "content_type": "none"})
    assert upstream.last.body == b""
    assert upstream.last.header("content-type") is None


@pytest.mark.parametrize("value", ["a\r\nx-evil: 1", "a\nb", "a\x00", "é", " a", "\ud800"])
async def test_a_header_value_cannot_begin_another_line(bench, upstream, failure, value):
    mapping = {"path": {"id": "1"}, "headers": {"x-tag": "=args.q"}}
    text, told = failure(await bench.call({"q": value}, input_mapping=mapping))
    assert (told["stage"], told["retryable"]) == ("mapping", False)
    assert "input_mapping.headers.x-tag" in text
    assert upstream.seen == []


async def test_headers_and_cookies_are_sent(bench, upstream, failure):
    mapping = {
        "path": {"id": "1"},
        "headers": {"X-Tag": "=args.q", "x-none": "=args.n"},
        "cookies": {"session": "=args.q"},
    }
    await bench.call({"q": "abc"}, input_mapping=mapping)
    assert upstream.last.header("x-tag") == "abc"
    assert upstream.last.header("x-none") is None
    assert upstream.last.header("cookie") == "session=abc"
    result = await bench.call({"q": "abc; admin=1"}, input_mapping=mapping)
    assert failure(result)[1]["stage"] == "mapping"


@pytest.mark.parametrize(
    "name", ["Host", "authorization", "Content-Length", "transfer-encoding", "cookie", "x y", "x:"]
)
def test_protected_headers_are_refused_when_compiled(make_bench, name):
    bench = make_bench("http://127.0.0.1:1")
    with pytest.raises(OperationError, match=r"input_mapping\.headers"):
        bench.compile(input_mapping={"path": {"id": "1"}, "headers": {name: "x"}})


def test_a_header_of_the_connection_cannot_be_changed(make_bench):
    bench = make_bench(
        "http://127.0.0.1:1", auth=Auth(kind="header", header="X-Api-Key", secret=Secret("s3cret"))
    )
    with pytest.raises(OperationError, match="not for an operation"):
        bench.compile(input_mapping={"path": {"id": "1"}, "headers": {"x-api-key": "x"}})


async def test_the_connection_proves_itself(upstream, make_bench):
    for auth, header, sent in (
        (Auth(kind="bearer", secret=Secret("t0ken")), "authorization", "Bearer t0ken"),
        (
            Auth(kind="basic", username="u", secret=Secret("p")),
            "authorization",
            "Basic dTpw",
        ),
        (Auth(kind="header", header="X-Api-Key", secret=Secret("k3y")), "x-api-key", "k3y"),
    ):
        bench = make_bench(upstream.url, auth=auth, headers={"X-Env": "test"})
        async with bench.connections:
            await bench.call()
            assert upstream.last.header(header) == sent
            assert upstream.last.header("x-env") == "test"
            await bench.call(execution_config={"auth": "none"})
            assert upstream.last.header(header) is None


async def test_an_object_becomes_structured_content_and_text(bench, upstream):
    upstream.says({"a": [1, 2.5, None], "b": "é"})
    result = await bench.call()
    assert result.structured_content == {"a": [1, 2.5, None], "b": "é"}
    assert result.content[0].text == '{"a":[1,2.5,null],"b":"é"}'


async def test_huge_integers_pass_unchanged(bench, upstream):
    huge = 2**53 + 1
    upstream.says(b'{"id": 9007199254740993, "more": 123456789012345678901234567890}')
    result = await bench.call(
        {"id": "1", "n": huge},
        target=POST,
        input_mapping={"path": {"id": "1"}, "body": {"n": "=args.n"}},
        output_mapping={"result": {"id": "=body.id", "more": "=body.more"}},
        output_schema={"type": "object", "properties": {"id": {"type": "integer"}}},
    )
    assert upstream.last.body == b'{"n":9007199254740993}'
    assert result.structured_content == {"id": huge, "more": 123456789012345678901234567890}
    assert result.content[0].text == '{"id":9007199254740993,"more":123456789012345678901234567890}'


@pytest.mark.parametrize(
    "body", [b'{"a": NaN}', b'{"a": Infinity}', b'{"a": 1e999}', b'{"a": ', b"[" * 5000, b"\xff"]
)
async def test_what_is_not_json_is_a_malformed_reply(bench, upstream, failure, body):
    upstream.says(body)
    text, told = failure(await bench.call())
    assert text == (
        "[adapter_execution] the upstream's answer is not valid JSON. "
        "Report the operation to its operator."
    )
    assert (told["sub"], told["code"]) == ("malformed_reply", "malformed_reply")
    assert told["retryable"] is False


async def test_an_html_page_of_success_is_a_malformed_reply(bench, upstream, failure):
    upstream.says(b"<html><body>Welcome!</body></html>", kind="text/html; charset=utf-8")
    text, told = failure(await bench.call())
    assert text == (
        "[adapter_execution] the upstream answered with text/html where JSON, XML or plain text "
        "was expected. Report the operation to its operator."
    )
    assert told["code"] == "unexpected_content_type"


async def test_an_html_error_page_is_the_service_failing(bench, upstream, failure):
    page = b"""<!doctype html><html><head><title>x</title><style>b{}</style></head><body>
      <h1>Bad &amp; worse</h1><script>alert(1)</script><p>Try <b>later</b>.</p>
      <pre>Traceback (most recent call last):
        File "/srv/app.py", line 3, in f</pre></body></html>"""
    upstream.says(page, status=502, kind="text/html")
    text, told = failure(await bench.call())
    assert text == ("[external_service] the upstream answered 502: an HTML page. Try again later.")
    assert (told["sub"], told["code"], told["upstream_status"]) == ("status", 502, 502)
    assert told["retryable"] is True


async def test_a_json_error_gives_its_message_and_a_long_one_is_cut(bench, upstream, failure):
    upstream.says({"error": {"message": "no such lead"}}, status=404)
    text, told = failure(await bench.call())
    assert text == (
        "[external_service] the upstream answered 404: no such lead. "
        "Check the arguments against the message before calling again."
    )
    assert told["retryable"] is False
    upstream.says(("x " * 5000).encode(), status=400, kind="text/plain")
    text, _ = failure(await bench.call())
    assert len(text) < 620


async def test_the_operation_can_name_message_code_and_retryability(bench, upstream, failure):
    upstream.says({"errors": [{"detail": "busy", "no": 17}]}, status=409)
    result = await bench.call(
        output_mapping={
            "error": {
                "message": "=body.errors[0].detail",
                "code": "=body.errors[0].no",
                "retryable": "=status == `409`",
            }
        }
    )
    text, told = failure(result)
    assert text == "[external_service] the upstream answered 409: busy. Try again later."
    assert (told["code"], told["retryable"], told["upstream_status"]) == (17, True, 409)


async def test_success_when_finds_failures_behind_a_200(bench, upstream, failure):
    upstream.says({"ok": False, "message": "quota"})
    text, told = failure(await bench.call(output_mapping={"success_when": "=body.ok"}))
    assert text.startswith("[external_service] the upstream reported a failure: quota. ")
    assert (told["sub"], told["upstream_status"]) == ("reported", 200)


async def test_retry_after_reaches_the_caller(bench, upstream, failure):
    upstream.says({}, status=429, headers=[("retry-after", "7")])
    _, told = failure(await bench.call())
    assert (told["retryable"], told["retry_after_ms"]) == (True, 7000)


@pytest.mark.parametrize("declared", [True, False])
async def test_ten_megabytes_are_not_read(bench, upstream, failure, declared):
    body = b"[" + b"1," * 5_000_000 + b"1]"
    sent = 0

    async def flood(line, _seen):
        nonlocal sent
        length = [("content-length", str(len(body)))] if declared else []
        await line.head(200, [("content-type", "application/json"), *length])
        try:
            for start in range(0, len(body), 65536):
                part = line.http.send(h11.Data(data=body[start : start + 65536]))
                await line.stream.send_all(part)
                sent += 65536
        except trio.BrokenResourceError:
            upstream.hung_up.set()
            return
        pytest.fail("the whole body was taken")

    upstream.handler = flood
    text, told = failure(await bench.call())
    assert text == (
        "[adapter_execution] the upstream's answer is larger than 1048576 bytes. "
        "Ask for less, for example with a filter or a smaller page."
    )
    assert (told["sub"], told["retryable"]) == ("response_bytes", False)
    with trio.fail_after(5):
        await upstream.hung_up.wait()
    assert sent < len(body)


async def test_the_limits_of_an_operation_count(bench, upstream, failure):
    upstream.says({"a": "x" * 100})
    config = {"limits": {"response_bytes": 50, "request_bytes": 10}}
    assert failure(await bench.call(execution_config=config))[1]["sub"] == "response_bytes"
    result = await bench.call(
        {"id": "1", "q": "x" * 20}, target=POST, input_mapping={}, execution_config=config
    )
    assert failure(result)[1]["stage"] == "mapping"


async def test_a_compressed_body_is_refused(bench, upstream, failure):
    upstream.says(b"\x1f\x8b", headers=[("content-encoding", "gzip")])
    assert failure(await bench.call())[1]["sub"] == "malformed_reply"
    assert upstream.last.header("accept-encoding") == "identity"


async def test_nobody_listening_is_told_as_unreachable(make_bench, failure):
    with trio.socket.socket() as taken:
        await taken.bind(("127.0.0.1", 0))
        bench = make_bench(f"http://127.0.0.1:{taken.getsockname()[1]}")
        async with bench.connections:
            text, told = failure(await bench.call())
    assert text == "[adapter_execution] the upstream cannot be reached. Try again later."
    assert (told["sub"], told["code"], told["retryable"]) == ("connect", "connect", True)


async def test_an_upstream_that_hangs_meets_the_total_deadline_and_sees_us_leave(
    bench, upstream, failure
):
    upstream.handler = upstream.hang
    text, told = failure(await bench.call(execution_config={"timeout_ms": {"total": 100}}))
    assert text == (
        "[adapter_execution] the upstream did not answer within 0.1 seconds. Try again later."
    )
    assert (told["sub"], told["code"], told["retryable"]) == ("timeout", "total", True)
    with trio.fail_after(5):
        await upstream.hung_up.wait()


async def test_a_slow_head_meets_the_first_byte_deadline(bench, upstream, failure):
    upstream.handler = upstream.hang
    config = {"timeout_ms": {"first_byte": 50, "total": 60_000}}
    _, told = failure(await bench.call(execution_config=config))
    assert (told["sub"], told["code"]) == ("timeout", "first_byte")
    with trio.fail_after(5):
        await upstream.hung_up.wait()


async def test_a_body_that_trickles_meets_the_total_deadline(bench, upstream, failure):
    async def trickle(line, seen):
        await line.head(200, [("content-type", "application/json")])
        await line.stream.send_all(b"1\r\n[\r\n")
        await upstream.hang(line, seen)

    upstream.handler = trickle
    config = {"timeout_ms": {"first_byte": 2000, "total": 150}}
    _, told = failure(await bench.call(execution_config=config))
    assert told["code"] == "total"
    with trio.fail_after(5):
        await upstream.hung_up.wait()


@pytest.mark.parametrize("phase", ["head", "body"])
async def test_cancelling_the_call_closes_the_socket_of_the_upstream(bench, upstream, phase):
    started = trio.Event()

    async def stall(line, seen):
        if phase == "body":
            await line.head(200, [("content-type", "application/json")])
            await line.stream.send_all(b"1\r\n[\r\n")
        started.set()
        await upstream.hang(line, seen)

    upstream.handler = stall
    outcome: list[object] = []

    async def caller(scope):
        with scope:
            outcome.append(await bench.call())

    scope = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(caller, scope)
        await started.wait()
        scope.cancel()
    assert outcome == []
    assert scope.cancelled_caught
    with trio.fail_after(5):
        await upstream.hung_up.wait()


async def test_a_hundred_calls_cancelled_at_once_leave_nothing_open(upstream, make_bench):
    bench = make_bench(upstream.url)
    left = 0
    all_gone = trio.Event()
    all_here = trio.Event()

    async def hang(line, _seen):
        nonlocal left
        left += 1
        if left == 100:
            all_here.set()
        await line.wait_closed()
        left -= 1
        if left == 0:
            all_gone.set()

    upstream.handler = hang
    async with bench.connections:
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                for _ in range(100):
                    nursery.start_soon(bench.call)
                await all_here.wait()
                nursery.cancel_scope.cancel()
            await all_gone.wait()
        upstream.handler = upstream.plain
        assert (await bench.call()).is_error is None


async def test_cancelling_one_call_leaves_the_others_alone(bench, upstream):
    release = trio.Event()
    scope = trio.CancelScope()
    results: list[object] = []

    async def wait(line, _seen):
        if len(upstream.seen) == 2:
            upstream.hung_up.set()
        await release.wait()
        await line.answer()

    async def doomed():
        with scope:
            await bench.call()

    async def other():
        results.append(await bench.call())

    upstream.handler = wait
    async with trio.open_nursery() as nursery:
        nursery.start_soon(doomed)
        nursery.start_soon(other)
        with trio.fail_after(5):
            await upstream.hung_up.wait()
        scope.cancel()
        release.set()
    assert [result.is_error for result in results] == [None]


async def test_the_deadline_of_the_caller_lies_over_that_of_the_operation(bench, upstream):
    upstream.handler = upstream.hang
    with trio.move_on_after(0.05) as scope:
        await bench.call(execution_config={"timeout_ms": {"total": 60_000}})
    assert scope.cancelled_caught
    with trio.fail_after(5):
        await upstream.hung_up.wait()


async def test_an_upstream_that_hangs_up_is_told_as_disconnected(bench, upstream, failure):
    async def hang_up(line, _seen):
        await line.stream.aclose()

    upstream.handler = hang_up
    text, told = failure(await bench.call())
    assert (told["sub"], told["retryable"]) == ("disconnected", True)
    assert text == (
        "[adapter_execution] the upstream's answer broke off before it was complete. "
        "Try again later."
    )


async def test_an_incomplete_body_is_not_taken_for_a_whole_one(bench, upstream, failure):
    async def half(line, _seen):
        await line.stream.send_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{}"
        )
        await line.stream.aclose()

    upstream.handler = half
    assert failure(await bench.call())[1]["sub"] == "disconnected"


@pytest.mark.parametrize(
    "rest", [b"zz\r\n", b"2;" + b"x" * 200_000, b"0\r\n" + b"a: b\r\n" * 50_000]
)
async def test_a_body_that_is_not_http_is_malformed_and_no_broken_connection(
    bench, upstream, failure, rest
):
    async def wrong(line, _seen):
        head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n"
        await line.stream.send_all(head + rest)
        await line.wait_closed()

    upstream.handler = wrong
    told = failure(await bench.call())[1]
    assert (told["sub"], told["retryable"]) == ("malformed_reply", False)


async def test_the_reason_of_a_status_is_told_to_nobody_and_no_log(
    bench, upstream, failure, caplog
):
    for name in (None, "httpx2"):  # which another test may have told to say less
        caplog.set_level(logging.INFO, logger=name)

    async def reasoned(line, _seen):
        await line.stream.send_all(
            b"HTTP/1.1 403 no-entry-with canary+5e/c7e7=9b1d\r\ncontent-length: 0\r\n\r\n"
        )

    upstream.handler = reasoned
    text, _ = failure(await bench.call())
    assert "HTTP/1.1 403" in caplog.text
    assert "no-entry-with" not in text + caplog.text


async def test_what_is_not_http_is_a_malformed_reply(bench, upstream, failure):
    async def noise(line, _seen):
        await line.stream.send_all(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
        await line.wait_closed()

    upstream.handler = noise
    assert failure(await bench.call())[1]["sub"] == "malformed_reply"


async def test_a_redirect_to_the_metadata_service_is_not_followed(bench, upstream, failure):
    upstream.says(
        b"", status=302, headers=[("location", "http://169.254.169.254/latest/meta-data/")]
    )
    text, told = failure(await bench.call())
    assert text == (
        "[external_service] the upstream answered 302, a redirect, and redirects are not "
        "followed. Report the operation to its operator."
    )
    assert (told["sub"], told["code"], told["upstream_status"]) == ("redirect", 302, 302)
    assert len(upstream.seen) == 1


async def test_an_empty_answer_is_a_success_without_structure(bench, upstream):
    async def nothing(line, _seen):
        await line.head(204)
        await line.stream.send_all(line.http.send(h11.EndOfMessage()))

    upstream.handler = nothing
    result = await bench.call()
    assert result.is_error is None
    assert [block.text for block in result.content] == ["Done; there is no content."]


async def test_plain_text_is_a_success_and_json_by_another_name_too(bench, upstream):
    upstream.says("héllo".encode(), kind="text/plain; charset=utf-8")
    result = await bench.call()
    assert result.content[0].text == "héllo"
    assert result.structured_content.__class__.__name__ == "Absent"
    upstream.says(b'\xef\xbb\xbf{"a":1}', kind="application/problem+json")
    assert (await bench.call()).structured_content == {"a": 1}


async def test_a_cookie_of_one_call_does_not_reach_the_next(bench, upstream):
    upstream.says({}, headers=[("set-cookie", "session=alice")])
    result = await bench.call(output_mapping={"result": "=headers"})
    assert "set-cookie" not in result.structured_content
    await bench.call()
    assert upstream.last.header("cookie") is None
    # Both calls went over one kept-alive socket.
    assert upstream.accepted == 1


async def test_the_environment_cannot_put_a_proxy_in_between(bench, upstream, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert (await bench.call()).is_error is None


async def test_the_bearer_token_of_the_caller_is_never_passed_on(bench, upstream, context_of):
    context = context_of()
    context.meta["authorization"] = "Bearer caller"
    await bench.compile().call(context, {"id": "1"})
    assert upstream.last.header("authorization") is None


CANARY = "canary-7f3a9b2e"


async def test_secrets_show_up_nowhere(upstream, make_bench, failure, caplog):
    caplog.set_level(logging.DEBUG)
    bench = make_bench(
        upstream.url,
        auth=Auth(kind="bearer", secret=Secret(CANARY)),
        headers={"x-second": Secret(CANARY + "2")},
    )
    shown = [repr(bench.connection), str(bench.connection), repr(bench.connection.auth)]
    async with bench.connections:
        upstream.says(f"bad token {CANARY} or {CANARY}2".encode(), status=401, kind="text/plain")
        result = await bench.call()
        text, told = failure(result)
        assert "bad token *** or ***" in text
        shown += [repr(result), json.dumps(told)]
        upstream.says({"errors": f"x{CANARY}"}, status=500)
        result = await bench.call(
            output_mapping={"error": {"message": "=body.errors", "code": "=body.errors"}}
        )
        shown += [repr(result), repr(bench.compile()), repr(bench.compile().operation.view())]

        async def hang_up(line, _seen):
            await line.stream.aclose()

        upstream.handler = hang_up
        shown.append(repr(await bench.call()))
    shown += [record.getMessage() + repr(record.args) for record in caplog.records]
    # The upstream did get it; nobody else did.
    assert upstream.last.header("authorization") == f"Bearer {CANARY}"
    assert not [text for text in shown if CANARY in text]


async def test_an_output_that_breaks_its_schema_is_no_answer_and_can_be_kept_as_text(
    bench, upstream, failure
):
    upstream.says({"id": None})
    schema = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    text, told = failure(await bench.call(output_schema=schema))
    assert text == (
        "[schema_validation] the result does not fit the output schema: /id is not of type "
        "string. Calling again will not help; report the operation to its operator."
    )
    assert told["sub"] == "output"
    assert told["violations"] == [
        {"pointer": "/id", "rule": "type", "message": "is not of type string"}
    ]
    warns = {"output_schema": schema, "execution_config": {"output_validation": "warn"}}
    result = await bench.call(**warns)
    assert result.is_error is True
    assert result.structured_content is ABSENT
    said, kept = [block.text for block in result.content]
    assert said == (
        "[schema_validation] the result does not fit the output schema: /id is not of type "
        "string. The call was made, and its result follows as it came; calling again will not "
        "help."
    )
    assert kept == '{"id":null}'
    shown = result.meta["io.github.mcp-trio/error"]
    assert {**shown, "revision": told["revision"]} == told
    # Whatever else its text would be, the result is there.
    for said, texts in (("none", []), ("Got {{ status }}", ["Got 200"])):
        result = await bench.call(output_mapping={"text": said}, **warns)
        assert [block.text for block in result.content[1:]] == [*texts, '{"id":null}']
    off = {"output_schema": schema, "execution_config": {"output_validation": "off"}}
    result = await bench.call(**off)
    assert result.meta is None
    assert result.structured_content == {"id": None}
    # What nobody holds to it is not promised to clients, who would.
    assert bench.compile(**off).definition.output_schema is None
    assert bench.compile(**warns).definition.output_schema == schema


async def test_arguments_are_checked_before_anything_is_sent(bench, upstream, failure):
    schema = {
        "type": "object",
        "properties": {"id": {"type": "string"}},
        "required": ["id"],
        "additionalProperties": False,
    }
    text, told = failure(await bench.call({"idd": "1"}, input_schema=schema))
    assert told["stage"] == "schema_validation"
    assert told["sub"] == "input"
    assert {v["rule"] for v in told["violations"]} == {"required", "additionalProperties"}
    assert text.endswith("Correct the arguments and call again.")
    assert upstream.seen == []


@pytest.mark.parametrize("allowed", [False, True])
async def test_private_addresses_need_the_connections_word(make_bench, upstream, failure, allowed):
    async def rebinding(_host, _port):
        await trio.lowlevel.checkpoint()
        return ["127.0.0.1"]

    port = upstream.url.rsplit(":", 1)[1]
    bench = make_bench(
        f"http://crm.internal:{port}",
        resolver=rebinding,
        network=NetworkPolicy(allow_private=allowed),
    )
    async with bench.connections:
        result = await bench.call()
    if allowed:
        assert result.is_error is None
        assert upstream.last.header("host") == f"crm.internal:{port}"
        return
    text, told = failure(result)
    assert text == (
        "[adapter_execution] the network policy refuses a private or loopback address. "
        "Report the operation to its operator."
    )
    assert (told["sub"], told["retryable"]) == ("policy_block", False)
    assert upstream.accepted == 0


async def test_after_the_connections_close_a_call_says_so(make_bench, upstream, failure):
    bench = make_bench(upstream.url)
    async with bench.connections:
        await bench.call()
    _, told = failure(await bench.call())
    assert (told["stage"], told["sub"], told["retryable"]) == ("internal_runtime", "shutdown", True)


async def test_a_name_that_cannot_be_sent_is_refused_by_its_place(bench, upstream, failure):
    cases = [
        {"input_mapping": {"path": {"id": "1"}, "query": {"q": "=args.q"}}},
        {
            "target": {**POST, "content_type": "form"},
            "input_mapping": {"path": {"id": "1"}, "body": {"q": "=args.q"}},
        },
        {"input_mapping": {"path": {"id": "=args.q"}}},
    ]
    result = await bench.call({"id": "1", "q": "\ud800"}, target=POST, input_mapping={})
    assert failure(result)[1]["stage"] == "mapping"
    for case in cases:
        # A lone surrogate is a string to Python and none to anybody else.
        for value in ("\ud800", {"a": 1}):
            _, told = failure(await bench.call({"q": value}, **case))
            assert told["stage"] == "mapping"
    form = {"target": {**POST, "content_type": "form"}}
    mapping = {"path": {"id": "1"}, "body": "=args.q"}
    _, told = failure(await bench.call({"q": "text"}, **form, input_mapping=mapping))
    assert told["stage"] == "mapping"
    assert upstream.seen == []


def test_names_of_cookies_and_headers_are_checked_when_compiled(make_bench):
    bench = make_bench("http://127.0.0.1:1")
    with pytest.raises(OperationError, match="name of a cookie"):
        bench.compile(input_mapping={"path": {"id": "1"}, "cookies": {"a=b": "x"}})
    with pytest.raises(OperationError, match="idempotency_key_header"):
        bench.compile(execution_config={"idempotency_key_header": "Host"})


async def test_a_null_body_sends_nothing(bench, upstream):
    await bench.call(target=POST, input_mapping={"path": {"id": "1"}, "body": {"expr": "args.q"}})
    assert upstream.last.body == b""
    assert upstream.last.header("content-type") is None


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        ("120", 120_000),
        ("99999999999999999999", 86_400_000),
        ("soon", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("-5", None),
        ("Wed, 21 Oct 2015 07:28:00 +99999999999999999999", None),
        ("Wed, 21 Oct 99999 07:28:00 GMT", None),
    ],
)
async def test_retry_after_is_seconds_or_a_date(bench, upstream, failure, header, wait):
    upstream.says({}, status=503, headers=[("retry-after", header)])
    _, told = failure(await bench.call())
    assert told["retry_after_ms"] == wait


async def test_text_of_western_europe_and_broken_text_are_readable(bench, upstream, failure):
    upstream.says("é".encode("cp1252"), kind="text/plain; charset=ISO-8859-1")
    assert (await bench.call()).content[0].text == "é"
    upstream.says(b"a\xffb", kind="text/plain")
    assert (await bench.call()).content[0].text == "a\ufffdb"
    upstream.says(b"not json \xff", status=500)
    assert "not json" in failure(await bench.call())[0]


async def test_an_answer_of_an_unknown_kind_is_a_malformed_reply(bench, upstream, failure):
    upstream.says(b"\x89", kind="application/x-unheard-of")
    text, told = failure(await bench.call())
    assert "answered with application/x-unheard-of where" in text
    assert told["code"] == "unexpected_content_type"


async def test_json_with_too_many_values_is_a_malformed_reply(upstream, make_bench, failure):
    bench = make_bench(upstream.url, response_bytes=4 << 20)
    upstream.says(b"[" + b"0," * 600_000 + b"0]")
    async with bench.connections:
        assert failure(await bench.call())[1]["sub"] == "malformed_reply"


async def test_what_goes_wrong_in_the_output_mapping_is_told_as_mapping(bench, upstream, failure):
    upstream.says({"a": 1})
    for mapping in (
        {"success_when": "=body.a"},
        {"result": "=length(body.a)"},
        {"result": {"expr": "body.none", "required": True}},
        {"text": "=body.a"},
    ):
        text, told = failure(await bench.call(output_mapping=mapping))
        assert told["stage"] == "mapping"
        assert "output_mapping." in text
    assert (await bench.call(output_mapping={"text": "=body.none"})).content == []


async def test_a_broken_description_of_an_error_does_not_hide_the_error(bench, upstream, failure):
    upstream.says({"title": "down", "detail": {"a": 1}, "message": 5}, status=503)
    result = await bench.call(output_mapping={"error": {"message": "=length(status)"}})
    text, told = failure(result)
    assert text == "[external_service] the upstream answered 503. Try again later."
    assert told["upstream_status"] == 503


async def test_a_head_request_has_no_body_to_limit(bench, upstream):
    async def head(line, _seen):
        await line.head(200, [("content-type", "text/html"), ("content-length", "99999999")])
        await line.stream.send_all(line.http.send(h11.EndOfMessage()) or b"")

    upstream.handler = head
    target = {"connection": "crm", "method": "HEAD", "path": "/leads/{id}"}
    result = await bench.call(
        target=target, output_mapping={"result": {"n": '=headers."content-length"'}}
    )
    assert result.structured_content == {"n": "99999999"}
