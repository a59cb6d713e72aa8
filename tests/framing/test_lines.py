"""One message per line (D1, D5): cutting is exact, endings are tolerated, memory is bounded."""

from __future__ import annotations

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.framing.lines import EndlessLineError, LineDecoder, Oversized


def lines_of(chunks: list[bytes], limit: int = 100) -> list[bytes | Oversized | None]:
    decoder = LineDecoder(limit)
    found: list[bytes | Oversized | None] = []
    for chunk in chunks:
        found += decoder.receive(chunk)
    return [*found, decoder.end()]


def test_lines_are_cut_at_the_line_feed_alone() -> None:
    text = "a\u2028\u2029\x85\x0b\x0c\rb"
    assert lines_of([text.encode() + b"\nc\n"]) == [text.encode(), b"c", None]


@pytest.mark.parametrize("cut", range(12))
def test_a_line_may_be_cut_anywhere(cut: int) -> None:
    data = b'{"a":1}\r\n{}\n'
    assert lines_of([data[:cut], data[cut:]]) == [b'{"a":1}', b"{}", None]


def test_a_carriage_return_before_the_line_feed_is_no_part_of_the_line() -> None:
    assert lines_of([b"a\r", b"\n", b"b\r\r\n"]) == [b"a", b"b\r", None]


def test_empty_lines_are_dropped() -> None:
    assert lines_of([b"\n\r\n\na\n\n"]) == [b"a", None]


def test_what_stands_after_the_last_line_feed_is_given_at_the_end() -> None:
    assert lines_of([b"a\nb"]) == [b"a", b"b"]
    assert lines_of([b"a\n \r\t"]) == [b"a", None]


def test_an_oversized_line_is_reported_when_it_is_and_when_it_ends_and_the_next_one_is_read() -> (
    None
):
    chunks = [b"x" * 60, b"x" * 60, b"x" * 60, b"xx\ngood\n"]
    start = b"x" * 120
    over = [Oversized(100, start), Oversized(100, start, b"x" * 182)]
    assert lines_of(chunks) == [*over, b"good", None]


def test_an_oversized_line_in_one_chunk_is_reported_too() -> None:
    whole = b"x" * 101
    over = [Oversized(100, whole), Oversized(100, whole, whole)]
    assert lines_of([whole + b"\ngood\n"]) == [*over, b"good", None]


@pytest.mark.parametrize("size", [1, 7, 300, 5000])
def test_of_an_oversized_line_the_edges_are_kept(size: int) -> None:
    line = b"begin" + b"x" * 2000 + b"end"
    chunks = [line[at : at + size] for at in range(0, len(line), size)]
    going_on, over, good, _ = lines_of([*chunks, b"\ngood\n"])
    assert isinstance(going_on, Oversized)
    assert isinstance(over, Oversized)
    assert going_on.end is None
    assert going_on.start == over.start
    assert line.startswith(over.start)
    assert len(over.start) > 100
    assert over.end == line[-512:]
    assert good == b"good"


def test_a_line_of_exactly_the_limit_passes() -> None:
    assert lines_of([b"x" * 100 + b"\n"]) == [b"x" * 100, None]
    assert lines_of([b"x" * 100, b"\n"]) == [b"x" * 100, None]


def test_an_oversized_line_that_never_ends_gives_nothing_at_the_end() -> None:
    assert lines_of([b"x" * 150, b"y" * 150]) == [Oversized(100, b"x" * 150), None]


def test_memory_is_bounded_while_a_line_grows_for_ever() -> None:
    decoder = LineDecoder(100)
    for _ in range(1000):
        list(decoder.receive(b"x" * 50))
        assert len(decoder._buffer) <= 600


@given(
    st.lists(
        st.binary(min_size=1, max_size=30).filter(lambda b: b"\n" not in b and b[-1:] != b"\r")
    ),
    st.lists(st.integers(0, 400)),
    st.sampled_from([b"\n", b"\r\n"]),
)
def test_any_cutting_gives_the_same_lines(
    lines: list[bytes], cuts: list[int], ending: bytes
) -> None:
    data = b"".join(line + ending for line in lines)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[a:b] for a, b in itertools.pairwise(edges)]
    assert lines_of(chunks) == [*lines, None]


def test_a_line_that_does_not_end_is_given_up_in_the_end() -> None:
    decoder = LineDecoder(100, endless=1000)
    found: list[object] = []
    with pytest.raises(EndlessLineError, match="did not end"):
        for _ in range(1000):
            found += decoder.receive(b"x" * 50)
    assert found == [Oversized(100, b"x" * 150)]


def test_a_gigabyte_without_a_line_feed_costs_no_memory() -> None:
    piece = b"x" * 1_048_576
    decoder = LineDecoder(100_000, endless=2**30)
    tracemalloc.start()
    try:
        with pytest.raises(EndlessLineError):
            for _ in range(1100):
                list(decoder.receive(piece))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * len(piece)
