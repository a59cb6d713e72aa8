"""The two engines agree, and neither fetches anything."""

import pytest

from mcp_trio.json_schema import DIALECTS
from mcp_trio.json_schema_engines import FastEngine
from mcp_trio.json_schema_faults import SchemaError
from mcp_trio.json_schema_looks import Parts
from mcp_trio.json_schema_portable import PortableEngine

ENGINES = [FastEngine, PortableEngine]
each = pytest.mark.parametrize("engine", ENGINES)

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "age": {"type": ["integer", "null"], "minimum": 0},
        "kind": {"enum": ["a", "b"]},
        "next": {"$ref": "#"},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "maxItems": 2},
    },
    "patternProperties": {"^x-": {}},
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"tag": {"type": "string", "pattern": "^[a-z]+$"}},
}


def made(engine, schema, dialect="2020-12"):
    return engine(schema, dialect, Parts(schema))


@pytest.mark.parametrize(
    "instance",
    [
        {"name": "ab"},
        {"name": "ab", "age": 3.0, "kind": "a", "x-y": 1, "next": {"name": "cd"}},
        {},
        {"name": "a", "age": -1},
        {"name": "ab", "age": True},
        {"name": "ab", "age": 1.5, "kind": "c"},
        {"name": "ab", "z": 1, "y": 2},
        {"name": "ab", "next": {"next": {}}},
        {"name": "ab", "tags": ["a", "B", "c"]},
        [],
        None,
        "text",
        2**80,
    ],
)
def test_they_agree_on_what_fits_and_on_every_place_that_does_not(instance):
    fast, portable = (made(engine, PERSON) for engine in ENGINES)
    assert fast.is_valid(instance) == portable.is_valid(instance)
    found = [
        {(fault.pointer, fault.rule, fault.message) for fault in engine.faults(instance, 20)}
        for engine in (fast, portable)
    ]
    assert found[0] == found[1]


@each
@pytest.mark.parametrize("dialect", DIALECTS.values())
def test_every_dialect_is_known(engine, dialect):
    checker = made(engine, {"type": "object", "required": ["a"]}, dialect)
    assert checker.is_valid({"a": 1})
    assert [fault.message for fault in checker.faults({}, 20)] == ["misses a"]


@each
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "objekt"},
        {"properties": []},
        {"$ref": "http://127.0.0.1:9/schema"},
        {"properties": {"a": {"$ref": "https://example.com/x#/y"}}},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/nowhere"},
        {"type": "string", "pattern": "((("},
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_when_it_is_compiled(engine, schema):
    with pytest.raises(SchemaError):
        made(engine, schema)


@each
def test_values_are_not_repeated(engine):
    faults = list(made(engine, PERSON).faults({"name": 5, "kind": "canary"}, 20))
    assert faults
    assert "canary" not in str(faults)


@each
@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"properties": {"a": {"type": "strng"}}}, "/properties/a/type: "),
        ({"$defs": {"a/b": {"required": "a"}}}, "/$defs/a~1b/required: "),
    ],
)
def test_a_fault_of_a_schema_is_told_with_its_place(engine, schema, place):
    with pytest.raises(SchemaError) as caught:
        made(engine, schema)
    assert str(caught.value).startswith(place)
