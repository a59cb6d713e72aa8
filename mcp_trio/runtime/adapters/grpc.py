"""gRPC: one method of the descriptors in the view, with one answer or a stream of them.

What is left of the time goes along as `grpc-timeout`; leaving a call cancels it. Between JSON
and messages `grpc_descriptor` translates; threads and futures are `grpc_channel`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import cast

import attrs
import msgspec
import trio

from mcp_trio.catalog.operation import Operation, OperationError
from mcp_trio.runtime import watching
from mcp_trio.runtime.adapters.base import INPUT_NAMES, Answer, Call, Plan, Send
from mcp_trio.runtime.adapters.grpc_descriptor import Method, UnfitError, find_method
from mcp_trio.runtime.adapters.http_headers import check_header, check_line, scalar
from mcp_trio.runtime.connections import Connection, Connections
from mcp_trio.runtime.grpc_channel import Channel, Ended, Request
from mcp_trio.runtime.grpc_connection import GrpcConnection
from mcp_trio.runtime.http_connection import Credentials, Identity
from mcp_trio.runtime.mapping import Mapper, MappingError, compile_mapping
from mcp_trio.runtime.policies import Settings
from mcp_trio.runtime.stages import Stage, StageError
from mcp_trio.wire import JSONObject

MAX_MESSAGES = 1_000
"""Messages of a stream that an operation without `limits.items` gives at most."""
_PASSING = frozenset({"UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED"})
"""Statuses that may pass by themselves."""
_PLACE = "input_mapping.message"


@attrs.frozen(kw_only=True, eq=False)
class _Procedure:
    """An operation, compiled."""

    connection: GrpcConnection
    settings: Settings
    method: Method
    message: Mapper
    metadata: Mapper | None

    @property
    def reads(self) -> frozenset[tuple[str, str | None]]:
        """What the mappings read of the context."""
        return (
            self.message.names
            if self.metadata is None
            else (self.message.names | self.metadata.names)
        )

    def encode(self, context: Mapping[str, object]) -> bytes:
        """Write the request.

        Raises:
            MappingError: it is no message of the method, or too large.
        """
        made = self.message(context)
        if not isinstance(made, dict):
            raise MappingError("must give an object", path=_PLACE)
        try:
            raw = self.method.encode(cast("JSONObject", made))
        except UnfitError as error:
            raise MappingError(str(error), path=_PLACE) from error
        if len(raw) > self.settings.request_bytes:
            raise MappingError(
                f"the message is larger than {self.settings.request_bytes} bytes", path=_PLACE
            )
        return raw

    def headers(self, context: Mapping[str, object]) -> dict[str, str]:
        """The metadata of the operation.

        Raises:
            MappingError: a value cannot be sent.
        """
        if self.metadata is None:
            return {}
        made = cast("Mapping[str, object]", self.metadata(context))
        return {
            name.lower(): check_line(
                scalar(value, f"input_mapping.headers.{name}"), f"input_mapping.headers.{name}"
            )
            for name, value in made.items()
        }


class GrpcAdapter:
    """Runs grpc operations over the channels of a `Connections`. Implements `Adapter`."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    connection_type = GrpcConnection
    output_names = ("message", "messages", "metadata", "status", "body", "args")

    def compile(
        self, operation: Operation, connection: Connection | None, settings: Settings
    ) -> Plan:
        """Make a plan.

        Raises:
            OperationError, MappingError: descriptors, target and mapping cannot work.
        """
        if not isinstance(connection, GrpcConnection):  # pragma: no cover  # the contract
            raise TypeError("a grpc operation needs a gRPC connection")
        target, mapping = operation.target, operation.input_mapping
        method = find_method(
            target["descriptor"], cast("str", target["service"]), cast("str", target["method"])
        )
        if not method.streams:
            settings.refuse_stream()
        if settings.auth == "on_behalf_of" and connection.http.on_behalf_of is None:
            raise OperationError(
                f"the connection {connection.name} has no on_behalf_of",
                place="execution_config.auth",
            )
        _check_mapping(mapping, method, connection)
        procedure = _Procedure(
            connection=connection,
            settings=settings,
            method=method,
            message=compile_mapping(mapping.get("message", "=args"), _PLACE, INPUT_NAMES),
            metadata=compile_mapping(mapping["headers"], "input_mapping.headers", INPUT_NAMES)
            if "headers" in mapping
            else None,
        )
        return Plan(
            prepare=partial(self._prepare, procedure),
            reads=procedure.reads,
            idempotent=method.idempotent,
        )

    def _prepare(self, procedure: _Procedure, context: Mapping[str, object], call: Call) -> Send:
        identity = Identity(
            connections=self._connections,
            connection=procedure.connection.http,
            as_whom=procedure.settings.auth,
            principal=call.principal,
            shown=call.shown,
        )
        request = Request(
            path=procedure.method.path,
            message=procedure.encode(context),
            metadata=procedure.headers(context),
            timeout=0,
        )
        return partial(self._send, _Asking(procedure, request, identity, call))

    async def _send(self, asking: _Asking) -> Answer:
        """Send, a second time if the upstream refuses credentials that can be renewed."""
        settings = asking.procedure.settings
        credentials = await asking.identity.credentials()
        channel = self._channel(asking.procedure)
        await channel.connect(settings.timeouts.connect)
        answer = await asking.exchange(channel, credentials)
        if answer.code == "UNAUTHENTICATED":
            fresh = await asking.identity.again(credentials)
            if fresh is not None:
                answer = await asking.exchange(channel, fresh)
        return answer

    def _channel(self, procedure: _Procedure) -> Channel:
        connection, most = procedure.connection, procedure.settings.response_bytes
        return self._connections.resource(
            f"{connection.name} channel {most}",
            lambda: Channel(self._connections, connection, most),
        )


