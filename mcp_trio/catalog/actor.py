"""The catalog's actor: one task, one inbox, and the deadline of `receive` is the timer.

The task owns the snapshot and is the only one to use the registry. It decides when to
read and whether to believe what it read: an outage keeps the last known good, and a
registry that suddenly says "nothing" or "half" has to say it twice. Reading, comparing and
scheduling are done by `registries`, `snapshot` and `schedule`.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable
from functools import partial

import attrs
import trio

from mcp_trio.abc import RawEntry, Reading, Registry, RegistryError, Trouble
from mcp_trio.catalog.operation import canonical
from mcp_trio.catalog.schedule import Schedule, is_stale, is_suspicious
from mcp_trio.catalog.snapshot import Compiler, Fault, Snapshot, Step, told
from mcp_trio.catalog.status import CatalogState, CatalogStatus
from mcp_trio.events import CatalogFailed, CatalogRefreshed, Event
from mcp_trio.server.providers import ProviderHost, ToolSet

FEW = 4
"""Up to so many changed entries are compiled in the loop's own thread."""
LIGHT = 4_096
"""Bytes of all views that are; what is larger may take its time to compile."""
SMALL = 1_000
"""Above so many operations every step is made in a worker thread."""

_log = logging.getLogger("mcp_trio.catalog")


@attrs.frozen(eq=False)
class _Ask:
    """One wish for a read; everybody who waits for that read waits on it."""

    done: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(kw_only=True)
class _Facts:
    """What the actor knows besides the snapshot. Written by its task only."""

    token: str | None = None
    """Of the registry state the snapshot was made from."""
    matched: float | None = None
    """When the registry was last seen to match the snapshot."""
    attempted: float | None = None
    """When it was last tried, well or badly."""
    deadline: float = 0.0
    """When the timer fires."""
    failures: int = 0
    error: str | None = None
    doubtful: frozenset[tuple[str, bytes]] | None = None
    """What a suspicious reading would leave published; believed when read again."""
    most: int = 0
    """How many were published at once since that happened last: a registry that shrinks in
    small steps is doubted, too."""
    swaps: int = 0


