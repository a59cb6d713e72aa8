"""Importing OpenAPI: what becomes of each part of a description, and what never gets in."""

from __future__ import annotations

import json

import jsonschema
import pytest

from mcp_trio.authoring.checking import Checker
from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.authoring.fetching import Library
from mcp_trio.authoring.imports import Names, identity, snake
from mcp_trio.authoring.openapi.importer import Options, import_openapi
from mcp_trio.authoring.sources import Entry
from mcp_trio.authoring.stand_ins import StandIns
from mcp_trio.catalog.operation import parse
from mcp_trio.json_schema import Validator


def describe(paths, version="3.0.3", **more):
    return {
        "openapi": version,
        "info": {"title": "Pet Store", "version": "1"},
        "paths": paths,
        **more,
    }


def run(tmp_path, description, **options):
    path = tmp_path / "api.json"
    path.write_text(json.dumps(description))
    return import_openapi(Library(str(path)), Options(**options))


def one(tmp_path, operation, path="/pets", method="get", version="3.0.3", **more):
    """Import a single operation; give its view."""
    made = run(tmp_path, describe({path: {method: operation}}, version, **more))
    assert made.refused == [], made.refused
    (view,) = made.views
    return view


def refused(tmp_path, operation, path="/pets", method="get", **more):
    made = run(tmp_path, describe({path: {method: operation}}, **more))
    assert made.views == []
    (left,) = made.refused
    assert left.what == f"{method.upper()} {path}" or left.what.startswith("pet_store.")
    return left.reason


def notes(tmp_path, operation, **more):
    return [
        each.reason for each in run(tmp_path, describe({"/pets": {"get": operation}}, **more)).notes
    ]


def parameter(name="q", where="query", schema=None, **more):
    return {"name": name, "in": where, "schema": schema or {"type": "string"}, **more}


# -- parameters ------------------------------------------------------------------


def test_parameters_become_arguments_and_go_back_where_they_belong(tmp_path):
    view = one(
        tmp_path,
        {
            "operationId": "getPet",
            "parameters": [
                parameter("id", "path", {"type": "integer"}, required=True, description="Its id."),
                parameter("verbose", "query", {"type": "boolean", "default": False}),
                parameter("X-Trace-Id", "header"),
                parameter("session", "cookie"),
            ],
        },
        path="/pets/{id}",
    )
    assert view["target"] == {
        "connection": "pet_store",
        "method": "GET",
        "path": "/pets/{id}",
        "content_type": "none",
    }
    assert view["input_mapping"] == {
        "path": {"id": "=args.id"},
        "query": {"verbose": "=args.verbose"},
        "headers": {"X-Trace-Id": '=args."X-Trace-Id"'},
        "cookies": {"session": "=args.session"},
    }
    schema = view["input_schema"]
    assert schema["required"] == ["id"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["id"] == {"type": "integer", "description": "Its id."}
    assert schema["properties"]["verbose"] == {"type": "boolean", "default": False}


LIST = {"type": "array", "items": {"type": "string"}}
OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    ("where", "schema", "said", "style"),
    [
        ("query", LIST, {}, None),
        ("query", LIST, {"explode": False}, {"style": "form", "explode": False}),
        ("query", OBJECT, {}, {"style": "form", "explode": True}),
        ("query", LIST, {"style": "spaceDelimited"}, {"style": "spaceDelimited", "explode": False}),
        (
            "query",
            LIST,
            {"style": "pipeDelimited", "explode": True},
            {"style": "pipeDelimited", "explode": True},
        ),
        (
            "query",
            OBJECT,
            {"style": "deepObject", "explode": True},
            {"style": "deepObject", "explode": True},
        ),
        ("query", {"type": "string"}, {"style": "form", "explode": False}, None),
        ("path", LIST, {}, {"style": "simple", "explode": False}),
        ("path", OBJECT, {"explode": True}, {"style": "simple", "explode": True}),
        ("path", {"type": "string"}, {}, None),
        ("path", {"type": "string"}, {"style": "label"}, {"style": "label", "explode": False}),
        ("path", LIST, {"style": "matrix", "explode": True}, {"style": "matrix", "explode": True}),
        ("header", LIST, {}, {"style": "simple", "explode": False}),
        ("cookie", LIST, {"explode": False}, {"style": "form", "explode": False}),
        ("query", {}, {}, {"style": "form", "explode": True}),
        (
            "query",
            {"$ref": "#/components/schemas/L"},
            {"explode": False},
            {"style": "form", "explode": False},
        ),
        ("query", {"enum": ["a", "b"]}, {"explode": False}, None),
    ],
)
def test_styles_are_openapis_with_its_defaults(tmp_path, where, schema, said, style):
    view = one(
        tmp_path,
        {"parameters": [{"name": "c", "in": where, "schema": schema, "required": True, **said}]},
        path="/pets/{c}" if where == "path" else "/pets",
        components={"schemas": {"L": LIST}},
    )
    section = {"header": "headers", "cookie": "cookies"}.get(where, where)
    assert view["target"].get("styles", {}).get(section, {}).get("c") == style


def test_a_parameter_that_is_a_document_is_sent_as_one(tmp_path):
    said = {"name": "f", "in": "query", "content": {"application/json": {"schema": OBJECT}}}
    assert one(tmp_path, {"parameters": [said]})["input_mapping"]["query"] == {
        "f": {"expr": "args.f", "as": "json"}
    }
    said["content"] = {"application/xml": {"schema": OBJECT}}
    assert "the query parameter f is left out: its value is application/xml" in notes(
        tmp_path, {"parameters": [said]}
    )
    assert "its value is application/xml" in refused(
        tmp_path, {"parameters": [{**said, "required": True}]}
    )


def test_parameters_of_the_path_item_count_and_the_operations_own_replace_them(tmp_path):
    made = run(
        tmp_path,
        describe(
            {
                "/pets/{id}": {
                    "parameters": [parameter("id", "path"), parameter("a"), parameter("b")],
                    "get": {"parameters": [parameter("a", schema={"type": "integer"})]},
                }
            }
        ),
    )
    properties = made.views[0]["input_schema"]["properties"]
    assert properties.keys() == {"id", "a", "b"}
    assert properties["a"] == {"type": "integer"}
    assert made.views[0]["input_schema"]["required"] == ["id"]


