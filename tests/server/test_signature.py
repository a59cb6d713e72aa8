"""Functions as JSON Schema, and JSON arguments as keyword arguments (T3, J1)."""

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import inspect
import math
import pathlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, Optional, Required, TypedDict

import attrs
import msgspec
import pytest

from mcp_trio.json_schema import Validator
from mcp_trio.server.signature import (
    Signature,
    SignatureError,
    description_of,
    read_signature,
)
from mcp_trio.session.context import Context
from mcp_trio.wire import CallToolResult, ImageContent, TextContent


@attrs.define
class Point:
    x: int
    y: float = 1.0


@attrs.define
class Node:
    value: int
    children: "list[Node]" = attrs.field(factory=list)


@dataclasses.dataclass
class Person:
    name: str
    born: dt.date | None = None


class Address(TypedDict, total=False):
    street: Required[str]
    zip: int


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


@attrs.define
class Arguments:
    """Called like the class that the reader makes."""

    a: int


@attrs.define
class Checked:
    a: int = attrs.field(validator=attrs.validators.gt(3))


def resolve(schema: dict[str, Any], node: object) -> None:
    """Fail on a reference that leads nowhere (fm#2807)."""
    if isinstance(node, dict):
        if "$ref" in node:
            target: Any = schema
            assert node["$ref"].startswith("#/")
            for part in node["$ref"][2:].split("/"):
                target = target[part]
        for child in node.values():
            resolve(schema, child)
    elif isinstance(node, list):
        for child in node:
            resolve(schema, child)


def read(function: Callable[..., Any]) -> Signature:
    signature = read_signature(function)
    for schema in (signature.input_schema, signature.output_schema):
        if schema is not None:
            Validator(schema)
            resolve(schema, schema)
            assert schema["type"] == "object"  # T3
    return signature


def properties(function: Callable[..., Any]) -> dict[str, Any]:
    found: Any = read(function).input_schema["properties"]
    return found


def accepted(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    signature = read(function)
    assert Validator(signature.input_schema).is_valid(arguments)
    return signature.bind(arguments)


def refused(function: Callable[..., Any], **arguments: Any) -> None:
    signature = read(function)
    if Validator(signature.input_schema).is_valid(arguments):
        with pytest.raises(msgspec.ValidationError):
            signature.bind(arguments)


# -- parameters ---------------------------------------------------------------------------


def test_a_function_without_parameters_takes_nothing() -> None:
    def tool(): ...

    assert read(tool).input_schema == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
    refused(tool, a=1)


def test_plain_types_required_and_optional() -> None:
    def tool(a: int, b: str, c: float = 1.5, d: bool = False, e: None = None): ...

    assert read(tool).input_schema == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "string"},
            "c": {"type": "number", "default": 1.5},
            "d": {"type": "boolean", "default": False},
            "e": {"type": "null", "default": None},
        },
        "required": ["a", "b"],
        "additionalProperties": False,
    }


def test_only_what_was_sent_is_passed_on() -> None:
    def tool(a: int, b: list[int] = [1], c: object = object()): ...  # noqa: B006

    assert accepted(tool, a=1) == {"a": 1}


@attrs.define
class Sample:
    annotation: Any
    good: list[tuple[Any, Any]]
    bad: list[Any] = attrs.field(factory=list)


