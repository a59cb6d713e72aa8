"""A secret value that does not show itself.

Whoever needs the value calls `reveal` where it goes onto the wire. It has no text form, is
not copied into anything that is logged, and `mask` takes it out of other people's text.
"""

from __future__ import annotations

import base64
import hmac
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

import attrs

from mcp_trio.errors import ConfigurationError

MASK = "***"
SHORTEST = 4
"""A shorter secret is not searched for in text: it would mask half of every word."""


class Secret:
    """A string that is shown as `***` wherever it is not revealed on purpose."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value. Call it where it goes onto the wire, and nowhere else."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, format_spec: str) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled or copied")


def mask(text: str, secrets: Iterable[Secret]) -> str:
    """Replace every secret in a text, also where it is base64 or percent-encoded."""
    forms: set[str] = set()
    for secret in secrets:
        value = secret.reveal()
        if len(value) >= SHORTEST:
            forms |= {value, quote(value, safe=""), base64.b64encode(value.encode()).decode()}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, MASK)
    return text


@attrs.frozen(kw_only=True)
class SecretSource:
    """Where the secrets of settings are: the environment, and files beside the settings."""

    folder: Path
    """What relative paths are relative to."""
    environment: Mapping[str, str] = attrs.field(default=os.environ, repr=False)

    def secret(self, whose: str, name: str, *, env: str | None, file: str | None) -> Secret:
        """Fetch a secret that settings name as `<name>_env` or `<name>_file`.

        Raises:
            ConfigurationError: neither or both are named, or there is nothing; never tells more.
        """
        if (env is None) == (file is None):
            raise ConfigurationError(f"{whose}: give either {name}_env or {name}_file")
        if env is not None:
            value = self.environment.get(env, "")
            if not value:
                raise ConfigurationError(f"{whose}: {env} is not set")
            return Secret(value)
        try:
            value = (self.folder / (file or "")).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{whose}: cannot read its {name}_file") from error
        return Secret(value)
