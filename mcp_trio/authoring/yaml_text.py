"""YAML in and out, as far as JSON goes: one document, no tags, no surprises.

Plain scalars are read by the core schema of YAML 1.2, so `no`, `on` and `1:30` are texts, and
what is written is read the same by 1.1 and 1.2. Every value is built from the parser's
events without recursion, within a budget that aliases count against each time they are used.
"""

from __future__ import annotations

import math
import re
from typing import Any, cast

import attrs
import yaml

from mcp_trio.authoring.faults import AuthoringError

MAX_VALUES = 5_000_000
"""Values in a document, those behind an alias counted each time."""
MAX_DEPTH = 200
"""Levels of nesting in a document."""

_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_NULL = re.compile(r"~|null|Null|NULL|")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
_INTEGER = re.compile(r"[-+]?[0-9]{1,400}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_A_NUMBER = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CORE = "tag:yaml.org,2002:"


@attrs.define
class Position:
    """Where a value stands: its line, from 1, and those of what it holds."""

    line: int
    held: dict[str | int, Position] = attrs.field(factory=dict["str | int", "Position"])


def parse_yaml(text: str, name: str) -> tuple[object, Position]:
    """Read a document and where everything in it stands.

    Raises:
        AuthoringError: it is no YAML, or has what JSON cannot hold; the text names the line.
    """
    builder = _Builder(name)
    try:
        for event in cast("Any", yaml).parse(text, Loader=_PARSER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = name if mark is None else f"{name}:{mark.line + 1}"
        raise AuthoringError(f"{where}: not YAML: {error.problem}") from error
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise AuthoringError(f"{name}: not YAML: {str(error).splitlines()[0]}") from error
    return builder.value, builder.position


@attrs.define
class _Frame:
    """A collection that is being read."""

    value: list[object] | dict[str, object]
    position: Position
    anchor: str | None
    before: int
    """How many values there were before it."""
    key: str | None = None
    """The key whose value comes next."""
    merges: bool = False
    """Whether it has the merge key of YAML 1.1, which a quoted text is not."""


@attrs.frozen
class _Known:
    """What an alias stands for."""

    value: object
    position: Position
    size: int


class _Builder:
    """Builds one document; lives as long as `parse_yaml` runs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.value: object = None
        self.position = Position(1)
        self._documents = 0
        self._count = 0
        self._stack: list[_Frame] = []
        self._anchors: dict[str, _Known | None] = {}
        """None: still being read."""

    def take(self, event: Any) -> None:
        """Take one event of the parser."""
        line = event.start_mark.line + 1
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise self._error(line, "a file holds one document")
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._open(event, line)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._close(line)
            case yaml.AliasEvent():
                self._alias(str(event.anchor), line)
            case yaml.ScalarEvent():
                self._scalar(event, line)
            case _:
                pass

    def _error(self, line: int, reason: str) -> AuthoringError:
        return AuthoringError(f"{self.name}:{line}: {reason}")

    def _add(self, number: int, line: int) -> None:
        self._count += number
        if self._count > MAX_VALUES:
            raise self._error(line, f"the document has more than {MAX_VALUES} values")

    def _open(self, event: Any, line: int) -> None:
        self._check_tag(event.tag, line, {"map", "seq"})
        if len(self._stack) >= MAX_DEPTH:
            raise self._error(line, f"the document is nested more than {MAX_DEPTH} levels deep")
        frame = self._stack[-1] if self._stack else None
        if frame is not None and isinstance(frame.value, dict) and frame.key is None:
            raise self._error(line, "a key must be a scalar")
        value: list[object] | dict[str, object] = (
            {} if isinstance(event, yaml.MappingStartEvent) else []
        )
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._stack.append(_Frame(value, Position(line), event.anchor, self._count))
        self._add(1, line)

    def _close(self, line: int) -> None:
        frame = self._stack.pop()
        if isinstance(frame.value, dict) and frame.merges:
            self._merge(frame.value, line)
        if frame.anchor is not None:
            size = self._count - frame.before
            self._anchors[frame.anchor] = _Known(frame.value, frame.position, size)
        self._place(frame.value, frame.position)

    def _merge(self, value: dict[str, object], line: int) -> None:
        """Take in what the merge key of YAML 1.1 names."""
        merged = value.pop("<<")
        parts = cast("list[object]", merged) if isinstance(merged, list) else [merged]
        for part in parts:
            if not isinstance(part, dict):
                raise self._error(line, "'<<' takes in mappings only")
            for key, child in cast("dict[str, object]", part).items():
                value.setdefault(key, child)

    def _alias(self, anchor: str, line: int) -> None:
        if anchor not in self._anchors:
            raise self._error(line, f"there is no anchor {anchor[:80]!r}")
        known = self._anchors[anchor]
        if known is None:
            raise self._error(line, f"the alias {anchor[:80]!r} stands inside of what it names")
        self._add(known.size, line)
        frame = self._stack[-1] if self._stack else None
        if frame is not None and isinstance(frame.value, dict) and frame.key is None:
            if not isinstance(known.value, str):
                raise self._error(line, "a key must be a scalar")
            self._key(frame, known.value, line)
            return
        self._place(known.value, known.position)

    def _scalar(self, event: Any, line: int) -> None:
        self._add(1, line)
        text: str = event.value
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            raise self._error(line, "half of a surrogate pair is no character")
        frame = self._stack[-1] if self._stack else None
        if frame is not None and isinstance(frame.value, dict) and frame.key is None:
            # A key is its text: the 200 of a response is "200" in JSON as well.
            self._key(frame, text, line)
            frame.merges = frame.merges or (text == "<<" and not event.style)
            return
        self._check_tag(event.tag, line, {"str", "int", "float", "bool", "null"})
        plain = event.implicit[0] and not event.style and event.tag != _CORE + "str"
        value = self._resolved(text, line) if plain else text
        position = Position(line)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Known(value, position, 1)
        self._place(value, position)

    def _key(self, frame: _Frame, text: str, line: int) -> None:
        if text in frame.value:
            raise self._error(line, f"the key {text[:80]!r} stands here twice")
        frame.key = text
        # The line of the key is where an editor would look for its value.
        frame.position.held[text] = Position(line)

    def _place(self, value: object, position: Position) -> None:
        if not self._stack:
            self.value, self.position = value, position
            return
        frame = self._stack[-1]
        if isinstance(frame.value, dict):
            key = frame.key or ""
            frame.value[key] = value
            frame.position.held[key] = Position(frame.position.held[key].line, position.held)
            frame.key = None
        else:
            frame.position.held[len(frame.value)] = position
            frame.value.append(value)

    def _check_tag(self, tag: str | None, line: int, allowed: set[str]) -> None:
        if tag is None or tag == "!" or tag.removeprefix(_CORE) in allowed:
            return
        raise self._error(line, f"tags such as {tag[:80]!r} are not read")

    def _resolved(self, text: str, line: int) -> object:
        value = resolve_scalar(text)
        if isinstance(value, float) and not math.isfinite(value):
            raise self._error(line, f"{text[:40]} has no place in JSON")
        return value


def resolve_scalar(text: str) -> object:
    """What a plain scalar means by the core schema of YAML 1.2."""
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text):
        return True
    if _FALSE.fullmatch(text):
        return False
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _NOT_A_NUMBER.fullmatch(text):
        return math.inf
    return text


class _Dumper(_DUMPER):  # type: ignore[misc]  # chosen by what is installed
    """Writes texts that any reader takes for texts, and no aliases."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  # its signature
        """Never."""
        return True


def _text(dumper: Any, text: str) -> object:
    # In a block a text keeps its lines; the emitter falls back to quotes where it cannot.
    quoted = not isinstance(resolve_scalar(text), str)
    style = '"' if quoted else "|" if "\n" in text else None
    return dumper.represent_scalar(_CORE + "str", text, style=style)


cast("Any", _Dumper).add_representer(str, _text)


def write_yaml(value: object) -> str:
    """Write JSON as YAML, keys in their order."""
    return cast(
        "str",
        cast("Any", yaml).dump(
            value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100
        ),
    )
