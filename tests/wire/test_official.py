"""The check against the official schemas: it takes what they take and refuses what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mcp_trio.wire import REVISIONS
from tests.wire import make_official
from tests.wire.official import Conversation, official

DATES = [revision.date for revision in REVISIONS]
NEWEST, LAST_SESSION, *_, FIRST = DATES
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": NEWEST,
    "io.modelcontextprotocol/clientCapabilities": {},
}
TOOL: dict[str, Any] = {"name": "t", "inputSchema": {"type": "object"}}
TEXT: dict[str, Any] = {"type": "text", "text": "t"}
FORM: dict[str, Any] = {"type": "object", "properties": {}}


def faults(value: object, kind: str, date: str = LAST_SESSION) -> list[str]:
    return official(date).faults(value, kind)


# -- types ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("Tool", TOOL),
        ("Tool", {**TOOL, "inputSchema": {"type": "object", "$defs": {"x": True}, "more": 1}}),
        ("Tool", {**TOOL, "_meta": {"any.example/key": [None]}}),
        ("TextContent", {**TEXT, "annotations": {"audience": ["user"], "priority": 0}}),
        ("ContentBlock", {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}),
        ("CallToolResult", {"content": [TEXT], "structuredContent": {"any": [1, None]}}),
        ("ProgressToken", 7),
        ("ProgressToken", "7"),
        ("EmptyResult", {"_meta": {}}),
        ("ClientCapabilities", {"experimental": {"x": {"y": 1}}, "sampling": {}}),
        ("PrimitiveSchemaDefinition", {"type": "number", "default": 1.5, "minimum": 1}),
        ("SamplingMessage", {"role": "user", "content": TEXT}),
        ("SamplingMessage", {"role": "user", "content": [TEXT, TEXT]}),
    ],
)
def test_what_is_right_is_taken(kind: str, value: object) -> None:
    assert faults(value, kind) == []


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        # something is missing
        ("Tool", {"name": "t"}, [".inputSchema: missing"]),
        ("Tool", {**TOOL, "inputSchema": {}}, [".inputSchema.type: missing"]),
        ("CallToolResult", {"content": [{"type": "text"}]}, [".content[0].text: missing"]),
        # a field that is not of it
        ("Tool", {**TOOL, "extra": 1}, [".extra: not a field of it"]),
        ("EmptyResult", {"resultType": "complete"}, [".resultType: not a field of it"]),
        ("TextContent", {**TEXT, "icons": []}, [".icons: not a field of it"]),
        (
            "ServerCapabilities",
            {"tools": {"subscribe": True}},
            [".tools.subscribe: not a field of it"],
        ),
        # a wrong type
        ("Tool", [], [": not of type object"]),
        ("Tool", {**TOOL, "name": 5}, [".name: not of type string"]),
        ("Tool", {**TOOL, "icons": {}}, [".icons: not of type array"]),
        ("CallToolResult", {"content": [], "isError": 0}, [".isError: not of type boolean"]),
        (
            "Tool",
            {**TOOL, "inputSchema": {"type": "object", "properties": {"a": True}}},
            [".inputSchema.properties.a: not of type object"],
        ),
        (
            "CallToolResult",
            {"content": [], "structuredContent": [1]},
            [".structuredContent: not of type object"],
        ),
        ("ProgressToken", True, [": not of type integer"]),
        ("ProgressToken", 1.5, [": not of type integer"]),
        ("ProgressToken", None, [": not of type integer"]),
        ("Annotations", {"priority": "1"}, [".priority: not of type number"]),
        # a wrong value
        ("Role", "system", [": none of ['assistant', 'user']"]),
        ("LoggingLevel", "warn", None),
        ("Annotations", {"priority": 1.01}, [".priority: not in 0..1"]),
        ("Annotations", {"priority": -1}, [".priority: not in 0..1"]),
        ("TextContent", {**TEXT, "type": "image"}, [".type: not 'text'"]),
        ("Root", {"uri": "no scheme"}, [".uri: no uri"]),
        ("ImageContent", {"type": "image", "data": "?", "mimeType": "a/b"}, [".data: no byte"]),
        (
            "PrimitiveSchemaDefinition",
            {"type": "string", "enum": ["a"], "minLength": 1},
            None,
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    kind: str, value: object, told: list[str] | None
) -> None:
    found = faults(value, kind)
    assert found
    assert told is None or found == told


def test_bounds_of_the_newest_revision_hold() -> None:
    completion = {"resultType": "complete", "completion": {"values": ["x"] * 101}}
    assert faults(completion, "CompleteResult", NEWEST) == [
        ".completion.values: more than 100 items"
    ]
    page = {"resultType": "complete", "tools": [], "ttlMs": -1, "cacheScope": "private"}
    assert faults(page, "ListToolsResult", NEWEST) == [".ttlMs: not in 0.."]
    assert faults({**page, "ttlMs": 1.5}, "ListToolsResult", NEWEST)
    assert not faults({**page, "ttlMs": 0}, "ListToolsResult", NEWEST)


@pytest.mark.parametrize(
    ("field", "value", "since"),
    [
        ("annotations", {}, "2025-03-26"),
        ("title", "T", "2025-06-18"),
        ("outputSchema", {"type": "object"}, "2025-06-18"),
        ("_meta", {}, "2025-06-18"),
        ("icons", [], "2025-11-25"),
    ],
)
def test_a_field_is_refused_before_its_revision(field: str, value: object, since: str) -> None:
    told = {date: faults({**TOOL, field: value}, "Tool", date) for date in DATES}
    assert {date for date, found in told.items() if not found} == {d for d in DATES if d >= since}


# -- messages --------------------------------------------------------------------------


def call(id_: object = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params}


def answer(id_: object = 1, **result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "result": result}


def error(code: int, data: object = None, **more: Any) -> dict[str, Any]:
    body = {"code": code, "message": "m", **({} if data is None else {"data": data})}
    return {"jsonrpc": "2.0", "id": 1, "error": body, **more}


def judged(date: str, *said: tuple[str, object]) -> list[str]:
    """What is wrong with the last of these messages; the others have to be right."""
    talk = Conversation(date)
    for sender, message in said[:-1]:
        talk.hear(sender, message)  # type: ignore[arg-type]  # client or server
    assert talk.faults == []
    talk.hear(*said[-1])  # type: ignore[arg-type]  # client or server
    return talk.faults


def test_an_answer_is_judged_by_what_it_answers() -> None:
    asked = ("client", call(name="t"))
    assert judged(LAST_SESSION, asked, ("server", answer(content=[]))) == []
    (fault,) = judged(LAST_SESSION, asked, ("server", answer(tools=[])))[:1]
    assert ".result.content: missing" in fault
    assert judged(LAST_SESSION, asked, ("server", {**answer(content=[]), "more": 1}))
    modern = ("client", call(name="t", _meta=META))
    assert judged(NEWEST, modern, ("server", answer(content=[])))  # no type
    assert judged(NEWEST, modern, ("server", answer(content=[], resultType="complete"))) == []
    question = answer(resultType="input_required", requestState="s")
    assert judged(NEWEST, modern, ("server", question)) == []


def test_an_answer_to_nothing_and_a_second_one_are_faults() -> None:
    asked, answered = ("client", call(name="t")), ("server", answer(content=[]))
    assert judged(LAST_SESSION, answered)
    assert judged(LAST_SESSION, asked, answered, answered)
    assert judged(LAST_SESSION, asked, ("server", answer("1", content=[])))
    assert judged(LAST_SESSION, asked, ("client", answer(content=[])))


@pytest.mark.parametrize(
    ("date", "sender", "message"),
    [
        (LAST_SESSION, "client", call(name="t", more=1)),
        (LAST_SESSION, "client", call(None, name="t")),
        (LAST_SESSION, "client", {**call(name="t"), "jsonrpc": "1.0"}),
        (LAST_SESSION, "server", call(name="t")),
        (LAST_SESSION, "client", {"jsonrpc": "2.0", "id": 1}),
        (LAST_SESSION, "client", "text"),
        (LAST_SESSION, "server", {"jsonrpc": "2.0", "method": "notifications/no/such"}),
        (NEWEST, "client", call(name="t")),  # no _meta
        (NEWEST, "client", {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}),
        (NEWEST, "server", {"jsonrpc": "2.0", "id": 1, "method": "roots/list", "params": {}}),
        (FIRST, "server", {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create"}),
        (
            FIRST,
            "server",
            {
                "jsonrpc": "2.0",
                "method": "notifications/progress",
                "params": {"progressToken": 1, "progress": 1, "message": "half"},
            },
        ),
    ],
)
def test_a_message_of_the_wrong_side_shape_or_revision_is_refused(
    date: str, sender: str, message: object
) -> None:
    assert judged(date, (sender, message))


def test_errors_are_judged_by_their_code() -> None:
    asked = ("client", call(name="t", _meta=META))
    for good in (error(-32602), error(1401, {"any": 1}), error(-32020)):
        assert judged(NEWEST, asked, ("server", good)) == []
    lacks = {"requiredCapabilities": {"sampling": {}}}
    assert judged(NEWEST, asked, ("server", error(-32021, lacks))) == []
    assert judged(NEWEST, asked, ("server", error(-32021)))
    assert judged(NEWEST, asked, ("server", error(-32021, {"requiredCapabilities": {"x": {}}})))
    assert judged(NEWEST, asked, ("server", error(-32022, {"supported": []})))
    assert judged(NEWEST, asked, ("server", error(-32602, extra=1)))
    assert judged(NEWEST, asked, ("server", {**error(1), "error": {"code": "1", "message": "m"}}))


@pytest.mark.parametrize("date", DATES)
def test_an_error_without_an_id_is_taken_once_for_each_message_that_had_none(date: str) -> None:
    anonymous = {key: value for key, value in error(-32700).items() if key != "id"}
    talk = Conversation(date)
    talk.unreadable = 1
    talk.hear("server", anonymous)
    assert talk.faults == []
    talk.hear("server", anonymous)
    assert talk.faults
    talk = Conversation(date, unreadable=1)
    talk.hear("server", {**anonymous, "id": None})
    assert talk.faults  # null is no id in any revision


def test_batches_belong_to_one_revision_and_every_part_is_judged() -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    for date in DATES:
        assert bool(judged(date, ("client", [ping]))) == (date != "2025-03-26")
    assert judged("2025-03-26", ("client", []))
    assert judged("2025-03-26", ("client", [ping, {"jsonrpc": "2.0", "method": "no"}]))
    assert judged("2025-03-26", ("client", [ping]), ("server", [answer(), answer()]))
    assert judged("2025-03-26", ("client", [ping]), ("server", [answer()])) == []


def test_what_is_wrong_on_purpose_is_not_judged_but_may_be_answered() -> None:
    talk = Conversation(LAST_SESSION)
    talk.hear("client", call(name=5), judge=False)
    assert (talk.faults, talk.judged) == ([], 0)
    talk.hear("server", error(-32602))
    assert (talk.faults, talk.judged) == ([], 1)
    assert talk.said == {("client", "tools/call"), ("server", "error tools/call")}
    talk.hear("client", call(name="t"))
    talk.finish()
    talk.hear("server", error(-32602))
    assert talk.faults


# -- the table ---------------------------------------------------------------------------

SMALL: dict[str, Any] = {
    "$defs": {
        "Role": {"type": "string", "enum": ["b", "a"], "description": "who"},
        "Part": {"anyOf": [{"$ref": "#/$defs/Role"}, {"type": ["string", "integer"]}]},
        "Both": {"allOf": [{"$ref": "#/$defs/Part"}, {"type": "object", "properties": {}}]},
        "Whole": {
            "type": "object",
            "required": ["kind"],
            "additionalProperties": {},
            "properties": {
                "kind": {"const": "x", "type": "string"},
                "link": {"type": "string", "format": "uri"},
                "share": {"type": "number", "minimum": 0, "maximum": 1},
                "parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}, "maxItems": 3},
                "bag": {"type": "object"},
                "map": {"type": "object", "additionalProperties": {"type": "boolean"}},
                "free": {"description": "anything"},
            },
        },
    }
}
REDUCED: dict[str, Any] = {
    "Role": {"one": ["a", "b"]},
    "Part": {"any": ["Role", {"any": ["integer", "string"]}]},
    "Both": {"all": ["Part", {"fields": {}}]},
    "Whole": {
        "fields": {
            "kind": {"is": "x"},
            "link?": "string uri",
            "share?": "number 0..1",
            "parts?": {"list": "Part", "most": 3},
            "bag?": "object",
            "map?": {"more": "boolean"},
            "free?": "anything",
        },
        "more": "anything",
    },
}


def folder_of(path: Path, schema: object) -> str:
    for date in make_official.REVISIONS:
        (path / date).mkdir(parents=True)
        (path / date / "schema.json").write_text(json.dumps(schema))
    return str(path)


def test_the_table_is_derived_from_the_schemas_and_can_be_compared_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table.json"
    monkeypatch.setattr(make_official, "TABLE", table)
    folder = folder_of(tmp_path / "schema", SMALL)
    run = CliRunner().invoke
    assert run(make_official.main, [folder]).exit_code == 0
    made = json.loads(table.read_text())
    assert sorted(made) == sorted(DATES)
    assert made[NEWEST]["types"] == REDUCED
    assert len({part["sha256"] for part in made.values()}) == 1
    assert run(make_official.main, [folder, "--check"]).exit_code == 0
    table.write_text(table.read_text().replace("uri", "url"))
    assert run(make_official.main, [folder, "--check"]).exit_code == 1


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "a"},
        {"anyOf": [], "type": "object"},
        {"type": "object", "required": ["a"], "properties": {}},
        {"$ref": "#/$defs/X", "minimum": 1},
    ],
)
def test_a_keyword_that_the_table_has_no_room_for_is_not_dropped(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"no room|not described"):
        make_official.reduce(schema)


@pytest.mark.parametrize("date", DATES)
def test_the_committed_table_names_no_type_that_it_does_not_have(date: str) -> None:
    known = official(date).types
    named: set[str] = set()

    def walk(made: Any) -> None:
        match made:
            case str():
                named.add(made.partition(" ")[0])
            case {"is": _} | {"one": _}:
                pass
            case dict():
                for part in (
                    *made.get("fields", {}).values(),
                    *made.get("any", ()),
                    *made.get("all", ()),
                ):
                    walk(part)
                for key in ("list", "more"):
                    if key in made:
                        walk(made[key])

    for made in known.values():
        walk(made)
    primitive = {name for name in named if name[0].islower()}
    assert named - primitive <= known.keys()
    assert primitive <= {
        "anything", "array", "boolean", "integer", "null", "number", "object", "string",
    }  # fmt: skip
