"""What was imported is called: the request on the wire is what the description says."""

from __future__ import annotations

import base64
import json

import pytest

from mcp_trio.authoring.fetching import Library
from mcp_trio.authoring.graphql_importer import Options as GraphQLOptions
from mcp_trio.authoring.graphql_importer import import_graphql
from mcp_trio.authoring.openapi.importer import Options, import_openapi
from mcp_trio.catalog.operation import parse
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.http_connection import HttpConnection
from tests.runtime.conftest import make_context

PAIR = {"type": "object", "properties": {"R": {"type": "integer"}, "G": {"type": "integer"}}}
LIST = {"type": "array", "items": {"type": "string"}}


async def call(views, url, arguments):
    async with Connections([HttpConnection(name="up", base_url=url)]) as connections:
        (view,) = views
        compiled = Compiler(connections).compile(parse(view))
        return await compiled.call(make_context(), arguments)


def openapi(tmp_path, path, method, operation, version="3.1.0"):
    file = tmp_path / "api.json"
    said = {"swagger" if version == "2.0" else "openapi": version, "info": {"title": "t"}}
    file.write_text(json.dumps({**said, "paths": {path: {method: operation}}}))
    made = import_openapi(Library(str(file)), Options(connection="up"))
    assert made.refused == []
    return made.views


TEXT = {"type": "string"}
COLOURS = ["blue", "black", "brown"]
RGB = {"R": 100, "G": 200, "B": 150}
MEMBERS = {"type": "object", "properties": {name: {"type": "integer"} for name in RGB}}
KINDS = {"text": (TEXT, "blue"), "array": (LIST, COLOURS), "object": (MEMBERS, RGB)}
COMMAS, PAIRS = "blue,black,brown", "R,100,G,200,B,150"
TABLE = [
    ("path", None, None, "text", "/blue"),
    ("path", None, None, "array", f"/{COMMAS}"),
    ("path", None, None, "object", f"/{PAIRS}"),
    ("path", "simple", None, "array", f"/{COMMAS}"),
    ("path", "simple", False, "object", f"/{PAIRS}"),
    ("path", "simple", True, "text", "/blue"),
    ("path", "simple", True, "array", f"/{COMMAS}"),
    ("path", "simple", True, "object", "/R=100,G=200,B=150"),
    ("path", "label", None, "text", "/.blue"),
    ("path", "label", None, "array", f"/.{COMMAS}"),
    ("path", "label", None, "object", f"/.{PAIRS}"),
    ("path", "label", False, "array", f"/.{COMMAS}"),
    ("path", "label", True, "text", "/.blue"),
    ("path", "label", True, "array", "/.blue.black.brown"),
    ("path", "label", True, "object", "/.R=100.G=200.B=150"),
    ("path", "matrix", None, "text", "/;v=blue"),
    ("path", "matrix", None, "array", f"/;v={COMMAS}"),
    ("path", "matrix", None, "object", f"/;v={PAIRS}"),
    ("path", "matrix", False, "object", f"/;v={PAIRS}"),
    ("path", "matrix", True, "text", "/;v=blue"),
    ("path", "matrix", True, "array", "/;v=blue;v=black;v=brown"),
    ("path", "matrix", True, "object", "/;R=100;G=200;B=150"),
    ("query", None, None, "text", "?v=blue"),
    ("query", None, None, "array", "?v=blue&v=black&v=brown"),
    ("query", None, None, "object", "?R=100&G=200&B=150"),
    ("query", None, False, "text", "?v=blue"),
    ("query", None, False, "array", f"?v={COMMAS}"),
    ("query", None, False, "object", f"?v={PAIRS}"),
    ("query", "form", None, "array", "?v=blue&v=black&v=brown"),
    ("query", "form", True, "object", "?R=100&G=200&B=150"),
    ("query", "form", False, "array", f"?v={COMMAS}"),
    ("query", "spaceDelimited", None, "array", "?v=blue%20black%20brown"),
    ("query", "spaceDelimited", None, "object", "?v=R%20100%20G%20200%20B%20150"),
    ("query", "spaceDelimited", False, "array", "?v=blue%20black%20brown"),
    ("query", "spaceDelimited", True, "array", "?v=blue&v=black&v=brown"),
    ("query", "pipeDelimited", None, "array", "?v=blue%7Cblack%7Cbrown"),
    ("query", "pipeDelimited", None, "object", "?v=R%7C100%7CG%7C200%7CB%7C150"),
    ("query", "pipeDelimited", False, "array", "?v=blue%7Cblack%7Cbrown"),
    ("query", "pipeDelimited", True, "array", "?v=blue&v=black&v=brown"),
    ("query", "deepObject", None, "object", "?v%5BR%5D=100&v%5BG%5D=200&v%5BB%5D=150"),
    ("query", "deepObject", True, "object", "?v%5BR%5D=100&v%5BG%5D=200&v%5BB%5D=150"),
    ("header", None, None, "text", "blue"),
    ("header", None, None, "array", COMMAS),
    ("header", None, None, "object", PAIRS),
    ("header", "simple", False, "object", PAIRS),
    ("header", "simple", True, "array", COMMAS),
    ("header", "simple", True, "object", "R=100,G=200,B=150"),
    ("cookie", None, None, "text", "v=blue"),
    ("cookie", None, False, "array", f"v={COMMAS}".replace(",", "%2C")),
    ("cookie", "form", False, "object", f"v={PAIRS}".replace(",", "%2C")),
]
"""The table of styles in OpenAPI; None is what is not said, so a default."""


