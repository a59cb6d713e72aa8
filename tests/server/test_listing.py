"""The listing: one order, pages of one size, and each revision in its own terms."""

from __future__ import annotations

from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.server.listing import Listing
from mcp_trio.session.context import Context
from mcp_trio.wire import REVISIONS, CallToolResult, Icon, JSONObject, Tool, ToolAnnotations
from mcp_trio.wire.converter import to_wire
from mcp_trio.wire.tools import ToolExecution

R26, R25C, R25B, R25A, R24 = REVISIONS


@attrs.frozen
class Entry:
    """A tool that is only listed."""

    definition: Tool
    authorize = None

    async def call(self, context: Context, arguments: JSONObject) -> CallToolResult:
        raise NotImplementedError


def entries(*names: str, **fields: Any) -> dict[str, Entry]:
    fields = {"input_schema": {"type": "object"}, **fields}
    return {name: Entry(Tool(name=name, **fields)) for name in names}


def names_on(page: msgspec.Raw) -> list[str]:
    return [tool["name"] for tool in msgspec.json.decode(page)]


def test_contributors_come_in_their_order_and_tools_in_theirs() -> None:
    listing = Listing([("1", entries("z", "a")), ("1", entries("m", "b"))])
    assert list(listing.entries) == ["z", "a", "m", "b"]
    assert names_on(listing.page(R26, 0, 10)) == ["z", "a", "m", "b"]  # T1
    assert len(listing) == 4


def test_of_two_tools_of_one_name_the_first_contributor_wins() -> None:
    first, second = entries("a"), entries("a", "b")
    listing = Listing([("1", first), ("1", second)])
    assert list(listing.entries) == ["a", "b"]
    assert listing.entries["a"] is first["a"]


def test_whether_it_is_for_everybody_is_looked_up_unless_it_is_known() -> None:
    @attrs.frozen
    class Guarded(Entry):
        authorize = print  # type: ignore[assignment]  # anything but None

    tool = Tool(name="g", input_schema={"type": "object"})
    assert not Listing([("1", entries("a"))]).guarded
    assert Listing([("1", entries("a")), ("1", {"g": Guarded(tool)})]).guarded
    assert Listing([("1", entries("a"))], guarded=True).guarded


def test_an_empty_listing_is_an_empty_page() -> None:
    listing = Listing([])
    assert bytes(listing.page(R26, 0, 10)) == b"[]"
    assert len(listing) == 0


@given(st.integers(0, 30), st.integers(1, 12))
def test_pages_give_every_tool_once_in_order(count: int, size: int) -> None:
    names = [f"t{n}" for n in range(count)]
    listing = Listing([("1", entries(*names))])
    found = [
        name for start in range(0, count, size) for name in names_on(listing.page(R26, start, size))
    ]
    assert found == names
    assert names_on(listing.page(R26, count, size)) == []


def test_a_page_is_encoded_once_per_revision() -> None:
    listing = Listing([("1", entries("a", "b"))])
    assert listing.page(R26, 0, 1) is listing.page(R26, 0, 1)
    assert listing.page(R26, 0, 1) is not listing.page(R25C, 0, 1)
    assert names_on(listing.page(R26, 1, 1)) == ["b"]


# -- the revision of a listing ----------------------------------------------------------------


def revision_of(*parts: tuple[str, dict[str, Entry]]) -> str:
    return Listing(parts).revision


def test_the_revision_is_the_same_for_the_same_contributions() -> None:
    assert revision_of(("1", entries("a")), ("2", entries("b"))) == revision_of(
        ("1", entries("a")), ("2", entries("b"))
    )


@pytest.mark.parametrize(
    "parts",
    [[], ["1"], ["2", "1"], ["1", "2", "3"], ["12"], ["1", "3"], ["", "1", "2"], ["1", "2", ""]],
    ids=str,
)
def test_the_revision_changes_with_every_contribution(parts: list[str]) -> None:
    changed = revision_of(*((part, entries("a")) for part in parts))
    assert changed != revision_of(("1", entries("a")), ("2", entries("a")))


# -- projection (X3) ---------------------------------------------------------------------------


FULL = Tool(
    name="t",
    input_schema={"type": "object", "$defs": {"x": {"$anchor": "y"}}, "x-more": None},
    title="T",
    description="D",
    output_schema={"type": "object"},
    annotations=ToolAnnotations(read_only_hint=True),
    execution=ToolExecution(task_support="optional"),
    icons=[Icon(src="https://a.example/i.png")],
    meta={"a": 1},
)
LEFT_OUT = {
    R26: {"execution"},
    R25C: set(),
    R25B: {"execution", "icons"},
    R25A: {"execution", "icons", "title", "outputSchema", "_meta"},
    R24: {"execution", "icons", "title", "outputSchema", "_meta", "annotations"},
}
ALL = {
    "name", "title", "description", "inputSchema", "outputSchema", "annotations", "execution",
    "icons", "_meta",
}  # fmt: skip


@pytest.mark.parametrize("revision", REVISIONS, ids=str)
def test_a_revision_lists_what_it_knows_and_keeps_the_schema_whole(revision: Any) -> None:
    listed = to_wire(FULL, revision)
    assert set(listed) == ALL - LEFT_OUT[revision]
    assert listed["inputSchema"] == FULL.input_schema  # J1
    page = Listing([("1", {"t": Entry(FULL)})]).page(revision, 0, 1)
    assert msgspec.json.decode(page) == [listed]


@pytest.mark.parametrize(
    "schema", [{"type": "array"}, {"anyOf": [{}]}, {}, {"type": ["object"]}, {"$ref": "#/$defs/x"}]
)
def test_an_output_schema_that_is_no_object_is_only_listed_where_it_may_be(
    schema: dict[str, Any],
) -> None:
    tool = Tool(name="t", input_schema={"type": "object"}, output_schema=schema)
    listed = [("outputSchema" in to_wire(tool, revision)) for revision in REVISIONS]
    assert listed == [True, False, False, False, False]  # T3


# -- mirrored arguments ------------------------------------------------------------------------


def test_mirrored_arguments_are_read_from_the_schema() -> None:
    schema = {"type": "object", "properties": {"r": {"type": "string", "x-mcp-header": "R"}}}
    listing = Listing([("1", {**entries("marked", input_schema=schema), **entries("plain")})])
    (item,) = listing.tool_headers("marked")
    assert (item.header, item.path, item.type) == ("mcp-param-r", ("r",), "string")
    assert listing.tool_headers("marked") is listing.tool_headers("marked")
    assert listing.tool_headers("plain") == ()


def test_unknown_tools_have_none_and_leave_no_trace() -> None:
    listing = Listing([("1", entries("a"))])
    for n in range(100):
        assert listing.tool_headers(f"unknown-{n}") == ()
    assert listing._headers == {}


def test_a_tool_whose_annotations_are_invalid_has_none() -> None:
    schema = {"type": "object", "properties": {"r": {"type": "number", "x-mcp-header": "R"}}}
    assert Listing([("1", entries("a", input_schema=schema))]).tool_headers("a") == ()  # N13
