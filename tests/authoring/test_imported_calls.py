"""What was imported is called: the request on the wire is what the description says."""

from __future__ import annotations

import base64
import json
from contextlib import asynccontextmanager

import pytest
import trio

from mcp_trio import ClientOptions, MCPClient, MCPServer
from mcp_trio.authoring.fetching import Library
from mcp_trio.authoring.graphql_importer import Options as GraphQLOptions
from mcp_trio.authoring.graphql_importer import import_graphql
from mcp_trio.authoring.openapi.importer import Options, import_openapi
from mcp_trio.catalog.actor import CatalogActor
from mcp_trio.catalog.operation import parse
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.http_connection import HttpConnection
from mcp_trio.transports.memory import MemoryTransport
from mcp_trio.wire import ABSENT, REVISIONS
from tests.catalog.conftest import MemoryRegistry
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
@pytest.mark.parametrize("row", TABLE, ids=str)
async def test_parameters_are_written_as_openapis_table_has_them(
    tmp_path, upstream, described, row
):
    where, style, explode, kind, sent = row
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


@pytest.mark.parametrize("version", ["3.1.0", "3.0.3", "2.0"])
async def test_a_form_is_sent_as_one(tmp_path, upstream, version):
    fields = {"name": {"type": "string"}, "tags": LIST, "n": {"type": "integer"}}
    schema = {"type": "object", "properties": fields}
    said = with_body("application/x-www-form-urlencoded", schema)
    if version == "2.0":
        said = {
            "parameters": [
                {"in": "formData", "name": name, "collectionFormat": "multi", **field}
                for name, field in fields.items()
            ]
        }
    views = openapi(tmp_path, "/p", "post", said, version)
    await call(views, upstream.url, {"body": {"name": "a b&c=é", "tags": ["x", "y,z"], "n": 3}})
    assert upstream.last.body == b"name=a+b%26c%3D%C3%A9&tags=x&tags=y%2Cz&n=3"
    assert upstream.last.header("content-type") == "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("media", "schema"),
    [
        ("application/octet-stream", {}),
        ("application/octet-stream", {"type": "string", "format": "binary"}),
        ("image/png", {"type": "string", "contentMediaType": "image/png"}),
        ("application/x-protobuf", {"type": "string", "format": "binary"}),
    ],
)
async def test_bytes_are_sent_as_they_are(tmp_path, upstream, media, schema):
    views = openapi(tmp_path, "/p", "put", with_body(media, schema))
    raw = bytes(range(256))
    result = await call(views, upstream.url, {"body": base64.b64encode(raw).decode()})
    assert result.is_error is None
    assert upstream.last.body == raw
    assert upstream.last.header("content-type") == media
    result = await call(views, upstream.url, {"body": "no base64!"})
    assert result.content[0].text.startswith("[mapping] input_mapping.body: is not base64.")
    assert len(upstream.seen) == 1


@pytest.mark.parametrize(
    ("media", "sent"),
    [
        ("text/plain", "text/plain; charset=utf-8"),
        ("text/csv", "text/csv"),
        ("text/x-y", "text/x-y"),
    ],
)
async def test_text_is_sent_under_its_own_name(tmp_path, upstream, media, sent):
    views = openapi(tmp_path, "/p", "post", with_body(media, TEXT))
    await call(views, upstream.url, {"body": "a;é\n"})
    assert upstream.last.body == "a;é\n".encode()
    assert upstream.last.header("content-type") == sent


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


@pytest.mark.parametrize("media", ["application/xml", "text/xml", "application/soap+xml"])
async def test_an_xml_body(tmp_path, upstream, media):
    schema = {"xml": {"name": "pet"}, "type": "object", "properties": {"name": {"type": "string"}}}
    views = openapi(tmp_path, "/p", "post", with_body(media, schema))
    await call(views, upstream.url, {"body": {"name": "<Rex>"}})
    assert b"<pet><name>&lt;Rex&gt;</name></pet>" in upstream.last.body
    assert upstream.last.header("content-type") == media


