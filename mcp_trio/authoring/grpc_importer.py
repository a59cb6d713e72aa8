"""From services of protobuf to views: one operation for each unary or server-streaming method."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import partial

import attrs
from google.protobuf import descriptor_pb2, descriptor_pool

from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.authoring.filters import Filters
from mcp_trio.authoring.grpc_schemas import MessageWriter
from mcp_trio.authoring.grpc_sources import load_files
from mcp_trio.authoring.grpc_types import File, Index, trimmed
from mcp_trio.authoring.imports import (
    Imported,
    ImportOptions,
    Names,
    NotImportableError,
    identity,
    shortened,
    snake,
    words,
)
from mcp_trio.wire import JSONObject

MAX_DESCRIPTOR = 512 << 10
"""Bytes of the descriptor of one operation."""
_SIDE_EFFECTS = descriptor_pb2.MethodOptions.IDEMPOTENCY_UNKNOWN
_NONE = descriptor_pb2.MethodOptions.NO_SIDE_EFFECTS
_Method = descriptor_pb2.MethodDescriptorProto


@attrs.frozen(kw_only=True)
class Options(ImportOptions):
    """What to import, by `service=` and `method=`."""

    proto_path: Sequence[str] = ()
    """Folders that imports of .proto files are looked for in."""


def import_grpc(
    places: Sequence[str], options: Options, metadata: Mapping[str, str] | None = None
) -> Imported:
    """Import services.

    Raises:
        AuthoringError: they cannot be had.
    """
    return _Import(Index(load_files(places, options.proto_path, metadata)), places, options).run()


class _Import:
    """One import; lives as long as `import_grpc` runs."""

    def __init__(self, index: Index, places: Sequence[str], options: Options) -> None:
        self._index = index
        self._places = places
        self._options = options
        self._filters = Filters(options.include, options.exclude)
        self._filters.check(("service", "method"))
        self._names = Names(options.prefix)
        self._ids: dict[str, int] = {}
        packages = [file.package for file in index.files.values() if file.service]
        if not packages:
            raise AuthoringError(f"{places[0]}: has no services")
        self._connection = options.connection or snake(packages[0])[:40].rstrip("_") or "grpc"

    def run(self) -> Imported:
        made = Imported()
        for file in self._index.files.values():
            for number, service in enumerate(file.service):
                full = f"{file.package}.{service.name}" if file.package else service.name
                for position, method in enumerate(service.method):
                    place = (6, number, 2, position)
                    make = partial(self._view, file, full, method, place)
                    made.take(f"{full}/{method.name}", make)
        made.keep_sound()
        made.settings = self._settings()
        return made

    def _view(
        self, file: File, service: str, method: _Method, place: Sequence[int]
    ) -> tuple[JSONObject, list[str]] | None:
        if not self._filters.wants({"service": [service], "method": [method.name]}):
            return None
        if method.client_streaming:
            raise NotImportableError("it takes a stream of messages, and a call has one")
        needed = self._index.needed(method.input_type, method.output_type)
        descriptor = trimmed(self._index, service, method.name, needed)
        _check(descriptor, service)
        notes: list[str] = []
        arguments = self._schema(method.input_type, notes, for_input=True)
        if arguments.get("type") != "object":
            raise NotImportableError("its request is no object in JSON")
        short = service.rpartition(".")[2]
        name, told = self._names.make(f"{short} {method.name}", f"{service} {method.name}")
        if told is not None:
            notes.append(told)
        config: JSONObject = {"output_validation": "warn"}
        if method.options.idempotency_level != _SIDE_EFFECTS:
            config["idempotent"] = True
        return {
            "operation_id": identity(self._ids, self._connection, f"{service}/{method.name}"),
            "name": name,
            "protocol": "grpc",
            "target": {
                "connection": self._connection,
                "service": service,
                "method": method.name,
                "descriptor": base64.b64encode(descriptor).decode("ascii"),
            },
            "input_schema": arguments,
            "output_schema": self._output_schema(method, notes),
            "input_mapping": {"message": "=args"},
            "output_mapping": {},
            "execution_config": config,
            "tool_description": self._description(file, method, short, place),
        }, notes

    def _output_schema(self, method: _Method, notes: list[str]) -> JSONObject | None:
        if not self._options.output_schemas:
            return None
        schema = self._schema(method.output_type, notes, for_input=False)
        if not method.server_streaming:
            return schema
        definitions = schema.pop("$defs", None)
        made: JSONObject = {"type": "array", "items": schema}
        return {**made, "$defs": definitions} if definitions else made

    def _schema(self, name: str, notes: list[str], *, for_input: bool) -> JSONObject:
        writer = MessageWriter(self._index, self._options.schema_bytes, for_input=for_input)
        made = writer.write(name)
        if writer.cut:
            which = "input_schema" if for_input else "output_schema"
            notes.append(f"{which} leaves some messages open")
        return made

    def _description(
        self, file: File, method: _Method, service: str, place: Sequence[int]
    ) -> JSONObject:
        text = " ".join(words(self._index.comment(file, place)).split())
        text = text or f"{' '.join(snake(method.name).split('_')).capitalize()} of {service}."
        if method.options.deprecated:
            text = f"Deprecated. {text}"
        annotations: JSONObject = {}
        if method.options.idempotency_level == _NONE:
            annotations["readOnlyHint"] = True
        elif method.options.idempotency_level != _SIDE_EFFECTS:
            annotations["idempotentHint"] = True
        made: JSONObject = {"text": shortened(text), "tags": [service]}
        return {**made, "annotations": annotations} if annotations else made

    def _settings(self) -> str:
        scheme, mark, address = self._places[0].partition("://")
        tls = scheme != "grpc" if mark else True
        lines = [
            f"[connections.{self._connection}]",
            'kind = "grpc"',
            f'address = "{address if mark else "HOST:443"}"',
        ]
        return "\n".join([*lines, *([] if tls else ["tls = false"])])


def _check(descriptor: bytes, service: str) -> None:
    """Make sure that what is carried stands by itself."""
    if len(descriptor) > MAX_DESCRIPTOR:
        raise NotImportableError(f"its descriptor is larger than {MAX_DESCRIPTOR >> 10} KiB")
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor).file:
            pool.Add(file)
        pool.FindServiceByName(service)
    except (TypeError, KeyError) as error:
        raise NotImportableError(f"its descriptor does not stand by itself: {error}") from error
