"""Publish checked operations in a registry: all of them in one step, or none.

Only what differs is written, so publishing the same twice changes nothing and nobody is told
of a change that is none. Operations of the registry that are not in the file stay, unless it
is asked to withdraw them. Everything here blocks: it serves a command line.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import cast

import apsw
import msgspec

from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.authoring.publishing_plan import Outcome, Plan, Row, plan
from mcp_trio.authoring.sources import is_sqlite, read_operations, read_views
from mcp_trio.catalog.operation import FORMAT, Operation
from mcp_trio.catalog.registries.opening import scheme_of, shown
from mcp_trio.catalog.registries.rows import VIEW_COLUMNS, to_row
from mcp_trio.catalog.registries.schema import Database, create_registry, open_for_writing
from mcp_trio.secrets import Secret
from mcp_trio.wire import JSONObject

_DATABASES = frozenset({".sqlite", ".sqlite3", ".db"})


def publish(
    operations: Sequence[Operation],
    place: str,
    secret: Secret | None = None,
    *,
    prune: bool = False,
    dry_run: bool = False,
) -> Outcome:
    """Publish in a registry; a SQLite file or a JSON document that is not there yet is made.

    Args:
        operations: checked ones.
        place: path of the registry, or the `postgresql://` address of one.
        secret: the password of the latter.
        prune: withdraw what is published and not among them.
        dry_run: find out only.

    Raises:
        AuthoringError: the registry cannot be written, or a name would belong to two.
    """
    if scheme_of(place) in {"postgresql", "postgres"}:
        try:
            # An extra: most registries are files.
            module = importlib.import_module("mcp_trio.authoring.publishing_postgres")
        except ImportError as error:
            raise AuthoringError(
                "publishing in PostgreSQL needs psycopg: install mcp-trio[postgres]"
            ) from error
        return cast(
            "Outcome",
            module.publish_in_postgres(operations, place, secret, prune=prune, dry_run=dry_run),
        )
    if scheme_of(place):
        raise AuthoringError(f"{shown(place)}: cannot be published to, only read")
    path = Path(place)
    if path.is_dir():
        raise AuthoringError(f"{place}: is a folder; publish into one of its documents")
    if path.exists() and not path.is_file():
        raise AuthoringError(f"{place}: is not a file")
    if is_sqlite(path) or (path.suffix in _DATABASES and not _has_content(path)):
        return _in_sqlite(operations, path, prune=prune, dry_run=dry_run)
    if path.suffix in _DATABASES:
        raise AuthoringError(f"{place}: is not a SQLite file, and was left as it is")
    if path.suffix != ".json":
        raise AuthoringError(
            f"{place}: name a registry by .json, .sqlite, .sqlite3 or .db; a service reads no YAML"
        )
    return _in_document(operations, path, prune=prune, dry_run=dry_run)


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


# -- SQLite --------------------------------------------------------------------------


def _in_sqlite(
    operations: Sequence[Operation], path: Path, *, prune: bool, dry_run: bool
) -> Outcome:
    created = not path.exists()
    if created and dry_run:
        return plan({}, operations, prune=prune, created=True).outcome
    with _sqlite_troubles(path):
        if created:
            try:
                create_registry(path)
            except FileExistsError:
                # Another publisher was faster.
                created = False
        connection = open_for_writing(path)
        try:
            # The lock comes first, so that nobody writes between the look and the change.
            connection.execute("BEGIN IMMEDIATE")
            made = plan(_published(connection), operations, prune=prune, created=created)
            if dry_run:
                connection.execute("ROLLBACK")
            else:
                _write(connection, made)
                connection.execute("COMMIT")
        finally:
            # What was not committed is undone.
            connection.close()
    return made.outcome


def _published(connection: Database) -> dict[str, Row | None]:
    rows = connection.execute(
        f"SELECT {', '.join(VIEW_COLUMNS)} FROM operations WHERE status = 'published'"  # noqa: S608  # constant names
    )
    return {str(row[0]): cast("Row", row) for row in rows}


def _write(connection: Database, made: Plan) -> None:
    updates = ", ".join(f"{name} = excluded.{name}" for name in (*VIEW_COLUMNS, "status"))
    connection.executemany(
        f"INSERT INTO operations ({', '.join(VIEW_COLUMNS)}, status) "  # noqa: S608  # constant names
        f"VALUES ({', '.join('?' * len(VIEW_COLUMNS))}, 'published') "
        f"ON CONFLICT (operation_id) DO UPDATE SET {updates}, "
        "updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')",
        made.write,
    )
    connection.executemany(
        "UPDATE operations SET status = 'withdrawn' WHERE operation_id = ?",
        [(operation_id,) for operation_id in made.outcome.withdrawn],
    )


@contextlib.contextmanager
def _sqlite_troubles(path: Path) -> Generator[None]:
    try:
        yield
    except (apsw.BusyError, apsw.LockedError) as error:
        raise AuthoringError(f"{path}: another publisher is at work; try again") from error
    except apsw.SQLError as error:
        raise AuthoringError(f"{path}: is not laid out as a registry: {error}") from error
    except apsw.Error as error:
        raise AuthoringError(f"cannot write {path}: {error}") from error
    except OSError as error:
        raise AuthoringError(f"cannot write {path}: {error.strerror}") from error


# -- a JSON document ------------------------------------------------------------------


def _in_document(
    operations: Sequence[Operation], path: Path, *, prune: bool, dry_run: bool
) -> Outcome:
    # A link stays one: what it leads to is replaced.
    path = path.resolve()
    try:
        with _alone(path):
            created = not _has_content(path)
            held = {} if created else _views_in(path)
            rows = {i: _row_or_none(view) for i, view in held.items()}
            made = plan(rows, operations, prune=prune, created=created)
            if dry_run or not (made.write or made.outcome.withdrawn or created):
                return made.outcome
            kept = {i: view for i, view in held.items() if i not in made.outcome.withdrawn}
            views = {**kept, **{each.operation_id: each.view() for each in operations}}
            _replace(path, views.values())
    except OSError as error:
        raise AuthoringError(f"cannot write {path}: {error.strerror}") from error
    return made.outcome


@contextlib.contextmanager
def _alone(path: Path) -> Generator[None]:
    """Keep other publishers out. The folder is locked, since the file itself is replaced."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AuthoringError(f"{path}: another publisher is at work; try again") from error
        yield
    finally:
        os.close(folder)