WHEN = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.timezone.utc)  # noqa: UP017 - as written
SAMPLES = {
    "int": Sample(int, [(1, 1), (3.0, 3), (2**70, 2**70)], [True, "3", 3.5, None]),
    "float": Sample(float, [(1, 1.0), (1.5, 1.5)], ["1", True]),
    "bool": Sample(bool, [(True, True)], [1, 0, "true"]),
    "str": Sample(str, [("[1,2]", "[1,2]"), ("123", "123"), ("null", "null")], [1, None]),
    "bytes": Sample(bytes, [("AAE=", b"\0\1")], [5, "*"]),
    "attrs": Sample(Point, [({"x": 1}, Point(1)), ({"x": 2.0, "y": 3}, Point(2, 3.0))],
                    [{}, {"x": "1"}, 5]),
    "attrs with a validator": Sample(Checked, [({"a": 4}, Checked(4))], [{"a": 3}]),
    "recursive": Sample(Node, [({"value": 1, "children": [{"value": 2}]}, Node(1, [Node(2)]))],
                        [{"value": 1, "children": [{}]}]),
    "dataclass": Sample(Person, [({"name": "a", "born": "2000-01-02"},
                                  Person("a", dt.date(2000, 1, 2)))], [{"born": None}]),
    "typed dict": Sample(Address, [({"street": "s"}, {"street": "s"})], [{"zip": 1}]),
    "named tuple": Sample(Pair, [([1, "a"], Pair(1, "a")), ([1], Pair(1))], [[], ["a"], [1, 2]]),
    "enum": Sample(Colour, [("red", Colour.RED)], ["green", "RED", 1]),
    "int enum": Sample(Level, [(1, Level.LOW), (1.0, Level.LOW)], [2, "1"]),
    "literal": Sample(Literal["a", 1] | None, [("a", "a"), (1, 1), (None, None)], ["b", 2]),
    "optional": Sample(Optional[int], [(None, None), (1, 1)], ["x"]),  # noqa: UP045 - this form too
    "union": Sample(int | str | None, [(1, 1), ("1", "1"), (None, None)], [1.5, []]),
    "number union": Sample(int | float, [(1, 1), (1.5, 1.5)], ["1"]),
    "datetime": Sample(dt.datetime, [("2026-01-02T03:04:05Z", WHEN)], ["yesterday", 5]),
    "date": Sample(dt.date, [("2026-01-02", dt.date(2026, 1, 2))], ["2026-13-01"]),
    "timedelta": Sample(dt.timedelta, [("PT60S", dt.timedelta(minutes=1))], ["soon"]),
    "uuid": Sample(uuid.UUID, [(str(uuid.UUID(int=1)), uuid.UUID(int=1))], ["x"]),
    "decimal": Sample(decimal.Decimal, [("1.10", decimal.Decimal("1.10"))], ["x", []]),
    "limits": Sample(Annotated[int, msgspec.Meta(ge=1, le=5)], [(1, 1), (5.0, 5)], [0, 6]),
    "pattern": Sample(Annotated[str, msgspec.Meta(pattern="^a", max_length=2)], [("ab", "ab")],
                      ["b", "abc"]),
    "list": Sample(list[int], [([], []), ([1, 2.0], [1, 2])], [["a"], {}, "12"]),
    "nested": Sample(dict[str, list[Point]], [({"a": [{"x": 1}]}, {"a": [Point(1)]})], [{"a": {}}]),
    "set": Sample(set[int], [([1, 2], {1, 2})], [["a"]]),
    "tuple": Sample(tuple[int, str], [([1, "a"], (1, "a"))], [[1], ["a", 1]]),
    "integer keys": Sample(dict[int, str], [({"1": "a"}, {1: "a"})]),
    "any": Sample(Any, [(1.5, 1.5), ({"a": [None]}, {"a": [None]}), (None, None)]),
    "object": Sample(object, [(1.5, 1.5), ([{}], [{}])]),
    "nested object": Sample(dict[str, object], [({"a": [1, "x"]}, {"a": [1, "x"]})], [[]]),
}  # fmt: skip


def tool_of(annotation: Any) -> Callable[..., Any]:
    def tool(value: Any) -> None: ...

    tool.__annotations__["value"] = annotation
    return tool


@pytest.mark.parametrize("name", SAMPLES)
def test_values_of_every_documented_type_arrive_as_that_type(name: str) -> None:
    sample = SAMPLES[name]
    tool = tool_of(sample.annotation)
    for sent, expected in sample.good:
        arrived = accepted(tool, value=sent)["value"]
        assert arrived == expected
        assert type(arrived) is type(expected)
    for sent in sample.bad:
        refused(tool, value=sent)