@attrs.frozen
class _Asking:
    """One call on its way."""

    procedure: _Procedure
    request: Request
    identity: Identity
    call: Call

    async def exchange(self, channel: Channel, credentials: Credentials) -> Answer:
        """Send it once."""
        left = trio.current_effective_deadline() - trio.current_time()
        request = attrs.evolve(
            self.request,
            metadata={**watching.fields(), **self.request.metadata, **credentials.headers},
            timeout=max(0.001, min(left, self.procedure.settings.timeouts.total)),
        )
        if self.procedure.method.streams:
            return await self._collect(channel, request)
        ended = await channel.call(request)
        if ended.code != "OK":
            return self._failed(ended)
        message = self._decoded(ended.message)
        return Answer(ok=True, body=message, more=_shown(ended, message, [message]))

    async def _collect(self, channel: Channel, request: Request) -> Answer:
        settings = self.procedure.settings
        most = MAX_MESSAGES if settings.items is None else settings.items
        found: list[JSONObject] = []
        size = 0
        async with channel.stream(request) as stream:
            async for raw in stream.messages:
                if len(found) >= most:
                    return self._full(found, most)
                size += len(raw)
                if size > settings.response_bytes:
                    raise _too_large(settings.response_bytes)
                found.append(self._decoded(raw))
                if settings.stream_progress:
                    told = msgspec.json.encode(found[-1]).decode()
                    await self.call.report(len(found), None, told)
            ended = stream.ended()
        if ended.code != "OK":
            return self._failed(ended)
        last = found[-1] if found else None
        return Answer(ok=True, body=found, more=_shown(ended, last, found))

    def _full(self, found: list[JSONObject], most: int) -> Answer:
        if not self.procedure.settings.truncates:
            raise StageError(
                Stage.ADAPTER_EXECUTION,
                f"the stream has more than {most} messages",
                sub="response_items",
                step="response_bytes",
            )
        ended = Ended(code="OK", details="", metadata={})
        return Answer(ok=True, body=found, more=_shown(ended, found[-1], found), cut=True)

    def _decoded(self, raw: bytes) -> JSONObject:
        try:
            return self.procedure.method.decode(raw)
        except UnfitError as error:
            raise StageError(
                Stage.ADAPTER_EXECUTION,
                f"the upstream's answer {error}",
                sub="malformed_reply",
                step="operator",
            ) from error

    def _failed(self, ended: Ended) -> Answer:
        if ended.code == "DEADLINE_EXCEEDED":
            raise StageError(
                Stage.ADAPTER_EXECUTION,
                "the upstream did not answer in time",
                sub="timeout",
                code=ended.code,
                retryable=True,
            )
        if ended.code == "RESOURCE_EXHAUSTED" and "message larger than max" in ended.details:
            raise _too_large(self.procedure.settings.response_bytes)
        return Answer(
            ok=False,
            code=ended.code,
            message=ended.details,
            retryable=ended.code in _PASSING,
            more=_shown(ended, None, []),
        )


def _shown(
    ended: Ended, message: JSONObject | None, messages: list[JSONObject]
) -> dict[str, object]:
    return {
        "message": message,
        "messages": messages,
        "metadata": dict(ended.metadata),
        "status": ended.code,
    }


def _too_large(limit: int) -> StageError:
    return StageError(
        Stage.ADAPTER_EXECUTION,
        f"the upstream's answer is larger than {limit} bytes",
        sub="response_bytes",
    )


def _check_mapping(
    mapping: Mapping[str, object], method: Method, connection: GrpcConnection
) -> None:
    """Find what can be found without data.

    Raises:
        OperationError: a section, a field or a header that cannot be.
    """
    others = sorted(mapping.keys() - {"message", "headers"})
    if others:
        raise OperationError(
            "a grpc operation has message and headers only", place=f"input_mapping.{others[0]}"
        )
    tree = mapping.get("message")
    if isinstance(tree, dict) and "expr" not in tree:
        strangers = sorted(cast("JSONObject", tree).keys() - method.fields)
        if strangers:
            raise OperationError(f"the message has no field {strangers[0][:80]!r}", place=_PLACE)
    for name in cast("Mapping[str, object]", mapping.get("headers", {})):
        place = f"input_mapping.headers.{name[:80]}"
        check_header(name, connection.http, place)
        if name.lower().startswith("grpc-") or name.lower().endswith("-bin"):
            raise OperationError("this metadata is not for an operation to set", place=place)