@pytest.mark.parametrize("described", ["3.1.0", "3.0.3"])
@pytest.mark.parametrize(("where", "style", "explode", "kind", "sent"), TABLE)
async def test_parameters_are_written_as_openapis_table_has_them(  # noqa: PLR0913 - a table
    tmp_path, upstream, described, where, style, explode, kind, sent
):
    schema, value = KINDS[kind]
    parameter = {"name": "v", "in": where, "required": True, "schema": schema}
    parameter |= {k: v for k, v in (("style", style), ("explode", explode)) if v is not None}
    path = "/p/{v}" if where == "path" else "/p"
    views = openapi(tmp_path, path, "get", {"parameters": [parameter]}, described)
    result = await call(views, upstream.url, {"v": value})
    assert result.is_error is None
    if where in {"path", "query"}:
        assert upstream.last.target == f"/p{sent}"
    else:
        assert upstream.last.header({"header": "v"}.get(where, where)) == sent


@pytest.mark.parametrize(
    ("where", "said", "schema", "value_sent"),
    [
        ("query", {"explode": False}, LIST, (["a,x", "b"], "/p?v=a%2Cx,b")),
        ("query", {}, LIST, (["a", "b c"], "/p?v=a&v=b%20c")),
        ("query", {}, LIST, ([], "/p")),
        ("query", {}, TEXT, ("", "/p?v=")),
        ("query", {}, {"type": "boolean"}, (True, "/p?v=true")),
        ("query", {}, {"type": "integer"}, (9007199254740993, "/p?v=9007199254740993")),
        ("path", {"style": "matrix"}, TEXT, ("", "/p/;v")),
        ("path", {}, TEXT, ("a/b?x=1#y", "/p/a%2Fb%3Fx%3D1%23y")),
        (
            "query",
            {"style": "deepObject", "explode": True},
            {"type": "object"},
            (
                {"a": {"b": [1, {"c": "d e"}]}},
                "/p?v%5Ba%5D%5Bb%5D%5B0%5D=1&v%5Ba%5D%5Bb%5D%5B1%5D%5Bc%5D=d%20e",
            ),
        ),
    ],
)
async def test_values_of_parameters_stay_in_their_places(
    tmp_path, upstream, where, said, schema, value_sent
):
    value, sent = value_sent
    parameter = {"name": "v", "in": where, "required": True, "schema": schema, **said}
    path = "/p/{v}" if where == "path" else "/p"
    views = openapi(tmp_path, path, "get", {"parameters": [parameter]})
    result = await call(views, upstream.url, {"v": value})
    assert result.is_error is None
    assert upstream.last.target == sent


@pytest.mark.parametrize(
    ("collection", "sent"),
    [
        (None, "?v=blue,black,brown"),
        ("csv", "?v=blue,black,brown"),
        ("ssv", "?v=blue%20black%20brown"),
        ("pipes", "?v=blue%7Cblack%7Cbrown"),
        ("multi", "?v=blue&v=black&v=brown"),
    ],
)
async def test_collections_of_2_0_are_written_too(tmp_path, upstream, collection, sent):
    said = {"name": "v", "in": "query", "type": "array", "items": {"type": "string"}}
    said |= {} if collection is None else {"collectionFormat": collection}
    views = openapi(tmp_path, "/p", "get", {"parameters": [said]}, "2.0")
    await call(views, upstream.url, {"v": COLOURS})
    assert upstream.last.target == f"/p{sent}"


