"""What is wrong with settings: where, which key, why, and what to do.

Values are not repeated: they may be secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import attrs

from mcp_trio.errors import ConfigurationError
from mcp_trio.json_schema import pointer
from mcp_trio.wire import JSONObject

Path = tuple[str, ...]
"""A key with the tables around it; items of lists by their number."""
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@attrs.frozen(kw_only=True)
class Origin:
    """Where a value comes from."""

    source: str
    """The file; or the environment variable or the option that stands above it."""
    line: int | None = None
    """In the file, from 1."""

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


@attrs.frozen(kw_only=True)
class Fault:
    """One thing that is wrong, or that looks unwise."""

    path: Path = ()
    """The key, or the table if it is wrong as a whole; empty if it is neither."""
    reason: str
    """What is wrong with it."""
    advice: str = ""
    """What to do."""
    severity: str = "fault"
    """`fault`: the service does not start. `warning`: it does, and may not do what was meant."""
    origin: Origin | None = None
    """Where it stands, once that is known."""

    def __str__(self) -> str:
        told = f"{dotted(self.path)}: {self.reason}" if self.path else self.reason
        origin = self.origin
        if origin is not None and origin.line is None and not self.path:
            return f"{origin}: {told}"
        return told if origin is None else f"{told} ({origin})"

    def as_text(self) -> str:
        """For people, the first line in the form that editors jump to."""
        key = f" {dotted(self.path)}:" if self.path else ""
        told = f"{self.origin or 'settings'}: {self.severity}:{key} {self.reason}"
        return f"{told}\n    {self.advice}" if self.advice else told

    def as_json(self) -> JSONObject:
        """For programs; with the keys that findings about operations have, and `key`."""
        origin = self.origin or Origin(source="settings")
        return {
            "severity": self.severity,
            "file": origin.source,
            "line": origin.line,
            "pointer": pointer(self.path),
            "operation_id": None,
            "key": dotted(self.path) if self.path else None,
            "reason": self.reason,
            "advice": self.advice,
        }


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
