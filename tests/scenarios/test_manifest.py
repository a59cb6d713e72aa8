"""Every rule of the manifest is shown in every world in which it applies."""

import importlib
import inspect
from pathlib import Path

import pytest

from tests.scenarios.manifest import RULES


def each_test():
    """Each test of each module, with the marks of both."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        module = importlib.import_module(f"tests.scenarios.{path.stem}")
        around = getattr(module, "pytestmark", [])
        around = around if isinstance(around, list) else [around]
        for name, test in vars(module).items():
            if name.startswith("test_") and inspect.isfunction(test):
                yield test, [*getattr(test, "pytestmark", []), *around]


def worlds_of_test(marks):
    """Where a test runs, read from its parameters."""
    for mark in marks:
        if mark.name == "parametrize" and mark.args[0] == ("transport", "revision"):
            return set(mark.args[1])
    return set()


def shown():
    """Each rule that a test names, and the worlds of these tests."""
    found = {}
    for _, marks in each_test():
        for mark in marks:
            if mark.name == "scenario":
                for rule in mark.args:
                    found.setdefault(rule, set()).update(worlds_of_test(marks))
    return found


SHOWN = shown()


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_a_rule_is_shown_wherever_it_applies(rule):
    missing = set(rule.worlds) - SHOWN.get(rule.id, set())
    assert not missing, f"{rule.id} is not shown in {sorted(map(str, missing))}: {rule.owes}"


def test_no_test_shows_a_rule_that_does_not_exist():
    assert SHOWN.keys() <= RULES.keys()


def test_a_test_that_shows_a_rule_says_in_which_worlds_and_uses_them():
    for test, marks in each_test():
        if any(mark.name == "scenario" for mark in marks):
            assert worlds_of_test(marks), test.__name__
            assert {"transport", "revision"} <= inspect.signature(test).parameters.keys()


def test_a_row_says_one_thing_and_applies_somewhere():
    sentences = [rule.owes for rule in RULES.values()]
    assert len(set(sentences)) == len(sentences)
    for rule in RULES.values():
        assert rule.owes.endswith(".")
        assert rule.worlds
