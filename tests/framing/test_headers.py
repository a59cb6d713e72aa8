"""Values of `Mcp-Name` and `Mcp-Param-*` (N15): the table of the transport page, and beyond."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.framing.headers import HeaderValueError, decode_value, encode_value


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ],
)
def test_the_table_of_the_specification(value: str, header: str) -> None:
    assert encode_value(value) == header
    assert decode_value(header) == value


@pytest.mark.parametrize(
    "value",
    ["", "a b", "SGVsbG8=", "=?base64?SGVsbG8=", "SGVsbG8=?=", "=?BASE64?SGVsbG8=?=", "~!"],
)
def test_visible_ascii_travels_as_it_is(value: str) -> None:
    assert encode_value(value) == value
    assert decode_value(value) == value


@pytest.mark.parametrize(
    "value",
    [" ", "\t", "\ta", "a\t", "a\tb", "a ", "\r\n", "a\r\nX-Evil: 1", "\0", "\x7f", "\x1f", "é"],
)
def test_whatever_a_hop_could_change_is_encoded(value: str) -> None:
    header = encode_value(value)
    assert re.fullmatch(r"=\?base64\?[A-Za-z0-9+/]+={0,2}\?=", header)
    assert decode_value(header) == value


def test_the_shortest_thing_like_a_sentinel_is_told_apart() -> None:
    for value in ("=?base64?=", "=?base64??="):
        assert decode_value(encode_value(value)) == value


def test_an_encoded_nothing_is_the_empty_string() -> None:
    assert decode_value("=?base64??=") == ""


def test_space_around_a_value_is_not_part_of_it() -> None:
    assert decode_value(" \t us-west1\t ") == "us-west1"
    assert decode_value("  =?base64?SGVsbG8=?= ") == "Hello"


def test_a_tab_inside_is_read_though_never_sent() -> None:
    assert decode_value("a\tb") == "a\tb"


@pytest.mark.parametrize(
    "header",
    [
        "=?base64?SGVsbG8?=",  # padding is missing
        "=?base64?SGVs!!!bG8=?=",  # not of the alphabet
        "=?base64?SGVsbG8==?=",  # too much padding
        "=?base64?SGVs=bG8=?=",  # padding in the middle
        "=?base64?SGVs bG8=?=",
        "=?base64?SGVs-_8=?=",  # the other alphabet
        "=?base64?S?=",
        "=?base64?/w==?=",  # no UTF-8
        "=?base64?7aCA?=",  # a lone surrogate
    ],
)
def test_bad_base64_is_refused(header: str) -> None:
    with pytest.raises(HeaderValueError):
        decode_value(header)


@pytest.mark.parametrize("header", ["é", "a\x00b", "a\x7f", "a\nb", "\xa0a", "a\x1fb"])
def test_characters_that_no_header_may_have_are_refused(header: str) -> None:
    with pytest.raises(HeaderValueError):
        decode_value(header)


@given(st.text())
def test_any_string_comes_back(value: str) -> None:
    header = encode_value(value)
    assert re.fullmatch(r"([\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?)?", header)
    assert decode_value(header) == value
