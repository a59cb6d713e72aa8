"""Functions as prompts: string arguments in, messages out (O4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypedDict, Unpack, cast

import attrs
import msgspec

from mcp_trio.errors import InvalidParamsError
from mcp_trio.server.invoke import Threads, entry_name, run_function
from mcp_trio.server.media import with_blocks
from mcp_trio.server.signature import (
    CONTENT,
    Signature,
    description_of,
    read_signature,
)
from mcp_trio.session.context import Context
from mcp_trio.session.middleware import Authorizer, guarded_by
from mcp_trio.wire import Icon, JSONObject, TextContent
from mcp_trio.wire.prompts import GetPromptResult, Prompt, PromptArgument, PromptMessage


class PromptEntry(Protocol):
    """One prompt. Immutable: a changed prompt is a new entry."""

    @property
    def definition(self) -> Prompt:
        """The prompt as it is listed."""
        ...

    @property
    def authorize(self) -> Authorizer | None:
        """Says who may use it; None for everybody. Asked before `get`."""
        ...

    async def get(self, context: Context, arguments: dict[str, str]) -> GetPromptResult:
        """Fill the prompt.

        Raises:
            InvalidParamsError: an argument is missing, unknown or does not fit.
        """
        ...


class PromptOptions(TypedDict, total=False):
    """What can be said about a prompt beside its function. Everything is optional."""

    name: str
    """Defaults to the function's name."""
    title: str
    """A name for people."""
    description: str
    """Defaults to the docstring up to its sections."""
    icons: list[Icon]
    """Pictures."""
    meta: JSONObject
    """The prompt's `_meta`."""
    required_scopes: Iterable[str]
    """Scopes the caller needs to use it; to others it is not listed, and refused."""
    authorize: Authorizer
    """Says who may use it; to others it is not listed, and refused. See `Authorizer`."""


@attrs.frozen(kw_only=True)
class FunctionPrompt:
    """A function as a `PromptEntry`."""

    definition: Prompt
    function: Callable[..., object]
    signature: Signature
    threads: Threads
    authorize: Authorizer | None = None

    async def get(self, context: Context, arguments: dict[str, str]) -> GetPromptResult:
        """Check the arguments, run the function, and dress what it returns as messages."""
        wanted = {item.name: item for item in self.definition.arguments or ()}
        missing = [n for n, item in wanted.items() if item.required and n not in arguments]
        if missing:
            raise InvalidParamsError(f"missing arguments: {', '.join(missing)}")
        unknown = sorted(arguments.keys() - wanted.keys())
        if unknown:
            raise InvalidParamsError(f"unknown arguments: {', '.join(unknown)[:200]}")
        try:
            keywords = self.signature.bind_text(arguments)
        except msgspec.ValidationError as error:
            faults = self.signature.faults(arguments, text=True)
            told = "; ".join(f"{f.pointer} {f.message} [{f.rule}]" for f in faults)
            raise InvalidParamsError(f"Invalid arguments: {told}") from error
        if self.signature.context_parameter is not None:
            keywords[self.signature.context_parameter] = context
        value = await run_function(
            self.function, self.signature, self.threads, self.definition.name, keywords
        )
        if isinstance(value, GetPromptResult):
            return value
        return GetPromptResult(
            messages=_as_messages(await with_blocks(value)), description=self.definition.description
        )


def _as_messages(value: object) -> list[PromptMessage]:
    items = cast("list[object]", value) if isinstance(value, list | tuple) else [value]
    return [_as_message(item) for item in items]


def _as_message(item: object) -> PromptMessage:
    if isinstance(item, PromptMessage):
        return item
    if isinstance(item, str):
        return PromptMessage(role="user", content=TextContent(text=item))
    if isinstance(item, CONTENT):
        return PromptMessage(role="user", content=item)
    raise TypeError(f"a prompt returns text, content blocks or messages, not {type(item).__name__}")


def function_prompt(
    function: Callable[..., object], threads: Threads, **options: Unpack[PromptOptions]
) -> FunctionPrompt:
    """Make a prompt of a function.

    Raises:
        SignatureError: the function cannot be called with named arguments.
    """
    signature = read_signature(function, result=False)
    properties = cast("dict[str, JSONObject]", signature.input_schema.get("properties", {}))
    required = cast("list[str]", signature.input_schema.get("required", []))
    arguments = [
        PromptArgument(
            name=name,
            description=cast("str | None", schema.get("description")),
            required=name in required,
        )
        for name, schema in properties.items()
    ]
    name = entry_name(function, options.get("name"), what="prompt")
    definition = Prompt(
        name=name,
        title=options.get("title"),
        description=options.get("description") or description_of(function),
        arguments=arguments or None,
        icons=options.get("icons"),
        meta=options.get("meta"),
    )
    return FunctionPrompt(
        definition=definition,
        function=function,
        signature=signature,
        threads=threads,
        authorize=guarded_by(
            options.get("required_scopes"), options.get("authorize"), f"the prompt {name}"
        ),
    )