def test_one_name_in_several_places_makes_several_arguments(tmp_path):
    view = one(
        tmp_path,
        {
            "parameters": [parameter("id", "path"), parameter("id", "query")],
            "requestBody": {"content": {"application/json": {"schema": OBJECT}}},
        },
        path="/pets/{id}",
        method="post",
    )
    assert view["input_mapping"] == {
        "path": {"id": "=args.id"},
        "query": {"id": "=args.id_2"},
        "body": "=args.body",
    }


def test_names_that_clients_refuse_become_names_they_take(tmp_path):
    view = one(
        tmp_path, {"parameters": [parameter("filter[name]"), parameter("$top"), parameter("é")]}
    )
    assert view["input_mapping"]["query"] == {
        "filter[name]": "=args.filter_name",
        "$top": "=args.top",
        "é": "=args.value",
    }


def test_names_in_a_path_may_be_anything_and_may_be_undescribed(tmp_path):
    made = run(
        tmp_path,
        describe(
            {
                "/a/{user.id}/{x y}": {
                    "get": {"parameters": [parameter("user.id", "path"), parameter("zz", "path")]}
                }
            }
        ),
    )
    (view,) = made.views
    assert view["target"]["path"] == "/a/{user_id}/{x_y}"
    assert view["input_mapping"]["path"] == {"user_id": '=args."user.id"', "x_y": "=args.x_y"}
    reasons = [each.reason for each in made.notes]
    assert "{x y} of the path is not described; it takes a text" in reasons
    assert "the path parameter zz is left out: the path has no {zz}" in reasons


def test_what_a_path_says_behind_its_end_is_sent_or_told(tmp_path):
    view = one(tmp_path, {}, path="/pets?action=list&x==y")
    assert view["target"]["path"] == "/pets"
    assert view["input_mapping"] == {"query": {"action": "list", "x": "==y"}}
    made = run(tmp_path, describe({"/pets#all": {"get": {}}}))
    assert made.views[0]["target"]["path"] == "/pets"
    assert "fragment" in made.notes[0].reason


def test_headers_that_are_not_an_operations_are_left_to_whom_they_belong(tmp_path):
    said = [parameter(name, "header") for name in ("Accept", "Content-Type", "Authorization")]
    assert one(tmp_path, {"parameters": said})["input_mapping"] == {"query": {}}
    assert any(
        "Host" in note for note in notes(tmp_path, {"parameters": [parameter("Host", "header")]})
    )
    reason = refused(tmp_path, {"parameters": [parameter("Host", "header", required=True)]})
    assert "the header Host is not for an operation to set" in reason


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (parameter("c", "cookie", LIST), "becomes several cookies"),
        (parameter("expr"), "cannot set the name 'expr'"),
        (parameter("c", style="strange"), "style strange is not known"),
    ],
)
def test_what_cannot_be_written_is_left_out_if_it_may_be_and_else_told(tmp_path, said, reason):
    assert any(reason in note for note in notes(tmp_path, {"parameters": [said]}))
    assert reason in refused(tmp_path, {"parameters": [{**said, "required": True}]})


# -- security and servers ------------------------------------------------------------

SCHEMES = {
    "components": {
        "securitySchemes": {
            "key": {"type": "apiKey", "in": "query", "name": "api_key"},
            "bearer": {"type": "http", "scheme": "bearer"},
        }
    },
    "security": [{"key": []}],
}


def test_credentials_never_become_arguments(tmp_path):
    said = [
        parameter("API_KEY", required=True),
        parameter("token", required=True, description="Authentication token."),
        parameter("page_token", description="Where to go on."),
    ]
    view = one(tmp_path, {"parameters": said}, **SCHEMES)
    assert list(view["input_schema"]["properties"]) == ["page_token"]
    assert "api_key" not in json.dumps(view).lower()


def test_servers_only_suggest_connections(tmp_path):
    made = run(
        tmp_path,
        describe(
            {
                "/a": {"get": {}},
                "/b": {"servers": [{"url": "https://uploads.pets.test/v2"}], "get": {}},
            },
            servers=[
                {"url": "https://{env}.pets.test/v1", "variables": {"env": {"default": "api"}}}
            ],
            **SCHEMES,
        ),
    )
    first, second = made.views
    assert first["target"]["connection"] == "pet_store"
    assert second["target"]["connection"] == "pet_store_uploads"
    assert "pets.test" not in json.dumps(made.views)
    assert made.settings == (
        '[connections.pet_store]\nbase_url = "https://api.pets.test/v1"\n\n'
        '[connections.pet_store.auth]\nkind = "query"\nparameter = "api_key"\n'
        'secret_env = "PET_STORE_SECRET"\n\n'
        '[connections.pet_store_uploads]\nbase_url = "https://uploads.pets.test/v2"\n\n'
        '[connections.pet_store_uploads.auth]\nkind = "query"\nparameter = "api_key"\n'
        'secret_env = "PET_STORE_UPLOADS_SECRET"'
    )


FLOW = {"tokenUrl": "https://auth.test/token", "scopes": {"read": "", "write": ""}}
ASKED = [
    'kind = "client_credentials"',
    'token_url = "https://auth.test/token"',
    'client_id = "NAME"',
    'scopes = ["read", "write"]',
    'secret_env = "PET_STORE_SECRET"',
]


