"""Importing gRPC: methods as operations, with the descriptor they need and schemas of JSON."""

from __future__ import annotations

import base64
import json
from concurrent import futures
from pathlib import Path

import grpc
import pytest
import trio
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from grpc_reflection.v1alpha import reflection

from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.authoring.grpc_importer import Options, import_grpc
from mcp_trio.authoring.grpc_schemas import json_name
from mcp_trio.authoring.grpc_sources import load_files
from mcp_trio.catalog.operation import parse
from mcp_trio.json_schema import Validator
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.grpc_connection import GrpcConnection
from mcp_trio.runtime.http_connection import HttpConnection
from tests.runtime.conftest import make_context

PROTO = str(Path(__file__).parent / "pets.proto")


def run(*places, metadata=None, **options):
    return import_grpc(places or (PROTO,), Options(**options), metadata)


@pytest.fixture(scope="module")
def imported():
    return run()


def view_of(made, name):
    return {view["name"]: view for view in made.views}[name]


def message_of(view, name):
    """A class for a message, from nothing but what the view carries."""
    pool = descriptor_pool.DescriptorPool()
    raw = base64.b64decode(view["target"]["descriptor"])
    for file in descriptor_pb2.FileDescriptorSet.FromString(raw).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name)), pool


def test_unary_and_server_streaming_methods_are_operations_and_the_others_are_told(imported):
    assert [view["name"] for view in imported.views] == [
        "pets_get_pet",
        "pets_watch_pets",
        "pets_delete_pet",
        "others_get_pet",
    ]
    assert {(left.what, left.reason) for left in imported.refused} == {
        ("zoo.v1.Pets/Upload", "it takes a stream of messages, and a call has one"),
        ("zoo.v1.Pets/Chat", "it takes a stream of messages, and a call has one"),
    }
    view = view_of(imported, "pets_get_pet")
    assert view["operation_id"] == "zoo_v_1.zoo.v1.Pets/GetPet"
    assert view["target"].keys() == {"connection", "service", "method", "descriptor"}
    assert (view["target"]["service"], view["target"]["method"]) == ("zoo.v1.Pets", "GetPet")
    assert view["input_mapping"] == {"message": "=args"}
    assert view["tool_description"] == {
        "text": "Gets a pet by its id. Not found is an error.",
        "tags": ["Pets"],
        "annotations": {"readOnlyHint": True},
    }


def test_behaviour_is_what_the_options_say(imported):
    view = view_of(imported, "pets_delete_pet")
    assert view["execution_config"]["idempotent"] is True
    assert view["tool_description"]["annotations"] == {"idempotentHint": True}
    assert view["tool_description"]["text"].startswith("Deprecated. Delete pet of Pets.")
    assert "idempotent" not in view_of(imported, "pets_watch_pets")["execution_config"]


def test_the_descriptor_stands_by_itself_and_holds_only_what_is_needed(imported):
    view = view_of(imported, "others_get_pet")
    raw = base64.b64decode(view["target"]["descriptor"])
    files = {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(raw).file}
    assert files.keys() == {"pets.proto", "google/protobuf/field_mask.proto"}
    own = files["pets.proto"]
    assert {message.name for message in own.message_type} == {"GetPetRequest", "Other"}
    assert [(s.name, [m.name for m in s.method]) for s in own.service] == [("Others", ["GetPet"])]
    assert not own.HasField("source_code_info")
    assert list(own.enum_type) == []
    for each in imported.views:
        _, pool = message_of(each, "zoo.v1.GetPetRequest")
        assert pool.FindServiceByName(each["target"]["service"])


SAMPLE = {
    "id": "18446744073709551615",
    "name": "Rex",
    "kind": "DOG",
    "size": "LARGE",
    "toys": [{"name": "ball", "owner": {"name": "Rex"}}],
    "scores": {"a": 1},
    "byYear": {"2020": {"name": "bone"}},
    "house": "h",
    "tame": False,
    "picture": "AAE=",
    "weight": "NaN",
    "born": "2020-01-02T03:04:05Z",
    "naps": "1.500s",
    "extra": {"a": [1.0, None]},
    "anything": [True],
    "nick": "R",
    "level": -5,
    "tag": 4294967295,
}


