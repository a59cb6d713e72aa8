"""Whose a message is that is too large to be read, from its ends."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.jsonrpc import codec, glimpse
from mcp_trio.jsonrpc.glimpse import Glimpse
from mcp_trio.jsonrpc.messages import Error, Request, Result

LONG = "x" * 5000


def told(data: bytes) -> tuple[bool, Any]:
    """What both ends of a message tell, as a line takes it."""
    seen = glimpse.begins(data[:1024])
    if seen.is_answer and seen.id is None:
        return True, glimpse.ends(data[-1024:])
    return seen.is_answer, seen.id


def fields(kind: str, id_: Any) -> list[tuple[str, Any]]:
    body = {"content": [{"type": "text", "text": LONG, "id": 99}], "id": 98}
    return [("jsonrpc", "2.0"), ("id", id_), (kind, body)]


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
@pytest.mark.parametrize("id_", [7, -1, 2**53 + 1, "a", 'quo"te\\', "\N{GRINNING FACE}", ""])
@pytest.mark.parametrize("kind", ["result", "error"])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_an_answer_is_known_in_whatever_order_it_is_written(order, kind, id_, separators):
    given_ = fields(kind, id_)
    message = dict(given_[place] for place in order)
    for ascii_ in (True, False):
        data = json.dumps(message, separators=separators, ensure_ascii=ascii_).encode()
        assert told(data) == (True, id_)
        assert told(b" " + data + b"\r") == (True, id_)


@pytest.mark.parametrize("message", [Result(7, {"a": LONG}), Error(7, -1, LONG)])
def test_what_we_write_ourselves_is_known(message: Result | Error) -> None:
    assert told(codec.encode(message)) == (True, 7)


def test_a_request_is_no_answer_whatever_stands_at_its_end() -> None:
    assert told(codec.encode(Request(7, "m", {"a": LONG}))) == (False, 7)
    last = {"method": "m", "params": {"a": LONG, "id": 8}, "jsonrpc": "2.0", "id": 7}
    assert told(json.dumps(last).encode()) == (False, None)
    note = {"jsonrpc": "2.0", "method": "m", "params": {"a": LONG, "id": 8}}
    assert told(json.dumps(note).encode()) == (False, None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x" * 5000,
        b"{" * 5000,
        b"[" + codec.encode(Result(7, {"a": LONG})) + b"]",
        b'{"other":1,"id":7,"result":{"a":"' + LONG.encode() + b'"}}',
        b'{"id":7,"other":"' + LONG.encode() + b'"}',
        b'{"jsonrpc":"2.0","id":7.5,"result":{}}',
        b'{"jsonrpc":"2.0","id":null,"result":{}}',
        b'{"jsonrpc":"2.0","id":{"id":7},"result":{}}',
        b'{"jsonrpc":"1.0","id":7,"result":{}}',
        b'{"jsonrpc":"2.0","id":"' + LONG.encode(),
    ],
)
def test_what_is_not_sure_is_not_told(data: bytes) -> None:
    assert told(data) == (False, None)


def test_an_id_at_the_end_of_something_else_is_not_the_id_of_the_message() -> None:
    for end in (b'{"id":8}}', b'[{"a":1,"id":8}]}', b'"a,\\"id\\":8}"}', b'8,"id":8}}'):
        data = b'{"jsonrpc":"2.0","result":{"a":"' + LONG.encode() + b'","b":' + end
        assert told(data) == (True, None)


@given(
    st.permutations(fields("result", 7)),
    st.recursive(
        st.one_of(st.text(max_size=5), st.integers(), st.none()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(
                    ["id", "result", "x", '"id":9'],
                ),
                inner,
                max_size=3,
            ),
        ),
        max_leaves=8,
    ),
)
def test_no_content_makes_it_the_answer_of_somebody_else(
    order: list[tuple[str, Any]], content: Any
) -> None:
    message = {
        name: {"c": content, "l": LONG, "m": content} if name == "result" else value
        for name, value in order
    }
    assert told(json.dumps(message).encode()) == (True, 7)


@given(st.binary(max_size=200))
def test_no_bytes_are_too_strange(data: bytes) -> None:
    seen = glimpse.begins(data)
    assert isinstance(seen, Glimpse)
    assert not isinstance(glimpse.ends(data), float)
