"""Values on their way through: numbers, text, schemas, resources, and what must not get out."""

import dataclasses
import datetime as dt
import enum
import json
import logging
import math
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import attrs
import jsonschema
import msgspec
import pytest

from mcp_trio import ClientOptions, MCPClient, MCPServer, RemoteError
from mcp_trio.engine.subscriptions import Mailbox, Notice
from mcp_trio.wire import REVISIONS, CallToolResult, TextContent
from mcp_trio.wire.notices import SubscriptionFilter
from tests.cases.speakers import CHANNELS, speaking, text_of
from tests.http.asgi import serving
from tests.http.tools import make_server

each_channel = pytest.mark.parametrize("channel", CHANNELS)
each_revision = pytest.mark.parametrize("revision", REVISIONS, ids=str)


def connected(server, revision=REVISIONS[0]):
    return MCPClient(server, options=ClientOptions(revisions=(revision,)))


# -- numbers ------------------------------------------------------------------------------


@dataclasses.dataclass
class Reading:
    value: float


@attrs.define
class Measured:
    value: float


class Struck(msgspec.Struct):
    value: float


class Level(enum.Enum):
    NONE = math.nan


class Pair(NamedTuple):
    left: float
    right: float


BAD = (math.nan, math.inf, -math.inf)
WRAPPED = [
    lambda x: x,
    lambda x: [1.0, [x]],
    lambda x: {"a": {"b": [x]}},
    lambda x: (x, 1.0),
    lambda x: {x, 1.0},
    lambda x: frozenset([x]),
    Reading,
    Measured,
    Struck,
    lambda x: Pair(1.0, x),
    lambda x: [Reading(1.0), Measured(x)],
    lambda x: {"a": [{"b": Reading(x)}]},
]


@each_channel
@pytest.mark.parametrize("wrap", WRAPPED)
async def test_what_is_no_number_in_json_is_an_error_however_deep_it_hides(channel, wrap):
    server, _ = make_server()

    @server.tool
    async def give(which: int):
        return wrap(BAD[which])

    @server.tool
    async def give_by_hand(which: int):
        return CallToolResult(
            content=[TextContent(text="made by hand")],
            structured_content={"value": wrap(BAD[which])},
        )

    async with speaking(server, channel) as speaker:
        for which in range(3):
            answer = await speaker.ask(speaker.call(which, "give", which=which))
            assert answer["result"]["isError"]
            assert "NaN or an infinity" in text_of(answer)
            if channel == "sse":
                continue  # its revision has no structure to hide it in
            answer = await speaker.ask(speaker.call(which, "give_by_hand", which=which))
            assert answer["error"]["code"] == -32603
        await speaker.works()


async def test_an_enumeration_may_hide_one_too():
    server = MCPServer("s")

    @server.tool
    async def level():
        return CallToolResult(structured_content={"level": Level.NONE, "nothing": None})

    async with connected(server) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("level")
        assert caught.value.rpc_code == -32603


@each_channel
async def test_null_inside_objects_is_no_error(channel):
    server, _ = make_server()

    @server.tool
    async def nothing():
        return CallToolResult(structured_content={"a": [Reading(None)], "b": None, "c": {None}})

    async with speaking(server, channel) as speaker:
        answer = await speaker.ask(speaker.call(1, "nothing"))
        assert "error" not in answer
        if channel != "sse":
            expected = {"a": [{"value": None}], "b": None, "c": [None]}
            assert answer["result"]["structuredContent"] == expected


class Whole(enum.IntEnum):
    ONE = 1
    TWO = 2


@attrs.define
class Counted:
    n: int


INTEGERS: list[tuple[Any, Any, Any]] = [
    (int, lambda n: n, 3),
    (int | None, lambda n: n, 3),
    (list[int], lambda n: [n, 4.0], [3, 4]),
    (dict[str, int], lambda n: {"a": n}, {"a": 3}),
    (Counted, lambda n: {"n": n}, {"n": 3}),
    (list[Counted], lambda n: [{"n": n}], [{"n": 3}]),
    (Annotated[int, msgspec.Meta(ge=3, le=3)], lambda n: n, 3),
]


