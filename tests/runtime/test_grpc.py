"""gRPC operations against a real server of grpcio: types, streams, statuses, time, TLS."""

from __future__ import annotations

import base64
import json
import threading
import tomllib
from concurrent import futures

import grpc
import pytest
import trio
import trustme
from google.protobuf import descriptor_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.message_factory import GetMessageClass

from mcp_trio.catalog.operation import OperationError, parse
from mcp_trio.config import make_connections, parse_settings
from mcp_trio.engine.envelope import Principal
from mcp_trio.errors import ConfigurationError
from mcp_trio.runtime.adapters.grpc_descriptor import _pool_of
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.grpc_connection import GrpcConnection
from mcp_trio.runtime.http_connection import Auth, HttpConnection
from mcp_trio.runtime.stages import WARNING_KEY
from mcp_trio.secrets import Secret
from tests.programs import ROOT
from tests.runtime.conftest import make_context
from tests.runtime.test_cancel_calls import CONFIG, sweep

OPTIONAL, REPEATED = Field.LABEL_OPTIONAL, Field.LABEL_REPEATED


def described() -> str:
    """The types of `shop.Shop`, as protoc would describe them."""
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto",
        package="shop",
        syntax="proto3",
        dependency=[module.DESCRIPTOR.name for module in (timestamp_pb2, wrappers_pb2, struct_pb2)],
    )
    colour = file.enum_type.add(name="Colour")
    for number, name in enumerate(("UNKNOWN", "RED", "GREEN")):
        colour.value.add(name=name, number=number)
    item = file.message_type.add(name="Item")
    item.oneof_decl.add(name="price")

    def field(name, number, kind, type_name=None, label=OPTIONAL, oneof=None):
        made = item.field.add(name=name, number=number, type=kind, label=label)
        if type_name:
            made.type_name = type_name
        if oneof is not None:
            made.oneof_index = oneof

    field("id", 1, Field.TYPE_INT64)
    field("display_name", 2, Field.TYPE_STRING)
    field("colour", 3, Field.TYPE_ENUM, ".shop.Colour")
    field("cents", 4, Field.TYPE_INT32, oneof=0)
    field("free", 5, Field.TYPE_BOOL, oneof=0)
    field("raw", 6, Field.TYPE_BYTES)
    field("tags", 7, Field.TYPE_STRING, label=REPEATED)
    field("stock", 8, Field.TYPE_MESSAGE, ".shop.Item.StockEntry", label=REPEATED)
    field("made", 9, Field.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    field("weight", 10, Field.TYPE_MESSAGE, ".google.protobuf.DoubleValue")
    field("more", 11, Field.TYPE_MESSAGE, ".google.protobuf.Struct")
    field("part", 12, Field.TYPE_MESSAGE, ".shop.Item")
    entry = item.nested_type.add(name="StockEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=OPTIONAL)
    entry.field.add(name="value", number=2, type=Field.TYPE_UINT64, label=OPTIONAL)
    service = file.service.add(name="Shop")
    for name, takes, gives in (
        ("Echo", False, False),
        ("Read", False, False),
        ("List", False, True),
        ("Put", True, False),
        ("Talk", True, True),
    ):
        made = service.method.add(
            name=name,
            input_type=".shop.Item",
            output_type=".shop.Item",
            client_streaming=takes,
            server_streaming=gives,
        )
        if name == "Read":
            made.options.idempotency_level = 1
    held = descriptor_pb2.FileDescriptorSet(file=[file])
    return base64.b64encode(held.SerializeToString()).decode()


DESCRIPTOR = described()
Item = GetMessageClass(_pool_of(DESCRIPTOR).FindMessageTypeByName("shop.Item"))


def written(item):
    return b"\xff\xff" if item.display_name == "garbage" else item.SerializeToString()


class Shop:
    """A server of grpcio. What it does depends on the name it is asked for."""

    def __init__(self):
        self.seen, self.calls = [], 0
        self.started, self.ended = threading.Event(), threading.Event()
        self.refuses = None

    def hang(self, context):
        over = threading.Event()
        context.add_callback(over.set)
        self.started.set()
        over.wait(30)
        self.ended.set()

    def note(self, context):
        self.calls += 1
        self.seen.append((dict(context.invocation_metadata()), context.time_remaining()))
        if self.refuses is not None:
            self.refuses(context)

    def echo(self, item, context):
        self.note(context)
        if item.display_name == "hang":
            self.hang(context)
        if item.display_name == "fail":
            context.set_trailing_metadata((("reason", "sold-out"), ("extra-bin", b"\x00\xff")))
            context.abort(grpc.StatusCode(self.code), self.details)
        if item.display_name == "big":
            item.raw = b"x" * item.id
        context.send_initial_metadata((("served-by", "one"),))
        return item

    def list(self, item, context):
        self.note(context)
        for number in range(item.id):
            yield Item(id=number, raw=b"x" * item.cents)
        if item.display_name == "hang":
            self.hang(context)
        if item.display_name == "fail":
            context.abort(grpc.StatusCode.NOT_FOUND, "no more")

    def handlers(self):
        coded = {
            "request_deserializer": Item.FromString,
            "response_serializer": written,
        }
        return grpc.method_handlers_generic_handler(
            "shop.Shop",
            {
                "Echo": grpc.unary_unary_rpc_method_handler(self.echo, **coded),
                "Read": grpc.unary_unary_rpc_method_handler(self.echo, **coded),
                "List": grpc.unary_stream_rpc_method_handler(self.list, **coded),
            },
        )

    def serve(self, port=0, credentials=None):
        server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((self.handlers(),))
        address = f"127.0.0.1:{port}"
        bound = (
            server.add_insecure_port(address)
            if credentials is None
            else server.add_secure_port(address, credentials)
        )
        server.start()
        return server, bound


async def happens(event):
    assert await trio.to_thread.run_sync(event.wait, 20)


@pytest.fixture
def shop():
    made = Shop()
    server, made.port = made.serve()
    yield made
    server.stop(None).wait(10)


class Bench:
    """Compiles and calls operations against one server named `shop`."""

    def __init__(self, port, *, tls=False, resolver=None, host="127.0.0.1", **options):
        scheme = "https" if tls else "http"
        http = HttpConnection(name="shop", base_url=f"{scheme}://{host}:{port}", **options)
        connection = GrpcConnection(name="shop", http=http)
        extra = {} if resolver is None else {"resolver": resolver}
        self.connections = Connections([connection], **extra)
        self.compiler = Compiler(self.connections, chance=lambda: 1.0)

    def compile(self, method="Echo", target=None, **changes):
        view = {
            "operation_id": "crm.leads.get",
            "name": "echo",
            "protocol": "grpc",
            "target": {
                "connection": "shop",
                "service": "shop.Shop",
                "method": method,
                "descriptor": DESCRIPTOR,
                **(target or {}),
            },
            "input_schema": {"type": "object", "additionalProperties": True, "allOf": [{}]},
            "output_schema": None,
            "input_mapping": {},
            "output_mapping": {"result": {"body": "=body"}},
            "execution_config": {},
            "tool_description": "",
        }
        return self.compiler.compile(parse({**view, **changes}))

    async def call(self, method="Echo", given=None, *, context=None, **changes):
        operation = self.compile(method, **changes)
        return await operation.call(context or make_context(), given or {})

    async def body(self, *args, **more):
        result = await self.call(*args, **more)
        assert result.is_error is None, result
        return result.structured_content["body"]


@pytest.fixture
async def bench(shop):
    made = Bench(shop.port)
    async with made.connections:
        yield made


# -- messages --------------------------------------------------------------------------


async def test_proto_json_both_ways(bench):
    item = {
        "id": "9007199254740993",
        "displayName": "Tea",
        "colour": "GREEN",
        "cents": 250,
        "raw": "AP8=",
        "tags": ["a", "b"],
        "stock": {"x": "18446744073709551615"},
        "made": "2024-02-29T10:30:00Z",
        "weight": 1.5,
        "more": {"k": [1.0, None, {"deep": True}]},
    }
    assert await bench.body(given=item) == item
    (got,) = [await bench.body(given={"id": 7, "display_name": "x", "colour": 1, "free": True})]
    assert (got["id"], got["displayName"], got["colour"], got["free"]) == ("7", "x", "RED", True)
    assert got["tags"] == []


async def test_mappings_make_the_message_and_see_the_answer(bench, shop):
    seen = {
        "result": {
            "s": "=status",
            "m": "=message.id",
            "n": "=length(messages)",
            "meta": '=metadata."served-by"',
        }
    }
    result = await bench.call(
        given={"who": 5},
        input_mapping={
            "message": {"id": {"expr": "args.who", "as": "integer"}, "part": {"id": "=args.who"}},
            "headers": {"X-Tenant": "=args.who"},
        },
        output_mapping=seen,
    )
    assert result.structured_content == {"s": "OK", "m": "5", "n": 1, "meta": "one"}
    assert shop.seen[0][0]["x-tenant"] == "5"


async def test_a_stream_is_collected_and_told_as_progress(bench):
    assert [m["id"] for m in await bench.body("List", {"id": 3})] == ["0", "1", "2"]
    assert await bench.body("List", {"id": 0}) == []
    told = []

    class Line:
        async def notify(self, method, params):
            await trio.lowlevel.checkpoint()
            told.append((params["progress"], json.loads(params["message"])["id"]))

    context = make_context()
    context.exchange, context.progress_token = Line(), 1
    config = {"stream_progress": True}
    await bench.call("List", {"id": 3}, context=context, execution_config=config)
    assert told == [(1, "0"), (2, "1"), (3, "2")]


# -- time ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["Echo", "List"])
async def test_a_call_cancelled_at_any_step_leaves_nothing_behind(bench, method):
    operation = bench.compile(method, execution_config=CONFIG)
    await sweep(bench.compiler, lambda: operation.call(make_context(), {"id": 2}), least=4)
    [channel] = [r for name, r in bench.connections._resources.items() if "channel" in name]
    assert not channel._running
    assert channel._readers.borrowed_tokens == 0


@pytest.mark.parametrize(("method", "number"), [("Echo", 0), ("List", 2)])
async def test_cancelling_cancels_the_call_on_the_server(bench, shop, method, number):
    operation = bench.compile(method)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                operation.call, make_context(), {"id": number, "displayName": "hang"}
            )
            await happens(shop.started)
            nursery.cancel_scope.cancel()
        await happens(shop.ended)
    assert (await bench.body(given={"id": 1}))["id"] == "1"


@pytest.mark.parametrize("method", ["Echo", "List"])
async def test_a_deadline_is_told_and_kept(bench, shop, failure, method):
    short = {"timeout_ms": {"total": 400}}
    given = {"displayName": "hang"}
    with trio.fail_after(20):
        _, told = failure(await bench.call(method, given, execution_config=short))
        assert (told["stage"], told["sub"]) == ("adapter_execution", "timeout")
        await happens(shop.ended)
    assert 0 < shop.seen[0][1] <= 0.4


# -- limits ----------------------------------------------------------------------------


async def test_more_messages_than_the_limit_are_an_error_or_cut(bench, shop, failure):
    text, told = failure(await bench.call("List", {"id": 100_000_000}))
    assert (told["stage"], told["sub"]) == ("adapter_execution", "response_items")
    assert "more than 1000 messages" in text
    cut = {"limits": {"items": 2, "on_exceed": "truncate"}}
    result = await bench.call("List", {"id": 100_000_000}, execution_config=cut)
    assert [m["id"] for m in result.structured_content["body"]] == ["0", "1"]
    assert result.meta[WARNING_KEY]["truncated"] == [{"pointer": "", "of": None}]
    assert (await bench.call("List", {"id": 2}, execution_config=cut)).meta is None


@pytest.mark.parametrize(
    ("method", "given"),
    [("Echo", {"id": 2_000_000, "displayName": "big"}), ("List", {"id": 900, "cents": 9_000})],
)
async def test_more_bytes_than_the_limit_are_an_error(bench, failure, method, given):
    _, told = failure(await bench.call(method, given))
    assert (told["stage"], told["sub"]) == ("adapter_execution", "response_bytes")


async def test_a_request_that_is_too_large_or_no_message_is_the_mappings(bench, shop, failure):
    small = {"limits": {"request_bytes": 100}}
    cases = [
        ({"displayName": "canary-value" * 20}, small),
        ({"id": "canary-value"}, {}),
        ({"canary-value": 1}, {}),
        ({"cents": 1, "free": True}, {}),
        ({"colour": "canary-value"}, {}),
        ({"displayName": "\ud800"}, {}),
    ]
    for given, config in cases:
        text, told = failure(await bench.call(given=given, execution_config=config))
        assert told["stage"] == "mapping", given
        assert "canary" not in text
    deep = {}
    for _ in range(150):
        deep = {"part": deep}
    _, told = failure(await bench.call(given=deep))
    assert told["stage"] == "mapping"
    assert shop.calls == 0


# -- failures --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "retryable"),
    [
        ("NOT_FOUND", False),
        ("INVALID_ARGUMENT", False),
        ("UNAVAILABLE", True),
        ("RESOURCE_EXHAUSTED", True),
        ("ABORTED", True),
        ("PERMISSION_DENIED", False),
        ("INTERNAL", False),
        ("CANCELLED", False),
    ],
)
async def test_a_status_is_the_upstreams_failure(shop, failure, code, retryable):
    shop.code = grpc.StatusCode[code].value
    shop.details = "no <b>tea</b> for canary-secret"
    bench = Bench(shop.port, auth=Auth(kind="bearer", secret=Secret("canary-secret")))
    async with bench.connections:
        context = make_context(Principal(subject="ann", token=Secret("token-of-ann")))
        text, told = failure(await bench.call(given={"displayName": "fail"}, context=context))
    assert (told["stage"], told["code"]) == ("external_service", code)
    assert told["retryable"] is retryable
    assert "token-of-ann" not in repr(shop.seen)
    assert "no tea for ***" in text
    assert shop.seen[0][0]["authorization"] == "Bearer canary-secret"


