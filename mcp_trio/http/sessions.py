"""The table of handshake sessions over HTTP: who they are, and when they end.

A session is one task with one nursery of its own, in the nursery of the app. Idle expiry is a
deadline of that nursery: no timer task, the deadline moves while something goes on. Sessions are
many and mostly idle, so what only a busy one needs is made when it is needed.
"""

from __future__ import annotations

import math
import operator
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator

import trio

from mcp_trio.abc import Transport
from mcp_trio.engine.envelope import Principal
from mcp_trio.events import Reporter
from mcp_trio.http.options import HTTPOptions
from mcp_trio.http.replay import ReplayBuffer
from mcp_trio.http.session_streams import Patience, SessionStreams
from mcp_trio.session.admission import caller_of
from mcp_trio.session.dispatch import Service
from mcp_trio.session.limits import SessionLimits
from mcp_trio.session.line_session import LineSession
from mcp_trio.session.reaper import Reaper
from mcp_trio.session.serving import ServerSide
from mcp_trio.session.session import Dispatcher

SPARED = 60.0
"""Seconds of silence after which a session may have to make room for another. Less, and a flood
of `initialize` would end the sessions of everybody who pauses to think."""
HOARD = 10
"""One caller who has more than this part of all sessions, a tenth, has to make room for others."""


class _Once:
    """A task status that lets go of its nursery once it has been told.

    A frame that keeps Trio's own one keeps with it the task that waited for the start.
    """

    __slots__ = ("_status",)

    def __init__(self, status: trio.TaskStatus[None]) -> None:
        self._status: trio.TaskStatus[None] | None = status

    def started(self, value: None = None) -> None:
        """Say that the session runs."""
        status, self._status = self._status, None
        if status is not None:
            status.started(value)


class HTTPSession:
    """One session of the handshake era, from `initialize` to DELETE, expiry or shutdown."""

    __slots__ = (
        "_connections",
        "_idle_timeout",
        "caller",
        "dispatcher",
        "id",
        "patience",
        "principal",
        "side",
        "silent_since",
        "streams",
    )

    def __init__(  # noqa: PLR0913  # what all sessions share, and what each has
        self,
        service: Service,
        options: HTTPOptions,
        *,
        limits: SessionLimits,
        reaper: Reaper,
        reporter: Reporter,
        principal: Principal | None,
        caller: str | None,
        patience: Patience,
    ) -> None:
        # 192 random bits in visible ASCII (H9, H12).
        self.id = options.session_prefix + secrets.token_urlsafe(24)
        self.principal = principal
        self.caller = caller
        """What whoever opened it counts as."""
        self.streams = SessionStreams(ReplayBuffer(options.replay_events, options.replay_bytes))
        self.side = ServerSide(service, principal=principal)
        self.dispatcher = Dispatcher(
            self.streams,
            self.side,
            limits=limits,
            reaper=reaper,
            reporter=reporter,
            admission=service.admission,
        )
        self.dispatcher.entrance.caller = caller
        self.side.attach(self.dispatcher)
        self.dispatcher.on_idle_change = self.touch
        self.dispatcher.on_unanswered = self.streams.unanswered
        self.dispatcher.on_release = self.streams.release
        self.patience = patience
        self._idle_timeout = options.session_idle_timeout
        self.silent_since = math.inf
        """When something went on last; infinity while something does."""
        self._connections = 0

    def touch(self) -> None:
        """Move the deadline: never while something runs, else `session_idle_timeout` from now."""
        busy = self._connections or self.dispatcher.peer.running
        if busy and self.silent_since == math.inf:
            return
        self.silent_since = math.inf if busy else trio.current_time()
        self.dispatcher.expire_at(self.silent_since + self._idle_timeout)

    def connected(self, change: int) -> None:
        """Count the connections that wait on a stream of this session."""
        self._connections += change
        self.touch()

    def cancel(self) -> None:
        """End the session: its requests are cancelled and its streams end."""
        self.streams.close()
        self.dispatcher.cancel()


