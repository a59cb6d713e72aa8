"""`mcp-trio serve` with several processes: the parent, which opens the listeners and no catalog."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path

import attrs
import trio

from mcp_trio.cli.journals import Journals
from mcp_trio.config import AdminSection, Settings
from mcp_trio.eras.rounds import KEY_BYTES
from mcp_trio.errors import ConfigurationError
from mcp_trio.http import admin_page
from mcp_trio.http.admin import AdminApp, Document
from mcp_trio.http.binding import listening
from mcp_trio.http.serving import HTTPService
from mcp_trio.workers.gathering import Gathering
from mcp_trio.workers.leash import Handover
from mcp_trio.workers.supervisor import Supervisor

logger = logging.getLogger("mcp_trio.cli")

LONGEST = 100
"""Characters of the path of the folder of sockets: the system allows a little more for each."""


class Several:
    """A service of several processes, seen from the parent."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        """Prepare it.

        Args:
            settings: where logs go and where we listen.
            folder: what relative paths in them are relative to.

        Raises:
            ConfigurationError: the log cannot be opened.
        """
        # What clients do is the workers' to write down.
        quiet = attrs.evolve(settings, access_log=None, audit=None)
        self.journals = Journals.open(quiet, folder)
        self._folder = folder
        self._place = settings.server.place(folder)
        self._keys = [secrets.token_bytes(KEY_BYTES) for _ in range(4)]
        self._listeners: list[trio.SocketListener] = []
        self._supervisor: Supervisor | None = None
        self._draining = False

    def drain(self) -> None:
        """Accept nothing more and end when what runs has ended. Idempotent; never waits."""
        self._draining = True
        # The workers have these too; here they would only gather connections.
        for listener in self._listeners:
            listener.socket.close()
        if self._supervisor is not None:
            self._supervisor.drain()

    def reload(self) -> None:
        """Open logs anew, here and in the workers, which load certificates, too. Never waits."""
        self.journals.reopen()
        if self._supervisor is not None:
            self._supervisor.reload()

    async def run(
        self, settings: Settings, announce: Callable[[list[str], list[str]], None]
    ) -> None:
        """Serve until drained; cancelling ends it at once.

        Args:
            settings: what the workers serve.
            announce: told the URLs of the service, and of the admin listener, once it is up.

        Raises:
            OSError: an address cannot be bound.
            ConfigurationError: no worker can start.
        """
        backlog = settings.server.serving_settings(settings.limits).backlog
        async with listening(self._place, backlog=backlog) as self._listeners:
            with _rooms() as rooms:
                self._supervisor = supervisor = self._supervised(settings, rooms)
                if self._draining:
                    return
                async with trio.open_nursery() as nursery:
                    admin: list[str] = []
                    if settings.admin is not None:
                        gathering = Gathering(settings.server.workers, rooms, supervisor.metrics)
                        admin = await nursery.start(
                            _serve_admin, settings.admin, gathering, supervisor
                        )
                    supervisor.on_start = lambda urls: announce(urls, admin)
                    await supervisor.run()
                    nursery.cancel_scope.cancel()
        logger.info("all workers have ended")

    def _supervised(self, settings: Settings, rooms: Path) -> Supervisor:
        section = settings.server
        state_key, cursor_key, nonce_key, audit_key = self._keys
        # Asked now: while they are drained they are closed here, and nothing starts any more.
        descriptors = tuple(listener.socket.fileno() for listener in self._listeners)

        def hand_over(number: int) -> Handover:
            return Handover(
                number=number,
                count=section.workers,
                rooms=rooms,
                listeners=descriptors,
                settings=settings,
                folder=self._folder,
                state_key=state_key,
                cursor_key=cursor_key,
                nonce_key=nonce_key.hex(),
                audit_key=audit_key,
            )

        return Supervisor(
            worker_command(),
            hand_over,
            count=section.workers,
            patience=section.worker_timeout,
            grace=section.drain_delay + section.grace_period,
        )


def worker_command() -> list[str]:
    """What starts a worker, without the number of its descriptor.

    Modules come from where they came from here: from the working directory only if that is so here.
    """
    first = sys.path[0] if sys.path and not sys.flags.safe_path else None
    here = first is not None and Path(first).absolute() == Path.cwd()
    return [sys.executable, *([] if here else ["-P"]), "-m", "mcp_trio.cli.worker"]


@contextlib.contextmanager
def _rooms() -> Generator[Path]:
    """A folder for the sockets of the workers, which nobody else may enter."""
    given = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]  # of systemd
    made = Path(tempfile.mkdtemp(prefix="mcp-trio-", dir=given or None))
    try:
        if len(os.fsencode(made)) > LONGEST:
            raise ConfigurationError(f"the path of the folder for sockets is too long: {made}")
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


async def _serve_admin(
    section: AdminSection,
    gathering: Gathering,
    supervisor: Supervisor,
    *,
    task_status: trio.TaskStatus[list[str]],
) -> None:
    app = AdminApp(
        {
            "/": admin_page.page,
            **gathering.pages(),
            "/workers": lambda: Document.of(supervisor.describe()),
        },
        policy=section.policy(),
        ready=lambda: supervisor.ready,
    )
    await HTTPService(app).run(section.host, section.port, task_status=task_status)
