"""On which line of a TOML document each key stands: `tomllib` does not tell.

The document has been read already, so it is sound; what is no TOML is nobody's business here.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

from mcp_trio.config.faults import Path

_PIECE = re.compile(
    r"""
    (?P<skip>[ \t\r]+|\#[^\n]*)
    |(?P<text>\"{3}(?:\\.|[^\\])*?\"{3}\"{0,2}|'{3}.*?'{3}'{0,2}|"(?:\\.|[^"\\\n])*"|'[^'\n]*')
    |(?P<mark>[\n\[\]{}=,.])
    |(?P<bare>[^\s\[\]{}=,."'\#]+)
    """,
    re.DOTALL | re.VERBOSE,
)
_END = ""


def toml_lines(text: str) -> dict[Path, int]:
    """The line of every key and table, from 1; items of lists are numbered from 0.

    Args:
        text: a document that `tomllib` can read.
    """
    return _Lines(text).lines


class _Lines:
    """One walk over the tokens of a document."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}
        """Items so far of arrays of tables."""
        self._pieces = _pieces(text)
        self._piece, self._line = next(self._pieces)
        table: Path = ()
        while self._piece != _END:
            if self._piece == "\n":
                self._step()
            elif self._piece == "[":
                table = self._header()
            else:
                self._pair(table)

    def _step(self) -> str:
        taken = self._piece
        self._piece, self._line = next(self._pieces, (_END, self._line))
        return taken

    def _skip_lines(self) -> None:
        while self._piece == "\n":
            self._step()

    def _note(self, path: Path, line: int) -> None:
        for end in range(1, len(path) + 1):
            self.lines.setdefault(path[:end], line)

    def _header(self) -> Path:
        line = self._line
        self._step()
        many = self._piece == "["
        if many:
            self._step()
        path: Path = ()
        keys = self._key("]")
        for position, key in enumerate(keys):
            path = (*path, key)
            count = self._counts.get(path, -1)
            if many and position == len(keys) - 1:
                count = self._counts[path] = count + 1
            if count >= 0:
                # What follows belongs to the last one.
                path = (*path, str(count))
        self._step()
        if many:
            self._step()
        self._note(path, line)
        return path

    def _key(self, end: str) -> list[str]:
        keys: list[str] = []
        while self._piece != end:
            piece = self._step()
            if piece != ".":
                keys.append(next(iter(tomllib.loads(f"{piece} = 0"))))
        return keys

    def _pair(self, table: Path) -> None:
        line = self._line
        path = (*table, *self._key("="))
        self._note(path, line)
        self._step()
        self._value(path)

    def _value(self, path: Path) -> None:
        if self._piece in {"{", "["}:
            self._inside(path, many=self._step() == "[")
        else:
            # A date and a fraction are several tokens.
            while self._piece not in {"\n", ",", "]", "}", _END}:
                self._step()

    def _inside(self, path: Path, *, many: bool) -> None:
        """Walk over an inline table or, for many, a list."""
        self._skip_lines()
        index = 0
        while self._piece not in {"}", "]", _END}:
            if many:
                self._note((*path, str(index)), self._line)
                self._value((*path, str(index)))
            else:
                self._pair(path)
            self._comma()
            index += 1
        self._step()

    def _comma(self) -> None:
        self._skip_lines()
        if self._piece == ",":
            self._step()
        self._skip_lines()


def _pieces(text: str) -> Iterator[tuple[str, int]]:
    line = 1
    for match in _PIECE.finditer(text):
        if match.lastgroup != "skip":
            yield match[0], line
        line += match[0].count("\n")
    yield _END, line
