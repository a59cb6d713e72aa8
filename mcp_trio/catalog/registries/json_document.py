"""One JSON document of operations, taken apart: no file, no network.

A document is `{"format": "mcp-operations/1", "revision": "...", "operations": [...]}`, or
a single operation. One that cannot be read as a whole is refused; an operation in it that
cannot is a fault of that operation. Operations whose text is as before are not decoded again.
"""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from mcp_trio.abc import RawEntry, RegistryError, Trouble
from mcp_trio.catalog.operation import FORMAT, MAX_VIEW_DEPTH
from mcp_trio.catalog.registries.rows import MAX_VIEW_BYTES
from mcp_trio.jsonrpc.codec import CodecLimits, overgrown
from mcp_trio.wire import JSONObject

KEYS = ("format", "revision", "operations")
MAX_DOCUMENT_BYTES = 64 << 20
"""Bytes of a registry of documents, unless it is told otherwise."""

_parts = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list = msgspec.json.Decoder(list[msgspec.Raw])
_plain = msgspec.json.Decoder()
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Named(msgspec.Struct):
    """The one key that is read of a view that is not worth decoding whole."""

    operation_id: str


_identity = msgspec.json.Decoder(_Named)


def read_document(data: bytes, name: str, known: Mapping[bytes, RawEntry]) -> dict[str, RawEntry]:
    """Read a document into its entries, by id.

    An entry without an id of its own goes by its place, such as `tools.json#/operations/3`.

    Args:
        data: the whole text.
        name: what errors and places call the document.
        known: entries by fingerprint that need not be made again.

    Raises:
        RegistryError: it is not a document of this format.
    """
    # Some editors begin a file with it; a reader may ignore it (RFC 8259, section 8.1).
    views = _views(data.removeprefix(codecs.BOM_UTF8), name)
    entries: dict[str, RawEntry] = {}
    places: dict[str, list[str]] = {}
    for place, view in views:
        raw = bytes(view)
        fingerprint = hashlib.sha256(raw).digest()
        entry = known.get(fingerprint)
        # A place is no identity: the same text may have moved.
        if entry is None or entry.view is None:
            entry = _entry(raw, fingerprint, place)
        entries[entry.operation_id] = entry
        places.setdefault(entry.operation_id, []).append(place)
    for operation_id, claims in places.items():
        if len(claims) > 1:
            entries[operation_id] = claimed_twice(operation_id, claims)
    return entries


def claimed_twice(operation_id: str, places: Sequence[str]) -> RawEntry:
    """The entry of an id that several places claim: none of them wins."""
    told = ", ".join(places[:5]) + (", ..." if len(places) > 5 else "")
    return faulty(operation_id, f"operation_id: appears more than once, in {told}")


def faulty(operation_id: str, fault: str) -> RawEntry:
    """An entry that has no view."""
    fingerprint = hashlib.sha256(fault.encode("utf-8", "backslashreplace")).digest()
    return RawEntry(operation_id=operation_id, fingerprint=fingerprint, fault=fault)


def _views(data: bytes, name: str) -> list[tuple[str, msgspec.Raw]]:
    """The places and the texts of all operations."""
    try:
        parts = _parts.decode(data)
        if "format" not in parts and "operations" not in parts:
            return [(name, msgspec.Raw(data))]
        operations = _operations(parts)
    except msgspec.ValidationError as error:
        raise RegistryError(Trouble.SCHEMA, f"{name}: {error}") from error
    except _NOT_JSON as error:
        raise RegistryError(Trouble.CORRUPT, f"{name} {_not_json(error)}") from error
    return [(f"{name}#/operations/{index}", view) for index, view in enumerate(operations)]


def _operations(parts: Mapping[str, msgspec.Raw]) -> list[msgspec.Raw]:
    unknown = [key for key in parts if key not in KEYS]
    if unknown:
        raise msgspec.ValidationError(
            f"unknown key {min(unknown)[:80]!r}; known are {', '.join(KEYS)}"
        )
    missing = [key for key in ("format", "operations") if key not in parts]
    if missing:
        raise msgspec.ValidationError(f"misses {missing[0]!r}")
    if _plain.decode(parts["format"]) != FORMAT:
        raise msgspec.ValidationError(f"format: must be {FORMAT!r}")
    if "revision" in parts and not isinstance(_plain.decode(parts["revision"]), str | None):
        raise msgspec.ValidationError("revision: must be a string")
    return _list.decode(parts["operations"])


_LIMITS = CodecLimits(max_depth=MAX_VIEW_DEPTH)


def _entry(raw: bytes, fingerprint: bytes, place: str) -> RawEntry:
    fault = None
    view: object = None
    if len(raw) > MAX_VIEW_BYTES:
        fault = f"{place}: the view is larger than {MAX_VIEW_BYTES} bytes"
    elif reason := overgrown(raw, _LIMITS):
        fault = f"{place}: the view: {reason}"
    else:
        try:
            view = _plain.decode(raw)
        except _NOT_JSON as error:
            fault = f"{place} {_not_json(error)}"
    operation_id = _id_of(raw, view)
    if fault is None and not isinstance(view, dict):
        fault = f"{place}: must be an object"
    if fault is None and operation_id is None:
        fault = f"{place}: operation_id: must be a string of 1 to 200 characters"
    return RawEntry(
        operation_id=operation_id or place,
        # A fault names its place, so it differs from place to place.
        fingerprint=fingerprint if fault is None else faulty("", fault).fingerprint,
        view=cast("JSONObject", view) if fault is None else None,
        fault=fault,
    )


def _id_of(raw: bytes, view: object) -> str | None:
    found: object = None
    if isinstance(view, dict):
        found = cast("JSONObject", view).get("operation_id")
    elif view is None:
        try:
            found = _identity.decode(raw).operation_id
        except _NOT_JSON:
            return None
    return found if isinstance(found, str) and 1 <= len(found) <= 200 else None


def _not_json(error: Exception) -> str:
    reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
    return f"is not JSON ({reason})"