@pytest.mark.parametrize(("annotation", "wrap", "kept"), INTEGERS, ids=str)
async def test_an_integer_may_be_written_with_a_point_and_nothing_else_is_one(
    annotation, wrap, kept
):
    server = MCPServer("s")

    async def same(value):
        assert "float" not in repr(msgspec.to_builtins(value))
        return json.dumps(msgspec.to_builtins(value))

    same.__annotations__ = {"value": annotation, "return": str}
    server.add_tool(same)
    async with connected(server) as client:
        for good in (3, 3.0, 30e-1):
            result = await client.call_tool("same", {"value": wrap(good)})
            assert not result.is_error, result.content
            assert result.content[0].text == json.dumps(kept)
        for bad in (3.5, True, "3", "3.0", [3], {"3": 3}):
            result = await client.call_tool("same", {"value": wrap(bad)})
            assert result.is_error
            assert "Invalid arguments" in result.content[0].text


async def test_a_choice_among_integers_may_be_written_with_a_point_too():
    server = MCPServer("s")

    @server.tool
    async def choose(which: Whole, literal: Literal[1, 2] = 1) -> list[str]:
        return [which.name, type(literal).__name__]

    async with connected(server) as client:
        result = await client.call_tool("choose", {"which": 2.0, "literal": 1.0})
        assert result.structured_content == {"result": ["TWO", "int"]}
        for bad in (2.5, "2", True, 3):
            assert (await client.call_tool("choose", {"which": bad})).is_error


# -- text ---------------------------------------------------------------------------------

LOOKS_LIKE = [
    "[1,2]",
    '{"a":1}',
    "123",
    "1.5",
    "null",
    "true",
    '"quoted"',
    "",
    " 1 ",
    "NaN",
    "\ufeff",
]


@each_channel
@pytest.mark.parametrize(
    "annotation", [str, str | None, str | int, int | str, Any, object], ids=str
)
async def test_text_that_looks_like_json_stays_text(channel, annotation):
    server, _ = make_server()

    async def kind(value, many=()):
        return f"{type(value).__name__} {value} {[type(item).__name__ for item in many]}"

    kind.__annotations__ = {"value": annotation, "many": list[annotation], "return": str}
    server.add_tool(kind)
    async with speaking(server, channel) as speaker:
        for text in LOOKS_LIKE:
            answer = await speaker.ask(speaker.call(1, "kind", value=text, many=[text]))
            assert text_of(answer) == f"str {text} ['str']"


@each_revision
@pytest.mark.parametrize("annotation", [str, str | None, str | int, Any], ids=str)
async def test_text_of_prompts_and_templates_stays_text_where_text_is_wanted(revision, annotation):
    server = MCPServer("s")

    async def ask(value):
        return f"{type(value).__name__} {value}"

    ask.__annotations__ = {"value": annotation}
    server.add_prompt(ask)
    server.add_resource("test://{value}", ask)
    async with connected(server, revision) as client:
        for text in LOOKS_LIKE:
            params = {"name": "ask", "arguments": {"value": text}}
            got = await client.call("prompts/get", params)
            assert got["messages"][0]["content"]["text"] == f"str {text}"
        for text in ("123", "null", "true", "1.5", "NaN"):
            got = await client.call("resources/read", {"uri": f"test://{text}"})
            assert got["contents"][0]["text"] == f"str {text}"


# -- schemas ------------------------------------------------------------------------------

FORMATS = jsonschema.Draft202012Validator.FORMAT_CHECKER
NAIVE = dt.datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001 - the point of it


@dataclasses.dataclass
class Stamped:
    when: dt.datetime
    at: dt.time
    day: dt.date
    took: dt.timedelta
    history: list[dt.datetime] = dataclasses.field(default_factory=list)


def promised_formats(schema: Any) -> list[str]:
    """Every format that a schema promises."""
    if isinstance(schema, dict):
        here = [schema["format"]] if isinstance(schema.get("format"), str) else []
        return here + [found for item in schema.values() for found in promised_formats(item)]
    if isinstance(schema, list):
        return [found for item in schema for found in promised_formats(item)]
    return []


