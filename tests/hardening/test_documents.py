"""SECURITY.md names tests that exist."""

import re
from pathlib import Path

from tests.programs import ROOT

SECURITY = ROOT / "SECURITY.md"
HARDENING = ROOT / "docs" / "hardening.md"


def test_every_test_that_is_named_exists():
    text = SECURITY.read_text() + HARDENING.read_text()
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    names = set(re.findall(r"`(test_\w+)`", text))
    assert len(names) > 20
    assert [name for name in names if f"def {name}(" not in sources] == []
    for path in re.findall(r"`(tests/[\w/]+\.py)`", text):
        assert (ROOT / path).exists(), path


def test_every_file_of_attacks_is_in_the_report():
    text = HARDENING.read_text()
    for path in Path(__file__).parent.glob("test_*.py"):
        assert path.name in text or path.name == Path(__file__).name, path.name
