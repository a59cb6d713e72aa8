"""Pictures, sounds, files and links as values a handler returns.

They become content blocks of tools and prompts, and contents of resources. What lies in a
file is read only then, without blocking other requests.
"""

from __future__ import annotations

import base64
import mimetypes
import os
from pathlib import Path
from typing import TypeAlias, cast
from urllib.parse import unquote, urlsplit

import attrs
import trio

from mcp_trio.wire.basic import Icon, JSONObject
from mcp_trio.wire.content import (
    Annotations,
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    ResourceLink,
)

StrPath: TypeAlias = str | os.PathLike[str]

_SIGNATURES = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (4, b"ftypM4A", "audio/mp4"),
)
"""Where the first bytes of common formats stand."""


def sniffed(data: bytes, kind: str) -> str | None:
    """The media type that the first bytes show, if it is one of a kind (`image/`, `audio/`)."""
    for offset, mark, mime_type in _SIGNATURES:
        if data.startswith(mark, offset) and mime_type.startswith(kind):
            return mime_type
    return None


def _guessed(name: StrPath | None) -> str | None:
    return None if name is None else mimetypes.guess_type(os.fspath(name))[0]


@attrs.frozen
class _Source:
    """Bytes, or the file they are in."""

    data: bytes | None
    path: StrPath | None

    def __attrs_post_init__(self) -> None:
        if (self.data is None) == (self.path is None):
            raise ValueError("give either data or path")

    async def read(self) -> bytes:
        if self.data is not None:
            return self.data
        # Cancelled, the request does not wait for a disk or a pipe that does not answer.
        read = Path(cast("StrPath", self.path)).read_bytes
        return await trio.to_thread.run_sync(read, abandon_on_cancel=True)


@attrs.frozen
class _Media:
    """What pictures and sounds have in common."""

    data: bytes | None = None
    path: StrPath | None = attrs.field(default=None, kw_only=True)
    mime_type: str | None = attrs.field(default=None, kw_only=True)
    annotations: Annotations | None = attrs.field(default=None, kw_only=True)
    meta: JSONObject | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        _Source(self.data, self.path)

    async def _read(self, kind: str) -> tuple[str, str]:
        data = await _Source(self.data, self.path).read()
        mime_type = self.mime_type or sniffed(data, kind) or _guessed(self.path)
        if mime_type is None or not mime_type.startswith(kind):
            raise ValueError(f"not known to be {kind}*: give its mime_type")
        return base64.b64encode(data).decode("ascii"), mime_type


@attrs.frozen
class Image(_Media):
    """A picture: `Image(data)` or `Image(path="chart.png")`.

    The media type is the one given, else what the first bytes show, else what the file's name
    says. It is sent in base64. The file is read when the handler has returned.

    Raises:
        ValueError: neither or both of data and path; later, as the handler's failure, a picture
            whose media type is not known.
    """

    async def block(self) -> ImageContent:
        """Read it, and make the content block."""
        data, mime_type = await self._read("image/")
        return ImageContent(
            data=data, mime_type=mime_type, annotations=self.annotations, meta=self.meta
        )


@attrs.frozen
class Audio(_Media):
    """A sound: `Audio(data)` or `Audio(path="bell.wav")`; see `Image`.

    Clients of 2024-11-05 know no sounds and get a line of text in its place.
    """

    async def block(self) -> AudioContent:
        """Read it, and make the content block."""
        data, mime_type = await self._read("audio/")
        return AudioContent(
            data=data, mime_type=mime_type, annotations=self.annotations, meta=self.meta
        )


@attrs.frozen
class File:
    """A file that travels inside the answer: `File(path="notes.txt")` or `File(data, uri=...)`.

    Text if its media type is a text's and its bytes are UTF-8, else base64.

    Raises:
        ValueError: neither or both of data and path, or data without a URI.
    """

    data: bytes | None = None
    path: StrPath | None = attrs.field(default=None, kw_only=True)
    uri: str | None = attrs.field(default=None, kw_only=True)
    """By default the `file://` URI of the path."""
    mime_type: str | None = attrs.field(default=None, kw_only=True)
    annotations: Annotations | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        _Source(self.data, self.path)
        if self.path is None and self.uri is None:
            raise ValueError("data needs a uri")

    async def contents(self, uri: str | None = None) -> ResourceContents:
        """Read it, under its own URI or the one given."""
        data = await _Source(self.data, self.path).read()
        where = self.uri or uri or await self._file_uri()
        mime_type = self.mime_type or _guessed(self.path) or _guessed(where.partition("?")[0])
        text = _as_text(data, mime_type)
        if text is not None:
            return ResourceContents(uri=where, mime_type=mime_type or "text/plain", text=text)
        return ResourceContents(
            uri=where,
            mime_type=mime_type or "application/octet-stream",
            blob=base64.b64encode(data).decode("ascii"),
        )

    async def _file_uri(self) -> str:
        return (await trio.Path(cast("StrPath", self.path)).absolute()).as_uri()

    async def block(self) -> EmbeddedResource:
        """Read it, and make the content block."""
        return EmbeddedResource(resource=await self.contents(), annotations=self.annotations)


_TEXTUAL = ("text/", "application/json", "application/xml", "application/javascript")


def _as_text(data: bytes, mime_type: str | None) -> str | None:
    if mime_type is not None and not (
        mime_type.startswith(_TEXTUAL) or mime_type.endswith(("+json", "+xml"))
    ):
        return None
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


@attrs.frozen
class Link:
    """A pointer to a resource that the client may read: `Link("note:///first")`.

    Clients before 2025-06-18 know no links and get a line of text in its place.
    """

    uri: str
    name: str | None = attrs.field(default=None, kw_only=True)
    """By default the last part of the URI's path."""
    title: str | None = attrs.field(default=None, kw_only=True)
    description: str | None = attrs.field(default=None, kw_only=True)
    mime_type: str | None = attrs.field(default=None, kw_only=True)
    size: int | None = attrs.field(default=None, kw_only=True)
    annotations: Annotations | None = attrs.field(default=None, kw_only=True)
    icons: list[Icon] | None = attrs.field(default=None, kw_only=True)

    async def block(self) -> ResourceLink:
        """Make the content block."""
        parts = urlsplit(self.uri)
        last = unquote(parts.path.rstrip("/").rpartition("/")[2])
        return ResourceLink(
            uri=self.uri,
            name=self.name or last or parts.netloc or self.uri,
            title=self.title,
            description=self.description,
            mime_type=self.mime_type or _guessed(self.uri.partition("?")[0]),
            size=self.size,
            annotations=self.annotations,
            icons=self.icons,
        )


MEDIA = (Image, Audio, File, Link)
Medium: TypeAlias = Image | Audio | File | Link


async def with_blocks(value: object) -> object:
    """The value with each of these in it replaced by its content block; lists are looked into."""
    if isinstance(value, MEDIA):
        return await value.block()
    if isinstance(value, (list, tuple)):
        items = cast("list[object]", value)
        if any(isinstance(item, MEDIA) for item in items):
            return [await with_blocks(item) for item in items]
        return items
    return value