@each_revision
@pytest.mark.parametrize("zone", [None, dt.UTC], ids=["naive", "with an offset"])
async def test_a_time_without_an_offset_breaks_no_promise(revision, zone):
    server = MCPServer("s")
    given = Stamped(
        NAIVE.replace(tzinfo=zone), NAIVE.time(), NAIVE.date(), dt.timedelta(1, 2, 3), [NAIVE]
    )

    @server.tool
    async def stamp(since: dt.datetime | None = None) -> Stamped:
        return given

    @server.tool
    async def stamps() -> dict[str, list[dt.datetime]]:
        return {"all": [given.when]}

    async with connected(server, revision) as client:
        listed = (await client.call("tools/list"))["tools"]
        for tool in listed:
            promised = promised_formats(tool["inputSchema"]) + promised_formats(
                tool.get("outputSchema")
            )
            assert not {"date-time", "time"} & set(promised)
            result = await client.call("tools/call", {"name": tool["name"], "arguments": {}})
            if "outputSchema" in tool:
                jsonschema.Draft202012Validator(tool["outputSchema"]).validate(
                    result["structuredContent"]
                )
        for since in ("2026-01-02T03:04:05", "2026-01-02T03:04:05Z"):
            got = await client.call_tool("stamp", {"since": since})
            assert not got.is_error


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@attrs.define
class Node:
    name: str
    colour: Colour = Colour.RED
    children: list["Node"] = attrs.field(factory=list)


@dataclasses.dataclass
class Leaf:
    tree: "Tree | None" = None


@dataclasses.dataclass
class Tree:
    leaves: list[Leaf]
    colour: Colour = Colour.BLUE


class Drawing(TypedDict):
    root: Node
    colours: dict[str, Colour]
    trees: list[Tree]


class Box(msgspec.Struct, rename={"inside": "what is/inside~"}):
    inside: Node


def references(schema: Any) -> list[str]:
    if isinstance(schema, dict):
        here = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
        return here + [found for item in schema.values() for found in references(item)]
    if isinstance(schema, list):
        return [found for item in schema for found in references(item)]
    return []


def resolve(schema: Any, reference: str) -> Any:
    assert reference.startswith("#/"), reference
    for part in reference[2:].split("/"):
        schema = schema[part.replace("~1", "/").replace("~0", "~")]
    return schema


DRAWN = {
    "root": {"name": "a", "colour": "blue", "children": [{"name": "b", "children": []}]},
    "colours": {"sky": "blue"},
    "trees": [{"leaves": [{"tree": {"leaves": [], "colour": "red"}}]}],
}


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Node, DRAWN["root"]),
        (Drawing, DRAWN),
        (list[Node], [DRAWN["root"]]),
        (dict[str, list[Tree]], {"a": DRAWN["trees"]}),
        (Node | None, DRAWN["root"]),
        (Node | None, None),
        (Box, {"what is/inside~": DRAWN["root"]}),
        (tuple[Colour, Colour], ["red", "blue"]),
        (Literal["a", "b"] | None, "a"),
    ],
    ids=str,
)
async def test_every_reference_of_a_listed_schema_leads_somewhere(annotation, value):
    server = MCPServer("s")

    async def same(given, again=None):
        return given

    same.__annotations__ = {"given": annotation, "again": annotation | None, "return": annotation}
    server.add_tool(same)
    async with connected(server) as client:
        (tool,) = (await client.call("tools/list"))["tools"]
        for schema in (tool["inputSchema"], tool["outputSchema"]):
            jsonschema.Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object"
            for reference in references(schema):
                assert isinstance(resolve(schema, reference), dict)
        arguments = {"given": value, "again": value}
        jsonschema.Draft202012Validator(tool["inputSchema"]).validate(arguments)
        result = await client.call("tools/call", {"name": "same", "arguments": arguments})
        assert not result.get("isError"), result
        jsonschema.Draft202012Validator(tool["outputSchema"]).validate(result["structuredContent"])
        bad = await client.call_tool("same", {"given": 5})
        assert bad.is_error


# -- resources ----------------------------------------------------------------------------


def filed():
    """A server whose resources give back the name they were asked by."""
    server = MCPServer("s")

    @server.resource("file:///{name}")
    async def by_name(name: str) -> str:
        return name

    @server.resource("deep:///{+path}")
    async def by_path(path: str) -> str:
        return path

    @server.resource("find:///x{?q}")
    async def by_query(q: str = "nothing") -> str:
        return q

    @server.resource("note:///café/{name}")
    async def in_french(name: str) -> str:
        return name

    @server.resource("note:///crème brûlée")
    async def dessert() -> str:
        return "sweet"

    return server


