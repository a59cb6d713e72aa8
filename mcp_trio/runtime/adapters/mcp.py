"""Tools of other MCP servers: the call goes on through our own client, in whatever era they speak.

Cancelling the call cancels the upstream one, its progress is told on, and what is left of the
time and the trace context go along in `_meta`. An upstream that wants to ask the user or the
model is refused: an operation has nobody to ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from typing import cast

import attrs
import msgspec
import trio

from mcp_trio.catalog.operation import Operation, OperationError
from mcp_trio.client.client import MCPClient
from mcp_trio.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    URL_REQUIRED,
    MCPError,
    MethodNotFoundError,
    ProtocolError,
    RemoteError,
    RequestTimeoutError,
    TransportClosedError,
    TransportError,
)
from mcp_trio.runtime import watching
from mcp_trio.runtime.adapters.base import INPUT_NAMES, Answer, Call, Plan, Send
from mcp_trio.runtime.connections import Connection, Connections
from mcp_trio.runtime.http_connection import Identity
from mcp_trio.runtime.mapping import Mapper, MappingError, compile_mapping
from mcp_trio.runtime.mcp_connection import McpConnection
from mcp_trio.runtime.mcp_links import Link, Links, key_of
from mcp_trio.runtime.policies import Settings
from mcp_trio.runtime.stages import Stage, StageError
from mcp_trio.wire import ABSENT, REVISIONS, CallToolResult, JSONObject, TextContent
from mcp_trio.wire.converter import to_wire

TIME_LEFT = "io.github.mcp-trio/timeLeftMs"
"""Key of `_meta` that tells the upstream how many milliseconds are left of the call."""
_TRACE = ("traceparent", "tracestate")
"""The trace context (W3C), which goes along."""
_ASKS = frozenset({MISSING_CAPABILITY, URL_REQUIRED})


@attrs.frozen(kw_only=True, eq=False)
class _Tool:
    """An operation, compiled."""

    connection: McpConnection
    settings: Settings
    name: str
    arguments: Mapper

    def fill(self, context: Mapping[str, object]) -> JSONObject:
        """The arguments of a call.

        Raises:
            MappingError: they are no object, or too large.
        """
        made = self.arguments(context)
        path = self.arguments.path
        if not isinstance(made, dict):
            raise MappingError("must give an object, the arguments of the tool", path=path)
        if len(msgspec.json.encode(made)) > self.settings.request_bytes:
            raise MappingError(
                f"the arguments are larger than {self.settings.request_bytes} bytes", path=path
            )
        return cast("JSONObject", made)


class McpAdapter:
    """Runs mcp operations over the sessions of a `Connections`. Implements `Adapter`."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    connection_type = McpConnection
    output_names = ("body", "content", "meta", "args")

    def compile(
        self, operation: Operation, connection: Connection | None, settings: Settings
    ) -> Plan:
        """Make a plan.

        Raises:
            OperationError, MappingError: target and mapping cannot work.
        """
        if not isinstance(connection, McpConnection):  # pragma: no cover  # the contract
            raise TypeError("an mcp operation needs an MCP connection")
        _check_auth(connection, settings)
        others = sorted(operation.input_mapping.keys() - {"body"})
        if others:
            raise OperationError(
                "an mcp operation has a body only, the arguments",
                place=f"input_mapping.{others[0]}",
            )
        tool = _Tool(
            connection=connection,
            settings=settings,
            name=cast("str", operation.target["tool"]),
            arguments=compile_mapping(
                operation.input_mapping.get("body", "=args"), "input_mapping.body", INPUT_NAMES
            ),
        )
        return Plan(
            prepare=partial(self._prepare, tool),
            reads=tool.arguments.names,
            idempotent=False,
        )

    def _prepare(self, tool: _Tool, context: Mapping[str, object], call: Call) -> Send:
        return partial(self._send, tool, tool.fill(context), call)

    async def _send(self, tool: _Tool, arguments: JSONObject, call: Call) -> Answer:
        connection, settings = tool.connection, tool.settings
        identity = None
        if connection.http is not None:
            identity = Identity(
                connections=self._connections,
                connection=connection.http,
                as_whom=settings.auth,
                principal=call.principal,
                shown=call.shown,
            )
            # Told here, where the reason can be given; each request asks again.
            await identity.credentials()
        links = self._connections.resource(
            f"{connection.name} sessions", lambda: Links(self._connections, connection)
        )
        key = key_of(connection, settings.auth, call.principal)
        for _ in range(2):
            link = links.link(key, identity)
            async with link.use(settings.timeouts.connect) as client:
                using = _Using(link=link, client=client)
                try:
                    return await self._ask(tool, arguments, call, using)
                except _ForgottenError:
                    link.drop()
        raise _failure("the upstream server forgets its sessions", "disconnected")

    async def _ask(self, tool: _Tool, arguments: JSONObject, call: Call, using: _Using) -> Answer:
        try:
            result = await using.client.call_tool(
                tool.name, arguments, on_progress=call.report, meta=_meta(call)
            )
        except RemoteError as error:
            return await _refusal(tool, error, using)
        except RequestTimeoutError as error:
            raise _failure("the upstream server did not answer in time", "timeout") from error
        except (TransportError, TransportClosedError) as error:
            using.link.drop()
            raise _failure(
                "the session with the upstream server broke off", "disconnected"
            ) from error
        except MethodNotFoundError as error:
            raise _asks() from error
        except ProtocolError as error:
            using.link.drop()
            raise _failure(
                "the upstream server's answer is not understood", "malformed_reply", retryable=False
            ) from error
        return _answer(result, tool.settings.response_bytes)


