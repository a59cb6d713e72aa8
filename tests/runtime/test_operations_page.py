"""The examples of `docs/operations.md` do what the page says."""

from __future__ import annotations

import json
import re

import pytest

from mcp_trio.catalog.operation import find_faults, parse
from mcp_trio.runtime.adapters.xml_tree import read_xml, write_xml
from tests.programs import ROOT
from tests.runtime.conftest import make_view

PAGE = (ROOT / "docs" / "operations.md").read_text()
BLOCKS = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
VIEWS = [block for block in BLOCKS if "target" in block]


def example(*keys):
    """The changes of the one example whose target has these keys."""
    (found,) = [each for each in VIEWS if all(key in json.dumps(each) for key in keys)]
    arguments = re.findall(r"args\.(\w+)", json.dumps(found))
    schema = {"type": "object", "properties": {name: {} for name in arguments}}
    return {"input_schema": schema, "input_mapping": {}, **found}


@pytest.mark.parametrize("changes", VIEWS)
def test_every_example_is_a_view(view, changes):
    parse(view(**changes))


async def test_the_example_of_multipart(bench, upstream):
    arguments = {"title": "Q3", "data": "JVBERg==", "name": "q3.pdf"}
    await bench.call(arguments, **example('"multipart"'))
    assert upstream.last.target == "/reports"
    assert b'name="title"\r\n\r\nQ3\r\n' in upstream.last.body
    assert b'name="report"; filename="q3.pdf"\r\nContent-Type: application/pdf\r\n\r\n%PDF\r\n' in (
        upstream.last.body
    )


def test_the_example_of_xml():
    (tree,) = [block for block in BLOCKS if "order" in block]
    (text,) = re.findall(r"```xml\n(.*?)\n```", PAGE, re.DOTALL)
    assert read_xml(text.encode()) == tree
    assert write_xml(tree).decode().partition("?>")[2] == text


async def test_the_example_of_graphql(bench, upstream):
    upstream.says({"data": {"lead": {"name": "Ada", "notes": [{"text": "a"}, {"text": "b"}]}}})
    result = await bench.call({"id": "7"}, **example('"graphql"'))
    assert upstream.last.target == "/graphql"
    assert upstream.last.json()["variables"] == {"id": "7"}
    assert result.structured_content == {"name": "Ada", "notes": ["a", "b"]}


async def test_the_example_of_pages(bench, upstream):
    async def two(line, seen):
        first = "after" not in seen.target
        page = {"next": "c2"} if first else {}
        leads = [{"name": "Ada"}] if first else [{"name": "Bob"}]
        await line.answer(json.dumps({"page": page, "leads": leads, "total": 2}).encode())

    upstream.handler = two
    result = await bench.call({}, **example('"pagination"'))
    assert [seen.target for seen in upstream.seen] == ["/leads", "/leads?after=c2"]
    assert result.structured_content == {"leads": ["Ada", "Bob"], "of": 2}


async def test_the_example_of_streams(bench, upstream, recorded):
    events = (
        b'data: {"done": 1, "of": 2, "step": "reading"}\n\n'
        b'data: {"done": 2, "of": 2, "file": "a.csv"}\n\nevent: end\ndata: bye\n\n'
    )
    upstream.says(events, kind="text/event-stream")
    context, told = recorded()
    result = await bench.compile(**example('"stream"')).call(context, {})
    assert told == [(1, 2, "reading"), (2, 2, None)]
    assert result.structured_content == {"file": "a.csv"}


def known_keys():
    """Every key of the format, as the format itself tells them to who writes a wrong one."""
    stranger = {"?": 1}
    places = {
        "input_mapping": stranger,
        "output_mapping": {**stranger, "error": stranger},
        "execution_config": {
            **stranger,
            **dict.fromkeys(
                ("timeout_ms", "retry", "circuit", "rate_per_minute", "cache", "limits"), stranger
            ),
        },
        "tool_description": {**stranger, "annotations": stranger, "icons": [stranger]},
    }
    targets = dict.fromkeys(("graphql", "grpc", "sql", "mcp"), stranger)
    targets["rest"] = {
        **stranger,
        "styles": {**stranger, "query": {"a": stranger}},
        "pagination": stranger,
        "stream": {**stranger, "progress": stranger},
    }
    for protocol, target in targets.items():
        for fault in find_faults(make_view(protocol=protocol, target=target, **places)):
            if "known are " in fault.reason:
                for key in fault.reason.split("known are ")[1].split(", "):
                    yield fault.place, key


def test_every_key_of_the_format_is_in_the_table_of_fields():
    table = PAGE.split("## Every field")[1].split("## Credentials")[0]
    keys = set(known_keys())
    assert len(keys) > 70
    assert not [(place, key) for place, key in sorted(keys) if not re.search(rf"\b{key}\b", table)]
