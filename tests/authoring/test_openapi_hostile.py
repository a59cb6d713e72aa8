"""Descriptions by people who mean no good: nothing beside the description is read or asked."""

from __future__ import annotations

import http.server
import json
import threading

import pytest

from mcp_trio.authoring import fetching
from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.authoring.fetching import Library, OutsideError
from mcp_trio.authoring.openapi.importer import Options, import_openapi
from mcp_trio.authoring.yaml_text import write_yaml
from mcp_trio.json_schema import Validator


class Site:
    """A web server of this test; notes what it was asked."""

    def __init__(self):
        self.asked = []
        self.pages = {}
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                site.asked.append((self.path, self.headers.get("authorization")))
                page = site.pages.get(self.path)
                if callable(page):
                    page(self)
                    return
                self.send_response(404 if page is None else 200)
                self.end_headers()
                self.wfile.write(page or b"")

            def log_message(self, *args):
                pass

        self._handler = Handler
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def serve_posts(self):
        self._handler.do_POST = self._handler.do_GET

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def site():
    made = Site()
    yield made
    made.close()


@pytest.fixture
def other():
    made = Site()
    yield made
    made.close()


def redirect(target):
    def page(handler):
        handler.send_response(302)
        handler.send_header("Location", target)
        handler.end_headers()

    return page


def with_reference(reference, key="schema"):
    schema = {"$ref": reference}
    operation = {"responses": {"200": {"content": {"application/json": {"schema": schema}}}}}
    if key == "parameter":
        operation = {"parameters": [schema]}
    return {
        "openapi": "3.0.0",
        "info": {"title": "t"},
        "paths": {"/good": {"get": {}}, "/bad": schema if key == "item" else {"get": operation}},
    }


def imported(place, **headers):
    return import_openapi(Library(str(place), headers), Options())


def write(folder, description, name="api.json"):
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(json.dumps(description))
    return path


@pytest.mark.parametrize("key", ["schema", "parameter", "item"])
@pytest.mark.parametrize(
    "reference",
    [
        "file:///etc/passwd",
        "file:///etc/passwd#/root",
        "/etc/passwd",
        "../secret.json#/x",
        "folder/../../secret.json",
        "%2e%2e/secret.json",
        "file://host/etc/passwd",
        "file:////etc/passwd",
        "http://127.0.0.1:1/x",
        "//127.0.0.1:1/x",
        "gopher://127.0.0.1:1/x",
        "data:application/json,{}",
        "link.json",
        "api.json%00",
        "missing.json",
    ],
)
def test_references_that_lead_away_from_a_file_are_told_and_never_followed(
    tmp_path, reference, key, monkeypatch
):
    def never(*_args, **_options):
        raise AssertionError("something was fetched")

    monkeypatch.setattr(fetching, "download", never)
    (tmp_path / "secret.json").write_text('{"x": {"type": "canary"}}')
    folder = tmp_path / "inside"
    path = write(folder, with_reference(reference, key))
    (folder / "link.json").symlink_to(tmp_path / "secret.json")
    made = imported(path)
    assert [view["name"] for view in made.views] == ["get_good"]
    (left,) = made.refused
    assert "/bad" in left.what
    assert "$ref to" in left.reason
    assert "root:" not in left.reason
    assert "canary" not in json.dumps(made.document())


def test_files_beside_and_below_the_description_belong_to_it(tmp_path):
    schema = "models/pet.yaml#/Pet"
    path = write(tmp_path, with_reference(schema))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "pet.yaml").write_text(
        "Pet: {type: object, properties: {o: {$ref: 'owner.json'}, s: {$ref: '#/S'}, r: "
        "{$ref: '../api.json#/info'}}}\nS: {type: string}\n"
    )
    write(
        tmp_path / "models",
        {"type": "object", "properties": {"n": {"type": "integer"}}},
        "owner.json",
    )
    made = imported(path)
    assert made.refused == []
    schema = made.views[1]["output_schema"]
    assert schema["properties"]["o"] == {"$ref": "#/$defs/owner.json"}
    assert schema["$defs"]["owner.json"]["properties"] == {"n": {"type": "integer"}}
    assert schema["$defs"]["S"] == {"type": "string"}


