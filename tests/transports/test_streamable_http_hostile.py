"""Servers that answer anything over HTTP: each call ends, plainly, and costs bounded memory."""

import gzip
import tracemalloc
import zlib

import httpx2
import pytest
import trio
import trio.testing

from mcp_trio.errors import (
    ProtocolError,
    RemoteError,
    RequestTimeoutError,
    TransportError,
)
from mcp_trio.session.call import TimeLimit
from tests.transports.web import (
    BOTH,
    HANDSHAKE,
    STREAM,
    URL,
    Web,
    answering,
    connected,
    note,
    opened,
    result,
    streaming,
    worked,
)

LIMIT = 100_000
each_era = pytest.mark.parametrize("revision", BOTH)
MIB = 1024 * 1024
ENDLESS = 4096
"""Pieces of 64 KiB or more, which is more than anybody may read."""


def moved(status, location=None):
    return httpx2.Response(status, headers={"location": location} if location else {})


def error(id_, code=-32000):
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": "no"}}


def bomb(data):
    """A body that is small on the wire: 64 MiB of zeros behind some text."""
    return gzip.compress(data + b"0" * 64 * MIB)


PACKED = {"content-encoding": "gzip"}
BOMB = bomb(b'{"jsonrpc":"2.0","id":1,"result":{"x":"')
TWICE = gzip.compress(BOMB)
EVENT_BOMB = bomb(b"data: ")
DEFLATED = zlib.compress(b"data: " + b"0" * 64 * MIB)

