"""PostgreSQL for whoever speaks to it: addresses taken apart, and lines that can be cut.

Needs the extra `postgres`. psycopg knows asyncio and threads, not Trio: all of this blocks, and
belongs into a worker thread. What a database is asked stands with those who ask.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
from collections.abc import Mapping

import psycopg
import psycopg.conninfo

from mcp_trio.errors import ConfigurationError
from mcp_trio.network_guard import is_loopback
from mcp_trio.secrets import Secret, mask

MAX_SAID = 500
"""Characters of what the driver says of a failure."""


def parameters_of(whose: str, address: str) -> dict[str, str]:
    """Take an address apart.

    Raises:
        ConfigurationError: it is none, or has a password in it; the text repeats neither.
    """
    try:
        given = psycopg.conninfo.conninfo_to_dict(address)
    except psycopg.ProgrammingError:
        raise ConfigurationError(f"{whose}: the address is no PostgreSQL URL") from None
    if given.get("password"):
        raise ConfigurationError(f"{whose}: a password stands in secret_env or secret_file")
    return {name: str(value) for name, value in given.items() if value is not None}


def with_defaults(
    given: Mapping[str, str], *, connect_timeout: float, ca_file: str | None = None
) -> dict[str, str]:
    """What a line is opened with, beside the password.

    Beyond this machine, and with authorities of its own, a server is reached over TLS with a
    certificate that has to be its own, unless the address says otherwise.

    Args:
        given: what the address says.
        connect_timeout: seconds; less than 2 are 2, because libpq knows no less.
        ca_file: authorities to trust instead of the system's.
    """
    made = {"application_name": "mcp-trio", **given}
    made["connect_timeout"] = str(max(2, math.ceil(connect_timeout)))
    if ca_file is not None:
        made["sslrootcert"] = ca_file
    if ca_file is not None or not _is_near(made):
        made.setdefault("sslmode", "verify-full")
        if made["sslmode"] == "verify-full":
            made.setdefault("sslrootcert", "system")
    return made


def _is_near(parameters: Mapping[str, str]) -> bool:
    """Whether every host is this machine."""
    hosts = (parameters.get("hostaddr") or parameters.get("host") or "").split(",")
    return all(host == "" or host.startswith(("/", "@")) or is_loopback(host) for host in hosts)


def said(error: Exception, password: Secret | None) -> str:
    """What the driver says of a failure, in one line, bounded, and without the password."""
    # Before it is cut, or half of one could be left.
    masked = mask(str(error), () if password is None else (password,))
    return " ".join(masked.split())[:MAX_SAID]


class Line:
    """A connection, opened now, and the ways to end what it runs from another thread.

    The connection commits by itself and prepares no statements, which would not survive a
    pooler.

    Args:
        parameters: as `with_defaults` makes them.
        password: revealed once.

    Raises:
        psycopg.Error, OSError, ValueError: it cannot be opened.
    """

    def __init__(self, parameters: Mapping[str, str], password: Secret | None) -> None:
        self.connection = psycopg.connect(
            psycopg.conninfo.make_conninfo(
                **parameters, password=None if password is None else password.reveal()
            ),
            autocommit=True,
            prepare_threshold=None,
        )
        # A descriptor of our own for the same socket: that of the connection may be closed,
        # and its number given to another file, at any moment.
        self._socket = socket.socket(fileno=os.dup(self.connection.fileno()))
        self._lock = threading.Lock()

    def interrupt(self, timeout: float) -> None:
        """Ask the server to end what is running; cut the line if that takes longer, in seconds.

        From any thread. Never raises. With a libpq before 17 the line is cut at once.
        """
        if not psycopg.capabilities.has_cancel_safe():
            # What those have to ask with waits as long as the server does, and all threads with it.
            self.cut()
            return
        try:
            self.connection.cancel_safe(timeout=timeout)
        except (psycopg.Error, OSError):
            self.cut()

    def cut(self) -> None:
        """End the connection as a broken network would. From any thread. Never raises."""
        with self._lock, contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Say goodbye and close it; again, it does nothing. Never raises."""
        with contextlib.suppress(psycopg.Error, OSError):
            self.connection.close()
        with self._lock:
            self._socket.close()
