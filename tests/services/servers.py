"""PostgreSQL servers of our own, in folders of their own, gone when the tests are over.

A server refuses to run as root, so there it runs as another user. Nothing listens beyond
127.0.0.1 and a socket in the folder.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from pathlib import Path

import psycopg
import pytest

UNPRIVILEGED = ("postgres", "nobody")
QUICK = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "40",
    "shared_buffers": "16MB",
    "autovacuum": "off",
    "hot_standby": "on",
    "wal_level": "replica",
    "max_wal_senders": "4",
    "log_min_messages": "fatal",
}


def program(name: str) -> str:
    """A program of the server; distributions do not put them on the path."""
    found = shutil.which(name)
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    if found is None and places:
        found = str(places[-1])
    if found is None:
        missing = f"{name} is missing: install PostgreSQL (apt-get install postgresql)"
        assert not os.environ.get("MCP_TRIO_TEST_POSTGRES"), missing
        pytest.skip(missing)
    return found


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Postgres:
    """One server. Started, stopped, killed and started again at the same place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self.user = None
        if os.geteuid() == 0:
            self.user = next(name for name in UNPRIVILEGED if _exists(name))
            shutil.chown(folder, self.user)
        self.settings = dict(QUICK)

    def run(self, name: str, *arguments: str) -> str:
        done = subprocess.run(
            [program(name), *arguments],
            user=self.user,
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(self.folder)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}{self.log()}"
        return done.stdout

    def log(self) -> str:
        place = self.folder / "log"
        return place.read_text()[-2000:] if place.exists() else ""

    def make(self) -> None:
        self.run("initdb", "-D", str(self.data), "-U", "admin", "-A", "trust", "-E", "UTF8", "-N")

    def follow(self, primary: Postgres) -> None:
        """Become a standby of another server."""
        self.run(
            "pg_basebackup",
            *("-D", str(self.data), "-R", "-X", "stream", "-c", "fast", "-N"),
            *("-d", primary.url("postgres", role="admin")),
        )

    def start(self) -> None:
        settings = {
            **self.settings,
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
        }
        options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
        # Not through a pipe: the server would keep it open.
        self.run(
            "pg_ctl", "start", "-w", "-t", "60", "-D", str(self.data),
            *("-l", str(self.folder / "log"), "-s", "-o", options),
        )  # fmt: skip

    def stop(self, mode: str = "immediate") -> None:
        """Stop it; `immediate` leaves every client without a word of goodbye."""
        self.run("pg_ctl", "stop", "-w", "-t", "60", "-D", str(self.data), "-m", mode, "-s")

    def promote(self) -> None:
        self.run("pg_ctl", "promote", "-w", "-t", "60", "-D", str(self.data), "-s")

    @property
    def running(self) -> bool:
        return (self.data / "postmaster.pid").exists()

    def kill(self) -> None:
        """End it whatever state it is in; for the end of a test."""
        if self.running:
            with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                self.stop()
                return
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def url(self, database: str, *, role: str = "reader", host: str = "127.0.0.1") -> str:
        return f"postgresql://{role}@{host}:{self.port}/{database}"


def _exists(name: str) -> bool:
    with contextlib.suppress(KeyError):
        return bool(pwd.getpwnam(name))
    return False


@contextlib.contextmanager
def server(prepare):
    """Make a server in a folder that another user can reach, and take everything away again."""
    folder = Path(tempfile.mkdtemp(prefix="mcp-trio-pg-", dir="/tmp"))
    made = Postgres(folder)
    try:
        prepare(made)
        made.start()
        yield made
    finally:
        made.kill()
        shutil.rmtree(folder, ignore_errors=True)


class Database:
    """A fresh database with a registry in it."""

    def __init__(self, place: Postgres) -> None:
        self.place = place
        self.name = f"db_{uuid.uuid4().hex}"
        with psycopg.connect(place.url("postgres", role="admin"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {self.name}")

    @property
    def admin(self) -> str:
        return self.place.url(self.name, role="admin")

    @property
    def url(self) -> str:
        """As a service that may only read."""
        return self.place.url(self.name)

    def grant(self) -> None:
        self.sql(
            "GRANT SELECT ON operations, registry_state, operation_changes, registry_history "
            "TO reader"
        )
        self.sql("GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON operations TO publisher")

    def sql(self, text: str, *values: object) -> list[tuple]:
        with psycopg.connect(self.admin, autocommit=True) as connection:
            cursor = connection.execute(text, values)
            return cursor.fetchall() if cursor.description else []