def test_answers_are_described_as_protobuf_writes_them(imported):
    view = view_of(imported, "pets_get_pet")
    message, _ = message_of(view, "zoo.v1.Pet")
    written = json_format.MessageToDict(json_format.ParseDict(SAMPLE, message()))
    assert written == SAMPLE
    validator = Validator(view["output_schema"])
    assert validator.violations(written) == []
    assert validator.violations({}) == []
    assert validator.is_valid({"kind": 77})
    assert not validator.is_valid({"id": 5})
    assert not validator.is_valid({"toys": [{"owner": {"name": 5}}]})
    assert not validator.is_valid({"scores": {"a": "x"}})


def test_a_stream_of_answers_is_a_list_of_them(imported):
    schema = view_of(imported, "pets_watch_pets")["output_schema"]
    assert Validator(schema).is_valid([SAMPLE, {}])
    assert not Validator(schema).is_valid(SAMPLE)


def test_what_is_sent_is_described_as_protobuf_reads_it(tmp_path):
    path = tmp_path / "echo.proto"
    text = Path(PROTO).read_text() + "\nservice Echo { rpc Say(Pet) returns (Pet); }\n"
    path.write_text(text)
    view = view_of(run(str(path)), "echo_say")
    validator = Validator(view["input_schema"])
    message, _ = message_of(view, "zoo.v1.Pet")
    for value, good in (
        (SAMPLE, True),
        ({}, True),
        ({"house": "h", "cage": 1}, False),
        ({"cage": 1}, True),
        ({"kind": "CAT"}, False),
        ({"id": "-1"}, False),
        ({"level": 2**31}, False),
        ({"tag": -1}, False),
        ({"naps": "1 hour"}, False),
        ({"unknown": 1}, False),
        ({"nick": None}, True),
    ):
        assert validator.is_valid(value) is good, value
        if good:
            json_format.ParseDict(value, message())


def test_large_numbers_are_texts(imported):
    schema = view_of(imported, "pets_get_pet")["input_schema"]
    assert schema["properties"]["petId"] == {
        "type": "string",
        "pattern": "^-?[0-9]+$",
        "description": "The id.",
    }
    assert schema["properties"]["fields"] == {"type": "string"}


def test_messages_that_outgrow_their_room_are_left_open_and_that_is_told():
    made = run(schema_bytes=300)
    assert "output_schema leaves some messages open" in [each.reason for each in made.notes]
    assert len(json.dumps(view_of(made, "pets_get_pet")["output_schema"])) < 3_000


def test_filters():
    made = run(include=["service=zoo.v1.Pets", "method=Get*"])
    assert [view["name"] for view in made.views] == ["pets_get_pet"]
    assert made.filtered == 5
    with pytest.raises(AuthoringError, match="is no filter"):
        run(include=["path=x"])


def descriptor_set():
    files = load_files([PROTO])
    return descriptor_pb2.FileDescriptorSet(file=files.values())


def test_a_descriptor_set_is_as_good(tmp_path, imported):
    path = tmp_path / "set.pb"
    path.write_bytes(descriptor_set().SerializeToString())
    assert run(str(path)).views == imported.views


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_a_server_that_offers_reflection_is_asked(imported, version, monkeypatch):
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_set().file:
        pool.Add(file)
    seen = []

    class Watch(grpc.ServerInterceptor):
        def intercept_service(self, continuation, details):
            seen.append((details.method, dict(details.invocation_metadata).get("authorization")))
            if version == "v1alpha" and ".v1." in details.method:
                return None
            renamed = details._replace(method=details.method.replace(".v1.", ".v1alpha."))
            return continuation(renamed)

    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2), interceptors=[Watch()])
    names = ["zoo.v1.Pets", "zoo.v1.Others", reflection.SERVICE_NAME]
    reflection.enable_server_reflection(names, server, pool=pool)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        place = f"grpc://127.0.0.1:{port}"
        made = run(place, metadata={"authorization": "Bearer t"}, connection="zoo")
    finally:
        server.stop(None).wait()
    # Comments do not travel; all else does.
    assert [view["name"] for view in made.views] == [view["name"] for view in imported.views]
    assert made.views[0]["target"]["descriptor"] == imported.views[0]["target"]["descriptor"]
    assert {token for _, token in seen} == {"Bearer t"}
    assert str(port) not in json.dumps(made.views)
    assert str(port) in made.settings