@pytest.mark.parametrize(
    ("scheme", "suggested"),
    [
        ({"type": "oauth2", "flows": {"clientCredentials": FLOW}}, ASKED),
        ({"type": "oauth2", "flow": "application", **FLOW}, ASKED),
        (
            {"type": "oauth2", "flows": {"implicit": {"authorizationUrl": "https://auth.test/"}}},
            ['kind = "bearer"', 'secret_env = "PET_STORE_SECRET"'],
        ),
        (
            {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "/token"}}},
            ['kind = "bearer"', 'secret_env = "PET_STORE_SECRET"'],
        ),
    ],
)
def test_credentials_are_suggested_as_the_description_demands_them(tmp_path, scheme, suggested):
    schemes = {"other": {"type": "http", "scheme": "basic"}, "wanted": scheme}
    made = run(
        tmp_path,
        describe(
            {"/a": {"get": {}}},
            components={"securitySchemes": schemes},
            security=[{}, {"wanted": ["read"]}],
        ),
    )
    assert made.settings.partition("[connections.pet_store.auth]\n")[2].splitlines() == suggested


@pytest.mark.parametrize(
    ("paths", "left"),
    [
        ([1], [("paths", "is no object")]),
        ({"/a": 4}, [("/a", "is no object")]),
        ({"/a": {"get": 3, "post": {}}}, [("GET /a", "is no object")]),
        ({"/a": {"trace": {}, "x-note": 1, "summary": ""}}, [("TRACE /a", "does not send")]),
        ({"/a": {"gett": {}}}, [("gett /a", "is no method")]),
        ({"/a": {"$ref": "#/paths/~1b"}, "/b": {"gett": {}}}, [("gett /a", ""), ("gett /b", "")]),
    ],
)
def test_what_is_no_operation_is_listed_and_not_passed_over(tmp_path, paths, left):
    refused = run(tmp_path, describe(paths)).refused
    assert [each.what for each in refused] == [what for what, _ in left]
    for each, (_, reason) in zip(refused, left, strict=True):
        assert reason in each.reason


def test_webhooks_are_listed_as_what_cannot_be_called(tmp_path):
    made = run(tmp_path, describe({"/a": {"get": {}}}, "3.1.0", webhooks={"born": {"post": {}}}))
    assert len(made.views) == 1
    assert [each.what for each in made.refused] == ["webhook born"]


def test_a_pattern_that_engines_read_differently_is_left_out_without_a_word(tmp_path, recwarn):
    said = [parameter("a", schema={"type": "string", "pattern": "^[[:alpha:]]+$"})]
    view = one(tmp_path, {"parameters": said})
    assert view["input_schema"]["properties"] == {"a": {"type": "string"}}
    assert not recwarn.list


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://api.pets.test/v1", None),
        ("https://8.8.8.8/v1", None),
        ("/v1", None),
        ("http://169.254.169.254/latest", "169.254.169.254 is a link-local address"),
        ("http://[fd00:ec2::254]/", "fd00:ec2::254 is a link-local address"),
        ("http://10.0.0.8/", "10.0.0.8 is a private or loopback address"),
        ("http://127.0.0.1:8080/", "127.0.0.1 is this machine"),
        ("http://localhost/", "localhost is this machine"),
        ("http://0.0.0.0/", "0.0.0.0 is an unspecified"),
        ("http://[10.0.0.8/", None),
        ("http://{h}/", "169.254.169.254 is a link-local address"),
    ],
)
def test_a_server_inside_is_suggested_with_a_question(tmp_path, url, told):
    server = {"url": url, "variables": {"h": {"default": "169.254.169.254"}}}
    made = run(tmp_path, describe({"/a": {"get": {}}}, servers=[server]))
    asked = [left.reason for left in made.notes if left.what == "connection pet_store"]
    flow = {"tokenUrl": url.replace("{h}", "169.254.169.254"), "scopes": {}}
    scheme = {"type": "oauth2", "flows": {"clientCredentials": flow}}
    said = describe({"/a": {"get": {}}}, components={"securitySchemes": {"s": scheme}})
    tokens = [left.reason for left in run(tmp_path, said).notes if left.what == "token_url"]
    assert tokens == asked
    assert len(asked) == (told is not None)
    if told is not None:
        assert told in asked[0]
        assert asked[0].endswith("; is it meant?")


def test_a_suggestion_cannot_break_out_of_its_line(tmp_path):
    import tomllib

    made = run(
        tmp_path,
        describe({"/a": {"get": {}}}, servers=[{"url": 'https://x"\n[server]\nhost = "0.0.0.0'}]),
    )
    assert tomllib.loads(made.settings).keys() == {"connections"}


# -- bodies ----------------------------------------------------------------------


def body(media, schema=None, **more):
    return {
        "requestBody": {"required": True, "content": {media: {"schema": schema or OBJECT, **more}}}
    }


@pytest.mark.parametrize(
    ("media", "content_type", "media_type"),
    [
        ("application/json", "json", None),
        ("application/json; charset=utf-8", "json", None),
        ("application/merge-patch+json", "json", "application/merge-patch+json"),
        ("*/*", "json", None),
        ("application/x-www-form-urlencoded", "form", None),
        ("text/plain", "text", None),
        ("text/csv; charset=utf-8", "text", "text/csv"),
        ("application/octet-stream", "binary", None),
        ("image/png", "binary", "image/png"),
        ("Application/PDF", "binary", "application/pdf"),
    ],
)
def test_bodies_are_sent_as_what_they_are(tmp_path, media, content_type, media_type):
    view = one(tmp_path, body(media), method="post")
    assert view["target"]["content_type"] == content_type
    assert view["target"].get("media_type") == media_type
    assert view["input_mapping"] == {"body": "=args.body"}
    assert view["input_schema"]["required"] == ["body"]


def test_json_is_chosen_before_a_form(tmp_path):
    content = {"application/x-www-form-urlencoded": {}, "application/json": {"schema": OBJECT}}
    view = one(tmp_path, {"requestBody": {"content": content}}, method="post")
    assert view["target"]["content_type"] == "json"
    assert "body" not in view["input_schema"].get("required", [])


def test_what_cannot_be_sent_is_told_or_left_out(tmp_path):
    for media in ("application/x-protobuf", "image/*", "application/a b+json"):
        reason = refused(tmp_path, body(media), method="put")
        assert reason == f"its body may be {media} only"
        optional = {"requestBody": {"content": {media: {}}}}
        assert one(tmp_path, optional, method="put")["target"]["content_type"] == "none"


