"""Calling a function as a tool: arguments in, content and structured content out."""

from __future__ import annotations

import inspect
import logging
import re
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import TypedDict, Unpack, cast

import attrs
import msgspec
import trio

from mcp_trio.errors import MCPError, ToolError, sole_cause
from mcp_trio.framing.param_headers import ParamHeaderError, param_headers
from mcp_trio.json_schema import SchemaError, Validator, Violation
from mcp_trio.jsonrpc import codec
from mcp_trio.server.media import with_blocks
from mcp_trio.server.signature import (
    CONTENT,
    Signature,
    SignatureError,
    description_of,
    read_signature,
    underlying,
)
from mcp_trio.session.context import Context
from mcp_trio.session.dispatch import handler_failed
from mcp_trio.session.limits import ToolLimits
from mcp_trio.session.middleware import Authorizer, guarded_by
from mcp_trio.session.rates import Rate
from mcp_trio.wire import (
    ABSENT,
    CallToolResult,
    ContentBlock,
    Icon,
    JSONObject,
    TextContent,
    Tool,
    ToolAnnotations,
)

logger = logging.getLogger("mcp_trio.server")


@attrs.define
class Threads:
    """The worker threads of synchronous tools: their limit, and who was left behind.

    A cancelled call does not wait for its thread. The thread goes on until it asks
    `trio.from_thread.check_cancelled()` or ends; until then it counts as abandoned and
    keeps its place under the limit.
    """

    limiter: trio.CapacityLimiter
    running: int = 0
    """Threads inside a tool now, abandoned ones included."""
    abandoned: int = 0
    """Threads whose call was cancelled and that have not ended yet."""
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    async def run(self, function: Callable[[], object], name: str) -> object:
        """Run a function in a thread. Cancelled, the call ends at once and leaves the thread."""
        inside = _Inside()

        def body() -> object:
            with self._lock:
                if inside.given_up:
                    return None  # cancelled before it began: there is nothing to do any more
                inside.running = True
                self.running += 1
            try:
                return function()
            finally:
                with self._lock:
                    inside.running = False
                    self.running -= 1
                    self.abandoned -= inside.given_up

        try:
            return await trio.to_thread.run_sync(body, abandon_on_cancel=True, limiter=self.limiter)
        except trio.Cancelled:
            with self._lock:
                inside.given_up = True
                left_behind = inside.running
                self.abandoned += left_behind
            if left_behind:
                logger.warning("the thread of tool %s was abandoned by a cancelled call", name)
            raise


@attrs.define
class _Inside:
    """How far one thread has come; guarded by the lock of `Threads`."""

    running: bool = False
    given_up: bool = False


async def run_function(
    function: Callable[..., object],
    signature: Signature,
    threads: Threads,
    name: str,
    keywords: dict[str, object],
) -> object:
    """Run a function of the user: a coroutine function in this task, any other in a thread."""
    if signature.is_async:
        return await cast("Callable[..., Awaitable[object]]", function)(**keywords)
    made: list[object] = []
    await threads.run(lambda: made.append(function(**keywords)), name)
    # It is a coroutine if a decorator or a lambda stands around an async function. Trio
    # takes none as the result of a thread, hence the list.
    result = made[0]
    return await cast("Awaitable[object]", result) if inspect.isawaitable(result) else result


@attrs.frozen(kw_only=True)
class FunctionTool:
    """A function as a `ToolEntry`."""

    definition: Tool
    function: Callable[..., object]
    signature: Signature
    validator: Validator
    output_validator: Validator | None
    threads: Threads
    authorize: Authorizer | None = None
    limits: ToolLimits = attrs.field(factory=ToolLimits)
    """What it was registered with."""

    async def call(self, context: Context, arguments: JSONObject) -> CallToolResult:
        """Validate, run, and dress the result.

        Wrong arguments, `ToolError` and unexpected exceptions are results with
        `is_error`; an `MCPError` of the function goes on as a JSON-RPC error.
        """
        if not self.validator.is_valid(arguments):
            return argument_fault(self.validator.violations(arguments))
        try:
            keywords = self.signature.bind(arguments)
        except msgspec.ValidationError:
            return argument_fault(self.signature.faults(arguments))
        if self.signature.context_parameter is not None:
            keywords[self.signature.context_parameter] = context
        try:
            value = await run_function(
                self.function, self.signature, self.threads, self.definition.name, keywords
            )
            return self._dress(await with_blocks(value))
        except ToolError as error:
            return error_result(str(error))
        except MCPError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary: a tool may raise anything
            return self._failure(sole_cause(error))

    def _failure(self, error: BaseException) -> CallToolResult:
        if isinstance(error, ToolError):
            return error_result(str(error))
        if isinstance(error, MCPError):
            raise error
        return error_result(handler_failed(f"tool {self.definition.name}", error).message)

    def _dress(self, value: object) -> CallToolResult:
        result = self._as_result(value)
        if self.output_validator is None or result.is_error:
            return result
        # What is listed is owed, also by a result made by hand (T4).
        if result.structured_content is ABSENT:
            raise TypeError("the result has no structured content, its annotation promises some")
        faults = self.output_validator.violations(result.structured_content)
        if faults:
            raise TypeError(f"the result does not fit its annotation: {_join(faults)}")
        return result

    def _as_result(self, value: object) -> CallToolResult:
        if isinstance(value, CallToolResult):
            return _told(value)
        content = _as_content(value)
        if content is not None:
            return CallToolResult(content=content)
        if value is None and self.output_validator is None:
            return CallToolResult()
        try:
            plain = msgspec.to_builtins(value, str_keys=True)
            encoded = codec.encode_value(plain)
        except codec.EncodeError as error:
            raise ToolError(f"The result {error}") from error
        text = plain if isinstance(plain, str) else encoded.decode()
        blocks: list[ContentBlock] = [TextContent(text=text)]
        if self.output_validator is None:
            return CallToolResult(content=blocks)
        structured = {"result": plain} if self.signature.wraps_output else plain
        return CallToolResult(content=blocks, structured_content=structured)


