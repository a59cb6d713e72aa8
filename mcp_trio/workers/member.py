"""A worker's side: its place among the others, and what it does when the parent or they want it."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Generator
from typing import Self

import attrs
import trio

from mcp_trio.events import CatalogRefreshed, Event
from mcp_trio.http.responses import Application
from mcp_trio.http.seats import Seat
from mcp_trio.secrets import Secret
from mcp_trio.server.server import MCPServer, ServerOptions
from mcp_trio.workers.leash import ASK, DRAIN, LOOK, RELOAD, Handover, Report, WorkersEnd

MARGIN = 5.0
"""Seconds beyond the grace period after which a worker without a parent ends, whatever it does."""


class Member:
    """This process, as one of several."""

    def __init__(self, leash: WorkersEnd, given: Handover) -> None:
        """Make it.

        Args:
            leash: ties it to the parent.
            given: what the parent has handed over.
        """
        self._leash = leash
        self._given = given
        self._listing: str | None = None

    def seat(self, pages: Application) -> Seat:
        """Its place, with the listeners that it shares. Once."""
        given = self._given
        return Seat(
            number=given.number,
            count=given.count,
            folder=given.rooms,
            listeners=[_listener(descriptor) for descriptor in given.listeners],
            pages=pages,
        )

    def keyed(self, options: ServerOptions) -> ServerOptions:
        """Options with the keys that all workers share, where they have none of their own."""
        return attrs.evolve(
            options,
            state_keys=options.state_keys or (self._given.state_key,),
            cursor_secret=options.cursor_secret or self._given.cursor_key,
        )

    @property
    def nonce_key(self) -> Secret:
        """What nonces are made from, where the settings name no key."""
        return Secret(self._given.nonce_key)

    def started(self, urls: list[str]) -> None:
        """Tell the parent that the service is up."""
        self._leash.report(Report(urls=urls))

    def failed(self, reason: str) -> None:
        """Tell the parent that it cannot be."""
        self._leash.report(Report(fault=reason))

    def leave(self) -> None:
        """Remove the folder of sockets if nobody else will; the last one to leave succeeds."""
        if self._leash.orphaned:
            with contextlib.suppress(OSError):
                self._given.rooms.rmdir()

    @contextlib.contextmanager
    def obeying(
        self,
        server: MCPServer,
        leave: Callable[[], object],
        reload: Callable[[], object],
        look: Callable[[], object],
        ready: Callable[[], bool],
    ) -> Generator[Self]:
        """Do what the parent wants from now on, and tell it of changes while the block runs.

        Args:
            server: its events tell of the catalog.
            leave: goes down gently; called when the parent says so, or has ended.
            reload: reads again what files hold.
            look: has the registry looked at, because another worker has seen a change.
            ready: what the parent is told when it asks.
        """
        section = self._given.settings.server
        mercy = section.drain_delay + section.grace_period + MARGIN
        actions = {DRAIN: leave, RELOAD: reload, LOOK: look, ASK: lambda: self._answer(ready())}
        self._leash.obey(actions, mercy=mercy)
        with server.events.attach(self._hear):
            yield self

    def _answer(self, ready: bool) -> None:  # noqa: FBT001 - passed on
        self._leash.report(Report(ready=ready))

    def _hear(self, event: Event) -> None:
        if isinstance(event, CatalogRefreshed) and event.revision != self._listing:
            self._listing = event.revision
            self._leash.report(Report(listing=event.revision))


def _listener(descriptor: int) -> trio.SocketListener:
    os.set_inheritable(descriptor, False)
    return trio.SocketListener(trio.socket.from_stdlib_socket(socket.socket(fileno=descriptor)))
