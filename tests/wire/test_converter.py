"""Wire objects as JSON, per revision: what is written, what is read, and what is refused."""

from __future__ import annotations

from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.errors import InvalidParamsError
from mcp_trio.jsonrpc import codec
from mcp_trio.wire import (
    ABSENT,
    REVISIONS,
    AudioContent,
    CallToolParams,
    CallToolResult,
    ClientCapabilities,
    DiscoverResult,
    EmbeddedResource,
    ImageContent,
    Implementation,
    InitializeParams,
    InitializeResult,
    ListToolsResult,
    ResourceLink,
    Revision,
    ServerCapabilities,
    TextContent,
    Tool,
)
from mcp_trio.wire.converter import MAX_FAULTS, camel, converter_for, from_wire, to_wire
from mcp_trio.wire.elicitation import ElicitParams, ElicitResult
from mcp_trio.wire.notices import (
    CancelledParams,
    ListenParams,
    LogParams,
    ProgressParams,
)
from mcp_trio.wire.roots import ListRootsResult
from tests.wire.samples import AUDIO, EMBEDDED, IMAGE, LINK, SAMPLES, TEXT

R26, R25C, R25B, R25A, R24 = REVISIONS
revisions = pytest.mark.parametrize("revision", REVISIONS, ids=str)


def refusal(value: Any, cls: type[Any], revision: Revision = R26) -> str:
    with pytest.raises(InvalidParamsError) as caught:
        from_wire(value, cls, revision)
    return caught.value.message


# -- writing ----------------------------------------------------------------------------


@revisions
@pytest.mark.parametrize("name", SAMPLES)
def test_what_a_revision_has_comes_back(name: str, revision: Revision) -> None:
    sample = SAMPLES[name]
    written = to_wire(sample, revision)
    codec.encode_value(written)
    if written.get("type") in ("text", None) or not isinstance(sample, AudioContent | ResourceLink):
        cls: type[Any] = type(sample) if written.get("type") != "text" else TextContent
        assert to_wire(from_wire(written, cls, revision), revision) == written


@pytest.mark.parametrize("name", SAMPLES)
def test_the_newest_revision_loses_nothing_that_is_still_part_of_the_protocol(name: str) -> None:
    gone: dict[type, dict[str, None]] = {
        ClientCapabilities: {"tasks": None},
        ServerCapabilities: {"tasks": None},
        Tool: {"execution": None},
        ElicitParams: {"elicitation_id": None},
        ElicitResult: {"meta": None},
        ListRootsResult: {"meta": None},
    }

    def kept(value: Any) -> Any:
        if isinstance(value, list):
            return [kept(item) for item in value]
        if not attrs.has(type(value)):
            return value
        fields = {
            field.name: kept(getattr(value, field.name)) for field in attrs.fields(type(value))
        }
        return type(value)(**{**fields, **gone.get(type(value), {})})

    sample = SAMPLES[name]
    assert from_wire(to_wire(sample, R26), type(sample), R26) == kept(sample)


@revisions
def test_what_is_not_set_is_left_out(revision: Revision) -> None:
    assert to_wire(Tool(name="t", input_schema={}), revision) == {"name": "t", "inputSchema": {}}
    assert to_wire(TextContent(text=""), revision) == {"type": "text", "text": ""}
    assert to_wire(CancelledParams(request_id=0), revision) == {"requestId": 0}
    assert to_wire(CallToolResult(), revision) == {"content": [], **kind(revision)}
    false = CallToolResult(is_error=False)
    assert to_wire(false, revision) == {"content": [], "isError": False, **kind(revision)}


def kind(revision: Revision) -> dict[str, object]:
    """What every result of a server says in the revision (B6)."""
    return {"resultType": "complete"} if revision is R26 else {}


def test_cache_hints_are_sent_although_they_are_defaults() -> None:
    listed = to_wire(ListToolsResult(tools=[]), R26)
    assert listed == {"tools": [], "ttlMs": 0, "cacheScope": "private", **kind(R26)}  # K2
    assert to_wire(ListToolsResult(tools=[]), R25C) == {"tools": []}


def test_null_and_absent_structured_content_are_two_things() -> None:
    assert "structuredContent" not in to_wire(CallToolResult(), R26)
    assert to_wire(CallToolResult(structured_content=None), R26)["structuredContent"] is None
    assert from_wire({"content": []}, CallToolResult, R26).structured_content is ABSENT
    null = {"content": [], "structuredContent": None}
    assert from_wire(null, CallToolResult, R26).structured_content is None


@pytest.mark.parametrize("value", [0, False, "", [], {}, [1, {"a": None}], 1.5])
def test_structured_content_may_be_any_value(value: object) -> None:
    written = to_wire(CallToolResult(structured_content=value), R26)
    assert written["structuredContent"] == value
    read = from_wire(written, CallToolResult, R26)
    assert read.structured_content == value
    assert type(read.structured_content) is type(value)


