"""Stages, compiling and the static adapter, without any upstream."""

from __future__ import annotations

import logging

import pytest
import trio

from mcp_trio.catalog.operation import OperationError, parse
from mcp_trio.engine.envelope import Principal
from mcp_trio.errors import ConfigurationError, UnauthorizedError
from mcp_trio.runtime.adapters.base import Plan
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.http_connection import Auth, HttpConnection
from mcp_trio.runtime.stages import Stage, StageError, clean, log_text
from mcp_trio.secrets import Secret, mask

STATIC = {
    "protocol": "static",
    "target": {},
    "input_mapping": {},
    "output_mapping": {"result": {"hello": "=args.id"}},
}


@pytest.fixture
def bench(make_bench):
    return make_bench("http://127.0.0.1:1")


async def test_a_static_operation_answers_from_its_mapping(bench):
    result = await bench.call({"id": "you"}, **STATIC)
    assert result.structured_content == {"hello": "you"}
    assert result.content[0].text == '{"hello":"you"}'


async def test_text_of_the_output_mapping(bench):
    def with_text(text):
        return {**STATIC, "output_mapping": {"result": {"a": 1}, "text": text}}

    assert (await bench.call(**with_text("=join(' ', ['id', args.id])"))).content[0].text == "id 1"
    assert (await bench.call(**with_text("fixed"))).content[0].text == "fixed"
    assert (await bench.call(**with_text("json"))).content[0].text == '{"a":1}'
    assert (await bench.call(**with_text("none"))).content == []


async def test_without_a_schema_only_an_object_is_structured(bench):
    for value, structured in (([1], False), ("text", False), ({"a": 1}, True)):
        result = await bench.call(**{**STATIC, "output_mapping": {"result": value}})
        assert (result.structured_content == value) is structured
    result = await bench.call(
        **{**STATIC, "output_mapping": {"result": [1]}, "output_schema": {"type": "array"}}
    )
    assert result.structured_content == [1]


async def test_the_principal_reaches_a_mapping_and_the_model_cannot_forge_it(upstream, make_bench):
    bench = make_bench(upstream.url, vars={"region": "eu"})
    who = Principal(
        subject="ann", scopes=frozenset({"b", "a"}), claims={"tenant": "t/1", "sub": "x"}
    )
    async with bench.connections:
        await bench.call(
            {"id": "1"},
            principal=who,
            input_mapping={
                "path": {"id": "=principal.tenant"},
                "query": {
                    "sub": "=principal.sub",
                    "scopes": {"expr": "principal.scopes", "as": "csv"},
                    "request": "=request.id",
                    "region": "=vars.region",
                },
            },
        )
    assert upstream.last.target == "/leads/t%2F1?sub=ann&scopes=a%2Cb&request=7&region=eu"


async def test_an_anonymous_caller_has_no_claims_to_map(bench, failure):
    result = await bench.call(input_mapping={"path": {"id": "=principal.tenant"}})
    text, told = failure(result)
    assert told["stage"] == "mapping"
    assert "input_mapping.path.id" in text


async def test_a_missing_scope_is_refused_as_unauthorized(bench):
    config = {"execution_config": {"required_scopes": ["crm.write"]}, **STATIC}
    for who in (None, Principal(subject="a", scopes=frozenset({"crm.read"}))):
        with pytest.raises(UnauthorizedError) as caught:
            await bench.call(principal=who, **config)
        assert caught.value.data == {"requiredScopes": ["crm.write"]}
    who = Principal(subject="a", scopes=frozenset({"crm.write"}))
    assert (await bench.call(principal=who, **config)).is_error is None


class Broken:
    """An adapter with a bug."""

    connection_type = None
    output_names = ("status", "headers", "body", "args")

    def compile(self, operation, connection, settings):
        def prepare(_context, _call):
            async def send():
                await trio.lowlevel.checkpoint()
                raise KeyError("very-secret")

            return send

        return Plan(prepare=prepare, reads=frozenset(), idempotent=True)


