"""What the README and the pages say is run here; the examples are in `test_examples`."""

import re

import pytest

from mcp_trio import ClientOptions, HTTPOptions, LineOptions, ServerOptions, ServingSettings
from mcp_trio.client.cache import CacheOptions
from mcp_trio.engine.backoff import Backoff
from tests.programs import ROOT, load, run

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = [
    (page, code, printed)
    for page in PAGES
    for code, printed in re.findall(
        r"```python\n(.*?)```(?:\n\nprints\n\n```text\n(.*?)```)?", page.read_text(), re.DOTALL
    )
]


@pytest.mark.parametrize(
    ("page", "code", "printed"),
    PROGRAMS,
    ids=[f"{page.stem}-{n}" for n, (page, *_) in enumerate(PROGRAMS)],
)
def test_every_python_block_runs_and_prints_what_stands_below_it(page, code, printed):
    said = run("-c", code).stdout
    assert said
    if printed:
        assert said == printed


def test_the_readme_program_prints_what_it_promises():
    (code,) = [code for page, code, _ in PROGRAMS if page.name == "README.md"]
    printed = run("-c", code).stdout.splitlines()
    assert printed[0] == "{'result': 3}"
    assert printed[1] == "1 1000 None"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if not target.startswith("http"):
            path, _, place = target.partition("#")
            found = page.parent / path if path else page
            assert found.exists(), target
            if place:
                headings = re.findall(r"^#+ (.*)$", found.read_text(), re.MULTILINE)
                assert place in {_anchor(heading) for heading in headings}, target


def _anchor(heading):
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


OPTIONS = (
    Backoff,
    CacheOptions,
    ClientOptions,
    HTTPOptions,
    LineOptions,
    ServerOptions,
    ServingSettings,
)
NAMED = re.compile(
    rf"`({'|'.join(cls.__name__ for cls in OPTIONS)})\.(\w+)`(?: \(| \| )([\d.]+)( MiB)?"
)
"""An option with its default: in parentheses behind it, or in the next column of a table."""


def test_the_defaults_that_the_pages_name_are_the_code():
    told = [found for page in PAGES for found in NAMED.findall(page.read_text())]
    assert len(told) > 15
    for cls, name, number, unit in told:
        options = next(each for each in OPTIONS if each.__name__ == cls)()
        assert getattr(options, name) == float(number) * (1024 * 1024 if unit else 1), name


def test_every_example_is_shown_on_a_page():
    shown = "".join(page.read_text() for page in PAGES)
    for example in (ROOT / "examples").iterdir():
        if example.suffix in {".py", ".toml"}:
            assert f"examples/{example.name}" in shown, example.name


def test_the_table_of_settings_is_the_code():
    settings = load(ROOT / "docs" / "settings.py")
    page = settings.PAGE.read_text()
    assert settings.page_with_rows(page) == page