class ToolOptions(TypedDict, total=False):
    """What can be said about a tool beside its function. Everything is optional."""

    name: str
    """Defaults to the function's name; 1 to 128 of letters, digits, `_`, `-` and `.` (T2)."""
    title: str
    """A name for people."""
    description: str
    """Defaults to the docstring up to its sections."""
    annotations: ToolAnnotations
    """Hints about behaviour."""
    icons: list[Icon]
    """Pictures."""
    meta: JSONObject
    """The tool's `_meta`."""
    input_schema: JSONObject
    """Replaces the schema read from the signature, word for word."""
    required_scopes: Iterable[str]
    """Scopes the caller needs to use it; to others it is not listed, and refused."""
    authorize: Authorizer
    """Says who may use it; to others it is not listed, and refused. See `Authorizer`."""
    timeout: float
    """Seconds a call may take, in place of `ServerOptions.request_timeout`."""
    rate: Rate | float
    """How often it may be called; a number is calls a minute, of all clients together."""
    max_in_flight: int
    """Calls of it that run at once."""


_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


def entry_name(function: Callable[..., object], given: str | None, *, what: str) -> str:
    """The name of an entry: the one given, or the function's.

    Raises:
        SignatureError: it cannot be a name (T2).
    """
    inner, _ = underlying(function)
    default: str = getattr(inner, "__name__", type(inner).__name__)
    name = default if given is None else given
    if not _NAME.fullmatch(name):
        raise SignatureError(f"{name!r} cannot be the name of a {what}; give one with name=")
    return name


def function_tool(
    function: Callable[..., object], threads: Threads, **options: Unpack[ToolOptions]
) -> FunctionTool:
    """Make a tool of a function.

    Raises:
        SignatureError: the function cannot be called with JSON arguments, or its name
            cannot be a tool's.
        SchemaError: a schema given by hand cannot be used.
        ConfigurationError: a limit is not greater than 0.
    """
    signature = read_signature(function)
    name = entry_name(function, options.get("name"), what="tool")
    tool = Tool(
        name=name,
        title=options.get("title"),
        description=options.get("description") or description_of(function),
        input_schema=options.get("input_schema") or signature.input_schema,
        output_schema=signature.output_schema,
        annotations=options.get("annotations"),
        icons=options.get("icons"),
        meta=options.get("meta"),
    )
    if tool.input_schema.get("type") != "object":
        raise SchemaError(f"the input schema of {name} needs type object at its root")
    try:
        param_headers(tool.input_schema)
    except ParamHeaderError as error:
        raise SchemaError(f"the input schema of {name} cannot be used: {error}") from error
    return FunctionTool(
        definition=tool,
        function=function,
        signature=signature,
        validator=Validator(tool.input_schema),
        output_validator=None if tool.output_schema is None else Validator(tool.output_schema),
        threads=threads,
        authorize=guarded_by(
            options.get("required_scopes"), options.get("authorize"), f"the tool {name}"
        ),
        limits=_limits_among(options),
    )


def _limits_among(options: ToolOptions) -> ToolLimits:
    rate = options.get("rate")
    if isinstance(rate, int | float):
        rate = Rate(per_minute=rate)
    return ToolLimits(
        timeout=options.get("timeout"), rate=rate, max_in_flight=options.get("max_in_flight")
    )


def _told(result: CallToolResult) -> CallToolResult:
    """Say a result that is only structured in text as well: not every model sees the rest (T4)."""
    if result.content or result.structured_content is ABSENT:
        return result
    try:
        text = codec.encode_value(result.structured_content).decode()
    except codec.EncodeError as error:
        raise ToolError(f"The result {error}") from error
    return attrs.evolve(result, content=[TextContent(text=text)])


def _as_content(value: object) -> list[ContentBlock] | None:
    """The value as content blocks, if that is what it is or what it holds."""
    if isinstance(value, CONTENT):
        return [value]
    if isinstance(value, (list, tuple)):
        items = cast("list[object]", value)
        if any(isinstance(item, CONTENT) for item in items):
            return [
                item if isinstance(item, CONTENT) else TextContent(text=str(item)) for item in items
            ]
    return None


def error_result(text: str) -> CallToolResult:
    """A result that tells the model what went wrong."""
    return CallToolResult(content=[TextContent(text=text)], is_error=True)


def _join(violations: list[Violation]) -> str:
    return "; ".join(f"{fault.pointer or 'the whole'} {fault.message}" for fault in violations)


def argument_fault(violations: list[Violation]) -> CallToolResult:
    """The result for arguments that break the input schema: each place and rule is named."""
    lines = [
        f"- {fault.pointer or '(root)'}: {fault.message} [{fault.rule}]" for fault in violations
    ]
    return error_result("\n".join(["Invalid arguments:", *lines]))