async def test_a_stream_that_fails_after_some_messages_is_a_failure(bench, failure):
    text, told = failure(await bench.call("List", {"id": 2, "displayName": "fail"}))
    assert (told["stage"], told["code"]) == ("external_service", "NOT_FOUND")
    assert "no more" in text


async def test_what_may_pass_is_tried_again_if_that_does_no_harm(bench, shop, failure):
    def twice(context):
        if shop.calls < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "busy")

    shop.refuses = twice
    config = {"retry": {"max_attempts": 3, "backoff_ms": 1}}
    assert (await bench.body("Read", {"id": 1}, execution_config=config))["id"] == "1"
    shop.calls = 0
    _, told = failure(await bench.call("Echo", {"id": 1}, execution_config=config))
    assert told["code"] == "UNAVAILABLE"
    assert shop.calls == 1


async def test_an_error_mapping_sees_status_and_metadata(bench, shop, failure):
    shop.code, shop.details = grpc.StatusCode.NOT_FOUND.value, "none"
    said = {"error": {"message": '=join(" ", [status, metadata.reason, metadata."extra-bin"])'}}
    said["error"]["message"] = "=join(' ', [status, metadata.reason, metadata.\"extra-bin\"])"
    text, _ = failure(await bench.call(given={"displayName": "fail"}, output_mapping=said))
    assert "NOT_FOUND sold-out AP8=" in text


