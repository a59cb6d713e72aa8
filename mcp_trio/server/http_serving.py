"""Serving clients over HTTP: the part of `MCPServer` that makes endpoints and listens.

What an endpoint does is written in `mcp_trio.http`. Hypercorn is imported when it is first served.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, cast

import attrs
import trio

from mcp_trio.http.app import HTTPApp
from mcp_trio.http.options import HTTPOptions
from mcp_trio.http.serving_settings import ServingSettings
from mcp_trio.server.line_servers import Drainable
from mcp_trio.session.dispatch import Service

if TYPE_CHECKING:
    # Slow to import, and no part of a server that speaks over lines.
    from mcp_trio.http.access import Tell
    from mcp_trio.http.by_path import ByPath
    from mcp_trio.http.responses import Application
    from mcp_trio.http.seats import Seat
    from mcp_trio.http.serving import HTTPService, ServiceStatistics
    from mcp_trio.http.statistics import AppStatistics
    from mcp_trio.http.tls import TLSOptions


@attrs.frozen
class RunningHTTP:
    """One `serve_http` while it serves."""

    service: HTTPService
    """The socket layer."""
    app: ByPath
    """The endpoints."""


class HTTPServing:
    """The part of `MCPServer` that serves clients over HTTP."""

    _services: list[Drainable]
    _http: list[RunningHTTP]

    def asgi_app(
        self,
        options: HTTPOptions | None = None,
        *,
        host: str = "127.0.0.1",
        ready: Callable[[], bool] = lambda: True,
    ) -> HTTPApp:
        """The Streamable HTTP endpoint as an ASGI application, for a server that runs on Trio.

        Handshake sessions live in the lifespan of the application, so the ASGI server has
        to run that protocol. `serve_http` does without.

        Args:
            options: bounds and names of the endpoint.
            host: the address the ASGI server binds; decides which Host values are served.
            ready: what `GET /readyz` answers.
        """
        # MCPServer is the only subclass, and a Service.
        return HTTPApp(cast("Service", self), options, host=host, ready=ready)

    async def serve_http(  # noqa: PLR0913  # keyword-only options of one service
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        unix_socket: str | os.PathLike[str] | None = None,
        unix_mode: int = 0o600,
        inherited: bool = False,
        tls: TLSOptions | None = None,
        options: HTTPOptions | None = None,
        settings: ServingSettings | None = None,
        ready: Callable[[], bool] = lambda: True,
        others: Mapping[str, HTTPServing] | None = None,
        seat: Seat | None = None,
        tell: Tell | None = None,
        task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve Streamable HTTP on Hypercorn's protocols until drained or cancelled.

        Cancelling ends every request at once; `drain` lets them finish first.

        Args:
            host: address to bind.
            port: port to bind, 0 picks a free one.
            unix_socket: path of a Unix socket to listen on instead. A socket file that nobody
                serves is replaced; in the end the file is removed.
            unix_mode: permissions of its file. Nobody can connect before they are set.
            inherited: listen on what systemd has opened instead (socket activation).
            tls: certificates; they are read again when they change.
            options: bounds and names of the endpoint.
            settings: bounds of the socket layer.
            ready: what `GET /readyz` answers.
            others: more servers on the same port, each by a path of its own. They go down with
                this one, and have the same options but for HTTP+SSE.
            seat: this process is one of several that serve the endpoint together; it has the
                listeners, and requests of the other processes' sessions are relayed to them.
            tell: called with the note of each HTTP exchange that is over; must not wait or raise.
            task_status: reports the URLs of the endpoint.

        Raises:
            OSError: the address cannot be bound.
            ConfigurationError: the certificates, the trusted proxies or the inherited sockets
                cannot be used, or the options' `auth` is about another path.
        """
        from mcp_trio.http.binding import Place, listening  # noqa: PLC0415 - as the next one
        from mcp_trio.http.relay import Relay  # noqa: PLC0415 - as the next one
        from mcp_trio.http.serving import HTTPService  # noqa: PLC0415 - Hypercorn is slow to import

        options = options or HTTPOptions()
        if seat is not None:
            options = attrs.evolve(options, session_prefix=seat.prefix)
        app = self._by_path(options, others or {}, host, ready)
        place = Place(
            host=host, port=port, unix=unix_socket, unix_mode=unix_mode, inherited=inherited
        )
        settings = settings or ServingSettings()
        outer = app if seat is None else Relay.around(app, seat, options, settings)
        service = HTTPService(
            outer,
            settings=settings,
            tls=tls,
            on_drain=app.drain,
            tell=tell,
            accept_pause=0.0 if seat is None else seat.accept_pause,
        )
        where = listening(place, backlog=service.backlog) if seat is None else seat.listening()
        async with where as listeners:
            with self._running(RunningHTTP(service, app)):
                async with trio.open_nursery() as nursery:
                    await nursery.start(app.run)
                    async with trio.open_nursery() as serving:
                        if seat is not None:
                            await serving.start(self._serve_others, app, seat, settings)
                        urls = await serving.start(service.run_listeners, listeners)
                        task_status.started([url + options.path for url in urls])
                    nursery.cancel_scope.cancel()

    def _by_path(
        self,
        options: HTTPOptions,
        others: Mapping[str, HTTPServing],
        host: str,
        ready: Callable[[], bool],
    ) -> ByPath:
        """The endpoint of this server, and those of others at paths of their own."""
        from mcp_trio.http.by_path import ByPath  # noqa: PLC0415 - Hypercorn is slow to import

        made = {
            path.rstrip("/"): server.asgi_app(options.at(path), host=host, ready=ready)
            for path, server in others.items()
        }
        return ByPath(self.asgi_app(options, host=host, ready=ready), made)

    async def _serve_others(
        self,
        app: Application,
        seat: Seat,
        settings: ServingSettings,
        *,
        task_status: trio.TaskStatus[list[str]],
    ) -> None:
        """Answer the processes that serve the endpoint with this one, until drained."""
        from mcp_trio.http.relay import inner_service  # noqa: PLC0415 - Hypercorn is slow to import

        inner = inner_service(app, seat, settings)
        self._services.append(inner)
        try:
            if cast("Service", self).notices.draining:
                inner.drain()
            with seat.door(inner.backlog) as door:
                await inner.run_listeners([door], task_status=task_status)
        finally:
            self._services.remove(inner)

    @contextlib.contextmanager
    def _running(self, running: RunningHTTP) -> Generator[None]:
        """While the block runs, what is told to the server is told to the service, too."""
        self._services.append(running.service)
        self._http.append(running)
        try:
            if cast("Service", self).notices.draining:
                running.service.drain()  # told to go down before it was up
            yield
        finally:
            self._services.remove(running.service)
            self._http.remove(running)

    def reload_certificates(self) -> bool:
        """Load the certificates of every HTTP service anew, for new connections.

        Any time, from the Trio thread, such as at SIGHUP. What cannot be used is logged, the
        certificate in use stays, and this returns False.
        """
        loaded = [each.service.reload_certificates() for each in self._http]
        return all(loaded)

    def http_statistics(self) -> list[tuple[ServiceStatistics, AppStatistics]]:
        """Count what goes on in each `serve_http` that serves now, `others` included."""
        return [(each.service.statistics(), each.app.statistics()) for each in self._http]