LOST, BROKEN = TransportError, ProtocolError
ANSWERS = {
    "a page": (lambda a: answering(b"<html>", content_type="text/html"), LOST, "with text/html"),
    "no type": (lambda a: answering(result(a.id), content_type=""), LOST, "without a reply"),
    "another type": (
        lambda a: answering(result(a.id), content_type="text/json"),
        LOST,
        "text/json",
    ),
    "rubbish": (lambda a: answering(b"{not json"), BROKEN, "cannot be read"),
    "nothing": (lambda a: answering(b""), BROKEN, "cannot be read"),
    "no UTF-8": (lambda a: answering(b'{"id":"\xff"}'), BROKEN, "cannot be read"),
    "deep": (lambda a: answering(b"[" * 90_000), BROKEN, "levels deep"),
    "another id": (lambda a: answering(result(a.id + 1)), BROKEN, "id of another request"),
    "an id as text": (lambda a: answering(result(str(a.id))), BROKEN, "id of another request"),
    "a fraction as id": (lambda a: answering(result(a.id + 0.0)), BROKEN, "usable id"),
    "true as id": (lambda a: answering(result(True)), BROKEN, "usable id"),
    "no id": (lambda a: answering(result(None)), BROKEN, "usable id"),
    "both": (lambda a: answering({**result(a.id), **error(a.id)}), BROKEN, "both"),
    "no object": (lambda a: answering({**result(a.id), "result": 7}), BROKEN, "right shape"),
    "another version": (lambda a: answering({**result(a.id), "jsonrpc": "1"}), BROKEN, "2.0"),
    "a request": (lambda a: answering({**note("ping"), "id": 1}), BROKEN, "no answer"),
    "a notification": (lambda a: answering(note()), BROKEN, "no answer"),
    "an empty array": (lambda a: answering([]), BROKEN, "empty batch"),
    "an array": (lambda a: answering([result(a.id)]), BROKEN, "batch"),
    "an array for others": (lambda a: answering([result(77)]), BROKEN, "no answer"),
    "202": (lambda a: 202, LOST, "answered 202 without a reply"),
    "202 with text": (lambda a: httpx2.Response(202, text="ok"), LOST, "202 without a reply"),
    "204": (lambda a: 204, LOST, "answered 204 without a reply"),
    "301": (lambda a: moved(301, URL), LOST, "answered 301 without a reply"),
    "302": (lambda a: moved(302, "/other"), LOST, "answered 302 without a reply"),
    "303": (lambda a: moved(303, "/other"), LOST, "answered 303 without a reply"),
    "307 to nowhere": (lambda a: moved(307), LOST, "answered 307 without a reply"),
    "307 to another": (lambda a: moved(307, "http://evil.test/x?t=1"), LOST, "http://evil.test/x;"),
    "308 to another port": (lambda a: moved(308, "http://server.test:81/mcp"), LOST, "origin"),
    "307 to another scheme": (lambda a: moved(307, "https://server.test/mcp"), LOST, "origin"),
    "307 to no URL": (lambda a: moved(307, "http://[::1"), LOST, "no URL"),
    "307 to no port": (lambda a: moved(307, "http://server.test:x/"), LOST, "no URL"),
    "307 to data": (lambda a: moved(307, "data:text/html,x"), LOST, "another origin"),
    "307 for ever": (lambda a: moved(307, f"{URL}?{len(a.url)}"), LOST, "more than 5 times"),
    "308 to itself": (lambda a: moved(308, "/mcp"), LOST, "more than 5 times"),
    "400": (lambda a: 400, LOST, "answered 400 without a reply"),
    "429": (lambda a: 429, LOST, "answered 429 without a reply"),
    "500 and a stream": (lambda a: streaming(result(a.id), status=500), LOST, "answered 500"),
    "503 and rubbish": (lambda a: answering(b"{", status=503), LOST, "answered 503"),
    "503 and an answer": (lambda a: answering(note(), status=503), LOST, "answered 503"),
    "a refusal without an id": (lambda a: answering(error(None), status=400), RemoteError, "no"),
    "a refusal with another": (lambda a: answering(error("x"), status=400), RemoteError, "no"),
    "an error without an id": (lambda a: answering(error(None)), RemoteError, "no"),
    "an error of another": (lambda a: answering(error(77)), BROKEN, "id of another request"),
    "no stream": (lambda a: streaming(), LOST, "ended before the answer"),
    "a stream of rubbish": (
        lambda a: streaming(b"data: {\n\ndata: [\n\nrubbish\n\n\xff\xfe"),
        LOST,
        "ended before the answer",
    ),
    "a stream for others": (
        lambda a: streaming(result(77), result(str(a.id)), error("x")),
        LOST,
        "ended before the answer",
    ),
    "a stream with another event": (
        lambda a: streaming(b"event: other\n" + b'data: {"id":1}\n\n'),
        LOST,
        "ended before the answer",
    ),
    "a stream of both": (lambda a: streaming({**result(a.id), **error(a.id)}, ...), BROKEN, "both"),
    "a stream that refuses": (lambda a: streaming(error(None), ...), RemoteError, "no"),
    "a stream with an array": (lambda a: streaming([result(a.id)]), BROKEN, "batch"),
    "a stream that breaks": (
        lambda a: streaming(note(), httpx2.ReadError("reset")),
        LOST,
        "POST failed: ReadError reset",
    ),
    "a body that breaks": (
        lambda a: streaming(b'{"json', httpx2.RemoteProtocolError("cut"), headers={}),
        LOST,
        "without a reply",
    ),
    "no connection": (lambda a: httpx2.ConnectError("refused"), LOST, "ConnectError refused"),
    "no HTTP": (lambda a: httpx2.RemoteProtocolError("what?"), LOST, "RemoteProtocolError"),
    "broken packing": (
        lambda a: answering(b"not gzip", content_encoding="gzip"),
        LOST,
        "DecodingError",
    ),
}


def name_of(value):
    return value if isinstance(value, str) else ""


@each_era
@pytest.mark.parametrize("what", ANSWERS)
async def test_what_is_no_answer_costs_one_call_and_says_so(autojump_clock, revision, what):
    answer, kind, told = ANSWERS[what]
    web = Web(tools_call=answer)
    async with connected(web, revision) as client:
        began = trio.current_time()
        with pytest.raises(kind, match=told) as caught:
            await client.call("tools/call", {"name": "x"})
        assert type(caught.value) is kind
        if kind is not RemoteError:
            assert str(caught.value).startswith("no answer to tools/call: ")
        assert trio.current_time() - began < 2
        await client.ping()
        await trio.testing.wait_all_tasks_blocked()
        assert client.session.statistics().pending == 0
    assert {httpx2.URL(asked.url).host for asked in web.asked} == {"server.test"}
    assert len([asked for asked in web.asked if asked.what == "tools/call"]) <= 6