async def test_schemas_are_checked_on_both_sides(bench, failure):
    strict = {"type": "object", "required": ["id"]}
    _, told = failure(await bench.call(input_schema=strict))
    assert (told["stage"], told["sub"]) == ("schema_validation", "input")
    wrong = {"type": "object", "properties": {"body": {"type": "string"}}}
    _, told = failure(await bench.call(output_schema=wrong))
    assert (told["stage"], told["sub"]) == ("schema_validation", "output")


async def test_an_answer_that_is_no_message_is_malformed(bench, failure):
    _, told = failure(await bench.call(given={"displayName": "garbage"}))
    assert (told["stage"], told["sub"]) == ("adapter_execution", "malformed_reply")


# -- connections -----------------------------------------------------------------------


async def test_a_server_that_is_gone_is_the_adapters_and_found_again(failure):
    shop = Shop()
    server, port = shop.serve()
    bench = Bench(port)
    with trio.fail_after(40):
        async with bench.connections:
            assert (await bench.body(given={"id": 1}))["id"] == "1"
            await trio.to_thread.run_sync(lambda: server.stop(None).wait(10))
            _, told = failure(await bench.call(given={"id": 1}))
            assert told["retryable"] is True
            assert (told["stage"], told["sub"]) in {
                ("adapter_execution", "connect"),
                ("external_service", "reported"),
            }
            _, told = failure(await bench.call(given={"id": 1}))
            assert (told["stage"], told["sub"]) == ("adapter_execution", "connect")
            server, _ = shop.serve(port)
            assert (await bench.body(given={"id": 2}))["id"] == "2"
    server.stop(None).wait(10)


