"""The types of a gRPC method, from the descriptors that an operation carries.

They stand in the view as a base64 `FileDescriptorSet`, as `protoc --include_imports` makes
it. Each set has a pool of its own, so two versions of a type never meet; sets that many
operations share are loaded once.
"""

from __future__ import annotations

import base64
import binascii
import functools
from collections.abc import Mapping
from typing import cast

import attrs
from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    json_format,
    message_factory,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from mcp_trio.catalog.operation import OperationError
from mcp_trio.wire import JSONObject

PLACE = "target.descriptor"
MAX_DEPTH = 100
"""Levels of a message."""
_KNOWN: Mapping[str, bytes] = {
    module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb
    for module in (
        any_pb2,
        api_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        source_context_pb2,
        struct_pb2,
        timestamp_pb2,
        type_pb2,
        wrappers_pb2,
    )
}
"""The types of protobuf itself, for sets that leave them out."""


class UnfitError(Exception):
    """A value that is no message of the type; the text repeats no value."""


@attrs.frozen(kw_only=True, eq=False)
class Method:
    """One method, and the way between its messages and JSON."""

    path: str
    """`/package.Service/Method`."""
    streams: bool
    """Whether it answers with a stream."""
    idempotent: bool
    """Whether its options say that sending twice does no harm."""
    _pool: DescriptorPool = attrs.field(alias="pool")
    _input: Descriptor = attrs.field(alias="input")
    _output: Descriptor = attrs.field(alias="output")

    @property
    def fields(self) -> frozenset[str]:
        """What the request may have, in both spellings of each name."""
        return frozenset(
            name for field in self._input.fields for name in (field.name, field.json_name)
        )

    def encode(self, value: JSONObject) -> bytes:
        """Write a request, from proto JSON.

        Raises:
            UnfitError: it is none.
        """
        message = message_factory.GetMessageClass(self._input)()
        try:
            json_format.ParseDict(
                value, message, descriptor_pool=self._pool, max_recursion_depth=MAX_DEPTH
            )
            return message.SerializeToString()
        except (json_format.ParseError, ValueError, TypeError, RecursionError) as error:
            # Its text repeats values.
            raise UnfitError(f"does not fit the message {self._input.full_name}") from error

    def decode(self, raw: bytes) -> JSONObject:
        """Read an answer, as proto JSON: 64-bit integers and enums as strings, bytes as base64.

        Raises:
            UnfitError: it is none.
        """
        message = message_factory.GetMessageClass(self._output)()
        try:
            message.ParseFromString(raw)
            return cast(
                "JSONObject",
                json_format.MessageToDict(
                    message,
                    descriptor_pool=self._pool,
                    always_print_fields_with_no_presence=True,
                ),
            )
        except (DecodeError, json_format.Error, ValueError, TypeError, RecursionError) as error:
            raise UnfitError(f"is no message {self._output.full_name}") from error


def find_method(descriptor: object, service: str, method: str) -> Method:
    """Find a method.

    Raises:
        OperationError: the descriptors cannot be read, have no such method, or the method takes
            a stream.
    """
    if not isinstance(descriptor, str):
        raise OperationError("must be a FileDescriptorSet in base64", place=PLACE)
    pool = _pool_of(descriptor)
    try:
        found = pool.FindServiceByName(service).methods_by_name[method]
    except KeyError:
        raise OperationError(f"has no method {service[:100]}/{method[:100]}", place=PLACE) from None
    if found.client_streaming:
        raise OperationError("a method that takes a stream cannot be called", place="target.method")
    options = found.GetOptions()
    return Method(
        path=f"/{service}/{method}",
        streams=found.server_streaming,
        idempotent=options.idempotency_level
        != descriptor_pb2.MethodOptions.IdempotencyLevel.IDEMPOTENCY_UNKNOWN,
        pool=pool,
        input=found.input_type,
        output=found.output_type,
    )


@functools.lru_cache(maxsize=64)
def _pool_of(descriptor: str) -> DescriptorPool:
    try:
        raw = base64.b64decode(descriptor, validate=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(raw).file
    except (binascii.Error, ValueError, DecodeError) as error:
        raise OperationError("must be a FileDescriptorSet in base64", place=PLACE) from error
    if not files:
        raise OperationError("is empty", place=PLACE)
    held = {file.name: file for file in files}
    pool = DescriptorPool()
    added: set[str] = set()
    # With an explicit stack: a chain of imports is as long as its author likes.
    waiting = list(held)[::-1]
    while waiting:
        name = waiting[-1]
        file = held.get(name) or _known(name)
        missing = [each for each in file.dependency if each not in added]
        if name in added or not missing:
            waiting.pop()
            _add(pool, file, added)
        elif len(waiting) > len(held) + len(_KNOWN):
            raise OperationError("its files import each other", place=PLACE)
        else:
            waiting += missing
    return pool


def _known(name: str) -> descriptor_pb2.FileDescriptorProto:
    if name not in _KNOWN:
        raise OperationError(f"misses {name[:100]!r}; make it with --include_imports", place=PLACE)
    return descriptor_pb2.FileDescriptorProto.FromString(_KNOWN[name])


def _add(pool: DescriptorPool, file: descriptor_pb2.FileDescriptorProto, added: set[str]) -> None:
    if file.name in added:
        return
    added.add(file.name)
    try:
        pool.Add(file)
    except (TypeError, ValueError) as error:
        raise OperationError(f"{file.name[:100]!r} in it is not sound", place=PLACE) from error