async def test_what_was_imported_is_called(imported):
    view = view_of(imported, "pets_watch_pets")
    message, pool = message_of(view, "zoo.v1.Pet")
    request = message_factory.GetMessageClass(pool.FindMessageTypeByName("zoo.v1.GetPetRequest"))

    def watch(asked, _context):
        for name in ("Rex", "Tom"):
            yield message(id=asked.pet_id, name=name, cage=2)

    handler = grpc.unary_stream_rpc_method_handler(
        watch,
        request_deserializer=request.FromString,
        response_serializer=message.SerializeToString,
    )
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("zoo.v1.Pets", {"WatchPets": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        url = HttpConnection(name="zoo", base_url=f"http://127.0.0.1:{port}")
        connection = GrpcConnection(name="zoo_v_1", http=url)
        async with Connections([connection]) as connections:
            compiled = Compiler(connections).compile(parse(view))
            result = await compiled.call(make_context(), {"petId": "9007199254740993"})
    finally:
        stopped = server.stop(None)
        await trio.to_thread.run_sync(stopped.wait)
    assert result.is_error is None
    assert result.meta is None
    assert [(pet["id"], pet["name"], pet["cage"]) for pet in result.structured_content] == [
        ("9007199254740993", "Rex", 2),
        ("9007199254740993", "Tom", 2),
    ]


ECHO = """
service Echo {
  rpc Say(Pet) returns (Pet) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc Repeat(Pet) returns (stream Pet);
  rpc Upload(stream Pet) returns (Pet);
}
"""


class Echo:
    """A server of grpcio that has every kind of field, and describes itself."""

    def __init__(self, tmp_path):
        path = tmp_path / "pets.proto"
        path.write_text(Path(PROTO).read_text() + ECHO)
        # The set of one operation has all that the message needs.
        message, _ = message_of(view_of(run(str(path)), "echo_say"), "zoo.v1.Pet")
        self.message, self.left = message, []
        coded = {
            "request_deserializer": message.FromString,
            "response_serializer": message.SerializeToString,
        }
        methods = {
            "Say": grpc.unary_unary_rpc_method_handler(self.say, **coded),
            "Repeat": grpc.unary_stream_rpc_method_handler(self.repeat, **coded),
        }
        # Reflection tells of whole files.
        whole = descriptor_pool.DescriptorPool()
        for file in load_files([str(path)]).values():
            whole.Add(file)
        self.server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
        handler = grpc.method_handlers_generic_handler("zoo.v1.Echo", methods)
        self.server.add_generic_rpc_handlers((handler,))
        names = ["zoo.v1.Echo", reflection.SERVICE_NAME]
        reflection.enable_server_reflection(names, self.server, pool=whole)
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def say(self, pet, context):
        self.left.append(context.time_remaining())
        return pet

    def repeat(self, pet, context):
        self.left.append(context.time_remaining())
        yield from [pet] * 3

    async def call(self, view, given, **config):
        url = HttpConnection(name="zoo", base_url=f"http://127.0.0.1:{self.port}")
        connection = GrpcConnection(name=view["target"]["connection"], http=url)
        config = {**view["execution_config"], **config}
        async with Connections([connection]) as connections:
            compiled = Compiler(connections).compile(parse({**view, "execution_config": config}))
            return await compiled.call(make_context(), given)


@pytest.fixture
def echo(tmp_path):
    made = Echo(tmp_path)
    yield made
    made.server.stop(None).wait()


EVERYTHING = {key: value for key, value in SAMPLE.items() if key != "house"}


@pytest.mark.parametrize(
    "home",
    [{"house": "h"}, {"house": ""}, {"cage": -1}, {"cage": 0}, {"box": {"name": "b"}}, {}],
    ids=str,
)
@pytest.mark.parametrize("method", ["echo_say", "echo_repeat"])
async def test_every_kind_of_field_goes_there_and_back(echo, method, home):
    made = run(f"grpc://127.0.0.1:{echo.port}")
    refused = {each.what: each.reason for each in made.refused}
    assert refused["zoo.v1.Echo/Upload"] == "it takes a stream of messages, and a call has one"
    pet = {**EVERYTHING, **home}
    result = await echo.call(view_of(made, method), pet, timeout_ms={"total": 7000})
    # No warning: what came fits what was promised.
    assert result.is_error is None, result
    assert result.meta is None
    message = json_format.ParseDict(pet, echo.message())
    expected = json_format.MessageToDict(message, always_print_fields_with_no_presence=True)
    assert expected["id"] == "18446744073709551615"
    assert expected.keys() & {"house", "cage", "box"} == home.keys()
    told = result.structured_content
    assert told == (expected if method == "echo_say" else [expected] * 3)
    assert json.loads(result.content[0].text) == told
    assert 6 < echo.left[0] <= 7


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"house": "h", "cage": 1}, "schema_validation"),
        ({"kind": "CAT"}, "schema_validation"),
        ({"kind": 77}, "schema_validation"),
        ({"id": 5}, "schema_validation"),
        ({"id": "18446744073709551616"}, "mapping"),
        ({"scores": {"a": 5}}, {"scores": {"a": 5}}),
        ({"extra": {"9007199254740993": 1.5}}, {"extra": {"9007199254740993": 1.5}}),
        ({"byYear": {"soon": {}}}, "mapping"),
        ({"born": "yesterday"}, "mapping"),
        ({"picture": "-_8="}, {"picture": "+/8="}),
    ],
    ids=str,
)
async def test_what_a_field_cannot_hold_is_told_before_anything_is_sent(echo, given, told):
    result = await echo.call(view_of(run(f"grpc://127.0.0.1:{echo.port}"), "echo_say"), given)
    if isinstance(told, str):
        assert result.content[0].text.startswith(f"[{told}] ")
        assert echo.left == []
        return
    assert result.is_error is None, result
    assert {key: result.structured_content[key] for key in told} == told


