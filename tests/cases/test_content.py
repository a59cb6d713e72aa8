"""Values on their way through: numbers, text, schemas, and arguments mirrored in headers."""

import dataclasses
import datetime as dt
import enum
import json
import math
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import attrs
import jsonschema
import msgspec
import pytest

from mcp_trio import Context, MCPServer, RemoteError
from mcp_trio.wire import CallToolResult, TextContent
from tests.cases.speakers import connected, each_channel, each_revision, speaking, text_of
from tests.http.asgi import serving
from tests.http.tools import make_server

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

    @server.tool
    async def told():
        content = [TextContent(text="told")]
        return CallToolResult(content=content, structured_content={"level": Level.NONE})

    async with connected(server) as client:
        result = await client.call_tool("level")
        assert result.is_error
        assert "NaN or an infinity" in result.content[0].text
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("told")
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


@each_channel
async def test_a_notice_with_what_is_no_number_is_refused_to_the_handler(channel):
    server, _ = make_server()

    @server.tool
    async def misreport(ctx: Context) -> list[str]:
        refused = []
        for value in BAD:
            for tell in (
                lambda value=value: ctx.progress(value),
                lambda value=value: ctx.progress(1, value),
                lambda value=value: ctx.log("emergency", {"deep": [value]}),
            ):
                try:
                    await tell()
                except ValueError:
                    refused.append("refused")
        return refused

    async with speaking(server, channel) as speaker:
        call = speaker.call(1, "misreport")
        meta = {"progressToken": 1, "io.modelcontextprotocol/logLevel": "debug"}
        call["params"]["_meta"] = {**call["params"].get("_meta", {}), **meta}
        answer = await speaker.ask(call)
        assert json.loads(text_of(answer)).count("refused") >= 6
        await speaker.works()


@each_revision
async def test_a_resource_with_what_is_no_number_is_an_error(revision):
    server = MCPServer("s")
    server.add_resource("test://bad", lambda: {"value": [math.nan]}, name="bad")

    async with connected(server, revision) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call("resources/read", {"uri": "test://bad"})
        assert caught.value.rpc_code == -32603


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
