"""Rows of a database as entries of a reading, the same for every database.

Columns of a view are JSON text, except `operation_id`, `name` and `protocol`; a
`tool_description` that does not begin with `{` or `"` is taken as the description itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import msgspec

from mcp_trio.abc import RawEntry, Reading
from mcp_trio.catalog.operation import OperationError, parse

JSON_COLUMNS = (
    "target",
    "input_schema",
    "output_schema",
    "input_mapping",
    "output_mapping",
    "execution_config",
    "tool_description",
)
VIEW_COLUMNS = ("operation_id", "name", "protocol", *JSON_COLUMNS)
"""The only columns that are ever selected for a catalog."""
MAX_VIEW_BYTES = 1 << 20
"""Bytes of one view; a larger one is a fault of that operation."""
MAX_ID = 200
"""Characters of an identity; a longer one is cut for being told, and its view is refused."""


def to_row(view: Mapping[str, object]) -> tuple[str | None, ...]:
    """The columns of a view, in the order of `VIEW_COLUMNS`.

    Raises:
        OperationError: it does not fit the format.
    """
    try:
        operation = parse(view)
    except OperationError as error:
        raise OperationError(f"{view.get('operation_id')!s:.80}: {error}") from error
    columns = operation.view()
    return tuple(
        _text(columns[name]) if name in JSON_COLUMNS else str(columns[name])
        for name in VIEW_COLUMNS
    )


def _text(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def to_reading(rows: Iterable[Sequence[object]], *, token: str, complete: bool) -> Reading:
    """A reading of rows that come one by one.

    Args:
        rows: each with its identity, whether it is published, the bytes in all columns of the
            view together, and these, in the order of `VIEW_COLUMNS`. Texts may be bytes, of a
            database that does not see to their encoding.
        token: see `Reading`.
        complete: see `Reading`.
    """
    entries: list[RawEntry] = []
    removed: list[str] = []
    for raw, published, size, *columns in rows:
        operation_id = _identity(raw)
        if published:
            texts = [_decoded(column) for column in columns]
            entries.append(to_entry(operation_id, cast("int", size), texts))
        else:
            removed.append(operation_id)
    return Reading(token=token, entries=tuple(entries), removed=tuple(removed), complete=complete)


def _identity(raw: object) -> str:
    """The identity of a row, bounded, whatever stands there."""
    text = raw.decode(errors="backslashreplace") if isinstance(raw, bytes) else str(raw)
    return text if len(text) <= MAX_ID else f"{text[:MAX_ID]}…"


def _decoded(column: object) -> object:
    """The text of bytes; bytes that are none stay what they are."""
    if not isinstance(column, bytes):
        return column
    try:
        return column.decode()
    except UnicodeDecodeError:
        return column


def to_entry(operation_id: str, size: int, columns: Sequence[object]) -> RawEntry:
    """The entry of a row.

    Args:
        operation_id: its identity.
        size: bytes in all columns of the view together.
        columns: in the order of `VIEW_COLUMNS`; not looked at if they are too large.
    """
    if size > MAX_VIEW_BYTES:
        fault = f"the view is larger than {MAX_VIEW_BYTES} bytes"
        return RawEntry(
            operation_id=operation_id, fingerprint=_fingerprint([str(size)]), fault=fault
        )
    fingerprint = _fingerprint(columns)
    try:
        view = {name: _value(name, raw) for name, raw in zip(VIEW_COLUMNS, columns, strict=True)}
    except ValueError as error:
        return RawEntry(operation_id=operation_id, fingerprint=fingerprint, fault=str(error))
    return RawEntry(operation_id=operation_id, fingerprint=fingerprint, view=view)


def _value(name: str, raw: object) -> object:
    if raw is None:
        if name == "output_schema":
            return None
        raise ValueError(f"{name}: must not be NULL")
    if isinstance(raw, bytes):
        raise ValueError(f"{name}: is not UTF-8")  # a fault of the row
    if not isinstance(raw, str):
        raise ValueError(f"{name}: must be TEXT")  # a fault of the row
    if name not in JSON_COLUMNS:
        return raw
    if name == "tool_description" and raw.lstrip()[:1] not in {"{", '"'}:
        return raw
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise ValueError(f"{name}: is not JSON ({reason})") from error


def _fingerprint(columns: Sequence[object]) -> bytes:
    digest = hashlib.sha256()
    for column in columns:
        part = repr(column).encode("utf-8", "surrogatepass")
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()
