"""The canary: a secret that nobody may ever see, and the watch over everything that is said.

Every connection of the tests has it. A module of tests that imports the fixture fails for each
log line, with whatever exception it carries, in which it appears; `search` looks everywhere else.
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
    def __init__(self):
        super().__init__(logging.DEBUG)
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))
        self.lines = []

    def emit(self, record):
        line = self.format(record)
        if any(form in line for form in FORMS):
            self.lines.append(line)


@pytest.fixture(autouse=True)
def no_secret_is_logged():
    """Listen to every logger at every level while a test runs."""
    root, watch = logging.getLogger(), _Watch()
    level = root.level
    root.addHandler(watch)
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.removeHandler(watch)
        root.setLevel(level)
    assert watch.lines == []
