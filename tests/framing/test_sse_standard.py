"""The reader of event streams beside one written down from the standard, sentence by sentence.

WHATWG HTML, section 9.2.6 "Interpreting an event stream". The other one is slow, keeps all it has
read and knows nothing of chunks: it takes the whole text at once.
"""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_trio.framing.sse import ServerEvent, SSEDecoder


class Standard:
    """What the standard calls the event source, for one stream."""

    def __init__(self) -> None:
        self.events: list[ServerEvent] = []
        self.last_event_id: str | None = None
        """The last event ID string; None as long as it was never set."""
        self.reconnection_time: int | None = None
        self._data = ""
        self._type = ""
        self._id_buffer: str | None = None

    def interpret(self, stream: bytes) -> None:
        # "Streams must be decoded using the UTF-8 decode algorithm", which strips one leading
        # byte order mark.
        text = stream.decode("utf-8", errors="replace")
        text = text.removeprefix("\ufeff")
        # "stream = [ bom ] *event": every line has an end; what has none is discarded, for "once
        # the end of the file is reached, any pending data must be discarded".
        *lines, _ = re.split("\r\n|\n|\r", text)
        for line in lines:
            if line == "":
                self._dispatch()
            elif line.startswith(":"):
                pass
            elif ":" in line:
                field, _, value = line.partition(":")
                self._process(field, value.removeprefix(" "))
            else:
                self._process(line, "")

    def _process(self, field: str, value: str) -> None:
        if field == "event":
            self._type = value
        elif field == "data":
            self._data += value + "\n"
        elif field == "id":
            if "\0" not in value:
                self._id_buffer = value
        elif field == "retry" and re.fullmatch("[0-9]+", value):
            self.reconnection_time = int(value)

    def _dispatch(self) -> None:
        self.last_event_id = self._id_buffer
        if self._data == "":
            self._type = ""
            return
        data = self._data.removesuffix("\n")
        kind = self._type or "message"
        self.events.append(ServerEvent(data=data, event=kind, id=self.last_event_id))
        self._data = self._type = ""


def read(stream: bytes, cuts: list[int]) -> tuple[list[ServerEvent], SSEDecoder]:
    decoder = SSEDecoder(1_000_000)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    found = [event for a, b in itertools.pairwise(edges) for event in decoder.receive(stream[a:b])]
    return found, decoder


def compare(stream: bytes, cuts: list[int]) -> None:
    standard = Standard()
    standard.interpret(stream)
    found, decoder = read(stream, cuts)
    assert found == standard.events
    assert decoder.last_id == standard.last_event_id
    assert decoder.retry == standard.reconnection_time


TOKENS = [
    *(b"data", b"event", b"id", b"retry", b"Data", b"x"),
    *(b":", b": ", b":  ", b" ", b"\t"),
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n", b"\n\r"),
    *(b"0", b"15", b"-1", b"1.5", b"\xd9\xa3", b"a", b"{}"),
    *(b"\0", b"\xef\xbb\xbf", b"\xff", b"\xc3", b"\xe2\x80", b"\xe2\x80\xa8", b"\xc2\x85"),
    *(b"\xf0\x9f\x98\x80", b"\xed\xa0\x80", b"\x0b", b"\x0c", b"\x1e"),
]
lines = st.builds(
    lambda name, colon, value, end: name + colon + value + end,
    st.sampled_from([b"data", b"event", b"id", b"retry", b"", b"unknown"]),
    st.sampled_from([b":", b": ", b""]),
    st.sampled_from([b"", b"1", b"message", b"other", b"a\0b", b"\xc3\xa9", b"007", b"x:y"]),
    st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n"]),
)
streams = st.one_of(
    st.lists(st.sampled_from(TOKENS), max_size=60).map(b"".join),
    st.lists(lines, max_size=12).map(b"".join),
    st.binary(max_size=60),
)
cuts = st.lists(st.integers(0, 300), max_size=20)


@settings(max_examples=500)
@given(streams, cuts)
def test_any_bytes_in_any_pieces_give_what_the_standard_says(stream: bytes, cut: list[int]) -> None:
    compare(stream, cut)


@given(streams)
def test_byte_by_byte_it_is_the_same(stream: bytes) -> None:
    compare(stream, list(range(len(stream))))


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf", b"\xef\xbb\xbf\xef\xbb\xbf", b"\xef\xbb"])
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_every_cut_of_a_whole_stream(mark: bytes, end: bytes) -> None:
    stream = mark + end.join(
        [
            b": comment",
            b"retry: 20",
            b"id: \xc3\xa9",
            b"event: message",
            b'data: {"a":',
            b'data: "\xf0\x9f\x98\x80"}',
            b"",
            b"data",
            b"",
            b"id",
            b"data: last",
            b"",
            b"data: cut short",
        ]
    )
    for one in range(len(stream) + 1):
        compare(stream, [one])
        compare(stream, [one, one + 1])


@pytest.mark.parametrize("rest", [b"data: b", b"data: b\n", b"id: 9\ndata: b\n", b"id: 9\n"])
def test_what_the_end_of_the_stream_cuts_short_is_as_if_it_had_never_come(rest: bytes) -> None:
    found, decoder = read(b"id: 1\ndata: a\n\n" + rest, [])
    assert [event.data for event in found] == ["a"]
    assert decoder.last_id == "1"