@asynccontextmanager
async def client_of(views, url, revision=REVISIONS[0]):
    """A client of a service that publishes what was imported, and has listed its tools."""
    async with (
        Connections([HttpConnection(name="up", base_url=url)]) as connections,
        trio.open_nursery() as nursery,
    ):
        actor = CatalogActor(MemoryRegistry(*views), Compiler(connections))
        server = MCPServer("service")
        server.add_provider(actor)
        await nursery.start(actor.run)
        with trio.fail_after(10):
            await actor.ready.wait()
        ours, theirs = MemoryTransport.pair()
        nursery.start_soon(server.serve, ours)
        async with MCPClient(theirs, options=ClientOptions(revisions=(revision,))) as client:
            listed = [tool async for tool in client.tools()]
            assert len(listed) == len(views)
            yield client
        nursery.cancel_scope.cancel()


def misfits(result):
    return result.meta["io.github.mcp-trio/error"]["violations"]


PROMISED = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}, "pet": MEMBERS},
    "required": ["id", "name"],
    "additionalProperties": False,
}
REX = {"id": 9007199254740993, "name": "Rex"}


@pytest.mark.parametrize("revision", REVISIONS, ids=str)
@pytest.mark.parametrize(
    ("answer", "pointer", "text"),
    [
        ({"id": 1, "name": None}, "/name", '{"id":1,"name":null}'),
        ({**REX, "more": 1}, "", '{"id":9007199254740993,"name":"Rex","more":1}'),
        ({"id": 1}, "", '{"id":1}'),
        ({"id": "1", "name": "x"}, "/id", '{"id":"1","name":"x"}'),
        ({**REX, "pet": None}, "/pet", '{"id":9007199254740993,"name":"Rex","pet":null}'),
        ([REX], "", '[{"id":9007199254740993,"name":"Rex"}]'),
        (None, "", "Done; there is no content."),
        (b"", "", "Done; there is no content."),
        ("Rex", "", "Rex"),
        (b"5", "", "5"),
    ],
)
async def test_an_answer_that_breaks_its_promise_reaches_every_client_as_text(
    tmp_path, upstream, revision, answer, pointer, text
):
    content = {"application/json": {"schema": PROMISED}}
    views = openapi(tmp_path, "/p", "get", {"responses": {"200": {"content": content}}})
    async with client_of(views, upstream.url, revision) as client:
        upstream.says(answer)
        result = await client.call_tool("get_p")
        assert result.is_error is True
        assert result.structured_content is ABSENT
        told, kept = [block.text for block in result.content]
        assert told.startswith("[schema_validation] the result does not fit the output schema")
        assert kept == text
        assert pointer in {each["pointer"] for each in misfits(result)}
        upstream.says(REX)
        result = await client.call_tool("get_p")
        assert result.is_error is not True
        assert json.loads(result.content[0].text) == REX


async def test_plain_text_is_kept_where_json_was_promised(tmp_path, upstream):
    content = {"application/json": {"schema": PROMISED}}
    views = openapi(tmp_path, "/p", "get", {"responses": {"200": {"content": content}}})
    async with client_of(views, upstream.url) as client:
        upstream.says("héllo".encode(), kind="text/plain; charset=utf-8")
        result = await client.call_tool("get_p")
        assert result.is_error is True
        assert [block.text for block in result.content[1:]] == ["héllo"]


@pytest.mark.parametrize("status", [200, 500])
async def test_a_page_for_people_is_no_answer_to_any_promise(tmp_path, upstream, status):
    content = {"application/json": {"schema": PROMISED}}
    views = openapi(tmp_path, "/p", "get", {"responses": {"200": {"content": content}}})
    async with client_of(views, upstream.url) as client:
        upstream.says(b"<html><b>canary</b></html>", kind="text/html", status=status)
        result = await client.call_tool("get_p")
        assert result.is_error is True
        assert "canary" not in result.content[0].text


async def test_nothing_is_promised_where_an_answer_without_content_is_described(tmp_path, upstream):
    content = {"application/json": {"schema": PROMISED}}
    responses = {"200": {"content": content}, "204": {"description": "nothing"}}
    views = openapi(tmp_path, "/p", "delete", {"responses": responses})
    async with client_of(views, upstream.url) as client:
        upstream.says(b"", status=204)
        result = await client.call_tool("delete_p")
        assert result.is_error is None
        assert result.content[0].text == "Done; there is no content."


