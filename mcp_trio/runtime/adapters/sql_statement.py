"""SQL statements as operations hold them: one of them, with parameters by name, never text.

A statement is read token by token, far enough to tell a parameter from a string, a comment
or a cast; the database does the rest. `:name` becomes the driver's own parameter. Every
other way to write one is refused, and so is what would leave the transaction of the call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import attrs

from mcp_trio.catalog.operation import OperationError

PLACE = "target.statement"
MAX_STATEMENT = 100_000
"""Characters of one statement."""
MAX_PARAMETERS = 1_000
"""Different names in one statement."""

SQLITE, POSTGRES = "sqlite", "postgres"
READS = frozenset({"SELECT", "WITH", "VALUES", "TABLE"})
"""How a statement begins that may read."""
WRITES = READS | {"INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE", "CALL"}
"""How a statement begins that may write. Everything else changes more than rows."""

_COMMON = r"""
  (?P<space>\s+ | --[^\n]*)
 |(?P<comment>/\*)
 |(?P<quoted>'(?:[^']|'')*' | "(?:[^"]|"")*"{more_quoted})
 |(?P<open>['"{more_open}])
 |(?P<number>\d[\w.]*)
 |(?P<word>[^\W\d][\w$]*)
 |(?P<cast>::|:=)
 |:(?P<name>[A-Za-z_][A-Za-z0-9_]*)
 |(?P<end>;)
 |(?P<foreign>{foreign})
 |(?P<other>.)
"""
_TOKENS: Mapping[str, re.Pattern[str]] = {
    SQLITE: re.compile(
        _COMMON.format(
            more_quoted=r" | `(?:[^`]|``)*` | \[[^\]]*\]",
            more_open=r"`\[",
            foreign=r"[?@$\#:]\w*",
        ),
        re.VERBOSE | re.DOTALL,
    ),
    POSTGRES: re.compile(
        r"(?P<escaped>[eE]'(?:[^'\\]|''|\\.)*')|(?P<dollar>\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$)|"
        + _COMMON.format(more_quoted="", more_open="", foreign=r"\$\w*"),
        re.VERBOSE | re.DOTALL,
    ),
}
_COMMENT_MARK = re.compile(r"/\*|\*/")


@attrs.frozen(kw_only=True)
class Statement:
    """One statement, read. Immutable."""

    text: str
    """As the driver takes it: `:name` for SQLite, `$1` for PostgreSQL."""
    names: tuple[str, ...]
    """The parameters, in the order of their numbers."""
    gives_rows: bool
    """Whether it surely does, by its first word or its RETURNING; else only running it tells."""


def read_statement(text: str, dialect: str, *, write: bool) -> Statement:
    """Read a statement.

    Args:
        text: of the view.
        dialect: `sqlite` or `postgres`.
        write: whether the operation may write.

    Raises:
        OperationError: it is not exactly one statement of a kind that is allowed, has other
            parameters than `:name`, or something in it is not closed.
    """
    if len(text) > MAX_STATEMENT or "\x00" in text:
        raise OperationError(
            f"must have at most {MAX_STATEMENT} characters, none of them NUL", place=PLACE
        )
    reader = _Reader(dialect)
    made = "".join(reader.read(text))
    _check_kind(reader.first, write=write)
    if len(reader.names) > MAX_PARAMETERS:
        raise OperationError(f"has more than {MAX_PARAMETERS} parameters", place=PLACE)
    certain = reader.first in {"SELECT", "VALUES", "TABLE"}
    return Statement(
        text=made,
        names=tuple(reader.names),
        gives_rows=certain or "RETURNING" in reader.words,
    )


def _check_kind(first: str, *, write: bool) -> None:
    if not first:
        raise OperationError("is empty", place=PLACE)
    if first not in WRITES:
        raise OperationError(f"must begin with one of {', '.join(sorted(WRITES))}", place=PLACE)
    if not write and first not in READS:
        raise OperationError(f"{first} needs access 'write'", place=PLACE)


class _Reader:
    """Reads one statement; lives as long as `read_statement` runs."""

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect
        self.first = ""
        """The first word, in upper case."""
        self.words: set[str] = set()
        self.names: list[str] = []
        self._ended = False

    def read(self, text: str) -> Iterator[str]:
        """The statement in the driver's words, piece by piece."""
        at, tokens = 0, _TOKENS[self._dialect]
        while at < len(text):
            found = tokens.match(text, at)
            if found is None:  # pragma: no cover  # the last alternative takes anything
                raise AssertionError("every character is some token")
            kind, piece = found.lastgroup or "", found.group()
            at = found.end()
            if kind == "comment":
                # Gone: a comment of one dialect can hold what another would run.
                at = self._comment_end(text, at)
                yield " "
            elif kind == "space":
                yield piece if piece.isspace() else "\n"
            else:
                yield self._piece(kind, piece)

    def _piece(self, kind: str, piece: str) -> str:
        if kind == "end":
            self._ended = True
            return ""
        if self._ended:
            raise OperationError("must be exactly one statement", place=PLACE)
        if not self.first and kind in {"name", "quoted", "number", "escaped", "dollar"}:
            raise OperationError("must begin with a word", place=PLACE)
        match kind:
            case "open":
                raise OperationError(f"a {piece} is not closed", place=PLACE)
            case "foreign":
                raise OperationError("parameters are written as :name", place=PLACE)
            case "name":
                return self._parameter(piece[1:])
            case "word":
                self.first = self.first or piece.upper()
                self.words.add(piece.upper())
            case _:
                pass
        return piece

    def _parameter(self, name: str) -> str:
        if name not in self.names:
            self.names.append(name)
        return f":{name}" if self._dialect == SQLITE else f"${self.names.index(name) + 1}"

    def _comment_end(self, text: str, at: int) -> int:
        """Where a comment ends that began before `at`; PostgreSQL's hold others."""
        depth = 1
        while depth:
            found = _COMMENT_MARK.search(text, at)
            if found is None:
                raise OperationError("a comment is not closed", place=PLACE)
            at = found.end()
            if found.group() == "*/":
                depth -= 1
            elif self._dialect == POSTGRES:
                depth += 1
        return at
