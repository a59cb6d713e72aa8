"""On which line each key of a TOML document stands, in every form that TOML has for it."""

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.config.toml_lines import toml_lines

FORMS = '''\
# a = 1
top = "a # no comment"  # [no.table]
"quoted key" = 'x = 1'
many = """
[not.a.table]
fake = 1\\"""
"""
raw = \'\'\'
fake = 2 \'\'\'
quotes = """a"""""
date = 1979-05-27 07:32:00.5
number = 1.5e3

[server]  # a comment
port = 1
a.b . "c.d" = 2
[ "odd name" . inner ]
list = [
  "]", # one
  [1, 2],
  { x = "}", y = [3] },
]
table = { one = 1, two.three = 2 }
[[items]]
name = "a"
[items.sub]
x = 1
[[items]]
name = "b"
'''


def paths(value, path=()):
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in pairs:
        yield (*path, str(key))
        if isinstance(inner, dict | list):
            yield from paths(inner, (*path, str(key)))


def test_every_key_has_the_line_it_stands_on():
    lines = toml_lines(FORMS)
    assert set(lines) == set(paths(tomllib.loads(FORMS)))
    text = FORMS.splitlines()
    for path, line in lines.items():
        if not path[-1].isdecimal():
            assert path[-1] in text[line - 1], path
    assert lines["server", "port"] == text.index("port = 1") + 1
    assert (
        lines["odd name", "inner", "list", "2", "y", "0"]
        == text.index('  { x = "}", y = [3] },') + 1
    )
    assert lines["items", "1", "name"] == len(text)
    assert lines["items", "0", "sub", "x"] == len(text) - 2


@pytest.mark.parametrize("text", ["", "\n\n# nothing\n", "a = 1", "[a]", "[[a]]\n[[a]]"])
def test_small_documents(text):
    assert set(toml_lines(text)) == set(paths(tomllib.loads(text)))


KEYS = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=5)
VALUES = st.recursive(
    st.booleans() | st.integers(-9, 9) | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def inline(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{inline(k)} = {inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[\n" + ",\n".join(map(inline, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


@given(st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=3), max_size=3))
def test_whatever_is_written_every_key_of_it_is_found_in_order(values):
    text = ""
    for name, table in values.items():
        text += f"[{inline(name)}]\n"
        text += "".join(f"{inline(key)} = {inline(value)}\n" for key, value in table.items())
    assert tomllib.loads(text) == values
    lines = toml_lines(text)
    wanted = list(paths(values))
    assert set(lines) == set(wanted)
    assert [lines[path] for path in wanted] == sorted(lines[path] for path in wanted)
