"""A function's signature as JSON Schema, and JSON arguments as its keyword arguments.

Types are whatever msgspec understands: builtins, Literal, Enum, datetime, attrs classes,
dataclasses, TypedDict, NamedTuple, `Annotated[..., msgspec.Meta(ge=1)]`. A parameter
annotated with `Context` is filled in by the server and invisible to the model.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable, Mapping
from typing import (
    Annotated,
    Any,
    Never,
    NoReturn,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs
import msgspec

from mcp_trio.json_schema import Violation
from mcp_trio.jsonrpc import codec
from mcp_trio.server.media import MEDIA
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
            made = msgspec.convert(arguments, self.arguments, str_keys=True)
        except msgspec.ValidationError:
            # JSON Schema takes 3.0 for an integer, Python types do not.
            made = msgspec.convert(_integral(arguments), self.arguments, str_keys=True)
        return {name: getattr(made, name) for name in arguments}

    def bind_text(self, arguments: Mapping[str, str]) -> dict[str, object]:
        """Turn strings, as prompts and URIs have them, into keyword arguments.

        Raises:
            msgspec.ValidationError: one does not read as its parameter's type.
        """
        made = msgspec.convert(arguments, self.arguments, strict=False, str_keys=True)
        return {name: getattr(made, name) for name in arguments}

    def faults(self, arguments: Mapping[str, object], *, text: bool = False) -> list[Violation]:
        """What is wrong with arguments that could not be bound: one fault for each of them.

        Args:
            arguments: by name.
            text: they were strings, read as `bind_text` does.
        """
        found: list[Violation] = []
        for field in msgspec.structs.fields(self.arguments):
            if field.name not in arguments:
                continue
            value = arguments[field.name]
            value = value if text else _integral(value)
            try:
                msgspec.convert(value, field.type, strict=not text, str_keys=True)
            except msgspec.ValidationError as error:
                found.append(_violation(field.name, str(error)))
        return found


_PLACE = re.compile(r"(?P<text>.*?)(?: - at `\$(?P<path>[^`]*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>[^\]]*)\]")
_RULES = (
    ("Invalid RFC3339", "format", "is not in RFC 3339 form"),
    ("Invalid date", "format", "is no date"),
    ("Invalid time", "format", "is no time"),
    ("Invalid ISO8601", "format", "is not in ISO 8601 form"),
    ("Invalid UUID", "format", "is no UUID"),
    ("Invalid decimal", "format", "is no decimal number"),
    ("Invalid base64", "contentEncoding", "is not base64"),
    ("Invalid enum value", "enum", "is none of the choices"),
    ("Object missing required field", "required", "lacks a field"),
)
"""How the texts of the library begin, the rule they are about, and what we say of it."""


def _violation(name: str, text: str) -> Violation:
    """A fault as the schema would have told it: never with the value, which may be a secret."""
    found = cast("re.Match[str]", _PLACE.fullmatch(text))
    steps = [step["name"] or step["index"] for step in _STEP.finditer(found["path"] or "")]
    parts = [part.replace("~", "~0").replace("/", "~1") for part in (name, *steps)]
    pointer = "/" + "/".join("*" if part == "..." else part for part in parts)
    said = found["text"]
    for beginning, rule, message in _RULES:
        if said.startswith(beginning):
            return Violation(pointer=pointer, rule=rule, message=message)
    if said.startswith("Expected "):
        return Violation(
            pointer=pointer, rule="type", message=f"is not what is {said[0].lower()}{said[1:]}"
        )
    # The words of a validator of the user's own, which may repeat the value.
    return Violation(pointer=pointer, rule="validator", message="is not accepted")


def _integral(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _integral(item) for key, item in cast("JSONObject", value).items()}
    if isinstance(value, list):
        return [_integral(item) for item in cast("list[object]", value)]
    return value


def read_signature(function: Callable[..., object], *, result: bool = True) -> Signature:
    """Work out what a function takes and gives.

    Parameters that a `functools.partial` has filled in by name are not part of it. With
    `result=False` the return annotation is left alone.

    Raises:
        SignatureError: `*args`, `**kwargs`, positional-only parameters, a generator, or a
            type that has no JSON form.
    """
    if not callable(cast("object", function)):
        raise SignatureError(f"not a function: {function!r:.80}; options are given by name")
    inner, filled = underlying(function)
    target = inner if inspect.isroutine(inner) else type(inner).__call__
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise SignatureError("a generator cannot be a tool: its result has to be a value")
    try:
        hints = get_type_hints(target, include_extras=True)
        parameters = inspect.signature(function).parameters
    except (NameError, TypeError, ValueError) as error:
        raise SignatureError(f"cannot read the annotations: {error}") from error
    described = _argument_docs(inspect.getdoc(inner) or "")
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    defaults: JSONObject = {}
    context_parameter = None
    for name, parameter in parameters.items():
        if name in filled:
            continue
        _check_kind(name, parameter)
        annotation = hints.get(name, Any)
        if _is_context(annotation):
            if context_parameter is not None:
                raise SignatureError(f"parameter {name}: there is a Context already")
            context_parameter = name
            continue
        if name in described and not _has_description(annotation):
            annotation = Annotated[annotation, msgspec.Meta(description=described[name])]
        if parameter.default is inspect.Parameter.empty:
            fields.append((name, annotation))
        else:
            # The function's own default is used in the call; this one is only shown.
            fields.append((name, annotation, msgspec.UNSET))
            defaults.update(_shown_default(name, parameter.default))
    arguments = msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True, kw_only=True)
    output_schema, wraps = _output(hints.get("return", Any) if result else Any)
    return Signature(
        input_schema=_input(arguments, defaults),
        output_schema=output_schema,
        wraps_output=wraps,
        context_parameter=context_parameter,
        arguments=arguments,
        is_async=inspect.iscoroutinefunction(target),
    )


def underlying(function: Callable[..., object]) -> tuple[Callable[..., object], frozenset[str]]:
    """What stands below partials and a bare staticmethod, and the parameters they filled in."""
    filled: set[str] = set()
    while True:
        if isinstance(function, functools.partial):
            filled.update(function.keywords)
            function = function.func
        elif isinstance(function, staticmethod):
            function = function.__func__
        else:
            return function, frozenset(filled)


def _check_kind(name: str, parameter: inspect.Parameter) -> None:
    if parameter.kind in {
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    }:
        raise SignatureError(
            f"parameter {name}: tools are called by keyword, so it must be a named parameter"
        )


def _shown_default(name: str, value: object) -> JSONObject:
    """The default for the schema; none where it has no JSON form."""
    try:
        encoded = codec.encode_value(msgspec.to_builtins(value, str_keys=True))
    except (TypeError, ValueError):
        return {}
    return {name: codec.decode_value(encoded)}


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


def _any_value(kind: type) -> JSONObject:
    if kind is object:
        return {"description": "any JSON value"}
    raise NotImplementedError  # a schema hook's word for a type it does not know either


def _input(arguments: type[msgspec.Struct], defaults: JSONObject) -> JSONObject:
    try:
        msgspec.json.Decoder(arguments)
    except TypeError as error:
        for field in msgspec.structs.fields(arguments):
            _check_type(field.type, f"parameter {field.name}")
        raise SignatureError(f"a parameter cannot be told apart in JSON: {error}") from error
    for field in msgspec.structs.fields(arguments):
        _check_type(field.type, f"parameter {field.name}")
    schema = _schema(arguments, "a parameter")
    schema.pop("title", None)
    if not schema.get("required"):
        schema.pop("required", None)
    properties = cast("dict[str, JSONObject]", schema["properties"])
    for name, value in defaults.items():
        properties[name]["default"] = value
    return schema


def _check_type(annotation: Any, what: str) -> None:
    """Refuse a type by the name of what has it, which the whole could not say."""
    try:
        msgspec.json.schema_components([annotation], schema_hook=_any_value)
    except (TypeError, NameError) as error:
        # Further lines are advice to users of the library, not to ours.
        reason = str(error).partition("\n")[0]
        raise SignatureError(f"{what} has a type without a JSON form: {reason}") from error


def _schema(annotation: Any, what: str) -> JSONObject:
    """The schema of a type, with everything it refers to inside."""
    try:
        (root,), parts = msgspec.json.schema_components(
            [annotation], schema_hook=_any_value, ref_template=_REFERENCE
        )
    except (TypeError, NameError) as error:
        reason = str(error).partition("\n")[0]
        raise SignatureError(f"{what} has a type without a JSON form: {reason}") from error
    root = cast("JSONObject", root)
    reference = root.get("$ref")
    name = reference.rpartition("/")[2] if isinstance(reference, str) else None
    refers_to_itself = name is not None and _mentions(parts, f"#/$defs/{name}")
    if name is not None and not refers_to_itself:
        root = cast("JSONObject", parts.pop(name))
    elif name is not None:
        # A recursive type: the root repeats its definition, which stays for the inner use.
        root = dict(cast("JSONObject", parts[name]))
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
    if any(annotation is kind for kind in _UNTYPED) or _mentions_content(annotation):
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


_UNTYPED = (None, types.NoneType, Any, object, Never, NoReturn)


def _mentions_content(annotation: Any) -> bool:
    """Content blocks, collections of them, and whole results are passed on as they are."""
    return (
        annotation is CallToolResult
        or annotation in CONTENT
        or annotation in MEDIA
        or any(_mentions_content(part) for part in get_args(annotation))
    )


_SECTION = re.compile(r"^(?:Args|Arguments|Parameters|Returns|Raises|Yields):[ \t]*$", re.MULTILINE)
_ARGS = re.compile(r"^(?:Args|Arguments|Parameters):[ \t]*$")
_ENTRY = re.compile(r"^(\s+)(\w+)(?:\s*\(.*?\))?:(?:\s+(.*))?$")


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
            found[current] = (entry[3] or "").strip()
        elif current and line.strip():
            found[current] = f"{found[current]} {line.strip()}".strip()
    return {name: text for name, text in found.items() if text}


def description_of(function: Callable[..., object]) -> str | None:
    """The docstring up to its sections, as the model should read it."""
    doc = inspect.getdoc(underlying(function)[0])
    if not doc:
        return None
    return _SECTION.split(doc)[0].strip() or None
