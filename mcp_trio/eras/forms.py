"""The JSON Schema subset of forms: flat, primitive, and smaller in the first revision (F4).

What a handler gives is checked, then written anew with nothing in it but what the schema
of the protocol has a place for; the answer is still checked against all of it.
"""

from __future__ import annotations

from typing import cast

from mcp_trio.eras.asking import missing
from mcp_trio.errors import MissingCapabilityError
from mcp_trio.wire import Revision
from mcp_trio.wire.basic import JSONObject
from mcp_trio.wire.elicitation import rich_forms

_COMMON = {"type", "title", "description", "default"}
_CHOICE = _COMMON | {"enum", "enumNames", "oneOf"}
_KEYWORDS = {
    "string": _COMMON | {"minLength", "maxLength", "format"},
    "number": _COMMON | {"minimum", "maximum"},
    "integer": _COMMON | {"minimum", "maximum"},
    "boolean": _COMMON,
    "array": _COMMON | {"minItems", "maxItems", "items"},
}
_DEFAULTS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
}
_FORMATS = {"email", "uri", "date", "date-time"}
_FIRST_DEFAULT = {"boolean"}
"""What could have a default in the first revision with forms."""


def form_fault(schema: JSONObject) -> str | None:
    """Say why a schema is no form, None if it is one."""
    properties = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, dict):
        return "a form is an object with properties"
    for name, field in cast("JSONObject", properties).items():
        if not isinstance(field, dict):
            return f"{name}: not a schema"
        fault = _field_fault(cast("JSONObject", field))
        if fault is not None:
            return f"{name}: {fault}"
    return None


def _field_fault(field: JSONObject) -> str | None:
    kind = field.get("type")
    if not isinstance(kind, str) or kind not in _KEYWORDS:
        return "a field of a form is a string, a number, a boolean or a choice"
    if "default" in field and not _is_default(field["default"], kind):
        return "its default is of another type"
    if kind == "array":
        items = field.get("items")
        if not isinstance(items, dict) or not ("enum" in items or "anyOf" in items):
            return "an array in a form is a choice of several: its items have enum or anyOf"
        field = cast("JSONObject", items)
        if "enum" in field:
            return None if _all_strings(field["enum"]) else _NO_OPTIONS
        return None if _all_titled(field["anyOf"]) else _NO_OPTIONS
    fits = _all_strings(field.get("enum", [])) and _all_titled(field.get("oneOf", []))
    return None if fits else _NO_OPTIONS


def _is_default(value: object, kind: str) -> bool:
    return _all_strings(value) if kind == "array" else type(value) in _DEFAULTS[kind]


_NO_OPTIONS = "the options of a choice are strings"


def _all_strings(options: object) -> bool:
    return isinstance(options, list) and all(
        isinstance(option, str) for option in cast("list[object]", options)
    )


def _all_titled(options: object) -> bool:
    """Tell whether each option is a constant string, with or without a title."""
    return isinstance(options, list) and all(
        isinstance(option, dict) and isinstance(cast("JSONObject", option).get("const"), str)
        for option in cast("list[object]", options)
    )


def form_on_wire(schema: JSONObject, revision: Revision) -> JSONObject:
    """The schema as a revision can show it; keywords that forms do not have stay at home.

    Raises:
        MissingCapabilityError: the revision has no choice of several.
    """
    rich = rich_forms(revision)
    fields = cast("dict[str, JSONObject]", schema["properties"])
    sent: JSONObject = {
        "type": "object",
        "properties": {name: _field(field, rich=rich) for name, field in fields.items()},
    }
    required = schema.get("required")
    return {**sent, "required": required} if required else sent


def _field(field: JSONObject, *, rich: bool) -> JSONObject:
    kind = cast("str", field["type"])
    known = _CHOICE if kind == "string" and field.keys() & {"enum", "oneOf"} else _KEYWORDS[kind]
    sent = {key: value for key, value in field.items() if key in known}
    if sent.get("format", "email") not in _FORMATS:
        del sent["format"]
    if kind == "array":
        if not rich:
            raise _no_choice()
        sent["items"] = _items(cast("JSONObject", field["items"]))
    elif "enum" in sent:
        sent.pop("oneOf", None)
    elif "oneOf" in sent:
        sent.pop("enumNames", None)
        sent["oneOf"] = _titled(sent["oneOf"])
    return sent if rich else _first(kind, sent)


def _first(kind: str, sent: JSONObject) -> JSONObject:
    """The field as the first revision with forms has it."""
    if kind not in _FIRST_DEFAULT:
        sent.pop("default", None)
    options = cast("list[JSONObject] | None", sent.pop("oneOf", None))
    if options is not None:
        sent["enum"] = [option["const"] for option in options]
        sent["enumNames"] = [option["title"] for option in options]
    return sent


def _items(items: JSONObject) -> JSONObject:
    """What the options of a choice of several are."""
    if "enum" in items:
        return {"type": "string", "enum": items["enum"]}
    return {"anyOf": _titled(items["anyOf"])}


def _titled(options: object) -> list[JSONObject]:
    """Options, each with a title; one without is called what it is."""
    return [
        {"const": option["const"], "title": option.get("title", option["const"])}
        for option in cast("list[JSONObject]", options)
    ]


def _no_choice() -> MissingCapabilityError:
    return missing("its forms have no choice of several", {"elicitation": {"form": {}}})
