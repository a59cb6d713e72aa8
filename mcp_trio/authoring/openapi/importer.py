"""From a description to views: which operations, under which names, and what they answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import cast
from urllib.parse import urljoin, urlsplit

import attrs

from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.authoring.fetching import Library, is_address
from mcp_trio.authoring.filters import Filters
from mcp_trio.authoring.imports import (
    Imported,
    ImportOptions,
    Left,
    Names,
    NotImportableError,
    identity,
    shortened,
    snake,
    words,
)
from mcp_trio.authoring.openapi.parts import Part, Reader
from mcp_trio.authoring.openapi.references import References, Spot
from mcp_trio.authoring.openapi.requests import Request, Requests
from mcp_trio.authoring.openapi.schemas import SchemaWriter
from mcp_trio.authoring.values import as_object
from mcp_trio.network_guard import NO_ADDRESS, Guard, is_loopback
from mcp_trio.wire import JSONObject

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_JSON = re.compile(r"(?i)(application|text)/([\w.-]+\+)?json|\*/\*|application/\*")


@attrs.frozen(kw_only=True)
class Options(ImportOptions):
    """What to import, by `tag=`, `path=`, `method=` and `id=`."""


def import_openapi(library: Library, options: Options) -> Imported:
    """Import a description.

    Raises:
        AuthoringError: it cannot be read, or is no OpenAPI.
    """
    root = Spot(library.document(library.root).value, library.root)
    version = str(root.held.get("openapi", root.held.get("swagger", "")))
    if not version.startswith(("2.0", "3.0", "3.1")):
        raise AuthoringError(
            f"{library.root}: is not OpenAPI 2.0, 3.0 or 3.1"
            + (f" but {version[:20]}" if version else "")
        )
    return _Import(library, root, options).run()


class _Import:
    """One import; lives as long as `import_openapi` runs."""

    def __init__(self, library: Library, root: Spot, options: Options) -> None:
        self._root = root
        self._library = library
        self._options = options
        self._references = References(library)
        self._reader = Reader(self._references, root)
        self._writer = SchemaWriter(self._references, options.schema_bytes)
        self._schemes = self._security_schemes()
        credentials = {
            (str(scheme.get("in")), str(scheme.get("name", "")).lower())
            for scheme in self._schemes.values()
            if scheme.get("type") == "apiKey"
        }
        self._requests = Requests(self._references, self._writer, credentials)
        self._filters = Filters(options.include, options.exclude)
        self._filters.check(("tag", "path", "method", "id"))
        self._names = Names(options.prefix)
        self._ids: dict[str, int] = {}
        title = words(root.get("info").held.get("title"))
        self._connection = options.connection or snake(title)[:40].rstrip("_") or "api"
        self._hosts: dict[str, str] = {}
        """Base URL by name of connection, as the description has it."""

    def run(self) -> Imported:
        made = Imported()
        self._hosts[self._connection] = self._base_url(self._root.get("servers"))
        if not isinstance(self._root.held.get("paths", {}), dict):
            made.refused.append(Left("paths", "what stands there is no object"))
        for path, item in self._reader.paths():
            try:
                for key, reason in self._reader.strangers(item):
                    made.refused.append(Left(f"{key} {path}".lstrip(), reason))
                for method, resolved, spot in self._reader.operations(item):
                    make = partial(self._view_if_wanted, method, path, resolved, spot)
                    made.take(f"{method.upper()} {path}", make)
            except NotImportableError as error:
                made.refused.append(Left(path, str(error)))
        made.refused += [
            Left(f"webhook {name}", "the API calls it, and an operation calls the API")
            for name in self._reader.webhooks()
        ]
        made.keep_sound()
        made.settings = self._settings(made.views)
        made.notes += self._inside(made.views)
        return made

    def _view_if_wanted(
        self, method: str, path: str, item: Spot, spot: Spot
    ) -> tuple[JSONObject, list[str]] | None:
        # Not by the book, but descriptions of many files have whole operations elsewhere.
        spot = self._references.resolve(spot)
        if not self._is_wanted(method, path, spot):
            return None
        return self._view(self._reader.part(method, path, item, spot))

    def _is_wanted(self, method: str, path: str, spot: Spot) -> bool:
        return self._filters.wants(
            {
                "tag": [str(each.value) for each in spot.get("tags").items],
                "path": [path],
                "method": [method],
                "id": [str(spot.held.get("operationId", ""))],
            }
        )

    # -- what ----------------------------------------------------------------------

    def _view(self, part: Part) -> tuple[JSONObject, list[str]]:
        request, arguments = self._requests.make(part)
        notes = list(request.notes)
        schema = self._writer.write(self._root.child(arguments), for_input=True)
        if schema.levels is not None:
            notes.append(
                f"input_schema is told down to {schema.levels} levels; the upstream judges the rest"
            )
        output = self._output_schema(part, notes)
        operation_id = str(part.spot.held.get("operationId") or "")
        plain = f"{part.method} {part.path}"
        name, told = self._names.make(operation_id or plain, plain)
        if told is not None:
            notes.append(told)
        return {
            "operation_id": identity(
                self._ids, self._connection, operation_id or f"{part.method}{part.path}"
            ),
            "name": name,
            "protocol": "rest",
            "target": request.target(self._connection_of(part), part.method),
            "input_schema": _input_schema(schema.schema),
            "output_schema": output,
            "input_mapping": _input_mapping(request),
            "output_mapping": {},
            "execution_config": _execution(part, output),
            "tool_description": _description(part),
        }, notes

    def _output_schema(self, part: Part, notes: list[str]) -> JSONObject | None:
        if not self._options.output_schemas:
            return None
        schemas: list[JSONObject] = []
        for content in part.responses.values():
            media = next((each for each in content if _JSON.match(each)), None)
            if media is None:
                # An answer without JSON may come: nothing can be promised.
                return None
            schema = content[media].get("schema")
            anchored = self._references.anchored(schema)
            if anchored and anchored not in schemas:
                schemas.append(anchored)
        if not schemas:
            return None
        whole: JSONObject = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        written = self._writer.write(self._root.child(whole), for_input=False)
        if written.levels is not None:
            notes.append(f"output_schema is told down to {written.levels} levels")
        return written.schema if written.schema.keys() - {"description"} else None

    # -- where ---------------------------------------------------------------------

    def _connection_of(self, part: Part) -> str:
        """The connection of an operation: one of its own where its servers differ."""
        if part.servers is None:
            return self._connection
        url = self._base_url(part.servers)
        for name, known in self._hosts.items():
            if known == url:
                return name
        host = _host(url) or "other"
        name = f"{self._connection}_{snake(host.split('.')[0]) or 'other'}"
        found, number = name, 2
        while found in self._hosts:
            found, number = f"{name}_{number}", number + 1
        self._hosts[found] = url
        return found

    def _base_url(self, servers: Spot) -> str:
        if self._reader.is_2:
            return self._base_url_2()
        for server in servers.items:
            url = server.held.get("url")
            if isinstance(url, str):
                for name, variable in server.get("variables").held.items():
                    default = cast("JSONObject", variable).get("default", "")
                    url = url.replace(f"{{{name}}}", str(default))
                return urljoin(self._root.address, url) if is_address(self._root.address) else url
        return ""

    def _base_url_2(self) -> str:
        held = self._root.held
        host = held.get("host")
        if not isinstance(host, str):
            host = urlsplit(self._root.address).netloc
        base = str(held.get("basePath") or "")
        if not host:
            return base.rstrip("/")
        schemes = [str(each.value) for each in self._root.get("schemes").items]
        scheme = "https" if "https" in schemes or not schemes else schemes[0]
        return f"{scheme}://{host}{base}".rstrip("/")

    def _security_schemes(self) -> dict[str, JSONObject]:
        place = self._root.get("securityDefinitions")
        if not self._reader.is_2:
            place = self._root.get("components").get("securitySchemes")
        found: dict[str, JSONObject] = {}
        for name, value in place.held.items():
            try:
                found[name] = self._references.resolve(place.child(value)).held
            except NotImportableError:
                continue
        return found

    def _settings(self, views: Sequence[JSONObject]) -> str:
        """TOML for the connections that are used. Nothing of it enters a view."""
        used = _connections(views)
        lines: list[str] = []
        for name, url in self._hosts.items():
            if name in used:
                base = url if is_address(url) else f"https://HOST{url}"
                lines += [f"[connections.{name}]", f'base_url = "{_toml(base)}"']
                # A variable for each: what one host may know is no other's business.
                auth = self._suggested_auth(name)
                lines += ["", f"[connections.{name}.auth]", *auth] if auth else []
                lines.append("")
        return "\n".join(lines).rstrip()

    def _inside(self, views: Sequence[JSONObject]) -> Iterator[Left]:
        """Tell of suggested addresses that a service would not reach by a name.

        Written into settings an address is meant, and it gets a secret; here only the
        description says so, and it may be anybody's.
        """
        own = _host(self._root.address)
        named = [(f"connection {name}", self._hosts[name]) for name in sorted(_connections(views))]
        flows = [_client_flow(scheme) for scheme in self._schemes.values()]
        named += [("token_url", str(flow["tokenUrl"])) for flow in flows if flow]
        for what, url in named:
            host = _host(url)
            if host is None or host == own:
                continue
            why = Guard(host=None).refusal(host, host)
            if is_loopback(host):
                why = "this machine"
            if why is not None and why != NO_ADDRESS:
                yield Left(what, f"its server {host[:80]} is {why}; is it meant?")

    def _wanted_schemes(self) -> Iterator[JSONObject]:
        """The schemes, those first that the whole description demands."""
        demanded = [
            name for each in self._root.get("security").items for name in each.held if each.held
        ]
        for name in dict.fromkeys([*demanded, *self._schemes]):
            if name in self._schemes:
                yield self._schemes[name]

    def _suggested_auth(self, connection: str) -> list[str]:
        variable = f"{snake(connection).upper()}_SECRET"
        for scheme in self._wanted_schemes():
            match scheme:
                case {"type": "http", "scheme": str(kind)} if kind.lower() == "basic":
                    return ['kind = "basic"', 'username = "NAME"', f'secret_env = "{variable}"']
                case {"type": "basic"}:
                    return ['kind = "basic"', 'username = "NAME"', f'secret_env = "{variable}"']
                case {"type": "oauth2"} if flow := _client_flow(scheme):
                    scopes = ", ".join(f'"{_toml(each)}"' for each in as_object(flow.get("scopes")))
                    return [
                        'kind = "client_credentials"',
                        f'token_url = "{_toml(str(flow["tokenUrl"]))}"',
                        'client_id = "NAME"',
                        f"scopes = [{scopes}]",
                        f'secret_env = "{variable}"',
                    ]
                case {"type": "http" | "oauth2" | "openIdConnect"}:
                    return ['kind = "bearer"', f'secret_env = "{variable}"']
                case {"type": "apiKey", "in": "header", "name": str(name)}:
                    if name.lower() == "authorization":
                        return ['kind = "bearer"', f'secret_env = "{variable}"']
                    header = f'header = "{_toml(name)}"'
                    return ['kind = "header"', header, f'secret_env = "{variable}"']
                case {"type": "apiKey", "in": "query", "name": str(name)}:
                    parameter = f'parameter = "{_toml(name)}"'
                    return ['kind = "query"', parameter, f'secret_env = "{variable}"']
                case _:
                    continue
        return []


def _client_flow(scheme: JSONObject) -> JSONObject:
    """The flow by which a program gets a token of its own; empty if there is none."""
    # 2.0 has one flow, and its parts beside it.
    flow = as_object(as_object(scheme.get("flows")).get("clientCredentials"))
    if scheme.get("flow") == "application":
        flow = scheme
    return flow if is_address(str(flow.get("tokenUrl", ""))) else {}


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _connections(views: Sequence[JSONObject]) -> set[str]:
    return {str(cast("JSONObject", view["target"])["connection"]) for view in views}


def _toml(text: str) -> str:
    return re.sub(r'[\x00-\x1f\x7f"\\]', "", text)[:500]


def _input_schema(schema: JSONObject) -> JSONObject:
    if schema.get("type") != "object":
        raise NotImportableError("its arguments take more room than a schema may have")
    return schema


def _input_mapping(request: Request) -> JSONObject:
    return request.input_mapping()


def _execution(part: Part, output: JSONObject | None) -> JSONObject:
    made: JSONObject = {}
    if part.method in {"PUT", "DELETE"}:
        made["idempotent"] = True
    if output is not None:
        # Descriptions promise more than upstreams keep; a mismatch is told with the result.
        made["output_validation"] = "warn"
    return made


def _description(part: Part) -> JSONObject:
    held = part.spot.held
    summary, text = words(held.get("summary")), words(held.get("description"))
    if summary and text and not text.lower().startswith(summary.lower().rstrip(".")):
        text = f"{summary.rstrip('.')}. {text}"
    text = text or summary or f"{part.method} {part.path}"
    if held.get("deprecated") is True:
        text = f"Deprecated. {text}"
    made: JSONObject = {"text": shortened(text), "annotations": dict(_annotations(part.method))}
    if summary:
        made["title"] = shortened(summary, 120)
    tags = [tag for each in part.spot.get("tags").items if (tag := words(each.value))]
    if tags:
        made["tags"] = tags
    return made


def _annotations(method: str) -> Iterator[tuple[str, bool]]:
    yield "readOnlyHint", method in _SAFE
    if method == "DELETE":
        yield "destructiveHint", True
    if method in {"PUT", "DELETE"}:
        yield "idempotentHint", True
