"""Importing GraphQL: arguments become variables, fields a bounded selection set."""

from __future__ import annotations

import json

import graphql
import pytest

from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.authoring.graphql_importer import Options, import_graphql
from mcp_trio.json_schema import Validator
from tests.authoring.test_openapi_hostile import Site

SDL = """
scalar DateTime
scalar JSON
scalar Long
scalar Money
scalar Upload

type Query {
  "A pet by its id."
  pet(id: ID!, lang: Lang = EN, at: DateTime): Pet
  pets(first: Int, after: String, filter: Filter): Pets!
  search(text: String!): [Found!]!
  node(id: ID!): Node
  version: String!
  old: String @deprecated(reason: "gone")
}
type Mutation {
  addPet(input: NewPet!): Pet
  setPhoto(id: ID!, file: Upload!): Boolean
  note(id: ID!, file: Upload): Boolean
}
type Subscription { petAdded: Pet }
enum Lang { EN DE }
input Filter { name: String and: [Filter!] born: DateTime = "2020" price: Money }
input NewPet { name: String! tags: [String!] owner: Filter price: Long }
interface Node { id: ID! }
type Pet implements Node {
  id: ID! name: String! born: DateTime price: Money weight: Long lang: Lang extra: JSON
  owner: Owner
  secret(key: String!): String
  friends(first: Int, after: String): Pets
  gone: String @deprecated
}
type Pets { nodes: [Pet!] pageInfo: PageInfo! total: Int! }
type PageInfo { endCursor: String hasNextPage: Boolean! }
type Owner implements Node { id: ID! name: String pets(first: Int): Pets title: Int }
type Toy { title: String! }
union Found = Pet | Owner | Toy
"""


@pytest.fixture
def schema(tmp_path):
    path = tmp_path / "schema.graphql"
    path.write_text(SDL)
    return path


def run(path, **options):
    return import_graphql(str(path), Options(**options))


def named(path, name, **options):
    return {view["name"]: view for view in run(path, **options).views}[name]


def test_each_field_of_the_root_types_is_one_operation_or_is_told(schema):
    made = run(schema)
    assert [view["name"] for view in made.views] == [
        "pet",
        "pets",
        "search",
        "node",
        "version",
        "old",
        "add_pet",
        "note",
    ]
    assert {(left.what, left.reason) for left in made.refused} == {
        ("mutation setPhoto", "it takes a file, which does not travel in JSON"),
        ("subscription petAdded", "a subscription gives no one answer"),
    }
    assert [view["operation_id"] for view in made.views][:2] == [
        "graphql.query.pet",
        "graphql.query.pets",
    ]


def test_every_document_is_valid_for_the_schema(schema):
    built = graphql.build_schema(SDL)
    for depth in range(4):
        for view in run(schema, depth=depth).views:
            document = graphql.parse(view["target"]["document"])
            assert graphql.validate(built, document) == []


def test_arguments_become_variables(schema):
    view = named(schema, "pet")
    assert view["target"]["document"].splitlines()[:2] == [
        "query Pet($id: ID!, $lang: Lang, $at: DateTime) {",
        "  pet(id: $id, lang: $lang, at: $at) {",
    ]
    assert view["target"]["operation_name"] == "Pet"
    assert view["input_mapping"] == {
        "variables": {"id": "=args.id", "lang": "=args.lang", "at": "=args.at"}
    }
    assert view["input_schema"] == {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "lang": {"type": "string", "enum": ["EN", "DE"]},
            "at": {"type": "string", "format": "date-time"},
        },
        "required": ["id"],
        "additionalProperties": False,
    }
    assert view["output_mapping"] == {"result": "=data.pet"}
    assert view["tool_description"]["text"] == "A pet by its id."


def test_input_types_may_go_round_in_circles(schema):
    made = named(schema, "pets")["input_schema"]
    assert made["$defs"].keys() == {"Filter"}
    validator = Validator(made)
    assert validator.is_valid({"filter": {"and": [{"and": [{"name": None}]}]}})
    assert not validator.is_valid({"filter": {"and": [{"and": [{"name": 5}]}]}})
    assert not validator.is_valid({"filter": {"or": []}})


