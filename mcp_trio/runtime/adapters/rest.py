"""Operations of HTTP interfaces: one request, and what its answer means.

The request is built by `rest_request` and sent by `http_exchange`; bodies of answers are read
by `http_bodies`. Answers in pages are `rest_pages`', and streams `rest_events`'.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import attrs

from mcp_trio.catalog.operation import Operation, OperationError
from mcp_trio.runtime.adapters.base import OUTPUT_NAMES, Answer, Call, Plan, Send
from mcp_trio.runtime.adapters.http_bodies import decode
from mcp_trio.runtime.adapters.http_exchange import Exchange, HttpRequest, Reply, exchange_for
from mcp_trio.runtime.adapters.rest_events import Stream, compile_stream
from mcp_trio.runtime.adapters.rest_pages import Pagination, Walk, compile_pagination
from mcp_trio.runtime.adapters.rest_request import RequestTemplate, compile_request
from mcp_trio.runtime.connections import Connection, Connections
from mcp_trio.runtime.http_connection import HttpConnection
from mcp_trio.runtime.output import compile_output
from mcp_trio.runtime.policies import Settings
from mcp_trio.wire import AudioContent, ContentBlock, ImageContent

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


@attrs.frozen(kw_only=True, eq=False)
class _Compiled:
    """A rest operation, ready to be called. Immutable."""

    template: RequestTemplate
    connection: HttpConnection
    settings: Settings
    shows: bool
    """Whether a picture or a sound is shown as such; not if the mapping makes blocks itself."""
    pages: Pagination | None
    stream: Stream | None

    def answer(self, reply: Reply) -> Answer:
        body = decode(reply)
        content = _content(reply.content_type, body) if reply.ok else None
        return Answer(
            ok=reply.ok,
            body=body,
            content=content if self.shows or content is None else [],
            status=reply.status,
            headers=reply.headers,
            retry_after=reply.retry_after,
        )


class RestAdapter:
    """Runs rest operations over the clients of a `Connections`. Implements `Adapter`."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    connection_type = HttpConnection
    output_names = (*OUTPUT_NAMES, "pages", "complete", "last_page", "events")

    def compile(
        self, operation: Operation, connection: Connection | None, settings: Settings
    ) -> Plan:
        """Make a plan.

        Raises:
            OperationError, MappingError: target and mapping cannot work.
        """
        if not isinstance(connection, HttpConnection):  # pragma: no cover  # the contract
            raise TypeError("a rest operation needs an HTTP connection")
        template = compile_request(operation, connection, settings)
        pages = compile_pagination(operation, connection, template.query_names)
        if pages is not None and settings.truncates:
            reads = compile_output(operation, settings, self.output_names).reads
            if all(name != "complete" for name, _ in reads):
                raise OperationError(
                    "with pages and on_exceed truncate it must tell `complete`, "
                    "or nobody could know",
                    place="output_mapping",
                )
        compiled = _Compiled(
            template=template,
            connection=connection,
            settings=settings,
            shows="content" not in operation.output_mapping,
            pages=pages,
            stream=compile_stream(operation, settings),
        )
        return Plan(
            prepare=partial(self._prepare, compiled),
            reads=compiled.template.reads,
            idempotent=compiled.template.method in _SAFE,
        )

    def _prepare(self, compiled: _Compiled, context: Mapping[str, object], call: Call) -> Send:
        request = compiled.template.fill(context)
        exchange = exchange_for(self._connections, compiled.connection, compiled.settings, call)
        if compiled.pages is not None:
            return Walk(compiled.pages, exchange, request, call, compiled.answer).send
        if compiled.stream is not None:
            return partial(compiled.stream.follow, exchange, request, call, compiled.answer)
        return partial(_send, compiled, exchange, request)


async def _send(compiled: _Compiled, exchange: Exchange, request: HttpRequest) -> Answer:
    return compiled.answer(await exchange.ask(request))


def _content(kind: str, body: object) -> list[ContentBlock] | None:
    """A picture or a sound as what it is, for operations that map nothing else."""
    if isinstance(body, str) and kind.startswith("image/"):
        return [ImageContent(data=body, mime_type=kind)]
    if isinstance(body, str) and kind.startswith("audio/"):
        return [AudioContent(data=body, mime_type=kind)]
    return None