LARGE = {
    "a body": lambda a: streaming(
        *[b" " * 65536] * ENDLESS, headers={"content-type": "application/json"}
    ),
    "a line": lambda a: streaming(b"data: ", *[b"x" * 65536] * ENDLESS),
    "a line of a field": lambda a: streaming(b"id: ", *[b"x" * 65536] * ENDLESS),
    "a line of a comment": lambda a: streaming(b":", *[b"x" * 65536] * ENDLESS),
    "an event of lines": lambda a: streaming(*[b"data: 1\n" * 8192] * ENDLESS),
    "lines of nothing": lambda a: streaming(*[b"data\n" * 8192] * ENDLESS),
    "a small body": lambda a: answering(BOMB, content_encoding="gzip"),
    "a smaller body": lambda a: answering(TWICE, content_encoding="gzip, gzip"),
    "a small stream": lambda a: streaming(EVENT_BOMB, headers={**STREAM, **PACKED}),
    "a small stream of another packing": lambda a: streaming(
        DEFLATED,
        headers={**STREAM, "content-encoding": "deflate"},
    ),
}


@each_era
@pytest.mark.parametrize("what", LARGE)
async def test_an_answer_without_end_costs_bounded_memory(revision, what):
    web = Web(tools_call=LARGE[what])
    async with connected(web, revision, max_event=LIMIT) as client:
        tracemalloc.start()
        try:
            with pytest.raises(TransportError, match=f"larger than {LIMIT} bytes"):
                await client.call("tools/call", {"name": "x"})
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # A packed body is unpacked a MiB at a time.
        assert peak < 8 * MIB
        assert all(body.taken < 2 * LIMIT for body in web.bodies)
        await client.ping()


SLOW = {
    "no head": lambda a: ...,
    "no body": lambda a: streaming(..., headers={"content-type": "application/json"}),
    "half a body": lambda a: streaming(
        b'{"jsonrpc"', ..., headers={"content-type": "application/json"}
    ),
    "an empty stream": lambda a: streaming(...),
    "half an event": lambda a: streaming(b"data: {", ...),
    "comments for ever": lambda a: streaming(*[b": x\n\n", 0.5] * 10_000),
    "empty events for ever": lambda a: streaming(*[b"data:\n\n", 0.5] * 10_000),
    "ids for ever": lambda a: streaming(*[b"id: 1\n\n", 0.5] * 10_000),
    "rubbish for ever": lambda a: streaming(*[b"data: {\n\n", 0.5] * 10_000),
    "notes for ever": lambda a: streaming(*[note(), 0.5] * 10_000),
    "answers to others for ever": lambda a: streaming(*[result(77), 0.5] * 10_000),
    "blanks for ever": lambda a: streaming(
        *[b" ", 0.5] * 10_000, headers={"content-type": "application/json"}
    ),
}


@each_era
@pytest.mark.parametrize("limit", [TimeLimit(total=20), TimeLimit(idle=5)], ids=["total", "idle"])
@pytest.mark.parametrize("what", SLOW)
async def test_what_never_ends_ends_in_time(autojump_clock, revision, what, limit):
    web = Web(tools_call=SLOW[what])
    async with connected(web, revision) as client:
        began = trio.current_time()
        with pytest.raises(RequestTimeoutError):
            await client.call("tools/call", {"name": "x"}, timeout=limit)
        assert trio.current_time() - began == pytest.approx(min(limit.total, limit.idle))
        await trio.testing.wait_all_tasks_blocked()
        assert web.open == 0  # the connection is let go, in both eras
        await client.ping()
    told = web.of("notifications/cancelled")
    assert len(told) == (revision == HANDSHAKE)


@each_era
async def test_a_stream_that_stays_open_after_the_answer_is_left(autojump_clock, revision):
    web = Web(tools_call=lambda a: streaming(result(a.id, content=["first"]), result(a.id), ...))
    async with connected(web, revision) as client:
        for _ in range(3):
            answer = await client.call("tools/call", {"name": "x"})
            assert answer["content"] == ["first"]
        assert web.open == 3
        await trio.sleep(1.5)
        assert web.open == 0


