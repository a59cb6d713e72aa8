"""Bodies that are no JSON: styles of the fields of a form, parts of multipart, trees of XML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mcp_trio.authoring.imports import NotImportableError, member
from mcp_trio.authoring.openapi.references import References, Spot
from mcp_trio.authoring.openapi.schemas import SchemaWriter, is_binary
from mcp_trio.authoring.values import as_object
from mcp_trio.wire import JSONObject

SCALARS = frozenset({"string", "integer", "number", "boolean", "null"})
_ARRAY = frozenset({"array"})
FORM_STYLES = frozenset({"form", "spaceDelimited", "pipeDelimited", "deepObject"})


class Bodies:
    """Knows the bodies of one description."""

    def __init__(self, references: References, writer: SchemaWriter) -> None:
        self._references = references
        self._writer = writer

    def form_styles(self, media: Spot) -> Iterator[tuple[str, JSONObject]]:
        """How fields of a form that are no scalars are written."""
        encoding = media.get("encoding").held
        schema = self._references.resolve(media.get("schema"))
        for name, value in schema.get("properties").held.items():
            spot = schema.child(value)
            types = self._writer.types(spot)
            if types <= SCALARS:
                continue
            said = as_object(encoding.get(name))
            style = said.get("style")
            if not isinstance(style, str) or style not in FORM_STYLES:
                if types <= SCALARS | {"array"} and self._items(spot) <= SCALARS:
                    continue
                style = "deepObject"
            yield name, {"style": style, "explode": bool(said.get("explode", style == "form"))}

    def multipart(self, media: Spot, body: str) -> object:
        """The mapping of a body of parts; `body` is the expression that reads the argument."""
        schema = self._references.resolve(media.get("schema"))
        properties = schema.get("properties").held
        if not properties:
            return f"={body}"
        return {
            name: self._part(schema.child(value), member(body, name))
            for name, value in properties.items()
        }

    def _part(self, spot: Spot, field: str) -> str:
        resolved = self._references.resolve(spot)
        if is_binary(resolved.held):
            # What is not given is null and stays it, and null is left out.
            return f"={field}.{{file: @}}"
        types = self._writer.types(resolved)
        items = self._references.resolve(resolved.get("items"))
        if types == _ARRAY and is_binary(items.held):
            return f"={field}[*].{{file: @}}"
        if types <= SCALARS or (types == _ARRAY and self._items(resolved) <= SCALARS):
            return f"={field}"
        return f"={field}.{{json: @}}"

    def xml(self, media: Spot, body: str) -> object:
        """The mapping of a tree.

        Raises:
            NotImportableError: its elements are not named as its properties are.
        """
        given = media.get("schema")
        schema = self._references.resolve(given)
        root = as_object(schema.held.get("xml")).get("name")
        if not isinstance(root, str):
            root = schema.fragment.rpartition("/")[2]
        if not root or not root.replace("_", "a").replace("-", "a").isalnum() or root[0].isdigit():
            raise NotImportableError("its XML has no root element with a name")
        self._check_names(schema)
        return {root: f"={body}"}

    def _check_names(self, schema: Spot) -> None:
        """Make sure that a tree of properties is a tree of elements."""
        waiting = [(schema, 0)]
        while waiting:
            spot, level = waiting.pop()
            for name, value in spot.get("properties").held.items():
                inner = self._references.resolve(spot.child(value))
                said: Mapping[str, object] = as_object(inner.held.get("xml"))
                items = self._references.resolve(inner.get("items"))
                named = as_object(items.held.get("xml")).get("name", name)
                if said.get("attribute") or said.get("wrapped") or named != name:
                    raise NotImportableError(f"its XML writes {name!r} in a way of its own")
                if said.get("name", name) != name or said.get("prefix") or said.get("namespace"):
                    raise NotImportableError(f"its XML calls {name!r} otherwise")
                if level < 4:
                    waiting += [(inner, level + 1), (items, level + 1)]

    def _items(self, spot: Spot) -> frozenset[str]:
        return self._writer.types(self._references.resolve(spot).get("items"))
