"""GraphQL upstreams: one operation of a fixed document, over HTTP.

Arguments become variables and nothing else, so no argument can change what is asked for.
The wire is GraphQL over HTTP (the working draft of the GraphQL Foundation), by POST.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import partial
from typing import cast

import attrs
import msgspec

from mcp_trio.catalog.operation import Operation, OperationError
from mcp_trio.runtime.adapters.base import INPUT_NAMES, OUTPUT_NAMES, Answer, Call, Plan, Send
from mcp_trio.runtime.adapters.graphql_document import Document, read_document
from mcp_trio.runtime.adapters.http_bodies import decode
from mcp_trio.runtime.adapters.http_exchange import (
    Exchange,
    HttpRequest,
    Reply,
    check_identity,
    exchange_for,
    malformed,
)
from mcp_trio.runtime.adapters.http_headers import check_header, check_line, scalar
from mcp_trio.runtime.connections import Connection, Connections
from mcp_trio.runtime.http_connection import HttpConnection
from mcp_trio.runtime.mapping import Mapper, MappingError, compile_mapping
from mcp_trio.runtime.policies import Settings
from mcp_trio.wire import JSONObject

ACCEPT = "application/graphql-response+json, application/json;q=0.9"
_RESPONSE = "application/graphql-response+json"
_TOLD = 3
"""Errors of an answer whose messages are told."""


@attrs.frozen(kw_only=True, eq=False)
class _Template:
    """A compiled target with its input mapping. Immutable."""

    document: Document
    path: str
    variables: Mapper
    headers: Mapper | None
    request_bytes: int
    key_header: str | None

    def fill(self, context: Mapping[str, object]) -> HttpRequest:
        asked: JSONObject = {"query": self.document.text}
        if self.document.operation_name is not None:
            asked["operationName"] = self.document.operation_name
        variables = cast("Mapping[str, object]", self.variables(context))
        missing = sorted(self.document.required - variables.keys())
        if missing:
            raise MappingError(
                "the value of a required variable is missing",
                path=f"input_mapping.variables.{missing[0]}",
            )
        if variables:
            asked["variables"] = variables
        body = msgspec.json.encode(asked)
        if len(body) > self.request_bytes:
            raise MappingError(
                f"the request body is larger than {self.request_bytes} bytes",
                path="input_mapping.variables",
            )
        return HttpRequest(method="POST", target=self.path, headers=self._heads(context), body=body)

    def _heads(self, context: Mapping[str, object]) -> dict[str, str]:
        made = {
            "accept": ACCEPT,
            "accept-encoding": "identity",
            "content-type": "application/json",
        }
        if self.headers is not None:
            for name, value in cast("Mapping[str, object]", self.headers(context)).items():
                place = f"input_mapping.headers.{name}"
                made[name.lower()] = check_line(scalar(value, place), place)
        if self.key_header is not None:
            made[self.key_header.lower()] = str(uuid.uuid4())
        return made


class GraphqlAdapter:
    """Runs graphql operations over the clients of a `Connections`. Implements `Adapter`."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    connection_type = HttpConnection
    output_names = (*OUTPUT_NAMES, "data", "errors", "extensions")

    def compile(
        self, operation: Operation, connection: Connection | None, settings: Settings
    ) -> Plan:
        """Make a plan.

        Raises:
            OperationError, MappingError: target and mapping cannot work.
        """
        if not isinstance(connection, HttpConnection):  # pragma: no cover  # the contract
            raise TypeError("a graphql operation needs an HTTP connection")
        settings.refuse_stream()
        check_identity(connection, settings)
        template = _compile(operation, connection, settings)
        mappers = [template.variables, *([template.headers] if template.headers else [])]
        return Plan(
            prepare=partial(self._prepare, template, connection, settings),
            reads=frozenset[tuple[str, str | None]]().union(*(each.names for each in mappers)),
            idempotent=not template.document.mutates,
        )

    def _prepare(
        self,
        template: _Template,
        connection: HttpConnection,
        settings: Settings,
        context: Mapping[str, object],
        call: Call,
    ) -> Send:
        request = template.fill(context)
        exchange = exchange_for(self._connections, connection, settings, call)
        return partial(_send, exchange, request)


async def _send(exchange: Exchange, request: HttpRequest) -> Answer:
    return _answer(await exchange.ask(request))


