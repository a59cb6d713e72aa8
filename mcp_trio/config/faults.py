"""What is wrong with settings: which key, and why. No values: they may be secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable

import attrs

from mcp_trio.errors import ConfigurationError

Path = tuple[str, ...]
"""A key with the tables around it."""
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@attrs.frozen(kw_only=True)
class Fault:
    """One thing that is wrong."""

    path: Path
    """The key, or the table if it is wrong as a whole; empty for the whole file."""
    reason: str
    """What is wrong with it."""

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.reason}"


class SettingsError(ConfigurationError):
    """Settings that do not fit.

    Attributes:
        faults: each thing that is wrong.
    """

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(map(str, self.faults)))


def dotted(path: Path) -> str:
    """A key as TOML writes it; `settings` for the whole."""
    shown = (part if _BARE.fullmatch(part) else repr(part[:80]) for part in path)
    return ".".join(shown) or "settings"