def test_a_float_stays_a_float_beside_an_integer_sent_as_one() -> None:
    def tool(a: int, b: float): ...

    bound = accepted(tool, a=3.0, b=3.0)
    assert bound == {"a": 3, "b": 3.0}
    assert (type(bound["a"]), type(bound["b"])) == (int, float)


def test_limits_and_descriptions_stand_in_the_schema() -> None:
    def tool(a: Annotated[int, msgspec.Meta(ge=1, description="how many")]): ...

    assert properties(tool)["a"] == {"type": "integer", "minimum": 1, "description": "how many"}


def test_types_used_twice_and_types_of_types_are_defined_once() -> None:
    def tool(a: Colour, b: Colour, c: list[Node], d: Person) -> dict[str, Node]: ...

    signature = read(tool)
    assert set(signature.input_schema["$defs"]) == {"Colour", "Node", "Person"}  # type: ignore[call-overload]  # a mapping
    assert set((signature.output_schema or {})["$defs"]) == {"Node"}  # type: ignore[call-overload]


def test_a_type_called_like_ours_keeps_its_own_definition() -> None:
    def tool(a: Arguments): ...

    assert accepted(tool, a={"a": 1}) == {"a": Arguments(1)}
    refused(tool, a={})


def test_names_of_parameters_are_free() -> None:
    def tool(self: int, cls: int, id_: int, _x: int, arguments: int, name: int): ...

    names = ["self", "cls", "id_", "_x", "arguments", "name"]
    assert list(properties(tool)) == names
    assert accepted(tool, **dict.fromkeys(names, 1)) == dict.fromkeys(names, 1)


def test_an_unannotated_parameter_takes_anything() -> None:
    def tool(a, b=2): ...

    assert properties(tool) == {"a": {}, "b": {"default": 2}}
    assert accepted(tool, a=[1], b=None) == {"a": [1], "b": None}


# -- defaults -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1, 1),
        (None, None),
        ("", ""),
        ([1, [2]], [1, [2]]),
        ({"a": 1}, {"a": 1}),
        ((1, 2), [1, 2]),
        ({1}, [1]),
        (Colour.RED, "red"),
        (Point(1), {"x": 1, "y": 1.0}),
        (b"x", "eA=="),
        (dt.date(2026, 1, 2), "2026-01-02"),
    ],
    ids=repr,
)
def test_a_default_is_shown_as_json_and_left_to_the_function(value: object, shown: object) -> None:
    def tool(a: Any = value): ...

    assert properties(tool) == {"a": {"default": shown}}
    assert accepted(tool) == {}


@pytest.mark.parametrize(
    "value", [object(), math.nan, math.inf, [math.inf], "\ud800", len, msgspec.UNSET, {(1, 2): 3}],
    ids=repr,
)  # fmt: skip
def test_a_default_without_a_json_form_is_not_shown(value: object) -> None:
    def tool(a: Any = value, b: int = 1): ...

    assert properties(tool) == {"a": {}, "b": {"type": "integer", "default": 1}}
    assert "required" not in read(tool).input_schema


def test_a_default_beside_a_reference_leaves_the_definition_alone() -> None:
    def tool(a: Colour, b: Colour = Colour.BLUE): ...

    assert properties(tool)["a"] == {"$ref": "#/$defs/Colour"}
    assert properties(tool)["b"] == {"$ref": "#/$defs/Colour", "default": "blue"}


# -- the context --------------------------------------------------------------------------


def test_a_context_has_any_name_and_is_not_seen_by_the_model() -> None:
    def plain(a: int, whatever: Context): ...
    def first(ctx: Context, a: int): ...
    def optional(a: int, c: Context | None = None): ...
    def old(a: int, c: Optional[Context] = None): ...  # noqa: UP045 - this form too
    def annotated(a: int, c: Annotated[Context, "the request"]): ...
    def quoted(a: int, c: "Context"): ...
    def keyword(a: int, *, c: Context): ...

    for function, name in (
        (plain, "whatever"),
        (first, "ctx"),
        (optional, "c"),
        (old, "c"),
        (annotated, "c"),
        (quoted, "c"),
        (keyword, "c"),
    ):
        signature = read(function)
        assert signature.context_parameter == name
        assert list(properties(function)) == ["a"]