def with_body(media, schema):
    return {"requestBody": {"required": True, "content": {media: {"schema": schema}}}}


async def test_a_json_body_keeps_its_nulls(tmp_path, upstream):
    schema = {"type": "object", "properties": {"note": {"type": ["string", "null"]}}}
    views = openapi(tmp_path, "/p", "patch", with_body("application/merge-patch+json", schema))
    await call(views, upstream.url, {"body": {"note": None}})
    assert upstream.last.body == b'{"note":null}'
    assert upstream.last.header("content-type") == "application/merge-patch+json"


async def test_a_file_is_sent_as_a_part(tmp_path, upstream):
    schema = {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "file": {"type": "string", "contentMediaType": "application/octet-stream"},
            "none": {"type": "string", "format": "binary"},
            "meta": PAIR,
        },
    }
    views = openapi(tmp_path, "/p", "post", with_body("multipart/form-data", schema))
    arguments = {"title": "x", "file": base64.b64encode(b"\x00\xff").decode(), "meta": {"R": 1}}
    result = await call(views, upstream.url, {"body": arguments})
    assert result.is_error is None
    body = upstream.last.body
    assert upstream.last.header("content-type").startswith("multipart/form-data; boundary=")
    assert b'name="title"\r\n\r\nx\r\n' in body
    assert b"\r\n\r\n\x00\xff\r\n" in body
    assert b'Content-Type: application/json\r\n\r\n{"R":1}\r\n' in body
    assert b'name="none"' not in body


async def test_parts_that_are_empty_are_parts_all_the_same(tmp_path, upstream):
    schema = {
        "type": "object",
        "properties": {
            "file": {"type": "string", "format": "binary"},
            "none": {"type": "string", "format": "binary"},
            "meta": PAIR,
            "rows": {"type": "array", "items": PAIR},
        },
    }
    views = openapi(tmp_path, "/p", "post", with_body("multipart/form-data", schema))
    result = await call(views, upstream.url, {"body": {"file": "", "meta": {}, "rows": []}})
    assert result.is_error is None
    body = upstream.last.body
    assert b'name="file"; filename="file"\r\n' in body
    assert b'name="meta"\r\nContent-Type: application/json\r\n\r\n{}\r\n' in body
    assert b'name="rows"\r\nContent-Type: application/json\r\n\r\n[]\r\n' in body
    assert b'name="none"' not in body


async def test_an_xml_body(tmp_path, upstream):
    schema = {"xml": {"name": "pet"}, "type": "object", "properties": {"name": {"type": "string"}}}
    views = openapi(tmp_path, "/p", "post", with_body("application/xml", schema))
    await call(views, upstream.url, {"body": {"name": "<Rex>"}})
    assert b"<pet><name>&lt;Rex&gt;</name></pet>" in upstream.last.body


async def test_an_answer_that_breaks_its_promise_is_told_with_the_result(tmp_path, upstream):
    content = {"application/json": {"schema": PAIR}}
    views = openapi(tmp_path, "/p", "get", {"responses": {"200": {"content": content}}})
    upstream.says({"R": "red"})
    result = await call(views, upstream.url, {})
    assert result.is_error is None
    assert result.structured_content == {"R": "red"}
    assert result.meta["io.github.mcp-trio/warning"]["violations"]


SDL = """
type Query { pet(id: ID!, first: Int): Pet }
type Pet { name: String! owner: Owner friends(first: Int): [Pet!] }
type Owner { name: String }
"""


async def test_a_graphql_operation_sends_its_variables_and_gives_its_field(tmp_path, upstream):
    path = tmp_path / "schema.graphql"
    path.write_text(SDL)
    made = import_graphql(str(path), GraphQLOptions(connection="up"))
    assert made.refused == []
    upstream.says({"data": {"pet": {"name": "Rex", "owner": None, "friends": []}}})
    result = await call(made.views, upstream.url, {"id": "7"})
    assert result.structured_content == {"name": "Rex", "owner": None, "friends": []}
    assert result.meta is None
    sent = upstream.last.json()
    assert sent["variables"] == {"id": "7"}
    assert sent["operationName"] == "Pet"
    assert sent["query"].startswith("query Pet($id: ID!, $first: Int)")
