"""What an HTTP/2 peer may send beside its requests: counted frame by frame, before h2 reads them.

h2 bounds the size of a frame, the number of CONTINUATION frames, the decoded size of a header list
and the streams open at once. It has no limit on frames that cost their sender nothing: resets
(CVE-2023-44487), settings, pings, priorities, empty data, window updates (CVE-2019-9511 to 9518).
The budgets are those of nghttp2: 1000 resets and 33 a second, 10 000 other frames and 333 a second.
"""

from __future__ import annotations

from .allowance import Allowance
from .frame_heads import FrameHeads
from .serving_settings import ServingSettings

_PREFACE = 24
_HEAD = 9
_DATA, _HEADERS, _RESET, _PUSH, _WINDOW, _CONTINUATION = 0, 1, 3, 5, 8, 9
_END_STREAM, _PADDED = 0x1, 0x8
_CREDIT = 4
"""Window updates that a sent DATA frame accounts for: of stream and connection, and some more."""


class FrameMeter(FrameHeads[str]):
    """The budget of one connection."""

    def __init__(self, settings: ServingSettings, now: float) -> None:
        super().__init__(_PREFACE)
        window = settings.flood_window
        self._max_block = settings.max_header_bytes
        self._resets = Allowance(settings.max_resets, window, now)
        self._idle = Allowance(settings.max_idle_frames, window, now)
        self._max_credit = settings.max_idle_frames
        self._credit = 0  # window updates that cost nothing
        self._block = 0  # bytes of the header block under way

    def sent_data(self) -> None:
        """Note a DATA frame of ours."""
        self._credit = min(self._credit + _CREDIT, self._max_credit)

    def reset(self, now: float) -> bool:
        """Count a stream that has to be reset because of what came on it; False: one too many."""
        return self._resets.take(now)

    def _wanted(self) -> int:
        """How much of a frame has to be seen: its head, and how far it is padded."""
        head = self._head
        padded = len(head) >= _HEAD and head[3] == _DATA and head[4] & _PADDED and any(head[:3])
        return _HEAD + 1 if padded else _HEAD

    def _count(self, now: float) -> str | None:
        head = self._head
        length = int.from_bytes(head[:3], "big")
        kind, flags = head[3], head[4]
        self._skip = length - (len(head) - _HEAD)
        if kind in {_HEADERS, _PUSH, _CONTINUATION}:
            self._block = length + (self._block if kind == _CONTINUATION else 0)
            if self._block > self._max_block:
                return f"a header block of more than {self._max_block} bytes"
            if kind != _CONTINUATION or length:
                return None
        elif kind == _RESET:
            return None if self._resets.take(now) else "resets"
        elif kind == _DATA:
            padding = head[_HEAD] + 1 if len(head) > _HEAD else 0
            if length > padding or flags & _END_STREAM:
                return None
        elif kind == _WINDOW and self._credit:
            self._credit -= 1
            return None
        return None if self._idle.take(now) else "frames that carry nothing"
