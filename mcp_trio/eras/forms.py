"""The JSON Schema subset of forms: flat, primitive, and smaller in the first revision (F4)."""

from __future__ import annotations

from typing import cast

from mcp_trio.eras.asking import missing
from mcp_trio.errors import MissingCapabilityError
from mcp_trio.wire import Revision
from mcp_trio.wire.basic import JSONObject
from mcp_trio.wire.elicitation import rich_forms

_COMMON = {"type", "title", "description", "default"}
_KEYWORDS = {
    "string": _COMMON | {"minLength", "maxLength", "format", "enum", "enumNames", "oneOf"},
    "number": _COMMON | {"minimum", "maximum"},
    "integer": _COMMON | {"minimum", "maximum"},
    "boolean": _COMMON,
    "array": _COMMON | {"minItems", "maxItems", "items"},
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
    if kind not in _KEYWORDS:
        return "a field of a form is a string, a number, a boolean or a choice"
    if kind == "array":
        items = field.get("items")
        if not isinstance(items, dict) or not ("enum" in items or "anyOf" in items):
            return "an array in a form is a choice of several: its items have enum or anyOf"
        field = cast("JSONObject", items)
    options = field.get("enum", [])
    if not isinstance(options, list) or not all(
        isinstance(option, str) for option in cast("list[object]", options)
    ):
        return "the options of a choice are strings"
    return None


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
    sent = {key: value for key, value in field.items() if key in _KEYWORDS[kind]}
    if sent.get("format", "email") not in _FORMATS:
        del sent["format"]
    if rich:
        return sent
    if kind == "array":
        raise _no_choice()
    if kind not in _FIRST_DEFAULT:
        sent.pop("default", None)
    options = cast("list[JSONObject] | None", sent.pop("oneOf", None))
    if options is not None:
        sent["enum"] = [option.get("const") for option in options]
        sent["enumNames"] = [option.get("title", option.get("const")) for option in options]
    return sent


def _no_choice() -> MissingCapabilityError:
    return missing("its forms have no choice of several", {"elicitation": {"form": {}}})
