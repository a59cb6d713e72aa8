"""The rules of the house that a machine can check: layers, dates, lengths, the front door."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

import mcp_trio

ROOT = Path(__file__).resolve().parent.parent
_spec = importlib.util.spec_from_file_location("layers", ROOT / "docs" / "layers.py")
layers = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(layers)

ORDER = [name for name, _ in layers.LAYERS]
FILES = layers.files()
IDS = [str(path.relative_to(layers.PACKAGE)) for path in FILES]
FORBIDDEN_BELOW = ("trio", "hypercorn", "socket", "anyio", "asyncio", "structlog", "opentelemetry")
DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")
PROTOCOL_HISTORY = ("wire/", "eras/")


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_a_module_imports_only_from_its_own_layer_or_a_lower_one(path):
    mine = ORDER.index(layers.layer_of(path))
    for module in layers.imports(path):
        if module.startswith("mcp_trio.") and layers.package_of(module) in ORDER:
            assert ORDER.index(layers.package_of(module)) <= mine, module


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_every_module_has_a_layer_and_a_docstring(path):
    assert layers.layer_of(path) in ORDER
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_nothing_below_the_line_does_input_or_output(path):
    if ORDER.index(layers.layer_of(path)) > ORDER.index(layers.LINE):
        return
    for module in layers.imports(path):
        assert module.split(".")[0] not in FORBIDDEN_BELOW, module


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_nobody_imports_another_event_loop_and_only_telemetry_and_above_log_by_structlog(path):
    for module in layers.imports(path):
        top = module.split(".")[0]
        assert top not in {"asyncio", "anyio", "sniffio"}, module
        if top in {"structlog", "opentelemetry"}:
            assert ORDER.index(layers.layer_of(path)) >= ORDER.index("telemetry")


def _docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                    yield statement.value


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_revision_dates_and_comparisons_live_where_history_lives(path):
    relative = str(path.relative_to(layers.PACKAGE))
    tree = ast.parse(path.read_text())
    if relative != "wire/revisions.py" and not relative.startswith("eras/"):
        told = set(_docstrings(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in told:
                assert not DATE.search(node.value), node.value
    if not relative.startswith(PROTOCOL_HISTORY):
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                assert not re.fullmatch(r"R20\d\d_\d\d_\d\d", node.id)
            if isinstance(node, ast.Attribute):
                assert node.attr != "age", "revisions are compared in wire and eras only"


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_modules_and_functions_stay_short(path):
    text = path.read_text()
    assert text.count("\n") <= 620
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno <= 75, node.name


def test_the_picture_in_the_documentation_is_the_code():
    page = layers.PAGE.read_text()
    assert layers.page_with_picture(page) == page


def test_the_front_door_is_narrow_and_every_name_says_where_it_lives():
    names = [name for name in dir(mcp_trio) if not name.startswith("_")]
    public = [name for name in names if not isinstance(getattr(mcp_trio, name), type(mcp_trio))]
    assert len(public) <= 40
    for name in public:
        thing = getattr(mcp_trio, name)
        assert thing.__module__ == "mcp_trio", name
        assert thing.__doc__, name


def test_the_front_door_needs_no_explicit_import_of_submodules():
    assert mcp_trio.wire.Tool
    assert mcp_trio.abc.Transport
    assert mcp_trio.testing.check_transport
    assert mcp_trio.catalog.Operation
