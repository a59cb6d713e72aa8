"""Schemas of OpenAPI as JSON Schema 2020-12: self-contained, finite, and never stricter.

What is written accepts everything that the description accepts. Where something has no
counterpart, is malformed, or would make the schema larger than it may be, less is said
instead: keywords are dropped, what lies too deep becomes a schema that takes anything of its
type, and `oneOf` is told as `anyOf`, because a branch of which less is said may fit along
with another. Keywords are taken from a list, so extensions never get in.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import cast

import attrs
import msgspec

from mcp_trio.authoring.imports import shortened, words
from mcp_trio.authoring.openapi.references import References, Spot
from mcp_trio.json_schema import SchemaError, Validator
from mcp_trio.json_schema_patterns import MAX_COST, cost
from mcp_trio.wire import JSONObject

MAX_LEVELS = 20
"""Levels of schemas in schemas."""
_TYPES = ("null", "boolean", "object", "array", "number", "integer", "string")
_NUMBERS = ("multipleOf", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum")
_COUNTS = (
    "maxLength",
    "minLength",
    "maxItems",
    "minItems",
    "maxProperties",
    "minProperties",
    "minContains",
    "maxContains",
)
_COMBINERS = {"allOf": "allOf", "anyOf": "anyOf", "oneOf": "anyOf"}


class _TooLargeError(Exception):
    """The schema outgrew its budget at this number of levels."""


@attrs.frozen
class Written:
    """A schema that stands by itself."""

    schema: JSONObject
    """With `$defs` if it needs any."""
    levels: int | None
    """Below how many levels nothing is said; None if all is."""


class SchemaWriter:
    """Writes the schemas of one description.

    Args:
        references: of the description.
        budget: bytes of one schema, about.
    """

    def __init__(self, references: References, budget: int) -> None:
        self._references = references
        self._budget = budget
        self._written: dict[tuple[bool, str, bytes], Written] = {}

    def write(self, spot: Spot, *, for_input: bool) -> Written:
        """Write a schema with everything it refers to.

        Args:
            spot: the schema.
            for_input: whether it describes what is sent.

        Raises:
            NotImportableError: a reference leads nowhere or elsewhere.
        """
        key = (for_input, spot.address, msgspec.json.encode(spot.value))
        if key not in self._written:
            self._written[key] = self._write(spot, for_input=for_input)
        return self._written[key]

    def _write(self, spot: Spot, *, for_input: bool) -> Written:
        best = self._attempt(spot, MAX_LEVELS, for_input=for_input)
        if best is not None:
            return best
        fits, least_too_many = Written({}, 0), MAX_LEVELS
        least = 0
        # More levels are never smaller, so the most that fit are found by halving.
        while least < least_too_many:
            middle = (least + least_too_many) // 2
            written = self._attempt(spot, middle, for_input=for_input)
            if written is None:
                least_too_many = middle
            else:
                fits, least = written, middle + 1
        return fits

    def _attempt(self, spot: Spot, levels: int, *, for_input: bool) -> Written | None:
        attempt = _Attempt(self._references, self._budget, levels, for_input=for_input)
        try:
            schema = attempt.run(spot)
        except _TooLargeError:
            return None
        return Written(schema, levels if attempt.cut else None)

    def types(self, spot: Spot) -> frozenset[str]:
        """The types that values of a schema may have; all of them if it does not say."""
        found = self._references.resolve(spot).held
        declared = _declared_types(found)
        if declared:
            return frozenset(declared)
        if "properties" in found or "additionalProperties" in found:
            return frozenset({"object"})
        if "items" in found:
            return frozenset({"array"})
        enum = found.get("enum")
        if isinstance(enum, list) and enum:
            plain = [
                item for item in cast("list[object]", enum) if not isinstance(item, dict | list)
            ]
            if len(plain) == len(cast("list[object]", enum)):
                return frozenset({"string"})
        return frozenset(_TYPES)


class _Attempt:
    """One attempt to write one schema within a number of levels."""

    def __init__(
        self, references: References, budget: int, levels: int, *, for_input: bool
    ) -> None:
        self._references = references
        self._left = budget
        self._levels = levels
        self._input = for_input
        self._names: dict[tuple[str, str], str] = {}
        self._waiting: list[tuple[str, Spot, int]] = []
        self.cut = False

    def run(self, spot: Spot) -> JSONObject:
        schema = self.schema(spot, 0)
        if "$ref" in schema and len(schema) == 1:
            # The root itself is wanted, not a pointer to it.
            schema = self._inlined_root(spot)
        definitions: JSONObject = {}
        while self._waiting:
            name, where, level = self._waiting.pop(0)
            definitions[name] = self.object(where, level)
        return {**schema, "$defs": definitions} if definitions else schema

    def _inlined_root(self, spot: Spot) -> JSONObject:
        resolved = self._references.resolve(spot)
        key = (resolved.address, resolved.fragment)
        name = self._names.pop(key)
        self._waiting = [each for each in self._waiting if each[0] != name]
        return self.object(resolved, 0)

    def schema(self, spot: Spot, level: int) -> JSONObject:
        """A schema at a level: written here, or referred to."""
        if "$ref" in spot.held and isinstance(spot.held["$ref"], str):
            return self._referred(spot, level)
        return self.object(spot, level)

    def _referred(self, spot: Spot, level: int) -> JSONObject:
        resolved = self._references.resolve(spot)
        nullable = _is_nullable(spot.held)
        if not resolved.held:
            return {}
        if level > self._levels:
            self.cut = self.cut or nullable
            return {} if nullable else self.object(resolved, level)
        key = (resolved.address, resolved.fragment)
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = self._name(resolved)
            self._waiting.append((name, resolved, level))
        made: JSONObject = {"$ref": f"#/$defs/{name}"}
        self._spend(20 + len(name))
        return {"anyOf": [made, {"type": "null"}]} if nullable else made

    def _name(self, spot: Spot) -> str:
        last = spot.fragment.rpartition("/")[2] or spot.address.rpartition("/")[2]
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", last.removesuffix(".yml").removesuffix(".yaml"))
        taken = set(self._names.values())
        name, number = plain or "schema", 2
        while name in taken:
            name, number = f"{plain}_{number}", number + 1
        return name

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise _TooLargeError

    def object(self, spot: Spot, level: int) -> JSONObject:
        """A schema written out."""
        held = spot.held
        made: JSONObject = {}
        types = _declared_types(held)
        if level > self._levels:
            # Only its type is said from here on.
            self.cut = self.cut or bool(held.keys() - {"type", "description", "nullable"})
            self._type(made, types, held)
            self._spend(24)
            return made
        self._type(made, types, held)
        self._spend(24)
        self._description(made, held)
        self._values(made, held)
        self._limits(made, held)
        self._properties(made, spot, level)
        self._members(made, spot, level)
        self._combined(made, spot, level)
        return made

    def _type(self, made: JSONObject, types: list[str], held: JSONObject) -> None:
        if not types:
            return
        if _is_nullable(held) and "null" not in types:
            types = [*types, "null"]
        made["type"] = types[0] if len(types) == 1 else types

    def _description(self, made: JSONObject, held: JSONObject) -> None:
        text = words(held.get("description"))
        # What is sent has to be understood by a model, what comes back explains itself.
        text = shortened(text.partition("\n\n")[0], 300 if self._input else 120)
        if text:
            made["description"] = text
            self._spend(20 + len(text))

    def _values(self, made: JSONObject, held: JSONObject) -> None:
        enum = held.get("enum")
        if isinstance(enum, list) and enum:
            seen: dict[str, object] = {}
            for value in cast("list[object]", enum):
                seen.setdefault(json.dumps(value, sort_keys=True), value)
            values = list(seen.values())
            if _is_nullable(held) and None not in values:
                values.append(None)
            made["enum"] = values
            self._spend(len(msgspec.json.encode(values)))
        if "const" in held:
            made["const"] = held["const"]
            self._spend(len(msgspec.json.encode(held["const"])))
        if self._input and held.get("default") is not None:
            raw = msgspec.json.encode(held["default"])
            if len(raw) <= 200:
                made["default"] = held["default"]
                self._spend(len(raw) + 12)
        form = held.get("format")
        if is_binary(held) or held.get("contentEncoding") == "base64":
            made["contentEncoding"] = "base64"
        elif isinstance(form, str) and len(form) <= 40:
            made["format"] = form
            self._spend(12 + len(form))

    def _limits(self, made: JSONObject, held: JSONObject) -> None:
        for key in _NUMBERS:
            value = held.get(key)
            if type(value) in {int, float} and (key != "multipleOf" or cast("float", value) > 0):
                made[key] = value
        for key in _COUNTS:
            value = held.get(key)
            if type(value) is int and value >= 0:
                made[key] = value
        for exclusive, plain in (
            ("exclusiveMinimum", "minimum"),
            ("exclusiveMaximum", "maximum"),
        ):
            # Up to 3.0 it is a word beside the limit.
            if held.get(exclusive) is True and plain in made:
                made[exclusive] = made.pop(plain)
        if held.get("uniqueItems") is True:
            made["uniqueItems"] = True
        pattern = held.get("pattern")
        if isinstance(pattern, str) and _is_usable(pattern):
            made["pattern"] = pattern
            self._spend(len(pattern))
        self._spend(20 * len(made))

    def _properties(self, made: JSONObject, spot: Spot, level: int) -> None:
        held = spot.held
        hidden: set[str] = set()
        properties = held.get("properties")
        if isinstance(properties, dict):
            written: JSONObject = {}
            for name, value in cast("JSONObject", properties).items():
                inner = spot.child(value)
                if self._is_hidden(inner):
                    hidden.add(name)
                    continue
                self._spend(len(name) + 6)
                written[name] = self._sub(inner, level)
            made["properties"] = written
        required = held.get("required")
        if isinstance(required, list):
            names = [
                name
                for name in dict.fromkeys(
                    each for each in cast("list[object]", required) if isinstance(each, str)
                )
                if name not in hidden
            ]
            if names:
                made["required"] = names
                self._spend(sum(map(len, names)) + 4 * len(names))
        extra = held.get("additionalProperties")
        if isinstance(extra, bool):
            # What is hidden may come all the same.
            if extra or not hidden or self._input:
                made["additionalProperties"] = extra
        elif isinstance(extra, dict):
            made["additionalProperties"] = self._sub(spot.child(cast("object", extra)), level)
        patterns = held.get("patternProperties")
        if isinstance(patterns, dict):
            usable = {
                pattern: self._sub(spot.child(value), level)
                for pattern, value in cast("JSONObject", patterns).items()
                if _is_usable(pattern)
            }
            if len(usable) == len(cast("JSONObject", patterns)):
                made["patternProperties"] = usable
            else:
                made.pop("additionalProperties", None)

    def _is_hidden(self, spot: Spot) -> bool:
        """Whether a property is never sent, or never comes back."""
        mark = "readOnly" if self._input else "writeOnly"
        if spot.held.get(mark) is True:
            return True
        return "$ref" in spot.held and self._references.resolve(spot).held.get(mark) is True

    def _members(self, made: JSONObject, spot: Spot, level: int) -> None:
        items = spot.held.get("items")
        if isinstance(items, dict):
            made["items"] = self._sub(spot.child(cast("object", items)), level)
        # Up to 2019-09 an array of items was what prefixItems is now.
        parts = [*spot.get("prefixItems").items] or spot.get("items").items
        if parts:
            made["prefixItems"] = [self._sub(part, level) for part in parts]

    def _combined(self, made: JSONObject, spot: Spot, level: int) -> None:
        nullable = _is_nullable(spot.held) and "type" not in made
        for key, becomes in _COMBINERS.items():
            branches = spot.get(key).items
            if not branches:
                continue
            written: list[object] = [self._sub(branch, level) for branch in branches]
            if nullable:
                written = [{becomes: written}, {"type": "null"}]
                becomes = "anyOf"  # noqa: PLW2901  # said of a list of two now
            if becomes in made:
                held = cast("list[object]", made.setdefault("allOf", []))
                held.append({becomes: written})
            else:
                made[becomes] = written

    def _sub(self, spot: Spot, level: int) -> JSONObject:
        return self.schema(spot, level + 1)


def _declared_types(held: Mapping[str, object]) -> list[str]:
    declared = held.get("type")
    listed = cast("list[object]", declared) if isinstance(declared, list) else [declared]
    found = ["string" if each == "file" else each for each in listed]
    if not all(isinstance(each, str) and each in _TYPES for each in found):
        return []
    return list(dict.fromkeys(cast("list[str]", found)))


def _is_nullable(held: Mapping[str, object]) -> bool:
    return held.get("nullable") is True or held.get("x-nullable") is True


def is_binary(held: Mapping[str, object]) -> bool:
    """Whether a schema is about bytes; in JSON and in arguments they are base64."""
    if "string" not in (_declared_types(held) or ["string"]):
        return False
    encoded = held.get("contentMediaType") is not None and held.get("contentEncoding") is None
    return held.get("format") == "binary" or encoded


@lru_cache(maxsize=4_096)
def _is_usable(pattern: str) -> bool:
    """Whether every engine that a server may have reads the pattern."""
    try:
        with warnings.catch_warnings():
            # A set that is going to mean something else is not read by every engine alike.
            warnings.simplefilter("error", FutureWarning)
            re.compile(pattern)
        Validator({"type": "string", "pattern": pattern})
    except (re.error, FutureWarning, SchemaError, RecursionError, OverflowError):
        return False
    return len(pattern) <= 500 and cost(pattern) <= MAX_COST // 8
