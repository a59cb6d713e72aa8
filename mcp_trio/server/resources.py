"""Functions as resources: one with a URI of its own, or many behind a template (O1 to O3)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Protocol, TypedDict, Unpack, cast

import attrs
import msgspec

from mcp_trio.errors import ConfigurationError, NotFoundError
from mcp_trio.framing.uri_template import UriTemplate
from mcp_trio.jsonrpc import codec
from mcp_trio.server.invoke import Threads, entry_name, run_function
from mcp_trio.server.media import Audio, File, Image
from mcp_trio.server.signature import Signature, SignatureError, description_of, read_signature
from mcp_trio.session.context import Context
from mcp_trio.session.middleware import Authorizer, guarded_by
from mcp_trio.wire import Icon, JSONObject
from mcp_trio.wire.content import Annotations, ResourceContents
from mcp_trio.wire.resources import ReadResourceResult, Resource, ResourceTemplate


class ResourceEntry(Protocol):
    """One resource. Immutable: a changed resource is a new entry."""

    @property
    def definition(self) -> Resource:
        """The resource as it is listed."""
        ...

    @property
    def authorize(self) -> Authorizer | None:
        """Says who may use it; None for everybody. Asked before `read`."""
        ...

    async def read(
        self, context: Context, uri: str, variables: dict[str, str]
    ) -> ReadResourceResult:
        """Read it. There are no variables.

        Raises:
            NotFoundError: it is not there any more; the server answers with the era's code.
        """
        ...


class TemplateEntry(Protocol):
    """Many resources behind one template. Immutable."""

    @property
    def definition(self) -> ResourceTemplate:
        """The template as it is listed."""
        ...

    @property
    def authorize(self) -> Authorizer | None:
        """Says who may use it; None for everybody. Asked before `read`."""
        ...

    @property
    def template(self) -> UriTemplate:
        """The template, compiled."""
        ...

    async def read(
        self, context: Context, uri: str, variables: dict[str, str]
    ) -> ReadResourceResult:
        """Read one.

        Raises:
            NotFoundError: there is no such resource behind the template; the server answers
                with the era's code.
        """
        ...


class ResourceOptions(TypedDict, total=False):
    """What can be said about a resource beside its function. Everything is optional."""

    name: str
    """Defaults to the function's name."""
    title: str
    """A name for people."""
    description: str
    """Defaults to the docstring up to its sections."""
    mime_type: str
    """Of what it holds; `text/plain` or `application/octet-stream` by default, as it comes."""
    annotations: Annotations
    """Hints for whoever shows it."""
    size: int
    """Bytes, if known. Not for templates."""
    icons: list[Icon]
    """Pictures."""
    meta: JSONObject
    """Its `_meta`."""
    required_scopes: Iterable[str]
    """Scopes the caller needs to use it; to others it is not listed, and refused."""
    authorize: Authorizer
    """Says who may use it; to others it is not listed, and refused. See `Authorizer`."""


@attrs.frozen(kw_only=True)
class _Reader:
    """A function that reads."""

    name: str
    mime_type: str | None
    function: Callable[..., object]
    signature: Signature
    threads: Threads

    async def __call__(
        self, context: Context, uri: str, variables: dict[str, str]
    ) -> ReadResourceResult:
        try:
            keywords = self.signature.bind_text(variables)
        except msgspec.ValidationError as error:
            # A variable that does not read as its parameter's type names no resource.
            raise NotFoundError("Resource not found") from error
        if self.signature.context_parameter is not None:
            keywords[self.signature.context_parameter] = context
        value: object = await run_function(
            self.function, self.signature, self.threads, self.name, keywords
        )
        if isinstance(value, ReadResourceResult):
            return value
        items = [
            await item.contents(uri) if isinstance(item, File) else item for item in _items(value)
        ]
        if items and all(isinstance(item, ResourceContents) for item in items):
            return ReadResourceResult(contents=cast("list[ResourceContents]", items))
        if isinstance(value, (Image, Audio)):
            block = await value.block()
            contents = ResourceContents(uri=uri, mime_type=block.mime_type, blob=block.data)
            return ReadResourceResult(contents=[contents])
        return ReadResourceResult(contents=[_as_contents(value, uri, self.mime_type)])


