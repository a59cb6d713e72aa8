"""Functions called as tools: arguments, results, failures, and the threads of sync ones."""

import datetime as dt
import functools
import logging
import math
import threading
from collections.abc import Callable
from typing import Annotated, Any

import attrs
import msgspec
import pytest
import trio
import trio.testing

from mcp_trio.errors import InvalidParamsError, NotFoundError, ToolError
from mcp_trio.json_schema import SchemaError
from mcp_trio.server.invoke import FunctionTool, Threads, function_tool
from mcp_trio.server.signature import SignatureError
from mcp_trio.session.context import Context
from mcp_trio.wire import (
    ABSENT,
    REVISIONS,
    CallToolResult,
    ImageContent,
    JSONObject,
    TextContent,
)

IMAGE = ImageContent(data="AAAA", mime_type="image/png")


class Silence:
    """An exchange with nobody at the other end."""

    async def notify(self, method: str, params: JSONObject) -> None:
        await trio.lowlevel.checkpoint()

    async def keep_alive(self) -> None:
        await trio.lowlevel.checkpoint()


def context() -> Context:
    return Context(
        request_id=1,
        method="tools/call",
        revision=REVISIONS[0],
        exchange=Silence(),
        scope=trio.CancelScope(),
    )


def threads() -> Threads:
    return Threads(trio.CapacityLimiter(4))


def tool(function: Callable[..., Any], **options: Any) -> FunctionTool:
    return function_tool(function, threads(), **options)


async def call(function: Callable[..., Any], **arguments: Any) -> CallToolResult:
    return await tool(function).call(context(), arguments)


async def text_of(function: Callable[..., Any], **arguments: Any) -> str:
    result = await call(function, **arguments)
    assert not result.is_error
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def failure_of(function: Callable[..., Any], **arguments: Any) -> str:
    result = await call(function, **arguments)
    assert result.is_error
    assert result.structured_content is ABSENT
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


# -- calling ------------------------------------------------------------------------------


async def test_an_async_function_runs_in_the_task_of_the_call() -> None:
    async def here() -> bool:
        await trio.lowlevel.checkpoint()
        return trio.lowlevel.current_task() is outer

    outer = trio.lowlevel.current_task()
    assert (await call(here)).structured_content == {"result": True}


async def test_a_sync_function_runs_in_a_thread_of_its_own() -> None:
    def where() -> int:
        return threading.get_ident()

    found: Any = (await call(where)).structured_content
    assert found["result"] != threading.get_ident()


async def test_the_context_is_passed_under_whatever_name() -> None:
    async def ask(a: int, whatever: Context | None = None) -> str:
        await trio.lowlevel.checkpoint()
        assert whatever is not None
        return f"{whatever.request_id} {a}"

    assert await text_of(ask, a=3) == "1 3"


async def test_a_sync_function_may_take_a_context_too() -> None:
    def ask(c: Context) -> str:
        return c.method

    assert (await call(ask)).structured_content == {"result": "tools/call"}


async def test_arguments_left_out_have_the_functions_own_default() -> None:
    marker = object()

    async def ask(a: int = 5, b: Any = marker) -> list[bool]:
        await trio.lowlevel.checkpoint()
        return [a == 5, b is marker]

    assert (await call(ask)).structured_content == {"result": [True, True]}


async def test_a_plain_function_that_returns_a_coroutine_is_awaited() -> None:
    async def later(a: int) -> int:
        await trio.lowlevel.checkpoint()
        return a + 1

    @functools.wraps(later)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        return later(*args, **kwargs)

    entry = tool(functools.partial(decorated), name="decorated")
    assert (await entry.call(context(), {"a": 1})).structured_content == {"result": 2}


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({}, "misses a"),
        ({"a": "x"}, "/a: is not of type integer [type]"),
        ({"a": True}, "/a: is not of type integer [type]"),
        ({"a": 3.5}, "/a: is not of type integer [type]"),
        ({"a": 9}, "/a: breaks maximum 5 [maximum]"),
        ({"a": 1, "b": 2}, "(root): has unknown keys: b [additionalProperties]"),
        ({"a": 1, "when": "soon"}, "Invalid arguments"),
    ],
)
async def test_wrong_arguments_are_a_result_for_the_model(
    arguments: dict[str, Any], fault: str
) -> None:
    ran = False

    async def ask(a: Annotated[int, msgspec.Meta(le=5)], when: dt.date | None = None):
        nonlocal ran
        ran = True

    assert fault in await failure_of(ask, **arguments)  # T7, A4
    assert not ran