def test_a_parameter_merely_called_context_is_one_like_any_other() -> None:
    def tool(ctx: str, context: int): ...

    assert read(tool).context_parameter is None
    assert list(properties(tool)) == ["ctx", "context"]


def test_two_contexts_are_one_too_many() -> None:
    def tool(a: Context, b: Context | None = None): ...

    with pytest.raises(SignatureError, match="parameter b"):
        read_signature(tool)


# -- callables ----------------------------------------------------------------------------


class Adder:
    """Adds."""

    def __call__(self, a: int) -> int:
        return a

    def method(self, a: int, c: Context) -> int:
        return a

    @classmethod
    def of_class(cls, a: int) -> int:
        return a

    @staticmethod
    def static(a: int) -> int:
        return a

    async def later(self, a: int) -> int:
        return a


class Later:
    async def __call__(self, a: int) -> int:
        return a


async def later(a: int, b: int = 0) -> int:
    return a


@functools.wraps(later)
async def wrapped(*args: Any, **kwargs: Any) -> int:
    return await later(*args, **kwargs)


@pytest.mark.parametrize(
    ("function", "is_async"),
    [
        (Adder(), False),
        (Adder().method, False),
        (Adder.of_class, False),
        (Adder.static, False),
        (inspect.getattr_static(Adder, "static"), False),
        (Adder().later, True),
        (Later(), True),
        (functools.partial(Adder.static), False),
        (functools.partial(later, b=1), True),
        (functools.partial(functools.partial(later, b=1)), True),
        (functools.partial(Later()), True),
        (functools.partial(Adder().method), False),
    ],
    ids=repr,
)
def test_every_kind_of_callable_is_read(function: Callable[..., Any], is_async: bool) -> None:
    assert properties(function) == {"a": {"type": "integer"}}
    signature = read(function)
    assert signature.is_async is is_async
    assert (signature.output_schema or {})["properties"] == {"result": {"type": "integer"}}


def test_a_wrapped_function_shows_the_signature_of_what_it_wraps() -> None:
    assert list(properties(wrapped)) == ["a", "b"]
    assert read(wrapped).is_async


def test_what_a_partial_filled_in_is_neither_shown_nor_can_be_sent() -> None:
    def tool(a: int, secret: str, unfit: pathlib.Path): ...

    filled = functools.partial(tool, secret="s3", unfit=pathlib.Path())
    assert properties(filled) == {"a": {"type": "integer"}}
    refused(filled, a=1, secret="x")
    assert "s3" not in str(read(filled).input_schema)


def test_what_a_partial_filled_in_by_position_is_gone_too() -> None:
    def tool(a: int, b: str): ...

    assert list(properties(functools.partial(tool, 1))) == ["b"]


# -- refusals -----------------------------------------------------------------------------


def star(*args: int): ...
def double_star(**kwargs: int): ...
def positional(a: int, /): ...
def context_by_position(a: Context, /): ...
def path(a: pathlib.Path): ...
def callback(a: Callable[[], int]): ...
def ambiguous(a: str | dt.datetime): ...
def two_objects(a: Point | Node): ...
def unknown(a: "Nothing"): ...  # type: ignore[name-defined]  # noqa: F821 - the point of it
def bad_result() -> pathlib.Path: ...  # type: ignore[empty-body]
def generator() -> Iterator[int]:
    yield 1


async def async_generator():
    yield 1


