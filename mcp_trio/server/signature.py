"""A function's signature as JSON Schema, and JSON arguments as its keyword arguments.

Types are whatever msgspec understands: builtins, Literal, Enum, datetime, attrs classes,
dataclasses, TypedDict, NamedTuple, `Annotated[..., msgspec.Meta(ge=1)]`. A parameter
annotated with `Context` is filled in by the server and invisible to the model.
"""

from __future__ import annotations

import inspect
import keyword
import re
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

import attrs
import msgspec

from mcp_trio.session.context import Context
from mcp_trio.wire import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    JSONObject,
    ResourceLink,
    TextContent,
)

_REFERENCE = "#/$defs/{name}"
CONTENT = (TextContent, ImageContent, AudioContent, EmbeddedResource, ResourceLink)


class SignatureError(TypeError):
    """A function that cannot become a tool; the text names the parameter."""


@attrs.frozen(kw_only=True)
class Signature:
    """What a function takes and gives, worked out once."""

    input_schema: JSONObject
    output_schema: JSONObject | None
    wraps_output: bool
    """The result is no object, so it travels as `{"result": value}`."""
    context_parameter: str | None
    arguments: type[msgspec.Struct]
    is_async: bool

    def bind(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Turn valid JSON arguments into keyword arguments.

        Raises:
            msgspec.ValidationError: they do not fit after all.
        """
        try:
            made = msgspec.convert(arguments, self.arguments)
        except msgspec.ValidationError:
            # JSON Schema takes 3.0 for an integer, Python types do not.
            made = msgspec.convert(_integral(arguments), self.arguments)
        return {name: getattr(made, name) for name in arguments}


def _integral(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _integral(item) for key, item in cast("JSONObject", value).items()}
    if isinstance(value, list):
        return [_integral(item) for item in cast("list[object]", value)]
    return value


def read_signature(function: Callable[..., object]) -> Signature:
    """Work out what a function takes and gives.

    Raises:
        SignatureError: `*args`, `**kwargs`, positional-only parameters, or a type that has
            no JSON form.
    """
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        hints = get_type_hints(target, include_extras=True)
    except (NameError, TypeError) as error:
        raise SignatureError(f"cannot read the annotations: {error}") from error
    described = _argument_docs(inspect.getdoc(function) or "")
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    context_parameter = None
    for name, parameter in inspect.signature(function).parameters.items():
        annotation = hints.get(name, Any)
        if _is_context(annotation):
            context_parameter = name
            continue
        _check_kind(name, parameter)
        if annotation is object:
            annotation = Any
        if name in described and not _has_description(annotation):
            annotation = Annotated[annotation, msgspec.Meta(description=described[name])]
        if parameter.default is inspect.Parameter.empty:
            fields.append((name, annotation))
        else:
            fields.append((name, annotation, _as_default(parameter.default)))
    arguments = msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True, kw_only=True)
    output_schema, wraps = _output(hints.get("return", inspect.Signature.empty))
    return Signature(
        input_schema=_schema(arguments, "a parameter"),
        output_schema=output_schema,
        wraps_output=wraps,
        context_parameter=context_parameter,
        arguments=arguments,
        is_async=inspect.iscoroutinefunction(target),
    )


def _check_kind(name: str, parameter: inspect.Parameter) -> None:
    if parameter.kind in {
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    }:
        raise SignatureError(
            f"parameter {name}: tools are called by keyword, so it must be a named parameter"
        )
    if keyword.iskeyword(name):
        raise SignatureError(f"parameter {name}: not usable as a name")


def _as_default(value: object) -> Any:
    """A default for the schema. The function's own default is what is used in the call."""
    try:
        plain = msgspec.to_builtins(value)
    except (TypeError, msgspec.ValidationError):
        return msgspec.UNSET
    if isinstance(plain, dict | list | set):
        return msgspec.field(default_factory=lambda: value)
    return value


def _strip(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _members(annotation: Any) -> tuple[Any, ...]:
    plain = _strip(annotation)
    if get_origin(plain) in {Union, types.UnionType}:
        return get_args(plain)
    return (plain,)


def _is_context(annotation: Any) -> bool:
    return any(member is Context for member in _members(annotation))


def _has_description(annotation: Any) -> bool:
    return get_origin(annotation) is Annotated and any(
        isinstance(extra, msgspec.Meta) and extra.description for extra in get_args(annotation)[1:]
    )


def _schema(annotation: Any, what: str) -> JSONObject:
    """The schema of a type, with everything it refers to inside."""
    try:
        (root,), parts = msgspec.json.schema_components([annotation], ref_template=_REFERENCE)
    except (TypeError, NameError) as error:
        raise SignatureError(f"{what} has a type without a JSON form: {error}") from error
    root = cast("JSONObject", root)
    reference = root.get("$ref")
    name = reference.rpartition("/")[2] if isinstance(reference, str) else None
    refers_to_itself = name is not None and _mentions(parts, f"#/$defs/{name}")
    if name is not None and not refers_to_itself:
        root = cast("JSONObject", parts.pop(name))
    elif name is not None:
        # A recursive type: the root repeats its definition, which stays for the inner use.
        root = dict(cast("JSONObject", parts[name]))
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        root.pop("title", None)
        if not root.get("required"):
            root.pop("required", None)
    return {**root, "$defs": dict(parts)} if parts else dict(root)


def _mentions(value: object, reference: str) -> bool:
    if isinstance(value, dict):
        fields = cast("JSONObject", value)
        return fields.get("$ref") == reference or any(
            _mentions(item, reference) for item in fields.values()
        )
    if isinstance(value, list):
        return any(_mentions(item, reference) for item in cast("list[object]", value))
    return False


def _output(annotation: Any) -> tuple[JSONObject | None, bool]:
    if annotation in {inspect.Signature.empty, None, type(None), Any, object}:
        return None, False
    if _returns_content(annotation):
        return None, False
    schema = _schema(annotation, "the result")
    if schema.get("type") == "object":
        return schema, False
    parts = schema.pop("$defs", None)
    wrapped: JSONObject = {
        "type": "object",
        "properties": {"result": schema},
        "required": ["result"],
    }
    return ({**wrapped, "$defs": parts} if parts else wrapped), True


def _returns_content(annotation: Any) -> bool:
    """Content blocks, lists of them, and whole results are passed on as they are."""
    for member in _members(annotation):
        if member is CallToolResult or member in CONTENT:
            return True
        if get_origin(member) is list and _returns_content(get_args(member)[0]):
            return True
    return False


_ARGS = re.compile(r"^(?:Args|Arguments|Parameters):[ \t]*$")
_ENTRY = re.compile(r"^(\s+)(\w+)(?:\s*\([^)]*\))?:\s+(.*)$")


def _argument_docs(doc: str) -> dict[str, str]:
    """Descriptions from the `Args:` section of a Google-style docstring."""
    lines = iter(doc.splitlines())
    found: dict[str, str] = {}
    if not any(_ARGS.match(line) for line in lines):
        return found
    indent, current = "", None
    for line in lines:
        if line.strip() and not line.startswith((" ", "\t")):
            break
        entry = _ENTRY.match(line)
        if entry and (not indent or entry[1] == indent):
            indent, current = entry[1], entry[2]
            found[current] = entry[3].strip()
        elif current and line.strip():
            found[current] += " " + line.strip()
    return found


def description_of(function: Callable[..., object]) -> str | None:
    """The docstring up to its sections, as the model should read it."""
    doc = inspect.getdoc(function)
    if not doc:
        return None
    head = re.split(r"^(?:Args|Arguments|Parameters|Returns|Raises|Yields):[ \t]*$", doc, flags=re.M)
    return head[0].strip() or None
