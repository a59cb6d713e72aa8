"""Mappings and expressions: what a tree means, and how it fails."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.runtime import expressions, mapping
from mcp_trio.runtime.expressions import ExpressionError, compile_expression, measure
from mcp_trio.runtime.mapping import MappingError, check_context, compile_mapping

KNOWN = ("args", "body", "status")


def apply(tree, **context):
    return compile_mapping(tree, "m", KNOWN)(context)


@pytest.mark.parametrize(
    ("tree", "made"),
    [
        ("text", "text"),
        ("==text", "=text"),
        ("===", "=="),
        ("", ""),
        (7, 7),
        (True, True),
        ("=args.a", 1),
        ({"x": "=args.a", "y": ["=args.b", "z"]}, {"x": 1, "y": ["two", "z"]}),
        ({"gone": None, "void": "=args.none", "kept": 0}, {"kept": 0}),
        ([None, "=args.none"], [None, None]),
        ({"expr": "args.none", "default": 5}, 5),
        ({"x": {"expr": "args.none", "default": None}}, {}),
        ("=args.deep", {"keep": None}),
        ("=join('-', [args.b, args.b])", "two-two"),
        ("=args.list[?n > `1`].n", [2, 9007199254740993]),
        ("=to_string(args.list[2])", '{"n":9007199254740993}'),
        ("=to_string(args.b)", "two"),
        ({"=literal key": 1}, {"=literal key": 1}),
    ],
)
def test_a_tree_means_what_it_says(tree, made):
    args = {
        "a": 1,
        "b": "two",
        "deep": {"keep": None},
        "list": [{"n": 1}, {"n": 2}, {"n": 2**53 + 1}],
    }
    assert apply(tree, args=args) == made


@pytest.mark.parametrize(
    ("form", "value", "made"),
    [
        ("string", 5, "5"),
        ("string", True, "true"),
        ("string", 2.5, "2.5"),
        ("string", 2**80, str(2**80)),
        ("integer", "12", 12),
        ("integer", "-3", -3),
        ("integer", 4.0, 4),
        ("integer", 2**70, 2**70),
        ("number", 7, 7),
        ("boolean", False, False),
        ("number", "2.5", 2.5),
        ("boolean", "true", True),
        ("json", {"a": [1]}, '{"a":[1]}'),
        ("csv", ["a", 1, True], "a,1,true"),
    ],
)
def test_as_converts(form, value, made):
    got = apply({"expr": "args.v", "as": form}, args={"v": value})
    assert (got, type(got)) == (made, type(made))


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("string", {}),
        ("integer", "1_0"),
        ("integer", " 1"),
        ("integer", "٣"),
        ("integer", 1.5),
        ("integer", True),
        ("number", "NaN"),
        ("number", []),
        ("number", "true"),
        ("boolean", 1),
        ("boolean", "yes"),
        ("csv", "a,b"),
        ("csv", [[1]]),
    ],
)
def test_as_refuses_with_the_place_and_without_the_value(form, value):
    with pytest.raises(MappingError) as caught:
        apply({"x": {"expr": "args.v", "as": form}}, args={"v": value})
    assert caught.value.path == "m.x"


def test_a_required_value_that_is_missing_is_an_error_with_its_place():
    with pytest.raises(MappingError, match=r"^m\.a\[1\]\.b: the required value is missing$"):
        apply({"a": [1, {"b": {"expr": "args.none", "required": True}}]}, args={})


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        ("=args.(", "not a JMESPath expression"),
        ("=nosuch(args)", "there is no function"),
        ("=argz.x", "there is no 'argz' here"),
        ({"expr": 5}, "must be a string"),
        ({"expr": "args", "x": 1}, "unknown key 'x'"),
        ({"expr": "args", "lang": "jq"}, "jmespath or jsonata"),
        ({"expr": "args", "as": "date"}, "'as' must be one of"),
        ({"expr": "args", "required": "yes"}, "'required'"),
        ("=" + "a" * 5000, "longer than"),
        ("=" + "[" * 100 + "args" + "]" * 100, "nested"),
        ([[[]] * 50] * 50, "has more than"),
    ],
)
def test_what_does_not_compile_says_where(tree, says):
    with pytest.raises(MappingError, match=says) as caught:
        compile_mapping({"x": tree}, "m", KNOWN)
    assert caught.value.path.startswith("m")


def test_errors_of_functions_never_repeat_the_value():
    with pytest.raises(MappingError) as caught:
        apply("=join('x', args.v)", args={"v": "very-secret"})
    assert str(caught.value) == "m: join() cannot take a value of type string"
    with pytest.raises(MappingError, match="contains"):
        apply("=contains(args.v, `1`)", args={"v": {"a": "very-secret"}})
    with pytest.raises(MappingError, match="TypeError"):
        apply("=contains(args.v, `1`)", args={"v": "very-secret"})


def test_output_that_multiplies_is_stopped():
    source = " | ".join(["args.v", *["[@, @]"] * 30])
    with pytest.raises(MappingError, match="more than 200000 values"):
        apply(f"={source}", args={"v": 1})
    with pytest.raises(MappingError, match="is too large"):
        apply({"expr": source, "as": "json"}, args={"v": 1})
    with pytest.raises(MappingError, match="join"):
        apply("=join(args.v, [args.v, args.v, args.v])", args={"v": "x" * 2_000_000})
    with pytest.raises(MappingError, match="too many steps"):
        apply(f"=to_string({source})", args={"v": 1})
    with pytest.raises(MappingError, match="to_string"):
        apply("=to_string(args.v)", args={"v": [[0] * 600_000]})


def test_text_that_multiplies_is_stopped(monkeypatch):
    monkeypatch.setattr(mapping, "MAX_OUTPUT_TEXT", 1_000)
    assert len(apply(["=args.v"] * 10, args={"v": "x" * 100})) == 10
    with pytest.raises(MappingError, match="more than 1000 characters"):
        apply(["=args.v"] * 11, args={"v": "x" * 100})


SLOW = {
    "flattening": "args" + " | [@, @][]" * 40,
    "comparing": "args" + " | {x: [x, x], y: [y, y]}" * 40 + " | x == y",
    "looking for": "args" + " | {x: [x, x], y: [y, y]}" * 40 + " | contains([x], y)",
    "going over": "args.many | [@, @, @, @, @, @][]" + " | [*].[@, @, @, @, @, @][]" * 4,
    "mapping": "[args.many]" + " | [@, @, @, @][]" * 4 + " | map(&sort(@), @)",
    "slicing": "[args.many]" + " | [@, @, @, @][]" * 4 + " | [*][1:]",
    "reversing": "[args.text]" + " | [@, @, @, @][]" * 5 + " | map(&reverse(@), @)",
    "joining": "[args.texts]" + " | [@, @, @, @][]" * 5 + " | map(&join('', @), @)",
    "sorting texts": "[args.text]" + " | [@, @, @, @][]" * 5 + " | sort(@)",
    "looking for a text": "[args.text]" + " | [@, @, @, @][]" * 5 + " | contains(@, 't')",
    "comparing texts": "[args.texts]" + " | [@, @, @, @][]" * 5 + " | [?@ == @]",
    "comparing keys": "[args.keys]" + " | [@, @, @, @][]" * 5 + " | [?@ == @]",
    "sorting by a text": "[{k: args.long}]" + " | [@, @, @, @][]" * 5 + " | sort_by(@, &k)",
}


@pytest.mark.parametrize("what", SLOW)
def test_no_expression_runs_for_long(what, monkeypatch):
    monkeypatch.setattr(expressions, "MAX_STEPS", 20_000)
    data = {"x": "a", "y": "a", "many": list(range(100)), "text": "t" * 2000, "texts": ["t" * 2000]}
    data |= {"keys": {"t" * 2000: 1}, "long": "t" * 40_000}
    with pytest.raises(MappingError, match="too many steps"):
        apply(f"={SLOW[what]}", args=data)


def test_the_expressions_of_one_side_of_a_call_share_their_steps():
    scope = expressions.Scope({"args": list(range(1_000))})
    expression = compile_expression("args[?@ > `10`]")
    before, scope.steps = scope.steps, 6_000
    assert len(expression.evaluate(scope)) == 989
    assert 0 < scope.steps < before
    with pytest.raises(ExpressionError, match="too many steps"):
        expression.evaluate(scope)
    assert len(expression.evaluate({**scope})) == 989


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), "\ud800"])
def test_what_json_does_not_have_is_refused_at_its_place(value):
    for tree in ("=args.v", {"expr": "args.v", "as": "string"}, {"expr": "args.v", "as": "json"}):
        with pytest.raises(MappingError, match=r"JSON (does not )?ha|half a char") as caught:
            apply({"x": tree}, args={"v": value})
        assert caught.value.path == "m.x"
    for form in ("json", "csv"):
        with pytest.raises(MappingError, match=r"JSON (does not )?ha|half a char") as caught:
            apply({"x": {"expr": "args.v", "as": form}}, args={"v": [value]})
    with pytest.raises(MappingError, match=r"JSON does not have|half a character"):
        apply("=args", args={"deep": [{"v": value}]})
    with pytest.raises(MappingError, match="to_string"):
        apply("=to_string(args)", args=[value])


def test_half_a_character_in_a_key_is_refused():
    with pytest.raises(MappingError, match="half a character"):
        apply("=args", args={"a\ud800": 1})


@pytest.mark.parametrize("literal", ["NaN", "-Infinity", "1e999", '"\\ud800"', '{"a": [1e999]}'])
def test_a_literal_that_is_no_json_is_refused_when_it_is_compiled(literal):
    with pytest.raises(MappingError, match="literal that is no JSON"):
        compile_mapping(f"=`{literal}`", "m", KNOWN)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        ("-2.5e1", -25.0),
        *[(t, None) for t in ("nan", "1e999", "1_0", "+1", "٣", "")],
    ],
)
def test_to_number_takes_what_json_calls_a_number(text, number):
    assert apply("=to_number(args)", args=text) == number
    assert apply("=to_number(args)", args=True) is None


def test_input_that_is_too_large_or_too_deep_is_refused():
    deep: object = 1
    for _ in range(300):
        deep = [deep]
    with pytest.raises(MappingError, match="too deep"):
        check_context({"args": deep}, "m")
    with pytest.raises(MappingError, match="more than 500000"):
        check_context({"args": [0] * 600_000}, "m")


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("args.a.b", {("args", "a")}),
        ("args.a[0].b", {("args", "a")}),
        ("args.a[].b", {("args", "a")}),
        ("args.a[*].b", {("args", "a")}),
        ('args."a b"', {("args", "a b")}),
        ("args", {("args", None)}),
        ("keys(args)", {("args", None)}),
        ("args.* | [0]", {("args", None)}),
        ("body.x[?y == args.z]", {("body", "x")}),
        ("[args.a, body.b]", {("args", "a"), ("body", "b")}),
        ("{x: args.a, y: status}", {("args", "a"), ("status", None)}),
        ("args.a || args.b && !(args.c)", {("args", "a"), ("args", "b"), ("args", "c")}),
        ("sort_by(args.a, &b.c)", {("args", "a")}),
        ("body | args.x", {("body", None)}),
        ("args.a[1:2]", {("args", "a")}),
        ("@", set()),
        ("`1`", set()),
    ],
)
def test_an_expression_knows_what_it_reads(source, names):
    assert compile_expression(source).names == names


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(JSON)
def test_any_value_passes_an_expression_unchanged(value):
    assert apply("=args", args=value) == value


@given(JSON, st.text(max_size=20))
def test_expressions_fail_in_one_way_only(value, source):
    with contextlib.suppress(ExpressionError):
        compile_expression(source).evaluate({"args": value})


def test_measure_counts_and_gives_up():
    assert measure({"a": [1, 2]}, 10) == 4
    assert measure([1, 2, 3], 3) is None
    assert measure([[[1]]], 10, depth=3) is None