async def test_a_bug_of_ours_is_told_by_reference_only(view, context_of, failure, caplog):
    compiler = Compiler(Connections(), {"static": Broken()})
    entry = compiler.compile(parse(view(**STATIC)))
    with caplog.at_level(logging.ERROR):
        text, told = failure(await entry.call(context_of(), {}))
    assert (told["stage"], told["sub"], told["code"]) == ("internal_runtime", "bug", "KeyError")
    assert "very-secret" not in text
    reference = text.split("reference is ")[1].split(".")[0]
    assert reference in caplog.text


def logged(caplog):
    found = [each for each in caplog.records if each.name == "mcp_trio.runtime"]
    return [(each.levelname, each.getMessage()) for each in found]


WHOSE = "operation crm.leads.get, request 7: "


async def test_the_operator_is_told_why_an_upstream_is_not_reached(bench, caplog):
    async with bench.connections:
        await bench.call()
    ((level, text),) = logged(caplog)
    assert level == "WARNING"
    assert text.startswith(f"{WHOSE}adapter_execution, connect: the upstream cannot be reached: ")
    assert "Connection refused" in text


class Sleeping(Broken):
    def compile(self, operation, connection, settings):
        def prepare(_context, _call):
            return trio.sleep_forever

        return Plan(prepare=prepare, reads=frozenset(), idempotent=True)


@pytest.mark.parametrize("late", [True, False])
async def test_a_call_that_the_server_gives_no_more_time_is_told_by_its_operation(
    view, context_of, caplog, autojump_clock, late
):
    entry = Compiler(Connections(), {"static": Sleeping()}).compile(parse(view(**STATIC)))
    context = context_of()
    with context.scope as scope:
        scope.deadline = trio.current_time() + 5
        if not late:
            scope.cancel()
        await entry.call(context, {})
    assert scope.cancelled_caught
    wanted = [("WARNING", f"{WHOSE}took longer than the server allows")]
    assert logged(caplog) == (wanted if late else [])


def test_the_deepest_cause_is_told_also_where_causes_go_in_a_circle():
    deep = OSError("the wire is cut")
    error = StageError(Stage.ADAPTER_EXECUTION, "not reached", sub="connect")
    error.__cause__ = outer = RuntimeError("outer")
    outer.__cause__, deep.__cause__ = deep, outer
    assert log_text(error, str) == "adapter_execution, connect: not reached: the wire is cut"


async def test_the_operator_is_told_which_mapping_failed_and_not_on_which_data(bench, caplog):
    mapping = {"result": {"x": {"expr": "args.id.other", "required": True}}}
    await bench.call({"id": "private"}, **{**STATIC, "output_mapping": mapping})
    assert logged(caplog) == [
        (
            "WARNING",
            f"{WHOSE}mapping, mapping: output_mapping.result.x: the required value is missing",
        )
    ]


async def test_what_a_caller_got_wrong_is_told_to_nobody_who_does_not_look(bench, caplog):
    caplog.set_level(logging.DEBUG)
    schema = {"type": "object", "properties": {"id": {"type": "string"}}}
    await bench.call({"id": 5}, **STATIC, input_schema=schema)
    ((level, text),) = logged(caplog)
    assert level == "DEBUG"
    assert text.startswith(f"{WHOSE}schema_validation, input: ")


async def test_a_failure_that_an_upstream_reports_is_logged_without_its_text(
    upstream, make_bench, caplog
):
    caplog.set_level(logging.INFO)
    upstream.says({"error": {"message": "Ann Smith owes money"}}, status=404)
    bench = make_bench(upstream.url)
    async with bench.connections:
        await bench.call()
    assert logged(caplog) == [("INFO", f"{WHOSE}external_service, status 404")]


async def test_a_code_of_an_upstream_is_logged_on_one_line_and_without_secrets(
    upstream, make_bench, caplog
):
    caplog.set_level(logging.INFO)
    upstream.says({"code": "E1\nsecret-of-ours " + "x" * 500}, status=404)
    auth = Auth(kind="bearer", secret=Secret("secret-of-ours"))
    bench = make_bench(upstream.url, auth=auth)
    async with bench.connections:
        await bench.call(output_mapping={"error": {"code": "=body.code"}})
    ((_, text),) = logged(caplog)
    assert text.startswith(f"{WHOSE}external_service, status E1 *** xx")
    assert len(text) < 200


