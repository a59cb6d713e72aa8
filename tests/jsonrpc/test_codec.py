"""JSON-RPC messages as bytes, both ways: what is accepted, refused, and never echoed."""

from __future__ import annotations

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.errors import INVALID_REQUEST, PARSE_ERROR
from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.codec import CodecLimits, EncodeError, decode, encode
from mcp_trio.jsonrpc.messages import (
    Batch,
    Error,
    Malformed,
    Notification,
    Request,
    Result,
)


def refused(data: bytes, code: int, limits: CodecLimits = codec.DEFAULT_LIMITS) -> Error:
    message = decode(data, limits)
    assert isinstance(message, Malformed)
    assert message.answer is not None
    assert message.answer.code == code
    return message.answer


def unanswered(data: bytes) -> Malformed:
    message = decode(data)
    assert isinstance(message, Malformed)
    assert message.answer is None
    return message


# -- bytes that are no JSON -------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"{",
        b'{"jsonrpc":"2.0","id":1,"method":"ping"',
        b'{"jsonrpc":"2.0","id":1,"method":"pi',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"} {}',
        b"{'jsonrpc':'2.0'}",
        b'{"jsonrpc":"2.0","id":01,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":Infinity}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":-Infinity}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":1e999}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + b"1" * 5000 + b"}}",
        b'{"jsonrpc":"2.0","id":1,"method":"pi\nng"}',
        b"\xef\xbb\xbf" + b'{"jsonrpc":"2.0","id":1,"method":"ping"}',
        '{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"),
        b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
        b'{"jsonrpc":"2.0","id":1,"method":"\xed\xa0\x80"}',
        b'{"jsonrpc":"2.0","id":1,"method":"\xc0\xaf"}',
        b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}',
        b'{"jsonrpc":"2.0","id":1,"method":"\\udc00x"}',
        b"\x00",
    ],
)
def test_bytes_that_are_no_strict_json_are_a_parse_error_without_an_id(data: bytes) -> None:
    assert refused(data, PARSE_ERROR).id is None  # B1


def test_a_surrogate_pair_is_one_character() -> None:
    message = decode(b'{"jsonrpc":"2.0","method":"\\ud83d\\ude00"}')
    assert message == Notification("\N{GRINNING FACE}")


@pytest.mark.parametrize("data", [b"1", b'"secret"', b"null", b"true", b"[1]", b'[[{"a":1}]]'])
def test_json_that_is_no_object_is_an_invalid_request(data: bytes) -> None:
    message = decode(data)
    first = message.items[0] if isinstance(message, Batch) else message
    assert isinstance(first, Malformed)
    assert first.answer is not None
    assert first.answer.code == INVALID_REQUEST


def test_a_refusal_never_repeats_what_came() -> None:
    for data in (b'{"secret', b'{"jsonrpc":"secret"}', b'{"jsonrpc":"2.0","method":{"secret":1}}'):
        message = decode(data)
        assert isinstance(message, Malformed)
        assert "secret" not in message.reason
        assert b"secret" not in encode(message.answer or Error(None, 0, ""))


# -- depth ------------------------------------------------------------------------------


def numbers(count: int) -> bytes:
    return b'{"jsonrpc":"2.0","method":"m","params":{"x":[%s]}}' % b",".join([b"0"] * count)


def test_the_most_values_that_are_allowed_pass_and_one_more_does_not() -> None:
    # The message, its two other members, the params and the array count, too.
    limits = CodecLimits(max_nodes=100)
    assert isinstance(decode(numbers(95), limits), Notification)
    assert "values" in refused(numbers(96), INVALID_REQUEST, limits).message


@pytest.mark.parametrize("item", [b"{},", b"[],", b'{"a":1},', b'"",', b"[[],[]],", b'"a\\"b",'])
def test_a_great_number_of_values_of_any_kind_is_refused_unread(item: bytes) -> None:
    data = b'{"jsonrpc":"2.0","method":"m","params":{"x":[' + item * 60_000 + b"0]}}"
    assert "values" in refused(data, INVALID_REQUEST, CodecLimits(max_nodes=50_000)).message


def test_commas_and_brackets_in_strings_are_no_values() -> None:
    text = r"\",[[{{,\\" * 1000
    data = b'{"jsonrpc":"2.0","method":"m","params":{"x":"%s"}}' % text.encode()
    assert isinstance(decode(data, CodecLimits(max_nodes=10)), Notification)