async def test_a_stream_that_was_imported_is_bounded(echo):
    view = view_of(run(f"grpc://127.0.0.1:{echo.port}"), "echo_repeat")
    result = await echo.call(view, {}, limits={"items": 2})
    assert "more than 2" in result.content[0].text
    assert result.is_error is True


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.proto", 'syntax = "proto3"; message {', r"cannot compile .*Expected message name"),
        ("a.proto", 'import "none.proto";', "none.proto"),
        ("a.proto", 'syntax = "proto3"; message A {}', "has no services"),
        ("a.pb", b"", "or an empty one"),
        ("a.pb", b"\xff\xff\xff", "is no FileDescriptorSet"),
        ("none.proto", None, "No such file"),
        ("none.pb", None, "No such file"),
    ],
)
def test_what_is_no_description_is_told(tmp_path, name, content, reason, capfd):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(AuthoringError, match=reason):
        run(str(path))
    assert capfd.readouterr().err == ""


def test_a_set_that_lacks_what_it_refers_to_is_told(tmp_path):
    lacking = descriptor_set()
    kept = [file for file in lacking.file if file.name == "pets.proto"]
    path = tmp_path / "set.pb"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=kept).SerializeToString())
    made = run(str(path))
    assert made.views == []
    assert "is not described" in made.refused[0].reason


def test_places_that_do_not_go_together_are_told(tmp_path):
    for places in (("http://x",), ("grpc://a:1", "grpc://b:2"), ("a.pb", "b.pb")):
        with pytest.raises(AuthoringError, match="give"):
            run(*places)
    with pytest.raises(AuthoringError, match=r"UNAVAILABLE|DEADLINE"):
        run("grpc://127.0.0.1:1")


def test_fields_are_named_as_in_json_where_a_descriptor_does_not_say(tmp_path, imported):
    # Descriptors that Python's own servers give by reflection are such.
    files = descriptor_set()
    waiting = [message for file in files.file for message in file.message_type]
    while waiting:
        message = waiting.pop()
        waiting += message.nested_type
        for field in message.field:
            field.ClearField("json_name")
    path = tmp_path / "set.pb"
    path.write_bytes(files.SerializeToString())
    for bare, full in zip(run(str(path)).views, imported.views, strict=True):
        assert bare["input_schema"] == full["input_schema"]
        assert bare["output_schema"] == full["output_schema"]


@pytest.mark.parametrize(
    ("name", "made"),
    [("pet_id", "petId"), ("a__b_1", "aB1"), ("_a", "A"), ("Name", "Name"), ("x_", "x")],
)
def test_a_name_in_json_is_that_of_protobuf(name, made):
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="a")
    file.message_type.add(name="M").field.add(
        name=name,
        number=1,
        type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
        label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    assert pool.FindMessageTypeByName("a.M").fields[0].json_name == made
    assert json_name(name) == made
