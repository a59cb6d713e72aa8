"""A JSON document, or a folder of them, as a registry.

A look costs one `stat` for each file while nothing changes; only files that changed are read
and taken apart. A file written by renaming a finished one over it, a folder of symbolic
links that are switched at once, and a file that is edited in place are all read whole: what
changed while it was being read is read again, and what does not parse leaves the last good
content of that file in place.

Everything that touches a file runs in a worker thread, under a limiter of one.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import attrs
import trio

from mcp_trio.abc import RawEntry, Reading, RegistryError, Trouble
from mcp_trio.catalog.registries.journal import Journal
from mcp_trio.catalog.registries.json_document import (
    MAX_DOCUMENT_BYTES,
    claimed_twice,
    faulty,
    read_document,
)

MAX_FILES = 10_000
"""Documents in one folder."""
SETTLING = 2_000_000_000
"""Nanoseconds after its last change in which a file is judged by its content.

Within one tick of a file system's clock a second change leaves no trace in the times; the
coarsest clock in use, that of FAT, ticks every two seconds.
"""
TRIES = 3
"""Looks at files that keep changing, within one call."""

T = TypeVar("T")
_NOTHING: Mapping[str, RawEntry] = {}


@attrs.frozen
class _Signature:
    """What tells two contents of one name apart without reading them."""

    device: int
    inode: int
    modified: int
    changed: int
    size: int

    @classmethod
    def of(cls, found: os.stat_result) -> _Signature:
        return cls(found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)


@attrs.frozen(kw_only=True)
class _File:
    """What is known of one document."""

    signature: _Signature | None
    """Of the content that was last looked at; None if there was none to look at."""
    settled: bool = False
    """Whether the same signature means the same content."""
    digest: bytes = b""
    """Of the content that was last looked at."""
    entries: Mapping[str, RawEntry] = attrs.field(factory=dict[str, RawEntry])
    """What it holds, by id; of the last good content if there is trouble."""
    trouble: RegistryError | None = None
    """Why the content now is no good."""


class DocumentRegistry:
    """Reads the operations of a JSON document or of a folder of them. Implements `Registry`.

    The path may be missing, appear later, and change from a file to a folder. In a folder
    every `*.json` that does not begin with a dot counts, and an operation that stands in two
    files is a fault, whichever came first.

    Args:
        path: the file or the folder.
        max_bytes: of all documents together; a single file that is larger is a fault.
        clock: the time in nanoseconds, by the clock of the file system.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int = MAX_DOCUMENT_BYTES,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._path = Path(os.path.abspath(os.fspath(path)))  # noqa: PTH100  # no file access
        self._max_bytes = max_bytes
        self._clock = clock
        self._limiter = trio.CapacityLimiter(1)
        # All below belongs to the thread that holds the limiter.
        self._journal = Journal()
        self._files: dict[str, _File] = {}
        self._homes: dict[str, tuple[str, ...]] = {}
        """By operation id, the files it stands in."""

    async def change_token(self) -> str:
        """Look at the files, and take in those that changed.

        Raises:
            RegistryError: the path, or the one document, cannot be read now.
        """
        return (await self._in_thread(lambda: self._look(None))).token

    async def read(self, since: str | None) -> Reading:
        """Look at the files, and tell what changed in them.

        Raises:
            RegistryError: the path, or the one document, cannot be read now.
        """
        return await self._in_thread(lambda: self._look(since))

    async def aclose(self) -> None:
        """Do nothing: no file stays open. A read that was abandoned ends by itself."""
        await trio.lowlevel.checkpoint()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._limiter)

    def _look(self, since: str | None) -> Reading:
        files = self._files_now()
        trouble = files[""].trouble if "" in files else None
        if trouble is not None:
            # The document is remembered, so that it is not taken apart at every look.
            self._files = {**self._files, "": files[""]}
            raise RegistryError(trouble.trouble, str(trouble))
        self._take_in(files)
        return self._journal.read(since)

    def _files_now(self) -> dict[str, _File]:
        """All documents, as they stood together at one moment if they ever stand still."""
        files: dict[str, _File] = {}
        for _ in range(TRIES):
            before = self._signatures()
            files = {name: self._file(name, before[name]) for name in before}
            same = files.keys() == self._files.keys() and all(
                self._files[name] is file for name, file in files.items()
            )
            # Switching a folder of links changes several files at once; what a file that is gone
            # held may stand in one that was looked at before.
            if same or self._signatures() == before:
                break
        return files

    def _signatures(self) -> dict[str, _Signature | None]:
        """Every document and its signature, by name; the empty name for a single file."""
        try:
            found = self._path.stat()
            if not stat.S_ISDIR(found.st_mode):
                return {"": _Signature.of(found)}
            names = sorted(n for n in os.listdir(self._path) if self._counts(n))  # noqa: PTH208
        except FileNotFoundError as error:
            raise RegistryError(Trouble.MISSING, f"there is no registry at {self._path}") from error
        except OSError as error:
            raise RegistryError(
                Trouble.UNREADABLE, f"cannot read {self._path}: {error.strerror}"
            ) from error
        if len(names) > MAX_FILES:
            raise RegistryError(
                Trouble.TOO_LARGE, f"{self._path} holds more than {MAX_FILES} documents"
            )
        signatures: dict[str, _Signature | None] = {}
        for name in names:
            try:
                signatures[name] = _Signature.of((self._path / name).stat())
            except FileNotFoundError:
                # Deleted since it was listed, or a link that leads nowhere.
                if (self._path / name).is_symlink():
                    signatures[name] = None
            except OSError:
                signatures[name] = None
        sizes = (s.size for s in signatures.values() if s and s.size <= self._max_bytes)
        if sum(sizes) > self._max_bytes:
            raise RegistryError(
                Trouble.TOO_LARGE,
                f"the documents in {self._path} are larger than {self._max_bytes} bytes together",
            )
        return signatures

    @staticmethod
    def _counts(name: str) -> bool:
        return name.endswith(".json") and not name.startswith(".")

    def _file(self, name: str, signature: _Signature | None) -> _File:
        """What is known of a document now: as before, or read anew."""
        held = self._files.get(name, _File(signature=None))
        if signature is not None and held.signature == signature and held.settled:
            return held
        shown = str(self._path) if not name else name.encode(errors="backslashreplace").decode()
        now = self._clock()
        try:
            signature, data = self._content(self._path / name, shown)
        except RegistryError as error:
            if held.trouble is not None and str(held.trouble) == str(error):
                return held
            return attrs.evolve(held, signature=None, settled=False, trouble=error)
        settled = now - max(signature.modified, signature.changed) > SETTLING
        digest = hashlib.sha256(data).digest()
        if held.digest == digest and held.signature is not None:
            if held.signature == signature and not settled:
                return held
            return attrs.evolve(held, signature=signature, settled=settled)
        file = attrs.evolve(held, signature=signature, settled=settled, digest=digest)
        known = {entry.fingerprint: entry for entry in held.entries.values()}
        try:
            return attrs.evolve(file, entries=read_document(data, shown, known), trouble=None)
        except RegistryError as error:
            return attrs.evolve(file, trouble=error)

    def _content(self, path: Path, shown: str) -> tuple[_Signature, bytes]:
        """Read a document that stands still while it is read."""
        try:
            for _ in range(TRIES):
                # Before it is opened: that alone sets off some devices, and ends a pipe's writer.
                _check_kind(path.stat(), shown)
                with open(path, "rb", opener=_opened) as file:
                    found = os.fstat(file.fileno())
                    _check_kind(found, shown)
                    if found.st_size > self._max_bytes:
                        raise RegistryError(
                            Trouble.TOO_LARGE, f"{shown} is larger than {self._max_bytes} bytes"
                        )
                    data = file.read(found.st_size + 1)
                    signature = _Signature.of(os.fstat(file.fileno()))
                if signature == _Signature.of(found) and len(data) == found.st_size:
                    return signature, data
        except FileNotFoundError as error:
            raise RegistryError(Trouble.MISSING, f"{shown} is not there") from error
        except OSError as error:
            raise RegistryError(
                Trouble.UNREADABLE, f"cannot read {shown}: {error.strerror}"
            ) from error
        raise RegistryError(Trouble.CHANGING, f"{shown} changes while it is being read")

    def _take_in(self, files: dict[str, _File]) -> None:
        """Make these the files, and note what that changes; costs the files that differ."""
        touched: set[str] = set()
        reports: dict[str, RawEntry | None] = {}
        for name in {**self._files, **files}:
            old, new = self._files.get(name), files.get(name)
            if old is new:
                continue
            held = _NOTHING if old is None else old.entries
            holds = _NOTHING if new is None else new.entries
            if held is not holds:
                for operation_id in held:
                    homes = tuple(n for n in self._homes[operation_id] if n != name)
                    self._homes[operation_id] = homes
                for operation_id in holds:
                    homes = (*self._homes.get(operation_id, ()), name)
                    self._homes[operation_id] = tuple(sorted(homes))
                touched |= {*held, *holds}
            # A file is not an operation, and its trouble is told in the same list.
            report = f"file:{name.encode(errors='backslashreplace').decode()}"
            trouble = None if new is None else new.trouble
            reports[report] = None if trouble is None else faulty(report, str(trouble))
        changes = {i: self._claimed(i, files) for i in touched}
        for operation_id in touched:
            if not self._homes[operation_id]:
                del self._homes[operation_id]
        self._files = files
        self._journal.apply({**reports, **changes})

    def _claimed(self, operation_id: str, files: Mapping[str, _File]) -> RawEntry | None:
        match self._homes[operation_id]:
            case ():
                return None
            case (home,):
                return files[home].entries[operation_id]
            case homes:
                return claimed_twice(operation_id, homes)


def _opened(path: str, flags: int) -> int:
    # Not blocking, should it have become a pipe meanwhile; a terminal does not become ours.
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _check_kind(found: os.stat_result, shown: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise RegistryError(Trouble.UNREADABLE, f"{shown} is not a regular file")
