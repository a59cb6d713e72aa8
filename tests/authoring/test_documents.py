"""Reading what authors write or get: every value with its line, and nothing without a bound."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.authoring import documents, yaml_text
from mcp_trio.authoring.documents import parse_document, read_document
from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.authoring.yaml_text import write_yaml

YAML = """\
format: a
list:
  - one
  - two: 2
    three: {four: [5,
      6]}
"""
AS_JSON = """\
{
  "format": "a",
  "list": [
    "one",
    {"two": 2,
     "three": {"four": [5,
       6]}}
  ]
}
"""


@pytest.mark.parametrize("text", [YAML, AS_JSON])
def test_both_languages_give_the_same_value(text):
    assert parse_document(text.encode(), "x").value == {
        "format": "a",
        "list": ["one", {"two": 2, "three": {"four": [5, 6]}}],
    }


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (YAML, {(): 1, ("list",): 2, ("list", 0): 3, ("list", 1, "three"): 5, ("list", 9): 2}),
        (AS_JSON, {(): 1, ("list",): 3, ("list", 0): 4, ("list", 1, "three"): 6, ("list", 9): 3}),
    ],
)
def test_every_value_has_its_line_and_what_is_missing_that_of_what_is_around_it(text, lines):
    document = parse_document(text.encode(), "x")
    assert {path: document.line(path) for path in lines} == lines


def test_the_last_item_of_a_flow_stands_on_its_own_line():
    for text, line in ((YAML, 6), (AS_JSON, 7)):
        assert parse_document(text.encode(), "x").line(("list", 1, "three", "four", 1)) == line


def test_strings_with_brackets_and_escapes_do_not_confuse_the_lines_of_json():
    text = '{"a": "{[\\"\\\\",\n "b\\u005d": [1,\n {"c": null}]}'
    document = parse_document(text.encode(), "x.json")
    assert document.line(("b]", 1, "c")) == 3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("1:30", "1:30"),
        ("2026-07-28", "2026-07-28"),
        ("0x1f", "0x1f"),
        ("true", True),
        ("NULL", None),
        ("~", None),
        ("-12", -12),
        ("1e3", 1000.0),
        ("'12'", "12"),
        ("!!str 12", "12"),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_plain_scalars_mean_what_yaml_1_2_says(text, value):
    found = parse_document(f"a: {text}".encode(), "x").value
    assert found == {"a": value}
    assert type(found["a"]) is type(value)


def test_keys_are_texts_as_they_are_in_json():
    document = parse_document(b"responses: {200: a, true: b, 1.5: c}", "x")
    assert document.value == {"responses": {"200": "a", "true": "b", "1.5": "c"}}


def test_anchors_and_merges_are_read():
    text = b"a: &a {x: 1, y: 2}\nb: *a\nc: {<<: *a, y: 3}\nd: [*a, {<<: [*a, {z: 4}]}]\ne: &k key\n"
    assert parse_document(text, "x").value == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 1, "y": 2},
        "c": {"x": 1, "y": 3},
        "d": [{"x": 1, "y": 2}, {"x": 1, "y": 2, "z": 4}],
        "e": "key",
    }


def bomb(levels=12, width=10):
    ring = (f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels))
    return "\n".join(["a0: &a0 [x]", *ring]).encode()


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (bomb(), "more than 5000000 values"),
        (b"a: &a [*a]", "stands inside of what it names"),
        (b"a: *nobody", "no anchor"),
        (b"a: !!python/object/apply:os.system [ls]", "tags such as"),
        (b"a: !local x", "tags such as"),
        (b"? [a, b]\n: c", "a key must be a scalar"),
        (b"a: 1\nb: 2\na: 3", "x:3: the key 'a' stands here twice"),
        (b"a: 1\n---\nb: 2", "one document"),
        (b"a: .inf", "no place in JSON"),
        (b"a: 1e999", "no place in JSON"),
        (b"a: [1,\nb: {", "not YAML"),
        (b"a: \t- b", "not YAML"),
        (b"[" * 100_000, "levels deep"),
        (b"- " * 100_000, "levels deep"),
        (b'{"a":' * 100_000, "levels deep"),
        (b"[" * 300 + b"]" * 300, "levels deep"),
        (b'{"a": 1, "a": 2}', "stands twice"),
        (b'{"a": NaN}', "no place in JSON"),
        (b'{"a": [-1e400]}', "x: -1e400 is larger than a number can be"),
        (rb'{"a": "\ud800"}', r"x: has half of a surrogate pair, '\\ud800', "),
        (rb'{"a\uDFFF": 1}', "half of a surrogate pair"),
        (rb'a: "\ud800"', "not YAML|half of a surrogate pair"),
        (b"\xff\xfe", "not UTF-8"),
        (b"a: '\xe2\x80'", "not UTF-8"),
        (b"<<: 5\n", "takes in mappings only"),
        (b"a: b\x00", "not YAML"),
    ],
)
def test_what_json_cannot_hold_or_nobody_can_bear_is_refused(raw, reason):
    with pytest.raises(AuthoringError, match=reason):
        parse_document(raw, "x")


def test_a_whole_surrogate_pair_is_a_character():
    assert parse_document(rb'{"a": "\ud83d\ude00 \\ud800"}', "x").value == {
        "a": "\U0001f600 \\ud800"
    }


def test_a_fault_of_a_json_file_is_told_as_json_with_its_line():
    with pytest.raises(AuthoringError, match=r"x\.json:2: not JSON"):
        parse_document(b'{"a": 1,\n b: 2}', "x.json")
    assert parse_document(b'{"a": 1,\n b: 2}', "x.yaml").value == {"a": 1, "b": 2}


def test_what_is_no_file_or_too_large_a_file_is_refused_before_it_is_read(tmp_path):
    large = tmp_path / "large.yaml"
    with large.open("wb") as file:
        file.truncate(100 << 20)
    with pytest.raises(AuthoringError, match="larger than 64 MiB"):
        read_document(large)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(AuthoringError, match="is not a file"):
        read_document(pipe)
    with pytest.raises(AuthoringError, match="No such file"):
        read_document(tmp_path / "none")
    with pytest.raises(AuthoringError, match="is not a file"):
        read_document(tmp_path)


def test_the_bounds_are_what_the_messages_say(monkeypatch):
    monkeypatch.setattr(yaml_text, "MAX_VALUES", 3)
    with pytest.raises(AuthoringError, match="more than 3 values"):
        parse_document(b"[a, b, c]", "x.yaml")
    monkeypatch.setattr(documents, "MAX_BYTES", 3)
    with pytest.raises(AuthoringError, match="larger than"):
        documents.check_size(4, "x")


TEXT = st.text(max_size=12) | st.sampled_from(
    [
        "no",
        "1",
        "1e3",
        "~",
        "",
        " a",
        "a: b",
        "# x",
        "- x",
        "0x1",
        "0o7",
        "a\nb",
        "a\n\n b \n",
        "\t",
        "2026-01-01",
        "=",
        "<<",
        "'",
        '"',
        "{",
        "null",
        "1_000",
        "\u2028",
        "\x85",
        "😀",
        "y",
        ".",
    ]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


@given(VALUES)
def test_what_is_written_is_read_again(value):
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    again = parse_document(write_yaml({"v": value}).encode(), "x.yaml").value
    assert again == {"v": value}
    assert json.dumps(again) == json.dumps({"v": value})


def test_what_is_shared_is_written_out():
    shared = {"a": [1]}
    assert "*" not in write_yaml({"x": shared, "y": shared})