async def test_a_server_that_does_not_answer_is_given_up(nursery, failure):
    async def silent(_stream):
        await trio.sleep_forever()

    listeners = await nursery.start(trio.serve_tcp, silent, 0)
    bench = Bench(listeners[0].socket.getsockname()[1])
    async with bench.connections:
        config = {"timeout_ms": {"connect": 200}}
        _, told = failure(await bench.call(execution_config=config))
        assert told["stage"] == "adapter_execution"
        assert told["sub"] in {"timeout", "connect"}
    nursery.cancel_scope.cancel()


async def test_an_address_that_may_not_be_reached_is_a_policy_block(failure):
    async def resolve(_host, _port):
        return ["169.254.169.254"]

    bench = Bench(1, host="internal.example", resolver=resolve)
    async with bench.connections:
        _, told = failure(await bench.call())
    assert (told["stage"], told["sub"]) == ("adapter_execution", "policy_block")


async def test_closing_the_connections_ends_what_is_running(shop, failure):
    bench, told = Bench(shop.port), []

    async def waiting():
        told.append(failure(await bench.call(given={"displayName": "hang"}))[1])

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            async with bench.connections:
                nursery.start_soon(waiting)
                await happens(shop.started)
        await happens(shop.ended)
    assert told[0]["stage"] in {"internal_runtime", "external_service"}


