"""Server-sent events to the letter of the WHATWG text (HTML, sections 9.2.5 and 9.2.6)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.framing.sse import (
    COMMENT,
    EventTooLargeError,
    ServerEvent,
    SSEDecoder,
    encode_event,
)


def events_of(*chunks: bytes, limit: int = 1000) -> list[ServerEvent]:
    decoder = SSEDecoder(limit)
    return [event for chunk in chunks for event in decoder.receive(chunk)]


def data_of(*chunks: bytes) -> list[str]:
    return [event.data for event in events_of(*chunks)]


# -- the examples of the specification ----------------------------------------------------


def test_the_first_example_of_the_specification() -> None:
    text = b"data: YHOO\ndata: +2\ndata: 10\n\n"
    assert data_of(text) == ["YHOO\n+2\n10"]


def test_the_second_example_of_the_specification() -> None:
    text = (
        b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event"
    )
    assert events_of(text, b"\n\n") == [
        ServerEvent(data="first event", id="1"),
        ServerEvent(data="second event", id=""),
        ServerEvent(data=" third event", id=""),
    ]


def test_the_third_example_of_the_specification() -> None:
    assert data_of(b"data\n\ndata\ndata\n\ndata:") == ["", "\n"]


def test_the_fourth_example_of_the_specification() -> None:
    assert data_of(b"data:test\n\ndata: test\n\n") == ["test", "test"]


# -- lines --------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_every_kind_of_line_end_is_one(end: bytes) -> None:
    assert data_of(end.join([b"data: a", b"data: b", b"", b"data: c", b"", b""])) == ["a\nb", "c"]


@pytest.mark.parametrize("cut", range(24))
def test_a_pair_of_carriage_return_and_line_feed_may_be_cut_in_two(cut: int) -> None:
    text = b"data: a\r\n\r\ndata: b\r\n\r\n"
    assert data_of(text[:cut], b"", text[cut:]) == ["a", "b"]


def test_a_lone_carriage_return_at_the_end_of_a_chunk_dispatches_at_once() -> None:
    decoder = SSEDecoder(100)
    assert [event.data for event in decoder.receive(b"data: a\r\r")] == ["a"]
    assert [event.data for event in decoder.receive(b"\ndata: b\r\r")] == ["b"]


@pytest.mark.parametrize("cut", range(8))
def test_a_byte_order_mark_at_the_start_is_dropped_wherever_it_is_cut(cut: int) -> None:
    text = b"\xef\xbb\xbfdata: a\n\n"
    assert data_of(text[:cut], text[cut:]) == ["a"]


def test_only_one_byte_order_mark_is_dropped_and_only_at_the_start() -> None:
    assert data_of(b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n") == ["b"]
    assert data_of(b"data: \xef\xbb\xbf\n\n") == ["\ufeff"]


def test_what_only_begins_like_a_byte_order_mark_is_kept() -> None:
    assert data_of(b"\xef", b"\xbb", b"data: a\n\ndata: b\n\n") == ["b"]


@pytest.mark.parametrize("cut", range(14))
def test_a_chunk_may_end_inside_a_character(cut: int) -> None:
    text = "data: \N{GRINNING FACE}ü\n\n".encode()
    assert data_of(text[:cut], text[cut:]) == ["\N{GRINNING FACE}ü"]


def test_invalid_utf8_becomes_the_replacement_character() -> None:
    assert data_of(b"data: a\xffb\xc3\n\ndata: c\n\n") == ["a\ufffdb\ufffd", "c"]


def test_other_separators_of_text_are_content() -> None:
    text = "a\u2028b\u2029c\x85d\x0be\x0cf"
    assert data_of(f"data: {text}\n\n".encode()) == [text]


# -- fields -------------------------------------------------------------------------------


def test_comments_and_unknown_fields_are_ignored() -> None:
    assert events_of(b": c\n:\nfoo: x\nDATA: y\n data: z\n\n", COMMENT) == []


def test_one_space_after_the_colon_is_dropped_and_no_more() -> None:
    assert data_of(b"data:  a \n\ndata:\tb\n\ndata:c:d\n\n") == [" a ", "\tb", "c:d"]


def test_an_event_without_data_is_not_dispatched_and_its_type_is_forgotten() -> None:
    assert events_of(b"event: x\n\ndata: a\n\n") == [ServerEvent(data="a")]


def test_an_event_with_an_empty_data_line_is_dispatched() -> None:
    assert events_of(b"id: 1\ndata:\n\n") == [ServerEvent(data="", id="1")]  # H5, the priming event


def test_the_last_event_type_counts_and_an_empty_one_means_message() -> None:
    assert events_of(b"event: a\nevent: b\ndata: 1\n\nevent: a\nevent:\ndata: 2\n\n") == [
        ServerEvent(data="1", event="b"),
        ServerEvent(data="2", event="message"),
    ]


def test_the_id_lasts_until_another_one_comes_even_without_data() -> None:
    assert events_of(b"id: 1\n\ndata: a\n\nid: 2\ndata: b\n\ndata: c\n\nid\ndata: d\n\n") == [
        ServerEvent(data="a", id="1"),
        ServerEvent(data="b", id="2"),
        ServerEvent(data="c", id="2"),
        ServerEvent(data="d", id=""),
    ]


def test_an_id_with_a_nul_is_ignored() -> None:
    assert events_of(b"id: 1\nid: 2\x00\ndata: a\n\n") == [ServerEvent(data="a", id="1")]


def test_an_id_takes_effect_only_with_its_event() -> None:
    decoder = SSEDecoder(100)
    list(decoder.receive(b"id: 1\ndata: a\n\nid: 2\ndata: b\n"))
    assert decoder.last_id == "1"  # the second event was cut short and has to be sent again (H8)
    list(decoder.receive(b"\n"))
    assert decoder.last_id == "2"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"0", 0),
        (b"1500", 1500),
        (b"000000000000000000042", 42),
        (b"", None),
        (b"-1", None),
        (b"1.5", None),
        (b"1e3", None),
        (b"10 ", None),
        (b"\xd9\xa3", None),
        (b"\xc2\xb2", None),
    ],
)
def test_retry_is_digits_or_nothing(value: bytes, expected: int | None) -> None:
    decoder = SSEDecoder(100)
    list(decoder.receive(b"retry: " + value + b"\n\n"))
    assert decoder.retry == expected


def test_an_absurd_retry_is_only_long() -> None:
    decoder = SSEDecoder(10_000)
    list(decoder.receive(b"retry: " + b"9" * 9000 + b"\n\n"))
    assert decoder.retry is not None
    assert decoder.retry > 10**11


# -- limits -------------------------------------------------------------------------------


def test_an_event_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    assert [len(e.data) for e in events_of(b"data:" + b"x" * 95 + b"\n\n", limit=100)] == [95]
    with pytest.raises(EventTooLargeError, match="100"):
        events_of(b"data:" + b"x" * 96 + b"\n\n", limit=100)


def test_a_line_that_never_ends_is_stopped() -> None:
    decoder = SSEDecoder(100)
    with pytest.raises(EventTooLargeError):
        for _ in range(200):
            list(decoder.receive(b"x"))


def test_many_small_data_lines_are_stopped() -> None:
    with pytest.raises(EventTooLargeError):
        events_of(b"data:\n" * 50, limit=100)


def test_comments_do_not_add_up() -> None:
    assert data_of_long_quiet_stream() == ["a"]


def data_of_long_quiet_stream() -> list[str]:
    chunks = [b": ping\n"] * 500 + [b"event: x\nid: 7\nretry: 5\n"] * 500 + [b"data: a\n\n"]
    return [event.data for event in events_of(*chunks, limit=100)]


def test_events_before_the_one_too_large_are_given() -> None:
    reading = SSEDecoder(20).receive(b"data: a\n\ndata: " + b"x" * 50)
    assert next(reading).data == "a"
    with pytest.raises(EventTooLargeError):
        next(reading)


# -- writing ------------------------------------------------------------------------------


def test_what_is_written_is_read() -> None:
    text = encode_event(b'{"a":1}', id="x-1", retry=1500) + COMMENT + encode_event(b"2")
    decoder = SSEDecoder(100)
    assert list(decoder.receive(text)) == [
        ServerEvent(data='{"a":1}', id="x-1"),
        ServerEvent(data="2", id="x-1"),
    ]
    assert decoder.retry == 1500


def test_an_event_without_data_can_be_written() -> None:
    assert events_of(encode_event(b"", id="1", retry=1)) == [ServerEvent(data="", id="1")]


pieces = st.lists(
    st.sampled_from(
        [
            "data",
            "event",
            "id",
            "retry",
            ":",
            " ",
            "\r",
            "\n",
            "\r\n",
            "\n\n",
            "1",
            "é",
            "\N{PILE OF POO}",
        ]
    )
).map(lambda parts: "".join(parts).encode())


@given(pieces, st.lists(st.integers(0, 200)))
def test_any_cutting_gives_the_same_events(text: bytes, cuts: list[int]) -> None:
    whole = SSEDecoder(10_000)
    expected = list(whole.receive(text))
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    cut = SSEDecoder(10_000)
    found = [event for a, b in itertools.pairwise(edges) for event in cut.receive(text[a:b])]
    assert found == expected
    assert (cut.last_id, cut.retry) == (whole.last_id, whole.retry)
