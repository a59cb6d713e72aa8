"""Where operations come from: a file, a folder of files, or a registry.

A source is read whole, and judged by nobody here: what cannot be read of it is a finding, and
every entry is handed over with the place it stands in.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import trio

from mcp_trio.abc import Reading, RegistryError
from mcp_trio.authoring.documents import Document, read_document
from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.authoring.findings import Finding
from mcp_trio.authoring.values import as_list, as_object
from mcp_trio.catalog.operation import FORMAT
from mcp_trio.catalog.registries.opening import open_registry, shown
from mcp_trio.catalog.registries.options import RegistryOptions
from mcp_trio.errors import ConfigurationError
from mcp_trio.secrets import Secret

SUFFIXES = frozenset({".json", ".yaml", ".yml"})
"""What counts in a folder."""
_SQLITE = b"SQLite format 3\x00"


@attrs.frozen(kw_only=True)
class Entry:
    """One operation of a source."""

    view: object
    """As it stands there; anything."""
    source: str
    """The file or registry, as messages show it."""
    document: Document | None = None
    """What it stands in; None for a registry."""
    path: tuple[str | int, ...] = ()
    """Where it stands in the document."""

    @property
    def operation_id(self) -> str:
        """What it calls itself, if it does."""
        found = as_object(self.view).get("operation_id")
        return found[:200] if isinstance(found, str) else ""

    def finding(
        self, severity: str, reason: str, advice: str, inner: tuple[str | int, ...] = ()
    ) -> Finding:
        """Something about it, at a place inside of it."""
        path = (*self.path, *inner)
        return Finding(
            severity=severity,
            source=self.source,
            line=None if self.document is None else self.document.line(path),
            path=path,
            operation_id=self.operation_id,
            reason=reason,
            advice=advice,
        )


@attrs.frozen(kw_only=True)
class Source:
    """All that was read."""

    entries: tuple[Entry, ...]
    findings: tuple[Finding, ...] = ()
    """What could not be read as an operation at all."""


def read_source(place: str, secret: Secret | None = None) -> Source:
    """Read a file, a folder or a registry.

    Args:
        place: a path, or the address of a registry.
        secret: fetches what a registry on a server wants to be shown.

    Raises:
        AuthoringError: nothing can be read there.
    """
    path = Path(place)
    if "://" in place or is_sqlite(path):
        return trio.run(_read_registry, place, secret)
    if path.is_dir():
        files = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES)
        if not files:
            raise AuthoringError(f"{place}: there is no .json, .yaml or .yml file in it")
        read = [_read_file(file) for file in files]
        return Source(
            entries=tuple(entry for each in read for entry in each.entries),
            findings=tuple(finding for each in read for finding in each.findings),
        )
    return _read_file(path)


def is_sqlite(path: Path) -> bool:
    """Whether a SQLite file stands there."""
    try:
        # Opening a pipe would wait for its writer.
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except (OSError, ValueError):
        return False


async def _read_registry(place: str, secret: Secret | None) -> Source:
    try:
        registry = open_registry(place, RegistryOptions(secret=secret))
    except ConfigurationError as error:
        raise AuthoringError(str(error)) from error
    place = shown(place)
    try:
        reading = await registry.read(None)
    except RegistryError as error:
        raise AuthoringError(str(error)) from error
    finally:
        await registry.aclose()
    return Source(
        entries=tuple(
            Entry(view=entry.view, source=place)
            for entry in reading.entries
            if entry.view is not None
        ),
        findings=tuple(_broken(reading, place)),
    )


def _broken(reading: Reading, place: str) -> Iterator[Finding]:
    for entry in reading.entries:
        if entry.view is None:
            yield Finding(
                severity="fault",
                source=place,
                operation_id=entry.operation_id,
                reason=entry.fault or "no view",
                advice="Publish the operation again.",
            )


def _read_file(path: Path) -> Source:
    return read_views(read_operations(path))


def read_operations(path: Path) -> Document:
    """Read a file that a service may read, too.

    Raises:
        AuthoringError: it cannot be read, or is called JSON and is YAML, which no service reads.
    """
    document = read_document(path)
    if path.suffix == ".json" and not document.is_json:
        raise AuthoringError(f"{path}: is not JSON; YAML has a name that ends with .yaml")
    return document


def read_views(document: Document) -> Source:
    """Take a document of the format apart into its views."""
    top = Entry(view=None, source=document.name, document=document)
    held = as_object(document.value)
    if "operation_id" in held:
        # A document may be a single operation, too.
        return Source(entries=(Entry(view=held, source=document.name, document=document),))
    if not held:
        advice = f"Begin the file with format: {FORMAT}, and list the operations under operations."
        return Source(entries=(), findings=(top.finding("fault", "must be an object", advice),))
    found: list[Finding] = []
    if held.get("format") != FORMAT:
        found.append(
            top.finding("fault", f"must say {FORMAT}", f"Write format: {FORMAT}.", ("format",))
        )
    found += [
        top.finding(
            "fault",
            f"unknown key {key[:80]!r}; known are format, revision, operations",
            "Remove the key; drafts and notes have no place in the format.",
            (key,),
        )
        for key in held
        if key not in {"format", "revision", "operations"}
    ]
    if not isinstance(held.get("operations"), list):
        found.append(
            top.finding("fault", "must be an array", "List the operations here.", ("operations",))
        )
    entries = (
        Entry(view=view, source=document.name, document=document, path=("operations", index))
        for index, view in enumerate(as_list(held.get("operations")))
    )
    return Source(entries=tuple(entries), findings=tuple(found))