def test_what_is_needed_is_required_and_null_is_a_value_inside(schema):
    validator = Validator(named(schema, "add_pet")["input_schema"])
    assert validator.is_valid({"input": {"name": "Rex", "tags": None, "price": "9007199254740993"}})
    assert validator.is_valid({"input": {"name": "Rex", "price": 9007199254740993}})
    assert not validator.is_valid({"input": {"tags": []}})
    assert not validator.is_valid({"input": {"name": None}})
    assert not validator.is_valid({})


def test_a_file_that_need_not_be_given_is_left_out(schema):
    view = named(schema, "note")
    assert list(view["input_schema"]["properties"]) == ["id"]
    assert "file" not in view["target"]["document"]


def test_selections_are_as_deep_as_wanted_and_leave_out_what_needs_arguments(schema):
    shallow = named(schema, "pet", depth=0)["target"]["document"]
    assert shallow.split() == [
        "query",
        "Pet($id:",
        "ID!,",
        "$lang:",
        "Lang,",
        "$at:",
        "DateTime)",
        "{",
        "pet(id:",
        "$id,",
        "lang:",
        "$lang,",
        "at:",
        "$at)",
        "{",
        "id",
        "name",
        "born",
        "price",
        "weight",
        "lang",
        "extra",
        "}",
        "}",
    ]
    deep = named(schema, "pet", depth=1)["target"]["document"]
    assert "owner {" in deep
    assert "friends(first: 10) {" in deep
    assert "secret" not in deep
    assert "gone" not in deep
    deeper = named(schema, "pet", depth=2)["target"]["document"]
    assert "pageInfo {" in deeper


def test_selections_are_bounded_and_that_is_told(schema):
    made = run(schema, fields=4, include=["name=pet"])
    (view,) = made.views
    assert view["target"]["document"].count("\n") < 12
    assert "the answer has more fields than are asked for" in [each.reason for each in made.notes]


def test_types_of_a_union_give_their_fields_unless_they_quarrel(schema):
    view = named(schema, "search")
    document = view["target"]["document"]
    assert "... on Pet { id name born" in document
    # Owner.name may be null and Pet.name may not, Toy.title is a text and Owner.title a number:
    # one answer cannot have both under one name.
    assert "... on Owner { id title }" in document
    assert "... on Toy" not in document
    assert view["output_schema"]["type"] == "array"
    assert view["output_schema"]["items"]["properties"]["__typename"] == {"type": "string"}


def test_an_interface_gives_its_own_fields_and_those_of_its_types(schema):
    document = named(schema, "node")["target"]["document"]
    assert "id\n" in document
    assert "... on Pet { name born" in document


def test_fields_without_a_selection(schema):
    view = named(schema, "version")
    assert view["target"]["document"] == "query Version {\n  version\n}\n"
    assert view["output_schema"] == {"type": "string"}
    assert view["input_mapping"] == {"variables": {}}


def test_answers_may_be_null_where_the_schema_says_so(schema):
    validator = Validator(named(schema, "pet", depth=1)["output_schema"])
    good = {"id": "1", "name": "Rex", "born": None, "weight": 5, "extra": [1], "owner": None}
    assert validator.is_valid(good)
    assert validator.is_valid(None)
    assert validator.is_valid({**good, "weight": "9007199254740993"})
    assert not validator.is_valid({**good, "name": None})


def test_scalars_are_what_somebody_says_they_are(schema):
    made = run(schema)
    assert [(each.what, each.reason) for each in made.notes if each.what == "scalars"] == [
        ("scalars", "nothing is known of Money; say it with --scalar NAME=SCHEMA")
    ]
    money = {"type": "string", "pattern": "^[0-9]+ [A-Z]{3}$"}
    made = run(schema, scalars={"Money": money, "DateTime": {"type": "integer"}})
    assert "Money" not in " ".join(each.reason for each in made.notes)
    views = {view["name"]: view for view in made.views}
    assert views["pet"]["input_schema"]["properties"]["at"] == {"type": "integer"}
    price = views["pet"]["output_schema"]["properties"]["price"]
    assert price == {**money, "type": ["string", "null"]}


