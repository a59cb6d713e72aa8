"""Who may run now: the one place where requests are counted against the limits of load.

Every transport asks here before it spawns a task or reads parameters: `Admission.enter` gives a
`Place` or refuses. A place is given back once, whatever ends its request. What is kept is bounded
by the requests that run and wait, and by `MAX_BUCKETS`. What the limits are is written in
`limits`; nothing here knows a transport or an HTTP status.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping

import attrs
import trio

from mcp_trio.engine.envelope import Principal
from mcp_trio.errors import OverloadedError
from mcp_trio.events import Reporter
from mcp_trio.session.idle import Shelf
from mcp_trio.session.limits import UNTIMED, LoadLimits, ToolLimits
from mcp_trio.session.places import Limit, Place, SessionLoad, Share
from mcp_trio.session.queue import Queue
from mcp_trio.session.rates import Bucket, Rate

MAX_BUCKETS = 10_000
"""Rates that are remembered; then the one that was asked for longest ago begins anew."""
FREE = frozenset({"ping"})
"""Requests that are always answered (LC6)."""
UNQUEUED = FREE | UNTIMED | {"initialize"}
"""Requests that never wait for their turn; others are held up behind `initialize`."""
_TEXTS = {
    Limit.REQUESTS: "Too many requests are running",
    Limit.SESSION: "Too many requests are running in this session",
    Limit.CALLER: "Too many requests of this caller are running",
    Limit.LISTENERS: "Too many listeners are open",
    Limit.CALLER_LISTENERS: "Too many listeners of this caller are open",
    Limit.RATE: "Too many requests",
    Limit.CALLER_RATE: "Too many requests of this caller",
    Limit.TOOL: "Too many calls of this tool are running",
    Limit.TOOL_RATE: "Too many calls of this tool",
    Limit.CALLER_TOOL_RATE: "Too many calls of this tool by this caller",
}


def caller_of(principal: Principal | None, address: str | None) -> str | None:
    """What somebody counts as: the principal, else the address; None if neither is known."""
    if principal is not None:
        return f"principal {principal.identity}"
    return None if address is None else f"address {address}"


@attrs.frozen(kw_only=True)
class AdmissionStatistics:
    """A snapshot of the load of a server, over all its transports."""

    in_flight: int
    """Requests that run."""
    listeners: int
    """`subscriptions/listen` requests that are open."""
    waiting: int
    """Requests that wait for their turn."""
    counted: int
    """Callers and tools that have something running or waiting under a limit of their own."""
    rated: int
    """Rates that are remembered."""
    refusals: Mapping[str, int]
    """Requests refused so far, by `Limit`."""


class Admission:
    """Counts what runs, and decides what may. Of one server, or shared by several.

    Belongs to the Trio thread; nothing here waits but `Place.turn`.
    """

    def __init__(self, limits: LoadLimits | None = None) -> None:
        """Begin with nothing running.

        Args:
            limits: of everybody together, and of each.
        """
        self.limits = limits or LoadLimits()
        self._all = Share(self.limits.max_in_flight, Limit.REQUESTS)
        self._listening = Share(self.limits.max_listeners, Limit.LISTENERS)
        self._shares: dict[Hashable, Share] = {}
        """Of callers and tools, as long as somebody uses them."""
        self._buckets = Shelf[Hashable, Bucket](MAX_BUCKETS)
        self._queue = Queue(self.limits.queue_length)
        self._refusals: Counter[str] = Counter()

    @property
    def queue_timeout(self) -> float:
        """Seconds that a place may be waited for."""
        return self.limits.queue_timeout

    def statistics(self) -> AdmissionStatistics:
        """Count what is going on."""
        return AdmissionStatistics(
            in_flight=self._all.held,
            listeners=self._listening.held,
            waiting=len(self._queue),
            counted=len(self._shares),
            rated=len(self._buckets),
            refusals=dict(self._refusals),
        )

    def enter(
        self,
        method: str,
        caller: str | None,
        session: SessionLoad | None = None,
        reporter: Reporter | None = None,
    ) -> Place:
        """Let a request in, have it wait for its turn, or refuse it. Never waits.

        Args:
            method: of the request.
            caller: who sends it, see `caller_of`.
            session: in which it runs, if in one.
            reporter: tells observers of a refusal.

        Returns:
            Its place, to be released in any case; `Place.turn` first if it is `waiting`.

        Raises:
            OverloadedError: it may not run now.
        """
        whose: Hashable = session if caller is None else caller
        if method in FREE:
            return Place(self, method, whose, ())
        place = Place(self, method, whose, self._needed(method, whose, session), reporter)
        try:
            blocked = place.blocked
            if blocked is None and self._queue.has(whose) and method not in UNQUEUED:
                blocked = Limit.REQUESTS
            if blocked is not None and (not self.limits.queue_length or method in UNQUEUED):
                raise self.refusal(blocked, method, reporter)
            self._take_rates(method, whose, reporter)
            if blocked is None:
                place.take()
            elif not self._queue.join(place):
                raise self.refusal(blocked, method, reporter)
        except OverloadedError:
            self._forget(place)
            raise
        return place

    def foresee(self, method: str, caller: str | None, reporter: Reporter | None = None) -> None:
        """Refuse what `enter` would refuse, as far as that can be told without a session.

        For a request that is costly to read. It counts as none unless it is refused.

        Args:
            method: as far as it was seen.
            caller: who sends it.
            reporter: tells observers of a refusal.

        Raises:
            OverloadedError: it may not run now.
        """
        if method in FREE:
            return
        limits, now = self.limits, trio.current_time()
        place = Place(self, method, caller, self._needed(method, caller, None))
        blocked = place.blocked
        self._forget(place)
        if blocked is not None and (not limits.queue_length or method in UNQUEUED):
            raise self.refusal(blocked, method, reporter)
        for rate, key, limit in (
            (limits.rate_per_caller, (Limit.CALLER_RATE, caller), Limit.CALLER_RATE),
            (limits.rate, Limit.RATE, Limit.RATE),
        ):
            bucket = None if rate is None else self._buckets.find(key)
            if rate is not None and bucket is not None:
                wait = bucket.look(rate, now)
                if wait is not None:
                    raise self.refusal(limit, method, reporter, after=wait)

    def _needed(
        self, method: str, whose: Hashable, session: SessionLoad | None
    ) -> tuple[Share, ...]:
        limits, listens = self.limits, method in UNTIMED
        found: list[Share] = []
        if session is not None:
            found.append(session.listeners if listens else session.requests)
        most = limits.max_listeners_per_caller if listens else limits.max_in_flight_per_caller
        if most is not None:
            limit = Limit.CALLER_LISTENERS if listens else Limit.CALLER
            found.append(self._share((limit, whose), most, limit))
        found.append(self._listening if listens else self._all)
        return tuple(found)

    def _share(self, key: Hashable, most: int, limit: Limit) -> Share:
        found = self._shares.get(key)
        if found is None:
            found = self._shares[key] = Share(most, limit, key)
        return found

    def _take_rates(self, method: str, whose: Hashable, reporter: Reporter | None) -> None:
        limits, own = self.limits, None
        if limits.rate_per_caller is not None:
            key = (Limit.CALLER_RATE, whose)
            own = self._take(key, limits.rate_per_caller, Limit.CALLER_RATE, method, reporter)
        if limits.rate is not None:
            try:
                self._take(Limit.RATE, limits.rate, Limit.RATE, method, reporter)
            except OverloadedError:
                if own is not None:
                    own.give_back()
                raise

    def _take(
        self, key: Hashable, rate: Rate, limit: Limit, method: str, reporter: Reporter | None
    ) -> Bucket:
        now = trio.current_time()
        bucket = self._buckets.get(key, lambda: Bucket(rate, now), now)
        wait = bucket.take(rate, now)
        if wait is not None:
            raise self.refusal(limit, method, reporter, after=wait)
        return bucket

    def enter_tool(
        self,
        name: str,
        limits: ToolLimits,
        caller: Hashable,
        reporter: Reporter | None = None,
    ) -> Place:
        """Let one call of a tool in, or refuse it. Never waits.

        Args:
            name: of a tool that exists.
            limits: its own.
            caller: who calls: `Place.caller` of the request.
            reporter: tells observers of a refusal.

        Returns:
            Its place, to be released in any case.

        Raises:
            OverloadedError: it may not run now.
        """
        shares: tuple[Share, ...] = ()
        if limits.max_in_flight is not None:
            share = self._share((Limit.TOOL, name), limits.max_in_flight, Limit.TOOL)
            share.most = limits.max_in_flight
            shares = (share,)
        place = Place(self, "tools/call", caller, shares, reporter)
        try:
            if (blocked := place.blocked) is not None:
                raise self.refusal(blocked, place.method, reporter)
            if (rate := limits.rate) is not None:
                limit = Limit.CALLER_TOOL_RATE if rate.per_caller else Limit.TOOL_RATE
                key = (limit, name, caller if rate.per_caller else None)
                self._take(key, rate, limit, place.method, reporter)
        except OverloadedError:
            self._forget(place)
            raise
        place.take()
        return place

    def leave(self, place: Place) -> None:
        """Take a place back, or out of the queue; for `Place.release`."""
        if place.waiting:
            self._queue.remove(place)
        else:
            for share in place.shares:
                share.held -= 1
        self._forget(place)
        # Whoever was first in a line may have held up others of it, also by waiting.
        while len(self._queue) and (following := self._queue.next()) is not None:
            following.take()

    def _forget(self, place: Place) -> None:
        for share in place.shares:
            share.users -= 1
            if share.users == 0 and share.key is not None:
                self._shares.pop(share.key, None)

    def refusal(
        self, limit: Limit, method: str, reporter: Reporter | None, *, after: float = 1.0
    ) -> OverloadedError:
        """Count a refusal, tell observers, and make the error that says so.

        Args:
            limit: what was reached.
            method: of the request.
            reporter: tells observers.
            after: seconds until it may be tried again.
        """
        self._refusals[limit.value] += 1
        if reporter is not None:
            reporter.refused(method, limit.value)
        return OverloadedError(_TEXTS[limit], retry_after=after, limit=limit.value)
