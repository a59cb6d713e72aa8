"""A full-text index of tools: SQLite's FTS5 in memory, ranked by BM25.

Names are taken apart at their underscores and capitals; a word finds what begins with it. Used
by one thread at a time, any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import apsw

from mcp_trio.catalog.toolsets import tags_of
from mcp_trio.server.providers import ToolEntry
from mcp_trio.wire import JSONObject, Tool

MAX_WORDS = 32
"""Words of a question; the others are not looked for."""
_WORD = re.compile(r"\w+")
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_WEIGHTS = (10.0, 6.0, 2.0, 4.0, 1.0)
"""Of name, title, description, tags and arguments."""


class ToolIndex:
    """What is known of the tools, as far as words go."""

    def __init__(self) -> None:
        # Its type stub has holes.
        self._database: Any = apsw.Connection(":memory:")
        self._database.execute(
            "CREATE VIRTUAL TABLE tools USING fts5("
            "name, title, description, tags, arguments, tokenize = 'porter unicode61')"
        )
        self._rows: dict[str, tuple[int, Tool]] = {}
        self._names: dict[int, str] = {}
        self._next = 1

    def __len__(self) -> int:
        return len(self._rows)

    def update(self, entries: Mapping[str, ToolEntry]) -> None:
        """Make the index that of these tools. Costs what changed, and a look at each."""
        gone = [
            name
            for name, (_, tool) in self._rows.items()
            if name not in entries or entries[name].definition is not tool
        ]
        with self._database:
            for name in gone:
                row, _ = self._rows.pop(name)
                del self._names[row]
                self._database.execute("DELETE FROM tools WHERE rowid = ?", (row,))
            for name, entry in entries.items():
                if name not in self._rows:
                    self._add(name, entry)

    def _add(self, name: str, entry: ToolEntry) -> None:
        tool, row = entry.definition, self._next
        self._next += 1
        self._database.execute(
            "INSERT INTO tools (rowid, name, title, description, tags, arguments)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (
                row,
                f"{name} {_apart(name)}",
                tool.title or "",
                tool.description or "",
                " ".join(map(_apart, tags_of(entry))),
                " ".join(map(_apart, _arguments(tool))),
            ),
        )
        self._rows[name] = row, tool
        self._names[row] = name

    def find(self, question: str, most: int) -> list[str]:
        """The names of the best tools for a question, the best one first."""
        words = _WORD.findall(f"{question} {_apart(question)}")[:MAX_WORDS]
        if not words:
            return []
        # Quoted, so that nothing in it is an operator; any of the words will do.
        asked = " OR ".join(f'"{word}"*' for word in dict.fromkeys(map(str.lower, words)))
        weights = ", ".join(map(str, _WEIGHTS))
        found = self._database.execute(
            f"SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, {weights}), rowid"  # noqa: S608 - numbers of ours
            " LIMIT ?",
            (asked, most),
        )
        return [self._names[row] for (row,) in found]


def _apart(text: str) -> str:
    """The words of an identifier."""
    return " ".join(_PARTS.findall(text))


def _arguments(tool: Tool) -> Iterator[str]:
    properties = tool.input_schema.get("properties")
    if isinstance(properties, dict):
        yield from cast("JSONObject", properties)
