"""Where a person comes back to after consenting: a loopback address, or wherever the program says.

The receiver is as small as can be: it takes one GET of one path with the right `state`, and
answers everything else with an error, so that a page somebody has open cannot end a login.
"""

from __future__ import annotations

import contextlib
import hmac
import sys
import webbrowser
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeAlias
from urllib.parse import parse_qs, urlsplit

import attrs
import h11
import trio

from mcp_trio.errors import TransportError, UnauthorizedError, sole_cause

MAX_REQUEST = 16 * 1024
REQUEST_TIMEOUT = 10.0
"""Seconds that one connection to the receiver may take."""
_PAGE = (
    b"<!doctype html><meta charset=utf-8><title>Done</title><p>You may close this window and go "
    b"back to the program."
)

OpenPage: TypeAlias = Callable[[str], Awaitable[None]]
"""Shows somebody a page."""


class Receiver(Protocol):
    """Somebody who is ready for one person to come back."""

    @property
    def uri(self) -> str:
        """The redirect URI."""
        ...

    async def visit(self, url: str, /) -> str:
        """Send the person to `url`, wait, and give the URI they came back to."""
        ...


class RedirectHandler(Protocol):
    """Gets ready for people who come back."""

    def receiving(self) -> AbstractAsyncContextManager[Receiver]:
        """Be ready while the block runs."""
        ...


@attrs.frozen
class Redirect:
    """People come back to a place of the program's own, a web application for example."""

    uri: str
    """The redirect URI."""
    send: Callable[[str], Awaitable[str]] = attrs.field(repr=False)
    """Sends the person to the URL it is given, and returns the URI they came back to, whole."""

    @asynccontextmanager
    async def receiving(self) -> AsyncGenerator[Receiver]:
        """Be ready while the block runs."""
        yield self

    async def visit(self, url: str, /) -> str:
        """Send the person to `url`, wait, and give the URI they came back to."""
        return await self.send(url)


async def open_browser(url: str) -> None:
    """Show a page in the person's browser, or say where it is. No shell is involved."""
    if urlsplit(url).scheme not in {"http", "https"}:
        raise UnauthorizedError("only http and https pages are opened")
    sys.stderr.write(f"To go on, consent at\n\n    {url}\n\n")
    sys.stderr.flush()
    # A browser that does not go into the background must hold up nobody who is cancelled.
    await trio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)


@attrs.frozen(kw_only=True)
class LoopbackRedirect:
    """People come back to a port of this machine, for programs of the command line (RFC 8252).

    The port is open only while somebody is away.
    """

    port: int = 0
    """0: any free one. A fixed one for clients whose redirect URI is registered with its port."""
    path: str = "/callback"
    open_page: OpenPage = open_browser
    timeout: float = 300.0
    """Seconds that a person may take."""

    @asynccontextmanager
    async def receiving(self) -> AsyncGenerator[Receiver]:
        """Be ready while the block runs.

        Raises:
            TransportError: the port cannot be had.
        """
        try:
            listeners = await trio.open_tcp_listeners(self.port, host="127.0.0.1")
        except OSError as error:
            raise TransportError(f"port {self.port} of 127.0.0.1 cannot be had") from error
        listener = listeners[0]
        async with listener:
            port = listener.socket.getsockname()[1]
            yield _Loopback(self, listener, f"http://127.0.0.1:{port}{self.path}")


@attrs.frozen
class _Loopback:
    settings: LoopbackRedirect
    listener: trio.SocketListener
    uri: str

    async def visit(self, url: str, /) -> str:
        state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        arrival = _Arrival(self.uri, state)
        try:
            with trio.move_on_after(self.settings.timeout):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.serve_listeners, arrival.serve, [self.listener])
                    # Not waited for: some browsers run until they are closed.
                    nursery.start_soon(self.settings.open_page, url)
                    await arrival.happened.wait()
                    nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            cause = sole_cause(group)
            if cause is group:
                raise
            raise cause from None
        if arrival.uri is None:
            raise UnauthorizedError(f"nobody came back within {self.settings.timeout:g} s")
        return arrival.uri


class _Arrival:
    """The one request that is waited for."""

    def __init__(self, redirect_uri: str, state: str) -> None:
        self._redirect = urlsplit(redirect_uri)
        self._state = state
        self.uri: str | None = None
        self.happened = trio.Event()

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer one connection; what goes wrong on it concerns nobody else."""
        with trio.move_on_after(REQUEST_TIMEOUT):
            # A browser that gave up, or no browser at all.
            with contextlib.suppress(trio.BrokenResourceError, h11.ProtocolError):
                await self._converse(stream)

    async def _converse(self, stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_REQUEST)
        async with stream:
            event = connection.next_event()
            while event is h11.NEED_DATA:
                connection.receive_data(await stream.receive_some())
                event = connection.next_event()
            if not isinstance(event, h11.Request):
                return
            found = self._judge(event)
            status, page = (200, _PAGE) if found else (404, b"")
            headers = [
                ("content-type", "text/html; charset=utf-8"),
                ("content-length", str(len(page))),
                # The code is in the address of the page.
                ("referrer-policy", "no-referrer"),
                ("cache-control", "no-store"),
                ("connection", "close"),
            ]
            answer = connection.send(h11.Response(status_code=status, headers=headers))
            answer += connection.send(h11.Data(data=page))
            await stream.send_all(answer + connection.send(h11.EndOfMessage()))
            if found is not None:
                self.uri = found
                self.happened.set()

    def _judge(self, request: h11.Request) -> str | None:
        target = request.target.decode("ascii", "replace")
        try:
            parts = urlsplit(target)
        except ValueError:
            return None
        host = dict(request.headers).get(b"host", b"").decode("ascii", "replace")
        given = parse_qs(parts.query).get("state", [""])[0]
        expected = request.method == b"GET" and parts.path == self._redirect.path
        # A name that was made to point here is not how we were called.
        if not expected or host != self._redirect.netloc:
            return None
        if not hmac.compare_digest(given.encode(), self._state.encode()):
            return None
        return self._redirect._replace(query=parts.query).geturl()