async def test_cancellation_is_never_an_answer(bench):
    with trio.CancelScope() as scope:
        scope.cancel()
        await bench.call(**STATIC)
    assert scope.cancelled_caught


BAD = [
    (
        {"protocol": "smoke-signals", "target": {"connection": "crm"}},
        "protocol: smoke-signals is not available",
    ),
    (
        {"target": {"connection": "nope", "method": "GET", "path": "/{id}"}},
        "there is no connection 'nope'",
    ),
    ({"input_mapping": {"query": {"a": 1}}}, r"\{id\} of target.path is not mapped"),
    ({"input_mapping": {"path": {"id": "1", "x": "2"}}}, "'x' is not in target.path"),
    (
        {"input_mapping": {"path": {"id": "=args.nope"}}},
        "args.nope is used but is not in input_schema",
    ),
    ({"output_mapping": {"result": "=args.nope"}}, "output_mapping: args.nope"),
    (
        {"input_mapping": {}, "target": {"connection": "crm", "method": "GET", "path": "/{nope}"}},
        "args.nope",
    ),
    (
        {"input_schema": {"type": "object", "properties": {"id": {"$ref": "http://x.test/s"}}}},
        "input_schema: ",
    ),
    (
        {"input_schema": {"type": "object", "properties": {"id": {"$ref": "#/nope"}}}},
        "input_schema: ",
    ),
    ({"output_schema": {"type": 5}}, "output_schema: "),
    (
        {"execution_config": {"cache": {"ttl_s": 5}, "idempotent": False}},
        "execution_config.cache: only for an operation that is idempotent",
    ),
    (
        {
            "execution_config": {"cache": {"ttl_s": 5}},
            "input_mapping": {"path": {"id": "=args.id"}, "query": {"at": "=request.time"}},
        },
        "execution_config.cache: not where a mapping reads the request",
    ),
    ({"execution_config": {"cache": {"ttl_s": 5, "vary": ["a b"]}}}, "cache.vary"),
    ({"execution_config": {"cache": {"ttl_s": 5, "vary": ["status"]}}}, "there is no 'status'"),
    (
        {
            "execution_config": {"limits": {"items": 5, "on_exceed": "truncate"}},
            "output_schema": {"type": "object"},
        },
        "needs a boolean property 'truncated'",
    ),
    ({"execution_config": {"task": "auto"}}, "execution_config.task auto is not supported"),
    ({"execution_config": {"auth": "on_behalf_of"}}, "the connection crm has no on_behalf_of"),
    ({**STATIC, "execution_config": {"stream_progress": True}}, "this protocol gives no stream"),
    ({"target": {"connection": "crm", "method": "GET", "path": "/{id}/%2e%2e/x"}}, "segment"),
    ({"target": {"connection": "crm", "method": "GET", "path": "/{id"}}, "brace"),
    ({"input_mapping": {"path": {"id": "1"}, "body": {}}}, "content_type is none"),
    ({"input_mapping": {"path": {"id": "1"}, "params": {}}}, "does not belong to a rest operation"),
    ({"input_mapping": {"path": {"id": "1"}, "query": {"expr": "args"}}}, "object of names"),
    ({"output_mapping": {"text": "Hello {{name}}"}}, "there is no 'name' here"),
    ({"output_mapping": {"text": "Hello {{args.id"}}, "without the other"),
    ({"output_mapping": {"text": "{{args.}}"}}, "not a JMESPath expression"),
    ({"output_mapping": {"content": [{"kind": "image"}]}}, "misses 'data'"),
    ({"output_mapping": {"content": [{"kind": "film", "data": 1}]}}, "must be one of text, image"),
    (
        {"output_mapping": {"content": [{"kind": "text", "text": "x", "size": 1}]}},
        "unknown key 'size'",
    ),
    (
        {"output_mapping": {"result": {"expr": "args.(", "lang": "jsonata"}}},
        "not a JSONata expression: S0203",
    ),
    ({**STATIC, "output_mapping": {}}, "output_mapping.result"),
    ({**STATIC, "input_mapping": {"body": 1}}, "sends nothing"),
]