class CatalogActor:
    """Keeps a snapshot of a registry fresh and offers it as tools. A `ToolProvider`.

    Start `run` in a nursery; everything else may be used before, while and after it runs.

    Args:
        registry: used by `run` only, which closes it at its end.
        compiler: its `compile` is called in a worker thread, one operation at a time.
        interval: seconds between looks at the registry.
        stale_after: seconds without a look after which `freshen` asks for one; the
            interval if None.
        freshen_timeout: seconds `freshen` waits at most.
        read_timeout: seconds in which the registry has to answer one look.
        schedule: the whole timing policy, in place of `interval`.
        chance: gives numbers from 0 to 1 for the jitter.
    """

    def __init__(  # noqa: PLR0913  # keyword-only options of one actor
        self,
        registry: Registry,
        compiler: Compiler,
        *,
        interval: float = 30.0,
        stale_after: float | None = None,
        freshen_timeout: float = 1.0,
        read_timeout: float = 120.0,
        schedule: Schedule | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._registry = registry
        self._compiler = compiler
        self._schedule = schedule or Schedule(interval=interval)
        self._stale_after = self._schedule.interval if stale_after is None else stale_after
        self._freshen_timeout = freshen_timeout
        self._read_timeout = read_timeout
        self._chance = chance
        self._host: ProviderHost | None = None
        self._ready = trio.Event()
        self._looked = trio.Event()
        self._snapshot = Snapshot()
        self._tools = _tools_of(self._snapshot)
        self._facts = _Facts()
        # One place is enough: whoever asks while an ask is queued joins that one.
        self._wishes, self._inbox = trio.open_memory_channel[_Ask](1)
        self._queued: _Ask | None = None
        self._current: _Ask | None = None
        """The read that is going on."""
        self._running = False
        self._changed = 0
        """Operations that the look under way has changed."""
        self._compiling = trio.CapacityLimiter(1)

    # What a server uses.

    @property
    def tools(self) -> ToolSet:
        """The tools now. Never waits."""
        return self._tools

    @property
    def ttl(self) -> float:
        """Seconds until the next look at the registry; 0 unless it matched at the last one."""
        if self._facts.matched is None or self._facts.failures or not self._running:
            return 0.0
        return max(0.0, self._facts.deadline - trio.current_time())

    def bind(self, host: ProviderHost) -> None:
        """Take the server. Once, before `run`.

        Raises:
            RuntimeError: it has a server already.
        """
        if self._host is not None:
            raise RuntimeError("this catalog already belongs to a server")
        self._host = host

    async def freshen(self) -> None:
        """Have the registry looked at if that was too long ago; wait a bounded time for it.

        Many callers share one read. A registry in trouble is not asked more often than
        the same bound allows, so a busy server does not keep hammering it.
        """
        facts = self._facts
        looked = max((t for t in (facts.matched, facts.attempted) if t is not None), default=None)
        if not self._running or not is_stale(trio.current_time(), looked, self._stale_after):
            await trio.lowlevel.checkpoint()
            return
        ask = self._current or self._enqueue()
        with trio.move_on_after(self._freshen_timeout):
            await ask.done.wait()

    # What an operator uses.

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot now. Never changes; keep it for as long as you like."""
        return self._snapshot

    @property
    def ready(self) -> trio.Event:
        """Set once the registry has been read for the first time, and for good."""
        return self._ready

    @property
    def looked(self) -> trio.Event:
        """Set once the first look has ended, well or not, and for good."""
        return self._looked

    async def refresh(self) -> CatalogStatus:
        """Have the registry read by a look that begins after this call; wait for its end.

        Waits as long as it takes, for the first time the actor runs too; put it into a
        scope with a deadline. A failure shows in the status and is not raised.
        """
        await self._enqueue().done.wait()
        return self.status()

    def look_soon(self) -> None:
        """Ask for what `refresh` waits for, and do not wait. Asked again before, it is one look."""
        self._enqueue()

    def status(self) -> CatalogStatus:
        """Tell how the catalog is doing."""
        now, facts, snapshot = trio.current_time(), self._facts, self._snapshot
        return CatalogStatus(
            state=self._state(now),
            ready=self._ready.is_set(),
            revision=snapshot.revision,
            listing_revision=snapshot.listing_revision,
            operations=len(snapshot.entries),
            published=len(snapshot.fingerprints),
            quarantine=snapshot.report,
            age_seconds=None if facts.matched is None else now - facts.matched,
            next_refresh_seconds=max(0.0, facts.deadline - now) if self._running else None,
            consecutive_failures=facts.failures,
            last_error=facts.error,
            awaiting_confirmation=facts.doubtful is not None,
            swaps=facts.swaps,
        )

    def _state(self, now: float) -> CatalogState:
        facts = self._facts
        if not self._running:
            return CatalogState.STOPPED
        if facts.failures:
            return CatalogState.FAILING
        if facts.matched is None:
            return CatalogState.STARTING
        # A look may be due, going on, and asked for a second time: all that is still fresh.
        bound = 2 * self._schedule.interval + self._read_timeout
        return CatalogState.STALE if now - facts.matched > bound else CatalogState.FRESH

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look at the registry now and then at every deadline, until cancelled.

        Reports as started at once, before the first read: wait for `ready` to know more.
        Trouble with the registry never ends it. On cancellation the snapshot stays, and
        the registry is closed; `run` may then be called again.

        Raises:
            RuntimeError: it is running already.
        """
        if self._running:
            raise RuntimeError("this catalog is running already")
        self._running = True
        self._facts.deadline = trio.current_time()
        task_status.started()
        try:
            while True:
                self._current = await self._next()
                await self._look()
                self._looked.set()
                self._current.done.set()
                self._current = None
        finally:
            self._running = False
            interrupted, self._current = self._current, None
            if interrupted is not None:
                interrupted.done.set()
            await self._registry.aclose()

    # The task itself.

    def _enqueue(self) -> _Ask:
        if self._queued is None:
            self._queued = _Ask()
            self._wishes.send_nowait(self._queued)
        return self._queued

    async def _next(self) -> _Ask:
        """Wait for an ask or for the timer, whichever is first."""
        ask = _Ask()
        with trio.move_on_at(self._facts.deadline):
            ask = await self._inbox.receive()
            self._queued = None
        return ask

    async def _look(self) -> None:
        """Look once, and set the next deadline. The one place where trouble ends up."""
        facts = self._facts
        facts.attempted = trio.current_time()
        try:
            await self._refresh()
        except RegistryError as error:
            self._failed(told(str(error)))
        except Exception as error:  # noqa: BLE001  # the actor's one boundary
            # A bug in a registry or compiler must not take the tools away.
            self._failed(f"internal fault: {type(error).__name__}", bug=error)
        else:
            if facts.failures:
                _log.info("catalog: the registry can be read again")
            facts.failures, facts.error = 0, None
            now = trio.current_time()
            if facts.doubtful is not None:
                facts.deadline = self._schedule.for_confirmation(now)
                return
            facts.matched = now
            self._ready.set()
            facts.deadline = self._schedule.after_success(now, self._chance())
            self._tell(
                CatalogRefreshed(
                    revision=self._snapshot.revision,
                    operations=len(self._snapshot.entries),
                    changed=self._changed,
                    quarantined=len(self._snapshot.report),
                )
            )

    def _tell(self, event: Event) -> None:
        if self._host is not None:
            self._host.emit(event)

    def _failed(self, text: str, *, bug: Exception | None = None) -> None:
        facts = self._facts
        if text != facts.error:
            # Once per distinct error: an outage of hours is one line.
            _log.warning(
                "catalog: cannot refresh, keeping %d operations: %s",
                len(self._snapshot.entries),
                text,
                exc_info=bug,
            )
        facts.failures, facts.error = facts.failures + 1, text
        # What was half seen before an outage is no first sight any more.
        facts.doubtful = None
        now = trio.current_time()
        facts.deadline = self._schedule.after_failure(now, facts.failures, self._chance())
        self._tell(CatalogFailed(reason=text, retry_in=facts.deadline - now))

    async def _refresh(self) -> None:
        facts = self._facts
        self._changed = 0
        reading = await self._read()
        if reading is None:
            facts.doubtful = None
            if self._name_came_free():
                unchanged = Reading(token=str(facts.token), entries=(), complete=False)
                await self._take_in(unchanged)
            return
        if not self._believed(reading):
            return
        await self._take_in(reading)
        facts.token = reading.token

    async def _read(self) -> Reading | None:
        """What the registry says now; None if that is what it said before."""
        token = self._facts.token
        with trio.move_on_after(self._read_timeout):
            if token is not None and await self._registry.change_token() == token:
                return None
            return await self._registry.read(token)
        raise RegistryError(
            Trouble.UNREACHABLE, f"the registry gave no answer in {self._read_timeout:g} seconds"
        )

    def _believed(self, reading: Reading) -> bool:
        """Tell whether to act on a reading, or to wait until it has been read twice."""
        facts, snapshot = self._facts, self._snapshot
        before = facts.most if facts.token is not None else None
        after = snapshot.published_after(reading)
        if not is_suspicious(before, after):
            facts.doubtful = None
            facts.most = max(facts.most, after)
            return True
        left = frozenset(snapshot.left_by(reading).items())
        if left == facts.doubtful:
            facts.doubtful = None
            facts.most = after
            return True
        _log.warning(
            "catalog: the registry says %d operations are published, was %s; reading it again",
            after,
            "not read before" if before is None else len(snapshot.fingerprints),
        )
        facts.doubtful = left
        return False

    def _name_came_free(self) -> bool:
        return any(
            record.fault is Fault.RESERVED
            and record.name is not None
            and not self._is_reserved(record.name)
            for record in self._snapshot.quarantine.values()
        )

    def _is_reserved(self, name: str) -> bool:
        return self._host is not None and self._host.owns(name)

    async def _take_in(self, reading: Reading) -> None:
        before = self._snapshot
        # The host belongs to the loop's thread, so it is asked here and not while compiling.
        names = {str(e.view.get("name")) for e in reading.entries if e.view is not None}
        names |= {member.operation.name for member in before.waiting.values()}
        reserved = frozenset(name for name in names if self._is_reserved(name))
        make = partial(before.advance, reading, self._compiler, reserved.__contains__)
        few = len(reading.entries) + len(before.waiting) <= FEW and len(before.members) <= SMALL
        if few and _is_light(reading.entries):
            # Done before a thread would have started.
            step = make()
        else:
            step = await trio.to_thread.run_sync(
                make, abandon_on_cancel=True, limiter=self._compiling
            )
        self._swap(before, step)

    def _swap(self, before: Snapshot, step: Step) -> None:
        self._snapshot = step.snapshot
        known = set(before.report)
        for record in step.snapshot.report:
            if record not in known:
                _log.warning("catalog: operation %s: %s", record.operation_id, record.reason)
        if not step.difference:
            return
        self._facts.swaps += 1
        difference = step.difference
        self._changed = sum(map(len, (difference.added, difference.changed, difference.removed)))
        _log.info(
            "catalog: %d operations at %.12s; %d added, %d changed, %d removed",
            len(step.snapshot.entries),
            step.snapshot.revision,
            len(difference.added),
            len(difference.changed),
            len(difference.removed),
        )
        # The listing keeps its revision when only the execution side changed, and the
        # entries are new all the same: calls from now on take the new version. The host hears
        # of those, too: what is in a toolset may hang on what no listing shows.
        self._tools = _tools_of(step.snapshot)
        if self._host is not None:
            self._host.changed()


def _is_light(entries: Iterable[RawEntry]) -> bool:
    try:
        return sum(len(canonical(entry.view)) for entry in entries) <= LIGHT
    except Exception:  # noqa: BLE001  # what cannot even be encoded is the snapshot's to refuse
        return False


def _tools_of(snapshot: Snapshot) -> ToolSet:
    return ToolSet(
        revision=snapshot.listing_revision,
        entries=snapshot.entries,
        guarded=snapshot.guarded > 0,
    )