async def read(client, uri):
    return (await client.call("resources/read", {"uri": uri}))["contents"][0]["text"]


@each_revision
@pytest.mark.parametrize(
    "uri",
    [
        "file:///..%2Fetc",
        "file:///%2e%2e",
        "file:///%2E%2e%2Fetc%2Fpasswd",
        "file:///..",
        "file:///a%2Fb",
        "file:///a%5c..%5cb",
        "file:///%00",
        "file:///a%00.txt",
        "file:///%FF",
        "file:///%C0%AE%C0%AE",
        "file:///%E0%80%AE",
        "deep:///a/../b",
        "deep:///a/%2e%2e/b",
        "deep:///a%2F..%2Fb",
        "deep:///%2e%2e%5cb",
        "deep:///a/%00",
        "deep:///%c3",
        "find:///x?q=%00",
        "find:///x?q=%ff",
    ],
)
async def test_no_spelling_of_a_uri_climbs_out_or_hides_a_byte(revision, uri):
    async with connected(filed(), revision) as client:
        with pytest.raises(RemoteError) as caught:
            await read(client, uri)
        assert caught.value.rpc_code == (-32602 if revision.stateless else -32002)


@each_revision
@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("file:///é", "é"),
        ("file:///%C3%A9", "é"),
        ("file:///%c3%a9", "é"),
        ("file:///e%CC%81", "e\u0301"),
        ("file:///%41%2Db", "A-b"),
        ("file:///a%20b", "a b"),
        ("file:///a b", "a b"),
        ("file:///100%25", "100%"),
        ("file:///%252e%252e", "%2e%2e"),
        ("file:///\U0001f600", "\U0001f600"),
        ("file:///...", "..."),
        ("deep:///a/b%20c/é", "a/b c/é"),
        ("find:///x?q=%C3%A9", "é"),
        ("find:///x?q=é", "é"),
        ("find:///x", "nothing"),
        ("note:///café/1", "1"),
        ("note:///caf%C3%A9/1", "1"),
        ("note:///caf%c3%a9/1", "1"),
        ("note:///c%61fé/1", "1"),
        ("note:///crème brûlée", "sweet"),
        ("note:///cr%C3%A8me%20br%C3%BBl%C3%A9e", "sweet"),
        ("note:///cr%c3%a8me%20br%c3%bbl%c3%a9e", "sweet"),
    ],
)
async def test_every_spelling_of_a_uri_is_the_same_resource(revision, uri, text):
    async with connected(filed(), revision) as client:
        assert await read(client, uri) == text


def test_a_watched_resource_is_told_by_the_spelling_that_was_asked_for():
    box = Mailbox(SubscriptionFilter(resource_subscriptions=["note:///é"]))
    box.watch("note:///%c3%a8")
    assert box.put(Notice("notifications/resources/updated", "note:///%C3%A9"))
    assert not box.put(Notice("notifications/resources/updated", "note:///%c3%a9"))
    assert box.put(Notice("notifications/resources/updated", "note:///è"))
    assert not box.put(Notice("notifications/resources/updated", "note:///e"))
    told = [box.take(), box.take(), box.take()]
    assert [notice and notice.uri for notice in told] == ["note:///é", "note:///%c3%a8", None]
    box.unwatch("note:///%C3%A9")
    assert not box.put(Notice("notifications/resources/updated", "note:///é"))


# -- what must not get out -----------------------------------------------------------------

DSN = "postgres://user:hunter2@db/prod"


def fail(*_: object) -> None:
    raise ConnectionError(f"cannot connect to {DSN}")


def leaky():
    server = MCPServer("s")

    def raises():
        fail()

    def invalid():
        msgspec.convert(DSN, int)

    async def group():
        raise ExceptionGroup(DSN, [ValueError(DSN), KeyError(DSN)])

    async def chained():
        try:
            fail()
        except ConnectionError as error:
            raise LookupError(DSN) from error

    async def leave():
        raise SystemExit(DSN)

    async def promise() -> int:
        return DSN

    for function in (raises, invalid, group, chained, leave):
        server.add_tool(function)
        server.add_prompt(function)
        server.add_resource(f"test://{function.__name__}", function)
    server.add_tool(promise)
    server.prompt(name="typed")(lambda value: value)
    server.completion("value", prompt="typed")(fail)
    return server