def test_blocks_a_revision_does_not_know_become_text() -> None:
    result = CallToolResult(content=[TEXT, AUDIO, LINK])
    _, audio, link = to_wire(result, R24)["content"]  # type: ignore[misc]  # an array
    notes = {"annotations": {"audience": ["user"], "priority": 0.5}}
    assert audio == {"type": "text", "text": "[audio, audio/wav, 3 bytes]", **notes}  # T5
    assert link == {"type": "text", "text": "A: file:///a", **notes}
    kinds = [
        [block["type"] for block in to_wire(result, revision)["content"]]  # type: ignore[attr-defined]
        for revision in REVISIONS
    ]
    assert kinds == [
        *[["text", "audio", "resource_link"]] * 3,
        ["text", "audio", "text"],
        ["text", "text", "text"],
    ]


@revisions
def test_a_raw_page_is_passed_on_untouched(revision: Revision) -> None:
    raw = codec.raw([{"name": "t"}])
    written = to_wire(ListToolsResult(tools=raw), revision)
    assert isinstance(written["tools"], msgspec.Raw)
    assert b'"tools":[{"name":"t"}]' in codec.encode_value(written)


@revisions
def test_an_extra_key_is_written_and_never_stands_in_for_a_field(revision: Revision) -> None:
    extra = {"vendor": 1, "content": "x", "isError": True, "structuredContent": 1, "_meta": 2}
    written = to_wire(CallToolResult(extra=extra), revision)
    assert written == {"content": [], "vendor": 1, **kind(revision)}


# -- reading ----------------------------------------------------------------------------


@revisions
@pytest.mark.parametrize("cls", [CallToolResult, InitializeResult, DiscoverResult, ListToolsResult])
def test_unknown_keys_of_a_result_are_kept(cls: type[Any], revision: Revision) -> None:
    sample = next(item for item in SAMPLES.values() if type(item) is cls)
    value = {**to_wire(sample, revision), "vendor": {"a": [1]}, "extra": 5}
    read = from_wire(value, cls, revision)
    assert read.extra == {"vendor": {"a": [1]}, "extra": 5}  # B12
    assert to_wire(read, revision) == value


def test_unknown_keys_elsewhere_are_ignored() -> None:
    read = from_wire({"name": "t", "inputSchema": {}, "new": 1}, Tool, R26)
    assert read == Tool(name="t", input_schema={})


def test_a_field_of_another_revision_is_read_when_it_comes() -> None:
    tool = from_wire({"name": "t", "inputSchema": {}, "title": "T"}, Tool, R24)
    assert tool.title == "T"


@pytest.mark.parametrize(
    ("value", "cls", "fault"),
    [
        ({}, CallToolParams, "params.name is missing"),
        ({"name": 5}, CallToolParams, "params.name: expected a string"),
        ({"name": None}, CallToolParams, "params.name: expected a string"),
        ({"name": True}, CallToolParams, "params.name: expected a string"),
        ({"name": "t", "arguments": []}, CallToolParams, "params.arguments: expected an object"),
        ({"name": "t", "arguments": "{}"}, CallToolParams, "params.arguments: expected an object"),
        ({"name": "t", "_meta": 1}, CallToolParams, "params._meta: expected an object"),
        ({"name": "t"}, Tool, "params.inputSchema is missing"),
        ({"name": "t", "inputSchema": {}, "icons": {}}, Tool, "params.icons: expected an array"),
        (
            {"name": "t", "inputSchema": {}, "icons": [{"src": "a"}, {"src": "b", "sizes": "1x1"}]},
            Tool,
            "params.icons[1].sizes: expected an array",
        ),
        (
            {"name": "t", "inputSchema": {}, "annotations": {"readOnlyHint": 1}},
            Tool,
            "params.annotations.readOnlyHint: expected true or false",
        ),
        ({"tools": "abc"}, ListToolsResult, "params.tools: expected an array"),
        ({"tools": {}}, ListToolsResult, "params.tools: expected an array"),
        ({"tools": [[]]}, ListToolsResult, "params.tools[0]: expected an object"),
        ({"tools": [], "ttlMs": 1.5}, ListToolsResult, "params.ttlMs: expected an integer"),
        ({"tools": [], "ttlMs": True}, ListToolsResult, "params.ttlMs: expected an integer"),
        (
            {"supportedVersions": "2026", "capabilities": {}},
            DiscoverResult,
            "params.supportedVersions: expected an array",
        ),
        (
            {"supportedVersions": [1], "capabilities": {}},
            DiscoverResult,
            "params.supportedVersions[0]: expected a string",
        ),
        (
            {"supportedVersions": [], "capabilities": {"tools": True}},
            DiscoverResult,
            "params.capabilities.tools: expected an object",
        ),
        (
            {"protocolVersion": "x", "capabilities": {}, "clientInfo": {"name": "c"}},
            InitializeParams,
            "params.clientInfo.version is missing",
        ),
        ({"content": None}, CallToolResult, "params.content: expected an array"),
        ({"content": [{}]}, CallToolResult, "params.content[0]: unknown content type"),
        ({"content": [{"type": []}]}, CallToolResult, "params.content[0]: unknown content type"),
        ({"content": [{"type": "x"}]}, CallToolResult, "params.content[0]: unknown content type"),
        ({"content": ["x"]}, CallToolResult, "params.content[0]: expected an object"),
        (
            {"content": [{"type": "image", "data": "", "mimeType": 1}]},
            CallToolResult,
            "params.content[0].mimeType: expected a string",
        ),
        (
            {"progressToken": 1.5, "progress": 1},
            ProgressParams,
            "params.progressToken: expected a string or an integer",
        ),
        (
            {"progressToken": True, "progress": 1},
            ProgressParams,
            "params.progressToken: expected a string or an integer",
        ),
        (
            {"progressToken": None, "progress": 1},
            ProgressParams,
            "params.progressToken: expected a string or an integer",
        ),
        (
            {"progressToken": 1, "progress": "1"},
            ProgressParams,
            "params.progress: expected a number",
        ),
        (
            {"progressToken": 1, "progress": False},
            ProgressParams,
            "params.progress: expected a number",
        ),
        (
            {"requestId": 1.0},
            CancelledParams,
            "params.requestId: expected a string or an integer",
        ),
        (
            {"notifications": {"toolsListChanged": "yes"}},
            ListenParams,
            "params.notifications.toolsListChanged: expected true or false",
        ),
        ({"notifications": None}, ListenParams, "params.notifications: expected an object"),
        ({"level": "info"}, LogParams, "params.data is missing"),
    ],
)
def test_a_wrong_type_is_named_by_place_as_it_stands_on_the_wire(
    value: dict[str, Any], cls: type[Any], fault: str
) -> None:
    assert refusal(value, cls) == fault