def test_whole_operations_may_stand_in_files_of_their_own(tmp_path):
    description = with_reference("#/info")
    description["paths"] = {
        "/a/{id}": {"get": {"$ref": "paths/get.yaml"}, "put": {"$ref": "../outside.yaml"}}
    }
    path = write(tmp_path / "api", description)
    (tmp_path / "api" / "paths").mkdir()
    (tmp_path / "api" / "paths" / "get.yaml").write_text(
        "operationId: getA\ntags: [x]\nparameters: [{$ref: '../parameters.yaml#/id'}]\n"
        "responses: {'200': {$ref: '../answers.yaml'}}\n"
    )
    (tmp_path / "api" / "parameters.yaml").write_text(
        "id: {name: id, in: path, schema: {$ref: 'answers.yaml#/schema'}}\n"
    )
    (tmp_path / "api" / "answers.yaml").write_text(
        "schema: {type: integer}\ncontent: {application/json: {schema: {$ref: '#/schema'}}}\n"
    )
    made = import_openapi(Library(str(path)), Options(include=["tag=x"]))
    (view,) = made.views
    assert view["name"] == "get_a"
    for schema, value in ((view["input_schema"], {"id": 5}), (view["output_schema"], 5)):
        assert Validator(schema).is_valid(value)
        assert not Validator(schema).is_valid({"id": "x"})
    assert [left.what for left in made.refused] == ["PUT /a/{id}"]


def test_an_address_may_refer_to_its_own_origin_and_to_no_other(site, other, tmp_path):
    secret = tmp_path / "x.json"
    secret.write_text("{}")
    site.pages["/v1/pet.json"] = json.dumps({"type": "object", "properties": {}}).encode()
    for reference, good in (
        ("pet.json", True),
        (f"{site.url}/v1/pet.json", True),
        (f"{other.url}/pet.json", False),
        (f"{site.url.replace('127.0.0.1', 'localhost')}/v1/pet.json", False),
        (f"file://{secret}", False),
        ("http://169.254.169.254/latest/meta-data", False),
    ):
        site.pages["/v1/api.json"] = json.dumps(with_reference(reference)).encode()
        made = imported(f"{site.url}/v1/api.json", authorization="Bearer t")
        assert (len(made.views) == 2) is good, reference
        if not good:
            assert "of another origin and was not fetched" in made.refused[0].reason
    assert other.asked == []
    assert {token for _, token in site.asked} == {"Bearer t"}


def test_the_origin_of_a_description_may_be_inside(site):
    page = {**with_reference("#/info"), "servers": [{"url": "/v1"}]}
    site.pages["/a"] = json.dumps(page).encode()
    assert imported(f"{site.url}/a").notes == []
    page["servers"] = [{"url": "http://127.0.0.2/v1"}]
    site.pages["/a"] = json.dumps(page).encode()
    assert "127.0.0.2 is this machine" in imported(f"{site.url}/a").notes[0].reason


def test_redirects_are_followed_within_the_origin_only(site, other):
    site.pages["/a"] = redirect("/b")
    site.pages["/b"] = json.dumps(with_reference("#/info")).encode()
    assert len(imported(f"{site.url}/a", authorization="Bearer t").views) == 2
    site.pages["/c"] = redirect(f"{other.url}/b")
    with pytest.raises(OutsideError, match="which is of another origin"):
        imported(f"{site.url}/c", authorization="Bearer t")
    site.pages["/loop"] = redirect("/loop")
    with pytest.raises(AuthoringError, match="redirects more than"):
        imported(f"{site.url}/loop")
    site.pages["/file"] = redirect("file:///etc/passwd")
    with pytest.raises(AuthoringError):
        imported(f"{site.url}/file")
    assert other.asked == []


