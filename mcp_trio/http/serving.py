"""The HTTP service: listeners, the number of connections, and the way to an end.

`HTTPService` accepts and refuses. Listeners are made in `binding`; who has connected is found out
in `arrival`; what happens on a connection lives in `connection`, the limits in `serving_settings`,
certificates in `tls`. It owns every task it starts: `run` returns when all of them have ended.
"""

import errno
import math
from collections.abc import Callable, Sequence
from typing import cast
from urllib.parse import quote

import attrs
import trio

from .access import Tell
from .arrival import Doorway
from .asgi_call import LOGGER, ASGIApp, ConnectionHandle
from .binding import listen_tcp
from .connection import Connection, ServiceParts
from .hypercorn_glue import ProtocolConfig, WorkerContext
from .serving_settings import ServingSettings
from .tls import Certificates, TLSOptions

__all__ = ["ConnectionHandle", "HTTPService", "ServiceStatistics", "ServingSettings"]

FULL_PAUSES = 50
"""How many times longer `accept_pause` is for a process that could only refuse."""

ACCEPT_PAUSE = 0.1
"""Seconds before accepting again when the process or the system is out of descriptors."""

TELL_AGAIN = 60.0
"""Seconds between two lines of the log about that."""

_OF_ONE = frozenset(
    {errno.ECONNABORTED, errno.EPROTO, errno.ENOPROTOOPT, errno.EPERM}
    | {errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENONET}
)
"""What has become of a connection before it was accepted, and says nothing of the next one."""
_NO_CAPACITY = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}


@attrs.frozen(kw_only=True)
class ServiceStatistics:
    """A snapshot of an `HTTPService`."""

    connections: int
    """Connections served now, including those whose requests have yet to end."""

    requests_in_flight: int
    """Application calls that have not returned."""

    connections_accepted: int
    """Connections served since the start."""

    connections_refused: int
    """Connections turned away because `max_connections` were served already."""

    address_refused: int
    """Connections, and requests behind trusted proxies, turned away because of
    `max_connections_per_address`."""

    draining: bool
    """Whether `HTTPService.drain` has been called."""

    certificate_expires: float | None
    """When the certificate in use ends, in seconds since 1970 (UTC); None without TLS."""