@each_revision
@pytest.mark.parametrize("name", ["raises", "invalid", "group", "chained", "leave", "promise"])
async def test_the_text_of_an_exception_stays_in_the_log(revision, name, caplog):
    answers = []
    asked = [("tools/call", {"name": name, "arguments": {}})]
    if name != "promise":
        asked += [("prompts/get", {"name": name}), ("resources/read", {"uri": f"test://{name}"})]
    async with connected(leaky(), revision) as client:
        for method, params in asked:
            try:
                answers.append(json.dumps(await client.call(method, params)))
            except RemoteError as error:
                answers.append(f"{error.rpc_code} {error} {error.data}")
    for answer in answers:
        assert answer.startswith(("-32603", '{"'))
        assert "hunter2" not in answer
        assert "Traceback" not in answer
        reference = answer.partition("reference ")[2][:12]
        assert len(reference) == 12
        assert reference in caplog.text
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(logged) == len(asked)


@pytest.mark.parametrize("revision", REVISIONS[:-1], ids=str)
async def test_the_text_of_an_exception_in_a_completion_stays_in_the_log(revision, caplog):
    async with connected(leaky(), revision) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call(
                "completion/complete",
                {
                    "ref": {"type": "ref/prompt", "name": "typed"},
                    "argument": {"name": "value", "value": ""},
                },
            )
    assert "hunter2" not in f"{caught.value} {caught.value.data}"
    assert DSN in caplog.text


# -- mirrored arguments --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "headers", "served"),
    [
        ({"n": 42}, {"n": "42"}, True),
        ({"n": 42}, {"n": "042"}, True),
        ({"n": 42}, {"n": "42.0"}, True),
        ({"n": 42.0}, {"n": "42"}, True),
        ({"n": 42}, {"n": " 42 "}, True),
        ({"n": 42}, {"n": "=?base64?NDI=?="}, True),
        ({"n": -7}, {"n": "-7"}, True),
        ({"n": 42}, {"n": "43"}, False),
        ({"n": 42}, {"n": "42.5"}, False),
        ({"n": 42}, {"n": "4.2e1"}, False),
        ({"n": 42}, {"n": "0x2a"}, False),
        ({"n": 42}, {"n": ""}, False),
        ({"n": 42}, {}, False),
        ({"n": None}, {}, True),
        ({"n": None}, {"n": "42"}, False),
        ({}, {}, True),
        ({}, {"n": "42"}, False),
        ({"n": 2**53 - 1}, {"n": str(2**53 - 1)}, True),
        ({"n": 2**53}, {"n": str(2**53)}, False),
        ({"n": float(2**60)}, {"n": str(2**60)}, False),
        ({"s": "042"}, {"s": "42"}, False),
        ({"s": "042"}, {"s": "042"}, True),
        ({"s": "zürich"}, {"s": "=?base64?esO8cmljaA==?="}, True),
        ({"s": "zürich"}, {"s": "zürich"}, False),
        ({"s": "=?base64?YQ==?="}, {"s": "=?base64?YQ==?="}, False),
        ({"s": "a"}, {"s": "=?base64?YQ?="}, False),
        ({"b": True}, {"b": "true"}, True),
        ({"b": True}, {"b": "True"}, False),
        ({"b": True}, {"b": "1"}, False),
    ],
)
async def test_a_mirrored_argument_is_compared_by_its_type(arguments, headers, served):
    server, _ = make_server()

    async def mirror(n: int | None = None, s: str = "", b: bool = False) -> str:
        return "served"

    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "x-mcp-header": "N"},
            "s": {"type": "string", "x-mcp-header": "S"},
            "b": {"type": "boolean", "x-mcp-header": "B"},
        },
    }
    server.add_tool(mirror, input_schema=schema)
    async with serving(server) as client:
        response = await client.stateless(
            "tools/call",
            {"name": "mirror", "arguments": arguments},
            headers={f"mcp-param-{name}": value for name, value in headers.items()},
        )
        if served:
            assert response.status == 200
        else:
            assert (response.status, response.json()["error"]["code"]) == (400, -32020)
