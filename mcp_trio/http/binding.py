"""Where a service listens: a TCP port, a Unix socket, or what the service manager has opened.

Nothing is accepted here.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncGenerator, Mapping, MutableMapping

import attrs
import trio

from mcp_trio.errors import ConfigurationError
from mcp_trio.transports.socket_file import SocketFile

FIRST_INHERITED = 3
"""The first descriptor that systemd hands over (sd_listen_fds(3))."""


@attrs.frozen(kw_only=True)
class Place:
    """One place to listen at. The first of these that is given counts: `inherited`, `unix`, TCP."""

    host: str = "127.0.0.1"
    """Address or name; a name may stand for several addresses."""
    port: int = 0
    """0 lets the system choose."""
    unix: str | os.PathLike[str] | None = None
    """Path of a Unix socket."""
    unix_mode: int = 0o600
    """Permissions of its file."""
    inherited: bool = False
    """The sockets that the service manager has opened (systemd socket activation)."""


async def listen_tcp(host: str, port: int, *, backlog: int) -> list[trio.SocketListener]:
    """Bind an address, or all addresses of a name.

    Raises:
        OSError: it cannot be bound; the text names it.
    """
    try:
        listeners = await trio.open_tcp_listeners(port, host=host, backlog=backlog)
    except OSError as error:
        reason = f"cannot listen on {host} port {port}: {error.strerror or error}"
        raise OSError(error.errno, reason) from error
    for listener in listeners:
        # Accepted sockets inherit it: a peer that vanished without a word is found in time.
        listener.socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_KEEPALIVE, 1)
    return listeners


def inherited_listeners(
    environment: MutableMapping[str, str] = os.environ,
) -> list[trio.SocketListener]:
    """Take over the sockets that the service manager has opened for this process.

    They are taken once: the variables that name them are removed, so that no child takes them.

    Raises:
        ConfigurationError: there are none, or one is no stream socket that listens.
    """
    descriptors = _handed_over(environment)
    for name in ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"):
        environment.pop(name, None)
    if not descriptors:
        raise ConfigurationError("no socket was handed over: LISTEN_FDS is not for this process")
    listeners: list[trio.SocketListener] = []
    number = FIRST_INHERITED
    try:
        for number in descriptors:
            os.set_inheritable(number, False)
            made = socket.socket(fileno=number)
            made.setblocking(False)
            listeners.append(trio.SocketListener(trio.socket.from_stdlib_socket(made)))
    except (OSError, ValueError) as error:
        for listener in listeners:
            listener.socket.close()
        reason = f"descriptor {number} is no socket that listens for streams"
        raise ConfigurationError(reason) from error
    return listeners


def inherited_hosts(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The addresses of the TCP sockets that `inherited_listeners` would take; takes none."""
    hosts: list[str] = []
    for number in _handed_over(environment):
        # What is no socket is told by whoever takes it.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as made:
            if made.family in {socket.AF_INET, socket.AF_INET6}:
                hosts.append(made.getsockname()[0])
    return hosts


def _handed_over(environment: Mapping[str, str]) -> range:
    """The descriptors that are for this process."""
    count = environment.get("LISTEN_FDS", "")
    mine = environment.get("LISTEN_PID") == str(os.getpid())
    if not mine or not count.isdecimal() or not 0 < int(count) < 1024:
        return range(0)
    return range(FIRST_INHERITED, FIRST_INHERITED + int(count))


def _socket_file(path: str | os.PathLike[str], mode: int, backlog: int) -> SocketFile:
    try:
        return SocketFile(path, mode, backlog)
    except OSError as error:
        reason = f"cannot listen on {os.fspath(path)}: {error.strerror or error}"
        raise OSError(error.errno, reason) from error


@contextlib.asynccontextmanager
async def listening(place: Place, *, backlog: int) -> AsyncGenerator[list[trio.SocketListener]]:
    """Listen while the block runs. The file of a Unix socket is removed in the end.

    Raises:
        OSError: the place cannot be bound, or somebody serves that Unix socket.
        ConfigurationError: see `inherited_listeners`.
    """
    with contextlib.ExitStack() as stack:
        if place.inherited:
            listeners = inherited_listeners()
        elif place.unix is not None:
            file = stack.enter_context(_socket_file(place.unix, place.unix_mode, backlog))
            listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(file.socket))]
        else:
            listeners = await listen_tcp(place.host, place.port, backlog=backlog)
        for listener in listeners:
            stack.callback(listener.socket.close)
        yield listeners