@given(
    st.recursive(
        st.text('a"\\,[]{}') | st.none() | st.integers(),
        lambda inner: (
            st.lists(inner, min_size=1) | st.dictionaries(st.text('"\\,'), inner, min_size=1)
        ),
    )
)
def test_the_values_that_are_counted_are_the_real_ones(value: object) -> None:
    def nodes(item: object) -> int:
        parts = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        return 1 + sum(map(nodes, parts))

    data, limit = json.dumps(value).encode(), nodes(value)
    assert codec.overgrown(data, CodecLimits(max_depth=1000, max_nodes=limit)) is None
    assert limit == 1 or codec.overgrown(data, CodecLimits(max_depth=1000, max_nodes=limit - 1))


def nested(levels: int, opening: str = "[", closing: str = "]") -> bytes:
    """A message that nests `levels` deep, itself and its params included."""
    inner = levels - 2
    value = opening * inner + closing * inner
    return f'{{"jsonrpc":"2.0","method":"m","params":{{"x":{value or 0}}}}}'.encode()


def test_the_deepest_allowed_nesting_passes_and_one_more_does_not() -> None:
    limits = CodecLimits(max_depth=10)
    assert isinstance(decode(nested(10), limits), Notification)
    refused(nested(11), INVALID_REQUEST, limits)
    refused(nested(11, '{"a":', "}").replace(b":}", b":0}"), INVALID_REQUEST, limits)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_absurd_nesting_is_refused_by_name_and_without_recursion(opening: bytes) -> None:
    data = opening * 100_000
    assert "nested" in refused(data, INVALID_REQUEST).message


def test_brackets_inside_strings_do_not_count() -> None:
    text = r"\"[[[[{{{{\\" + "[{" * 200
    data = b'{"jsonrpc":"2.0","method":"m","params":{"x":"%s","y":"]]"}}' % text.encode()
    message = decode(data, CodecLimits(max_depth=3))
    assert isinstance(message, Notification)
    assert message.params == {"x": '"[[[[{{{{\\' + "[{" * 200, "y": "]]"}


def test_brackets_after_an_escaped_backslash_at_the_end_of_a_string_do_count() -> None:
    data = rb'{"jsonrpc":"2.0","method":"m","params":{"x":"\\","y":[[[[1]]]]}}'
    refused(data, INVALID_REQUEST, CodecLimits(max_depth=5))
    assert isinstance(decode(data, CodecLimits(max_depth=6)), Notification)


@given(
    st.recursive(
        st.text() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_the_depth_that_is_counted_is_the_real_one(value: object) -> None:
    def depth(item: object) -> int:
        if isinstance(item, dict):
            return 1 + max(map(depth, item.values()), default=0)
        if isinstance(item, list):
            return 1 + max(map(depth, item), default=0)
        return 0

    data = json.dumps(value).encode()
    assert codec.overgrown(data, CodecLimits(max_depth=depth(value))) is None
    assert depth(value) == 0 or codec.overgrown(data, CodecLimits(max_depth=depth(value) - 1))


# -- requests ---------------------------------------------------------------------------


@pytest.mark.parametrize("id_", [0, 7, -7, "7", "", "ü", 2**53 + 1, 10**40, -(10**40)])
def test_ids_are_integers_of_any_size_and_strings_and_stay_what_they_are(id_: int | str) -> None:
    data = json.dumps({"jsonrpc": "2.0", "id": id_, "method": "ping"}).encode()
    message = decode(data)
    assert message == Request(id_, "ping")  # B2
    assert type(message.id) is type(id_)
    assert decode(encode(Result(id_, {}))) == Result(id_, {})


@pytest.mark.parametrize("id_", ["null", "1.5", "1.0", "true", "{}", "[]", "1e400", "[1]"])
def test_any_other_id_is_an_invalid_request_and_no_notification(id_: str) -> None:
    data = b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % id_.encode()
    message = decode(data)
    assert isinstance(message, Malformed)  # B2, py#2057
    assert message.answer is not None
    assert message.answer.id is None


def test_ids_have_a_longest_length() -> None:
    limits = CodecLimits(max_id=8)
    for fitting in (b'"12345678"', b"99999999", b"-99999999"):
        data = b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % fitting
        assert isinstance(decode(data, limits), Request)
    for too_long in (b'"123456789"', b"100000000", b"-100000000"):
        refused(b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % too_long, INVALID_REQUEST, limits)


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "ping"},
        {"jsonrpc": "1.0", "method": "ping"},
        {"jsonrpc": 2.0, "method": "ping"},
        {"jsonrpc": "2.0"},
        {"jsonrpc": "2.0", "method": None},
        {"jsonrpc": "2.0", "method": 5},
        {"jsonrpc": "2.0", "method": "ping", "params": []},
        {"jsonrpc": "2.0", "method": "ping", "params": None},
        {"jsonrpc": "2.0", "method": "ping", "params": "x"},
        {"jsonrpc": "2.0", "method": "ping", "params": 0},
        {"jsonrpc": "2.0", "method": "ping", "result": {}},
        {"jsonrpc": "2.0", "method": "ping", "error": None},
    ],
)
def test_a_broken_request_is_refused_under_its_own_id(fields: dict[str, object]) -> None:
    answer = refused(json.dumps({"id": 9, **fields}).encode(), INVALID_REQUEST)
    assert answer.id == 9  # B11


