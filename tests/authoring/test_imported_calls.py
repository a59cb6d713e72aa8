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


def openapi(tmp_path, path, method, operation):
    file = tmp_path / "api.json"
    file.write_text(
        json.dumps(
            {"openapi": "3.1.0", "info": {"title": "t"}, "paths": {path: {method: operation}}}
        )
    )
    made = import_openapi(Library(str(file)), Options(connection="up"))
    assert made.refused == []
    return made.views


@pytest.mark.parametrize(
    ("where", "said", "schema", "value_sent"),
    [
        ("query", {}, LIST, (["a", "b c"], "/p?v=a&v=b%20c")),
        ("query", {"explode": False}, LIST, (["a,x", "b"], "/p?v=a%2Cx,b")),
        ("query", {}, PAIR, ({"R": 1, "G": 2}, "/p?R=1&G=2")),
        ("query", {"style": "spaceDelimited", "explode": False}, LIST, (["a", "b"], "/p?v=a%20b")),
        ("query", {"style": "pipeDelimited", "explode": False}, LIST, (["a", "b"], "/p?v=a%7Cb")),
        ("query", {"style": "deepObject", "explode": True}, PAIR, ({"R": 1}, "/p?v%5BR%5D=1")),
        ("path", {}, LIST, (["a", "b"], "/p/a,b")),
        ("path", {"style": "label"}, LIST, (["a", "b"], "/p/.a,b")),
        ("path", {"style": "matrix", "explode": True}, LIST, (["a", "b"], "/p/;v=a;v=b")),
        ("path", {"explode": True}, PAIR, ({"R": 1, "G": 2}, "/p/R=1,G=2")),
        ("path", {}, {"type": "string"}, ("a/x", "/p/a%2Fx")),
    ],
)
async def test_parameters_are_written_as_openapis_table_has_them(
    tmp_path, upstream, where, said, schema, value_sent
):
    value, sent = value_sent
    parameter = {"name": "v", "in": where, "required": True, "schema": schema, **said}
    path = "/p/{v}" if where == "path" else "/p"
    views = openapi(tmp_path, path, "get", {"parameters": [parameter]})
    result = await call(views, upstream.url, {"v": value})
    assert result.is_error is None
    assert upstream.last.target == sent


async def test_headers_and_cookies(tmp_path, upstream):
    said = [
        {"name": "X-Ids", "in": "header", "schema": LIST},
        {"name": "theme", "in": "cookie", "schema": {"type": "string"}},
    ]
    views = openapi(tmp_path, "/p", "get", {"parameters": said})
    await call(views, upstream.url, {"X-Ids": ["a", "b"], "theme": "dark"})
    assert upstream.last.header("x-ids") == "a,b"
    assert upstream.last.header("cookie") == "theme=dark"


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
