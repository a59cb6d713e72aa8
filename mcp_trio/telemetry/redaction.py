"""What must not be read in a log: values of telling keys, tokens, secrets that are known.

It is the last net. What logs should leave secrets out by itself, and does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, cast

from mcp_trio.secrets import MASK, Secret, mask

_TELLING = re.compile(
    r"authorization|token|password|passwd|secret|cookie|api.?key|private.?key|credential|dpop",
    re.IGNORECASE,
)
_SCHEMES = re.compile(r"\b(Bearer|Basic|DPoP)(\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_JWT = re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*)?")
MAX_DEPTH = 8
"""Levels of a value that are looked into; deeper ones are not shown."""

Source = Callable[[], Iterable[Secret]]


class Redactor:
    """A processor of structlog that takes out what nobody should read.

    Keys with telling names lose their value, at any depth; in every text tokens after `Bearer`
    and its like, JWTs, and the values of known secrets are masked.
    """

    def __init__(self) -> None:
        self._sources: list[Source] = []

    def add(self, source: Source) -> None:
        """Mask what it gives, asked anew for every line: secrets in files change."""
        self._sources.append(source)

    def __call__(
        self, _logger: object, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Redact one line, as structlog has it."""
        known = [secret for source in self._sources for secret in source()]
        for key, value in event.items():
            # structlog's own, which are gone before the line is written.
            if not key.startswith("_"):
                event[key] = self._value(key, value, known, MAX_DEPTH)
        return event

    def text(self, text: str) -> str:
        """Redact a text."""
        return self._text(text, [secret for source in self._sources for secret in source()])

    def _value(self, key: str, value: object, known: list[Secret], depth: int) -> object:
        if value is None or isinstance(value, bool | int | float):
            return value
        if _TELLING.search(key):
            return MASK
        if isinstance(value, str):
            return self._text(value, known)
        if depth == 0:
            return MASK
        if isinstance(value, Mapping):
            inner = cast("Mapping[object, object]", value)
            return {
                self._text(str(k), known): self._value(str(k), v, known, depth - 1)
                for k, v in inner.items()
            }
        if isinstance(value, list | tuple | set | frozenset):
            items = cast("Iterable[object]", value)
            return [self._value("", item, known, depth - 1) for item in items]
        return self._text(repr(value), known)

    def _text(self, text: str, known: list[Secret]) -> str:
        text = _JWT.sub(MASK, _SCHEMES.sub(rf"\1\2{MASK}", text))
        return mask(text, known) if known else text
