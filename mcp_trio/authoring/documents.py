"""Documents that authors write or get: JSON or YAML, bounded, with the line of every value."""

from __future__ import annotations

import json
import math
import re
import stat
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NoReturn, cast

import attrs
import msgspec

from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.authoring.yaml_text import MAX_DEPTH, Position, parse_yaml

MAX_BYTES = 64 << 20
"""Bytes of a document."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_PIECE = re.compile(r'\n|"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)


@attrs.define(slots=False, kw_only=True)
class Document:
    """One document as it was read. Not to be changed: YAML aliases share what they stand for."""

    name: str
    """Its path or address, as messages show it."""
    value: object
    _text: str = attrs.field(alias="text", repr=False)
    _position: Position | None = attrs.field(alias="position", repr=False)

    @property
    def is_json(self) -> bool:
        """Whether it is JSON, and not YAML."""
        return self._position is None

    @cached_property
    def _positions(self) -> Position:
        return _json_positions(self._text) if self._position is None else self._position

    def line(self, path: Sequence[str | int]) -> int:
        """The line of a value, from 1; that of the nearest value around it if there is none."""
        found = self._positions
        for part in path:
            inner = found.held.get(part)
            if inner is None:
                break
            found = inner
        return found.line


def read_document(path: Path) -> Document:
    """Read a file.

    Raises:
        AuthoringError: it cannot be read, is too large, or is neither JSON nor YAML.
    """
    return parse_document(read_bounded(path), str(path))


def read_bounded(path: Path) -> bytes:
    """Read the bytes of a regular file, `MAX_BYTES` at most.

    Raises:
        AuthoringError: it cannot be read or is larger.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            # A pipe or a device may never end.
            raise AuthoringError(f"{path}: is not a file")
        check_size(found.st_size, str(path))
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise AuthoringError(f"cannot read {path}: {error.strerror}") from error
    check_size(len(raw), str(path))
    return raw


def check_size(size: int, name: str) -> None:
    """Refuse what is larger than `MAX_BYTES`.

    Raises:
        AuthoringError: it is.
    """
    if size > MAX_BYTES:
        raise AuthoringError(
            f"{name}: is larger than {MAX_BYTES >> 20} MiB; split it, or keep only what is needed"
        )


def parse_document(raw: bytes, name: str) -> Document:
    """Read JSON or YAML, whichever it is.

    Raises:
        AuthoringError: it is neither, is nested too deep, or is not UTF-8.
    """
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AuthoringError(f"{name}: is not UTF-8 text") from error
    bracketed = text.lstrip()[:1] in {"{", "["}
    if bracketed or name.endswith(".json"):
        try:
            value: object = json.loads(
                text,
                object_pairs_hook=_unique,
                parse_constant=_no_constant,
                parse_float=_finite,
            )
        except RecursionError as error:
            raise AuthoringError(
                f"{name}: the document is nested more than {MAX_DEPTH} levels deep"
            ) from error
        except json.JSONDecodeError as error:
            json_error = error
        except ValueError as error:
            raise AuthoringError(f"{name}: {error}") from error
        else:
            _check_depth(value, name)
            _check_texts(value, text, name)
            return Document(name=name, value=value, text=text, position=None)
        # YAML may begin like that, too; but what has a JSON name is told JSON's fault.
        if bracketed and name.endswith(".json"):
            raise AuthoringError(f"{name}:{json_error.lineno}: not JSON: {json_error.msg}")
    value, position = parse_yaml(text, name)
    return Document(name=name, value=value, text=text, position=position)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key[:80]!r} stands twice in one object")
            seen.add(key)
    return made


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} has no place in JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is larger than a number can be")
    return value


def _check_texts(value: object, text: str, name: str) -> None:
    """Refuse what Python takes for a character and no encoding has."""
    if _SURROGATE.search(text) is None:
        return
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError as error:
        raise AuthoringError(
            f"{name}: has half of a surrogate pair, {error.object[error.start]!a}, "
            "which is no character"
        ) from error


def _check_depth(value: object, name: str) -> None:
    level: list[object] = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[object] = []
        for node in level:
            if isinstance(node, dict):
                below.extend(cast("dict[str, object]", node).values())
            elif isinstance(node, list):
                below.extend(cast("list[object]", node))
        if not below:
            return
        level = below
    raise AuthoringError(f"{name}: the document is nested more than {MAX_DEPTH} levels deep")


def _json_positions(text: str) -> Position:
    """Where every value of sound JSON stands."""
    root = Position(1)
    stack: list[tuple[Position, bool]] = []
    """Open collections, and whether each is an object."""
    line = 1
    key: str | None = None
    after_key = False
    for match in _PIECE.finditer(text):
        piece = match[0]
        if piece == "\n":
            line += 1
        elif piece in "}]":
            stack.pop()
        elif piece in ":,":
            after_key = piece == ":"
        elif stack and stack[-1][1] and not after_key:
            key = cast("str", json.loads(piece))
            stack[-1][0].held[key] = Position(line)
        else:
            here = root if not stack else _entered(stack[-1], key, line)
            if not stack:
                root.line = line
            after_key = False
            if piece in "{[":
                stack.append((here, piece == "{"))
    return root


def _entered(frame: tuple[Position, bool], key: str | None, line: int) -> Position:
    parent, is_object = frame
    if is_object:
        # The line of the key is where an editor would look for its value.
        return parent.held[key or ""]
    here = Position(line)
    parent.held[len(parent.held)] = here
    return here
