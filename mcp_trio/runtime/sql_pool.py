"""Databases: a bounded pool of sessions, each used by one worker thread at a time.

Drivers know threads and not Trio. A statement is one hop to a thread, under the pool's
limiter, and that thread does all of it: session, transaction, rows. Whoever gives up tells
the driver to end the statement, and then waits a moment for the thread: a change that was
not committed by then is rolled back. What a driver does stands in `sql_sqlite` and
`sql_postgres`.
"""

from __future__ import annotations

import abc
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import attrs
import msgspec
import trio

from mcp_trio.runtime.adapters.sql_statement import Statement
from mcp_trio.runtime.stages import Stage, StageError

CANCEL_TIMEOUT = 1.0
"""Seconds that a statement has for ending when it is told to; then its session is cut."""


@attrs.frozen(kw_only=True)
class Order:
    """One statement to run."""

    statement: Statement
    values: Mapping[str, object]
    """JSON values of all parameters."""
    write: bool
    """In a transaction that may write and is committed, in place of one that may only read."""
    max_rows: int
    truncates: bool
    """Whether to stop at the limit, in place of an error."""
    max_bytes: int
    """Of all rows as JSON."""
    connect_timeout: float
    """Seconds for a new session."""
    deadline: float
    """Of the clock `time.monotonic`."""

    def left(self) -> float:
        """Seconds until the deadline, not less than a millisecond."""
        return max(0.001, self.deadline - time.monotonic())


@attrs.frozen(kw_only=True)
class Rows:
    """What a statement gave."""

    columns: Sequence[str]
    rows: list[object]
    """As objects by column."""
    row_count: int
    """Rows given; rows changed where the statement gives none."""
    gave_rows: bool
    cut: bool = False
    """Whether there were more."""