@pytest.mark.parametrize(
    ("media", "schema", "version"),
    [
        ("application/octet-stream", {}, "3.1.0"),
        ("application/octet-stream", {"type": "string", "format": "binary"}, "3.0.3"),
        ("application/x-protobuf", {"type": "string", "format": "binary"}, "3.0.3"),
        ("image/png", {"$ref": "#/components/schemas/B"}, "3.0.3"),
    ],
)
def test_a_body_of_bytes_is_base64_in_its_argument(tmp_path, media, schema, version):
    said = {"requestBody": {"required": True, "content": {media: {"schema": schema}}}}
    held = {"schemas": {"B": {"type": "string", "format": "binary"}}}
    view = one(tmp_path, said, method="post", version=version, components=held)
    assert view["target"]["content_type"] == "binary"
    assert view["input_schema"]["properties"]["body"] == {
        "type": "string",
        "contentEncoding": "base64",
    }


def test_bytes_are_the_last_choice(tmp_path):
    content = {"application/octet-stream": {}, "application/json": {"schema": OBJECT}}
    view = one(tmp_path, {"requestBody": {"content": content}}, method="post")
    assert view["target"]["content_type"] == "json"


def test_fields_of_forms_have_their_styles(tmp_path):
    schema = {
        "type": "object",
        "properties": {
            "plain": {"type": "string"},
            "tags": LIST,
            "csv": LIST,
            "deep": OBJECT,
            "rows": {"type": "array", "items": OBJECT},
        },
    }
    said = body(
        "application/x-www-form-urlencoded",
        schema,
        encoding={"csv": {"style": "form", "explode": False}, "deep": {"style": "deepObject"}},
    )
    assert one(tmp_path, said, method="post")["target"]["styles"] == {
        "body": {
            "csv": {"style": "form", "explode": False},
            "deep": {"style": "deepObject", "explode": False},
            "rows": {"style": "deepObject", "explode": False},
        }
    }


# -- schemas ---------------------------------------------------------------------


def answer(schema, status="200", media="application/json"):
    return {"responses": {status: {"description": "", "content": {media: {"schema": schema}}}}}


def output(tmp_path, schema, version="3.0.3", **schemas):
    return one(tmp_path, answer(schema), version=version, components={"schemas": schemas})[
        "output_schema"
    ]


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string", "nullable": True}, ["a", None], [5]),
        ({"type": "string", "enum": ["a", "b", "a"], "nullable": True}, ["a", None], ["c"]),
        ({"$ref": "#/components/schemas/S", "nullable": True}, [{"s": "x"}, None], [{"s": 1}]),
        (
            {"allOf": [{"$ref": "#/components/schemas/S"}], "nullable": True},
            [{"s": "x"}, None],
            [{"s": 1}],
        ),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, [2], [1]),
        ({"type": "number", "maximum": 1, "exclusiveMaximum": True}, [0], [1]),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, [1, 1.5], ["a"]),
        (
            {"type": "array", "items": {"$ref": "#/components/schemas/S"}},
            [[{"s": "x"}]],
            [[{"s": 1}]],
        ),
        ({"type": "string", "pattern": r"^\p{Nope}("}, ["anything"], [5]),
        ({"type": "string", "pattern": "^a"}, ["ab"], ["b"]),
        ({"type": "strange"}, ["a", 5, None], []),
        ({"type": "integer", "minimum": "5", "maxLength": -1, "required": True}, [1], ["a"]),
        (
            {
                "type": "object",
                "properties": {"w": {"type": "string", "writeOnly": True}},
                "required": ["w"],
            },
            [{}],
            [5],
        ),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, [{"a": 1}], [{"a": "b"}]),
        ({"type": "object", "not": {"required": ["x"]}}, [{}, {"x": 1}], [5]),
        ({"type": "file"}, ["bytes"], [5]),
    ],
)
def test_schemas_of_3_0_are_told_in_2020_12_and_never_stricter(tmp_path, schema, good, bad):
    small = {"type": "object", "properties": {"s": {"type": "string"}}}
    validator = Validator(
        {"type": "object"}
        | output(tmp_path, {"type": "object", "properties": {"v": schema}}, S=small)
    )
    for value in good:
        assert validator.is_valid({"v": value}), value
    for value in bad:
        assert not validator.is_valid({"v": value}), value


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": ["string", "null"]}, ["a", None], [5]),
        ({"const": 5}, [5], [6]),
        ({"type": "number", "exclusiveMinimum": 1}, [2], [1]),
        ({"type": "array", "prefixItems": [{"type": "string"}]}, [["a", 1]], [[1]]),
        (
            {"type": "object", "patternProperties": {"^a": {"type": "string"}}},
            [{"a": "x"}],
            [{"a": 1}],
        ),
        ({"if": {"type": "string"}, "then": {"minLength": 5}}, ["a"], []),
        ({"$dynamicRef": "#node"}, [1, {}], []),
    ],
)
def test_schemas_of_3_1_keep_what_they_say(tmp_path, schema, good, bad):
    made = output(tmp_path, {"type": "object", "properties": {"v": schema}}, version="3.1.0")
    validator = Validator(made)
    assert all(validator.is_valid({"v": value}) for value in good)
    assert not any(validator.is_valid({"v": value}) for value in bad)


