"""Mirrored arguments, N12 to N16: what may be annotated, what is sent, what is compared."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.framing.headers import encode_value
from mcp_trio.framing.param_headers import (
    SAFE_INTEGER,
    ParamHeader,
    ParamHeaderError,
    build,
    mismatch,
    param_headers,
)


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def marked(kind: Any = "string", name: Any = "Region", **more: Any) -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name, **more}


def found(kind: str = "string", *path: str) -> tuple[ParamHeader, ...]:
    return (ParamHeader(header="mcp-param-region", path=path or ("a",), type=kind),)


# -- what may be annotated (N12) ------------------------------------------------------------


@pytest.mark.parametrize("kind", ["string", "integer", "boolean"])
def test_the_three_plain_types_may_be_annotated(kind: str) -> None:
    assert param_headers(schema(a=marked(kind), b={"type": "number"})) == found(kind)


@pytest.mark.parametrize(
    "kind", ["number", "object", "array", "null", None, ["string", "null"], ["string"]]
)
def test_no_other_type_may(kind: object) -> None:
    with pytest.raises(ParamHeaderError, match="type"):
        param_headers(schema(a=marked(kind)))


@pytest.mark.parametrize(
    "name",
    ["", " ", "My Region", "Region:Primary", "R\u00e9gion", "a\rb", "a\nb", "a\n", "a\tb", "(a)",
     "a/b", '"a"', "a,b", 5, True, None, [], {}],
)  # fmt: skip
def test_a_name_has_to_be_a_header_token(name: object) -> None:
    with pytest.raises(ParamHeaderError):
        param_headers(schema(a=marked(name=name)))


def test_every_character_of_a_token_may_be_used() -> None:
    name = "!#$%&'*+-.^_`|~09azAZ"
    (item,) = param_headers(schema(a=marked(name=name)))
    assert item.header == "mcp-param-" + name.lower()


def test_names_are_unique_whatever_their_case() -> None:
    with pytest.raises(ParamHeaderError, match="unique"):
        param_headers(schema(a=marked(name="MyField"), b=marked(name="myfield")))
    with pytest.raises(ParamHeaderError, match="unique"):
        param_headers(schema(a=marked(), b=schema(c=marked())))


def test_nested_objects_are_reached_through_properties() -> None:
    assert param_headers(schema(a=schema(b=schema(c=marked())))) == found("string", "a", "b", "c")


FORBIDDEN = [
    marked(),
    schema(a={"type": "array", "items": marked()}),
    schema(a={"type": "array", "prefixItems": [marked()]}),
    schema(a={"type": "array", "items": schema(b=marked())}),
    schema(a={"contains": marked()}),
    {"oneOf": [schema(a=marked())]},
    {"anyOf": [schema(a=marked())]},
    {"allOf": [schema(a=marked())]},
    {"not": schema(a=marked())},
    {"if": schema(a=marked())},
    {"then": schema(a=marked())},
    {"else": schema(a=marked())},
    {"$defs": {"x": marked()}, **schema(a={"$ref": "#/$defs/x"})},
    {"definitions": {"x": schema(a=marked())}},
    {"additionalProperties": marked()},
    {"unevaluatedProperties": marked()},
    {"propertyNames": marked()},
    {"patternProperties": {"^a": marked()}},
    {"dependentSchemas": {"a": schema(b=marked())}},
    {"$defs": {"default": {"x-mcp-header": {}}}},
    schema(a=schema(b={"anyOf": [marked(), {"type": "null"}]})),
]


@pytest.mark.parametrize("forbidden", FORBIDDEN, ids=str)
def test_an_annotation_anywhere_else_makes_the_tool_invalid(forbidden: dict[str, Any]) -> None:
    with pytest.raises(ParamHeaderError):
        param_headers(forbidden)


@pytest.mark.parametrize(
    "allowed",
    [
        schema(**{"x-mcp-header": {"type": "string"}}),
        schema(**{"x-mcp-header": True}),
        {"$defs": {"x-mcp-header": {"type": "string"}}},
        schema(a={"default": {"x-mcp-header": "A"}}),
        schema(a={"const": {"x-mcp-header": "A"}}),
        schema(a={"enum": [{"x-mcp-header": "A"}]}),
        {"examples": [{"x-mcp-header": "A"}]},
    ],
    ids=str,
)
def test_a_property_of_that_name_and_instance_data_are_no_annotations(
    allowed: dict[str, Any],
) -> None:
    assert param_headers(allowed) == ()


def test_a_property_named_like_a_keyword_with_data_is_a_schema_all_the_same() -> None:
    assert param_headers(schema(default=marked())) == found("string", "default")


# -- what a client sends (N14) --------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "header"),
    [
        ("string", "us-west1", "us-west1"),
        ("string", "", ""),
        ("string", "é", "=?base64?w6k=?="),
        ("integer", 42, "42"),
        ("integer", -7, "-7"),
        ("integer", 42.0, "42"),
        ("boolean", True, "true"),
        ("boolean", False, "false"),
    ],
)
def test_a_value_has_one_text(kind: str, value: object, header: str) -> None:
    assert build(found(kind), {"a": value}) == {"mcp-param-region": header}


@pytest.mark.parametrize("arguments", [{}, {"a": None}, {"a": {}}, {"a": []}, {"b": "x"}])
def test_absent_null_and_structured_arguments_have_no_header(arguments: dict[str, Any]) -> None:
    assert build(found(), arguments) == {}


@pytest.mark.parametrize("value", ["half a pair \ud800", 10**5000, -(10**5000)], ids="abc")
def test_what_cannot_be_written_has_no_header_and_is_no_fault_here(value: object) -> None:
    for kind in ("string", "integer"):
        annotations = found(kind)
        assert build(annotations, {"a": value}) == {}
        assert mismatch(annotations, {"a": value}, {}) is None


@pytest.mark.parametrize("arguments", [{}, {"a": None}, {"a": 5}, {"a": {"b": None}}])
def test_a_broken_path_has_no_header(arguments: dict[str, Any]) -> None:
    item = found("string", "a", "b")
    assert build(item, arguments) == {}
    assert mismatch(item, arguments, {}) is None


# -- what a server compares (N16) -----------------------------------------------------------


@pytest.mark.parametrize("text", ["42", "042", "42.0", "42.00", "=?base64?NDI=?=", " 42 "])
def test_integers_are_compared_as_numbers(text: str) -> None:
    for value in (42, 42.0):
        assert mismatch(found("integer"), {"a": value}, {"mcp-param-region": text}) is None


@pytest.mark.parametrize(
    "text",
    ["43", "42.5", "4.2e1", "+42", "0x2a", "42 ", "4 2", "", "42.", "４２", "forty-two", "--42"],
)
def test_other_texts_do_not_match_an_integer(text: str) -> None:
    header = {"mcp-param-region": encode_value(text)}
    assert mismatch(found("integer"), {"a": 42}, header) is not None


@pytest.mark.parametrize("value", ["abc", True, "42"])
def test_a_value_that_is_no_integer_is_compared_as_text(value: object) -> None:
    text = "true" if value is True else str(value)
    assert mismatch(found("integer"), {"a": value}, {"mcp-param-region": text}) is None
    for other in ("42.0", "1", "x"):
        assert mismatch(found("integer"), {"a": value}, {"mcp-param-region": other}) is not None


def test_integers_are_compared_exactly_and_only_in_the_safe_range() -> None:
    item = found("integer")
    for value in (SAFE_INTEGER, -SAFE_INTEGER):
        assert mismatch(item, {"a": value}, {"mcp-param-region": str(value)}) is None
        assert mismatch(item, {"a": value}, {"mcp-param-region": str(value - 1)}) is not None
    beyond = SAFE_INTEGER + 1
    assert mismatch(item, {"a": beyond}, {"mcp-param-region": str(beyond)}) is not None


def test_strings_are_compared_by_character_and_case() -> None:
    for value, text in (("Hello", "hello"), ("42", "42.0"), ("true", "True"), ("a", "")):
        assert mismatch(found(), {"a": value}, {"mcp-param-region": text}) is not None
    assert mismatch(found(), {"a": "SGVsbG8="}, {"mcp-param-region": "SGVsbG8="}) is None
    half = "=?base64?SGVsbG8="
    assert mismatch(found(), {"a": half}, {"mcp-param-region": half}) is None


@pytest.mark.parametrize("text", ["True", "1", "yes", "", "false"])
def test_a_boolean_is_true_or_false_and_nothing_else(text: str) -> None:
    header = {"mcp-param-region": text}
    assert mismatch(found("boolean"), {"a": True}, header) is not None


def test_a_missing_header_and_a_needless_one_are_both_refused() -> None:
    assert "missing" in (mismatch(found(), {"a": "x"}, {}) or "")
    for arguments in ({}, {"a": None}):
        assert mismatch(found(), arguments, {}) is None
        assert mismatch(found(), arguments, {"mcp-param-region": "x"}) is not None


@pytest.mark.parametrize("text", ["=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?=", "é", "a\x00"])
def test_a_header_that_cannot_be_read_is_refused(text: str) -> None:
    assert mismatch(found(), {"a": "Hello"}, {"mcp-param-region": text}) is not None


def test_a_refusal_names_the_header_and_not_the_values() -> None:
    fault = mismatch(found(), {"a": "secret"}, {"mcp-param-region": "hidden"}) or ""
    assert "mcp-param-region" in fault
    assert "secret" not in fault
    assert "hidden" not in fault


def test_headers_nobody_annotated_are_ignored() -> None:
    assert mismatch((), {"a": "x"}, {"mcp-param-other": "y"}) is None  # N18


numbers = st.integers(-SAFE_INTEGER, SAFE_INTEGER) | st.floats(-1e15, 1e15, allow_nan=False)
arguments = st.none() | st.text() | st.booleans() | numbers | st.lists(st.integers(), max_size=1)


@given(st.sampled_from(["string", "integer", "boolean"]), arguments)
def test_what_a_client_builds_a_server_accepts(kind: str, value: object) -> None:
    item = found(kind)
    assert mismatch(item, {"a": value}, build(item, {"a": value})) is None
