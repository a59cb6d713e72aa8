"""A form for the user: its schema, and what the user filled in as a value of Python.

The schema comes from a dict, or from a class whose fields are primitive. What of it a
revision can show is decided in `eras.forms`; here the answer is checked against all of it.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar, cast

import attrs
import msgspec

from mcp_trio.eras.forms import form_fault
from mcp_trio.errors import InvalidParamsError
from mcp_trio.json_schema import SchemaError, Validator
from mcp_trio.wire.basic import JSONObject

T = TypeVar("T")

_NO_FORM = "a form cannot be made of this: "


@attrs.frozen(kw_only=True)
class Elicited(Generic[T]):
    """What the user did with a question."""

    action: Literal["accept", "decline", "cancel"]
    """`decline` is a no, `cancel` is no decision: the user closed the window."""
    content: T | None = None
    """What was filled in; None unless a form was accepted."""
    elicitation_id: str | None = None
    """The id of a visit to a page, where the revision has one; see `Context.elicit_url`."""

    @property
    def accepted(self) -> bool:
        """Whether the user agreed."""
        return self.action == "accept"


class Form(Generic[T]):
    """A schema and the way back from JSON."""

    def __init__(self, shape: JSONObject | type[T]) -> None:
        """Read the shape.

        Args:
            shape: a JSON Schema of a flat object, or an attrs class, a dataclass or a
                TypedDict with fields that have one.

        Raises:
            SchemaError: it is no form.
        """
        self._cls: type[T] | None = None
        if isinstance(shape, dict):
            self.schema = shape
        else:
            self._cls = shape
            self.schema = _schema_of(shape)
        fault = form_fault(self.schema)
        if fault is not None:
            raise SchemaError(_NO_FORM + fault)
        self._validator = Validator(self.schema)

    def read(self, content: JSONObject, where: str) -> T:
        """Check what was filled in and give it as the class, or as it is for a dict.

        Raises:
            InvalidParamsError: it does not fit; the values are not repeated.
        """
        faults = self._validator.violations(content)
        if faults:
            told = "; ".join(f"{where}{fault.pointer}: {fault.message}" for fault in faults)
            raise InvalidParamsError(told)
        if self._cls is None:
            return cast("T", content)
        try:
            return msgspec.convert(content, self._cls, strict=True)
        except msgspec.ValidationError as error:
            raise InvalidParamsError(f"{where}: {error}") from error


def _schema_of(cls: type) -> JSONObject:
    try:
        (root,), parts = msgspec.json.schema_components([cls], ref_template="{name}")
    except TypeError as error:
        raise SchemaError(f"{_NO_FORM}{error}") from error
    whole = _resolve(cast("JSONObject", root), parts)
    if "properties" not in whole:
        return whole
    fields = cast("dict[str, JSONObject]", whole["properties"])
    schema: JSONObject = {
        "type": "object",
        "properties": {name: _field(field, parts) for name, field in fields.items()},
    }
    if whole.get("required"):
        schema["required"] = whole["required"]
    return schema


def _resolve(schema: JSONObject, parts: dict[str, Any]) -> JSONObject:
    """The schema itself instead of a reference; what stands beside the reference wins."""
    name = schema.get("$ref")
    if not isinstance(name, str):
        return schema
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return {**cast("JSONObject", parts[name]), **beside}


def _field(field: JSONObject, parts: dict[str, Any]) -> JSONObject:
    """One field, flat: no references, no null, and a type beside every list of options."""
    field = _resolve(field, parts)
    options = field.get("anyOf")
    if isinstance(options, list):
        real = [o for o in cast("list[JSONObject]", options) if o.get("type") != "null"]
        if len(real) == 1:
            beside = {key: value for key, value in field.items() if key != "anyOf"}
            field = {**_resolve(real[0], parts), **beside}
    if field.get("default", ...) is None:
        field = {key: value for key, value in field.items() if key != "default"}
    if "enum" in field and "type" not in field:
        field = {**field, "type": "string"}
    if field.get("type") == "array" and isinstance(field.get("items"), dict):
        field = {**field, "items": _field(cast("JSONObject", field["items"]), parts)}
    return field
