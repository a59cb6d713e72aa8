"""From a mapped context to one HTTP request, as bytes that cannot mean anything else.

Every value stays in its place: a path value is one segment, a query value one pair, a
header value one line. What cannot be written safely is refused with a MappingError.
Nothing here waits or knows a client.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from typing import cast
from urllib.parse import quote, quote_plus, unquote, urlencode

import attrs
import msgspec

from mcp_trio.catalog.operation import Operation, OperationError
from mcp_trio.runtime.adapters.base import INPUT_NAMES
from mcp_trio.runtime.adapters.http_exchange import HttpRequest, check_identity
from mcp_trio.runtime.adapters.http_headers import (
    NAME,
    check_header,
    check_line,
    from_base64,
    scalar,
)
from mcp_trio.runtime.adapters.rest_multipart import write_multipart
from mcp_trio.runtime.adapters.rest_styles import (
    Style,
    cookie_text,
    defined,
    line_text,
    path_text,
    query_pairs,
)
from mcp_trio.runtime.adapters.xml_tree import check_tree, write_xml
from mcp_trio.runtime.http_connection import HttpConnection
from mcp_trio.runtime.mapping import Mapper, MappingError, compile_mapping
from mcp_trio.runtime.policies import Settings
from mcp_trio.wire import JSONObject

_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")
_COOKIE_VALUE = re.compile(r"[\x21\x23-\x2B\x2D-\x3A\x3C-\x5B\x5D-\x7E]*")
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_CONTENT_TYPE = {
    "json": "application/json",
    "form": "application/x-www-form-urlencoded",
    "multipart": "multipart/form-data",
    "text": "text/plain; charset=utf-8",
    "xml": "application/xml",
    "binary": "application/octet-stream",
}
_ACCEPT_STREAM = "text/event-stream, application/x-ndjson, application/json;q=0.9"
_ACCEPT = {"xml": "application/xml, text/xml, application/json;q=0.5"}
_SECTIONS = ("path", "query", "headers", "cookies")


@attrs.frozen(kw_only=True, eq=False)
class RequestTemplate:
    """A compiled rest target with its input mapping. Immutable."""

    method: str
    path: str
    """With the prefix of the base URL, and `{names}`."""
    content_type: str
    sections: Mapping[str, Mapper]
    """Mappings of path, query, headers and cookies."""
    body: Mapper | None
    accept: str
    """What `Accept` says unless the mapping does."""
    query_names: frozenset[str]
    """The names that the mapping puts into the query."""
    media_type: str | None
    """What `Content-Type` says, if not the usual for the content type."""
    styles: Mapping[str, Mapping[str, Style]]
    """How values are written that are no scalars, by section and name."""
    request_bytes: int
    key_header: str | None
    """The header that carries an idempotency key, the same for all retries of a call."""

    @property
    def reads(self) -> frozenset[tuple[str, str | None]]:
        """What the mappings read of the context."""
        mappers = [*self.sections.values(), *([self.body] if self.body else [])]
        return frozenset[tuple[str, str | None]]().union(*(mapper.names for mapper in mappers))

    def fill(self, context: Mapping[str, object]) -> HttpRequest:
        """Make the request.

        Raises:
            MappingError: a value is missing, of the wrong type, or cannot be encoded.
        """
        made = {
            name: _defined(mapper(context), self._styled(name))
            for name, mapper in self.sections.items()
        }
        target = _fill_path(self.path, made.get("path", {}), self._styled("path"))
        query = _written(made.get("query", {}), "input_mapping.query", self._styled("query"))
        if query:
            target = f"{target}?{query}"
        headers = {"accept": self.accept, "accept-encoding": "identity"}
        for name, value in made.get("headers", {}).items():
            style = self._styled("headers").get(name)
            headers[name.lower()] = _header(value, f"input_mapping.headers.{name}", style)
        cookies = list(_cookies(made.get("cookies", {}), self._styled("cookies")))
        if cookies:
            headers["cookie"] = "; ".join(cookies)
        if self.key_header is not None:
            headers[self.key_header] = str(uuid.uuid4())
        kind, body = ("", b"") if self.body is None else self._write(self.body(context))
        if body:
            headers["content-type"] = kind
        return HttpRequest(method=self.method, target=target, headers=headers, body=body)

    def _styled(self, section: str) -> Mapping[str, Style]:
        return self.styles.get(section, {})

    def _write(self, value: object) -> tuple[str, bytes]:
        """The body, and what `Content-Type` says of it; empty if there is none."""
        place = "input_mapping.body"
        if value is None:
            return "", b""
        kind = self.media_type or _CONTENT_TYPE[self.content_type]
        match self.content_type:
            case "json":
                body = msgspec.json.encode(value)
            case "form":
                styles = self._styled("body")
                fields = _defined(_fields(value, place), styles)
                body = _written(fields, place, styles, form=True).encode()
            case "multipart":
                boundary, body = write_multipart(_fields(value, place), place)
                kind = f"{kind}; boundary={boundary}"
            case "xml":
                try:
                    body = write_xml(value)
                except ValueError as error:
                    raise MappingError(str(error), path=place) from error
            case "binary":
                body = from_base64(value, place)
            case _:
                body = scalar(value, place).encode()
        if len(body) > self.request_bytes:
            raise MappingError(
                f"the request body is larger than {self.request_bytes} bytes", path=place
            )
        return kind, body


def _defined(values: object, styles: Mapping[str, Style]) -> Mapping[str, object]:
    """The values of a section that there are; a styled one is none if nothing is in it."""
    held = cast("Mapping[str, object]", values).items()
    made = {name: defined(value) if name in styles else value for name, value in held}
    return {name: value for name, value in made.items() if value is not None}


def _fields(value: object, place: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise MappingError("a form needs an object", path=place)
    return cast("Mapping[str, object]", value)


def compile_request(
    operation: Operation, connection: HttpConnection, settings: Settings
) -> RequestTemplate:
    """Compile target and input mapping of a rest operation.

    Raises:
        OperationError, MappingError: they do not fit together, or are not supported.
    """
    target = operation.target
    method, path = cast("str", target["method"]), cast("str", target["path"])
    content_type = cast(
        "str", target.get("content_type", "json" if method in _WITH_BODY else "none")
    )
    names = _places(path)
    mapping = operation.input_mapping or _by_name(operation, names, content_type)
    foreign = sorted(mapping.keys() - {*_SECTIONS, "body"})
    if foreign:
        raise OperationError(
            "does not belong to a rest operation", place=f"input_mapping.{foreign[0]}"
        )
    if "body" in mapping and content_type == "none":
        raise OperationError("there is a body, but content_type is none", place="target")
    media_type = cast("str | None", target.get("media_type"))
    if (content_type == "multipart") != (media_type or content_type).startswith("multipart"):
        raise OperationError("does not belong to this content_type", place="target.media_type")
    if content_type == "xml":
        try:
            check_tree(mapping.get("body"))
        except ValueError as error:
            raise OperationError(str(error), place="input_mapping.body") from error
    _check_names(mapping, names, connection)
    check_identity(connection, settings)
    key_header = settings.idempotency_key_header
    if key_header is not None:
        check_header(key_header, connection, "execution_config.idempotency_key_header")
    return RequestTemplate(
        method=method,
        path=connection.path_prefix + path,
        content_type=content_type,
        sections={
            name: compile_mapping(mapping[name], f"input_mapping.{name}", INPUT_NAMES)
            for name in _SECTIONS
            if name in mapping
        },
        body=compile_mapping(mapping["body"], "input_mapping.body", INPUT_NAMES)
        if "body" in mapping
        else None,
        accept=_ACCEPT_STREAM
        if settings.stream_progress
        else _ACCEPT.get(content_type, "application/json"),
        query_names=frozenset(cast("Mapping[str, object]", mapping.get("query", {}))),
        media_type=media_type,
        styles=_styles(operation, mapping),
        request_bytes=settings.request_bytes,
        key_header=key_header.lower() if key_header else None,
    )


def _styles(operation: Operation, mapping: Mapping[str, object]) -> dict[str, dict[str, Style]]:
    held = cast("Mapping[str, Mapping[str, JSONObject]]", operation.target.get("styles", {}))
    for section, named in held.items():
        mapped = cast("Mapping[str, object]", mapping.get(section, {}))
        for name in named:
            if section != "body" and name not in mapped:
                raise OperationError(
                    f"{name[:80]!r} is not in input_mapping.{section}",
                    place=f"target.styles.{section}",
                )
    return {
        section: {name: Style.read(view) for name, view in named.items()}
        for section, named in held.items()
    }


def _places(path: str) -> frozenset[str]:
    rest = _PLACE.sub("x", path)
    if "{" in rest or "}" in rest:
        raise OperationError("has a brace that belongs to no {name}", place="target.path")
    if climbs(rest):
        raise OperationError("has a segment '.' or '..'", place="target.path")
    return frozenset(_PLACE.findall(path))


def _by_name(operation: Operation, names: frozenset[str], content_type: str) -> dict[str, object]:
    """The mapping that an empty one stands for: path names, then body for writes, else query."""
    properties = operation.input_schema.get("properties")
    known = list(cast("Mapping[str, object]", properties)) if isinstance(properties, dict) else []
    section = "query" if content_type == "none" else "body"
    by_name: dict[str, object] = {
        "path": {name: f"=args.{_quoted(name)}" for name in names},
        section: {name: f"=args.{_quoted(name)}" for name in known if name not in names},
    }
    return {name: tree for name, tree in by_name.items() if tree or name == "body"}


def _quoted(name: str) -> str:
    return msgspec.json.encode(name).decode()


def _check_names(
    mapping: Mapping[str, object], names: frozenset[str], connection: HttpConnection
) -> None:
    mapped = cast("Mapping[str, object]", mapping.get("path", {}))
    if "expr" in mapped and "expr" not in names:
        raise OperationError("must be an object of names", place="input_mapping.path")
    for name in sorted(names - mapped.keys()):
        raise OperationError(f"{{{name}}} of target.path is not mapped", place="input_mapping.path")
    for name in sorted(mapped.keys() - names):
        raise OperationError(f"{name[:80]!r} is not in target.path", place="input_mapping.path")
    for section in ("query", "headers", "cookies"):
        if "expr" in cast("Mapping[str, object]", mapping.get(section, {})):
            # Names from data would escape the checks below.
            raise OperationError("must be an object of names", place=f"input_mapping.{section}")
    for name in cast("Mapping[str, object]", mapping.get("headers", {})):
        check_header(name, connection, f"input_mapping.headers.{name[:80]}")
    for name in cast("Mapping[str, object]", mapping.get("cookies", {})):
        if NAME.fullmatch(name) is None:
            raise OperationError("is not the name of a cookie", place="input_mapping.cookies")


def _check_control(text: str, place: str) -> None:
    if any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise MappingError("holds a control character", path=place)


def _fill_path(path: str, values: Mapping[str, object], styles: Mapping[str, Style]) -> str:
    def one(match: re.Match[str]) -> str:
        place = f"input_mapping.path.{match[1]}"
        value = values.get(match[1])
        if value is None:
            raise MappingError("the value of a path segment is missing", path=place)
        style = styles.get(match[1])
        if style is not None:
            text = path_text(style, match[1], value, place)
            _check_control(unquote(text), place)
            if text.strip(".,;") == "":
                raise MappingError("a path segment must not be empty, '.' or '..'", path=place)
            return text
        text = scalar(value, place)
        if not text or is_dots(text):
            raise MappingError("a path segment must not be empty, '.' or '..'", path=place)
        _check_control(text, place)
        return quote(text, safe="")

    filled = _PLACE.sub(one, path)
    # Several names in one segment may add up to dots although each is harmless.
    if any(map(is_dots, filled.split("/"))):
        raise MappingError("a path segment becomes '.' or '..'", path="input_mapping.path")
    return filled


def is_dots(segment: str) -> bool:
    """Tell whether a segment means "here" or "up" to anybody who decodes it, however often.

    Some servers drop what stands behind a semicolon. A slash inside is none of a path: it is
    encoded, and whoever takes `%2F` for a slash does so against RFC 3986, section 2.2.
    """
    return any(each.partition(";")[0] in {".", ".."} for each in _readings(segment))


def climbs(path: str) -> bool:
    """Tell whether a path means "here" or "up" anywhere, to anybody who decodes it, however often.

    For paths that somebody else has written. Servers differ: some decode a slash before they look
    for dots, some take a backslash for one.
    """
    return any(
        is_dots(segment) for reading in _readings(path) for segment in re.split(r"[/\\]", reading)
    )


def _readings(text: str) -> Iterator[str]:
    """A text as it is, and decoded again and again; dots, if that does not end soon."""
    for _ in range(8):
        yield text
        decoded = unquote(text)
        if decoded == text:
            return
        text = decoded
    yield ".."


def _written(
    values: Mapping[str, object],
    place: str,
    styles: Mapping[str, Style],
    *,
    form: bool = False,
) -> str:
    """A query or a form, encoded."""
    parts: list[str] = []
    for name, value in values.items():
        style = styles.get(name)
        if style is not None:
            parts += query_pairs(style, name, value, f"{place}.{name}")
        else:
            pairs = list(_pairs({name: value}, place))
            parts.append(urlencode(pairs, quote_via=quote_plus if form else quote))
    return "&".join(part for part in parts if part)


def _pairs(values: Mapping[str, object], place: str) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        items = cast("list[object]", value) if isinstance(value, list) else [value]
        for item in items:
            if item is None:
                continue
            yield name, scalar(item, f"{place}.{name}")


def _header(value: object, place: str, style: Style | None) -> str:
    text = scalar(value, place) if style is None else line_text(style, value, place)
    return check_line(text, place)


def _cookies(values: Mapping[str, object], styles: Mapping[str, Style]) -> Iterator[str]:
    for name, value in values.items():
        place = f"input_mapping.cookies.{name}"
        text = cookie_text(value, place) if name in styles else scalar(value, place)
        if _COOKIE_VALUE.fullmatch(text) is None:
            raise MappingError(
                "a cookie value must not hold spaces, quotes, commas, semicolons or backslashes",
                path=f"input_mapping.cookies.{name}",
            )
        yield f"{name}={text}"