def test_a_missing_params_is_none_and_an_empty_one_is_empty() -> None:
    assert decode(b'{"jsonrpc":"2.0","id":1,"method":"a"}') == Request(1, "a", None)
    assert decode(b'{"jsonrpc":"2.0","id":1,"method":"a","params":{}}') == Request(1, "a", {})


def test_of_two_equal_keys_the_last_one_counts() -> None:
    data = b'{"jsonrpc":"2.0","id":1,"id":2,"method":"a","method":"b"}'
    assert decode(data) == Request(2, "b")


def test_unknown_members_are_ignored() -> None:
    assert decode(b'{"jsonrpc":"2.0","method":"a","more":[1]}') == Notification("a")


# -- answers ----------------------------------------------------------------------------


def test_an_error_may_lack_its_id_or_have_null_there() -> None:
    for head in (b"", b'"id":null,'):
        data = b'{"jsonrpc":"2.0",%s"error":{"code":-32700,"message":"m"}}' % head
        assert decode(data) == Error(None, -32700, "m")  # B3


@pytest.mark.parametrize(
    "fields",
    [
        {"jsonrpc": "2.0", "result": None},
        {"jsonrpc": "2.0", "result": []},
        {"jsonrpc": "2.0", "result": {}, "error": {"code": 1, "message": "m"}},
        {"jsonrpc": "2.0", "result": {}, "error": None},
        {"jsonrpc": "2.0", "error": None},
        {"jsonrpc": "2.0", "error": "text"},
        {"jsonrpc": "2.0", "error": {"code": 1}},
        {"jsonrpc": "2.0", "error": {"message": "m"}},
        {"jsonrpc": "2.0", "error": {"code": 1.5, "message": "m"}},
        {"jsonrpc": "2.0", "error": {"code": True, "message": "m"}},
        {"jsonrpc": "2.0", "error": {"code": 1, "message": None}},
        {"result": {}},
        {"error": {"code": 1, "message": "m"}},
        {"jsonrpc": "1.0", "result": {}},
    ],
)
def test_a_broken_answer_is_not_answered_but_says_whose_it_was(fields: dict[str, object]) -> None:
    assert unanswered(json.dumps({"id": 4, **fields}).encode()).lost == 4


@pytest.mark.parametrize("head", [b"", b'"id":null,', b'"id":1.5,', b'"id":{},'])
def test_a_result_without_a_usable_id_belongs_to_nobody(head: bytes) -> None:
    assert unanswered(b'{"jsonrpc":"2.0",%s"result":{}}' % head).lost is None


# -- batches ----------------------------------------------------------------------------


def test_a_batch_keeps_order_and_holds_its_own_refusals() -> None:
    data = b'[{"jsonrpc":"2.0","id":1,"method":"a"},5,{"jsonrpc":"2.0","method":"b"}]'
    message = decode(data)
    assert isinstance(message, Batch)  # B5
    first, second, third = message.items
    assert (first, third) == (Request(1, "a"), Notification("b"))
    assert isinstance(second, Malformed)


