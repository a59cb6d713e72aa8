"""What can be told of a message from its beginning and its end."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.codec import CodecLimits
from mcp_trio.jsonrpc.glimpse import Glimpse, glimpse
from mcp_trio.jsonrpc.messages import Malformed

LONG = {"text": "x" * 2000, "id": 99, "method": "inner"}


def seen(message, **how):
    line = json.dumps(message, **how).encode()
    return glimpse(line[:512], line[-512:])


@pytest.mark.parametrize("how", [{}, {"separators": (",", ":")}], ids=["spaced", "dense"])
@pytest.mark.parametrize("id_", [7, -1, 0, "seven", "2**3", ""], ids=repr)
def test_an_answer_is_known_by_its_id_wherever_that_stands(id_, how):
    for kind in ("result", "error"):
        for message in (
            {"jsonrpc": "2.0", "id": id_, kind: LONG},
            {"id": id_, "jsonrpc": "2.0", kind: LONG},
            {"jsonrpc": "2.0", kind: LONG, "id": id_},
            {kind: LONG, "jsonrpc": "2.0", "id": id_},
            {kind: LONG, "id": id_, "jsonrpc": "2.0"},
        ):
            assert seen(message, **how) == Glimpse(answers=True, id=id_)


def test_a_call_is_told_from_an_answer():
    for message in (
        {"jsonrpc": "2.0", "id": 7, "method": "m", "params": LONG},
        {"method": "m", "params": LONG, "jsonrpc": "2.0", "id": 7},
        {"jsonrpc": "2.0", "id": 7, "params": LONG, "method": "m"},
    ):
        assert seen(message) == Glimpse(answers=False, id=7, method="m")
    assert seen({"method": "m", "params": LONG}) == Glimpse(answers=False, id=None, method="m")


@pytest.mark.parametrize(
    "message",
    [
        {"result": {**LONG, "x": {"jsonrpc": "2.0", "id": 3}}},
        {"result": {"list": ["x" * 1000, {"id": 3}]}},
        {"result": {"text": "x" * 1000 + ',"id":3}'}},
        {"result": {"text": "x" * 1000 + '\\",\\"id\\":3}'}},
    ],
)
def test_what_is_inside_is_not_taken_for_its_id(message):
    assert seen(message, separators=(",", ":")) == Glimpse(answers=True, id=None)


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"npm warn", b'{"a":{"result":1}}', b"\xff"])
def test_what_looks_like_no_message_is_none(line):
    assert glimpse(line, line) is None


@given(st.binary(max_size=600), st.binary(max_size=600))
def test_anything_can_be_looked_at(start, end):
    glimpse(start, end)


@pytest.mark.parametrize("broken", ["NaN", "[1e999]", '"\\ud800"', "{", '"\t"'])
def test_an_answer_that_cannot_be_read_says_whose_it_was(broken):
    for line in (
        f'{{"jsonrpc":"2.0","id":4,"result":{{"x":{broken}}}}}',
        f'{{"result":{{"x":{broken}}},"jsonrpc":"2.0","id":4}}',
    ):
        message = codec.decode(line.encode())
        assert isinstance(message, Malformed)
        assert message.lost == 4
        assert message.answer is None


def test_one_that_is_nested_too_deep_says_so_too():
    deep = "[" * 30 + "]" * 30
    limits = CodecLimits(max_depth=20)
    answer = codec.decode(f'{{"result":{{"x":{deep}}},"id":4}}'.encode(), limits)
    assert (answer.lost, answer.answer) == (4, None)
    call = codec.decode(f'{{"id":4,"method":"m","params":{{"x":{deep}}}}}'.encode(), limits)
    assert (call.lost, call.answer.id) == (None, 4)
