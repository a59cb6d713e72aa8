"""Settings as they were found, before anybody judges them: values, and where each comes from.

The command line stands above the environment, and that above the file.
"""

from __future__ import annotations

import copy
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path as FilePath
from typing import cast

import attrs

from mcp_trio.config.faults import Fault, Origin, Path, SettingsError
from mcp_trio.config.toml_lines import toml_lines
from mcp_trio.runtime.expressions import measure

DEEPEST = 64
"""Levels of tables and lists that are looked at; no setting has as many as ten."""


@attrs.frozen(kw_only=True)
class Override:
    """A value that stands above that of the file."""

    path: Path
    value: object
    origin: Origin


@attrs.define(kw_only=True)
class Draft:
    """What is known of settings before they are read."""

    name: str
    """The file, or what is told in its place."""
    folder: FilePath
    """What relative paths are relative to."""
    values: dict[str, object] = attrs.field(factory=dict[str, object])
    origins: dict[Path, Origin] = attrs.field(factory=dict[Path, Origin])
    """Of keys and tables; what has none here has that of the table around it."""
    faults: list[Fault] = attrs.field(factory=list[Fault])
    """What was wrong with values that were left out."""

    @classmethod
    def of(cls, name: str, folder: FilePath, values: Mapping[str, object]) -> Draft:
        """Take plain values; they are copied."""
        return cls(name=name, folder=folder, values=copy.deepcopy(dict(values)))

    def override(self, override: Override) -> None:
        """Put a value in place, with the tables that it needs around it."""
        *tables, last = override.path
        node = self.values
        for depth, part in enumerate(tables, 1):
            if part not in node:
                # What such a table lacks is missing in what began it.
                self.origins[override.path[:depth]] = override.origin
            inner = node.setdefault(part, {})
            if not isinstance(inner, dict):
                # What stands there is no table, which is told when it is read.
                return
            node = cast("dict[str, object]", inner)
        node[last] = override.value
        size = len(override.path)
        for path in [each for each in self.origins if each[:size] == override.path]:
            del self.origins[path]
        self.origins[override.path] = override.origin

    def origin_of(self, path: Path) -> Origin:
        """Where a key comes from, or the table it should stand in."""
        while path:
            if path in self.origins:
                return self.origins[path]
            path = path[:-1]
        return Origin(source=self.name)

    def located(self, faults: Iterable[Fault]) -> list[Fault]:
        """The faults with their origins, in the order of the file."""
        found = (
            each if each.origin else attrs.evolve(each, origin=self.origin_of(each.path))
            for each in faults
        )
        return sorted(found, key=self._place)

    def _place(self, fault: Fault) -> tuple[bool, int]:
        origin = fault.origin
        line = None if origin is None or origin.source != self.name else origin.line
        return line is None, line or 0


def read_file(path: FilePath) -> Draft:
    """Read a TOML file, and judge nothing but that.

    Raises:
        SettingsError: it cannot be read, or is no TOML.
    """
    name = str(path)
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin with a mark
        values = tomllib.loads(text)
    except OSError as error:
        reason = f"cannot read {path}: {error.strerror}"
        advice = "Give the path of a settings file that the service may read."
        raise SettingsError([_whole(name, None, reason, advice)]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        advice = "Mend the syntax here; whatever follows is judged after that."
        told = _whole(name, _line_in(reason), f"is not TOML: {reason}", advice)
        raise SettingsError([told]) from error
    if is_too_deep(values):
        advice = "Remove what is nested so deep."
        raise SettingsError([_whole(name, None, f"has more than {DEEPEST} levels", advice)])
    origins = {key: Origin(source=name, line=line) for key, line in toml_lines(text).items()}
    return Draft(name=name, folder=path.parent, values=values, origins=origins)


def is_too_deep(value: object) -> bool:
    """Whether a value has more than `DEEPEST` levels: whoever walks over it would go under."""
    return measure(value, sys.maxsize, DEEPEST) is None


def _whole(name: str, line: int | None, reason: str, advice: str) -> Fault:
    return Fault(reason=reason, advice=advice, origin=Origin(source=name, line=line))


def _line_in(reason: str) -> int | None:
    """The line that a message of `tomllib` ends with."""
    _, _, place = reason.rpartition("(at line ")
    number = place.partition(",")[0]
    return int(number) if number.isdecimal() else None
