"""Event ids: ours are two numbers, and nothing else is one."""

import pytest

from mcp_trio.http.replay import event_id, parse_event_id


def test_an_event_id_is_read_as_it_was_written():
    assert parse_event_id(event_id(12, 345)) == (12, 345)
    assert parse_event_id(" 1-0 ") == (1, 0)


@pytest.mark.parametrize("text", ["²-1", "1-³", "1-٣", "+1-1", "1_0-1", "", "-", "9" * 5000 + "-1"])
def test_digits_that_are_none_make_no_event_id(text):
    assert parse_event_id(text) is None
