"""Ids, envelopes and bytes that are none: answered, never dropped, and the session goes on."""

import json

import pytest
import trio
import trio.testing

from tests.cases.speakers import each_channel, each_session, encoded, speaking, text_of
from tests.http.tools import make_server
from tests.messages import PING


@each_channel
@pytest.mark.parametrize(
    "id_", [b"null", b"1.5", b"1e3", b"true", b"{}", b"[1]", b'"' + b"x" * 600 + b'"']
)
async def test_an_id_that_is_none_makes_no_notification(channel, id_):
    server, record = make_server()
    async with speaking(server, channel) as speaker:
        for method, params in ((b"ping", b"{}"), (b"tools/call", b'{"name":"wait"}')):
            raw = b'{"jsonrpc":"2.0","id":%s,"method":"%s","params":%s}' % (id_, method, params)
            answer = await speaker.ask(raw)
            assert answer["error"]["code"] == -32600
            assert answer.get("id") is None
        assert record.events == []
        await speaker.works()


@each_channel
@pytest.mark.parametrize(
    ("change", "id_"),
    [
        ({"jsonrpc": None}, 9),
        ({"jsonrpc": "1.0"}, 9),
        ({"jsonrpc": 2.0}, 9),
        ({"params": ["secret"]}, 9),
        ({"params": "secret"}, 9),
        ({"params": 5}, 9),
        ({"method": ["secret"]}, 9),
        ({"result": {}}, 9),
        ({"id": {"secret": 1}}, None),
    ],
)
async def test_a_malformed_envelope_is_refused_without_an_echo(channel, change, id_):
    server, _ = make_server()
    async with speaking(server, channel) as speaker:
        message = {"jsonrpc": "2.0", "id": 9, "method": "tools/list", **change}
        answer = await speaker.ask(encoded(message))
        assert (answer["error"]["code"], answer.get("id")) == (-32600, id_)
        assert "secret" not in json.dumps(answer)
        await speaker.works()


@each_session
@pytest.mark.parametrize("id_", [1, "1", 0, "", 9007199254740993])
async def test_an_id_in_flight_is_refused_and_free_again_afterwards(channel, id_):
    server, record = make_server()
    async with speaking(server, channel) as speaker:
        await speaker.say(speaker.call(id_, "wait"))
        await record.until("wait started")
        second = await speaker.ask(speaker.call(id_, "add", a=1, b=1))
        assert (second["id"], second["error"]["code"]) == (id_, -32600)
        record.release.set()
        first = await speaker.hear()
        assert (first["id"], text_of(first)) == (id_, "wait")
        for number in range(3):
            again = await speaker.ask(speaker.call(id_, "add", a=1, b=number))
            assert (again["id"], text_of(again)) == (id_, str(1 + number))


async def test_every_stateless_post_has_ids_of_its_own():
    server, record = make_server()
    async with speaking(server, "stateless") as speaker:
        for label in ("one", "two", "three"):
            await speaker.say(speaker.call(1, "wait", label=label))
        assert sorted(record.events) == ["one started", "three started", "two started"]
        record.release.set()
        answers = [await speaker.hear() for _ in range(3)]
        assert {answer["id"] for answer in answers} == {1}
        assert sorted(map(text_of, answers)) == ["one", "three", "two"]


@each_channel
@pytest.mark.parametrize("ids", [(7, "7"), (0, "0"), (-1, "-1"), (2**60, str(2**60))])
async def test_a_number_and_the_same_digits_as_text_are_two_ids(channel, ids):
    server, record = make_server()
    async with speaking(server, channel) as speaker:
        for id_ in ids:
            await speaker.say(speaker.call(id_, "wait", label=type(id_).__name__))
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(record.events) == ["int started", "str started"]
        record.release.set()
        answers = [await speaker.hear() for _ in ids]
        assert {answer["id"]: text_of(answer) for answer in answers} == dict(
            zip(ids, ("int", "str"), strict=True)
        )


@each_session
async def test_cancelling_a_number_leaves_the_same_digits_as_text_alone(channel):
    server, record = make_server()
    async with speaking(server, channel) as speaker:
        for id_ in (7, "7"):
            await speaker.say(speaker.call(id_, "wait", label=type(id_).__name__))
        await trio.testing.wait_all_tasks_blocked()
        for wrong in (7.0, True, None, [7], "07"):
            await speaker.cancel(wrong)
        await speaker.cancel("7")
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(record.events) == ["int started", "str over", "str started"]
        record.release.set()
        assert (await speaker.hear())["id"] == 7
        await speaker.works()


