"""Keys that settings name and do not hold: fetched, checked, never told."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from mcp_trio.eras.rounds import KEY_BYTES
from mcp_trio.errors import ConfigurationError


def read_key(text: str, where: str, folder: Path, environment: Mapping[str, str]) -> bytes:
    """Fetch a key. What it holds is never told.

    Args:
        text: `env:NAME` or `file:PATH`.
        where: the setting, for messages.
        folder: what relative paths are relative to.
        environment: where `env:` is looked up.

    Raises:
        ConfigurationError: there is none, or it is none.
    """
    kind, _, place = text.partition(":")
    match kind:
        case "env":
            found = environment.get(place, "")
            if not found:
                raise ConfigurationError(f"{where}: {place} is not set")
        case "file":
            try:
                found = (folder / place).read_text(encoding="ascii")
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is no text"
                raise ConfigurationError(f"{where}: cannot read {place}: {why}") from error
        case _:
            # The text itself may be a key that somebody put there.
            raise ConfigurationError(f"{where}: a key is given as env:NAME or file:PATH")
    key = _as_key(found.strip())
    if key is None:
        raise ConfigurationError(f"{where}: {place} must hold {KEY_BYTES} bytes in hex or base64")
    return key


def _as_key(text: str) -> bytes | None:
    for read in (bytes.fromhex, partial(base64.b64decode, validate=True)):
        try:
            key = read(text)
        except ValueError:
            continue
        if len(key) == KEY_BYTES:
            return key
    return None
