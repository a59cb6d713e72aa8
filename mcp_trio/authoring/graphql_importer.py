"""From a GraphQL schema to views: one operation for each field of the root types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import cast

import attrs
import graphql

from mcp_trio.authoring.documents import parse_document, read_bounded
from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.authoring.fetching import download, is_address
from mcp_trio.authoring.filters import Filters
from mcp_trio.authoring.graphql_selection import Selection
from mcp_trio.authoring.graphql_types import GraphQLMember, GraphQLType, InputWriter, Scalars
from mcp_trio.authoring.imports import (
    Imported,
    ImportOptions,
    Left,
    Names,
    NotImportableError,
    argument,
    identity,
    shortened,
    snake,
    words,
)
from mcp_trio.authoring.values import as_object
from mcp_trio.wire import JSONObject

MAX_TOKENS = 5_000_000
"""Tokens of a schema."""


@attrs.frozen(kw_only=True)
class Options(ImportOptions):
    """What to import, by `kind=` and `name=`, and how much of each answer to ask for."""

    depth: int = 2
    """Levels of objects below the field's own."""
    fields: int = 60
    """Fields that one operation asks for."""
    scalars: Mapping[str, JSONObject] = attrs.field(factory=dict[str, "JSONObject"])
    """JSON Schema of custom scalars, by name."""


def load_schema(place: str, headers: Mapping[str, str]) -> graphql.GraphQLSchema:
    """Load a schema: SDL or an introspection in a file, or the endpoint itself.

    Raises:
        AuthoringError: it cannot be had, or is none.
    """
    try:
        if is_address(place):
            return _introspected(_asked(place, headers), place)
        raw = read_bounded(Path(place))
        if raw.lstrip()[:1] == b"{":
            return _introspected(parse_document(raw, place).value, place)
        return graphql.build_ast_schema(
            graphql.parse(raw.decode("utf-8-sig"), max_tokens=MAX_TOKENS),
            # Large schemas break small rules; what is asked of them is judged all the same.
            assume_valid=True,
        )
    except UnicodeDecodeError as error:
        raise AuthoringError(f"{place}: is not UTF-8 text") from error
    except RecursionError as error:
        raise AuthoringError(f"{place}: is nested too deep") from error
    except (graphql.GraphQLError, TypeError, KeyError, ValueError) as error:
        reason = error.message if isinstance(error, graphql.GraphQLError) else str(error)
        line = getattr(error, "locations", None)
        where = f"{place}:{line[0].line}" if line else place
        raise AuthoringError(f"{where}: is no GraphQL schema: {reason[:300]}") from error


def _asked(place: str, headers: Mapping[str, str]) -> object:
    query = graphql.get_introspection_query(descriptions=True, input_value_deprecation=False)
    raw = download(
        place,
        {
            **headers,
            "content-type": "application/json",
            "accept": "application/graphql-response+json, application/json",
        },
        method="POST",
        content=json.dumps({"query": query}).encode(),
    )
    return parse_document(raw, place).value


def _introspected(value: object, place: str) -> graphql.GraphQLSchema:
    held = as_object(value)
    data = as_object(held.get("data")) or held
    if "__schema" not in data:
        errors = held.get("errors")
        told = f": {json.dumps(errors)[:300]}" if errors else ""
        raise AuthoringError(f"{place}: is no introspection of a schema{told}")
    return graphql.build_client_schema(cast("graphql.IntrospectionQuery", data), assume_valid=True)


def import_graphql(
    place: str, options: Options, headers: Mapping[str, str] | None = None
) -> Imported:
    """Import a schema.

    Raises:
        AuthoringError: it cannot be had, or is none.
    """
    schema = load_schema(place, headers or {})
    if schema.query_type is None and schema.mutation_type is None:
        raise AuthoringError(f"{place}: its schema has neither a query nor a mutation type")
    strangers = options.scalars.keys() - schema.type_map.keys()
    if strangers:
        raise AuthoringError(f"{place}: its schema has no scalar {', '.join(sorted(strangers))}")
    return _Import(schema, place, options).run()