def test_references_are_kept_and_only_what_is_needed_comes_along(tmp_path):
    made = output(
        tmp_path,
        {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}},
        Pet={"type": "object", "properties": {"owner": {"$ref": "#/components/schemas/Owner"}}},
        Owner={"type": "object", "properties": {"name": {"type": "string"}}},
        Other={"type": "object"},
    )
    assert made == {
        "type": "array",
        "items": {"$ref": "#/$defs/Pet"},
        "$defs": {
            "Pet": {"type": "object", "properties": {"owner": {"$ref": "#/$defs/Owner"}}},
            "Owner": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
    }


@pytest.mark.parametrize("root", [True, False])
def test_circles_are_finite_and_still_checked(tmp_path, root):
    node = {
        "type": "object",
        "properties": {
            "value": {"type": "integer"},
            "next": {"$ref": "#/components/schemas/Node"},
        },
    }
    reference = {"$ref": "#/components/schemas/Node"}
    schema = reference if root else {"type": "object", "properties": {"first": reference}}
    made = output(tmp_path, schema, Node=node)
    assert made["type"] == "object"
    tree = {"value": 1, "next": {"value": 2, "next": {"value": "three"}}}
    assert not Validator(made).is_valid(tree if root else {"first": tree})
    tree["next"]["next"]["value"] = 3
    assert Validator(made).is_valid(tree if root else {"first": tree})


@pytest.mark.parametrize(
    "schemas",
    [
        {"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}},
        {"A": {"$ref": "#/components/schemas/A"}},
    ],
)
def test_references_that_only_lead_to_each_other_are_told(tmp_path, schemas):
    reason = refused(
        tmp_path,
        answer({"$ref": "#/components/schemas/A"}),
        components={"schemas": schemas},
    )
    assert reason == "more than 30 references follow each other"


def test_two_schemas_of_one_last_name_are_two(tmp_path):
    schema = {
        "type": "object",
        "properties": {
            "a": {"$ref": "#/components/schemas/X"},
            "b": {"$ref": "#/components/responses/X/content/json/schema"},
        },
    }
    description = describe({"/p": {"get": answer(schema)}})
    description["components"] = {
        "schemas": {"X": {"type": "string"}},
        "responses": {"X": {"content": {"json": {"schema": {"type": "integer"}}}}},
    }
    made = run(tmp_path, description).views[0]["output_schema"]
    assert Validator(made).is_valid({"a": "x", "b": 1})
    assert not Validator(made).is_valid({"a": 1, "b": 1})
    assert not Validator(made).is_valid({"a": "x", "b": "x"})


def wide(levels, width=8):
    schema = {"type": "string", "description": "A leaf of a tree that is much too large. " * 3}
    for _ in range(levels):
        schema = {"type": "object", "properties": {f"p{n}": schema for n in range(width)}}
    return schema


def test_a_large_schema_says_less_the_deeper_it_is_and_that_is_told(tmp_path):
    made = run(tmp_path, describe({"/p": {"get": answer(wide(4))}}), schema_bytes=4096)
    schema = made.views[0]["output_schema"]
    assert len(json.dumps(schema)) < 6000
    assert schema["properties"]["p0"]["type"] == "object"
    assert any("output_schema is told down to" in each.reason for each in made.notes)
    value = {"p0": {"p0": {"p0": {"p0": "x"}}}}
    assert Validator(schema).is_valid(value)
    assert not Validator(schema).is_valid({"p0": 5})


def test_extensions_examples_and_foreign_keywords_never_get_in(tmp_path):
    schema = {
        "type": "object",
        "x-mcp-header": "Host",
        "$id": "http://evil.test/",
        "$schema": "http://evil.test/schema",
        "$anchor": "a",
        "discriminator": {"propertyName": "t"},
        "example": {"secret": "canary"},
        "externalDocs": {"url": "http://evil.test"},
        "xml": {"name": "x"},
        "deprecated": True,
        "properties": {"t": {"type": "string", "x-mcp-header": "Host", "example": "canary"}},
    }
    view = one(tmp_path, {**answer(schema), **body("application/json", schema)}, method="post")
    assert view["output_schema"] == {"type": "object", "properties": {"t": {"type": "string"}}}
    text = json.dumps(view)
    assert not [word for word in ("canary", "evil", "x-mcp", "$id", "xml") if word in text]


def test_what_is_read_only_is_never_asked_for(tmp_path):
    schema = {
        "type": "object",
        "required": ["id", "name"],
        "properties": {
            "id": {"type": "string", "readOnly": True},
            "name": {"type": "string"},
            "at": {"$ref": "#/components/schemas/At"},
        },
    }
    view = one(
        tmp_path,
        body("application/json", schema),
        method="post",
        components={"schemas": {"At": {"type": "string", "readOnly": True}}},
    )
    assert view["input_schema"]["properties"]["body"] == {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    }


# -- answers ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("responses", "schema"),
    [
        ({"200": {"description": ""}}, None),
        ({"204": {"description": ""}}, None),
        ({"default": answer(OBJECT)["responses"]["200"]}, None),
        ({**answer(OBJECT)["responses"], "204": {"description": ""}}, None),
        ({**answer(OBJECT)["responses"], "404": answer(LIST)["responses"]["200"]}, OBJECT),
        (answer(OBJECT, "201")["responses"], OBJECT),
        (answer(OBJECT, "2XX")["responses"], OBJECT),
        (answer(OBJECT, media="application/hal+json")["responses"], OBJECT),
        (answer(OBJECT, media="text/csv")["responses"], None),
        (
            {**answer(OBJECT)["responses"], **answer(LIST, "202")["responses"]},
            {"anyOf": [OBJECT, LIST]},
        ),
    ],
)
def test_only_what_every_good_answer_keeps_is_promised(tmp_path, responses, schema):
    view = one(tmp_path, {"responses": responses})
    assert view["output_schema"] == schema
    expected = {} if schema is None else {"output_validation": "warn"}
    assert view["execution_config"] == expected


def test_answers_need_not_be_described(tmp_path):
    made = run(tmp_path, describe({"/p": {"get": answer(OBJECT)}}), output_schemas=False)
    assert made.views[0]["output_schema"] is None


# -- names and words ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("listPets", "list_pets"),
        ("repos/list-for-org", "repos_list_for_org"),
        ("GET /pets/{petId}", "get_pets_pet_id"),
        ("getHTTPStatus2", "get_http_status_2"),
        ("Ünïcode", "n_code"),
    ],
)
def test_names_are_words_in_snake_case(text, name):
    assert snake(text) == name


