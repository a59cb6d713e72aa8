"""One client's connection: one line to its server at a time, opened as often as it takes.

The only task that opens and closes lines; each has a nursery of its own within it, so a line
is gone before the next one is opened. Another line is needed when the first question has ended
the first one, when HTTP knows only the older transport, when an HTTP server has forgotten its
session, and when a program that may be started again has died. A call that had been sent by
then has failed, and is sent again only if the server says that it has done nothing for it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import attrs
import trio

from mcp_trio.abc import Transport
from mcp_trio.client.negotiation import Agreed, Anew, Listening, Negotiation
from mcp_trio.client.options import ClientOptions
from mcp_trio.client.targets import Lines
from mcp_trio.eras.negotiate import Known, Step, first_step
from mcp_trio.errors import MCPError, TransportClosedError, UnauthorizedError
from mcp_trio.session.session import Dispatcher

logger = logging.getLogger("mcp_trio.client")

HEALTHY = 60.0
"""Seconds after which a line that broke counts as one that worked."""
MAX_PAUSE = 30.0
"""Seconds between two restarts, at most."""


@attrs.frozen(kw_only=True)
class Making:
    """How a connection makes what stands on a line."""

    session: Callable[[Transport], Dispatcher]
    negotiation: Callable[[Transport, Dispatcher], Negotiation]
    opened: Callable[[Dispatcher, Agreed], Awaitable[None]]
    """Told of each opening, before anybody who waits for it."""


class Connection:
    """The connection of one client. `run` is its task."""

    def __init__(self, lines: Lines, options: ClientOptions, making: Making) -> None:
        self._lines = lines
        self._options = options
        self._making = making
        self._session: Dispatcher | None = None
        self._lasting = lines.restarts > 0
        """Whether another line may be there when this one has ended."""
        self._worth_another = True
        """Whether the line that was used last has ended in a way that another one may mend."""
        self._changed = trio.Event()
        self._scope = trio.CancelScope()
        self._closing = False
        self._over = trio.Event()

    @property
    def session(self) -> Dispatcher:
        """The session in use, or the one that was the last.

        Raises:
            TransportClosedError: there was none yet.
        """
        if self._session is None:
            raise TransportClosedError("the client is not connected")
        return self._session

    async def usable(self) -> None:
        """Wait while the line is being opened again; done at once if it will not be."""
        while self.session.closed and self._lasting:
            await self._changed.wait()

    async def replaced(self, session: Dispatcher) -> bool:
        """Wait for the session after this one, which is about to end. False if it was the last."""
        while self._session is session and self._lasting:
            await self._changed.wait()
        return self._session is not session

    async def renewed(self, session: Dispatcher) -> bool:
        """Wait for the session after this one. False if this one goes on, or was the last."""
        if not session.closed:
            return False
        await self.usable()
        return self._session is not session

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the connection and keep it until the server ends it for good.

        Raises:
            MCPError: it cannot be opened. Later that is told to those who use it.
        """
        try:
            with self._scope:
                await self._keep(task_status)
        finally:
            self._lasting = False
            self._over.set()
            self._tell()

    async def _keep(self, task_status: trio.TaskStatus[None]) -> None:
        left = self._lines.restarts
        while True:
            began = trio.current_time()
            try:
                await self._open(task_status)
            except MCPError as error:
                if self._session is None:
                    raise
                logger.warning("the server cannot be reached again: %s", error)
            if trio.current_time() - began > HEALTHY:
                left = self._lines.restarts
            if self._closing or not left or not self._worth_another:
                return
            await trio.sleep(self._pause(self._lines.restarts - left))
            left -= 1
            logger.warning("the connection to the server is opened again")

    async def close(self) -> None:
        """End the session, so that the server still hears what was said, and then the task.

        Bounded in time by what a session and its line may take. Once cancelled, it leaves the
        rest to whoever cancels `run`.
        """
        self._closing = True
        if self._session is None or self._session.closed:
            self._scope.cancel()
        else:
            self._session.cancel()
        await self._over.wait()

    def _pause(self, failures: int) -> float:
        return min(MAX_PAUSE, 0.5 * 2.0**failures - 0.5)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _open(self, task_status: trio.TaskStatus[None]) -> None:
        """Open a line in the way that is known, or else find one out; return when it ends."""
        key = self._lines.key
        known = None if key is None else self._options.eras.get(key, self._options.revisions)
        if key is not None and known is not None:
            try:
                await self._go(known, task_status)
                return
            except UnauthorizedError:
                raise
            except MCPError as error:
                logger.info("the server is not what it was: %s", error)
                self._options.eras.forget(key)
                if known.step is first_step(self._options.revisions):
                    raise
        await self._go(None, task_status)

    async def _go(self, known: Known | None, task_status: trio.TaskStatus[None]) -> None:
        step = first_step(self._options.revisions, known)
        first: MCPError | None = None
        while True:
            try:
                outcome = await self._line(step, known, task_status)
            except MCPError as error:
                if first is not None and step is Step.EVENT_STREAM:
                    raise first from error  # the newer transport is the one that was asked for
                raise
            if outcome is None:
                return
            if not self._lines.again or (
                outcome.step is Step.EVENT_STREAM and not self._lines.older
            ):
                raise outcome.error
            step, first = outcome.step, outcome.error

    async def _line(
        self, step: Step, known: Known | None, task_status: trio.TaskStatus[None]
    ) -> Anew | None:
        """Open a line and live on it. None when it has ended, else what to do instead.

        Raises:
            MCPError: the server cannot be reached, or refuses.
            BaseExceptionGroup: something went wrong while the line was in use.
        """
        refusal: MCPError | None = None
        outcome: Anew | Agreed | None = None
        async with (
            self._lines.open(older=step is Step.EVENT_STREAM) as transport,
            trio.open_nursery() as nursery,
        ):
            session = self._making.session(transport)
            ended = trio.Event()
            await nursery.start(_run, session, ended)
            try:
                outcome = await self._making.negotiation(transport, session).run(step, known)
            except MCPError as error:
                refusal = error
            if isinstance(outcome, Agreed):
                first = self._session is None
                await self._use(session, outcome)
                if first:
                    task_status.started()
                await ended.wait()
            nursery.cancel_scope.cancel()
        if isinstance(outcome, Agreed):
            forgotten = isinstance(transport, Listening) and transport.expired
            self._worth_another = forgotten or not self._lines.older
        if refusal is not None:
            raise refusal
        return outcome if isinstance(outcome, Anew) else None

    async def _use(self, session: Dispatcher, agreed: Agreed) -> None:
        if self._lines.key is not None:
            self._options.eras.learn(self._lines.key, agreed.step, agreed.revision)
        self._session = session
        await self._making.opened(session, agreed)
        self._tell()


async def _run(
    session: Dispatcher, ended: trio.Event, *, task_status: trio.TaskStatus[None]
) -> None:
    try:
        await session.run(task_status=task_status)
    finally:
        ended.set()