class HTTPService:
    """Serves an ASGI application over HTTP/1.1, HTTP/2 and WebSocket. One `run` per object."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: ServingSettings | None = None,
        tls: TLSOptions | None = None,
        on_drain: Callable[[], None] | None = None,
        tell: Tell | None = None,
        accept_pause: float = 0.0,
    ) -> None:
        """Prepare the service; nothing is opened yet.

        Args:
            app: an ASGI 3 application. It is not sent a lifespan.
            settings: the limits.
            tls: speak TLS on every connection, with these certificates.
            on_drain: called once, by `drain`, for the application to end its endless streams.
            tell: called with the note of each exchange that is over.
            accept_pause: seconds between two accepts, for one of several processes that accept
                from the same listener: the next connection is for another one. With
                `max_connections` it is longer, so that one with room may take what this one would
                refuse.

        Raises:
            ConfigurationError: the certificates or the trusted proxies cannot be used.
        """
        self._settings = ServingSettings() if settings is None else settings
        self._certificates = None if tls is None else Certificates(tls)
        self._parts = ServiceParts(
            app=app,
            doorway=Doorway(self._settings, self._certificates),
            settings=self._settings,
            config=ProtocolConfig(self._settings),
            context=WorkerContext(),
            tell=tell,
        )
        self._on_drain = on_drain
        self._accept_pause = accept_pause
        self._connections: set[Connection] = set()
        self._accepted = 0
        self._refused = 0
        self._tells_again = -math.inf
        self._used = False
        self._accepting = trio.CancelScope()
        self._serving = trio.CancelScope()

    @property
    def backlog(self) -> int:
        """Connections the kernel is to hold until they are accepted, for who makes listeners."""
        return self._settings.backlog

    async def run(
        self,
        host: str,
        port: int,
        *,
        task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Bind ``host`` and ``port`` and serve until drained; see `run_listeners`.

        Args:
            host: an address or a name; a name may stand for several addresses.
            port: 0 lets the system choose.
            task_status: started with the base URLs that are bound.

        Raises:
            OSError: the address cannot be bound.
            RuntimeError: this service has been run before.
        """
        self._take_turn()
        listeners = await listen_tcp(host, port, backlog=self._settings.backlog)
        await self._run(listeners, task_status)

    async def run_listeners(
        self,
        listeners: Sequence[trio.abc.Listener[trio.abc.Stream]],
        *,
        task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve what ``listeners`` accept; close them in the end.

        Returns after `drain`, once the last connection has ended or the grace period is over.
        Cancelling is the hard stop: every request is cancelled and every socket closed at once.

        Args:
            listeners: of sockets, or of TLS over sockets (`trio.SSLListener`).
            task_status: started with the base URL of each listener that has a socket.

        Raises:
            RuntimeError: this service has been run before.
        """
        self._take_turn()
        await self._run(listeners, task_status)

    def _take_turn(self) -> None:
        if self._used:
            raise RuntimeError("an HTTPService runs once; make a new one")
        self._used = True

    async def _run(
        self,
        listeners: Sequence[trio.abc.Listener[trio.abc.Stream]],
        task_status: trio.TaskStatus[list[str]],
    ) -> None:
        with self._serving:
            async with trio.open_nursery() as connections:
                with self._accepting:
                    async with trio.open_nursery() as acceptors:
                        if self._certificates is not None:
                            acceptors.start_soon(self._certificates.watch)
                        for listener in listeners:
                            acceptors.start_soon(self._accept, listener, connections)
                        secure = self._certificates is not None
                        task_status.started(_base_urls(listeners, secure=secure))

    def drain(self) -> None:
        """Begin the end: stop accepting, close idle connections, let requests finish.

        Any time, from the Trio thread; a second call does nothing. Answers that begin from now
        on say ``Connection: close``. After ``grace_period`` what is left is cancelled.
        """
        if self._parts.context.draining.is_set():
            return
        self._parts.context.draining.notify()
        self._serving.deadline = trio.current_time() + self._settings.grace_period
        self._accepting.cancel()
        for connection in self._connections:
            connection.drain()
        if self._on_drain is not None:
            self._on_drain()

    def reload_certificates(self) -> bool:
        """Load the certificates anew for new handshakes, now and not when a look finds a change.

        Any time, from the Trio thread. A pair that cannot be used is logged, the one in use
        stays, and this returns False.
        """
        return self._certificates is None or self._certificates.reload()

    def statistics(self) -> ServiceStatistics:
        """Return a snapshot of what the service is doing."""
        tls = self._certificates
        return ServiceStatistics(
            connections=len(self._connections),
            requests_in_flight=sum(each.requests_in_flight for each in self._connections),
            connections_accepted=self._accepted,
            connections_refused=self._refused,
            address_refused=self._parts.doorway.crowd.refused,
            draining=self._parts.context.draining.is_set(),
            certificate_expires=None if tls is None else tls.expires.timestamp(),
        )

    async def _accept(
        self, listener: trio.abc.Listener[trio.abc.Stream], connections: trio.Nursery
    ) -> None:
        async with listener:
            while True:
                await self._give_way()
                try:
                    stream = await listener.accept()
                except OSError as error:
                    if error.errno in _OF_ONE:
                        continue
                    if error.errno not in _NO_CAPACITY:
                        raise
                    self._tell_starving(error)
                    await trio.sleep(ACCEPT_PAUSE)
                    continue
                if len(self._connections) < self._settings.max_connections:
                    # Counted here, not in its task: a burst must not slip past the limit.
                    connection = Connection(self._parts, stream)
                    self._accepted += 1
                    self._connections.add(connection)
                    connections.start_soon(self._serve, connection)
                else:
                    self._refused += 1
                    connections.start_soon(self._refuse, stream)

    def _tell_starving(self, error: OSError) -> None:
        """Log that nothing can be accepted. It is tried again ten times a second, for hours."""
        now = trio.current_time()
        if now >= self._tells_again:
            self._tells_again = now + TELL_AGAIN
            LOGGER.error("cannot accept: %s; trying again every %s s", error, ACCEPT_PAUSE)

    async def _give_way(self) -> None:
        """Let another process that accepts from the same listener have the next connection."""
        if self._accept_pause:
            full = len(self._connections) >= self._settings.max_connections
            await trio.sleep((FULL_PAUSES if full else 1) * self._accept_pause)

    async def _serve(self, connection: Connection) -> None:
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    async def _refuse(self, stream: trio.abc.Stream) -> None:
        try:
            await self._parts.doorway.turn_away(stream)
        finally:
            await trio.aclose_forcefully(stream)


def _base_urls(
    listeners: Sequence[trio.abc.Listener[trio.abc.Stream]], *, secure: bool
) -> list[str]:
    """Return ``scheme://address:port`` of every listener that has a socket."""
    urls: list[str] = []
    for listener in listeners:
        scheme, bound = "https" if secure else "http", cast("object", listener)
        if isinstance(listener, trio.SSLListener):
            scheme = "https"
            bound = cast("trio.SSLListener[trio.abc.Stream]", listener).transport_listener
        if isinstance(bound, trio.SocketListener):
            urls.append(f"{scheme}{_authority(bound.socket)}")
    return urls


def _authority(bound: trio.socket.SocketType) -> str:
    name = bound.getsockname()
    if bound.family == trio.socket.AF_UNIX:
        # As other programs write it, too: the path stands where a host would.
        return f"+unix://{quote(name, safe='')}"
    host, port = name[:2]
    return f"://[{host}]:{port}" if ":" in host else f"://{host}:{port}"