def test_names_are_unique_and_at_most_64_long_and_what_was_decided_is_told(tmp_path):
    long = "a_very_long_operation_id_that_goes_on_and_on_and_on_until_nobody_can_read_it_any_more"
    made = run(
        tmp_path,
        describe(
            {
                "/a": {"get": {"operationId": "listPets"}, "post": {"operationId": "list-pets"}},
                "/b": {"get": {"operationId": "list_pets"}, "post": {"operationId": long}},
                "/c": {"get": {"operationId": long}, "put": {}},
            }
        ),
        prefix="pets",
    )
    names = [view["name"] for view in made.views]
    assert names[:3] == ["pets_list_pets", "pets_post_a", "pets_get_b"]
    assert names[5] == "pets_put_c"
    assert len(set(names)) == 6
    assert all(len(name) <= 64 for name in names)
    assert not any(name.endswith("_") for name in names)
    assert "is named pets_post_a: pets_list_pets is the name of another operation" in [
        each.reason for each in made.notes
    ]
    ids = [view["operation_id"] for view in made.views]
    assert ids[0] == "pet_store.listPets"
    assert ids[5] == "pet_store.PUT/c"
    assert len(set(ids)) == 6


def test_a_name_that_does_not_begin_with_a_letter_gets_one():
    names = Names()
    assert names.make("2fa")[0] == "call_2_fa"
    assert names.make("")[0] == "operation"
    assert names.make("!!", "")[0] == "operation_2"


def test_what_has_the_same_name_often_is_numbered_on_from_the_last_one():
    names, ids = Names(), dict[str, int]()
    assert [names.make("same")[0] for _ in range(3)] == ["same", "same_2", "same_3"]
    assert [identity(ids, "c", "o") for _ in range(3)] == ["c.o", "c.o~2", "c.o~3"]
    # It is not looked for again from the first one on: thousands may have one name.
    assert ids["c.o"] == 4
    assert names.make("same_4") == ("same_4", None)
    assert names.make("same")[0] == "same_5"
    assert identity(ids, "c.o~4") == "c.o~4"
    assert identity(ids, "c.o") == "c.o~5"


def test_identities_stay_the_same_when_others_come_and_go(tmp_path):
    first = run(tmp_path, describe({"/a": {"get": {"operationId": "x"}}}))
    second = run(tmp_path, describe({"/0": {"get": {}}, "/a": {"get": {"operationId": "x"}}}))
    assert first.views[0]["operation_id"] == second.views[1]["operation_id"]


def test_descriptions_are_bounded_and_plain(tmp_path):
    view = one(
        tmp_path,
        {
            "summary": "List pets",
            "description": "<p>All of <b>them</b>.</p>\u202e\x00\n\n\n\nMore. " + "Word. " * 400,
            "deprecated": True,
            "tags": ["pets", "<i>x</i>"],
        },
    )
    said = view["tool_description"]
    assert said["text"].startswith("Deprecated. List pets. All of them .")
    assert len(said["text"]) <= 1000
    assert said["text"].endswith("Word.")
    assert said["text"].isprintable() or "\n" in said["text"]
    assert "\u202e" not in said["text"]
    assert said["title"] == "List pets"
    assert said["tags"] == ["pets", "x"]


@pytest.mark.parametrize(
    ("method", "hints", "config"),
    [
        ("get", {"readOnlyHint": True}, {}),
        ("head", {"readOnlyHint": True}, {}),
        ("post", {"readOnlyHint": False}, {}),
        ("patch", {"readOnlyHint": False}, {}),
        ("put", {"readOnlyHint": False, "idempotentHint": True}, {"idempotent": True}),
        (
            "delete",
            {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True},
            {"idempotent": True},
        ),
    ],
)
def test_methods_say_how_an_operation_behaves(tmp_path, method, hints, config):
    view = one(tmp_path, {}, method=method)
    assert view["tool_description"]["annotations"] == hints
    assert view["execution_config"] == config


# -- which -------------------------------------------------------------------------

MANY = describe(
    {
        "/pets": {
            "get": {"operationId": "listPets", "tags": ["Pets"]},
            "post": {"operationId": "addPet", "tags": ["Pets", "write"]},
        },
        "/pets/{id}": {"delete": {"operationId": "deletePet", "tags": ["Pets"]}},
        "/users": {"get": {"operationId": "listUsers", "tags": ["Users"]}},
    }
)


@pytest.mark.parametrize(
    ("include", "exclude", "names"),
    [
        ((), (), ["list_pets", "add_pet", "delete_pet", "list_users"]),
        (("tag=pets",), (), ["list_pets", "add_pet", "delete_pet"]),
        (("tag=pets", "method=get"), (), ["list_pets"]),
        (("method=get", "method=delete"), (), ["list_pets", "delete_pet", "list_users"]),
        (("path=/pets*",), ("path=/pets/*",), ["list_pets", "add_pet"]),
        (("id=list*",), (), ["list_pets", "list_users"]),
        ((), ("tag=write", "id=deletePet"), ["list_pets", "list_users"]),
    ],
)
def test_filters(tmp_path, include, exclude, names):
    made = run(tmp_path, MANY, include=include, exclude=exclude)
    assert [view["name"] for view in made.views] == names
    assert made.filtered == 4 - len(names)


@pytest.mark.parametrize("rule", ["pets", "colour=red", "=x"])
def test_a_filter_that_is_none_is_told(tmp_path, rule):
    with pytest.raises(AuthoringError, match="is no filter"):
        run(tmp_path, MANY, include=[rule])


# -- versions ------------------------------------------------------------------------