async def test_a_wrong_argument_is_not_repeated() -> None:
    async def ask(a: int, b: dt.date): ...

    assert "secret" not in await failure_of(ask, a="secret", b="secret")
    assert "secret" not in await failure_of(ask, a=1, b="secret")


async def test_strings_that_look_like_json_stay_strings() -> None:
    def echo(value: str) -> str:
        return value

    for value in ("[1,2]", "123", "null", '{"a":1}', " x ", "\u2028"):
        assert await text_of(echo, value=value) == value  # py#381


async def test_integers_keep_every_digit() -> None:
    def echo(value: int) -> int:
        return value

    result = await call(echo, value=9007199254740993)
    assert result.content == [TextContent(text="9007199254740993")]
    assert result.structured_content == {"result": 9007199254740993}


# -- results ------------------------------------------------------------------------------


def giving(value: object, annotation: Any = Any) -> Callable[..., Any]:
    async def give() -> Any:
        await trio.lowlevel.checkpoint()
        return value

    give.__annotations__["return"] = annotation
    return give


@attrs.define
class Point:
    x: int
    y: float = 0.5


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (None, []),
        ("", [TextContent(text="")]),
        ("a", [TextContent(text="a")]),
        (1, [TextContent(text="1")]),
        (True, [TextContent(text="true")]),
        ([], [TextContent(text="[]")]),
        ([1, "a", None], [TextContent(text='[1,"a",null]')]),
        ((1, 2), [TextContent(text="[1,2]")]),
        ({"a": "ü"}, [TextContent(text='{"a":"ü"}')]),
        ({1: 2}, [TextContent(text='{"1":2}')]),
        (Point(1), [TextContent(text='{"x":1,"y":0.5}')]),
        ([Point(1)], [TextContent(text='[{"x":1,"y":0.5}]')]),
        (b"x", [TextContent(text="eA==")]),
        (IMAGE, [IMAGE]),
        ([IMAGE, "caption"], [IMAGE, TextContent(text="caption")]),
        ((IMAGE, 5), [IMAGE, TextContent(text="5")]),
    ],
    ids=repr,
)
async def test_a_result_becomes_content(value: object, content: list[Any]) -> None:
    result = await call(giving(value))
    assert result == CallToolResult(content=content)


@pytest.mark.parametrize(
    ("value", "annotation", "structured"),
    [
        (Point(1), Point, {"x": 1, "y": 0.5}),
        ({"a": 1}, dict[str, int], {"a": 1}),
        ({1: "a"}, dict[int, str], {"1": "a"}),
        (5, int, {"result": 5}),
        ([Point(1)], list[Point], {"result": [{"x": 1, "y": 0.5}]}),
        (None, int | None, {"result": None}),
        (None, Point | None, {"result": None}),
        ({3}, set[int], {"result": [3]}),
    ],
    ids=str,
)
async def test_an_annotated_result_has_structure_and_text(
    value: object, annotation: Any, structured: object
) -> None:
    result = await call(giving(value, annotation))
    assert result.structured_content == structured  # T4
    (block,) = result.content
    assert isinstance(block, TextContent)


async def test_a_result_made_by_hand_passes_as_it_is() -> None:
    made = CallToolResult(content=[IMAGE], structured_content=[1], meta={"a": 1}, is_error=True)
    assert await call(giving(made)) is made


async def test_a_result_made_by_hand_that_is_only_structured_is_said_in_text_too() -> None:
    made = CallToolResult(structured_content={"x": [1, None]})
    assert await call(giving(made)) == attrs.evolve(
        made, content=[TextContent(text='{"x":[1,null]}')]
    )
    nan = CallToolResult(structured_content={"x": math.nan})
    assert "NaN or an infinity" in await failure_of(giving(nan))


async def test_a_result_made_by_hand_owes_the_structure_its_annotation_promises() -> None:
    fitting = CallToolResult(content=[IMAGE], structured_content={"x": 1, "y": 2})
    assert await call(giving(fitting, Point)) is fitting
    failed = CallToolResult(content=[IMAGE], is_error=True)
    assert await call(giving(failed, Point)) is failed
    for unfit in (CallToolResult(), CallToolResult(structured_content={"x": "1"}), IMAGE):
        assert "reference" in await failure_of(giving(unfit, Point))


