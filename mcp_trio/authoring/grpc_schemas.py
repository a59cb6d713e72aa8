"""Messages of protobuf as JSON Schema, by the JSON mapping of protobuf.

Integers of 64 bits are texts, bytes are base64, enums are names, maps are objects, and the
well-known types have forms of their own. Names of fields are those of JSON, in camel case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import unknown_fields

from mcp_trio.authoring.grpc_types import Enum, Field, Index, Located, Message
from mcp_trio.authoring.imports import shortened, words
from mcp_trio.wire import JSONObject

_BIG: JSONObject = {"type": "string", "pattern": "^-?[0-9]+$"}
_UNSIGNED: JSONObject = {"type": "string", "pattern": "^[0-9]+$"}
_INT32: JSONObject = {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}
_UINT32: JSONObject = {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}
_NUMBER: JSONObject = {
    "anyOf": [{"type": "number"}, {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]}]
}
_BYTES: JSONObject = {"type": "string", "contentEncoding": "base64"}
_SCALARS: Mapping[int, JSONObject] = {
    Field.TYPE_DOUBLE: _NUMBER,
    Field.TYPE_FLOAT: _NUMBER,
    Field.TYPE_INT64: _BIG,
    Field.TYPE_UINT64: _UNSIGNED,
    Field.TYPE_INT32: _INT32,
    Field.TYPE_FIXED64: _UNSIGNED,
    Field.TYPE_FIXED32: _UINT32,
    Field.TYPE_BOOL: {"type": "boolean"},
    Field.TYPE_STRING: {"type": "string"},
    Field.TYPE_BYTES: _BYTES,
    Field.TYPE_UINT32: _UINT32,
    Field.TYPE_SFIXED32: _INT32,
    Field.TYPE_SFIXED64: _BIG,
    Field.TYPE_SINT32: _INT32,
    Field.TYPE_SINT64: _BIG,
}
_WELL_KNOWN: Mapping[str, JSONObject] = {
    ".google.protobuf.Any": {
        "type": "object",
        "properties": {"@type": {"type": "string"}},
        "required": ["@type"],
    },
    ".google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    ".google.protobuf.Duration": {"type": "string", "pattern": "^-?[0-9]+(\\.[0-9]{1,9})?s$"},
    ".google.protobuf.FieldMask": {"type": "string"},
    ".google.protobuf.Struct": {"type": "object"},
    ".google.protobuf.Value": {},
    ".google.protobuf.ListValue": {"type": "array"},
    ".google.protobuf.NullValue": {"type": "null"},
    ".google.protobuf.Empty": {"type": "object"},
    ".google.protobuf.BoolValue": {"type": ["boolean", "null"]},
    ".google.protobuf.StringValue": {"type": ["string", "null"]},
    ".google.protobuf.BytesValue": {**_BYTES, "type": ["string", "null"]},
    ".google.protobuf.Int32Value": {**_INT32, "type": ["integer", "null"]},
    ".google.protobuf.UInt32Value": {**_UINT32, "type": ["integer", "null"]},
    ".google.protobuf.Int64Value": {**_BIG, "type": ["string", "null"]},
    ".google.protobuf.UInt64Value": {**_UNSIGNED, "type": ["string", "null"]},
    ".google.protobuf.FloatValue": {"type": ["number", "string", "null"]},
    ".google.protobuf.DoubleValue": {"type": ["number", "string", "null"]},
}
_BEHAVIOR = 1052
"""The extension `google.api.field_behavior`, read by its number."""
_REQUIRED, _OUTPUT_ONLY, _INPUT_ONLY = 2, 3, 4


class MessageWriter:
    """Writes the schema of one message with all that it needs.

    Args:
        index: of the types.
        budget: bytes of the schema, about.
        for_input: whether it describes what is sent.
    """

    def __init__(self, index: Index, budget: int, *, for_input: bool) -> None:
        self._index = index
        self._left = budget
        self._input = for_input
        self._definitions: JSONObject = {}
        self._waiting: list[str] = []
        self.cut = False
        """Whether something was left unsaid for want of room."""

    def write(self, name: str) -> JSONObject:
        """The schema of a message by its full name.

        Raises:
            NotImportableError: a type is not described.
        """
        if name in _WELL_KNOWN:
            return dict(_WELL_KNOWN[name])
        made = self._message(name)
        while self._waiting:
            waiting = self._waiting.pop(0)
            self._definitions[waiting[1:]] = self._message(waiting)
        return {**made, "$defs": self._definitions} if self._definitions else made

    def _message(self, name: str) -> JSONObject:
        located = self._index.types[name]
        message = self._index.message(name)
        properties: JSONObject = {}
        required: list[str] = []
        oneofs: dict[int, list[str]] = {}
        for number, field in enumerate(message.field):
            behavior = _behavior(field)
            if (_OUTPUT_ONLY if self._input else _INPUT_ONLY) in behavior:
                continue
            key = field.json_name or json_name(field.name)
            text = self._index.comment(located.file, (*located.path, 2, number))
            properties[key] = self._described(self._field(field), text)
            if self._input and (field.label == Field.LABEL_REQUIRED or _REQUIRED in behavior):
                required.append(key)
            if field.HasField("oneof_index") and not field.proto3_optional:
                oneofs.setdefault(field.oneof_index, []).append(key)
            self._left -= len(key) + 30
        made: JSONObject = {"type": "object", "properties": properties}
        if required:
            made["required"] = required
        if self._input:
            made["additionalProperties"] = False
            made |= _at_most_one(oneofs)
        return made

    def _described(self, schema: JSONObject, comment: str) -> JSONObject:
        most = 300 if self._input else 100
        text = shortened(" ".join(words(comment).partition("\n\n")[0].split()), most)
        self._left -= len(text)
        return {**schema, "description": text} if text else schema

    def _field(self, field: Field) -> JSONObject:
        if field.label != Field.LABEL_REPEATED:
            return self._single(field)
        entry = self._entry(field)
        if entry is not None:
            value = next(each for each in entry.field if each.number == 2)
            return {"type": "object", "additionalProperties": self._single(value)}
        return {"type": "array", "items": self._single(field)}

    def _entry(self, field: Field) -> Message | None:
        """The message of the entries, if the field is a map."""
        if field.type != Field.TYPE_MESSAGE or field.type_name in _WELL_KNOWN:
            return None
        message = self._index.message(field.type_name)
        return message if message.options.map_entry else None

    def _single(self, field: Field) -> JSONObject:
        if field.type in _SCALARS:
            return dict(_SCALARS[field.type])
        if field.type_name in _WELL_KNOWN:
            return dict(_WELL_KNOWN[field.type_name])
        if field.type == Field.TYPE_ENUM:
            return self._enum(self._index.types.get(field.type_name))
        return self._referred(field.type_name)

    def _enum(self, located: Located | None) -> JSONObject:
        if located is None or not isinstance(located.proto, Enum):
            return {}
        if not self._input:
            # A value that is newer than the description comes as its number.
            return {"type": ["string", "integer"]}
        names = [value.name for value in located.proto.value]
        self._left -= sum(len(name) + 3 for name in names)
        return {"type": "string", "enum": names}

    def _referred(self, name: str) -> JSONObject:
        key = name[1:]
        if key not in self._definitions:
            size = 80 + 40 * len(self._index.message(name).field)
            if self._left < size:
                self.cut = True
                return {"type": "object"}
            self._left -= size
            self._definitions[key] = {}
            self._waiting.append(name)
        return {"$ref": f"#/$defs/{key}"}


def json_name(name: str) -> str:
    """The key of a field in JSON where its descriptor names none, as those of Python do not.

    Source: protobuf's ToJsonName.
    """
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def _behavior(field: Field) -> set[int]:
    found: Any = unknown_fields.UnknownFieldSet(field.options)
    return {each.data for each in found if each.field_number == _BEHAVIOR and each.wire_type == 0}


def _at_most_one(oneofs: Mapping[int, list[str]]) -> JSONObject:
    rules: list[object] = []
    for keys in oneofs.values():
        if len(keys) > 1:
            each: list[JSONObject] = [{"required": [key]} for key in keys]
            rules.append({"oneOf": [*each, {"not": {"anyOf": each}}]})
    return {"allOf": rules} if rules else {}