def _items(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else [value]


def _as_contents(value: object, uri: str, mime_type: str | None) -> ResourceContents:
    if isinstance(value, bytes):
        return ResourceContents(
            uri=uri,
            mime_type=mime_type or "application/octet-stream",
            blob=base64.b64encode(value).decode("ascii"),
        )
    if isinstance(value, str):
        return ResourceContents(uri=uri, mime_type=mime_type or "text/plain", text=value)
    text = codec.encode_value(msgspec.to_builtins(value, str_keys=True)).decode()
    return ResourceContents(uri=uri, mime_type=mime_type or "application/json", text=text)


@attrs.frozen(kw_only=True)
class FunctionResource:
    """A function as a `ResourceEntry`."""

    definition: Resource
    reader: _Reader
    authorize: Authorizer | None = None

    async def read(
        self, context: Context, uri: str, variables: dict[str, str]
    ) -> ReadResourceResult:
        """Run the function; text, bytes and any JSON value become contents."""
        return await self.reader(context, uri, variables)


@attrs.frozen(kw_only=True)
class FunctionTemplate:
    """A function as a `TemplateEntry`; its parameters are the variables."""

    definition: ResourceTemplate
    template: UriTemplate
    reader: _Reader
    authorize: Authorizer | None = None

    async def read(
        self, context: Context, uri: str, variables: dict[str, str]
    ) -> ReadResourceResult:
        """Run the function with the values that the URI gives the variables."""
        return await self.reader(context, uri, variables)


def function_resource(
    uri: str,
    function: Callable[..., object],
    threads: Threads,
    **options: Unpack[ResourceOptions],
) -> FunctionResource | FunctionTemplate:
    """Make a resource of a function; a template if the URI has expressions.

    Raises:
        UriTemplateError: the template cannot be matched.
        SignatureError: the parameters are not the variables.
    """
    signature = read_signature(function, result=False)
    template = UriTemplate(uri)
    parameters = cast("dict[str, object]", signature.input_schema.get("properties", {}))
    required = set(cast("list[str]", signature.input_schema.get("required", [])))
    if not required <= set(template.variables) or not set(template.variables) <= set(parameters):
        raise SignatureError(
            f"the parameters have to be the variables of {uri!r}: "
            f"{', '.join(template.variables) or 'none'}"
        )
    if ":" not in uri:
        raise ConfigurationError(f"{uri!r} is no URI: it has no scheme")
    # The name of a resource is for people, so a given one may be any text.
    name = options.get("name") or entry_name(function, None, what="resource")
    reader = _Reader(
        name=name,
        mime_type=options.get("mime_type"),
        function=function,
        signature=signature,
        threads=threads,
    )
    description = options.get("description") or description_of(function)
    authorize = guarded_by(
        options.get("required_scopes"), options.get("authorize"), f"the resource {uri}"
    )
    if template.variables:
        listed = ResourceTemplate(
            uri_template=uri,
            name=name,
            title=options.get("title"),
            description=description,
            mime_type=options.get("mime_type"),
            annotations=options.get("annotations"),
            icons=options.get("icons"),
            meta=options.get("meta"),
        )
        return FunctionTemplate(
            definition=listed,
            template=template,
            reader=reader,
            authorize=authorize,
        )
    return FunctionResource(
        definition=Resource(
            uri=uri,
            name=name,
            title=options.get("title"),
            description=description,
            mime_type=options.get("mime_type"),
            size=options.get("size"),
            annotations=options.get("annotations"),
            icons=options.get("icons"),
            meta=options.get("meta"),
        ),
        reader=reader,
        authorize=authorize,
    )
