"""What a value may cost: no schema and no value keep the process busy, and real ones go on working.

Work is counted, in looks of the engine itself or in steps, and never timed.
"""

from __future__ import annotations

import itertools
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mcp_trio.json_schema import SchemaError, Validator
from mcp_trio.json_schema_effort import effort
from mcp_trio.json_schema_engines import MAX_UNITS
from mcp_trio.json_schema_looks import Parts
from mcp_trio.json_schema_portable import PortableEngine
from mcp_trio.json_schema_work import Costs

HERE = {"$ref": "#"}


def deep(levels: int, leaf: object, *names: str) -> object:
    """A value within a value; without a name in a list."""
    for number in range(levels):
        leaf = {names[number % len(names)]: leaf} if names else [leaf]
    return leaf


class Untouched:
    """An engine that must not be asked."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the engine was asked: {name}")


def guarded(schema: dict[str, Any]) -> Validator:
    """A validator whose fast engine must not be asked."""
    validator = Validator(schema)
    validator._engine._checker = Untouched()  # type: ignore[attr-defined]
    return validator


def by_name(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": parts[0], "b": False}, **more}


DOUBLING: dict[str, dict[str, Any]] = {
    "allOf": by_name({"allOf": [HERE, HERE]}),
    "anyOf": by_name({"anyOf": [{"allOf": [HERE, {"required": ["z"]}]}, HERE]}),
    "not": by_name({"not": {"not": HERE}, "allOf": [HERE]}),
    "if": by_name({"if": HERE, "then": HERE, "else": False}),
    "dependentSchemas": by_name(HERE, dependentSchemas={"a": {"properties": {"a": HERE}}}),
    "patternProperties": by_name(HERE, patternProperties={"a": HERE}),
    "patterns": {"type": "object", "patternProperties": {"^a": HERE, "a$": HERE, "b": False}},
    "additionalProperties": {
        "allOf": [{"additionalProperties": HERE}, {"additionalProperties": HERE}],
        "not": {"required": ["b"]},
    },
    "$dynamicRef": {
        "$dynamicAnchor": "x",
        **by_name({"allOf": [{"$dynamicRef": "#x"}, {"$dynamicRef": "#x"}]}),
    },
    "$recursiveRef": {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "$recursiveAnchor": True,
        **by_name({"allOf": [{"$recursiveRef": "#"}, {"$recursiveRef": "#"}]}),
    },
    "two": {
        "$ref": "#/$defs/p",
        "$defs": {
            "p": by_name({"allOf": [{"$ref": "#/$defs/q"}, {"$ref": "#/$defs/r"}]}),
            "q": by_name({"allOf": [{"$ref": "#/$defs/p"}, {"$ref": "#/$defs/r"}]}),
            "r": by_name({"$ref": "#/$defs/p"}),
        },
    },
    "below": {
        "$ref": "#/$defs/l0",
        "$defs": {
            **{f"l{n}": by_name({"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2}) for n in range(60)},
            "l60": {},
        },
    },
    "of another name": {
        "$ref": "e",
        "$defs": {
            "e": {
                "$id": "e",
                "$ref": "#/$defs/n",
                "$defs": {"n": by_name({"allOf": [{"$ref": "#/$defs/n"}] * 2})},
            }
        },
    },
}


@pytest.mark.parametrize("name", DOUBLING)
def test_what_doubles_with_each_level_of_the_value_is_not_run_and_ends(name):
    validator = guarded(DOUBLING[name])
    for leaf in ({}, {"b": 1}):
        value = deep(60, leaf, "a")
        faults = validator.violations(value)
        assert validator.is_valid(value) is (not faults)
        # Some are decided in time for all that; of the others it is said that they are not.
        assert all(fault.rule == "cost" or fault.pointer.startswith("/a/a") for fault in faults)


@pytest.mark.parametrize("name", DOUBLING)
def test_a_value_of_few_levels_is_checked_all_the_same(name):
    validator = Validator(DOUBLING[name])
    assert validator.is_valid(deep(6, {}, "a"))
    assert not validator.is_valid(deep(6, {"b": 1}, "a"))
    assert [fault.rule for fault in validator.violations(deep(6, {"b": 1}, "a"))] != ["cost"]


@pytest.mark.parametrize("name", sorted({*DOUBLING} - {"$dynamicRef", "$recursiveRef", "two"}))
def test_what_would_be_looked_at_a_million_times_is_looked_at_once(name):
    validator = guarded(DOUBLING[name])
    assert validator.is_valid(deep(24, {}, "a"))
    faults = validator.violations(deep(24, {"b": 1}, "a"))
    assert faults
    assert "cost" not in [fault.rule for fault in faults]


def test_the_careful_engine_stops_at_its_steps():
    engine = PortableEngine(schema := {"items": {"type": "integer"}}, "2020-12", Parts(schema))
    assert engine.is_valid([1] * 1000)
    engine._steps = 500
    assert [fault.rule for fault in engine.faults([1] * 1000, 20)] == ["cost"]
    assert [fault.pointer for fault in engine.faults(["x"] * 1000, 2)] == ["/0", "/1"]


def looked(schema: dict[str, Any], value: object) -> tuple[int, int]:
    """How often the fast engine looks, to decide and to tell."""
    count = itertools.count()

    class Look:
        def __init__(self, *_: object) -> None: ...

        def validate(self, _: object) -> None:
            next(count)

    checker = jsonschema_rs.Draft202012Validator(schema, keywords={"x-look": Look})
    checker.is_valid(value)
    decided = next(count)
    list(checker.iter_errors(value))
    return decided, next(count) - decided - 1


NAMES = ("n0", "n1", "n2")
leaves = st.sampled_from([{"type": "integer"}, {"type": "object"}, {"required": ["b"]}, {}])
references = st.sampled_from([{"$ref": f"#/$defs/{name}"} for name in NAMES])


def parts(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), several),
            **dict.fromkeys(("properties", "patternProperties", "dependentSchemas"), named),
            **dict.fromkeys(("not", "if", "then", "else", "items", "contains"), inner),
            "additionalProperties": inner,
            "unevaluatedProperties": inner,
            "unevaluatedItems": inner,
        },
    )


subschemas = st.recursive(leaves | references | references, parts, max_leaves=6)
values = st.recursive(
    st.sampled_from([1, "x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)


def marked(schema: object) -> object:
    """The same schema, with a word in each part that tells of each look."""
    if isinstance(schema, list):
        return [marked(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    maps = ("properties", "patternProperties", "dependentSchemas", "$defs")
    held = {
        key: {name: marked(each) for name, each in value.items()} if key in maps else marked(value)
        for key, value in schema.items()
        if key != "required"
    }
    return {**held, **{key: schema[key] for key in ("required",) if key in schema}, "x-look": 1}


@settings(max_examples=150, deadline=None)
@given(st.fixed_dictionaries(dict.fromkeys(NAMES, subschemas)), values)
def test_no_more_work_is_done_than_was_told_before(defs, value):
    schema: dict[str, Any] = {"$ref": "#/$defs/n0", "$defs": defs}
    try:
        Validator(schema)
    except SchemaError:
        assume(False)
    told = Costs(Parts(schema), schema).of(value, 20_000)
    assume(told.units <= 20_000)
    decided, all_told = looked(marked(schema), value)
    assert decided <= told.units
    # What fits no alternative is looked at once more on each level, for what is wrong with each.
    assert all_told <= told.units * 8


HEAVY = [
    ("^(a{1,100}){1,100}$", 1_000),
    ("^(a{1,50}){1,50}$", 1_000),
    ("(a|b)*a(a|b){200}c", 10_000),
    ("[ab]{5000}x", 1_000),
    ("((a{0,10}){0,10}){0,10}b", 2_000),
    ("(?:a?b?){200}c", 5_000),
    ("(?=.*b)x", 10_000),
    ("(?<=a)(a|aa)+$", 10_000),
    ("((?=(a+))a)*b", 2_000),
    (r"(a+)+\1b", 10_000),
    ("a*+b", 10_000),
]


@pytest.mark.parametrize(("pattern", "length"), HEAVY)
@pytest.mark.parametrize("named", [False, True])
def test_a_long_text_is_not_matched_with_a_heavy_pattern(pattern, length, named):
    schema = {"patternProperties": {pattern: False}} if named else {"pattern": pattern}
    validator = guarded(schema)
    text = "a" * length
    value = {text: 1} if named else text
    assert not validator.is_valid(value)
    assert [fault.rule for fault in validator.violations(value)] == ["cost"]


@pytest.mark.parametrize(("pattern", "length"), HEAVY)
def test_a_short_text_is(pattern, length):
    assert length > 30
    assert "cost" not in [
        fault.rule for fault in Validator({"pattern": pattern}).violations("a" * 30)
    ]


@pytest.mark.parametrize(
    "pattern", ["(?=.*a{1,1000}b)x", "^(?:(?=(?:a{1,30}){1,30}c)a|aa)+$", r"(.)\1(a{1,60}){1,60}c"]
)
def test_a_pattern_of_which_no_bound_is_known_is_refused_with_its_schema(pattern):
    with pytest.raises(SchemaError, match="may take too long to match"):
        Validator({"properties": {"a": {"pattern": pattern}}})


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"^((?!-)[A-Za-z0-9-]{1,63}(?<!-)\.)+[A-Za-z]{2,6}$", "some-name." * 25 + "com"),
        (r"^[a-z0-9]{1,63}(\.[a-z0-9]{1,63}){0,10}$", "abc." * 10 + "d"),
        (r"^(?=.*[A-Z])(?=.*\d)[\w!@#$]{8,64}$", "Passw0rd" * 8),
        (r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==)?$", "QUJD" * 250_000),
        (r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$", "name@" + "sub." * 60 + "org"),
        (r"^[a-z0-9]+(-[a-z0-9]+)*$", "a-slug-of-words" * 100),
        (r"^((?!<script>).)*$", "some text " * 1_000),
        (r"^[\s\S]{0,5000}$", "x" * 5_000),
        (r"[\s\S]{0,5000}", "x" * 500_000),
        (r"\S", " " * 500_000 + "x"),
        (r"^([\p{L}\p{Z}\p{N}_.:/=+\-@]{0,256})$", "é" * 256),
        (r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$", "2026-12-01"),
        (r"^(25[0-5]|2[0-4]\d|1?\d?\d)(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3}$", "127.0.0.1"),
        (r"^arn:aws[a-zA-Z-]*:[a-z]+:[a-z0-9-]*:\d{12}:[\w+=,.@/-]{1,512}$",
         "arn:aws:iam::123456789012:role/" + "x" * 500),
        (r"^(?!.*\.\.)(?!/)[\w./-]{1,200}$", "a/path/of/some/length" * 9),
    ],
)  # fmt: skip
def test_the_patterns_of_real_descriptions_match_texts_of_real_length(pattern, text):
    assert Validator({"pattern": pattern}).is_valid(text)


def test_what_is_read_is_weighed_as_it_may_be_read():
    assert effort("^a{1,1000}$").live == 1
    assert effort("a{1000}b").live == 1001
    assert effort("^(a{1,100}){1,100}$").live == 10_000
    assert effort("^(?:ab){1,100}$").live == 1
    assert effort(r"[\s\S]{0,5000}").live == 1
    assert effort("^(?=.*a)b").again == 0
    assert effort("(?=.*a)b").far
    assert not effort("((?!foo).)*").far


def test_a_fault_in_a_large_value_is_told_without_telling_all_of_them():
    schema = {"items": {"type": "integer"}}
    validator = Validator(schema)
    found = validator.violations(["x"] * 100_000)
    assert [fault.pointer for fault in found] == [f"/{n}" for n in range(20)]
    late = validator.violations([1] * 100_000 + ["x"])
    assert [fault.rule for fault in late] == ["schema"]
    many = Validator({"required": [f"r{n}" for n in range(1_000)]})
    assert many.violations({"a": list(range(100_000))})[0].rule == "required"


LARGE = 10**4_200


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"multipleOf": 0.01}}, [LARGE] * 100),
        ({"uniqueItems": True}, [[LARGE + n] for n in range(1_000)]),
        ({"items": {"enum": [{"a": n} for n in range(9_000)]}}, [{"a": 1}] * 1_000),
        ({"items": {"const": list(range(9_000))}}, [list(range(9_000))] * 300),
        ({"items": {"allOf": [{"minimum": 0}] * 9_000}}, [1] * 10_000),
    ],
    ids=lambda each: str(each)[:40],
)
def test_what_is_large_on_both_sides_is_not_compared(schema, value):
    assert [fault.rule for fault in guarded(schema).violations(value)] == ["cost"]


def test_numbers_that_keep_an_engine_busy_are_refused_with_their_schema():
    with pytest.raises(SchemaError, match="numbers are too large"):
        Validator({"enum": [LARGE + n for n in range(100)]})
    assert Validator({"maximum": 2**200}).is_valid(2**199)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"type": "integer", "minimum": 0}}, [1] * 100_000),
        ({"items": {"enum": [f"e{n}" for n in range(19_000)]}}, ["e18999"] * 5_000),
        ({"uniqueItems": True}, [{"a": n} for n in range(10_000)]),
        ({"items": {"multipleOf": 0.01}}, [19.99] * 10_000),
        ({"additionalProperties": {"properties": {"id": {"pattern": "^[a-f]*$"}}}},
         {f"k{n}": {"id": "abc"} for n in range(20_000)}),
        ({"items": {"oneOf": [{"properties": {"t": {"const": n}}} for n in range(30)]}},
         [{"t": 5}] * 10_000),
        ({"items": {"properties": {f"p{n}": {"type": "integer"} for n in range(3_000)}}},
         [{"p1": 1}] * 10_000),
    ],
    ids=lambda each: str(each)[:40],
)  # fmt: skip
def test_what_is_large_on_one_side_is_checked(schema, value):
    assert Validator(schema).violations(value) == []


def expression(operators: int) -> dict[str, Any]:
    """A language of expressions: every operator has the same two operands."""
    two = {name: {"$ref": "#/$defs/expression"} for name in ("left", "right")}
    known = [
        {"type": "object", "properties": {"op": {"const": f"op{n}"}, **two}, "required": ["op"],
         "additionalProperties": False}
        for n in range(operators)
    ]  # fmt: skip
    return {
        "$ref": "#/$defs/expression",
        "$defs": {"expression": {"anyOf": [{"type": ["number", "string"]}, *known]}},
    }


def document(kinds: int) -> dict[str, Any]:
    """A document of nodes, each of which has nodes of any kind."""
    nodes = {
        f"k{n}": {
            "type": "object",
            "properties": {
                "type": {"enum": [f"k{n}"]},
                "content": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["type"],
        }
        for n in range(kinds)
    }
    node = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in nodes]}
    return {"$ref": "#/$defs/node", "$defs": {**nodes, "node": node}}


def nested(kinds: int, levels: int) -> dict[str, Any]:
    made: dict[str, Any] = {"type": f"k{kinds - 1}"}
    for level in range(levels):
        made = {"type": f"k{level % kinds}", "content": [made, {"type": "k0"}]}
    return made


PROPERTIES = {  # as in a custom resource of Kubernetes
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "items": {"anyOf": [{"$ref": "#"}, {"type": "array", "items": {"$ref": "#"}}]},
        "properties": {"type": "object", "additionalProperties": {"$ref": "#"}},
        "additionalProperties": {"anyOf": [{"type": "boolean"}, {"$ref": "#"}]},
        "allOf": {"type": "array", "items": {"$ref": "#"}},
        "not": {"$ref": "#"},
    },
    "additionalProperties": False,
}
TREE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": HERE}},
    "required": ["name"],
}


def operands(levels: int) -> Any:
    made: Any = 1
    for level in range(levels):
        made = {"op": f"op{level % 8}", "left": made, "right": level}
    return made


def described(levels: int) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        made = {"type": "object", "properties": {"a": made, "b": {"type": "array", "items": made}}}
    return made


def branches(levels: int) -> dict[str, Any]:
    twigs = [branches(levels - 1), branches(levels - 1)] if levels else []
    return {"name": "x", "children": twigs}


def meta_schema(address: str) -> Any:
    from jsonschema_specifications import REGISTRY

    return REGISTRY[address].contents


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (TREE, branches(10)),
        (expression(8), operands(12)),
        (document(20), nested(20, 7)),
        (PROPERTIES, described(8)),
        *(
            (meta_schema(f"http://json-schema.org/{draft}/schema"), given)
            for draft in ("draft-07", "draft-06", "draft-04")
            for given in (meta_schema(f"http://json-schema.org/{draft}/schema"), described(8))
        ),
    ],
    ids=["tree", "expression", "document", "resource", *map(str, range(6))],
)
def test_recursive_schemas_of_real_apis_go_on_working(schema, value):
    assert Validator(schema).violations(value) == []


def test_values_of_common_schemas_are_not_walked():
    for schema in (
        TREE,
        {"properties": {"a": {"type": "string", "pattern": "^[a-z]+$"}, "b": {"items": {}}}},
        {"properties": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}}},
        {"properties": {"a": {"minimum": 0, "multipleOf": 0.5}}, "uniqueItems": True},
    ):
        costs = Costs(Parts(schema), schema)
        assert costs.are_low({"a": 1})
        assert costs.are_low(deep(40, 1.5, "a"))
    assert not costs.are_low(deep(2, 2**300, "a"))
    assert not costs.are_low([{"b": 1e300}])
    for schema in DOUBLING.values():
        assert not Costs(Parts(schema), schema).are_low({})


def test_a_walk_ends_when_enough_is_known():
    schema = by_name({"allOf": [HERE, HERE]})
    costs = Costs(Parts(schema), schema)
    told = costs.of(deep(60, {}, "a"), MAX_UNITS)
    assert told.units > MAX_UNITS
    assert told.places < 25
