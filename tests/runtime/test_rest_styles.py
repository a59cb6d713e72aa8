"""Arrays and objects in requests: OpenAPI's table of styles, as the upstream receives it."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest

from mcp_trio.catalog.operation import OperationError

LIST = ["blue", "black", "brown"]
OBJECT = {"R": 100, "G": 200, "B": 150}


def styled(section, style, explode=None, path="/x/{c}", **extra):
    """Changes of a view whose parameter `c` stands in a section."""
    said = {"style": style} if explode is None else {"style": style, "explode": explode}
    target = {"connection": "crm", "method": "GET", "path": path if section == "path" else "/x"}
    return {
        "target": {**target, "styles": {section: {"c": said}}, **extra},
        "input_mapping": {section: {"c": "=args.c"}},
        "input_schema": {"type": "object", "properties": {"c": {}}},
    }


@pytest.mark.parametrize(
    ("style", "explode", "value", "sent"),
    [
        ("simple", None, "blue", "blue"),
        ("simple", None, LIST, "blue,black,brown"),
        ("simple", None, OBJECT, "R,100,G,200,B,150"),
        ("simple", True, LIST, "blue,black,brown"),
        ("simple", True, OBJECT, "R=100,G=200,B=150"),
        ("label", None, "blue", ".blue"),
        ("label", None, LIST, ".blue,black,brown"),
        ("label", None, OBJECT, ".R,100,G,200,B,150"),
        ("label", True, LIST, ".blue.black.brown"),
        ("label", True, OBJECT, ".R=100.G=200.B=150"),
        ("matrix", None, "blue", ";c=blue"),
        ("matrix", None, LIST, ";c=blue,black,brown"),
        ("matrix", None, OBJECT, ";c=R,100,G,200,B,150"),
        ("matrix", True, LIST, ";c=blue;c=black;c=brown"),
        ("matrix", True, OBJECT, ";R=100;G=200;B=150"),
        ("simple", None, ["a,b", "c/d", "é"], "a%2Cb,c%2Fd,%C3%A9"),
        ("matrix", True, ["a;b", "c=d"], ";c=a%3Bb;c=c%3Dd"),
        ("matrix", None, "", ";c"),
        ("matrix", True, ["", "a"], ";c;c=a"),
        ("matrix", True, {"R": "", "G": 200}, ";R;G=200"),
        ("simple", None, ["a", None, "b"], "a,b"),
        ("label", True, {"R": None, "G": 200}, ".G=200"),
        ("matrix", True, [None, "a"], ";c=a"),
    ],
)
async def test_styles_of_a_path(bench, upstream, style, explode, value, sent):
    result = await bench.call({"c": value}, **styled("path", style, explode))
    assert result.is_error is None
    assert upstream.last.target == f"/x/{sent}"


@pytest.mark.parametrize("style", ["simple", "label"])
@pytest.mark.parametrize("value", [".", "..", [".", "."], "", [""], "a\nb", ["a", "b\x00"]])
async def test_a_styled_path_value_that_means_another_place_is_refused(
    bench, upstream, failure, style, value
):
    _, told = failure(await bench.call({"c": value}, **styled("path", style)))
    assert told["stage"] == "mapping"
    assert upstream.seen == []


@pytest.mark.parametrize("style", ["simple", "label", "matrix"])
@pytest.mark.parametrize("explode", [False, True])
@pytest.mark.parametrize("value", [[], {}, [None], {"R": None}])
async def test_a_path_cannot_hold_what_is_nothing(bench, upstream, failure, style, explode, value):
    _, told = failure(await bench.call({"c": value}, **styled("path", style, explode)))
    assert told["stage"] == "mapping"
    assert upstream.seen == []


@pytest.mark.parametrize(
    ("style", "explode", "value", "sent"),
    [
        ("form", None, "blue", "c=blue"),
        ("form", None, "", "c="),
        ("form", None, LIST, "c=blue&c=black&c=brown"),
        ("form", None, OBJECT, "R=100&G=200&B=150"),
        ("form", False, LIST, "c=blue,black,brown"),
        ("form", False, OBJECT, "c=R,100,G,200,B,150"),
        ("spaceDelimited", None, LIST, "c=blue%20black%20brown"),
        ("spaceDelimited", None, OBJECT, "c=R%20100%20G%20200%20B%20150"),
        ("spaceDelimited", True, LIST, "c=blue&c=black&c=brown"),
        ("pipeDelimited", None, LIST, "c=blue%7Cblack%7Cbrown"),
        ("pipeDelimited", None, OBJECT, "c=R%7C100%7CG%7C200%7CB%7C150"),
        ("deepObject", True, OBJECT, "c%5BR%5D=100&c%5BG%5D=200&c%5BB%5D=150"),
        (
            "deepObject",
            True,
            {"a": {"b": [1, {"d": True}]}, "n": None},
            "c%5Ba%5D%5Bb%5D%5B0%5D=1&c%5Ba%5D%5Bb%5D%5B1%5D%5Bd%5D=true",
        ),
        ("form", False, ["a,b", "c&d=e", "é f"], "c=a%2Cb,c%26d%3De,%C3%A9%20f"),
        ("form", None, [None, 1], "c=1"),
        ("form", False, [None, 1, None, 2], "c=1,2"),
        ("pipeDelimited", None, ["a", None, "b"], "c=a%7Cb"),
        ("spaceDelimited", None, {"R": None, "G": 200}, "c=G%20200"),
    ],
)
async def test_styles_of_a_query(bench, upstream, style, explode, value, sent):
    result = await bench.call({"c": value}, **styled("query", style, explode))
    assert result.is_error is None
    assert upstream.last.target == f"/x?{sent}"


@pytest.mark.parametrize("value", [[], {}, [None], {"R": None}])
@pytest.mark.parametrize("style", ["form", "spaceDelimited", "pipeDelimited", "deepObject"])
@pytest.mark.parametrize("explode", [False, True])
async def test_nothing_is_written_as_nothing(bench, upstream, style, explode, value):
    await bench.call({"c": value}, **styled("query", style, explode))
    assert upstream.last.target == "/x"


@pytest.mark.parametrize("value", [[], {}, [None], {"R": None}])
@pytest.mark.parametrize(("section", "style"), [("headers", "simple"), ("cookies", "form")])
async def test_nothing_makes_no_header_and_no_cookie(bench, upstream, section, style, value):
    result = await bench.call({"c": value}, **styled(section, style, explode=False))
    assert result.is_error is None
    assert upstream.last.header("c") is None
    assert upstream.last.header("cookie") is None


async def test_other_values_of_the_section_are_written_as_ever(bench, upstream):
    changes = styled("query", "form", explode=False)
    changes["input_mapping"] = {"query": {"c": "=args.c", "d": "=args.d"}}
    changes["input_schema"] = {"type": "object", "properties": {"c": {}, "d": {}}}
    await bench.call({"c": [1, 2], "d": ["x y", "z"]}, **changes)
    assert upstream.last.target == "/x?c=1,2&d=x%20y&d=z"


@pytest.mark.parametrize(
    ("explode", "value", "sent"),
    [
        (None, LIST, "blue,black,brown"),
        (None, OBJECT, "R,100,G,200,B,150"),
        (True, OBJECT, "R=100,G=200,B=150"),
        (True, LIST, "blue,black,brown"),
        (None, "blue", "blue"),
        (None, ["a", None, "b"], "a,b"),
        (True, {"R": None, "G": 200}, "G=200"),
    ],
)
async def test_styles_of_a_header(bench, upstream, explode, value, sent):
    changes = styled("headers", "simple", explode)
    await bench.call({"c": value}, **changes)
    assert upstream.last.header("c") == sent


@pytest.mark.parametrize("value", [["a,b"], ["a\r\nX: y"], ["é"]])
async def test_a_header_list_cannot_break_its_line_or_its_list(bench, upstream, failure, value):
    _, told = failure(await bench.call({"c": value}, **styled("headers", "simple")))
    assert told["stage"] == "mapping"
    assert upstream.seen == []


async def test_styles_of_a_cookie(bench, upstream):
    for value, sent in (
        ("blue", "blue"),
        (LIST, "blue%2Cblack%2Cbrown"),
        (OBJECT, "R%2C100%2CG%2C200%2CB%2C150"),
        (["a", None, "b"], "a%2Cb"),
    ):
        await bench.call({"c": value}, **styled("cookies", "form", explode=False))
        assert upstream.last.header("cookie") == f"c={sent}"


async def test_styles_of_a_form(bench, upstream):
    await bench.call(
        {"c": {"items": [{"price": "p 1", "n": 2}]}},
        target={
            "connection": "crm",
            "method": "POST",
            "path": "/x",
            "content_type": "form",
            "styles": {"body": {"c": {"style": "deepObject", "explode": True}}},
        },
        input_mapping={"body": "=args"},
        input_schema={"type": "object"},
    )
    assert upstream.last.header("content-type") == "application/x-www-form-urlencoded"
    assert parse_qsl(upstream.last.body.decode()) == [
        ("c[items][0][price]", "p 1"),
        ("c[items][0][n]", "2"),
    ]


async def test_a_media_type_of_ones_own(bench, upstream):
    await bench.call(
        {"c": {"a": None}},
        target={
            "connection": "crm",
            "method": "PATCH",
            "path": "/x",
            "media_type": "application/merge-patch+json",
        },
        input_mapping={"body": "=args.c"},
        input_schema={"type": "object", "properties": {"c": {}}},
    )
    assert upstream.last.header("content-type") == "application/merge-patch+json"
    assert upstream.last.body == b'{"a":null}'


async def test_nesting_where_the_style_has_no_way_to_write_it_is_a_mapping_error(bench, failure):
    for section, style in (("query", "form"), ("path", "simple"), ("headers", "simple")):
        _, told = failure(await bench.call({"c": [[1]]}, **styled(section, style)))
        assert told["stage"] == "mapping"


async def test_a_style_of_what_is_not_mapped_is_refused(bench):
    changes = styled("query", "form")
    changes["input_mapping"] = {"query": {"d": "=args.c"}}
    with pytest.raises(OperationError, match=r"target.styles.query: 'c' is not in input_mapping"):
        bench.compile(**changes)
