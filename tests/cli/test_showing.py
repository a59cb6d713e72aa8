"""What may be shown, character by character."""

import io
import json
import sys

import pytest

from mcp_trio.cli.client import _kinds, _value
from mcp_trio.cli.showing import as_json, one_line, rows
from mcp_trio.telemetry.plain_text import printable


@pytest.mark.parametrize(
    "text", ["plain", "a\tb\nc", "日本 🎉 👩‍🚀", "פרסי\u200cים", "é\u00a0x\u3000y"]
)
def test_texts_of_people_stay_as_they_are(text):
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31m", "\\x1b[31m"),
        ("a\rb", "a\\rb"),
        ("a\r\nb", "a\nb"),
        ("\x9b\x7f\x00", "\\x9b\\x7f\\x00"),
        ("\u202egpj", "\\u202egpj"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_what_steers_is_escaped(text, expected):
    assert printable(text) == expected


def test_one_line_is_one():
    assert one_line("a\nb\r\nc\td\u2028e\x0bf") == "a b c d e f"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_json_has_all_of_it_and_steers_nothing(encoding, monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    value = {"a": "é\x1b\x7f\x9b\u202e\u2028\U000e0041\ud800日"}
    text = as_json(value)
    assert json.loads(text) == value
    assert text.isprintable()
    assert ("é" in text) is (encoding == "utf-8")


def test_rows_stand_in_two_columns_by_what_is_seen():
    assert rows([("a", "x"), ("日本", "y"), ("long" * 20, "z"), ("b", "")]).splitlines() == [
        "a     x",
        "日本  y",
        "long" * 20 + "  z",
        "b",
    ]
    assert rows([]) == ""


@pytest.mark.parametrize(
    ("text", "schema", "expected"),
    [
        ("3", {}, 3),
        ("3", {"type": "string"}, "3"),
        ("3", {"type": ["string", "null"]}, "3"),
        ("3", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "3"),
        ("null", {"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
        ("3", {"oneOf": [{"type": "string"}, {"type": "integer"}]}, 3),
        ('"a"', {"type": "string"}, '"a"'),
        ('"a"', {}, "a"),
        ("true", {"type": "boolean"}, True),
        ("NaN", {"type": "number"}, "NaN"),
        ("[" * 100_000, {"type": "array"}, "[" * 100_000),
        ("3", {"type": 5, "anyOf": 7}, 3),
        ("3", True, 3),
    ],
)
def test_an_argument_is_what_the_schema_wants(text, schema, expected):
    found = _value(text, _kinds(schema))
    assert found == expected
    assert type(found) is type(expected)