@attrs.frozen(kw_only=True)
class _Using:
    """The session that a call uses."""

    link: Link
    client: MCPClient


def _check_auth(connection: McpConnection, settings: Settings) -> None:
    if settings.auth == "on_behalf_of" and (
        connection.http is None or connection.http.on_behalf_of is None
    ):
        raise OperationError(
            f"the connection {connection.name} has no on_behalf_of", place="execution_config.auth"
        )


def _meta(call: Call) -> JSONObject:
    made: JSONObject = {
        key: call.meta[key] for key in _TRACE if isinstance(call.meta.get(key), str)
    }
    made.update(watching.fields())
    left = trio.current_effective_deadline() - trio.current_time()
    if left < float("inf"):
        made[TIME_LEFT] = max(0, int(left * 1000))
    return made


async def _refusal(tool: _Tool, error: RemoteError, using: _Using) -> Answer:
    """What an error of the protocol means, which is not how a tool fails."""
    if error.rpc_code in _ASKS:
        raise _asks() from error
    if not await _is_known(using):
        raise _ForgottenError from error
    if error.rpc_code in {INVALID_PARAMS, METHOD_NOT_FOUND} and not await _is_there(tool, using):
        raise StageError(
            Stage.ADAPTER_EXECUTION,
            "the upstream server has no such tool any more",
            sub="tool_gone",
            step="operator",
        ) from error
    return Answer(ok=False, code=error.rpc_code, message=error.message, retryable=False)


class _ForgottenError(Exception):
    """The server does not know the session any more, so the call was not made."""


async def _is_known(using: _Using) -> bool:
    """Whether the server still knows the session; each says in its own way that it does not."""
    if using.client.revision.stateless:
        return True
    try:
        await using.client.ping()
    except RemoteError:
        return False
    return True


async def _is_there(tool: _Tool, using: _Using) -> bool:
    """Whether the server lists the tool, on whatever page; yes if it cannot be asked."""
    try:
        async with aclosing(using.client.tools(cache=False)) as listing:
            async for listed in listing:
                if listed.name == tool.name:
                    return True
    except MCPError:
        return True
    return False


def _answer(result: CallToolResult, limit: int) -> Answer:
    wire = to_wire(result, REVISIONS[0])
    if len(msgspec.json.encode(wire)) > limit:
        raise StageError(
            Stage.ADAPTER_EXECUTION,
            f"the upstream's answer is larger than {limit} bytes",
            sub="response_bytes",
        )
    text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
    structured = result.structured_content
    failed = bool(result.is_error)
    return Answer(
        ok=not failed,
        body=(text or None) if structured is ABSENT else structured,
        content=tuple(result.content),
        code="tool_error" if failed else None,
        message=text if failed else None,
        retryable=False if failed else None,
        more={"content": wire.get("content", []), "meta": wire.get("_meta", {})},
    )


def _asks() -> StageError:
    return StageError(
        Stage.ADAPTER_EXECUTION,
        "the upstream tool asks for input of the user or the model, and an operation has none",
        sub="asks_back",
        step="operator",
    )


def _failure(message: str, sub: str, *, retryable: bool = True) -> StageError:
    return StageError(
        Stage.ADAPTER_EXECUTION,
        message,
        sub=sub,
        retryable=retryable,
        step=None if retryable else "operator",
    )