def _views_in(path: Path) -> dict[str, JSONObject]:
    source = read_views(read_operations(path))
    if source.findings:
        raise AuthoringError(
            f"{path} is not a registry, and was left as it is\n{source.findings[0].as_text()}"
        )
    found: dict[str, JSONObject] = {}
    for entry in source.entries:
        if not entry.operation_id or entry.operation_id in found:
            raise AuthoringError(
                f"{path}: holds an operation without an id of its own, and was left as it is"
            )
        found[entry.operation_id] = cast("JSONObject", entry.view)
    return found


def _row_or_none(view: JSONObject) -> Row | None:
    # One that is broken is replaced by a sound one all the same.
    with contextlib.suppress(Exception):
        return to_row(view)
    return None


def _replace(path: Path, views: Iterable[JSONObject]) -> None:
    """Write beside, then rename: a reader sees the old document or the new one."""
    beside = path.parent / f".{path.name}.{os.getpid()}.tmp"
    body = msgspec.json.encode({"format": FORMAT, "operations": list(views)})
    body = msgspec.json.format(body, indent=2)
    try:
        # Nobody else is here, so it was left by one that was stopped; numbers come again.
        beside.unlink(missing_ok=True)
        with beside.open("xb") as file:
            if path.exists():
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            file.write(body + b"\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
