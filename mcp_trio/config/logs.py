"""`[logging]`, `[access_log]` and `[audit]`: what is written down, and where."""

from __future__ import annotations

from typing import Literal

import attrs

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "text"]


@attrs.frozen(kw_only=True)
class LoggingSection:
    """`[logging]`: what the service tells of itself."""

    level: Level = "info"
    """The least severe level that is written: `debug`, `info`, `warning` or `error`."""
    format: Format = "auto"
    """`json`, one object a line; `text`, for people; `auto`: text on a terminal."""
    file: str = "stderr"
    """A file, relative to the settings file, or `stderr` or `stdout`. SIGHUP opens it anew."""


@attrs.frozen(kw_only=True)
class AccessLogSection:
    """`[access_log]`: one line of JSON for each HTTP exchange. Off without this table."""

    file: str = "stdout"
    """As `logging.file`."""


@attrs.frozen(kw_only=True)
class AuditSection:
    """`[audit]`: one line of JSON for each call of a tool. Off without this table."""

    file: str
    """As `logging.file`."""
    required: bool = False
    """Make no call whose beginning cannot be written. Each call then waits for its line."""
    key: str | None = None
    """Key of the digests of arguments, as `env:NAME` or `file:PATH` of 32 random bytes in hex or
    base64; by default one that nobody knows, another one in each process."""
