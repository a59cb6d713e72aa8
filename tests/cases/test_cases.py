"""The list of cases is whole: every case has tests, every test named exists and is used."""

import ast
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CASES = tomllib.loads((HERE / "cases.toml").read_text())["case"]
KEYS = {"number", "symptom", "reported", "tests", "were_wrong", "wrong"}


def collected(path):
    """The test functions of a module, as they are collected."""
    return {
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")
    }


@pytest.mark.parametrize("case", CASES, ids=[case["number"] for case in CASES])
def test_a_case_is_shown_by_tests_that_exist(case):
    assert case.keys() <= KEYS
    assert case["symptom"].endswith(".")
    assert case["tests"], "a case without a test"
    assert len(set(case["tests"])) == len(case["tests"])
    for name in case["tests"]:
        path, _, function = name.partition("::")
        assert function in collected(ROOT / path), name


@pytest.mark.parametrize("case", CASES, ids=[case["number"] for case in CASES])
def test_where_we_were_wrong_is_told(case):
    assert case.get("were_wrong", False) is ("wrong" in case)
    assert case.get("wrong", "x.").endswith(".")


def test_numbers_are_given_once():
    numbers = [case["number"] for case in CASES]
    assert len(set(numbers)) == len(numbers)


def test_every_test_of_a_case_is_named():
    named = {name for case in CASES for name in case["tests"]}
    for path in sorted(HERE.glob("test_*.py")):
        if path != Path(__file__):
            where = path.relative_to(ROOT).as_posix()
            missing = {f"{where}::{function}" for function in collected(path)} - named
            assert not missing