@pytest.mark.parametrize(("changes", "says"), BAD, ids=[says for _, says in BAD])
def test_what_cannot_work_is_refused_when_compiled(bench, changes, says):
    with pytest.raises(OperationError, match=says):
        bench.compile(**changes)


def test_values_that_ask_for_nothing_are_taken(bench):
    bench.compile(
        execution_config={
            "task": "never",
            "stream_progress": False,
            "auth": "connection",
            "limits": {"on_exceed": "error"},
        }
    )


def test_arguments_of_an_open_ended_schema_are_not_second_guessed(bench):
    bench.compile(
        input_schema={"type": "object", "allOf": [{"properties": {"id": {}}}]},
        input_mapping={"path": {"id": "=args.id"}},
    )


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": "ftp://x"},
        {"base_url": "http://user:pw@x"},
        {"base_url": "http://x/?a=1"},
        {"base_url": "x"},
        {"base_url": "http://x", "headers": {"a": "b\r\nc: d"}},
        {"base_url": "http://x", "auth": Auth(kind="bearer", secret=Secret("s3cr\net"))},
    ],
)
def test_a_connection_that_cannot_work_is_a_configuration_error(options):
    with pytest.raises(ConfigurationError) as caught:
        HttpConnection(name="crm", **options)
    assert "s3cr" not in str(caught.value)
    assert "pw" not in str(caught.value)


def test_auth_and_its_secret_go_together():
    for options in (
        {"kind": "bearer"},
        {"secret": Secret("x")},
        {"kind": "header", "secret": Secret("x")},
    ):
        with pytest.raises(ConfigurationError):
            Auth(**options)


def test_connections_have_unique_names():
    one = HttpConnection(name="crm", base_url="http://x")
    with pytest.raises(ConfigurationError, match="twice"):
        Connections([one, one])


def test_a_secret_does_not_show_itself():
    secret = Secret("very-secret")
    for shown in (
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret:>20}",
        repr([secret]),
        f"{secret}",
    ):
        assert "very" not in shown
    with pytest.raises(TypeError, match="pickled"):
        __import__("pickle").dumps(secret)
    with pytest.raises(TypeError, match="copied"):
        __import__("copy").deepcopy(secret)
    assert secret == Secret("very-secret")
    assert secret != Secret("other")


def test_mask_finds_a_secret_in_its_encodings():
    text = "a=p@ss/word b=p%40ss%2Fword c=cEBzcy93b3Jk d=ok"
    assert mask(text, [Secret("p@ss/word"), Secret("ok")]) == "a=*** b=*** c=*** d=ok"


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("plain", "plain"),
        ("a\n\n  b\tc\x00", "a b c"),
        ("<p>one</p><p>two &lt;3</p>", "one two <3"),
        ("<script>x</script>left", "left"),
        ("<script>never closed", ""),
        ("a < b and c > d", "a < b and c > d"),
        ("boom\nTraceback (most recent call last):\n  File", "boom"),
        ("Error: no\n    at Object.f (/srv/x.js:1:2)\n    at g (/y.js:3:4)", "Error: no"),
        ("java.lang.X: no\n\tat com.acme.A.b(A.java:12)", "java.lang.X: no"),
        ("panic: no\n\ngoroutine 1 [running]:\nmain.main()", "panic: no"),
    ],
)
def test_upstream_text_is_cleaned(text, made):
    assert clean(text) == made


def test_cleaning_takes_linear_time():
    for text in (
        "<" * 100_000,
        "\n" * 100_000,
        "<script>" * 20_000,
        "<!--" * 20_000,
        " at " * 50_000,
    ):
        assert len(clean(text)) <= 500
