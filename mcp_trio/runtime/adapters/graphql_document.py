"""The document of a graphql operation, judged before anything is sent.

Syntax and the rules that need no schema are always checked; all the others where the view
carries a schema. What is sent is the author's document and never one that arguments changed.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import graphql

from mcp_trio.catalog.operation import OperationError

MAX_DOCUMENT = 100_000
"""Characters of a document."""
MAX_SCHEMA = 4 << 20
"""Characters of a schema."""
MAX_TOKENS = 20_000
"""Tokens of a document."""

_DOCUMENT = "target.document"
_SCHEMA = "target.schema"
_WITHOUT_SCHEMA = (
    graphql.ExecutableDefinitionsRule,
    graphql.KnownFragmentNamesRule,
    graphql.LoneAnonymousOperationRule,
    graphql.NoFragmentCyclesRule,
    graphql.NoUndefinedVariablesRule,
    graphql.NoUnusedFragmentsRule,
    graphql.NoUnusedVariablesRule,
    graphql.UniqueArgumentNamesRule,
    graphql.UniqueFragmentNamesRule,
    graphql.UniqueInputFieldNamesRule,
    graphql.UniqueOperationNamesRule,
    graphql.UniqueVariableNamesRule,
)
"""Rules that look at nothing but the document."""


@attrs.frozen(kw_only=True)
class Document:
    """One operation of a document, sound as far as can be told."""

    text: str
    operation_name: str | None
    """What the upstream is told to run; None if there is no choice and no name."""
    mutates: bool
    variables: frozenset[str]
    """The declared ones."""
    required: frozenset[str]
    """Those that may not be left out."""


def read_document(text: str, operation_name: str | None, sdl: str | None) -> Document:
    """Read and judge a document.

    Args:
        text: queries, mutations and fragments.
        operation_name: which operation is meant; may be None if there is one.
        sdl: the schema to judge it by; None if there is none.

    Raises:
        OperationError: it cannot work; the text says where.
    """
    document = _parsed(text)
    schema = None if sdl is None else _built(sdl)
    # Faults of the schema itself are the upstream's; here it says what its types are.
    blank = graphql.GraphQLSchema(assume_valid=True)
    errors = (
        graphql.validate(blank, document, rules=_WITHOUT_SCHEMA)
        if schema is None
        else graphql.validate(schema, document)
    )
    if errors:
        raise OperationError(_said(errors[0]), place=_DOCUMENT)
    found = _chosen(document, operation_name)
    if found.operation is graphql.OperationType.SUBSCRIPTION:
        raise OperationError("is a subscription, which gives no one answer", place=_DOCUMENT)
    declared = found.variable_definitions or ()
    return Document(
        text=text,
        operation_name=found.name.value if found.name else None,
        mutates=found.operation is graphql.OperationType.MUTATION,
        variables=frozenset(each.variable.name.value for each in declared),
        required=frozenset(
            each.variable.name.value
            for each in declared
            if isinstance(each.type, graphql.NonNullTypeNode) and each.default_value is None
        ),
    )


def _parsed(text: str) -> graphql.DocumentNode:
    if len(text) > MAX_DOCUMENT:
        raise OperationError(f"is longer than {MAX_DOCUMENT} characters", place=_DOCUMENT)
    try:
        return graphql.parse(text, max_tokens=MAX_TOKENS)
    except graphql.GraphQLError as error:
        raise OperationError(_said(error), place=_DOCUMENT) from error
    except RecursionError as error:
        raise OperationError("is nested too deep", place=_DOCUMENT) from error


def _built(sdl: str) -> graphql.GraphQLSchema:
    if len(sdl) > MAX_SCHEMA:
        raise OperationError(f"is longer than {MAX_SCHEMA} characters", place=_SCHEMA)
    try:
        schema = graphql.build_schema(sdl)
        graphql.assert_valid_schema(schema)
    except (graphql.GraphQLError, TypeError) as error:
        # A missing root type and the like come as a TypeError with all faults in its text.
        said = _said(error) if isinstance(error, graphql.GraphQLError) else str(error)[:300]
        raise OperationError(said, place=_SCHEMA) from error
    except RecursionError as error:
        raise OperationError("is nested too deep", place=_SCHEMA) from error
    return schema


def _chosen(
    document: graphql.DocumentNode, operation_name: str | None
) -> graphql.OperationDefinitionNode:
    held = [
        each for each in document.definitions if isinstance(each, graphql.OperationDefinitionNode)
    ]
    if operation_name is None:
        if len(held) != 1:
            raise OperationError(
                f"has {len(held)} operations; target.operation_name must choose one",
                place=_DOCUMENT,
            )
        return held[0]
    for each in held:
        if each.name is not None and each.name.value == operation_name:
            return each
    raise OperationError("is not in the document", place="target.operation_name")


def _said(error: graphql.GraphQLError) -> str:
    """What is wrong, with the line; names of the document are the author's own."""
    at: Sequence[graphql.SourceLocation] = error.locations or ()
    where = f"line {at[0].line}, column {at[0].column}: " if at else ""
    return where + error.message[:300]
