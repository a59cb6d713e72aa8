"""The logs of `mcp-trio serve`: opened as the settings say, written while it runs, opened anew."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path

import attrs

from mcp_trio.cli.streams import say
from mcp_trio.config import LoggingSection, Settings
from mcp_trio.config.keys import read_key
from mcp_trio.server.server import MCPServer
from mcp_trio.telemetry.access_log import AccessLog
from mcp_trio.telemetry.audit import AuditLog
from mcp_trio.telemetry.line_writer import STREAMS, LineWriter
from mcp_trio.telemetry.logging import configure_logging
from mcp_trio.telemetry.redaction import Redactor


@attrs.frozen(kw_only=True)
class Journals:
    """What a service writes down."""

    writers: tuple[LineWriter, ...]
    """All of them, the one that the others' troubles are told to first."""
    redactor: Redactor
    """What takes secrets out of what the service tells of itself."""
    access: AccessLog | None
    """One line for each HTTP exchange."""
    audit: AuditLog | None
    """One line for each call of a tool."""

    @classmethod
    def open(cls, settings: Settings, folder: Path, audit_key: bytes | None = None) -> Journals:
        """Open every file, and send what the process logs from now on to its place.

        Args:
            settings: where to.
            folder: what relative paths are relative to.
            audit_key: of the audit log, if the settings name none.

        Raises:
            ConfigurationError: a file cannot be opened, or a key is missing or is none.
        """
        places = _Places(folder)
        log = places.writer(settings.logging.file, "the log")
        access = audit = None
        if settings.access_log is not None:
            access = AccessLog(places.writer(settings.access_log.file, "the access log"))
        if settings.audit is not None:
            key, required = settings.audit.key, settings.audit.required
            held = audit_key if key is None else read_key(key, "audit.key", folder, os.environ)
            writer = places.writer(settings.audit.file, "the audit log")
            audit = AuditLog(writer, key=held, required=required)
        redactor, pretty = Redactor(), _pretty(settings.logging)
        configure_logging(
            level=settings.logging.level, writer=log, pretty=pretty, redactor=redactor
        )
        writers = tuple(places.made.values())
        return cls(writers=writers, redactor=redactor, access=access, audit=audit)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Write off the loop while the block runs; see `LineWriter.running`."""
        async with contextlib.AsyncExitStack() as stack:
            for writer in self.writers:
                await stack.enter_async_context(writer.running())
            yield

    def watch(self, servers: Iterable[MCPServer]) -> None:
        """Write calls of these servers into the audit log, if there is one."""
        if self.audit is not None:
            for server in servers:
                server.add_middleware(self.audit)

    def reopen(self) -> None:
        """Open every file anew before its next line."""
        for writer in self.writers:
            writer.reopen()


@attrs.frozen
class _Places:
    """One writer for each place: two would mix their lines."""

    folder: Path
    made: dict[Path | int, LineWriter] = attrs.field(factory=dict["Path | int", LineWriter])

    def writer(self, file: str, name: str) -> LineWriter:
        """The writer for a setting, with the name that it has in reports if it is new."""
        place = STREAMS[file] if file in STREAMS else self.folder / file
        if place not in self.made:
            # Trouble with the log of the service has to be told elsewhere, if there is a place.
            aloud = say if not self.made and isinstance(place, Path) else None
            self.made[place] = LineWriter(place, name, report=aloud)
        return self.made[place]


def _pretty(section: LoggingSection) -> bool:
    if section.format != "auto":
        return section.format == "text"
    return section.file in STREAMS and os.isatty(STREAMS[section.file])