@pytest.mark.parametrize(
    ("value", "annotation"),
    [("x", int), (None, int), ({"x": "1"}, Point), ([1], list[str]), (Point("x"), Point)],  # type: ignore[arg-type]  # the fault of the tool
    ids=str,
)
async def test_a_result_that_does_not_fit_its_annotation_is_a_failure(
    value: object, annotation: Any, caplog: pytest.LogCaptureFixture
) -> None:
    text = await failure_of(giving(value, annotation))
    assert "reference" in text
    assert "does not fit its annotation" in caplog.text


@pytest.mark.parametrize("annotation", [Any, list[float], dict[str, Any], float], ids=str)
@pytest.mark.parametrize(
    "value", [math.nan, math.inf, [1.0, math.nan], {"a": [{"b": -math.inf}]}], ids=str
)
async def test_a_result_with_nan_is_a_failure_that_says_so(value: object, annotation: Any) -> None:
    assert "NaN or an infinity" in await failure_of(giving(value, annotation))  # py#3385


@pytest.mark.parametrize("value", ["\ud800", {"a": "x\udfff"}, ["\ud800"]], ids=ascii)
async def test_a_result_with_a_lone_surrogate_is_a_failure(value: object) -> None:
    assert "cannot be written as JSON" in await failure_of(giving(value))


async def test_a_result_without_a_json_form_is_a_failure_without_its_text() -> None:
    class Secret:
        def __repr__(self) -> str:
            return "secret"

    text = await failure_of(giving(Secret()))
    assert "reference" in text
    assert "secret" not in text


async def test_a_naive_date_and_time_is_sent_and_not_promised_to_have_an_offset() -> None:
    naive = dt.datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001 - the point of it
    entry = tool(giving(naive, dt.datetime))
    result = await entry.call(context(), {})
    assert result.structured_content == {"result": "2026-01-02T03:04:05"}
    assert "date-time" not in str(entry.definition.output_schema)


# -- failures -----------------------------------------------------------------------------


def raising(error: BaseException) -> Callable[..., Any]:
    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise error

    return fail


async def test_the_text_of_a_tool_error_is_for_the_model() -> None:
    assert await failure_of(raising(ToolError("no such city"))) == "no such city"


