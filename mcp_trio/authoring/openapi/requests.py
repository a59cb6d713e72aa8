"""The request side of an imported operation: arguments, mapping, and how each is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast
from urllib.parse import parse_qsl, quote

import attrs

from mcp_trio.authoring.imports import (
    NotImportableError,
    argument,
    argument_name,
    shortened,
    words,
)
from mcp_trio.authoring.openapi.bodies import FORM_STYLES, SCALARS, Bodies
from mcp_trio.authoring.openapi.parts import Body, Parameter, Part
from mcp_trio.authoring.openapi.references import References, Spot
from mcp_trio.authoring.openapi.schemas import SchemaWriter, is_binary
from mcp_trio.catalog.operation import MEDIA_TYPE
from mcp_trio.runtime.adapters.http_bodies import is_binary as is_bytes
from mcp_trio.runtime.adapters.http_headers import PROTECTED_HEADERS
from mcp_trio.wire import JSONObject

_PLACE = re.compile(r"\{([^{}]*)\}")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_SECTIONS = {"path": "path", "query": "query", "header": "headers", "cookie": "cookies"}
_STYLES = {
    "path": {"simple", "label", "matrix"},
    "query": FORM_STYLES,
    "header": {"simple"},
    "cookie": {"form"},
}
_NOT_OURS = frozenset({"accept", "content-type", "authorization", *PROTECTED_HEADERS})
"""Headers that OpenAPI or the connection takes care of."""
_CREDENTIAL = re.compile(
    r"(?i)(authenticat|authoriz|access|bearer|api)\w*[ _-]?(token|key)\b|^api_?key$"
)
_CREDENTIAL_NAMES = frozenset(
    {"access_token", "api_key", "apikey", "api-key", "x-api-key", "token", "key", "auth"}
)


@attrs.define(kw_only=True)
class Request:
    """What is known of the request so far."""

    path: str
    properties: JSONObject = attrs.field(factory=dict[str, object])
    required: list[str] = attrs.field(factory=list[str])
    mapping: dict[str, JSONObject] = attrs.field(factory=dict[str, "JSONObject"])
    body: object = None
    """The mapping of the body; None for none."""
    content_type: str = "none"
    media_type: str | None = None
    styles: JSONObject = attrs.field(factory=dict[str, object])
    notes: list[str] = attrs.field(factory=list[str])

    def input_mapping(self) -> JSONObject:
        """All sections."""
        made: JSONObject = dict(self.mapping)
        if self.body is not None:
            made["body"] = self.body
        return made or {"query": {}}

    def target(self, connection: str, method: str) -> JSONObject:
        """The target of the view."""
        made: JSONObject = {"connection": connection, "method": method, "path": self.path}
        made["content_type"] = self.content_type
        if self.media_type is not None:
            made["media_type"] = self.media_type
        if self.styles:
            made["styles"] = dict(self.styles)
        return made


class Requests:
    """Makes the requests of one description."""

    def __init__(
        self, references: References, writer: SchemaWriter, credentials: set[tuple[str, str]]
    ) -> None:
        self._references = references
        self._writer = writer
        self._bodies = Bodies(references, writer)
        self._credentials = credentials
        """Where and under which names security schemes have their secrets."""

    def make(self, part: Part) -> tuple[Request, JSONObject]:
        """Make the request of an operation, and the schema that its arguments are taken from.

        The second is a description of one object, as OpenAPI has it, still with references.

        Raises:
            NotImportableError: it cannot be sent, or not as described.
        """
        request = Request(path=part.path)
        names = self._place_names(request, part)
        for parameter in part.parameters:
            self._parameter(request, part, parameter, names)
        for name, place in names.items():
            if place not in request.mapping.get("path", {}):
                self._argument(request, "path", place, place, {"type": "string"})
                request.required.append(place)
                request.notes.append(f"{{{name}}} of the path is not described; it takes a text")
        if part.body is not None:
            self._body(request, part.body)
        schema: JSONObject = {
            "type": "object",
            "properties": request.properties,
            "required": request.required,
            "additionalProperties": False,
        }
        return request, schema

    def _place_names(self, request: Request, part: Part) -> dict[str, str]:
        """What each `{name}` of the path is called in the target."""
        names: dict[str, str] = {}
        # Some descriptions tell operations of one path apart by what is never sent.
        whole, hash_mark, _ = part.path.partition("#")
        path, question_mark, query = whole.partition("?")
        if hash_mark:
            request.notes.append("the fragment of its path is left out; none is ever sent")
        if question_mark:
            pairs = parse_qsl(query, keep_blank_values=True)
            request.mapping["query"] = {
                name: f"={value}" if value.startswith("=") else value for name, value in pairs
            }
        for name in _PLACE.findall(path):
            plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
            if not _PLAIN.fullmatch(plain):
                plain = f"p_{plain}"
            names[name] = argument_name(plain, set(names.values()) - {names.get(name)})
        request.path = _PLACE.sub(lambda match: f"{{{names[match[1]]}}}", path)
        request.path = quote(request.path, safe="/{}:@!$&'()*+,;=~%")
        if not request.path.startswith("/"):
            request.path = f"/{request.path}"
        return names

    def _parameter(
        self, request: Request, part: Part, parameter: Parameter, names: Mapping[str, str]
    ) -> None:
        try:
            self._take(request, part, parameter, names)
        except NotImportableError as error:
            if parameter.required:
                raise
            request.notes.append(
                f"the {parameter.where} parameter {parameter.name} is left out: {error}"
            )

    def _take(
        self, request: Request, part: Part, parameter: Parameter, names: Mapping[str, str]
    ) -> None:
        name, where = parameter.name, parameter.where
        if self._is_credential(part, parameter):
            request.notes.append(
                f"the {where} parameter {name} is left out: the connection proves who asks"
            )
            return
        if where == "header" and name.lower() in _NOT_OURS:
            if name.lower() not in {"accept", "content-type", "authorization"}:
                raise NotImportableError(f"the header {name} is not for an operation to set")
            return
        if where == "path" and name not in names:
            request.notes.append(
                f"the path parameter {name} is left out: the path has no {{{name}}}"
            )
            return
        section = _SECTIONS[where]
        key = names[name] if where == "path" else name
        if key == "expr":
            raise NotImportableError("a mapping cannot set the name 'expr'")
        style = self._style(parameter)
        if style is not None and style["style"] == "matrix" and key != name:
            raise NotImportableError(f"the name {name} cannot stand in a path of style matrix")
        schema = self._references.anchored(parameter.schema)
        leaf = self._argument(
            request, section, key, name, self._described(parameter.description, schema)
        )
        if parameter.content is not None:
            request.mapping[section][key] = {"expr": leaf, "as": "json"}
        elif style is not None:
            named = cast("JSONObject", request.styles.setdefault(section, {}))
            named[key] = style
        if parameter.required:
            request.required.append(list(request.properties)[-1])

    def _described(self, description: object, schema: JSONObject) -> JSONObject:
        text = shortened(words(description), 300)
        if not text:
            return schema
        if "$ref" in schema:
            # Beside a reference nothing is read; behind a list of one it is.
            return {"allOf": [schema], "description": text}
        return {**schema, "description": text}

    def _argument(
        self, request: Request, section: str, key: str, wish: str, schema: JSONObject
    ) -> str:
        """Add an argument; give the expression that reads it."""
        name = argument_name(wish, set(request.properties))
        request.properties[name] = schema
        leaf = argument(name)
        request.mapping.setdefault(section, {})[key] = f"={leaf}"
        return leaf

    def _is_credential(self, part: Part, parameter: Parameter) -> bool:
        if (parameter.where, parameter.name.lower()) in self._credentials:
            return True
        if not part.security or parameter.where == "path":
            return False
        named = parameter.name.lower() in _CREDENTIAL_NAMES
        return named and bool(_CREDENTIAL.search(f"{words(parameter.description)}"))

    def _style(self, parameter: Parameter) -> JSONObject | None:
        """How the value is written; None for the way everything is written."""
        if parameter.content is not None:
            if "json" not in parameter.content:
                raise NotImportableError(f"its value is {parameter.content}")
            return None
        if parameter.style not in _STYLES[parameter.where]:
            raise NotImportableError(f"the style {parameter.style[:40]} is not known")
        types = self._writer.types(parameter.schema)
        if parameter.style in {"label", "matrix"}:
            return {"style": parameter.style, "explode": parameter.explode}
        if types <= SCALARS:
            return None
        if parameter.unknown_collection:
            raise NotImportableError("its items are joined in a way that OpenAPI 3 does not have")
        if parameter.where == "cookie" and parameter.explode:
            raise NotImportableError("an array or object becomes several cookies")
        if types <= SCALARS | {"array"} and (
            parameter.where,
            parameter.style,
            parameter.explode,
        ) == (
            "query",
            "form",
            True,
        ):
            return None
        return {"style": parameter.style, "explode": parameter.explode}

    def _body(self, request: Request, body: Body) -> None:
        chosen = self._chosen(body.content)
        if chosen is None:
            offered = ", ".join(body.content)[:200] or "nothing"
            if body.required:
                raise NotImportableError(f"its body may be {offered} only")
            request.notes.append(f"the body is left out: it may be {offered} only")
            return
        media, content_type = chosen
        spot = body.content[media]
        request.content_type = content_type
        plain = _plain(media)
        if plain not in _USUAL and "*" not in plain:
            request.media_type = plain
        schema: JSONObject = self._references.anchored(spot.get("schema"))
        if content_type == "binary":
            # Whatever is said of it, it is bytes.
            schema = {"type": "string", "format": "binary"}
        name = argument_name("body", set(request.properties))
        request.properties[name] = self._described(body.description, schema)
        if body.required:
            request.required.append(name)
        request.body = self._body_mapping(request, spot, argument(name))

    def _chosen(self, content: Mapping[str, Spot]) -> tuple[str, str] | None:
        """The media type to send, and the content type of the target that it means."""
        for content_type, pattern in _CONTENT_TYPES:
            for media in content:
                if pattern.fullmatch(_plain(media)):
                    return media, content_type
        for media, spot in content.items():
            schema = self._references.resolve(spot.get("schema")).held
            plain = _plain(media)
            if MEDIA_TYPE.fullmatch(plain) and (is_bytes(plain) or is_binary(schema)):
                return media, "binary"
        return None

    def _body_mapping(self, request: Request, media: Spot, body: str) -> object:
        match request.content_type:
            case "multipart":
                return self._bodies.multipart(media, body)
            case "xml":
                return self._bodies.xml(media, body)
            case "form":
                styles = dict(self._bodies.form_styles(media))
                if styles:
                    request.styles["body"] = styles
                return f"={body}"
            case _:
                return f"={body}"


def _plain(media: str) -> str:
    return media.partition(";")[0].strip().lower()


_CONTENT_TYPES = (
    ("json", re.compile(r"(application|text)/json|[a-z0-9.-]+/[a-z0-9._-]+\+json")),
    ("form", re.compile(r"application/x-www-form-urlencoded")),
    ("multipart", re.compile(r"multipart/form-data")),
    ("text", re.compile(r"text/plain")),
    ("xml", re.compile(r"(application|text)/xml|[a-z0-9.-]+/[a-z0-9._-]+\+xml")),
    ("text", re.compile(r"text/[a-z0-9._+-]+")),
    ("json", re.compile(r"\*/\*|application/\*")),
)
"""What can be sent, the best first; bytes are the last of all."""
_USUAL = frozenset(
    {
        "application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "text/plain",
        "application/xml",
        "application/octet-stream",
    }
)
"""What needs no media type of its own."""
