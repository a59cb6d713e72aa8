"""Cursors (K1): what we made is read back, anything else is refused in one way."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.engine.paging import CursorKey
from mcp_trio.errors import InvalidParamsError

KEY = CursorKey(b"secret")


@given(st.text(), st.integers(min_value=0))
def test_a_cursor_names_its_listing_and_position(listing: str, position: int) -> None:
    cursor = KEY.make(listing, position)
    assert KEY.read(cursor) == (listing, position)
    assert cursor.isascii()
    assert cursor.replace("-", "").replace("_", "").isalnum()


def test_cursors_of_one_secret_are_read_by_another_replica() -> None:
    assert CursorKey(b"secret").read(KEY.make("abc", 200)) == ("abc", 200)


def test_the_cursor_of_a_foreign_key_is_refused() -> None:
    with pytest.raises(InvalidParamsError):
        KEY.read(CursorKey(b"other").make("abc", 200))


def test_a_truncated_or_longer_cursor_is_refused() -> None:
    cursor = KEY.make("abc", 200)
    for end in range(len(cursor)):
        with pytest.raises(InvalidParamsError):
            KEY.read(cursor[:end])
    for more in ("A", "AAAA", "==A", "\n", " "):
        with pytest.raises(InvalidParamsError):
            KEY.read(cursor + more)


def test_a_cursor_with_one_letter_changed_is_refused() -> None:
    cursor = KEY.make("abc", 200)
    for at, letter in enumerate(cursor[:-1]):
        other = "B" if letter == "A" else "A"
        with pytest.raises(InvalidParamsError):
            KEY.read(cursor[:at] + other + cursor[at + 1 :])


@pytest.mark.parametrize(
    "cursor",
    ["", "0", "200:abc", "é", "\N{GRINNING FACE}", "\ud800", "\x00", "A" * 100_000, "=", "====",
     "..", "-", "_",
     base64.urlsafe_b64encode(bytes(12) + b"200:abc").decode(),
     base64.urlsafe_b64encode(bytes(12) + b"\xff").decode(),
     base64.urlsafe_b64encode(bytes(12)).decode()],
)  # fmt: skip
def test_a_made_up_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidParamsError, match="Invalid cursor"):
        KEY.read(cursor)


@given(st.text())
def test_no_text_raises_anything_else(cursor: str) -> None:
    with pytest.raises(InvalidParamsError):
        KEY.read(cursor)


@given(st.integers(min_value=0, max_value=10**12 - 1))
def test_the_position_cannot_be_read_by_anybody_else(position: int) -> None:
    cursor = KEY.make("0123456789abcdef", position)
    assert len(cursor) == len(KEY.make("0123456789abcdef", 0))
    data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    assert b"0123456789abcdef" not in data
    assert f"{position:04d}".encode() not in data or position < 10**4