async def test_an_unexpected_exception_is_masked_and_logged_under_a_reference(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dsn = "postgres://user:secret@db"
    with caplog.at_level(logging.ERROR):
        text = await failure_of(raising(RuntimeError(dsn)))
    assert dsn not in text  # py#698
    assert "RuntimeError" not in text
    reference = text.rpartition(" ")[2]
    assert len(reference) >= 8
    assert reference in caplog.text
    assert dsn in caplog.text


async def test_two_failures_have_two_references() -> None:
    fail = raising(RuntimeError())
    assert await failure_of(fail) != await failure_of(fail)


@pytest.mark.parametrize("error", [NotFoundError("gone"), InvalidParamsError("bad")], ids=repr)
async def test_a_protocol_error_goes_on_as_itself(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        await call(raising(error))
    assert caught.value is error


async def test_a_group_of_one_is_the_one() -> None:
    def grouped(error: Exception) -> Callable[..., Any]:
        return raising(ExceptionGroup("outer", [ExceptionGroup("inner", [error])]))

    assert await failure_of(grouped(ToolError("told"))) == "told"
    with pytest.raises(NotFoundError, match="gone"):
        await call(grouped(NotFoundError("gone")))
    assert "reference" in await failure_of(grouped(RuntimeError("secret")))


async def test_a_group_of_several_is_one_masked_failure() -> None:
    group = ExceptionGroup("many", [ToolError("a"), ToolError("b")])
    assert "reference" in await failure_of(raising(group))


async def test_a_failure_in_a_nursery_of_the_tool_is_read_like_any_other() -> None:
    async def fail() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(raising(ToolError("from a child")))

    assert await failure_of(fail) == "from a child"


async def test_a_failure_in_a_thread_is_read_like_any_other() -> None:
    def fail(text: str) -> None:
        raise ToolError(text) if text else ValueError("secret")

    assert await failure_of(fail, text="told") == "told"
    assert "secret" not in await failure_of(fail, text="")


async def test_what_ends_the_program_is_not_swallowed() -> None:
    with pytest.raises(KeyboardInterrupt):
        await call(raising(KeyboardInterrupt()))


async def test_a_library_that_gives_up_ends_its_call_and_not_the_server() -> None:
    assert "reference" in await failure_of(raising(SystemExit("secret")))
    assert "secret" not in await failure_of(raising(SystemExit("secret")))


async def test_a_cancelled_call_is_cancelled() -> None:
    async def forever() -> None:
        await trio.sleep_forever()

    with trio.CancelScope() as scope:
        scope.cancel()
        await call(forever)
    assert scope.cancelled_caught


# -- threads ------------------------------------------------------------------------------


class Gate:
    """A sync tool that says when it has begun and ends when it is let."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.left = threading.Event()
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        self.begun.set()
        try:
            assert self.go_on.wait(30)
        finally:
            self.left.set()

    async def wait(self, event: threading.Event) -> None:
        assert await trio.to_thread.run_sync(event.wait, 30)


async def until_counted(pool: Threads, running: int) -> None:
    """The thread leaves its books a moment after its function."""
    with trio.fail_after(30):
        while pool.running != running:
            await trio.to_thread.run_sync(lambda: None)


async def test_a_running_thread_is_counted_and_gone_afterwards() -> None:
    gate, pool = Gate(), threads()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.run, gate, "gate")
        await gate.wait(gate.begun)
        assert (pool.running, pool.abandoned) == (1, 0)
        gate.go_on.set()
    assert (pool.running, pool.abandoned) == (0, 0)


async def test_a_cancelled_call_leaves_its_thread_which_is_counted_until_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate, pool = Gate(), threads()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.run, gate, "gate")
        await gate.wait(gate.begun)
        nursery.cancel_scope.cancel()
    assert (pool.running, pool.abandoned) == (1, 1)
    assert "gate" in caplog.text
    gate.go_on.set()
    await gate.wait(gate.left)
    await until_counted(pool, 0)
    assert pool.abandoned == 0


async def test_many_abandoned_threads_are_all_counted_back() -> None:
    gates, pool = [Gate() for _ in range(4)], threads()
    async with trio.open_nursery() as nursery:
        for gate in gates:
            nursery.start_soon(pool.run, gate, "gate")
        for gate in gates:
            await gate.wait(gate.begun)
        nursery.cancel_scope.cancel()
    assert (pool.running, pool.abandoned) == (4, 4)
    for gate in gates:
        gate.go_on.set()
    await until_counted(pool, 0)
    assert pool.abandoned == 0


async def test_an_abandoned_thread_keeps_its_place_under_the_limit() -> None:
    first, second, pool = Gate(), Gate(), Threads(trio.CapacityLimiter(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.run, first, "first")
        await first.wait(first.begun)
        nursery.cancel_scope.cancel()
    second.go_on.set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.run, second, "second")
        await trio.testing.wait_all_tasks_blocked()
        assert second.calls == 0
        first.go_on.set()
    assert second.calls == 1


async def test_a_call_cancelled_before_its_turn_never_runs() -> None:
    first, second, pool = Gate(), Gate(), Threads(trio.CapacityLimiter(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.run, first, "first")
        await first.wait(first.begun)
        with trio.CancelScope() as scope:
            scope.cancel()
            await pool.run(second, "second")
        assert (pool.running, pool.abandoned) == (1, 0)
        first.go_on.set()
    assert second.calls == 0
    assert pool.running == 0


class SlowToEnter:
    """A lock that lets worker threads in only when it is told to."""

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.open = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            self.arrived.set()
            assert self.open.wait(30)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


async def test_a_thread_that_comes_after_its_call_was_cancelled_does_nothing() -> None:
    lock, gate, limiter = SlowToEnter(), Gate(), trio.CapacityLimiter(1)
    pool = Threads(limiter, lock=lock)  # type: ignore[arg-type]  # all that is asked of a lock
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.run, gate, "gate")
        await gate.wait(lock.arrived)
        nursery.cancel_scope.cancel()
    assert (pool.running, pool.abandoned) == (0, 0)
    lock.open.set()
    async with limiter:
        assert gate.calls == 0
    assert (pool.running, pool.abandoned) == (0, 0)


async def test_a_failure_of_an_abandoned_thread_is_counted_back_too() -> None:
    gate, pool = Gate(), threads()

    def fail() -> None:
        gate()
        raise RuntimeError("nobody hears this")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.run, fail, "fail")
        await gate.wait(gate.begun)
        nursery.cancel_scope.cancel()
    gate.go_on.set()
    await until_counted(pool, 0)
    assert pool.abandoned == 0


# -- making a tool of a function ------------------------------------------------------------


async def test_a_tool_has_the_name_and_text_of_its_function() -> None:
    def add(a: int) -> int:
        """Add."""
        return a

    definition = tool(add).definition
    assert (definition.name, definition.description) == ("add", "Add.")
    assert tool(functools.partial(add, a=1)).definition.name == "add"
    given = tool(add, name="plus", description="Sum.", title="Plus").definition
    assert (given.name, given.description, given.title) == ("plus", "Sum.", "Plus")


@pytest.mark.parametrize("name", ["", "a b", "ü", "a/b", "x" * 129, "a\n"])
async def test_a_name_outside_the_rules_is_refused(name: str) -> None:
    with pytest.raises(SignatureError):  # T2
        tool(giving(1), name=name)


async def test_an_input_schema_given_by_hand_is_kept_word_for_word_and_checked() -> None:
    by_hand = {"type": "object", "properties": {"a": {"type": "integer"}}, "x-more": [1]}

    def add(a: int = 0) -> int:
        return a

    assert tool(add, input_schema=by_hand).definition.input_schema == by_hand
    for unfit in (
        {"type": "nonsense"},
        {"properties": {}},
        {"type": "array"},
        {"type": "object", "$ref": "https://a.example/"},
        {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}},
    ):
        with pytest.raises(SchemaError):
            tool(add, input_schema=unfit)


# -- arguments that are right for the schema and wrong for their type -------------------------


async def test_every_argument_that_cannot_be_read_is_named_with_its_rule_and_never_repeated():
    import datetime as dt
    import decimal
    import uuid

    import attrs

    from mcp_trio import MCPClient, MCPServer

    @attrs.define
    class Limited:
        n: int = attrs.field(validator=attrs.validators.le(5))

    server = MCPServer("s")

    @server.tool
    async def take(  # noqa: PLR0917 - one of each kind
        when: dt.datetime,
        day: dt.date,
        id: uuid.UUID,  # noqa: A002 - the name is the argument's
        price: decimal.Decimal,
        data: bytes,
        counts: dict[int, str],
        own: Limited,
        rows: list[dt.date],
    ) -> str:
        return "taken"

    arguments = {
        "when": "canary-1",
        "day": "canary-2",
        "id": "canary-3",
        "price": "canary-4",
        "data": "canary*5",
        "counts": {"canary-6": "x"},
        "own": {"n": 4242},
        "rows": ["2026-01-01", "canary-7"],
    }
    async with MCPClient(server) as client:
        result = await client.call_tool("take", arguments)
    assert result.is_error
    head, *faults = result.content[0].text.splitlines()
    assert head == "Invalid arguments:"
    assert [fault.split(":")[0] for fault in faults] == [
        "- /when",
        "- /day",
        "- /id",
        "- /price",
        "- /data",
        "- /counts/*" if "/counts/*" in faults[5] else "- /counts",
        "- /own",
        "- /rows/1" if "/rows/1" in faults[7] else "- /rows/*",
    ]
    assert all(fault.endswith("]") for fault in faults)
    assert "canary" not in result.content[0].text
    assert "4242" not in result.content[0].text


async def test_a_list_or_a_text_with_zero_bytes_and_options_out_of_range_are_refused():
    from mcp_trio import ConfigurationError, File, ServerOptions
    from mcp_trio.server.offers import Offers

    assert (await File(b"\x00\x01", uri="test://x").contents()).blob is not None
    for wrong in (
        {"page_size": 0},
        {"page_size": -1},
        {"max_threads": 0},
        {"request_timeout": -1},
        {"state_keys": bytes(32)},
    ):
        with pytest.raises(ConfigurationError):
            ServerOptions(**wrong)
    offers = Offers(max_threads=1, listener_patience=1)
    with pytest.raises(ConfigurationError, match="URI"):
        offers.resource(lambda: "x")
    with pytest.raises(ConfigurationError, match="argument"):
        offers.completion(lambda typed, known: [])
    with pytest.raises(SignatureError, match="not a function: 'name'"):
        offers.tool("name")


def test_a_type_without_a_json_form_is_told_by_the_name_of_its_parameter():
    def bad(fine: int, odd: complex) -> str:
        return ""

    with pytest.raises(SignatureError, match="parameter odd has a type") as caught:
        function_tool(bad, Threads(trio.CapacityLimiter(1)))
    assert "\n" not in str(caught.value)