SWAGGER = {
    "swagger": "2.0",
    "info": {"title": "Old"},
    "host": "old.test",
    "basePath": "/v1",
    "schemes": ["http", "https"],
    "consumes": ["application/json"],
    "parameters": {"limit": {"name": "limit", "in": "query", "type": "integer", "maximum": 50}},
    "definitions": {
        "Pet": {"type": "object", "properties": {"n": {"type": "string", "x-nullable": True}}}
    },
    "securityDefinitions": {"basic": {"type": "basic"}},
    "paths": {
        "/pets/{id}": {
            "get": {
                "parameters": [
                    {"$ref": "#/parameters/limit"},
                    {"name": "id", "in": "path", "type": "string", "required": True},
                    {"name": "a", "in": "query", "type": "array", "items": {"type": "string"}},
                    {
                        "name": "b",
                        "in": "query",
                        "type": "array",
                        "items": {"type": "string"},
                        "collectionFormat": "multi",
                    },
                    {
                        "name": "c",
                        "in": "query",
                        "type": "array",
                        "items": {"type": "string"},
                        "collectionFormat": "pipes",
                    },
                    {
                        "name": "d",
                        "in": "query",
                        "type": "array",
                        "items": {"type": "string"},
                        "collectionFormat": "tsv",
                    },
                ],
                "responses": {"200": {"description": "", "schema": {"$ref": "#/definitions/Pet"}}},
            },
            "put": {
                "parameters": [
                    {"name": "id", "in": "path", "type": "string", "required": True},
                    {
                        "name": "pet",
                        "in": "body",
                        "required": True,
                        "schema": {"$ref": "#/definitions/Pet"},
                    },
                ]
            },
            "post": {
                "consumes": ["application/x-www-form-urlencoded"],
                "parameters": [
                    {"name": "id", "in": "path", "type": "string", "required": True},
                    {"name": "n", "in": "formData", "type": "string", "required": True},
                    {"name": "t", "in": "formData", "type": "array", "items": {"type": "string"}},
                ],
            },
        }
    },
}


def test_2_0_says_the_same_in_other_words(tmp_path):
    made = run(tmp_path, SWAGGER)
    assert made.refused == []
    get, post, put = made.views
    assert get["target"]["styles"]["query"] == {
        "a": {"style": "form", "explode": False},
        "c": {"style": "pipeDelimited", "explode": False},
    }
    assert get["input_schema"]["properties"]["limit"] == {"type": "integer", "maximum": 50}
    assert "d" not in get["input_schema"]["properties"]
    assert get["output_schema"] == {
        "type": "object",
        "properties": {"n": {"type": ["string", "null"]}},
    }
    assert put["target"]["content_type"] == "json"
    assert put["input_schema"]["required"] == ["id", "body"]
    assert post["target"]["content_type"] == "form"
    assert post["target"]["styles"] == {"body": {"t": {"style": "form", "explode": False}}}
    assert post["input_schema"]["properties"]["body"]["required"] == ["n"]
    assert made.settings.splitlines()[1] == 'base_url = "https://old.test/v1"'
    assert 'kind = "basic"' in made.settings


@pytest.mark.parametrize("version", ["1.2", "4.0.0", "", None, 3])
def test_what_is_no_openapi_is_told(tmp_path, version):
    with pytest.raises(AuthoringError, match=r"is not OpenAPI 2\.0, 3\.0 or 3\.1"):
        run(tmp_path, {"openapi": version, "paths": {}})


def test_nonsense_in_any_place_is_told_or_ignored_and_never_a_crash(tmp_path):
    junk = [None, 5, "x", [], [5], {}, {"$ref": 5}, {"$ref": "#/x"}, True]
    for value in junk:
        for paths in (
            value,
            {"/a": value},
            {"/a": {"get": value}},
            {"/a": {"get": {"parameters": value}}},
            {"/a": {"get": {"parameters": [value]}}},
            {"/a": {"get": {"parameters": [{"name": value, "in": value, "schema": value}]}}},
            {"/a": {"post": {"requestBody": value, "responses": value}}},
            {"/a": {"post": {"requestBody": {"content": value}, "responses": {"200": value}}}},
            {"/a": {"post": {"requestBody": {"content": {"application/json": value}}}}},
            {"/a": {"post": {"responses": {"200": {"content": {"application/json": value}}}}}},
            {"/a": {"get": answer({"type": value, "enum": value, "properties": value})}},
            {"/a": {"get": answer({"items": value, "allOf": value, "required": value})}},
            {"/a": {"get": {"tags": value, "summary": value, "operationId": value}}},
            {"/a": {"get": {"servers": value, "security": value}}},
        ):
            description = describe(paths, servers=value, security=value, components=value)
            made = run(tmp_path, description)
            for view in made.views:
                assert not [
                    f
                    for f in Checker(StandIns()).entry(Entry(view=view, source=""))
                    if f.severity == "fault"
                ]


# -- bodies that are no JSON -------------------------------------------------------

BYTES = {"type": "string", "format": "binary"}


def test_parts_of_multipart_are_what_their_schemas_say(tmp_path):
    schema = {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "tags": LIST,
            "file": BYTES,
            "a-b": {"type": "array", "items": BYTES},
            "meta": OBJECT,
            "rows": {"type": "array", "items": OBJECT},
        },
    }
    view = one(tmp_path, body("multipart/form-data", schema), method="post")
    assert view["target"]["content_type"] == "multipart"
    assert view["input_mapping"]["body"] == {
        "title": "=args.body.title",
        "tags": "=args.body.tags",
        "file": "=args.body.file.{file: @}",
        "a-b": '=args.body."a-b"[*].{file: @}',
        "meta": "=args.body.meta.{json: @}",
        "rows": "=args.body.rows.{json: @}",
    }
    properties = view["input_schema"]["properties"]["body"]["properties"]
    assert properties["file"] == {"type": "string", "contentEncoding": "base64"}
    assert one(tmp_path, body("multipart/form-data", {"type": "object"}), method="post")[
        "input_mapping"
    ] == {"body": "=args.body"}


