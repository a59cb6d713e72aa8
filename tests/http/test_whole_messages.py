"""Messages that are read or written in one piece are what h11 makes of them, or left to it."""

import os
import socket

import attrs
import h11
import pytest
import trio
import trio.testing
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_trio.http import http1
from mcp_trio.http.whole_messages import plain_request, whole_answer

from .judges import read_by_h11
from .serving_tools import Client, connect, header, read_all, read_body, served

DATE = (b"date", b"Tue, 01 Dec 2026 00:00:00 GMT")


def told_by_h11(status, fields, body):
    """What h11 writes; None if it refuses, or says more than one answer of that kind."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    connection.next_event()
    try:
        events = [
            h11.Response(status_code=status, headers=[*fields, DATE]),
            *([h11.Data(data=body)] if body else []),
            h11.EndOfMessage(),
        ]
        return b"".join(connection.send(event) for event in events)
    except h11.LocalProtocolError:
        return None


names = st.sampled_from(
    [b"content-type", b"x-a", b"etag", b"connection", b"transfer-encoding", b"upgrade", b"te", b""]
) | st.binary(max_size=4)
values = st.sampled_from([b"text/plain", b"a, b", b"close", b"chunked", b" x", b"x\r\ny: z", b""])
fields = st.tuples(names, values | st.binary(max_size=6))


@given(
    status=st.sampled_from([100, 199, 200, 201, 204, 205, 304, 400, 404, 500, 599, 600, 999]),
    some=st.lists(fields, max_size=3),
    lengths=st.lists(st.sampled_from([b"0", b"2", b"3", b"03", b"2, 2", b"x"]), max_size=2),
    body=st.sampled_from([b"", b"ab", b"abc"]),
)
@example(200, [(b"x", b"a\r\nb: c")], [b"2"], b"ab")
@example(200, [(b"x", b"a\nb")], [b"2"], b"ab")
@example(200, [(b"x ", b"a")], [b"2"], b"ab")
@example(200, [(b"x", b"\xff \t \x80")], [b"2"], b"ab")
@example(200, [(b"X-Case", b"")], [b"0"], b"")
def test_what_is_written_at_once_is_what_h11_would_write(status, some, lengths, body):
    given_fields = [*some, *((b"content-length", length) for length in lengths)]
    told = whole_answer(status, given_fields, [DATE], body)
    if told is not None:
        assert told == told_by_h11(status, given_fields, body)


@pytest.mark.parametrize("body", [b"", b"x", bytes(100_000)])
def test_plain_answers_are_written_at_once(body):
    plain = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    for status in (200, 202, 400, 403, 404, 413, 429, 503):
        assert whole_answer(status, plain, [DATE], body) == told_by_h11(status, plain, body)
        assert whole_answer(status, plain, [DATE], body) is not None


@pytest.mark.parametrize(
    "wrong", [[("x", "y")], [(b"x",)], [(b"x", None)], [b"xy"], None, [(b"x", "y")]]
)
def test_what_is_no_header_field_is_left_to_others(wrong):
    assert whole_answer(200, wrong, [DATE], b"") is None


# Requests.

BODY = b'{"a":1}'
HEAD = [b"Host: x", b"content-length: 7"]


def assert_as_h11_reads(data):
    """What is read at once, if anything, is what h11 reads once all of it has come."""
    if (found := plain_request(data)) is not None:
        told = (attrs.astuple(found.head, recurse=False), found.body + bytes(found.missing))
        assert told == read_by_h11(data + bytes(found.missing))


def request_of(lines, body=BODY, first=b"POST /mcp HTTP/1.1"):
    return b"".join(line + b"\r\n" for line in [first, *lines, b""]) + body


lines = st.sampled_from(
    [
        b"Host: y",
        b"content-length: 7",
        b"Content-Length: 07",
        b"content-length: +7",
        b"content-length: 7, 7",
        b"content-length : 7",
        b"transfer-encoding: chunked",
        b"connection: keep-alive",
        b"connection: close",
        b"expect: 100-continue",
        b"upgrade: websocket",
        b" folded: x",
        b"x: a\tb  c \t",
        b"x:",
        b"x: \xff",
        b"x: a\x00b",
        b"x: a\nb",
        b"x: a\rb",
        b"x",
        b": x",
    ]
) | st.binary(max_size=12)


@given(
    first=st.sampled_from(
        [
            b"POST /mcp HTTP/1.1",
            b"POST / HTTP/1.0",
            b"POST  / HTTP/1.1",
            b"POST /\xff HTTP/1.1",
            b"POST / HTTP/1.1 ",
            b"post / HTTP/1.1",
            b"POST http://x/ HTTP/1.1",
            b"\r\nPOST / HTTP/1.1",
        ]
    ),
    some=st.lists(st.sampled_from(HEAD) | lines, max_size=5),
    body=st.sampled_from([b"", BODY, BODY + b"x", BODY[:-1], BODY + b"\r\n\r\n"]),
)
def test_what_is_read_at_once_is_what_h11_would_read(first, some, body):
    data = request_of(some, body, first)
    assert_as_h11_reads(data)


ODD = st.sampled_from(b"\r\n\t\x00 :,/0179aZ\x7f\xff")


@given(st.data())
def test_no_changed_byte_makes_it_read_what_h11_would_not(data):
    whole = bytearray(request_of([*HEAD, b"accept: a, b", b"connection: keep-alive"]))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(whole) - 1))
        whole[place] = data.draw(
            st.sampled_from(b"\r\n\t\x00 :,/0179aZ\x7f\xff") | st.integers(0, 255)
        )
    assert_as_h11_reads(bytes(whole))


@pytest.mark.parametrize(
    "more", [[], [b"connection: keep-alive"], [b"X-A:", b"x-a: \t b c\t"], [b"origin: http://x"]]
)
def test_plain_requests_are_read_at_once(more):
    data = request_of([*HEAD, *more])
    assert plain_request(data) is not None
    assert_as_h11_reads(data)


@pytest.mark.parametrize(
    "line",
    [
        b"x:" + b" " * 60_000 + b"\x00",
        b"x: " + b"a " * 30_000 + b"\x00",
        b"x: " + b"a" * 60_000 + b"\x00",
        b"\r\n".join([b"a: b"] * 10_000) + b"\x00",
        b"a" * 60_000,
    ],
)
def test_a_head_that_is_meant_to_be_slow_to_read_is_not(line):
    assert plain_request(request_of([*HEAD, line])) is None


# On a connection.


async def test_fields_that_can_be_read_once_only_are_there_for_h11(written):
    async def lazy(scope, receive, send):
        await say(send, b"lazy", headers=iter([(b"content-length", b"4"), (b"x-a", b"b")]))

    async with served(lazy) as port, await connect(port) as stream:
        client = Client(stream)
        await client.ask("GET")
        response, body = await client.read()
    assert (header(response, b"x-a"), body, written) == (b"b", b"lazy", [])


async def say(send, body, **more):
    fields = more.pop("headers", [(b"content-length", b"%d" % len(body))])
    await send({"type": "http.response.start", "status": 200, "headers": fields, **more})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def written(monkeypatch):
    """The bodies of the answers that were written at once."""
    seen = []

    def watched(status, fields, more, body):
        told = whole_answer(status, fields, more, body)
        if told is not None:
            seen.append(body)
        return told

    monkeypatch.setattr(http1, "whole_answer", watched)
    return seen


async def app(scope, receive, send):
    await say(send, await read_body(receive) or b"none")


async def test_the_usual_request_is_answered_at_once_time_and_again(written):
    async with served(app) as port, await connect(port) as stream:
        client = Client(stream)
        for number in range(3):
            await client.ask(body=b"%d" % number)
            response, body = await client.read()
            assert (response.status_code, body) == (200, b"%d" % number)
            assert header(response, b"date") is not None
    assert written == [b"0", b"1", b"2"]


async def in_pieces(pieces, application, line=b"", **settings):
    """What the server says to pieces of a request, each sent once it has seen the one before."""
    async with served(application, **settings) as port, await connect(port) as stream:
        for piece in pieces:
            await stream.send_all(piece.replace(b"host: x", b"host: x" + line))
            await trio.testing.wait_all_tasks_blocked(0.005)
        await stream.send_eof()
        return await read_all(stream)


ONCE = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n%b\r\n%d"


async def test_a_body_that_comes_after_its_head_is_no_reason_to_ask_h11(written):
    async with served(app) as port, await connect(port) as stream:
        for number in range(3):
            await stream.send_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 6\r\n\r\n")
            for piece in (b"a", b"bc", b"de%d" % number):
                await trio.testing.wait_all_tasks_blocked(0.005)
                await stream.send_all(piece)
            answer = b""
            while not answer.endswith(b"\r\n\r\nabcde%d" % number):
                answer += await stream.receive_some()
    assert written == [b"abcde0", b"abcde1", b"abcde2"]


async def test_a_body_reaches_the_application_as_it_comes():
    seen, more = [], trio.Event()

    async def curious(scope, receive, send):
        while (message := await receive())["more_body"]:
            seen.append(message["body"])
            more.set()
        await say(send, b"ok")

    async with served(curious) as port, await connect(port) as stream:
        await stream.send_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\na")
        await more.wait()
        assert seen == [b"a"]
        await stream.send_all(b"bc")
        await stream.send_eof()
        assert (await read_all(stream)).endswith(b"ok")


@pytest.mark.parametrize("place", range(len(ONCE % (b"", 1)) + 1))
async def test_wherever_two_requests_are_cut_each_is_answered(place):
    data = ONCE % (b"", 1) + ONCE % (b"", 2)
    told = await in_pieces([data[:place], data[place:]], app)
    assert told.count(b"HTTP/1.1 200 ") == 2
    assert told.index(b"\r\n\r\n1") < told.index(b"\r\n\r\n2")


PARTLY = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n"


@pytest.mark.parametrize("doubt", [b"", b"\r\nte: trailers"])
@pytest.mark.parametrize(
    ("pieces", "begins"),
    [
        ([PARTLY], b"HTTP/1.1 400 "),
        ([PARTLY, b"ab"], b"HTTP/1.1 400 "),
        ([PARTLY, b"ab", b"cde" + PARTLY], b"HTTP/1.1 200 "),
        ([PARTLY, b"ab", b"cdef"], b"HTTP/1.1 200 "),
        ([PARTLY + b"abcde", b"PUT"], b"HTTP/1.1 200 "),
    ],
)
async def test_what_is_wrong_with_a_body_is_told_as_h11_tells_it(pieces, begins, doubt):
    """The field in doubt has h11 read everything: the answers must be the same."""
    told = await in_pieces(pieces, app, doubt)
    plain = await in_pieces(pieces, app)
    assert told.startswith(begins)
    assert [line for line in plain.split(b"\r\n") if not line.startswith(b"date")] == [
        line for line in told.split(b"\r\n") if not line.startswith(b"date")
    ]


@pytest.mark.parametrize("doubt", [b"", b"\r\nte: trailers"])
async def test_a_body_that_never_comes_is_timed_out(doubt):
    async with served(app, body_timeout=0.05) as port, await connect(port) as stream:
        await stream.send_all(PARTLY.replace(b"host: x", b"host: x" + doubt) + b"ab")
        told = await read_all(stream)
    assert told.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in told


async def test_an_answer_before_a_body_that_comes_in_pieces_closes_the_connection(written):
    async def hasty(scope, receive, send):
        await receive()
        await say(send, b"enough")

    told = await in_pieces([PARTLY, b"ab", b"cd"], hasty)
    assert b"connection: close\r\n" in told
    assert told.endswith(b"enough")
    assert written == []


async def test_a_large_body_behind_its_head_is_read_by_h11(written):
    size = 300_000
    async with served(app) as port, await connect(port) as stream:
        await stream.send_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size)
        await stream.send_all(bytes(size))
        await stream.send_eof()
        told = await read_all(stream)
    assert told.endswith(bytes(size))


async def test_pipelined_requests_are_each_answered_at_once_until_an_end_of_file(written):
    async with served(app) as port, await connect(port) as stream:
        await stream.send_all(b"".join(ONCE % (b"", number) for number in range(4)))
        await stream.send_eof()
        data = await read_all(stream)
    assert data.count(b"HTTP/1.1 200 ") == 4
    assert [data.index(b"\r\n\r\n%d" % number) for number in range(4)] == sorted(
        data.index(b"\r\n\r\n%d" % number) for number in range(4)
    )
    # Once h11 has seen the end of file, it has to say that the connection closes.
    assert written[:3] == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("request_bytes", "end"),
    [
        (ONCE % (b"connection: close\r\n", 7), b"\r\n\r\n7"),
        (ONCE % (b"connection: keep-alive, Close\r\n", 7), b"\r\n\r\n7"),
        (b"POST / HTTP/1.0\r\ncontent-length: 1\r\n\r\n7", b"\r\n\r\n7"),
    ],
)
async def test_whoever_wants_no_other_answer_gets_the_connection_closed(
    written, request_bytes, end
):
    async with served(app) as port, await connect(port) as stream:
        await stream.send_all(request_bytes)
        data = await read_all(stream)
    assert b"\r\nconnection: close\r\n" in data.lower()
    assert data.endswith(end)
    assert written == []


async def test_keep_alive_in_so_many_words_keeps_it(written):
    async with served(app) as port, await connect(port) as stream:
        client = Client(stream)
        for _ in range(2):
            await client.ask(body=b"7", connection="Keep-Alive")
            response, _ = await client.read()
            assert header(response, b"connection") is None
    assert written == [b"7", b"7"]


async def test_the_last_request_of_a_connection_is_told_so(written):
    async with served(app, max_requests_per_connection=2) as port, await connect(port) as stream:
        await stream.send_all(3 * (ONCE % (b"", 7)))
        data = await read_all(stream)
    assert data.count(b"HTTP/1.1 200 ") == 2
    assert data.lower().count(b"connection: close") == 1
    assert written == [b"7"]


async def test_a_head_alone_is_answered_without_a_body(written):
    async with served(app) as port, await connect(port) as stream:
        await stream.send_all(b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n")
        await stream.send_eof()
        data = await read_all(stream)
    assert b"content-length: 4\r\n" in data
    assert data.endswith(b"\r\n\r\n")
    assert written == []


async def test_an_answer_before_the_end_of_the_request_closes_the_connection(written):
    async def hasty(scope, receive, send):
        await say(send, b"enough")

    async with served(hasty) as port, await connect(port) as stream:
        await stream.send_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc")
        data = await read_all(stream)
    assert b"connection: close\r\n" in data
    assert data.endswith(b"enough")
    assert written == []


@pytest.mark.parametrize(
    "fields", [[], [(b"content-length", b"5")], [(b"transfer-encoding", b"chunked")]]
)
async def test_an_answer_with_another_length_or_none_is_left_to_h11(written, fields):
    async def odd(scope, receive, send):
        await say(send, b"odd!", headers=fields)

    async with served(odd) as port, await connect(port) as stream:
        await stream.send_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await stream.send_eof()
        data = await read_all(stream)
    assert b"odd!" in data
    assert (b"chunked" in data) == (fields != [(b"content-length", b"5")])
    assert written == []


async def test_a_request_in_one_piece_may_be_answered_in_parts(written):
    async def parts(scope, receive, send):
        body = await read_body(receive)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(3):
            await send({"type": "http.response.body", "body": b"%d" % number, "more_body": True})
        await send({"type": "http.response.body", "body": body})

    async with served(parts) as port, await connect(port) as stream:
        client = Client(stream)
        for number in range(2):
            await client.ask(body=b"%d" % number)
            response, body = await client.read()
            assert header(response, b"transfer-encoding") == b"chunked"
            assert body == b"012%d" % number
    assert written == []


async def test_a_request_that_comes_while_another_one_is_answered_waits_for_its_turn(written):
    began, go_on = trio.Event(), trio.Event()

    async def slow(scope, receive, send):
        body = await read_body(receive)
        began.set()
        await go_on.wait()
        await say(send, body)

    async with served(slow) as port, await connect(port) as stream:
        await stream.send_all(ONCE % (b"", 1))
        await began.wait()
        await stream.send_all((ONCE % (b"", 2))[:20])
        await trio.testing.wait_all_tasks_blocked(0.05)
        await stream.send_all((ONCE % (b"", 2))[20:] + ONCE % (b"", 3))
        await trio.testing.wait_all_tasks_blocked(0.05)
        go_on.set()
        await stream.send_eof()
        data = await read_all(stream)
    assert data.count(b"HTTP/1.1 200 ") == 3
    assert data.index(b"\r\n\r\n1") < data.index(b"\r\n\r\n2") < data.index(b"\r\n\r\n3")


async def test_an_application_that_says_nothing_to_a_request_in_one_piece_gives_500(
    written, caplog
):
    async def silent(scope, receive, send):
        await read_body(receive)

    async with served(silent) as port, await connect(port) as stream:
        await stream.send_all(ONCE % (b"", 1))
        data = await read_all(stream)
    assert data.startswith(b"HTTP/1.1 500 ")
    assert data.count(b"HTTP/1.1") == 1


async def test_a_second_answer_is_a_fault_of_the_application(written, caplog):
    async def twice(scope, receive, send):
        await say(send, b"one")
        await say(send, b"two")

    async with served(twice) as port, await connect(port) as stream:
        await stream.send_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await stream.send_eof()
        data = await read_all(stream)
    assert data.endswith(b"\r\n\r\none")
    assert data.count(b"HTTP/1.1") == 1
    assert written == [b"one"]


@pytest.mark.parametrize("doubt", [b"", b"te: trailers\r\n"])
async def test_the_body_of_a_request_that_is_answered_already_is_no_request(doubt):
    """Also where it comes in the very turn of the scheduler in which the answer goes out."""
    inner = b"POST /inner HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
    outer = b"POST /outer HTTP/1.1\r\nhost: x\r\n%bcontent-length: 999\r\n\r\n" % doubt
    seen = []

    async def hasty(scope, receive, send):
        seen.append(scope["path"])
        running.set()
        await go_on.wait()
        await say(send, b"enough")

    async with served(hasty) as port:
        for _ in range(20):  # who is first in that turn is left to chance
            running, go_on = trio.Event(), trio.Event()
            async with await connect(port) as stream:
                await stream.send_all(outer)
                await running.wait()
                await trio.testing.wait_all_tasks_blocked()
                with socket.socket(fileno=os.dup(stream.socket.fileno())) as same:
                    same.send(inner)
                go_on.set()
                assert (await read_all(stream)).endswith(b"enough")
    assert seen == ["/outer"] * 20
