"""The marks on the wire classes against the official schemas: each revision gets its fields.

The samples have every field set, so what is written shows every mark.
"""

from __future__ import annotations

import pytest

from mcp_trio.wire import (
    ABSENT,
    METHODS,
    REVISIONS,
    CallToolResult,
    ResourceContents,
    Revision,
    TextContent,
    Tool,
)
from mcp_trio.wire.basic import EmptyParams
from mcp_trio.wire.converter import to_wire
from mcp_trio.wire.elicitation import ElicitParams, pages_exist
from mcp_trio.wire.methods import Method, Sender
from mcp_trio.wire.rounds import ASK_METHODS
from mcp_trio.wire.sampling import CreateMessageResult, SamplingMessage, ToolResultContent
from tests.wire.official import Sender as Side
from tests.wire.official import official
from tests.wire.samples import SAMPLES, TEXT

R26, R25C, R25B, R25A, R24 = REVISIONS
revisions = pytest.mark.parametrize("revision", REVISIONS, ids=str)

# Clients with extensions name them in this revision too, before its successor made room for them.
DEPARTURE = (R25C, "extensions")


def samples_of(cls: type | None, revision: Revision) -> list[object]:
    """All samples of a class that can be sent in the revision."""
    return [
        sample
        for sample in SAMPLES.values()
        if type(sample) is cls
        and (pages_exist(revision) or not isinstance(sample, ElicitParams) or not sample.url)
    ]


def sides(method: Method, revision: Revision) -> list[Side]:
    """Who may send a message of the method in the revision."""
    both: tuple[Side, ...] = ("client", "server")
    return [
        side
        for side in both
        if Sender[side.upper()] in method.sender
        # The newest schema has no progress of clients, whom nobody asks for anything there.
        and (method.name, side, revision) != ("notifications/progress", "client", R26)
    ]


CALLS = [
    pytest.param(revision, method, id=f"{revision}-{method.name}")
    for revision in REVISIONS
    for method in METHODS.values()
    if method.exists_in(revision)
]


@pytest.mark.parametrize(("revision", "method"), CALLS)
def test_a_message_with_all_that_can_be_said_is_what_its_schema_says(
    revision: Revision, method: Method
) -> None:
    schema = official(revision.date)
    samples = samples_of(method.params, revision)
    assert samples
    for side in sides(method, revision):
        for params in samples:
            message = {"jsonrpc": "2.0", "method": method.name, "params": to_wire(params, revision)}
            kind = schema.notification(side, method.name)
            if method.result is not None:
                message["id"] = 1
                kind = schema.request(side, method.name)
            faults = schema.faults(message, kind)
            if revision is DEPARTURE[0] and method.name == "initialize":
                faults.remove(f".params.capabilities.{DEPARTURE[1]}: not a field of it")
            assert faults == []


@pytest.mark.parametrize(("revision", "method"), [c for c in CALLS if c.values[1].result])
def test_an_answer_with_all_that_can_be_said_is_what_its_schema_says(
    revision: Revision, method: Method
) -> None:
    schema = official(revision.date)
    samples = samples_of(method.result, revision)
    assert samples
    for side in sides(method, revision):
        for result in samples:
            message = {"jsonrpc": "2.0", "id": 1, "result": to_wire(result, revision)}
            assert schema.faults(message, schema.result(side, method.name)) == []


@pytest.mark.parametrize("name", sorted(ASK_METHODS))
def test_what_is_asked_in_a_result_and_answered_is_what_its_schema_says(name: str) -> None:
    schema = official(R26.date)
    for params in [*samples_of(METHODS[name].params, R26)]:
        plain = {} if isinstance(params, EmptyParams) else to_wire(params, R26)
        assert schema.faults({"method": name, "params": plain}, "InputRequest") == []
    for result in samples_of(METHODS[name].result, R26):
        assert schema.faults(to_wire(result, R26), "InputResponse") == []


def definition_of(sample: object) -> str:
    """The name of the class, which is the schema's own in most cases."""
    if isinstance(sample, ResourceContents):
        return "TextResourceContents" if sample.text else "BlobResourceContents"
    return type(sample).__name__


DEFINED = [
    pytest.param(revision, name, set(made["fields"]), id=f"{revision}-{name}")
    for revision in REVISIONS
    for name, sample in SAMPLES.items()
    if isinstance(made := official(revision.date).types.get(definition_of(sample)), dict)
]


@pytest.mark.parametrize(("revision", "name", "fields"), DEFINED)
def test_a_class_has_the_very_fields_of_its_definition(
    revision: Revision, name: str, fields: set[str]
) -> None:
    written = set(to_wire(SAMPLES[name], revision))
    if name == "client capabilities" and revision is DEPARTURE[0]:
        written.remove(DEPARTURE[1])
    assert written == {field.rstrip("?") for field in fields}  # X3


# -- values that older revisions do not take ---------------------------------------------


@revisions
@pytest.mark.parametrize("value", [[1], None, "x", 0, False])
def test_structured_content_that_is_no_object_is_sent_where_it_may_be(
    revision: Revision, value: object
) -> None:
    answers = (
        CallToolResult(structured_content=value),
        ToolResultContent(tool_use_id="1", structured_content=value),
    )
    for answer in answers:
        assert ("structuredContent" in to_wire(answer, revision)) == (revision is R26)  # T4


@revisions
def test_an_object_is_structured_content_since_there_is_any(revision: Revision) -> None:
    written = to_wire(CallToolResult(structured_content={}), revision)
    assert written.get("structuredContent", ABSENT) == ({} if revision >= R25B else ABSENT)


@revisions
def test_schemas_that_are_true_or_false_are_written_out_for_older_revisions(
    revision: Revision,
) -> None:
    schema = {"type": "object", "properties": {"a": True, "b": False, "c": {}}, "required": ["a"]}
    written = to_wire(Tool(name="t", input_schema=schema, output_schema=schema), revision)
    spelled = {**schema, "properties": {"a": {}, "b": {"not": {}}, "c": {}}}
    assert written["inputSchema"] == (schema if revision is R26 else spelled)
    if revision >= R25B:
        assert written["outputSchema"] == written["inputSchema"]


@revisions
def test_a_message_of_a_model_is_one_block_before_there_were_several(revision: Revision) -> None:
    several = SamplingMessage(role="user", content=[TEXT, TextContent(text="two")])
    single = CreateMessageResult(role="assistant", content=[TEXT], model="m")
    nothing = CreateMessageResult(role="assistant", content=[], model="m")
    written = [to_wire(item, revision)["content"] for item in (several, single, nothing)]
    if revision >= R25C:
        assert written == [to_wire(several, R26)["content"], to_wire(TEXT, revision), []]
    else:
        assert written == [
            {"type": "text", "text": "t\ntwo"},
            to_wire(TEXT, revision),
            {"type": "text", "text": ""},
        ]


@revisions
def test_what_a_tool_was_used_for_is_told_in_words_before_there_were_tools(
    revision: Revision,
) -> None:
    blocks = [to_wire(SAMPLES[name], revision) for name in ("use", "used")]
    kinds = ["tool_use", "tool_result"] if revision >= R25C else ["text", "text"]
    assert [block["type"] for block in blocks] == kinds
