"""JSON Schema (J1 to J3): dialects, nothing fetched, bounds, and violations without values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio import json_schema_looks
from mcp_trio.json_schema import (
    DIALECTS,
    MAX_DEPTH,
    MAX_NODES,
    MAX_VIOLATIONS,
    SchemaError,
    Validator,
    pointer,
)


def broken(schema: dict[str, Any], instance: object) -> list[tuple[str, str, str]]:
    validator = Validator(schema)
    found = validator.violations(instance)
    assert validator.is_valid(instance) is (not found)
    return [(item.pointer, item.rule, item.message) for item in found]


def test_what_fits_has_no_violations() -> None:
    assert broken({"type": "object"}, {"a": 1}) == []


def test_the_default_dialect_is_2020_12() -> None:
    schema = {"prefixItems": [{"type": "integer"}]}  # means nothing before 2020-12
    assert broken(schema, ["a"]) != []


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("fragment", ["", "#"])
def test_every_supported_dialect_is_honoured(dialect: str, fragment: str) -> None:
    assert broken({"$schema": dialect + fragment, "type": "integer"}, "x") == [
        ("", "type", "is not of type integer")
    ]


@pytest.mark.parametrize(
    "dialect", ["http://json-schema.org/draft-03/schema", "x", "", 5, None, {}]
)
def test_an_unsupported_dialect_is_a_clear_error(dialect: object) -> None:
    with pytest.raises(SchemaError, match="unsupported"):
        Validator({"$schema": dialect})


def test_an_old_dialect_keeps_its_own_meaning() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [False]}
    assert broken(schema, ["a"]) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"type": 5},
        {"properties": []},
        {"required": "a"},
        {"minimum": "a"},
        {"pattern": "("},
        {"$ref": "#/$defs/missing"},
        {"$ref": "#missing"},
        {"properties": {"a": {"$ref": "#/nowhere"}}},
        {"const": "\ud800"},
        {"default": object()},
    ],
    ids=repr,
)
def test_a_schema_that_cannot_be_used_is_refused_when_it_is_compiled(
    schema: dict[str, Any],
) -> None:
    with pytest.raises(SchemaError):
        Validator(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://schemas.example/a.json"},
        {"$ref": "https://schemas.example/a.json#/x"},
        {"$ref": "file:///etc/passwd"},
        {"$id": "http://schemas.example/a", "$ref": "b"},
        {"properties": {"a": {"items": {"$ref": "http://schemas.example/"}}}},
        {"$dynamicRef": "http://schemas.example/a#x"},
    ],
    ids=repr,
)
def test_nothing_outside_the_schema_is_fetched(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError):  # J2
        Validator(schema)


def test_a_reference_inside_the_schema_may_go_round_in_circles() -> None:
    schema = {
        "$defs": {
            "node": {"properties": {"next": {"$ref": "#/$defs/node"}, "v": {"type": "integer"}}}
        },
        "$ref": "#/$defs/node",
    }
    assert broken(schema, {"next": {"next": {"v": "x"}}}) == [
        ("/next/next/v", "type", "is not of type integer")
    ]


def test_depth_and_size_of_a_schema_are_bounded() -> None:
    deep: dict[str, Any] = {}
    for _ in range(MAX_DEPTH - 1):
        deep = {"not": deep}
    Validator(deep)
    with pytest.raises(SchemaError, match="deep"):
        Validator({"not": deep})
    bottomless: dict[str, Any] = {}
    for _ in range(100_000):
        bottomless = {"not": bottomless}
    with pytest.raises(SchemaError, match="deep"):
        Validator(bottomless)
    with pytest.raises(SchemaError, match="parts"):
        Validator({"anyOf": [{} for _ in range(MAX_NODES)]})


WIDE = r"\p{L}"


@pytest.mark.parametrize(
    "patterns",
    [
        ["(a{1000}){1000}"],
        [rf"{i}(?:{WIDE}{{200}})" for i in range(6)],
        [rf"^(?={WIDE}{{200}}){i}" for i in range(6)],
        [f"(?={WIDE}{{20}})" * 60],
        [rf"(?x) {WIDE} # a remark{chr(10)} {{200}}{i}" for i in range(6)],
        [f"(?:[a-z]*{WIDE}+){{1,1001}}"],
        ["(?i)[\u0100-\U00010000]{6000}"],
        [r"(?=x)\w{1100}"],
        ["a" * 600_000],
    ],
    ids=lambda patterns: str(patterns)[:30],
)
@pytest.mark.parametrize("named", [False, True])
def test_patterns_that_would_take_long_to_compile_are_refused_before(
    patterns: list[str], named: bool
) -> None:
    schema: dict[str, Any] = (
        {"patternProperties": {pattern: {} for pattern in patterns}}
        if named
        else {"allOf": [{"pattern": pattern} for pattern in patterns]}
    )
    with pytest.raises(SchemaError, match=r"^patterns such as .* are too large$"):
        Validator(schema)


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        (r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "0" * 8 + "-0000" * 3 + "-" + "0" * 12),
        (r"^(?=.*[A-Z])(?=.*\d)[\w!@#$]{8,64}$", "Passw0rd"),
        (r"^([\p{L}\p{Z}\p{N}_.:/=+\-@]{0,256})$", "é"),
        (r"^[\u0009\u000A\u000D\u0020-\u00FF]{1,10240}$", "a"),
        (r"^[^\s/$.?#].[^\s]{0,2048}$", "ab"),
        (r"^[\s\S]{0,5000}$", ""),
        (r"^[\[\]{}()]{2}(?:a|b){1,3}(?<name>c)?$", "[]ab"),
    ],
)
def test_patterns_of_real_descriptions_are_not(pattern: str, fits: str) -> None:
    assert Validator({"pattern": pattern}).is_valid(fits)


@pytest.mark.parametrize("pattern", ["a{", "[", ")", "(?", "a{1,"])
def test_what_is_no_pattern_is_told_by_the_engine(pattern: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Validator({"pattern": pattern})
    assert "too large" not in str(caught.value)


RULES: list[tuple[dict[str, Any], object, str, str]] = [
    ({"type": ["string", "null"]}, 1, "type", "is not of type null or string"),
    ({"minimum": 3.5}, 1, "minimum", "breaks minimum 3.5"),
    ({"maximum": 3}, 4, "maximum", "breaks maximum 3"),
    ({"exclusiveMinimum": 3}, 3, "exclusiveMinimum", "breaks exclusiveMinimum 3"),
    ({"exclusiveMaximum": 3}, 3, "exclusiveMaximum", "breaks exclusiveMaximum 3"),
    ({"multipleOf": 2}, 3, "multipleOf", "breaks multipleOf 2"),
    ({"minLength": 2}, "x", "minLength", "breaks minLength 2"),
    ({"maxLength": 1}, "xx", "maxLength", "breaks maxLength 1"),
    ({"minItems": 1}, [], "minItems", "breaks minItems 1"),
    ({"maxItems": 0}, [1], "maxItems", "breaks maxItems 0"),
    ({"minProperties": 1}, {}, "minProperties", "breaks minProperties 1"),
    ({"maxProperties": 0}, {"a": 1}, "maxProperties", "breaks maxProperties 0"),
    ({"pattern": "^a"}, "b", "pattern", "does not match the pattern"),
    ({"uniqueItems": True}, [1, 1], "uniqueItems", "has items that are not unique"),
    ({"enum": ["a", 1]}, "z", "enum", "is not one of ['a', 1]"),
    ({"const": 3}, 4, "const", "is not 3"),
    ({"anyOf": [{"type": "null"}]}, 1, "anyOf", "fits none of the alternatives"),
    ({"oneOf": [{}, {}]}, 1, "oneOf", "does not fit exactly one of the alternatives"),
    ({"not": {}}, 1, "not", "must not fit the excluded schema"),
    ({"contains": {"const": 1}}, [2], "contains", "breaks contains"),
    ({"required": ["a'b"]}, {}, "required", "misses a'b"),
    ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "required", "misses b"),
    ({"additionalProperties": False}, {"b": 1, "a": 1}, "additionalProperties",
     "has unknown keys: a, b"),
    ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {"x1": 1, "y": 2},
     "additionalProperties", "has unknown keys: y"),
    ({"unevaluatedProperties": False}, {"q": 1}, "unevaluatedProperties", "has unknown keys: q"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "instance", "rule", "message"), RULES, ids=str)
def test_a_violation_names_the_place_the_rule_and_what_is_allowed(
    schema: dict[str, Any], instance: object, rule: str, message: str
) -> None:
    nested = {"properties": {"p": schema}}
    assert broken(nested, {"p": instance}) == [("/p", rule, message)]


@pytest.mark.parametrize("name", ["a", "additionalProperties"])
def test_a_property_that_must_not_be_there_is_named(name: str) -> None:
    assert broken({"properties": {name: False}}, {name: {"x": 1}}) == [
        (f"/{name}", "falseSchema", "must not be there")
    ]


def test_the_keys_of_an_object_that_allows_none_are_named() -> None:
    closed = {"type": "object", "additionalProperties": False}  # T3, the form without arguments
    assert broken(closed, {"b": 1, "a": 2}) == [
        ("", "additionalProperties", "has unknown keys: a, b")
    ]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer"},
        {"pattern": "^x"},
        {"maxLength": 1},
        {"enum": [1]},
        {"const": 1},
        {"anyOf": [{"type": "integer"}]},
        {"not": {}},
        {"format": "email", "$schema": "http://json-schema.org/draft-07/schema"},
    ],
    ids=str,
)
def test_a_violation_never_repeats_the_value(schema: dict[str, Any]) -> None:
    found = Validator(schema).violations("secret-value")
    assert found
    assert "secret" not in str([item.as_json() for item in found])


def test_a_long_allowed_list_is_cut() -> None:
    schema = {"enum": [f"value-{n}" for n in range(1000)]}
    assert len(Validator(schema).violations("x")[0].message) < 300
    unknown = {f"key-{n}" * 20: 1 for n in range(1000)}
    closed = {"additionalProperties": False}
    assert len(Validator(closed).violations(unknown)[0].message) < 300


def test_at_most_so_many_violations_are_reported() -> None:
    schema = {"items": {"type": "integer"}}
    assert len(Validator(schema).violations(["x"] * 1000)) == MAX_VIOLATIONS


def test_patterns_are_those_of_json_schema_and_not_of_python() -> None:
    assert broken({"pattern": r"^\p{L}+$"}, "héllo") == []
    assert broken({"pattern": r"^\p{L}+$"}, "h1") == [("", "pattern", "does not match the pattern")]


def test_a_pattern_that_backtracks_without_end_is_cut_short() -> None:
    assert broken({"pattern": "^(a+)+$"}, "a" * 60 + "b") != []


def test_numbers_are_judged_by_value() -> None:
    schema = {"type": "integer"}
    for fitting in (3, 3.0, -0.0, 2**53 + 1, 10**400, 1e300):
        assert broken(schema, fitting) == []
    for other in (3.5, True, "3", None):
        assert broken(schema, other) != []
    assert broken({"maximum": 2**64}, 2**64 + 1) != []


def test_every_keyword_is_kept_as_it_came() -> None:
    schema = {"type": "object", "x-thing": {"a": [1]}, "$anchor": "here"}
    assert Validator(schema).schema == schema


def test_a_pointer_escapes_as_rfc_6901_says() -> None:
    assert pointer(["a/b", "m~n", 0, ""]) == "/a~1b/m~0n/0/"
    assert pointer([]) == ""


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_no_json_value_raises(instance: object) -> None:
    validator = Validator({"properties": {"a": {"type": "integer"}}, "items": {"minLength": 2}})
    assert validator.is_valid(instance) is (validator.violations(instance) == [])


def doubling(levels, link):
    """A schema whose references double at each level."""
    made = {f"l{n}": {link: [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/l0", "$defs": {**made, f"l{levels}": {"type": "object"}}}


@pytest.mark.parametrize("link", ["allOf", "anyOf", "oneOf"])
def test_references_that_multiply_are_refused_before_an_engine_follows_them(link):
    assert Validator(doubling(8, link))
    with pytest.raises(SchemaError, match="references multiply"):
        Validator(doubling(30, link))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}},
        {"$ref": "#a", "$defs": {"x": {"$anchor": "a", "anyOf": [{"$ref": "#a"}]}}},
    ],
)
def test_a_reference_that_leads_back_to_its_own_place_is_refused(schema):
    with pytest.raises(SchemaError, match="would not end"):
        Validator(schema)


def test_references_to_one_name_of_many_places_are_refused_soon(monkeypatch):
    followed = []
    lead = json_schema_looks.Parts._led_to

    def counted(parts, reference, node):
        followed.append(reference)
        return lead(parts, reference, node)

    monkeypatch.setattr(json_schema_looks.Parts, "_led_to", counted)
    schema = {
        "$defs": {f"a{n}": {"$anchor": "a"} for n in range(4_000)},
        "properties": {f"p{n}": {"$ref": "#a"} for n in range(4_000)},
    }
    with pytest.raises(SchemaError, match="references multiply"):
        Validator(schema)
    assert len(followed) <= json_schema_looks.MAX_LED // 4_000 + 1


def test_a_reference_to_a_place_of_thousands_of_digits_is_refused():
    with pytest.raises(SchemaError):
        Validator({"allOf": [{"$ref": f"#/allOf/{'9' * 5_000}"}]})


def test_a_reference_that_leads_back_from_a_place_below_is_a_tree():
    node = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}, "type": "object"}
    validator = Validator(node)
    assert validator.is_valid({"left": {"right": {}}})
    assert not validator.is_valid({"left": {"right": 1}})
