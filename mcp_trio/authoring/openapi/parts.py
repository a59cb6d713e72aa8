"""One operation of a description as 3.0 has it, whatever version it was written in.

2.0 says the same things in other places; they are put where 3.0 has them, with their
references left in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import attrs

from mcp_trio.authoring.openapi.references import References, Spot
from mcp_trio.wire import JSONObject

METHODS = ("get", "head", "post", "put", "patch", "delete", "options")
_UNSENDABLE = frozenset({"trace", "connect", "query"})
_BESIDE = frozenset({"$ref", "summary", "description", "servers", "parameters"})
"""Keys of a path item that are about all its operations."""
_PLACES = frozenset({"path", "query", "header", "cookie"})
_COLLECTIONS: Mapping[str, tuple[str, bool]] = {
    "csv": ("form", False),
    "ssv": ("spaceDelimited", False),
    "pipes": ("pipeDelimited", False),
    "multi": ("form", True),
}
_SCHEMA_KEYS = frozenset(
    {
        "type",
        "format",
        "items",
        "default",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "maxLength",
        "minLength",
        "pattern",
        "maxItems",
        "minItems",
        "uniqueItems",
        "enum",
        "multipleOf",
        "x-nullable",
    }
)


@attrs.frozen(kw_only=True)
class Parameter:
    """One parameter."""

    name: str
    where: str
    """`path`, `query`, `header` or `cookie`."""
    required: bool
    description: object
    schema: Spot
    content: str | None
    """The media type of its value, if it is a document in itself."""
    style: str
    explode: bool
    unknown_collection: bool = False
    """It is written in a way that 3.0 has no name for."""


@attrs.frozen(kw_only=True)
class Body:
    """What is sent."""

    required: bool
    description: object
    content: Mapping[str, Spot]
    """Media type objects by media type, in their order."""


@attrs.frozen(kw_only=True)
class Part:
    """One operation."""

    method: str
    """In upper case."""
    path: str
    spot: Spot
    parameters: tuple[Parameter, ...]
    body: Body | None
    responses: Mapping[str, Mapping[str, Spot]]
    """Media type objects by media type, by status; those without content have none."""
    servers: Spot | None
    """Its own servers, if it has any."""
    security: object
    """What its calls need; an empty list for nothing."""

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"{self.method} {self.path}"


class Reader:
    """Reads the operations of one description."""

    def __init__(self, references: References, root: Spot) -> None:
        self._references = references
        self._root = root
        self.is_2 = str(root.held.get("swagger", "")).startswith("2")

    def paths(self) -> Iterator[tuple[str, Spot]]:
        """All paths with what stands there, which may be a reference."""
        paths = self._root.get("paths")
        for path, value in paths.held.items():
            if not path.startswith("x-"):
                yield path, paths.child(value)

    def operations(self, item: Spot) -> Iterator[tuple[str, Spot, Spot]]:
        """Method, path item and operation of all that stand at a path.

        Raises:
            NotImportableError: a reference leads nowhere or elsewhere.
        """
        item = self._references.resolve(item)
        for method in METHODS:
            found = item.get(method)
            if isinstance(found.value, dict):
                yield method, item, found

    def strangers(self, item: Spot) -> Iterator[tuple[str, str]]:
        """What stands at a path and is no operation that can be read: its key, and why.

        Raises:
            NotImportableError: a reference leads nowhere or elsewhere.
        """
        if not isinstance(item.value, dict):
            yield "", "what stands there is no object"
            return
        for key, value in self._references.resolve(item).held.items():
            if key in METHODS:
                if not isinstance(value, dict):
                    yield key.upper(), "what stands there is no object"
            elif key in _UNSENDABLE:
                yield key.upper(), "an operation does not send that method"
            elif key not in _BESIDE and not key.startswith("x-"):
                yield key, "is no method that OpenAPI knows"

    def webhooks(self) -> Iterator[str]:
        """The names of calls that go the other way."""
        yield from self._root.get("webhooks").held

    def part(self, method: str, path: str, item: Spot, spot: Spot) -> Part:
        """Read one operation.

        Raises:
            NotImportableError: a reference leads nowhere or elsewhere.
        """
        by_name: dict[tuple[str, str], Spot] = {}
        for each in (*item.get("parameters").items, *spot.get("parameters").items):
            found = self._references.resolve(each)
            by_name[str(found.held.get("in")), str(found.held.get("name"))] = found
        parameters = list(by_name.values())
        servers = next((s.get("servers") for s in (spot, item) if s.get("servers").items), None)
        return Part(
            method=method.upper(),
            path=path,
            spot=spot,
            parameters=tuple(self._parameters(parameters)),
            body=self._body_2(spot, parameters) if self.is_2 else self._body(spot),
            responses=dict(self._responses(spot)),
            servers=servers,
            security=spot.held.get("security", self._root.held.get("security")),
        )

    def _parameters(self, spots: list[Spot]) -> Iterator[Parameter]:
        for spot in spots:
            held = spot.held
            name, where = held.get("name"), held.get("in")
            if isinstance(name, str) and name and str(where) in _PLACES:
                yield (self._parameter_2 if self.is_2 else _parameter)(spot, name, str(where))

    def _parameter_2(self, spot: Spot, name: str, where: str) -> Parameter:
        held = spot.held
        schema = {key: value for key, value in held.items() if key in _SCHEMA_KEYS}
        collection = held.get("collectionFormat", "csv")
        style, explode = _COLLECTIONS.get(str(collection), ("form", False))
        if where in {"path", "header"}:
            style, explode = "simple", False
        return Parameter(
            name=name,
            where=where,
            required=held.get("required") is True or where == "path",
            description=held.get("description"),
            schema=spot.child(schema),
            content=None,
            style=style,
            explode=explode,
            unknown_collection=str(collection) not in _COLLECTIONS,
        )

    def _body(self, spot: Spot) -> Body | None:
        found = self._references.resolve(spot.get("requestBody"))
        if not found.held:
            return None
        content = found.get("content")
        return Body(
            required=found.held.get("required") is True,
            description=found.held.get("description"),
            content={media: content.child(value) for media, value in content.held.items()},
        )

    def _body_2(self, spot: Spot, parameters: list[Spot]) -> Body | None:
        consumes = self._media_types(spot, "consumes")
        whole = next((each for each in parameters if each.held.get("in") == "body"), None)
        if whole is not None:
            media = {"schema": whole.held.get("schema", {})}
            return Body(
                required=whole.held.get("required") is True,
                description=whole.held.get("description"),
                content={each: whole.child(media) for each in consumes},
            )
        fields = [each for each in parameters if each.held.get("in") == "formData"]
        if not fields:
            return None
        schema, encoding = _form_schema(fields)
        forms = [each for each in consumes if "form" in each]
        files = any(each.held.get("type") == "file" for each in fields)
        media_type = "multipart/form-data" if files else "application/x-www-form-urlencoded"
        value = spot.child({"schema": schema, "encoding": encoding})
        chosen = media_type if files else next(iter(forms), media_type)
        return Body(
            required=bool(schema.get("required")), description=None, content={chosen: value}
        )

    def _media_types(self, spot: Spot, key: str) -> list[str]:
        found = spot.held.get(key) or self._root.held.get(key)
        listed = cast("list[object]", found) if isinstance(found, list) else []
        return [each for each in listed if isinstance(each, str)] or ["application/json"]

    def _responses(self, spot: Spot) -> Iterator[tuple[str, Mapping[str, Spot]]]:
        for status, value in spot.get("responses").held.items():
            if not (status.startswith("2") and len(status) == 3):
                continue
            found = self._references.resolve(spot.child(value))
            if self.is_2:
                schema = found.held.get("schema")
                media = {"schema": schema}
                produces = self._media_types(spot, "produces")
                content = {m: found.child(media) for m in produces} if schema else {}
            else:
                held = found.get("content")
                content = {m: held.child(v) for m, v in held.held.items()}
            yield status, content


def _parameter(spot: Spot, name: str, where: str) -> Parameter:
    held = spot.held
    style = held.get("style")
    if not isinstance(style, str):
        style = "form" if where in {"query", "cookie"} else "simple"
    explode = held.get("explode")
    content = spot.get("content").held
    media = next(iter(content), None)
    schema = spot.get("schema")
    if media is not None:
        schema = spot.child(content[media]).get("schema")
    return Parameter(
        name=name,
        where=where,
        required=held.get("required") is True or where == "path",
        description=held.get("description"),
        schema=schema,
        content=media,
        style=style,
        explode=explode if isinstance(explode, bool) else style == "form",
    )


def _form_schema(fields: list[Spot]) -> tuple[JSONObject, JSONObject]:
    properties: JSONObject = {}
    encoding: JSONObject = {}
    required: list[str] = []
    for field in fields:
        held = field.held
        name = str(held.get("name"))
        schema = {k: v for k, v in held.items() if k in {*_SCHEMA_KEYS, "description"}}
        if schema.get("type") == "file":
            schema = {**schema, "type": "string", "format": "binary"}
        properties[name] = schema
        if held.get("required") is True:
            required.append(name)
        if held.get("type") == "array":
            style, explode = _COLLECTIONS.get(
                str(held.get("collectionFormat", "csv")), ("form", False)
            )
            encoding[name] = {"style": style, "explode": explode}
    made: JSONObject = {"type": "object", "properties": properties}
    return ({**made, "required": required} if required else made), encoding
