"""The canary: a secret that nobody may ever see, and the watch over everything that is said.

Every HTTP connection of the tests has it. Where the fixture is imported, a test fails if the canary
or any other secret that the test makes appears in a log line, or in an exception that the line
carries; `search` looks everywhere else.
"""

import base64
import json
import logging
from urllib.parse import quote

import attrs
import pytest

from mcp_trio.secrets import Secret

TEXT = "canary+5e/c7e7=9b1d"
CANARY = Secret(TEXT)
FORMS = (
    TEXT,
    quote(TEXT, safe=""),
    base64.b64encode(TEXT.encode()).decode().rstrip("="),
    json.dumps(TEXT)[1:-1],
)


def search(thing, where):
    """Fail if the canary is in a thing, or in the text form of any part of it."""
    text = thing if isinstance(thing, str) else f"{thing!r} {_parts(thing)!r}"
    for form in FORMS:
        assert form not in text, f"a secret is in {where}"


def _parts(thing):
    return attrs.asdict(thing) if attrs.has(type(thing)) else thing


class _Watch(logging.Handler):
    """Keeps the lines that are logged, with the exceptions they carry."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))
        self.lines = []

    def emit(self, record):
        line = self.format(record)
        # What an upstream says is its own; only who debugs the library below is told.
        if "receive_response_headers" not in line:
            self.lines.append(line)

    def found(self, secrets=()):
        """The lines with the canary in them, or another secret."""
        forms = [*FORMS, *(secret for secret in secrets if len(secret) >= SHORTEST)]
        return [line for line in self.lines if any(form in line for form in forms)]


SHORTEST = 8
"""A shorter secret of a test is not looked for: its text may stand anywhere."""


@pytest.fixture(autouse=True)
def no_secret_is_logged(monkeypatch):
    """Listen to every logger at every level while a test runs, for every secret that it makes."""
    root, watch, made = logging.getLogger(), _Watch(), set()
    level, plain = root.level, Secret.__init__

    def noted(self, value):
        made.add(value)
        plain(self, value)

    monkeypatch.setattr(Secret, "__init__", noted)
    root.addHandler(watch)
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.removeHandler(watch)
        root.setLevel(level)
    assert watch.found(made) == []
