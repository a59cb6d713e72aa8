"""What the README and the pages say is run here."""

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mcp_trio import MCPClient
from mcp_trio.config import load_settings

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = [
    (page, code)
    for page in PAGES
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        **options,
    )


@pytest.mark.parametrize(
    ("page", "code"), PROGRAMS, ids=[f"{page.stem}-{n}" for n, (page, _) in enumerate(PROGRAMS)]
)
def test_every_python_block_runs(page, code):
    assert run("-c", code).stdout


def test_the_readme_program_prints_what_it_promises():
    (code,) = [code for page, code in PROGRAMS if page.name == "README.md"]
    printed = run("-c", code).stdout.splitlines()
    assert printed[0] == "{'result': 3}"
    assert printed[1] == "1 1000 None"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target.partition("#")[0]).exists(), target


def test_the_table_of_settings_is_the_code():
    settings = load(ROOT / "docs" / "settings.py")
    page = settings.PAGE.read_text()
    assert settings.page_with_rows(page) == page


async def test_the_example_tools_work():
    module = load(ROOT / "examples" / "tools.py")
    seen = []
    async with MCPClient(module.server) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}
        weather = await client.call_tool("weather", {"city": "Rome", "unit": "F"})
        assert weather.structured_content == {"city": "Rome", "degrees": 69.8, "unit": "F"}
        wet = await client.call_tool("weather", {"city": "Atlantis"})
        assert (wet.is_error, wet.content[0].text) == (True, "There is no weather under water")
        assert (await client.call_tool("weather", {"city": ""})).is_error
        counted = await client.call_tool(
            "count", {"to": 3, "pause": 0}, on_progress=lambda *report: seen.append(report)
        )
        assert counted.content[0].text == "counted to 3"
        assert seen == [(1, 3, "at 1"), (2, 3, "at 2"), (3, 3, "at 3")]
        assert (await client.call_tool("crunch", {"n": 10})).structured_content == {"result": 45}
        tools = {tool.name: tool async for tool in client.tools()}
        assert tools["weather"].input_schema["properties"]["city"]["description"] == "where."


async def test_the_example_features_work():
    module = load(ROOT / "examples" / "features.py")
    async with MCPClient(module.server) as client:
        read = await client.call("resources/read", {"uri": "note:///first"})
        assert read["contents"][0]["text"] == "Buy milk"
        got = await client.call(
            "prompts/get", {"name": "summarize", "arguments": {"name": "first", "words": "5"}}
        )
        assert got["messages"][0]["content"]["text"].startswith("Summarize in at most 5 words")
        completed = await client.call(
            "completion/complete",
            {
                "ref": {"type": "ref/prompt", "name": "summarize"},
                "argument": {"name": "name", "value": "s"},
            },
        )
        assert completed["completion"]["values"] == ["second"]
        async with client.listen(resource="note:///first") as changes:
            await client.call_tool("write_note", {"name": "first", "text": "Buy bread"})
            assert await anext(changes) == "notifications/resources/updated note:///first"


def test_the_asking_example_asks_in_both_eras():
    printed = run(ROOT / "examples" / "asking.py").stdout.splitlines()
    assert printed == [
        "Your table is waiting (terrace, receipt 1)",
        "Your table is waiting (terrace, receipt 2)",
    ]


def test_the_embedded_example_runs():
    printed = run(ROOT / "examples" / "embedded.py").stdout.splitlines()
    assert printed[0] == "['slow']"
    assert set(printed[1:]) == {"the tool has ended", "given up: True"}


def test_the_examples_of_a_registry_and_its_settings_fit(tmp_path):
    text = (ROOT / "examples" / "service.toml").read_text()
    (tmp_path / "service.toml").write_text(text)
    settings = load_settings(tmp_path / "service.toml")
    run(ROOT / "examples" / "publish.py", settings.catalog.registry)
    assert Path(settings.catalog.registry).parent == tmp_path
    # What is commented out has to be right, too.
    whole = text.replace("# [conn", "[conn").replace("# base", "base").replace("# kind", "kind")
    assert tomllib.loads(whole.replace("# secret", "secret"))["connections"]["crm"]


def test_the_published_example_is_served(tmp_path):
    module = load(ROOT / "examples" / "publish.py")
    assert json.loads(json.dumps(module.GREETING))["name"] == "greeting"
    from mcp_trio.catalog.operation import parse
    from mcp_trio.runtime.compiler import Compiler
    from mcp_trio.runtime.connections import Connections

    assert Compiler(Connections()).compile(parse(module.GREETING)).definition.name == "greeting"