def test_answers_that_are_none_or_too_large_are_told(site, monkeypatch):
    with pytest.raises(AuthoringError, match="answered 404"):
        imported(f"{site.url}/none")
    with pytest.raises(AuthoringError, match="cannot get"):
        imported("http://127.0.0.1:1/x")
    monkeypatch.setattr("mcp_trio.authoring.documents.MAX_BYTES", 1000)
    site.pages["/large"] = b" " * 2000
    with pytest.raises(AuthoringError, match="is larger than"):
        imported(f"{site.url}/large")


def test_a_description_has_a_bounded_number_of_documents(tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "MAX_DOCUMENTS", 3)
    for n in range(5):
        write(tmp_path, {"properties": {"n": {"$ref": f"d{n + 1}.json"}}}, f"d{n}.json")
    made = imported(write(tmp_path, with_reference("d0.json")))
    assert "more than 3 documents" in made.refused[0].reason
    monkeypatch.setattr(fetching, "MAX_TOTAL", 10)
    with pytest.raises(AuthoringError, match="is larger than"):
        imported(tmp_path / "api.json")


def test_a_bomb_of_aliases_costs_nothing(tmp_path):
    lines = ["openapi: 3.0.0", "info: {title: t}", "a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    path = tmp_path / "api.yaml"
    path.write_text("\n".join(lines))
    with pytest.raises(AuthoringError, match="more than 5000000 values"):
        imported(path)


def test_a_hundred_megabytes_are_refused_unread(tmp_path):
    path = tmp_path / "api.json"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    with pytest.raises(AuthoringError, match="larger than 64 MiB"):
        imported(path)


@pytest.mark.parametrize("text", ['{"a":' * 50_000, "[" * 50_000, "a: " + "{b: " * 50_000])
def test_deep_nesting_is_refused(tmp_path, text):
    path = tmp_path / "api.yaml"
    path.write_text(text)
    with pytest.raises(AuthoringError, match="levels deep"):
        imported(path)


def test_schemas_that_multiply_by_references_stay_small(tmp_path):
    schemas = {"S0": {"type": "string"}}
    for n in range(1, 40):
        inner = {"$ref": f"#/components/schemas/S{n - 1}"}
        schemas[f"S{n}"] = {"type": "object", "properties": dict.fromkeys("abcdefghij", inner)}
    description = with_reference("#/components/schemas/S39")
    made = imported(write(tmp_path, {**description, "components": {"schemas": schemas}}))
    assert len(json.dumps(made.views[1]["output_schema"])) < 40_000


def test_an_inline_schema_as_deep_as_a_document_may_be_stays_within_a_view(tmp_path):
    schema = {"type": "string"}
    for _ in range(60):
        schema = {"type": "object", "properties": {"a": schema}}
    description = with_reference("#/x")
    description["x"] = schema
    made = imported(write(tmp_path, description))
    assert made.refused == []
    assert len(made.views) == 2


def test_texts_cannot_break_out_of_the_file_that_is_written(tmp_path):
    evil = "x\n- operation_id: evil\n  name: evil\n\u0085\u2028---\n...\n'\"#{[&*!|>%@`"
    description = {
        "openapi": "3.0.0",
        "info": {"title": evil},
        "paths": {
            f"/{evil}": {
                "get": {"operationId": evil, "description": evil, "tags": [evil]},
            },
            "/ok": {"get": {"description": evil, "parameters": [{"name": evil, "in": "query"}]}},
        },
    }
    made = imported(write(tmp_path, description))
    path = tmp_path / "ops.yaml"
    path.write_text(write_yaml(made.document()))
    from mcp_trio.authoring.sources import read_source

    found = read_source(str(path))
    assert [entry.view for entry in found.entries] == made.views
    assert all(view["name"].isidentifier() for view in made.views)