@pytest.mark.parametrize("shown", [True, False], ids=["with-certificate", "without"])
async def test_tls_with_certificates_of_both(tmp_path, failure, shown):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    ours, theirs = authority.issue_cert("client"), authority.issue_cert("127.0.0.1")
    ours.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    ours.private_key_pem.write_to_path(tmp_path / "key.pem")
    credentials = grpc.ssl_server_credentials(
        [(theirs.private_key_pem.bytes(), theirs.cert_chain_pems[0].bytes())],
        root_certificates=authority.cert_pem.bytes(),
        require_client_auth=True,
    )
    server, port = Shop().serve(credentials=credentials)
    section = {"kind": "grpc", "address": f"127.0.0.1:{port}", "ca_file": "ca.pem"}
    if shown:
        section |= {"client_cert_file": "cert.pem", "client_key_file": "key.pem"}
    values = {"catalog": {"registry": "r"}, "connections": {"shop": section}}
    (made,) = make_connections(parse_settings(values).connections, tmp_path)
    bench = Bench(port)
    bench.connections = Connections([made])
    bench.compiler = Compiler(bench.connections)
    async with bench.connections:
        if shown:
            assert (await bench.body(given={"id": 1}))["id"] == "1"
        else:
            _, told = failure(await bench.call())
            assert told["retryable"] is True
    server.stop(None).wait(10)


# -- at load ---------------------------------------------------------------------------