def test_queries_are_read_only_and_mutations_are_not(schema):
    hints = {v["name"]: v["tool_description"]["annotations"] for v in run(schema).views}
    assert hints["pet"] == {"readOnlyHint": True}
    assert hints["add_pet"] == {"readOnlyHint": False}


def test_filters_and_names(schema):
    made = run(schema, include=["kind=query", "name=p*"], exclude=["name=pets"], prefix="zoo")
    assert [view["name"] for view in made.views] == ["zoo_pet"]
    assert made.filtered == 9
    with pytest.raises(AuthoringError, match="is no filter"):
        run(schema, include=["tag=x"])


def test_a_query_and_a_mutation_of_one_name_are_two_operations(tmp_path):
    path = tmp_path / "s.graphql"
    path.write_text("type Query { pet: Int }\ntype Mutation { pet: Int }")
    made = run(path)
    assert [view["name"] for view in made.views] == ["pet", "mutation_pet"]
    assert made.notes[0].reason == "is named mutation_pet: pet is the name of another operation"


def introspection():
    return graphql.introspection_from_schema(graphql.build_schema(SDL))


def test_an_introspection_is_as_good_as_sdl(schema, tmp_path):
    path = tmp_path / "schema.json"
    for value in (introspection(), {"data": introspection()}):
        path.write_text(json.dumps(value))
        assert run(path).views == run(schema).views


def test_an_endpoint_is_asked_itself_with_its_token(schema, monkeypatch):
    site = Site()
    try:
        bodies = []

        def answer(handler):
            size = int(handler.headers["content-length"])
            bodies.append(json.loads(handler.rfile.read(size)))
            handler.send_response(200)
            handler.end_headers()
            handler.wfile.write(json.dumps({"data": introspection()}).encode())

        site.pages["/graphql"] = answer
        site.serve_posts()
        made = import_graphql(
            f"{site.url}/graphql", Options(connection="zoo"), {"authorization": "Bearer t"}
        )
        assert made.views[0]["target"]["document"] == run(schema).views[0]["target"]["document"]
        assert "__schema" in bodies[0]["query"]
        assert site.asked == [("/graphql", "Bearer t")]
        assert made.settings.splitlines()[:2] == [
            "[connections.zoo]",
            f'base_url = "{site.url}/graphql"',
        ]
        assert "127.0.0.1" not in json.dumps(made.views)
    finally:
        site.close()


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("s.graphql", "type Query {", "s.graphql:1: is no GraphQL schema"),
        ("s.graphql", "type Query { a: Nope }", "is no GraphQL schema"),
        ("s.graphql", "query { a }", "has neither a query nor a mutation type"),
        ("s.graphql", "type Query { a: " + "[" * 50_000, "nested too deep|is no GraphQL schema"),
        ("s.json", '{"errors": [{"message": "no"}]}', "is no introspection of a schema: .*no"),
        ("s.json", '{"__schema": {"types": 5}}', "is no GraphQL schema"),
        ("s.json", '{"__schema": ', "not JSON"),
        ("s.graphql", b"\xff\xfe", "is not UTF-8"),
    ],
)
def test_what_is_no_schema_is_told(tmp_path, name, text, reason):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(AuthoringError, match=reason):
        if run(path).views == []:
            raise AuthoringError("has no operations")


def test_a_scalar_that_the_schema_does_not_have_is_a_mistake(tmp_path):
    path = tmp_path / "s.graphql"
    path.write_text("type Query { a: Int }")
    with pytest.raises(AuthoringError, match="has no scalar Money"):
        run(path, scalars={"Money": {"type": "string"}})