@pytest.mark.parametrize(
    "function",
    [star, double_star, positional, context_by_position, path, callback, ambiguous, two_objects,
     unknown, bad_result, generator, async_generator, print, len,
     inspect.getattr_static(Adder, "of_class")],
    ids=lambda f: getattr(f, "__name__", "classmethod"),
)  # fmt: skip
def test_what_cannot_be_called_with_json_is_refused_when_it_is_registered(function: Any) -> None:
    with pytest.raises(SignatureError):
        read_signature(function)


def test_a_refusal_names_the_parameter() -> None:
    with pytest.raises(SignatureError, match="args"):
        read_signature(star)


# -- results ------------------------------------------------------------------------------


def returning(annotation: Any) -> Signature:
    def tool(): ...

    tool.__annotations__["return"] = annotation
    return read(tool)


@pytest.mark.parametrize(
    "annotation",
    [None, Any, object, NoReturn, CallToolResult, TextContent, TextContent | ImageContent,
     list[TextContent], list[TextContent | str], Sequence[ImageContent], tuple[TextContent, ...],
     TextContent | None, Annotated[list[TextContent], "x"], CallToolResult | str],
    ids=str,
)  # fmt: skip
def test_results_that_promise_no_structure_have_no_schema(annotation: Any) -> None:
    assert returning(annotation).output_schema is None


def test_a_function_without_a_return_annotation_promises_nothing() -> None:
    def tool(a: int): ...

    assert read(tool).output_schema is None


@pytest.mark.parametrize(
    "annotation", [Point, Node, Person, Address, dict[str, int], dict[str, object]], ids=str
)
def test_an_object_is_its_own_structure(annotation: Any) -> None:
    assert not returning(annotation).wraps_output


@pytest.mark.parametrize(
    "annotation",
    [int, str, list[int], Point | None, Colour, int | None, Pair, dt.datetime,
     Literal["a"], list[Node], Sequence[int], Annotated[int, {}]],
    ids=str,
)  # fmt: skip
def test_anything_else_is_wrapped(annotation: Any) -> None:
    signature = returning(annotation)
    assert signature.wraps_output
    assert (signature.output_schema or {})["required"] == ["result"]


def test_a_date_and_time_is_not_promised_to_have_an_offset() -> None:
    schema = str(returning(dt.datetime).output_schema)
    assert "date-time" not in schema  # linux-mcp-server#576
    aware = Annotated[dt.datetime, msgspec.Meta(tz=True)]
    assert "date-time" in str(returning(aware).output_schema)


# -- docstrings ---------------------------------------------------------------------------


def documented(a: int, b: dict[str, int], c: str, d: int = 1, e: int = 2):  # noqa: D417
    """Do it.

    And more.

    Args:
        a: The first.
        b (dict[str, int], optional): The second,
            on two lines: with a colon.
        c:
            The third.

        d (see f(x)): The fourth (really): yes.
        other: Not a parameter.

    Returns:
        e: no parameter, though it looks like one.
    """


def test_descriptions_come_from_the_args_section() -> None:
    found = {name: item.get("description") for name, item in properties(documented).items()}
    assert found == {
        "a": "The first.",
        "b": "The second, on two lines: with a colon.",
        "c": "The third.",
        "d": "The fourth (really): yes.",
        "e": None,
    }


def test_a_description_of_the_annotation_wins() -> None:
    def tool(a: Annotated[int, msgspec.Meta(description="mine")]):
        """Do it.

        Args:
            a: theirs
        """

    assert properties(tool)["a"]["description"] == "mine"


def test_the_description_of_the_tool_is_what_stands_before_the_sections() -> None:
    assert description_of(documented) == "Do it.\n\nAnd more."


@pytest.mark.parametrize("doc", [None, "", "   ", "Args:\n    a: x"])
def test_a_tool_may_have_no_description(doc: str | None) -> None:
    def tool(a: int): ...

    tool.__doc__ = doc
    assert description_of(tool) is None


def test_a_partial_is_described_by_its_function() -> None:
    filled = functools.partial(documented, e=1)
    assert description_of(filled) == "Do it.\n\nAnd more."
    assert properties(filled)["a"]["description"] == "The first."