@each_era
async def test_a_stream_that_talks_on_after_the_answer_is_left(autojump_clock, revision):
    heard = []
    web = Web(tools_call=lambda a: streaming(result(a.id), *[note(), 0.1] * 100_000))
    async with connected(web, revision) as client:
        client.add_middleware(lambda m, p, go: go(m, p))
        await client.call("tools/call", {"name": "x"})
        await trio.sleep(2)
        assert web.open == 0
        heard.append(client.session.statistics().pending)
    assert heard == [0]


async def test_an_answer_on_the_stream_of_another_request_lets_its_own_stream_go(autojump_clock):
    """The id says whose answer it is; nobody waits on the other stream any more."""

    def second(asked):
        return streaming(result(asked.id - 1, content=["late"]), result(asked.id, content=["mine"]))

    web = Web(tools_call=[lambda a: streaming(...), second])
    async with connected(web) as client:
        found = {}

        async def call(name):
            found[name] = (await client.call("tools/call", {"name": name}))["content"]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, "first")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(call, "second")
        assert found == {"first": ["late"], "second": ["mine"]}
        await trio.testing.wait_all_tasks_blocked()
        assert web.open == 0


@each_era
async def test_a_broken_stream_cannot_make_a_client_that_was_cancelled_come_back(
    autojump_clock, revision
):
    web = Web(tools_call=lambda a: streaming(b"id: 1\ndata:\n\nretry: 5000\n\n"))
    async with connected(web, revision) as client:
        with trio.move_on_after(2):
            if revision == HANDSHAKE:
                await client.call("tools/call", {"name": "x"})
            else:
                # There nothing can be gone on with, whatever ids a server may send.
                with pytest.raises(TransportError, match="ended before the answer"):
                    await client.call("tools/call", {"name": "x"})
        await trio.sleep(30)
    assert web.of("GET") == [] or len(web.of("GET")) == 1  # the one that belongs to no request


# -- what has no answer ------------------------------------------------------------------


@each_era
async def test_an_endless_body_to_a_notification_is_not_read(autojump_clock, revision):
    web = Web(n=lambda a: streaming(*[b"x" * 65536] * ENDLESS, status=202, headers={}))
    web.answers["slow"] = lambda a: streaming(b"x", ..., status=202, headers={})
    async with connected(web, revision) as client:
        for method in ("n", "slow"):
            began = trio.current_time()
            await client.session.notify(method)
            assert trio.current_time() - began <= 1
    assert all(body.taken <= 3 * 65536 for body in web.bodies)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda a: ..., "not taken a message within 30"),
        (lambda a: 500, "answered 500 to a notification"),
        (lambda a: moved(307, "http://evil.test/"), "another origin"),
        (lambda a: httpx2.ConnectError("refused"), "POST failed: ConnectError refused"),
    ],
    ids=["never", "500", "elsewhere", "unreachable"],
)
@each_era
async def test_a_notification_that_is_not_taken_says_so(autojump_clock, revision, answer, told):
    web = Web(n=answer)
    async with connected(web, revision) as client:
        with pytest.raises(TransportError, match=told):
            await client.session.notify("n")
        await client.ping()


async def test_connecting_does_not_wait_for_ever_to_be_told_off(autojump_clock):
    web = Web(notifications_initialized=...)
    began = trio.current_time()
    with pytest.raises(
        RequestTimeoutError, match="notifications/initialized was not taken within 10"
    ):
        async with connected(web):
            raise AssertionError("connected")
    assert trio.current_time() - began == pytest.approx(10)