class RefusedError(Exception):
    """The database does not do it: what an operation reports as a failure of the upstream."""

    def __init__(self, message: str, *, code: str, retryable: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        """SQLSTATE, or SQLite's name of the result."""
        self.retryable = retryable


class InterruptedJobError(Exception):
    """Nobody waits for the statement any more."""


class Gathering:
    """The rows of one order as they come, held to its limits."""

    def __init__(
        self, order: Order, columns: Sequence[str], to_json: Callable[[object], object]
    ) -> None:
        twice = sorted({name for name in columns if list(columns).count(name) > 1})
        if twice:
            raise StageError(
                Stage.ADAPTER_EXECUTION,
                f"two columns are called {twice[0][:80]}; AS gives them names",
                sub="malformed_reply",
                step="operator",
            )
        self._order = order
        self.columns = columns
        self._to_json = to_json
        self._rows: list[object] = []
        self._bytes = 0
        self._cut = False

    def add(self, row: Sequence[object]) -> bool:
        """Take a row; False if no other is wanted."""
        if len(self._rows) >= self._order.max_rows:
            self._cut = True
            if self._order.truncates:
                return False
            raise StageError(
                Stage.ADAPTER_EXECUTION,
                f"the statement gives more than {self._order.max_rows} rows",
                sub="response_items",
                step="response_bytes",
            )
        made = {name: self._to_json(value) for name, value in zip(self.columns, row, strict=True)}
        self._bytes += len(msgspec.json.encode(made))
        if self._bytes > self._order.max_bytes:
            raise too_large(self._order.max_bytes)
        self._rows.append(made)
        return True

    def done(self) -> Rows:
        """All of them."""
        return Rows(
            columns=self.columns,
            rows=self._rows,
            row_count=len(self._rows),
            gave_rows=True,
            cut=self._cut,
        )


def too_large(limit: int) -> StageError:
    """The rows do not fit."""
    return StageError(
        Stage.ADAPTER_EXECUTION, f"the rows are larger than {limit} bytes", sub="response_bytes"
    )


class Session(abc.ABC):
    """One open session. Belongs to the thread that runs a job; `interrupt` and `cut` to any."""

    @abc.abstractmethod
    def serves(self, order: Order) -> bool:
        """Whether this session can run an order."""

    @abc.abstractmethod
    def run(self, job: Job) -> Rows:
        """Run the job's order in a transaction of its own, which has ended afterwards.

        Raises:
            RefusedError: the database refuses.
            StageError: the session broke, or the rows break a limit.
            InterruptedJobError: the job was given up.
        """

    @property
    @abc.abstractmethod
    def usable(self) -> bool:
        """Whether another job may have it."""

    @abc.abstractmethod
    def interrupt(self) -> None:
        """Tell the database to end what is running. May wait for `CANCEL_TIMEOUT`; never raises."""

    @abc.abstractmethod
    def cut(self) -> None:
        """Break the session, so that its thread comes back. Never raises."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close it. Never raises."""


class Driver(abc.ABC):
    """Opens sessions to one database."""

    @abc.abstractmethod
    def open(self, order: Order) -> Session:
        """Open a session that can run an order. In a worker thread.

        Raises:
            StageError: it cannot be.
        """


class Job:
    """One order on its way through a thread, and the way to give it up."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self._lock = threading.Lock()
        self.given_up = threading.Event()
        """Set when nobody waits for it any more."""
        self._ended = threading.Event()
        self._committing = False
        self._session: Session | None = None

    def check(self) -> None:
        """Raise `InterruptedJobError` if it was given up before a thread had it."""
        if self.given_up.is_set():
            raise InterruptedJobError

    def use(self, session: Session) -> None:
        """Say which session is to be interrupted.

        Raises:
            InterruptedJobError: it was given up.
        """
        with self._lock:
            if self.given_up.is_set():
                raise InterruptedJobError
            self._session = session

    def leave(self) -> None:
        """Say that the session is no longer its own."""
        with self._lock:
            self._session = None

    def end(self) -> None:
        """Say that the thread is done with it."""
        self._ended.set()

    def begin_commit(self) -> None:
        """Say that the change is being made good: from here on it is not interrupted.

        Raises:
            InterruptedJobError: it was given up.
        """
        with self._lock:
            if self.given_up.is_set():
                raise InterruptedJobError
            self._committing = True

    def give_up(self) -> None:
        """End it, and wait until its thread has; that may take twice `CANCEL_TIMEOUT`."""
        with self._lock:
            self.given_up.set()
            committing, session = self._committing, self._session
        if session is None:
            return  # not begun, still connecting, or over: nothing can change any more
        if not committing:
            session.interrupt()
        if self._ended.wait(CANCEL_TIMEOUT):
            return
        with self._lock:
            session = self._session
        if session is not None:
            session.cut()
            self._ended.wait(CANCEL_TIMEOUT)


class SqlPool:
    """The sessions to one database. A resource of `Connections`.

    Args:
        driver: opens sessions.
        size: sessions at once; orders beyond it wait, within their scope.
    """

    def __init__(self, driver: Driver, size: int) -> None:
        self._driver = driver
        self._size = size
        self._limiter = trio.CapacityLimiter(size)
        self._enders = trio.CapacityLimiter(size)
        """For threads that end others; those must not wait for one of them."""
        self._lock = threading.Lock()
        # All under the lock.
        self._idle: list[Session] = []
        self._open = 0
        self._closed = False
        self._running: set[Job] = set()

    @property
    def open(self) -> int:
        """How many sessions there are."""
        return self._open

    async def run(self, order: Order) -> Rows:
        """Run an order.

        When cancelled, the statement has been ended and its change rolled back before this
        returns, unless the database does not even react to that.

        Raises:
            RefusedError, StageError: see `Session.run`.
            trio.ClosedResourceError: the pool was closed.
        """
        job = Job(order)
        try:
            return await trio.to_thread.run_sync(
                self._work, job, abandon_on_cancel=True, limiter=self._limiter
            )
        except trio.Cancelled:
            # Bounded by itself.
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(job.give_up, limiter=self._enders)
            raise
        except InterruptedJobError as error:
            raise trio.ClosedResourceError("the connections are closed") from error

    async def aclose(self) -> None:
        """End what is running, and close all sessions."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        async with trio.open_nursery() as nursery:
            for job in running:
                nursery.start_soon(self._end, job)
        await trio.to_thread.run_sync(self._close_idle, limiter=self._enders)

    async def _end(self, job: Job) -> None:
        await trio.to_thread.run_sync(job.give_up, abandon_on_cancel=True, limiter=self._enders)

    # What runs in threads.

    def _work(self, job: Job) -> Rows:
        job.check()
        try:
            with self._lock:
                if self._closed:
                    raise InterruptedJobError
                self._running.add(job)
            session = self._take(job)
            try:
                return session.run(job)
            finally:
                job.leave()
                self._give_back(session)
        finally:
            with self._lock:
                self._running.discard(job)
            job.end()

    def _take(self, job: Job) -> Session:
        session = self._from_idle(job.order)
        if session is None:
            try:
                session = self._driver.open(job.order)
            except BaseException:
                with self._lock:
                    self._open -= 1
                raise
        try:
            job.use(session)
        except BaseException:
            self._give_back(session)
            raise
        return session

    def _from_idle(self, order: Order) -> Session | None:
        """A session, the one used last; None if one is to be opened, for which there is room."""
        gone: list[Session] = []
        with self._lock:
            found: Session | None = None
            for session in reversed(self._idle):
                if session.serves(order):
                    found = session
                    self._idle.remove(session)
                    break
            if found is None:
                while self._idle and self._open >= self._size:
                    gone.append(self._idle.pop(0))
                    self._open -= 1
                self._open += 1
        for session in gone:
            session.close()
        return found

    def _give_back(self, session: Session) -> None:
        with self._lock:
            keep = session.usable and not self._closed
            if keep:
                self._idle.append(session)
            else:
                self._open -= 1
        if not keep:
            session.close()

    def _close_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
            self._open -= len(idle)
        for session in idle:
            session.close()
