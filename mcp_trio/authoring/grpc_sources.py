"""Where descriptors of services come from: a descriptor set, .proto files, or a running server.

Whatever it is, what comes out is a set of file descriptors that refer to each other only.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from mcp_trio.authoring.documents import read_bounded
from mcp_trio.authoring.faults import AuthoringError

TIMEOUT = 30.0
"""Seconds that asking a server may take."""
MAX_FILES = 5_000
"""Files of one description."""
_SCHEMES = {"grpc": False, "grpcs": True}
"""Whether each is with TLS."""
_REFLECTION = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")

Files = Mapping[str, descriptor_pb2.FileDescriptorProto]
"""File descriptors by name."""


def load_files(
    places: Sequence[str], includes: Sequence[str] = (), metadata: Mapping[str, str] | None = None
) -> Files:
    """Load descriptors.

    Args:
        places: one descriptor set, one address as `grpc://host:port`, or .proto files.
        includes: folders that imports of .proto files are looked for in.
        metadata: sent to a server.

    Raises:
        AuthoringError: they cannot be had.
    """
    first = places[0]
    scheme, mark, address = first.partition("://")
    if mark:
        if scheme not in _SCHEMES or len(places) > 1:
            raise AuthoringError(f"{first}: give grpc://HOST:PORT, or grpcs:// with TLS, alone")
        return _reflected(address, metadata or {}, tls=_SCHEMES[scheme])
    if all(place.endswith(".proto") for place in places):
        return _compiled(places, includes)
    if len(places) > 1:
        raise AuthoringError("give one descriptor set, or .proto files only")
    return _parsed(read_bounded(Path(first)), first)


def _parsed(raw: bytes, name: str) -> Files:
    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(raw)
    except DecodeError as error:
        raise AuthoringError(f"{name}: is no FileDescriptorSet") from error
    if not found.file:
        raise AuthoringError(f"{name}: is no FileDescriptorSet, or an empty one")
    return {file.name: file for file in found.file}


# -- .proto files ----------------------------------------------------------------


def _compiled(places: Sequence[str], includes: Sequence[str]) -> Files:
    protoc: Any = importlib.import_module("grpc_tools.protoc")
    own = Path(protoc.__file__).parent / "_proto"
    folders = [*includes] or sorted({str(Path(place).parent) for place in places})
    for place in places:
        # The compiler would tell it less plainly.
        read_bounded(Path(place))
    with tempfile.TemporaryDirectory(prefix="mcp-trio-protoc-") as folder:
        output = Path(folder) / "set.pb"
        said = io.StringIO()
        arguments = [
            "protoc",
            *(f"-I{each}" for each in folders),
            f"-I{own}",
            f"--descriptor_set_out={output}",
            "--include_imports",
            "--include_source_info",
            *places,
        ]
        with contextlib.redirect_stderr(said), _stderr_in(Path(folder) / "stderr") as told:
            status = protoc.main(arguments)
        if status != 0:
            reason = told() or said.getvalue() or "the compiler failed"
            raise AuthoringError(f"cannot compile {', '.join(places)}: {reason.strip()[:1000]}")
        return _parsed(output.read_bytes(), places[0])


@contextlib.contextmanager
def _stderr_in(path: Path) -> Generator[Callable[[], str]]:
    """Catch what a library in C writes to standard error; give a function that reads it."""
    kept = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield lambda: path.read_text(encoding="utf-8", errors="replace")
        finally:
            os.dup2(kept, 2)
            os.close(kept)


# -- reflection --------------------------------------------------------------------


def _reflected(address: str, metadata: Mapping[str, str], *, tls: bool) -> Files:
    grpc: Any = importlib.import_module("grpc")
    options = [("grpc.max_receive_message_length", 64 << 20), ("grpc.enable_http_proxy", 0)]
    channel = (
        grpc.secure_channel(address, grpc.ssl_channel_credentials(), options)
        if tls
        else grpc.insecure_channel(address, options)
    )
    try:
        for service in _REFLECTION:
            try:
                return _Reflection(channel, service, metadata).files()
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                    raise AuthoringError(
                        f"{address}: {error.code().name}: {str(error.details())[:300]}"
                    ) from error
    finally:
        channel.close()
    raise AuthoringError(f"{address}: does not offer server reflection; give .proto files")


class _Reflection:
    """Asks one server; lives as long as one look at it."""

    def __init__(self, channel: Any, service: str, metadata: Mapping[str, str]) -> None:
        # Both versions of the service have the same messages.
        self._messages: Any = importlib.import_module("grpc_reflection.v1alpha.reflection_pb2")
        self._metadata = tuple(metadata.items())
        self._call = channel.stream_stream(
            f"/{service}/ServerReflectionInfo",
            request_serializer=self._messages.ServerReflectionRequest.SerializeToString,
            response_deserializer=self._messages.ServerReflectionResponse.FromString,
        )

    def files(self) -> Files:
        services = [
            each.name
            for each in self._ask(list_services="*").list_services_response.service
            if not each.name.startswith("grpc.reflection.")
        ]
        found: dict[str, descriptor_pb2.FileDescriptorProto] = {}
        for service in services:
            self._take(self._ask(file_containing_symbol=service), found)
        while missing := self._missing(found):
            for name in missing:
                self._take(self._ask(file_by_filename=name), found)
                if name not in found:
                    raise AuthoringError(f"the server does not give {name[:200]}")
        return found

    def _missing(self, found: Files) -> list[str]:
        needed = {name for file in found.values() for name in file.dependency}
        return sorted(needed - found.keys())

    def _ask(self, **request: str) -> Any:
        asked = self._messages.ServerReflectionRequest(**request)
        answers = self._call(iter([asked]), timeout=TIMEOUT, metadata=self._metadata)
        answer: Any = next(answers, None)
        if answer is None:
            raise AuthoringError("the server gave no answer to a question of reflection")
        if answer.HasField("error_response"):
            raise AuthoringError(
                f"the server refuses {request}: {answer.error_response.error_message[:300]}"
            )
        return answer

    @staticmethod
    def _take(answer: Any, found: dict[str, descriptor_pb2.FileDescriptorProto]) -> None:
        for raw in cast("Sequence[bytes]", answer.file_descriptor_response.file_descriptor_proto):
            try:
                file = descriptor_pb2.FileDescriptorProto.FromString(raw)
            except DecodeError as error:
                raise AuthoringError("the server gave what is no descriptor") from error
            found[file.name] = file
        if len(found) > MAX_FILES:
            raise AuthoringError(f"the server has more than {MAX_FILES} files")
