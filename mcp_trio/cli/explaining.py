"""What keeps a service from running, for people: in words where they can mend it."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

from mcp_trio.config import SettingsError
from mcp_trio.errors import ConfigurationError

EXPLAINED = (ConfigurationError, OSError)
"""What a user can mend, so it is told without a traceback."""


class ExplainedError(Exception):
    """Something that a user can mend keeps the service from running."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


@contextlib.contextmanager
def explained() -> Generator[None]:
    """Turn what a user can mend into words.

    Raises:
        ExplainedError: in place of `EXPLAINED`, alone or in groups of nothing else.
        SettingsError: as it was.
    """
    try:
        yield
    except SettingsError:
        raise
    except EXPLAINED as error:
        raise ExplainedError("; ".join(_messages(error))) from None
    except BaseExceptionGroup as group:
        known, rest = group.split(EXPLAINED)
        if known is None or rest is not None:
            raise
        raise ExplainedError("; ".join(_messages(known))) from None


def _messages(error: BaseException) -> list[str]:
    inner: Any = getattr(error, "exceptions", ())
    found = [text for each in inner for text in _messages(each)]
    if found:
        return found
    # The number of an OSError says nothing to a person.
    told = str(getattr(error, "strerror", None) or error)
    file = getattr(error, "filename", None)
    return [told if file is None else f"{told}: {file}"]