def _compile(operation: Operation, connection: HttpConnection, settings: Settings) -> _Template:
    target = operation.target
    path = cast("str", target.get("path", ""))
    if "{" in path or "}" in path:
        raise OperationError("a graphql operation has no {names}", place="target.path")
    document = read_document(
        cast("str", target["document"]),
        cast("str | None", target.get("operation_name")),
        cast("str | None", target.get("schema")),
    )
    mapping = operation.input_mapping
    foreign = sorted(mapping.keys() - {"variables", "headers"})
    if foreign:
        raise OperationError(
            "does not belong to a graphql operation", place=f"input_mapping.{foreign[0]}"
        )
    headers = cast("Mapping[str, object]", mapping.get("headers", {}))
    if "expr" in headers:
        # Names from data would escape the checks.
        raise OperationError("must be an object of names", place="input_mapping.headers")
    for name in headers:
        check_header(name, connection, f"input_mapping.headers.{name[:80]}")
    key_header = settings.idempotency_key_header
    if key_header is not None:
        check_header(key_header, connection, "execution_config.idempotency_key_header")
    return _Template(
        document=document,
        path=(connection.path_prefix + path) or "/",
        variables=compile_mapping(
            _variables(operation, document), "input_mapping.variables", INPUT_NAMES
        ),
        headers=compile_mapping(headers, "input_mapping.headers", INPUT_NAMES) if headers else None,
        request_bytes=settings.request_bytes,
        key_header=key_header,
    )


def _variables(operation: Operation, document: Document) -> Mapping[str, object]:
    """The mapping of variables; by name where there is none."""
    place = "input_mapping.variables"
    tree = operation.input_mapping.get("variables")
    if tree is None:
        properties = operation.input_schema.get("properties")
        known = cast("JSONObject", properties) if isinstance(properties, dict) else {}
        made: Mapping[str, object] = {
            name: f"=args.{name}" for name in sorted(document.variables & known.keys())
        }
    else:
        made = cast("JSONObject", tree)
        if "expr" in made and "expr" not in document.variables:
            raise OperationError("must be an object of names", place=place)
    for name in sorted(made.keys() - document.variables):
        raise OperationError(f"{name[:80]!r} is not declared in target.document", place=place)
    for name in sorted(document.required - made.keys()):
        raise OperationError(f"the required variable {name!r} is not mapped", place=place)
    return made


def _answer(reply: Reply) -> Answer:
    """Read an answer.

    Raises:
        StageError: it says to be one and is none.
    """
    whole = decode(reply)
    told = _as_object(whole)
    speaks = reply.ok or reply.content_type == _RESPONSE
    if not _is_response(told) and speaks:
        raise malformed("the upstream's answer is not one of GraphQL")
    errors = _errors(told)
    data = told.get("data")
    good = reply.ok and not errors and data is not None
    more: JSONObject = {
        "status": reply.status,
        "body": whole,
        "data": data,
        "errors": told.get("errors"),
        "extensions": told.get("extensions"),
    }
    return Answer(
        ok=good,
        # What is the result if nothing is mapped; mappings see the whole as `body`.
        body=data if reply.ok else whole,
        # An answer of success with errors in it is a failure, of which the status knows nothing.
        status=reply.status if good or not reply.ok else None,
        headers=reply.headers,
        more=more,
        retry_after=reply.retry_after,
        code=_code(errors),
        message=None if good else _message(errors, speaks=speaks),
    )


def _as_object(value: object) -> JSONObject:
    return cast("JSONObject", value) if isinstance(value, dict) else {}


def _is_response(told: JSONObject) -> bool:
    """Whether it is a response by section 7.1 of the specification, read kindly."""
    if not isinstance(told.get("errors"), list | None):
        return False
    return isinstance(told.get("data"), dict | None) and (
        "data" in told or bool(told.get("errors"))
    )


def _errors(told: JSONObject) -> list[JSONObject]:
    errors = told.get("errors")
    items = cast("list[object]", errors) if isinstance(errors, list) else []
    return [
        cast("JSONObject", each) if isinstance(each, dict) else {"message": each} for each in items
    ]


def _code(errors: list[JSONObject]) -> str | int | None:
    """The first code; where there is none, servers agree on nothing."""
    for error in errors:
        extensions = error.get("extensions")
        if isinstance(extensions, dict):
            code = cast("JSONObject", extensions).get("code")
            if isinstance(code, str) or type(code) is int:
                return code
    return None


def _message(errors: list[JSONObject], *, speaks: bool) -> str | None:
    told = [each for error in errors if isinstance(each := error.get("message"), str) and each]
    if told:
        left = len(told) - _TOLD
        return "; ".join(told[:_TOLD]) + (f" (and {left} more)" if left > 0 else "")
    if speaks and not errors:
        return "it gave neither data nor errors"
    return None