class SessionTable:
    """All sessions of one endpoint: its own, and those that are one connection."""

    def __init__(self, service: Service, options: HTTPOptions, reaper: Reaper) -> None:
        self._service = service
        self._options = options
        self._reaper = reaper
        self._reporter = Reporter(service.events, "server")
        self._limits = SessionLimits(
            max_in_flight=service.admission.limits.most_of_session,
            cleanup_timeout=options.cleanup_timeout,
        )
        self.patience = Patience(options.sse_after)
        """Watches what the POSTs of all sessions wait for; runs where the sessions do."""
        self._sessions: dict[str, HTTPSession] = {}
        self._lines: dict[LineSession, str | None] = {}
        """With what whoever opened each counts as, the oldest first."""
        self._held = Counter[str | None]()
        """Sessions of both kinds by caller."""
        self._looks_again = -math.inf
        """Before this time nothing can be found that makes room."""

    def __len__(self) -> int:
        return len(self._sessions) + len(self._lines)

    def __iter__(self) -> Iterator[HTTPSession]:
        return iter(tuple(self._sessions.values()))

    @property
    def lines(self) -> tuple[LineSession, ...]:
        """The sessions that are one connection each."""
        return tuple(self._lines)

    def has_room(self, caller: str | None) -> bool:
        """Tell whether one more may begin, and if not, end another one for it if that is fair.

        That is one that has been silent longest, for `SPARED` at least; its client gets 404 and
        opens another, as after any other end (H11). Or one of a caller who hoards them.

        Args:
            caller: who wants one; see `caller_of`.
        """
        if len(self) < self._options.max_sessions:
            return True
        return self._end_a_silent_one() or self._end_one_of_a_hoard(caller)

    def _end_a_silent_one(self) -> bool:
        now = trio.current_time()
        if now < self._looks_again:
            return False
        # Later nothing can be silent since an earlier time, so a flood costs one look.
        oldest = min(self._sessions.values(), key=lambda s: s.silent_since, default=None)
        since = math.inf if oldest is None else oldest.silent_since
        self._looks_again = min(since, now) + SPARED
        if oldest is None or now < self._looks_again:
            return False
        self.end(oldest)
        return True

    def _end_one_of_a_hoard(self, caller: str | None) -> bool:
        """Have who has most give one up, if that are many and more than the caller would have.

        Else one caller could keep out all others, with a touch a minute for each of his sessions.
        """
        whose, most = max(self._held.items(), key=operator.itemgetter(1), default=(None, 0))
        if most <= self._options.max_sessions // HOARD or most <= self._held[caller] + 1:
            return False
        own = [session for session in self._sessions.values() if session.caller == whose]
        if own:
            self.end(min(own, key=lambda s: (bool(s.dispatcher.peer.running), s.silent_since)))
        else:
            line = next(line for line, held_by in self._lines.items() if held_by == whose)
            self._drop_line(line)
            line.cancel()
        return True

    async def run_line(
        self,
        transport: Transport,
        accept: Callable[[], Awaitable[bool]],
        principal: Principal | None,
        address: str | None,
    ) -> None:
        """Be a session on one connection until it ends. The caller has asked `has_room`.

        Args:
            transport: the connection; taken over and closed.
            accept: opens it, once the session is counted; False if the client has left.
            principal: who opened it.
            address: where he is, as he counts against limits.
        """
        options = self._options
        session = LineSession(
            self._service,
            transport,
            limits=self._limits,
            idle_timeout=options.session_idle_timeout,
            principal=principal,
            address=address,
        )
        caller = caller_of(principal, address)
        self._lines[session] = caller
        self._held[caller] += 1
        try:
            if await accept():
                await session.run()
        finally:
            self._drop_line(session)

    async def create(
        self, nursery: trio.Nursery, principal: Principal | None, caller: str | None
    ) -> HTTPSession:
        """Start a session. The caller has asked `has_room`."""
        session = HTTPSession(
            self._service,
            self._options,
            limits=self._limits,
            reaper=self._reaper,
            reporter=self._reporter,
            principal=principal,
            caller=caller,
            patience=self.patience,
        )
        self._sessions[session.id] = session
        self._held[caller] += 1
        try:
            await nursery.start(self._run, session)
        except BaseException:
            self._drop(session)
            raise
        session.touch()
        return session

    def _drop(self, session: HTTPSession) -> None:
        if self._sessions.pop(session.id, None) is not None:
            self._give_back(session.caller)

    def _drop_line(self, session: LineSession) -> None:
        if session in self._lines:
            self._give_back(self._lines.pop(session))

    def _give_back(self, caller: str | None) -> None:
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller]

    async def _run(self, session: HTTPSession, *, task_status: trio.TaskStatus[None]) -> None:
        """Be the session until it ends."""
        once = _Once(task_status)
        del task_status
        try:
            with self._service.notices.listening(session.side.deliver):
                await session.side.run(session.dispatcher, task_status=once)
        finally:
            self._drop(session)

    def find(self, id_: str, principal: Principal | None) -> HTTPSession | None:
        """Look a session up. Another principal's session does not exist for the caller (H12)."""
        session = self._sessions.get(id_)
        if (
            session is None
            or session.streams.closed
            or not same_principal(session.principal, principal)
        ):
            return None
        return session

    def end(self, session: HTTPSession) -> None:
        """End a session and forget it at once."""
        self._drop(session)
        session.cancel()


def same_principal(one: Principal | None, other: Principal | None) -> bool:
    """Tell whether two callers are the same; nobody in particular is only like himself."""
    if one is None or other is None:
        return one is other
    return one.identity == other.identity