@pytest.mark.parametrize(
    ("schema", "root"),
    [
        (
            {"type": "object", "xml": {"name": "pet"}, "properties": {"n": {"type": "string"}}},
            "pet",
        ),
        ({"$ref": "#/components/schemas/Pet"}, "Pet"),
    ],
)
def test_xml_is_a_tree_with_one_root(tmp_path, schema, root):
    view = one(
        tmp_path,
        body("application/xml", schema),
        method="post",
        components={
            "schemas": {"Pet": {"type": "object", "properties": {"n": {"type": "string"}}}}
        },
    )
    assert view["target"]["content_type"] == "xml"
    assert view["input_mapping"]["body"] == {root: "=args.body"}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "object", "properties": {}}, "no root element with a name"),
        (
            {"xml": {"name": "p"}, "properties": {"id": {"xml": {"attribute": True}}}},
            "writes 'id' in a way of its own",
        ),
        (
            {
                "xml": {"name": "p"},
                "properties": {"l": {"type": "array", "xml": {"wrapped": True}}},
            },
            "writes 'l'",
        ),
        (
            {
                "xml": {"name": "p"},
                "properties": {"a": {"properties": {"b": {"xml": {"name": "c"}}}}},
            },
            "calls 'b' otherwise",
        ),
    ],
)
def test_xml_with_rules_of_its_own_is_told(tmp_path, schema, reason):
    assert reason in refused(tmp_path, body("application/xml", schema), method="post")


# -- as they are listed ----------------------------------------------------------


SHARED = {
    "Pet": {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string"},
            "kind": {"$ref": "#/components/schemas/Kind"},
            "was": {"$ref": "#/components/schemas/Kind"},
            "owner": {"$ref": "#/components/schemas/Owner"},
            "young": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}},
            "by_name": {
                "type": "object",
                "additionalProperties": {"$ref": "#/components/schemas/Pet"},
            },
        },
    },
    "Owner": {
        "allOf": [
            {"$ref": "#/components/schemas/Being"},
            {"type": "object", "properties": {"pets": {"$ref": "#/components/schemas/Pets"}}},
        ]
    },
    "Pets": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}},
    "Being": {
        "type": "object",
        "properties": {"friend": {"$ref": "#/components/schemas/Owner"}, "n": {"type": "integer"}},
    },
    "Kind": {"type": "string", "enum": ["cat", "dog"]},
}
NULLS = {
    "3.0.3": {
        "plain": {"type": "string", "nullable": True},
        "listed": {"type": "string", "nullable": True, "enum": ["a", "b"]},
        "twice": {"type": "string", "nullable": True, "enum": ["a", None, "b", None, "a"]},
        "pet": {"nullable": True, "allOf": [{"$ref": "#/components/schemas/Pet"}]},
        "beside": {"nullable": True, "$ref": "#/components/schemas/Pet"},
        "some": {"type": "array", "nullable": True, "items": {"type": "string", "nullable": True}},
    },
    "3.1.0": {
        "plain": {"type": ["string", "null"]},
        "listed": {"type": ["string", "null"], "enum": ["a", "b", None]},
        "twice": {"enum": ["a", None, "b", None, "a"]},
        "pet": {"anyOf": [{"$ref": "#/components/schemas/Pet"}, {"type": "null"}]},
        "beside": {"oneOf": [{"type": "null"}, {"$ref": "#/components/schemas/Pet"}]},
        "some": {"type": ["array", "null"], "items": {"type": ["string", "null"]}},
    },
}
TREE = {"name": "Rex", "kind": "dog", "young": [{"name": "Tom", "by_name": {"x": {"name": "y"}}}]}
TREE["owner"] = {"friend": {"friend": {"n": 1}, "pets": [{"name": "z", "was": "cat"}]}}
WITH_NULLS = [
    dict(zip(NULLS["3.0.3"], values, strict=True))
    for values in ([None] * 6, ["a", "b", "a", TREE, TREE, ["x", None]])
]


def references(schema):
    if isinstance(schema, dict):
        here = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
        return here + [found for part in schema.values() for found in references(part)]
    if isinstance(schema, list):
        return [found for part in schema for found in references(part)]
    return []


def enumerations(schema):
    if isinstance(schema, dict):
        here = [schema["enum"]] if isinstance(schema.get("enum"), list) else []
        return here + [found for part in schema.values() for found in enumerations(part)]
    if isinstance(schema, list):
        return [found for part in schema for found in enumerations(part)]
    return []


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
@pytest.mark.parametrize("room", [16_384, 400])
def test_recursive_shared_and_nullable_schemas_stand_by_themselves(tmp_path, version, room):
    pet = {"$ref": "#/components/schemas/Pet"}
    whole = {"type": "object", "properties": {"tree": pet, **NULLS[version]}}
    kind = {"name": "kind", "in": "query", "schema": {"$ref": "#/components/schemas/Kind"}}
    said = {
        "parameters": [kind, {**kind, "name": "other"}],
        **body("application/json", {"$ref": "#/components/schemas/Whole"}),
        **answer({"$ref": "#/components/schemas/Whole"}),
    }
    schemas = {**SHARED, "Whole": whole}
    description = describe({"/p": {"post": said}}, version, components={"schemas": schemas})
    (view,) = run(tmp_path, description, schema_bytes=room).views
    tool = parse(view).to_tool()
    for schema in (tool.input_schema, tool.output_schema):
        jsonschema.Draft202012Validator.check_schema(schema)
        assert len(json.dumps(schema)) < 2 * 16_384
        for reference in references(schema):
            assert reference.startswith("#/$defs/")
            assert reference.removeprefix("#/$defs/") in schema["$defs"]
        for listed in enumerations(schema):
            assert len({json.dumps(value) for value in listed}) == len(listed)
    takes = jsonschema.Draft202012Validator(tool.input_schema)
    gives = jsonschema.Draft202012Validator(tool.output_schema)
    for nulls in WITH_NULLS:
        value = {"tree": TREE, **nulls}
        assert list(gives.iter_errors(value)) == []
        assert list(takes.iter_errors({"body": value, "kind": "cat", "other": "dog"})) == []
    if room > 1_000:
        # And they still say what they said.
        for wrong in (
            {"plain": 5},
            {"listed": "c"},
            {"twice": "c"},
            {"pet": {}},
            {"beside": {"name": 5}},
            {"some": [5]},
            {"tree": {"name": "x", "young": [{"name": "y", "young": [{}]}]}},
            {"tree": {"name": "x", "owner": {"friend": {"friend": {"n": "1"}}}}},
        ):
            assert not gives.is_valid(wrong), wrong
            assert not takes.is_valid({"body": wrong}), wrong
        assert not takes.is_valid({"body": {}, "kind": "cow"})
