"""Answers that come as a stream of events: each is progress, and the last or all are the result.

Server-sent events and lines of JSON. A stream is bounded as every answer is, by bytes and by time,
and by the number of its events.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import cast

import attrs

from mcp_trio.catalog.operation import Operation, OperationError
from mcp_trio.framing.sse import SSEDecoder
from mcp_trio.runtime.adapters.base import Answer, Call
from mcp_trio.runtime.adapters.http_bodies import read_json
from mcp_trio.runtime.adapters.http_exchange import (
    Exchange,
    HttpRequest,
    Incoming,
    Reply,
    malformed,
    media_type,
)
from mcp_trio.runtime.expressions import Scope
from mcp_trio.runtime.mapping import Mapper, MappingError, compile_mapping
from mcp_trio.runtime.policies import Settings
from mcp_trio.runtime.stages import Stage, StageError
from mcp_trio.wire import JSONObject

EVENT_NAMES = ("event", "data", "number")
"""What the expressions of a stream may read: the type of an event, its data, and which it is."""
MAX_EVENTS = 10_000
"""Events of one answer."""

_SSE = "text/event-stream"
_LINES = frozenset(
    {"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"}
)
_PLACE = "target.stream"


@attrs.frozen(kw_only=True, eq=False)
class Stream:
    """A compiled `target.stream`. Immutable."""

    collects: bool
    """Whether all events are the result, or the last one."""
    until: Mapper | None
    """Says of an event whether it ends the stream; that one is not part of the result."""
    message: Mapper | None
    value: Mapper | None
    total: Mapper | None

    async def follow(
        self,
        exchange: Exchange,
        request: HttpRequest,
        call: Call,
        whole: Callable[[Reply], Answer],
    ) -> Answer:
        """Send, and report each event.

        An answer that is no stream, and every failure, is read as a whole.

        Raises:
            StageError: there is no answer, or it breaks off, or is too large.
            MappingError: `until` cannot be applied.
        """
        async with exchange.open(request) as incoming:
            kind = media_type(incoming.headers)
            if not 200 <= incoming.status < 300 or (kind != _SSE and kind not in _LINES):
                return whole(await incoming.read(exchange.settings.response_bytes))
            return await self._events(incoming, exchange.settings.response_bytes, call)

    async def _events(self, incoming: Incoming, limit: int, call: Call) -> Answer:
        told: list[object] = []
        number = 0
        # One for all events, so that they have the effort of one answer together.
        context = Scope({})
        async with aclosing(_decoded(incoming, limit)) as events:
            async for event, data in events:
                number += 1
                context.update(event=event, data=data, number=number)
                if self.until is not None and self.until(context) not in (None, False):
                    return self._answer(incoming, told, number - 1)
                if number > MAX_EVENTS:
                    raise StageError(
                        Stage.ADAPTER_EXECUTION,
                        f"the upstream's stream has more than {MAX_EVENTS} events",
                        sub="response_items",
                        step="response_bytes",
                    )
                if not self.collects:
                    told.clear()
                told.append(data)
                await self._report(call, context, number)
        if self.until is not None:
            raise StageError(
                Stage.ADAPTER_EXECUTION,
                "the upstream's stream ended before its last event",
                sub="disconnected",
                retryable=True,
            )
        return self._answer(incoming, told, number)

    def _answer(self, incoming: Incoming, told: list[object], number: int) -> Answer:
        return Answer(
            ok=True,
            body=told if self.collects else (told[-1] if told else None),
            status=incoming.status,
            headers=incoming.headers,
            more={"events": number},
        )

    async def _report(self, call: Call, context: JSONObject, number: int) -> None:
        message = _applied(self.message, context)
        value, total = _applied(self.value, context), _applied(self.total, context)
        await call.report(
            cast("float", value) if type(value) in {int, float} else number,
            cast("float", total) if type(total) in {int, float} else None,
            message if isinstance(message, str) else None,
        )


def _applied(mapper: Mapper | None, context: JSONObject) -> object:
    """What a description of progress gives; none is worth failing a call for."""
    try:
        return None if mapper is None else mapper(context)
    except MappingError:
        return None


async def _decoded(incoming: Incoming, limit: int) -> AsyncGenerator[tuple[str, object]]:
    """The events of a stream: type and data."""
    reader = _Sse(limit) if media_type(incoming.headers) == _SSE else _Lines()
    async with aclosing(incoming.parts(limit)) as parts:
        async for part in parts:
            for event in reader.receive(part):
                yield event
    for event in reader.end():
        yield event


class _Sse:
    """Server-sent events. Data that is no JSON is text."""

    def __init__(self, limit: int) -> None:
        self._decoder = SSEDecoder(limit)

    def receive(self, part: bytes) -> Iterator[tuple[str, object]]:
        for event in self._decoder.receive(part):
            try:
                yield event.event, read_json(event.data.encode())
            except ValueError:
                yield event.event, event.data

    def end(self) -> Iterator[tuple[str, object]]:
        """An event that is not complete at the end of a stream is none."""
        return iter(())


class _Lines:
    """A JSON value on each line."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def receive(self, part: bytes) -> Iterator[tuple[str, object]]:
        *lines, rest = part.split(b"\n")
        for line in lines:
            self._rest += line
            yield from self.end()
        self._rest += rest

    def end(self) -> Iterator[tuple[str, object]]:
        line = bytes(self._rest).strip()
        self._rest.clear()
        if not line:
            return
        try:
            value = read_json(line)
        except ValueError as error:
            raise malformed("a line of the upstream's answer is not valid JSON") from error
        yield "message", value


def compile_stream(operation: Operation, settings: Settings) -> Stream | None:
    """Compile `target.stream`; None if the operation does not stream.

    Raises:
        OperationError, MappingError: it cannot work.
    """
    view = cast("JSONObject", operation.target.get("stream", {}))
    if not settings.stream_progress:
        if view:
            raise OperationError("needs execution_config.stream_progress", place=_PLACE)
        return None
    if "pagination" in operation.target:
        raise OperationError("an operation has pages or a stream", place=_PLACE)
    told = cast("JSONObject", view.get("progress", {}))

    def mapper(tree: object, key: str) -> Mapper | None:
        return None if tree is None else compile_mapping(tree, f"{_PLACE}.{key}", EVENT_NAMES)

    return Stream(
        collects=view.get("collect", "last") == "all",
        until=mapper(view.get("until"), "until"),
        message=mapper(told.get("message"), "progress.message"),
        value=mapper(told.get("value"), "progress.value"),
        total=mapper(told.get("total"), "progress.total"),
    )
