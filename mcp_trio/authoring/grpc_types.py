"""Messages of protobuf: an index over descriptors, comments, and what one method needs of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import attrs
from google.protobuf import descriptor_pb2

from mcp_trio.authoring.grpc_sources import Files
from mcp_trio.authoring.imports import NotImportableError

Field: TypeAlias = descriptor_pb2.FieldDescriptorProto
Message: TypeAlias = descriptor_pb2.DescriptorProto
Enum: TypeAlias = descriptor_pb2.EnumDescriptorProto
File: TypeAlias = descriptor_pb2.FileDescriptorProto


@attrs.frozen(eq=False)
class Located:
    """A message or an enum, and where it is declared."""

    proto: Message | Enum
    file: File
    path: tuple[int, ...]
    """Its place by field numbers and indexes, as comments are found by."""


class Index:
    """All types of a set of files, by full name with the leading dot."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.types: dict[str, Located] = {}
        self._comments: dict[str, dict[tuple[int, ...], str]] = {}
        for file in files.values():
            scope = f".{file.package}" if file.package else ""
            for number, message in enumerate(file.message_type):
                self._add(message, file, scope, (4, number))
            for number, enum in enumerate(file.enum_type):
                self.types[f"{scope}.{enum.name}"] = Located(enum, file, (5, number))

    def _add(self, message: Message, file: File, scope: str, path: tuple[int, ...]) -> None:
        name = f"{scope}.{message.name}"
        self.types[name] = Located(message, file, path)
        for number, inner in enumerate(message.nested_type):
            self._add(inner, file, name, (*path, 3, number))
        for number, enum in enumerate(message.enum_type):
            self.types[f"{name}.{enum.name}"] = Located(enum, file, (*path, 4, number))

    def message(self, name: str) -> Message:
        """A message by full name.

        Raises:
            NotImportableError: there is none.
        """
        found = self.types.get(name)
        if found is None or not isinstance(found.proto, Message):
            raise NotImportableError(f"the message {name.removeprefix('.')[:200]} is not described")
        return found.proto

    def comment(self, file: File, path: Sequence[int]) -> str:
        """The comment before something; empty if there is none."""
        if file.name not in self._comments:
            self._comments[file.name] = {
                tuple(each.path): each.leading_comments or each.trailing_comments
                for each in file.source_code_info.location
            }
        return self._comments[file.name].get(tuple(path), "")

    def needed(self, *roots: str) -> set[str]:
        """The full names of all types that these messages need.

        Raises:
            NotImportableError: one of them is not described.
        """
        found: set[str] = set()
        waiting = list(roots)
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            found.add(name)
            located = self.types.get(name)
            if located is None:
                raise NotImportableError(
                    f"the type {name.removeprefix('.')[:200]} is not described"
                )
            if isinstance(located.proto, Message):
                waiting += [field.type_name for field in located.proto.field if field.type_name]
        return found


def trimmed(index: Index, service: str, method: str, needed: set[str]) -> bytes:
    """A FileDescriptorSet with one method and the types it needs, and nothing else.

    Comments, options and other services stay behind. Files come before those that use them.
    """
    homes = {name: index.types[name].file.name for name in needed}
    made = descriptor_pb2.FileDescriptorSet()
    written: dict[str, File] = {}
    for file in index.files.values():
        copy = _file(file, service, method, needed)
        if copy is not None:
            uses = {homes[name] for name in _uses(copy)} - {file.name}
            copy.dependency.extend(sorted(uses))
            written[file.name] = copy
    done: set[str] = set()

    def add(name: str) -> None:
        if name not in done:
            done.add(name)
            for each in written[name].dependency:
                add(each)
            made.file.append(written[name])

    for name in sorted(written):
        add(name)
    return made.SerializeToString(deterministic=True)


def _file(file: File, service: str, method: str, needed: set[str]) -> File | None:
    scope = f".{file.package}" if file.package else ""
    copy = File(name=file.name, package=file.package, syntax=file.syntax)
    if file.HasField("edition"):
        copy.edition = file.edition
    if file.options.HasField("features"):
        copy.options.features.CopyFrom(file.options.features)
    for message in file.message_type:
        kept_message = _message(message, scope, needed)
        if kept_message is not None:
            copy.message_type.append(kept_message)
    copy.enum_type.extend(
        _enum(enum) for enum in file.enum_type if f"{scope}.{enum.name}" in needed
    )
    for each in file.service:
        if f"{scope}.{each.name}" == f".{service}":
            kept_service = copy.service.add(name=each.name)
            for rpc in each.method:
                if rpc.name == method:
                    kept = kept_service.method.add()
                    kept.CopyFrom(rpc)
                    kept.ClearField("options")
                    if rpc.options.HasField("idempotency_level"):
                        kept.options.idempotency_level = rpc.options.idempotency_level
    return copy if copy.message_type or copy.enum_type or copy.service else None


def _message(message: Message, scope: str, needed: set[str]) -> Message | None:
    name = f"{scope}.{message.name}"
    copy = Message(name=message.name)
    for inner in message.nested_type:
        kept = _message(inner, name, needed)
        if kept is not None:
            copy.nested_type.append(kept)
    copy.enum_type.extend(
        _enum(enum) for enum in message.enum_type if f"{name}.{enum.name}" in needed
    )
    if name in needed:
        copy.field.extend(_field(field) for field in message.field)
        for oneof in message.oneof_decl:
            copy.oneof_decl.add(name=oneof.name)
        if message.options.map_entry:
            copy.options.map_entry = True
        if message.options.HasField("features"):
            copy.options.features.CopyFrom(message.options.features)
    elif not copy.nested_type and not copy.enum_type:
        return None
    return copy


def _field(field: Field) -> Field:
    copy = Field()
    copy.CopyFrom(field)
    copy.ClearField("options")
    if field.options.HasField("packed"):
        copy.options.packed = field.options.packed
    if field.options.HasField("features"):
        copy.options.features.CopyFrom(field.options.features)
    return copy


def _enum(enum: Enum) -> Enum:
    copy = Enum(name=enum.name)
    for value in enum.value:
        copy.value.add(name=value.name, number=value.number)
    if enum.options.allow_alias:
        copy.options.allow_alias = True
    if enum.options.HasField("features"):
        copy.options.features.CopyFrom(enum.options.features)
    return copy


def _uses(file: File) -> Iterator[str]:
    waiting = list(file.message_type)
    while waiting:
        message = waiting.pop()
        waiting.extend(message.nested_type)
        yield from (field.type_name for field in message.field if field.type_name)
    for service in file.service:
        for method in service.method:
            yield method.input_type
            yield method.output_type
