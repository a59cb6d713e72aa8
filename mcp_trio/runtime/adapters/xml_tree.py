"""XML as a tree that mappings can read and write.

    {"order": {"@id": "7", "item": ["a", "b"], "note": {"@lang": "en", "#text": "hi"}}}

is

    <order id="7"><item>a</item><item>b</item><note lang="en">hi</note></order>

An element is its text, or an object once it has attributes (`@name`) or children; its text is
then `#text`. Elements of one name are an array when there are several. Prefixes stay part of the
names and mean nothing here. What the tree cannot say is lost: the order of elements of different
names, comments, processing instructions. Document types, and with them entities, are refused in
both directions, and nothing is ever fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import cast
from xml.parsers import expat

from mcp_trio.runtime.mapping import plain_text

MAX_DEPTH = 100
"""Elements inside each other."""
MAX_NODES = 200_000
"""Elements and attributes of a document."""

XML_NAME = re.compile(r"[A-Za-z_][\w.-]*(:[A-Za-z_][\w.-]*)?", re.ASCII)
_UNWRITABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML document can hold (XML 1.0, section 2.2)."""
_CHARSETS = frozenset({"utf-8", "utf-16", "iso-8859-1", "us-ascii"})
_TEXT = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})
_ATTRIBUTE = str.maketrans(
    {
        "&": "&amp;",
        "<": "&lt;",
        ">": "&gt;",
        '"': "&quot;",
        "\r": "&#13;",
        "\n": "&#10;",
        "\t": "&#9;",
    }
)


class XmlError(ValueError):
    """No XML, or more of it than is read. The text repeats nothing of it."""


def read_xml(raw: bytes, *, charset: str | None = None) -> object:
    """Read a document.

    Args:
        raw: the document.
        charset: what the transport says of it; what is unknown is left to the document.

    Raises:
        XmlError: it is not well-formed, has a document type, or is too deep or too large.
    """
    reader = _Reader()
    parser = expat.ParserCreate(charset if charset in _CHARSETS else None)
    parser.buffer_text = True
    parser.ordered_attributes = True
    parser.StartDoctypeDeclHandler = reader.document_type
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    try:
        parser.Parse(raw, True)
    except expat.ExpatError as error:
        raise XmlError("it is not well-formed") from error
    except (LookupError, ValueError) as error:
        if isinstance(error, XmlError):
            raise
        raise XmlError("its encoding is not known") from error
    return reader.root


class _Element:
    def __init__(self) -> None:
        self.held: dict[str, object] = {}
        self.repeated: set[str] = set()
        """Names whose value is an array made here."""
        self.texts: list[str] = []

    def add(self, name: str, value: object) -> None:
        if name not in self.held:
            self.held[name] = value
        elif name in self.repeated:
            cast("list[object]", self.held[name]).append(value)
        else:
            self.held[name] = [self.held[name], value]
            self.repeated.add(name)

    def value(self) -> object:
        text = "".join(self.texts)
        if not self.held:
            return text
        if text.strip():
            self.held["#text"] = text
        return self.held


class _Reader:
    """Builds the tree while expat reads."""

    def __init__(self) -> None:
        self.root: dict[str, object] = {}
        self._open: list[_Element] = []
        self._nodes = 0

    def document_type(self, *_args: object) -> None:
        raise XmlError("it has a document type")

    def start(self, _name: str, attributes: list[str]) -> None:
        self._nodes += 1 + len(attributes) // 2
        if len(self._open) >= MAX_DEPTH:
            raise XmlError(f"it is nested more than {MAX_DEPTH} levels deep")
        if self._nodes > MAX_NODES:
            raise XmlError(f"it has more than {MAX_NODES} elements and attributes")
        element = _Element()
        for name, value in zip(attributes[::2], attributes[1::2], strict=True):
            element.add(f"@{name}", value)
        self._open.append(element)

    def end(self, name: str) -> None:
        value = self._open.pop().value()
        if self._open:
            self._open[-1].add(name, value)
        else:
            self.root[name] = value

    def text(self, text: str) -> None:
        self._open[-1].texts.append(text)


def write_xml(tree: object) -> bytes:
    """Write a document, in UTF-8.

    Raises:
        ValueError: the tree is not of the form above, or holds what no document can.
    """
    if not isinstance(tree, dict) or len(cast("dict[str, object]", tree)) != 1:
        raise ValueError("XML needs an object with one key, the name of its root")
    [(name, value)] = cast("dict[str, object]", tree).items()
    if isinstance(value, list) or not XML_NAME.fullmatch(name):
        raise ValueError("the root must be one element, by its name")
    parts = ['<?xml version="1.0" encoding="UTF-8"?>', *_element(name, value, 1)]
    return "".join(parts).encode()


def check_tree(tree: object) -> None:
    """Find keys that could never be written, in a tree whose leaves may be expressions.

    Raises:
        ValueError: there are some.
    """
    if not isinstance(tree, dict) or "expr" in tree:
        return
    held = cast("dict[str, object]", tree)
    if len(held) != 1 or not XML_NAME.fullmatch(next(iter(held))):
        raise ValueError("XML needs an object with one key, the name of its root")
    level: list[object] = list(held.values())
    while level:
        node = level.pop()
        if isinstance(node, list):
            level += cast("list[object]", node)
        elif isinstance(node, dict) and "expr" not in node:
            inner = cast("dict[str, object]", node)
            for key in inner:
                if key != "#text" and not XML_NAME.fullmatch(key.removeprefix("@")):
                    raise ValueError(f"{key[:80]!r} is not the name of an element or attribute")
            level += inner.values()


def _element(name: str, value: object, depth: int) -> Iterator[str]:
    if depth > MAX_DEPTH:
        raise ValueError(f"is nested more than {MAX_DEPTH} levels deep")
    held = cast("dict[str, object]", value) if isinstance(value, dict) else {"#text": value}
    yield f"<{name}"
    for key, child in held.items():
        if key.startswith("@"):
            _check_name(key[1:])
            if child is not None:
                yield f' {key[1:]}="{_written(child).translate(_ATTRIBUTE)}"'
    yield ">"
    for key, child in held.items():
        if key == "#text":
            yield "" if child is None else _written(child).translate(_TEXT)
        elif not key.startswith("@"):
            _check_name(key)
            items = cast("list[object]", child) if isinstance(child, list) else [child]
            for item in items:
                if item is not None:
                    yield from _element(key, item, depth + 1)
    yield f"</{name}>"


def _check_name(name: str) -> None:
    if not XML_NAME.fullmatch(name):
        raise ValueError("has a key that is not the name of an element or attribute")


def _written(value: object) -> str:
    text = plain_text(value)
    if _UNWRITABLE.search(text):
        raise ValueError("holds a character that XML cannot")
    return text