@pytest.mark.parametrize("channel", ["lines", "websocket", "http"])
async def test_a_batch_is_one_array_of_answers_in_the_revision_that_has_batches(channel):
    server, _ = make_server()
    note = {"jsonrpc": "2.0", "method": "notifications/x"}
    async with speaking(server, channel, "2025-03-26") as speaker:
        batch = [PING, note, speaker.call(2, "add", a=1, b=2)]
        answers = await speaker.ask(encoded(batch))
        assert {answer["id"] for answer in answers} == {1, 2}
        empty = await speaker.ask(b"[]")
        assert empty["error"]["code"] == -32600
        await speaker.say(encoded([note, note]))  # has no answer
        await speaker.works()


@pytest.mark.parametrize("channel", ["lines", "websocket", "http", "stateless"])
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
async def test_a_batch_is_refused_everywhere_else(channel, revision):
    server, record = make_server()
    async with speaking(server, channel, revision) as speaker:
        for batch in ([PING, PING], [speaker.call(1, "wait")], []):
            answer = await speaker.ask(encoded(batch))
            assert answer["error"]["code"] == -32600
            assert "id" not in answer
        assert record.events == []
        await speaker.works()


@each_channel
@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"{not json}", -32700),
        (b"{", -32700),
        (b'{"a":NaN}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"} {}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"pi\x0bng"}', -32700),
        (b"\xef\xbb\xbf" + json.dumps(PING).encode(), -32700),
        (b"5", -32600),
        (b'"ping"', -32600),
        (b"null", -32600),
    ],
)
async def test_what_is_no_message_is_answered_and_the_next_one_is_read(channel, raw, code):
    server, _ = make_server()
    async with speaking(server, channel) as speaker:
        answer = await speaker.ask(raw)
        assert answer["error"]["code"] == code
        assert answer.get("id") is None
        await speaker.works()


@pytest.mark.parametrize("channel", ["lines", "http", "sse", "stateless"])
@pytest.mark.parametrize(
    "raw", [b'{"a":"\xff"}', b"\xff\xfe", b'{"a":"\xed\xa0\x80"}', b"\xc0\x80"]
)
async def test_bytes_that_are_no_utf8_are_answered(channel, raw):
    server, _ = make_server()
    async with speaking(server, channel) as speaker:
        assert (await speaker.ask(raw))["error"]["code"] == -32700
        await speaker.works()


@each_channel
@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
@pytest.mark.parametrize("levels", [200, 100_000])
async def test_deep_nesting_is_refused_by_its_own_rule(channel, opening, levels):
    server, _ = make_server()
    async with speaking(server, channel) as speaker:
        answer = await speaker.ask(
            b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + opening * levels
        )
        assert answer["error"]["code"] == -32600
        assert "64 levels" in answer["error"]["message"]
        assert "recursion" not in json.dumps(answer)
        await speaker.works()


SEPARATORS = "\u2028 \u2029 \x85 \r \x0b \x0c \x1c \x1e \n"


@each_session
@pytest.mark.parametrize("escaped", [True, False])
async def test_separators_of_text_end_no_message(channel, escaped):
    server, _ = make_server()

    @server.tool
    async def same(text: str) -> str:
        return text

    async with speaking(server, channel) as speaker:
        # Not escaped, those stand there as they are that JSON allows to.
        call = json.dumps(speaker.call(1, "same", text=SEPARATORS), ensure_ascii=escaped)
        answer = await speaker.ask(call.encode())
        assert text_of(answer) == SEPARATORS
        await speaker.works()


async def test_a_carriage_return_before_the_line_feed_is_taken_and_never_given():
    server, _ = make_server()
    async with speaking(server, "lines") as speaker:
        stream = speaker.peer.stream
        ping = json.dumps(PING).encode()
        other = json.dumps({**PING, "id": 2}).encode()
        await stream.send_all(ping + b"\r\n" + b"\r\n\n" + other + b"\n")
        assert sorted([(await speaker.hear())["id"], (await speaker.hear())["id"]]) == [1, 2]
        await stream.send_all(ping + b"\r\n")
        raw = await stream.receive_some()
        assert raw.endswith(b"}\n")
        assert b"\r" not in raw


BIG = (9007199254740993, -9007199254740993, 2**63, 2**64 + 1, 10**40)


@each_channel
@pytest.mark.parametrize("number", BIG)
async def test_integers_keep_their_digits_wherever_they_stand(channel, number):
    server, _ = make_server()

    @server.tool
    async def same(n: int, deep: dict[str, list[int]]) -> dict[str, object]:
        return {"n": n, "deep": deep}

    async with speaking(server, channel) as speaker:
        answer = await speaker.ask(speaker.call(number, "same", n=number, deep={"a": [number]}))
        assert answer["id"] == number
        assert json.loads(text_of(answer)) == {"n": number, "deep": {"a": [number]}}
        if channel != "sse":  # whose revision has no structure
            assert answer["result"]["structuredContent"]["deep"] == {"a": [number]}