@pytest.mark.parametrize("value", [None, [], "x", 5, True])
def test_what_is_no_object_at_all_is_refused(value: object) -> None:
    assert refusal(value, CallToolParams) == "params: expected an object"


def test_every_fault_is_named_up_to_a_bound() -> None:
    assert refusal({"name": 1, "arguments": 2}, CallToolParams) == (
        "params.name: expected a string; params.arguments: expected an object"
    )
    many = refusal({"content": [{"type": "text", "text": 1}] * 1000}, CallToolResult)
    assert many.count(";") == MAX_FAULTS - 1


def test_the_place_can_be_called_something_else() -> None:
    with pytest.raises(InvalidParamsError, match=r"^result\.name is missing$"):
        from_wire({"version": "1"}, Implementation, R26, where="result")


@given(
    st.sampled_from(sorted(SAMPLES)),
    st.sampled_from(REVISIONS),
    st.sampled_from(["secret-value", 5, 1.5, True, None, ["secret-value"], {"secret-key": 1}]),
    st.data(),
)
def test_a_wrong_value_anywhere_is_refused_or_read_but_never_repeated(
    name: str, revision: Revision, wrong: object, data: st.DataObject
) -> None:
    sample = SAMPLES[name]
    value = to_wire(sample, revision)
    spoilt = {**value, data.draw(st.sampled_from(sorted(value))): wrong}
    said = ""
    try:
        from_wire(spoilt, type(sample), revision)
    except InvalidParamsError as error:
        said = error.message
    assert "secret" not in said


def test_ids_and_tokens_keep_their_kind() -> None:
    for id_ in (7, "7", 2**70):
        assert from_wire({"requestId": id_}, CancelledParams, R25C).request_id == id_
        token = {"progressToken": id_, "progress": 1}
        assert from_wire(token, ProgressParams, R25C).progress_token == id_
    assert from_wire({}, CancelledParams, R25C).request_id is None


def test_an_empty_cursor_is_a_cursor() -> None:
    listed = from_wire({"tools": [], "nextCursor": ""}, ListToolsResult, R26)
    assert listed.next_cursor == ""  # K1


def test_every_block_is_told_apart_by_its_type() -> None:
    blocks = [TEXT, IMAGE, AUDIO, EMBEDDED, LINK]
    written = to_wire(CallToolResult(content=list(blocks)), R26)
    read = from_wire(written, CallToolResult, R26)
    assert [type(block) for block in read.content] == [
        TextContent,
        ImageContent,
        AudioContent,
        EmbeddedResource,
        ResourceLink,
    ]
    assert read.content == blocks


@pytest.mark.parametrize(
    ("name", "wire"),
    [("ttl_ms", "ttlMs"), ("uri", "uri"), ("read_only_hint", "readOnlyHint")],
)
def test_attribute_names_become_wire_names(name: str, wire: str) -> None:
    assert camel(name) == wire


def test_every_revision_has_one_converter_of_its_own() -> None:
    made = [converter_for(revision) for revision in REVISIONS]
    assert len({id(converter) for converter in made}) == len(REVISIONS)
    assert all(converter_for(r) is m for r, m in zip(REVISIONS, made, strict=True))