# -- the session -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        *(204, 200, 404, 405, 500, 400),
        ...,
        httpx2.ConnectError("gone"),
        lambda a: streaming(*[b"x" * 65536] * ENDLESS),
        lambda a: moved(307, "http://evil.test/"),
    ],
)
async def test_taking_leave_is_bounded_whatever_the_server_says(autojump_clock, answer):
    web = Web(DELETE=answer)
    async with connected(web):
        began = trio.current_time()
    assert trio.current_time() - began <= 2
    (goodbye,) = web.of("DELETE")
    assert goodbye.headers["mcp-session-id"] == "s-1"
    assert goodbye.headers["mcp-protocol-version"] == HANDSHAKE
    assert all(body.taken <= 65536 for body in web.bodies)


@pytest.mark.parametrize("bad", ["", "a b", "a\tb", "\x7f", "é", "a\x00", "a\x85b"])
async def test_a_session_id_that_no_header_can_carry_is_refused(autojump_clock, bad):
    def open_badly(asked):
        said = result(asked.id, protocolVersion=HANDSHAKE, capabilities={}, serverInfo={})
        fields = [
            (b"content-type", b"application/json"),
            (b"mcp-session-id", bad.encode("latin-1")),
        ]
        response = answering(said)
        response.headers = httpx2.Headers(fields)
        return response

    web = Web(initialize=open_badly)
    with pytest.raises(TransportError, match="an id that no header can carry"):
        async with connected(web):
            raise AssertionError("connected")


async def test_another_session_id_in_the_middle_changes_nothing(autojump_clock, caplog):
    web = Web(tools_call=lambda a: answering(result(a.id), mcp_session_id="s-2"))
    async with connected(web) as client:
        for _ in range(2):
            await client.call("tools/call", {"name": "x"})
    assert {asked.headers.get("mcp-session-id") for asked in web.asked} == {None, "s-1"}
    assert "named another session" in caplog.text


# -- elsewhere -----------------------------------------------------------------------------


@each_era
@pytest.mark.parametrize("status", [307, 308])
async def test_a_server_may_move_on_its_own_origin_and_is_asked_there_from_then_on(
    autojump_clock, revision, status
):
    def answer(asked):
        there = asked.url.endswith("/new/mcp?a=b")
        return result_or_session(asked) if there else moved(status, "/new/mcp?a=b#part")

    web = Web()
    for what in ("initialize", "server/discover", "ping", "tools/call"):
        web.answers[what] = answer
    secret = {"authorization": "Bearer secret"}
    async with connected(web, revision, http={"headers": secret}) as client:
        await client.call("tools/call", {"name": "x"})
        await client.call("tools/call", {"name": "x"})
    first, *others = web.asked
    assert first.url == URL
    assert {asked.url for asked in others} == {"http://server.test/new/mcp?a=b"}
    assert {asked.headers["authorization"] for asked in web.asked} == {"Bearer secret"}


def result_or_session(asked):
    return worked(asked) if asked.what == "tools/call" else opened(asked)


SECRET = {"headers": {"authorization": "Bearer secret"}, "follow_redirects": True}
ELSEWHERE = "http://evil.test/mcp"


@each_era
@pytest.mark.parametrize("what", ["tools/call", "n", "GET", "DELETE"])
async def test_nothing_follows_to_another_origin_not_even_with_a_client_that_follows(
    autojump_clock, revision, what
):
    web = Web()
    web.answers[what] = lambda a: moved(307, ELSEWHERE)
    async with connected(web, revision, http=SECRET) as client:
        if what in {"tools/call", "n"}:
            send = client.call if what == "tools/call" else client.session.notify
            with pytest.raises(TransportError, match=r"another origin, http://evil\.test/mcp;"):
                await send(what)
        await client.ping()
        await trio.testing.wait_all_tasks_blocked()
    assert {httpx2.URL(asked.url).host for asked in web.asked} == {"server.test"}


@each_era
async def test_a_server_that_moves_away_while_it_is_connected_to_is_not_followed(
    autojump_clock, revision
):
    web = Web(initialize=lambda a: moved(308, ELSEWHERE))
    web.answers["server/discover"] = web.answers["initialize"]
    with pytest.raises(TransportError, match=r"another origin, http://evil\.test/mcp;"):
        async with connected(web, revision, http=SECRET):
            raise AssertionError("connected")
    assert {httpx2.URL(asked.url).host for asked in web.asked} == {"server.test"}