def test_an_empty_batch_and_one_too_many_are_refused_whole() -> None:
    refused(b"[]", INVALID_REQUEST)
    item = b'{"jsonrpc":"2.0","method":"a"}'
    limits = CodecLimits(max_batch=2)
    assert isinstance(decode(b"[%s,%s]" % (item, item), limits), Batch)
    refused(b"[%s,%s,%s]" % (item, item, item), INVALID_REQUEST, limits)


# -- writing ----------------------------------------------------------------------------


def test_every_message_is_one_line_whatever_its_text() -> None:
    text = "\n\r\r\n\u2028\u2029\x85\x0b\x0c\x1e"
    data = encode(Notification(text, {"t": text}))
    assert b"\n" not in data  # D1
    assert b"\r" not in data
    assert decode(data) == Notification(text, {"t": text})


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        "\ud800",
        {"\udfff": 1},
        {("a",): 1},
        object(),
        pytest.param(10**5000, id="5000 digits"),
        [None, {"a": [math.nan]}],
        ({"x": (1.0, math.inf)},),
    ],
)
def test_what_json_cannot_carry_is_refused_and_never_becomes_something_else(value: object) -> None:
    for message in (
        Result(1, {"v": value}),
        Error(1, 1, "m", value),
        Notification("m", {"v": value}),
    ):
        with pytest.raises(EncodeError):
            encode(message)
    with pytest.raises(EncodeError):
        codec.raw(value)


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(EncodeError):
        codec.encode_value(loop)


def test_null_is_written_where_it_is_meant() -> None:
    assert codec.encode_value({"a": None, "b": "null"}) == b'{"a":null,"b":"null"}'


def test_a_malformed_message_is_never_sent() -> None:
    with pytest.raises(EncodeError):
        encode(Batch((Malformed("reason", None),)))


def test_a_raw_value_is_placed_as_it_is() -> None:
    raw = codec.raw([1, 2])
    assert isinstance(raw, msgspec.Raw)
    assert encode(Result(1, {"list": raw})) == b'{"jsonrpc":"2.0","id":1,"result":{"list":[1,2]}}'


def test_integers_keep_every_digit_both_ways() -> None:
    values = [2**53 + 1, -(2**63) - 1, 2**64, 10**300]
    assert decode(encode(Notification("m", {"v": values}))) == Notification("m", {"v": values})


def test_a_single_value_is_read_as_strictly() -> None:
    assert codec.decode_value("[1,2]") == [1, 2]
    for bad in ("", "NaN", "[1", "[" * 5000, '"\\ud800"'):
        with pytest.raises(ValueError):  # noqa: PT011 - the documented kind
            codec.decode_value(bad)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(st.text(), json_values, max_size=4)
ids = st.integers() | st.text(max_size=40)
singles = (
    st.builds(Request, ids, st.text(), st.none() | objects)
    | st.builds(Notification, st.text(), st.none() | objects)
    | st.builds(Result, ids, objects)
    | st.builds(Error, st.none() | ids, st.integers(), st.text(), json_values)
)


@given(singles | st.lists(singles, min_size=1, max_size=4).map(lambda items: Batch(tuple(items))))
def test_what_is_encoded_decodes_to_itself(message: codec.Message) -> None:
    assert decode(encode(message)) == message


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    decode(data)


@given(objects | st.lists(json_values, max_size=3))
def test_no_json_raises(value: object) -> None:
    decode(codec.encode_value(value))


@pytest.mark.parametrize("params", ["[1]", "null", "7", '"x"'])
def test_a_notification_is_never_answered_whatever_is_wrong_with_it(params: str) -> None:
    call = f'"jsonrpc":"2.0","method":"m","params":{params}'
    note = decode(f"{{{call}}}".encode())
    assert isinstance(note, Malformed)
    assert note.answer is None
    request = decode(f'{{{call},"id":1}}'.encode())
    assert isinstance(request, Malformed)
    assert request.answer is not None
    assert (request.answer.id, request.answer.code) == (1, -32600)


@pytest.mark.parametrize(
    ("value", "may"),
    [
        ({"a": [{"word": 1}]}, True),
        (codec.decode_value(rb'{"a": {"w\u006frd": null}}'), True),
        (["a word in a text"], True),
        ({"a": {"wor": "d", "b": [None, True, 10**30, "ä\n"]}}, False),
        ({"a": object()}, True),
    ],
)
def test_a_word_in_a_value_is_never_missed(value, may):
    assert codec.may_mention(value, "word") is may
