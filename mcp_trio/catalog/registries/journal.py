"""What changed since: the books of a registry whose place keeps none.

A document only says what is published now. The journal notes at which count each operation
last changed, so that a reading holds what changed since a token and no more.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from mcp_trio.abc import RawEntry, Reading

MAX_REMOVED = 10_000
"""Removed ids that are remembered; who asks from before that gets everything."""


class Journal:
    """The operations of one registry object, and when they changed. Pure, for one task."""

    def __init__(self) -> None:
        # Another process counts differently: its tokens must not be taken for ours.
        self._id = secrets.token_hex(8)
        self._count = 0
        self._entries: dict[str, RawEntry] = {}
        # By id, the count of the last change; in the order of the counts.
        self._changed: dict[str, int] = {}
        self._removed = 0
        """How many ids of `_changed` are gone from `_entries`."""
        self._floor = 0
        """Changes up to this count are not all remembered."""

    @property
    def token(self) -> str:
        """The state now."""
        return f"{self._id}:{self._count}"

    def replace(self, entries: Mapping[str, RawEntry]) -> None:
        """Take what is published now, by id; what is not there is gone."""
        changes: dict[str, RawEntry | None] = {i: None for i in self._entries if i not in entries}
        self.apply({**changes, **entries})

    def apply(self, changes: Mapping[str, RawEntry | None]) -> None:
        """Take entries by id, None for those that are gone; what is as before is skipped."""
        news = {i: entry for i, entry in changes.items() if self._is_news(i, entry)}
        if not news:
            return
        self._count += 1
        for operation_id, entry in news.items():
            gone_before = operation_id in self._changed and operation_id not in self._entries
            self._removed += (entry is None) - gone_before
            self._changed.pop(operation_id, None)
            self._changed[operation_id] = self._count
            if entry is None:
                del self._entries[operation_id]
            else:
                self._entries[operation_id] = entry
        if self._removed > MAX_REMOVED:
            self._forget()

    def read(self, since: str | None) -> Reading:
        """Tell what changed after a token, or everything if it is not one of ours."""
        base = self._count_of(since)
        if base is None:
            return Reading(token=self.token, entries=tuple(self._entries.values()), complete=True)
        entries: list[RawEntry] = []
        removed: list[str] = []
        for operation_id in reversed(self._changed):
            if self._changed[operation_id] <= base:
                break
            entry = self._entries.get(operation_id)
            if entry is None:
                removed.append(operation_id)
            else:
                entries.append(entry)
        return Reading(
            token=self.token, entries=tuple(entries), removed=tuple(removed), complete=False
        )

    def _is_news(self, operation_id: str, entry: RawEntry | None) -> bool:
        held = self._entries.get(operation_id)
        if entry is None or held is None:
            return entry is not held
        return entry.fingerprint != held.fingerprint

    def _count_of(self, token: str | None) -> int | None:
        for_us, _, count = (token or "").rpartition(":")
        if for_us != self._id or not (count.isascii() and count.isdecimal()):
            return None
        return int(count) if self._floor <= int(count) <= self._count else None

    def _forget(self) -> None:
        """Forget the removed ids; once in a long time, so that it costs little for each."""
        gone = [i for i in self._changed if i not in self._entries]
        for operation_id in gone:
            self._floor = self._changed.pop(operation_id)
        self._removed = 0
