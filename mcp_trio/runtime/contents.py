"""What a model and its user get beside the structured result: text by template, and content.

A template is text with `{{ expression }}` in it. Content is a list of blocks, each of a kind,
whose parts are mappings; a block without its main part is left out.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, cast

import attrs
import msgspec

from mcp_trio.runtime.mapping import Mapper, MappingError, compile_mapping, plain_text
from mcp_trio.wire import ContentBlock, JSONObject, TextContent
from mcp_trio.wire.content import AudioContent, ImageContent, ResourceLink

_EXPRESSION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S{1,4000}")


def compile_template(text: str, path: str, names: Sequence[str]) -> Mapper:
    """Compile text with expressions in it to what gives the whole text.

    Raises:
        MappingError: an expression does not compile, or braces do not match.
    """
    parts: list[str | Mapper] = []
    end = 0
    for match in _EXPRESSION.finditer(text):
        parts += [
            text[end : match.start()],
            compile_mapping(f"={match[1].strip()}", path, names),
        ]
        end = match.end()
    parts.append(text[end:])
    if any("{{" in part or "}}" in part for part in parts if isinstance(part, str)):
        raise MappingError("has {{ or }} without the other", path=path)
    mappers = [part for part in parts if isinstance(part, Mapper)]

    def fill(context: Mapping[str, object]) -> object:
        return "".join(part if isinstance(part, str) else _written(part(context)) for part in parts)

    return Mapper(
        path=path,
        names=frozenset[tuple[str, str | None]]().union(*(mapper.names for mapper in mappers)),
        literal=not mappers,
        node=fill,
    )


def _written(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    return plain_text(value)


@attrs.frozen
class _Kind:
    """A kind of block: its parts, the first of which it cannot do without."""

    required: tuple[str, ...]
    optional: tuple[str, ...]
    make: Callable[[Mapping[str, str], str], ContentBlock]

    @property
    def main(self) -> str:
        return self.required[0]


def _binary(parts: Mapping[str, str], path: str) -> tuple[str, str]:
    try:
        base64.b64decode(parts["data"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise MappingError("is not base64", path=f"{path}.data") from error
    return parts["data"], _media_type(parts["mime_type"], path)


def _media_type(text: str, path: str) -> str:
    # An upstream's header may have parameters behind it.
    kind = text.partition(";")[0].strip()
    if _MEDIA_TYPE.fullmatch(kind) is None:
        raise MappingError("is not a media type", path=f"{path}.mime_type")
    return kind


def _image(parts: Mapping[str, str], path: str) -> ContentBlock:
    data, kind = _binary(parts, path)
    return ImageContent(data=data, mime_type=kind)


def _audio(parts: Mapping[str, str], path: str) -> ContentBlock:
    data, kind = _binary(parts, path)
    return AudioContent(data=data, mime_type=kind)


def _link(parts: Mapping[str, str], path: str) -> ContentBlock:
    if _URI.fullmatch(parts["uri"]) is None:
        raise MappingError("is not a URI", path=f"{path}.uri")
    kind = parts.get("mime_type")
    return ResourceLink(
        uri=parts["uri"],
        name=parts["name"],
        title=parts.get("title"),
        description=parts.get("description"),
        mime_type=None if kind is None else _media_type(kind, path),
    )


def _text(parts: Mapping[str, str], _path: str) -> ContentBlock:
    return TextContent(text=parts["text"])


_KINDS: Mapping[str, _Kind] = {
    "text": _Kind(("text",), (), _text),
    "image": _Kind(("data", "mime_type"), (), _image),
    "audio": _Kind(("data", "mime_type"), (), _audio),
    "resource_link": _Kind(("uri", "name"), ("title", "description", "mime_type"), _link),
}
CONTENT_KINDS = tuple(_KINDS)
"""Kinds of content blocks."""


@attrs.frozen(eq=False)
class Block:
    """One compiled block of content."""

    path: str
    _kind: _Kind
    mappers: Mapping[str, Mapper]

    def make(self, context: Mapping[str, object]) -> ContentBlock | None:
        """The block for an answer; None without its main part.

        Raises:
            MappingError: a part is missing, or is not what it has to be.
        """
        found = {part: mapper(context) for part, mapper in self.mappers.items()}
        if found.get(self._kind.main) is None:
            return None
        parts: dict[str, str] = {}
        for part, value in found.items():
            if value is None and part in self._kind.optional:
                continue
            if not isinstance(value, str):
                raise MappingError("must give a string", path=f"{self.path}.{part}")
            parts[part] = value
        return self._kind.make(parts, self.path)


Blocks: TypeAlias = tuple[Block, ...]


def compile_content(blocks: Sequence[JSONObject], path: str, names: Sequence[str]) -> Blocks:
    """Compile the blocks of `output_mapping.content`.

    Raises:
        MappingError: a kind that is none, a part that is missing or unknown, or does not compile.
    """
    return tuple(_block(block, f"{path}[{n}]", names) for n, block in enumerate(blocks))


def _block(block: JSONObject, path: str, names: Sequence[str]) -> Block:
    name = block.get("kind")
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise MappingError(f"must be one of {', '.join(_KINDS)}", path=f"{path}.kind")
    parts = {part: tree for part, tree in block.items() if part != "kind"}
    unknown = sorted(parts.keys() - {*kind.required, *kind.optional})
    if unknown:
        raise MappingError(f"unknown key {unknown[0][:80]!r}", path=path)
    for part in kind.required:
        if parts.get(part) is None:
            raise MappingError(f"misses {part!r}", path=path)
    compiled = {
        part: compile_mapping(tree, f"{path}.{part}", names) for part, tree in parts.items()
    }
    return Block(path, kind, cast("Mapping[str, Mapper]", compiled))
