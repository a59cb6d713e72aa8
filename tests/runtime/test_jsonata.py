"""JSONata in mappings: what it reads, what it gives, and that nothing makes it run for long."""

import sys

import pytest

from mcp_trio.catalog.operation import OperationError
from mcp_trio.runtime.expressions import MAX_MILLISECONDS, ExpressionError, Scope
from mcp_trio.runtime.jsonata import compile_jsonata
from mcp_trio.runtime.mapping import MappingError, compile_mapping

KNOWN = frozenset({"args", "principal", "request", "vars"})
DATA = {
    "args": {
        "email": "a@b.example",
        "items": [{"price": 2, "qty": 9007199254740993}, {"price": 1.5, "qty": 2}],
        "none": None,
        "long": "x" * 5000,
    },
    "principal": {"sub": "ann"},
    "vars": {},
}


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("args.email", "a@b.example"),
        ("args.items[0].qty", 9007199254740993),
        ("args.items[price > 1.6].qty", 9007199254740993),
        ("$map(args.items, function($i) { $i.price * 2 })", [4, 3]),
        ("{'who': principal.sub, 'nothing': args.none, 'away': args.away}", None),
        ("args.away", None),
        ("args.none", None),
        ("args.items[price > 99]", None),
        ("principal.sub ~> $uppercase", "ANN"),
        ("[args.items.price]", [2, 1.5]),
        ("args.items.price", [2, 1.5]),
    ],
)
def test_what_it_gives(source, value):
    found = compile_jsonata(source, KNOWN).evaluate(DATA)
    assert found == value if value is not None else found in (None, {"who": "ann", "nothing": None})
    if isinstance(found, list):
        assert type(found) is list


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        ("args.email", {"args"}),
        ("$sum(args.items.(price * vars.rate))", {"args", "vars"}),
        ("args.items[$$.principal.sub = name]", KNOWN),
        ("$.args", KNOWN),
        ("**", KNOWN),
        ("*.sub", KNOWN),
        ("args.%.principal", KNOWN),
        ("`principal`.sub", {"principal"}),
        ("1 + 1", set()),
    ],
)
def test_what_it_may_read_is_told_rather_too_widely(source, reads):
    assert {name for name, _ in compile_jsonata(source, KNOWN).names} == reads


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("args.(", "not a JSONata expression"),
        ("$match(args.email, /(a+)+$/)", "regular expressions are not allowed"),
        ("/a/", "regular expressions are not allowed"),
        ("$eval(args.email)", r"no function \$eval"),
        ("($f := $eval; $f('1'))", r"no function \$eval"),
        ("$pad('x', args.n)", r"no function \$pad"),
        ("[1..args.n]", "no ranges"),
        ("$map([1..3][0], $string)", "no ranges"),
        ("a" * 5000, "longer than"),
    ],
)
def test_what_is_refused(source, told):
    with pytest.raises(ExpressionError, match=told):
        compile_jsonata(source, KNOWN)


@pytest.mark.parametrize(
    "source",
    [
        "($f := function($x) { $f($x) }; $f(1))",
        "($f := function($x) { 1 + $f($x) }; $f(1))",
        "($l := $split(args.long, ''); $f := function($a) { $map($l, $string) }; $map($l, $f))",
        "(" * 2000 + "1" + ")" * 2000,
        "$error(args.email)",
        "args.email + 1",
        "$number(args.email)",
        "function($x) { $x }",
        "1/0",
    ],
)
def test_what_fails_or_takes_too_long_is_an_error_that_repeats_nothing(source):
    with pytest.raises(ExpressionError) as caught:
        compile_jsonata(source, KNOWN).evaluate(DATA)
    assert "a@b" not in str(caught.value)


async def test_both_languages_stand_in_one_mapping(bench, upstream):
    upstream.says({"data": [{"n": 1}, {"n": 2}]})
    result = await bench.call(
        {"id": "1", "q": [1, 2]},
        input_mapping={
            "path": {"id": "=args.id"},
            "query": {"sum": {"expr": "$sum(args.q)", "lang": "jsonata", "as": "string"}},
        },
        output_mapping={
            "result": {
                "total": {"expr": "$sum(body.data.n)", "lang": "jsonata"},
                "first": "=body.data[0].n",
            },
        },
    )
    assert upstream.last.target == "/leads/1?sum=3"
    assert result.structured_content == {"total": 3, "first": 1}


def test_names_that_are_not_there_are_refused_where_that_can_be_seen():
    with pytest.raises(MappingError, match="'lang' must be"):
        compile_mapping({"expr": "args", "lang": "jq"}, "x", KNOWN)


async def test_a_cache_does_not_go_with_what_may_read_the_request(bench):
    with pytest.raises(OperationError, match="not where a mapping reads the request"):
        bench.compile(
            execution_config={"cache": {"ttl_s": 5}},
            input_mapping={"path": {"id": {"expr": "$$.args.id", "lang": "jsonata"}}},
        )


def test_without_the_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp_trio.runtime.jsonata", None)
    with pytest.raises(MappingError, match=r"mcp-trio\[jsonata\]"):
        compile_mapping({"expr": "args", "lang": "jsonata"}, "x", KNOWN)


def test_the_expressions_of_one_side_of_a_call_share_their_time():
    expression = compile_jsonata("$sum(args)", frozenset({"args"}))
    scope = Scope({"args": [1] * 1_000})
    assert expression.evaluate(scope) == 1_000
    assert 0 < scope.milliseconds < MAX_MILLISECONDS
    scope.milliseconds = 0
    with pytest.raises(ExpressionError, match="too long"):
        expression.evaluate(scope)


@pytest.mark.parametrize(
    "source", ['"\\ud800"', '$decodeUrl("%ED%A0%80")', "$number('1e308') * 10"]
)
def test_what_json_does_not_have_is_refused(source):
    with pytest.raises(MappingError):
        compile_mapping({"expr": source, "lang": "jsonata"}, "m", ("args",))({"args": 1})