SDL = """
scalar DateTime
scalar JSON
scalar Long
scalar Money
type Query {
  pet(id: ID!, first: Int): Pet
  sold(since: DateTime!, where: JSON, over: Long, price: Money): Sale!
}
type Pet { name: String! owner: Owner friends(first: Int): [Pet!] }
type Owner { name: String }
type Sale { at: DateTime! raw: JSON big: Long! price: Money! }
"""


async def test_a_graphql_operation_sends_its_variables_and_gives_its_field(tmp_path, upstream):
    path = tmp_path / "schema.graphql"
    path.write_text(SDL)
    made = import_graphql(str(path), GraphQLOptions(connection="up"))
    assert made.refused == []
    upstream.says({"data": {"pet": {"name": "Rex", "owner": None, "friends": []}}})
    views = [view for view in made.views if view["name"] == "pet"]
    result = await call(views, upstream.url, {"id": "7"})
    assert result.structured_content == {"name": "Rex", "owner": None, "friends": []}
    assert result.meta is None
    sent = upstream.last.json()
    assert sent["variables"] == {"id": "7"}
    assert sent["operationName"] == "Pet"
    assert sent["query"].startswith("query Pet($id: ID!, $first: Int)")


MONEY = {"type": "string", "pattern": "^[0-9]+ [A-Z]{3}$"}
SALE = {"at": "2026-01-01T00:00:00Z", "raw": {"a": [None, 1.5]}, "big": 2**63, "price": "5 EUR"}


def sales(tmp_path):
    path = tmp_path / "schema.graphql"
    path.write_text(SDL)
    options = GraphQLOptions(connection="up", scalars={"Money": MONEY, "DateTime": TEXT})
    return [v for v in import_graphql(str(path), options).views if v["name"] == "sold"]


async def test_custom_scalars_are_what_the_table_says_in_both_directions(tmp_path, upstream):
    async with client_of(sales(tmp_path), upstream.url) as client:
        for big in (2**63, str(2**63), 5):
            upstream.says({"data": {"sold": {**SALE, "big": big}}})
            given = {"since": SALE["at"], "where": SALE["raw"], "over": big, "price": "7 EUR"}
            result = await client.call_tool("sold", given)
            assert result.is_error is None, result
            assert upstream.last.json()["variables"] == given
            assert result.structured_content == {**SALE, "big": big}
        asked = len(upstream.seen)
        for wrong in ({"price": "much"}, {"since": 5}, {"over": [1]}):
            result = await client.call_tool("sold", {**given, **wrong})
            assert result.content[0].text.startswith("[schema_validation] the arguments do not fit")
        assert len(upstream.seen) == asked


@pytest.mark.parametrize(
    ("answer", "stage"),
    [
        ({"data": None}, "external_service"),
        ({"data": None, "errors": [{"message": "no"}]}, "external_service"),
        ({"data": {"sold": None}}, "schema_validation"),
        ({"data": {"sold": {**SALE, "big": None}}}, "schema_validation"),
        ({"data": {"sold": {**SALE, "price": 5}}}, "schema_validation"),
        ({"data": {}}, "schema_validation"),
        ({"errors": [{"message": "no"}]}, "external_service"),
        ({}, "adapter_execution"),
    ],
)
async def test_an_answer_of_graphql_that_breaks_its_promise_is_a_failure(
    tmp_path, upstream, answer, stage
):
    async with client_of(sales(tmp_path), upstream.url) as client:
        upstream.says(answer)
        result = await client.call_tool("sold", {"since": SALE["at"]})
        assert result.is_error is True
        assert result.structured_content is ABSENT
        assert result.content[0].text.startswith(f"[{stage}]")
        # What broke a promise is shown all the same.
        assert (len(result.content) == 2) is (stage == "schema_validation")
        assert bool(misfits(result)) is (stage == "schema_validation")