class _Import:
    """One import; lives as long as `import_graphql` runs."""

    def __init__(self, schema: graphql.GraphQLSchema, place: str, options: Options) -> None:
        self._schema = schema
        self._place = place
        self._options = options
        self._scalars = Scalars(options.scalars)
        self._filters = Filters(options.include, options.exclude)
        self._filters.check(("kind", "name"))
        self._names = Names(options.prefix)
        self._ids: dict[str, int] = {}
        self._connection = options.connection or "graphql"

    def run(self) -> Imported:
        made = Imported()
        roots: tuple[tuple[str, GraphQLType], ...] = (
            ("query", self._schema.query_type),
            ("mutation", self._schema.mutation_type),
            ("subscription", self._schema.subscription_type),
        )
        for kind, root in roots:
            fields: dict[str, GraphQLMember] = {} if root is None else root.fields
            for name, field in fields.items():
                if not self._filters.wants({"kind": [kind], "name": [name]}):
                    made.filtered += 1
                elif kind == "subscription":
                    reason = "a subscription gives no one answer"
                    made.refused.append(Left(f"{kind} {name}", reason))
                else:
                    make = partial(self._view, kind, name, field)
                    made.take(f"{kind} {name}", make)
        if self._scalars.unknown:
            names = ", ".join(sorted(self._scalars.unknown))
            made.notes.append(
                Left("scalars", f"nothing is known of {names}; say it with --scalar NAME=SCHEMA")
            )
        made.keep_sound()
        made.settings = self._settings()
        return made

    def _view(self, kind: str, name: str, field: GraphQLMember) -> tuple[JSONObject, list[str]]:
        options = self._options
        writer = InputWriter(self._scalars, options.schema_bytes)
        schema = writer.write(field.args)
        taken = cast("JSONObject", schema["properties"])
        selection = Selection(
            self._schema, field.type, self._scalars, depth=options.depth, budget=options.fields
        )
        document, operation_name = _document(kind, name, field, taken, selection)
        errors = graphql.validate(self._schema, graphql.parse(document))
        if errors:  # pragma: no cover  # would be a fault of ours
            raise NotImportableError(f"its document is not valid: {errors[0].message}")
        notes = ["the answer has more fields than are asked for"] if selection.cut else []
        if writer.cut:
            notes.append("input_schema leaves some objects open; the upstream judges them")
        tool, told = self._names.make(name, f"{kind}_{name}")
        if told is not None:
            notes.append(told)
        return {
            "operation_id": identity(self._ids, self._connection, kind, name),
            "name": tool,
            "protocol": "graphql",
            "target": {
                "connection": self._connection,
                "document": document,
                "operation_name": operation_name,
            },
            "input_schema": schema,
            "output_schema": selection.schema if options.output_schemas else None,
            "input_mapping": {"variables": {each: f"={argument(each)}" for each in taken}},
            "output_mapping": {"result": f"=data.{name}"},
            "execution_config": {"output_validation": "warn"} if options.output_schemas else {},
            "tool_description": _description(kind, name, field),
        }, notes

    def _settings(self) -> str:
        url = self._place if is_address(self._place) else "https://HOST/graphql"
        variable = f"{snake(self._connection).upper()}_SECRET"
        return "\n".join(
            [
                f"[connections.{self._connection}]",
                f"base_url = {json.dumps(url.partition('?')[0])}",
                "",
                f"[connections.{self._connection}.auth]",
                'kind = "bearer"',
                f'secret_env = "{variable}"',
            ]
        )


def _document(
    kind: str,
    name: str,
    field: GraphQLMember,
    taken: Mapping[str, object],
    selection: Selection,
) -> tuple[str, str]:
    """The document, and the name of its one operation."""
    operation_name = name[:1].upper() + name[1:]
    used = {each: argument for each, argument in field.args.items() if each in taken}
    declared = ", ".join(f"${each}: {argument.type}" for each, argument in used.items())
    handed = ", ".join(f"{each}: ${each}" for each in used)
    head = f"{kind} {operation_name}" + (f"({declared})" if declared else "")
    call = f"{name}({handed})" if handed else name
    return f"{head} {{\n  {call}{selection.text}\n}}\n", operation_name


def _description(kind: str, name: str, field: GraphQLMember) -> JSONObject:
    text = words(field.description) or f"{kind.capitalize()} {' '.join(snake(name).split('_'))}."
    if field.deprecation_reason is not None:
        text = f"Deprecated. {text}"
    return {
        "text": shortened(text),
        "annotations": {"readOnlyHint": kind == "query"},
        "tags": [kind],
    }