def _set(*files):
    held = descriptor_pb2.FileDescriptorSet(file=files)
    return base64.b64encode(held.SerializeToString()).decode()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"target": {"method": "Put"}}, "takes a stream cannot be called"),
        ({"target": {"method": "Talk"}}, "takes a stream cannot be called"),
        ({"target": {"method": "Nothing"}}, "has no method shop.Shop/Nothing"),
        ({"target": {"service": "shop.Nothing"}}, "has no method shop.Nothing/Echo"),
        ({"target": {"descriptor": "!"}}, "must be a FileDescriptorSet in base64"),
        ({"target": {"descriptor": {"file": "x"}}}, "must be a FileDescriptorSet in base64"),
        ({"target": {"descriptor": "AAAA"}}, "must be a FileDescriptorSet in base64"),
        ({"target": {"descriptor": ""}}, "is empty"),
        (
            {
                "target": {
                    "descriptor": _set(
                        descriptor_pb2.FileDescriptorProto(name="a", dependency=["elsewhere"])
                    )
                }
            },
            "misses 'elsewhere'; make it with --include_imports",
        ),
        (
            {
                "target": {
                    "descriptor": _set(
                        descriptor_pb2.FileDescriptorProto(name="a", dependency=["b"]),
                        descriptor_pb2.FileDescriptorProto(name="b", dependency=["a"]),
                    )
                }
            },
            "import each other",
        ),
        ({"input_mapping": {"message": {"nothing": 1}}}, "the message has no field 'nothing'"),
        ({"input_mapping": {"body": {}}}, "message and headers only"),
        ({"input_mapping": {"headers": {"authorization": "x"}}}, "not for an operation to set"),
        ({"input_mapping": {"headers": {"grpc-timeout": "1S"}}}, "not for an operation to set"),
        ({"input_mapping": {"headers": {"x-bin": "1S"}}}, "not for an operation to set"),
        ({"execution_config": {"auth": "on_behalf_of"}}, "has no on_behalf_of"),
        ({"execution_config": {"stream_progress": True}}, "stream_progress"),
        ({"output_mapping": {"result": "=headers"}}, "there is no 'headers' here"),
    ],
)
def test_what_cannot_work_is_found_at_load(changes, told):
    with pytest.raises(OperationError, match=told):
        Bench(1).compile(**changes)


def test_only_an_option_of_the_method_makes_it_idempotent():
    bench = Bench(1)
    assert not bench.compile("Echo").plan.idempotent
    assert bench.compile("Read").plan.idempotent


def test_operations_share_the_types_of_one_set():
    _pool_of.cache_clear()
    bench = Bench(1)
    for _ in range(5):
        bench.compile()
    assert _pool_of.cache_info().misses == 1


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"address": "shop.example"}, "must be host:port"),
        ({"address": "shop.example:1/path"}, "must be host:port"),
        ({"address": "user@shop.example:1"}, "must be host:port"),
    ],
)
def test_settings_that_cannot_work_are_explained(tmp_path, section, told):
    values = {"catalog": {"registry": "r"}, "connections": {"x": {"kind": "grpc", **section}}}
    with pytest.raises(ConfigurationError, match=told):
        make_connections(parse_settings(values).connections, tmp_path)


async def test_the_example_of_the_documentation_runs(shop, tmp_path):
    page = (ROOT / "docs" / "operations.md").read_text().split("## gRPC")[1]
    view = json.loads(page.split("```json")[1].split("```")[0])
    view["target"]["descriptor"] = DESCRIPTOR
    text = page.split("```toml")[1].split("```")[0]
    text = text.replace("shop.example:443", f"127.0.0.1:{shop.port}").replace(
        "tls = true", "tls = false"
    )
    (made,) = make_connections(parse_settings(tomllib.loads(text)).connections, tmp_path)
    connections = Connections([made])
    async with connections:
        operation = Compiler(connections).compile(parse(view))
        result = await operation.call(make_context(), {"name": "Tea"})
    assert result.structured_content == {"name": "Tea", "colour": "RED"}
