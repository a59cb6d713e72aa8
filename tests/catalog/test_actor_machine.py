"""The actor against a model: publishing, breaking, outages and clock steps in any order.

The model knows what stands in the registry, what was served before, and the rules. It does not
know how names are given out; it judges the outcome by what the rules promise of it. Each look at
the registry is judged by itself, so nothing can hide behind the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

import attrs
import pytest
import trio
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from trio.testing import wait_all_tasks_blocked

from mcp_trio import MCPClient, MCPServer, RemoteError, ServerOptions
from mcp_trio.abc import RawEntry, RegistryError, Trouble
from mcp_trio.catalog import actor as actor_module
from mcp_trio.catalog.actor import CatalogActor
from mcp_trio.catalog.operation import Operation
from mcp_trio.wire import CallToolResult, TextContent
from tests.catalog.conftest import CountingCompiler, Entry, MemoryRegistry, make_view
from tests.catalog.guest import Guest

INTERVAL, CONFIRM, SILENCE, PAGE = 30.0, 1.0, 20.0, 1
TINY = 1e-6
IDS = [f"op{n}" for n in range(12)]
NAMES = [f"name{n}" for n in range(8)]

ids = st.sampled_from(IDS)
names = st.sampled_from(NAMES)


@attrs.frozen
class Version:
    """One published version of one operation."""

    number: int
    name: str
    text: str = ""
    fault: str | None = None
    """Why it cannot be served, or None: view, compile or unreadable."""

    def view(self, operation_id: str) -> dict[str, object]:
        extra: dict[str, object] = {"ui": 1} if self.fault == "view" else {}
        config: dict[str, object] = {"concurrency": self.number}
        if self.fault == "compile":
            config["circuit"] = {}
        if self.fault == "unreadable":
            extra["unreadable"] = True
        return make_view(
            operation_id,
            name=self.name,
            tool_description=self.text,
            execution_config=config,
            **extra,
        )


class FaultyRegistry(MemoryRegistry):
    """One whose rows may also be no JSON."""

    async def read(self, since):
        reading = await super().read(since)
        return attrs.evolve(reading, entries=tuple(map(self._spoilt, reading.entries)))

    @staticmethod
    def _spoilt(found: RawEntry) -> RawEntry:
        if "unreadable" not in (found.view or {}):
            return found
        return attrs.evolve(found, view=None, fault="target: is not JSON")


@attrs.frozen(eq=False)
class GatedEntry(Entry):
    """Says which version it is, once it is let through."""

    gate: list[trio.Event]

    async def call(self, context, arguments):
        await self.gate[0].wait()
        number = self.operation.execution_config["concurrency"]
        return CallToolResult(content=[TextContent(text=str(number))])


class GatedCompiler(CountingCompiler):
    def __init__(self, gate: list[trio.Event]) -> None:
        super().__init__()
        self.gate = gate

    def compile(self, operation: Operation) -> GatedEntry:
        super().compile(operation)
        return GatedEntry(operation, self.gate)


def listing_of(served: Mapping[str, Version]) -> tuple[tuple[str, str], ...]:
    """What clients see: names and texts, sorted by name."""
    return tuple(sorted((version.name, version.text) for version in served.values()))


class CatalogMachine(RuleBasedStateMachine):
    """Drives one actor, one server and one client."""

    # -- the world -----------------------------------------------------------------

    def __init__(self) -> None:
        super().__init__()
        self.guest = Guest()
        self.registry = FaultyRegistry()
        self.gate: list[trio.Event] = [trio.Event()]
        self.chance = 0.5
        self.actor = CatalogActor(
            self.registry,
            GatedCompiler(self.gate),
            interval=INTERVAL,
            read_timeout=SILENCE,
            chance=lambda: self.chance,
        )
        self.server = MCPServer("machine", options=ServerOptions(page_size=PAGE))
        self.server.add_provider(self.actor)
        self.notices = 0
        self.server.notices.tell = self._count  # type: ignore[method-assign]  # counts instead
        self.answers: list[tuple[str, str]] = []
        # The model.
        self.numbers = 0
        self.published: dict[str, Version] = {}
        self.withdrawn: dict[str, Version] = {}
        self.accepted: dict[str, Version] = {}
        """What was published at the last look that was believed."""
        self.served: dict[str, Version] = {}
        self.doubtful: dict[str, Version] | None = None
        self.read_once = False
        self.most = 0
        """How many were published at once since a shrinking was believed."""
        self.failures = 0
        self.attempted = 0.0
        self.listings: list[tuple[tuple[str, str], ...]] = [()]
        self.walks: list[tuple[str, tuple[tuple[str, str], ...]]] = []
        self.down = 0
        """Looks until the registry is mended."""
        self.silent = False

    def _count(self, _notice: object) -> None:
        self.notices += 1

    @initialize(count=st.integers(0, 8))
    def begin(self, count: int) -> None:
        for operation_id in IDS[:count]:
            self._publish(operation_id, Version(self._number(), operation_id.replace("op", "name")))
        self.guest.do(self._start)
        self._looked()

    async def _start(self) -> None:
        self.stopping = trio.CancelScope()

        async def run(*, task_status):
            with self.stopping:
                await self.actor.run(task_status=task_status)

        await self.guest.nursery.start(run)
        await wait_all_tasks_blocked()
        if not hasattr(self, "client"):
            self.client = MCPClient(self.server)
            await self.client.__aenter__()

    def teardown(self) -> None:
        if hasattr(self, "client"):
            self.let_the_calls_through()
            self.guest.do(self.client.__aexit__, None, None, None)
        self.guest.close()

    def _number(self) -> int:
        self.numbers += 1
        return self.numbers

    def _publish(self, operation_id: str, version: Version) -> None:
        self.published[operation_id] = version
        self.registry.put(version.view(operation_id))

    def _withdraw(self, *gone: str) -> None:
        for operation_id in gone:
            self.withdrawn[operation_id] = self.published.pop(operation_id)
        self.registry.drop(*gone)

    # -- what may happen to a registry -----------------------------------------------

    @rule(operation_id=ids, name=names, text=st.sampled_from(["", "One.", "Two."]))
    def publish(self, operation_id: str, name: str, text: str) -> None:
        self._publish(operation_id, Version(self._number(), name, text))

    @precondition(lambda self: self.published)
    @rule(data=st.data(), fault=st.sampled_from(["view", "compile", "unreadable"]))
    def break_one(self, data: st.DataObject, fault: str) -> None:
        operation_id = data.draw(st.sampled_from(sorted(self.published)))
        broken = attrs.evolve(self.published[operation_id], number=self._number(), fault=fault)
        self._publish(operation_id, broken)

    @precondition(lambda self: any(v.fault for v in self.published.values()))
    @rule(data=st.data())
    def mend(self, data: st.DataObject) -> None:
        broken = sorted(i for i, v in self.published.items() if v.fault)
        operation_id = data.draw(st.sampled_from(broken))
        mended = attrs.evolve(self.published[operation_id], number=self._number(), fault=None)
        self._publish(operation_id, mended)

    @precondition(lambda self: self.served.keys() & self.published.keys())
    @rule(data=st.data())
    def go_back(self, data: st.DataObject) -> None:
        operation_id = data.draw(
            st.sampled_from(sorted(self.served.keys() & self.published.keys()))
        )
        self._publish(operation_id, self.served[operation_id])

    @precondition(lambda self: len(self.published) > 1)
    @rule(data=st.data())
    def claim_the_name_of_another(self, data: st.DataObject) -> None:
        chosen = st.sampled_from(sorted(self.published))
        one, other = data.draw(chosen), data.draw(chosen)
        version = Version(self._number(), self.published[other].name, "Claims.")
        self._publish(one, version)

    @precondition(lambda self: len(self.published) > 1)
    @rule(data=st.data())
    def exchange_names(self, data: st.DataObject) -> None:
        chosen = st.lists(st.sampled_from(sorted(self.published)), min_size=2, unique=True)
        some = data.draw(chosen)
        wanted = [self.published[i].name for i in some]
        for operation_id, name in zip(some, wanted[1:] + wanted[:1], strict=True):
            self._publish(operation_id, Version(self._number(), name, "Exchanged."))

    @precondition(lambda self: self.served.keys() & self.published.keys())
    @rule(data=st.data())
    def change_how_it_runs(self, data: st.DataObject) -> None:
        some = sorted(self.served.keys() & self.published.keys())
        operation_id = data.draw(st.sampled_from(some))
        version = attrs.evolve(self.served[operation_id], number=self._number())
        self._publish(operation_id, version)

    @precondition(lambda self: self.published)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        self._withdraw(data.draw(st.sampled_from(sorted(self.published))))

    @precondition(lambda self: len(self.published) > 1)
    @rule(part=st.sampled_from([0.5, 0.7, 1.0]))
    def shrink(self, part: float) -> None:
        some = sorted(self.published)
        self._withdraw(*some[: round(part * len(some))])

    @precondition(lambda self: self.withdrawn)
    @rule()
    def restore(self) -> None:
        for operation_id, version in self.withdrawn.items():
            if operation_id not in self.published:
                self._publish(operation_id, version)
        self.withdrawn.clear()

    @rule()
    def touch_a_draft(self) -> None:
        self.registry.touch()

    @precondition(lambda self: not self.down)
    @rule(kind=st.sampled_from(["trouble", "bug", "silence"]), looks=st.sampled_from([1, 2, 3, 10]))
    def break_the_registry(self, kind: str, looks: int) -> None:
        """For so many looks."""
        self.down, self.silent = looks, kind == "silence"
        if self.silent:
            self.registry.gate = trio.Event()
        elif kind == "bug":
            self.registry.trouble = KeyError("a bug")
        else:
            self.registry.trouble = RegistryError(Trouble.LOCKED, "it is locked")

    @precondition(lambda self: self.down)
    @rule()
    def mend_the_registry(self) -> None:
        self.down, self.silent = 0, False
        self.registry.trouble = self.registry.gate = None

    # -- time --------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.4, 1.0, 5.0, 31.0, 100.0, 700.0]))
    def wait(self, seconds: float) -> None:
        for _ in range(8):
            due = self.actor.status().next_refresh_seconds
            assert due is not None
            if seconds < due - 2 * TINY:
                asked = self.registry.tokens, self.registry.reads
                self.guest.do(self._jump, seconds)
                assert (self.registry.tokens, self.registry.reads) == asked
                return
            seconds = max(0.0, seconds - due)
            self.guest.do(self._jump, due)
            self._looked()

    @rule(chance=st.sampled_from([0.0, 0.5, 1.0]))
    def let_chance_be(self, chance: float) -> None:
        self.chance = chance

    async def _jump(self, seconds: float) -> None:
        # A sum of fractions may fall short of the deadline.
        self.guest.clock.jump(seconds + TINY)
        await wait_all_tasks_blocked()

    @rule()
    def refresh(self) -> None:
        self.guest.do(self._ask_for_a_look)
        self._looked()

    async def _ask_for_a_look(self) -> None:
        self.guest.nursery.start_soon(self.actor.refresh)
        await wait_all_tasks_blocked()

    @precondition(lambda self: not self.down)
    @rule(operation_id=ids, name=names)
    def publish_and_refresh(self, operation_id: str, name: str) -> None:
        number = self._number()
        self._publish(operation_id, Version(number, name, f"Text {number}."))
        self.refresh()

    @rule()
    def run_anew(self) -> None:
        closed = self.registry.closed
        self.stopping.cancel()
        self.guest.do(wait_all_tasks_blocked)
        assert self.registry.closed == closed + 1
        assert self.actor.status().state == "stopped"
        assert self.actor.ttl == 0
        self.guest.do(self._start)
        self._looked()

    # -- clients -------------------------------------------------------------------------

    @precondition(lambda self: not self.silent)
    @rule()
    def begin_to_list(self) -> None:
        stale = self._now() - self.attempted >= INTERVAL
        answer = self.guest.do(partial(self.client.call, "tools/list", cache=False))
        if stale:
            self._looked()
        listed = listing_of(self.served)
        assert self._shown(answer) == listed[:PAGE]
        assert ("nextCursor" in answer) == (len(listed) > PAGE)
        assert answer["ttlMs"] == int(1000 * min(60.0, self.actor.ttl))
        if "nextCursor" in answer:
            self.walks = [*self.walks[-4:], (answer["nextCursor"], listed)]

    @precondition(lambda self: self.walks and not self.silent)
    @rule(data=st.data())
    def list_on(self, data: st.DataObject) -> None:
        cursor, listed = data.draw(st.sampled_from(self.walks))
        stale = self._now() - self.attempted >= INTERVAL
        page = partial(self.client.call, "tools/list", {"cursor": cursor}, cache=False)
        try:
            answer = self.guest.do(page)
        except RemoteError as error:
            answer, refused = {}, error.rpc_code
        else:
            refused = None
        if stale:
            self._looked()
        if listed in self.listings:
            assert self._shown(answer) == listed[PAGE : 2 * PAGE]
        else:
            assert refused == -32602

    @staticmethod
    def _shown(answer) -> tuple[tuple[str, str], ...]:
        return tuple((tool["name"], tool.get("description", "")) for tool in answer["tools"])

    @precondition(lambda self: self.served)
    @rule(data=st.data())
    def begin_a_call(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(sorted(self.served.values(), key=lambda v: v.number)))

        async def call() -> None:
            result = await self.client.call_tool(version.name)
            self.answers.append((str(version.number), result.content[0].text))

        async def begin() -> None:
            self.guest.nursery.start_soon(call)
            await wait_all_tasks_blocked()

        self.guest.do(begin)

    @rule()
    def let_the_calls_through(self) -> None:
        self.gate[0].set()
        self.guest.do(wait_all_tasks_blocked)
        self.gate[0] = trio.Event()
        assert all(expected == answer for expected, answer in self.answers)

    # -- one look at the registry -----------------------------------------------------------

    def _now(self) -> float:
        return self.guest.clock.current_time()

    def _looked(self) -> None:
        """Judge a look that has just happened, or has just begun at a silent registry."""
        self.attempted = self._now()
        if self.silent:
            self.guest.do(self._jump, SILENCE)
        if self.down:
            self.down -= 1
            if not self.down:
                self.mend_the_registry()
            self.failures += 1
            self.doubtful = None
            self._unchanged()
            delay = min(2.0 ** (self.failures - 1), 300.0)
            self._due_within(0.9 * delay, min(1.1 * delay, 300.0))
            return
        self.failures = 0
        after = len(self.published)
        shrunk = 2 * after <= self.most and after < self.most
        unlikely = shrunk if self.read_once else not after
        if unlikely and self.published != self.doubtful:
            self.doubtful = dict(self.published)
            self._unchanged()
            self._due_within(CONFIRM, CONFIRM)
            return
        self.most = after if unlikely else max(self.most, after)
        self.doubtful = None
        self.read_once = True
        self._believed()
        self._due_within(0.9 * INTERVAL, 1.1 * INTERVAL)

    def _due_within(self, least: float, most: float) -> None:
        due = self.actor.status().next_refresh_seconds
        assert due is not None
        assert least - 0.001 <= due <= most + 0.001

    def _unchanged(self) -> None:
        assert self._serving() == self.served

    def _serving(self) -> dict[str, Version]:
        """What the actor serves, as versions of the model."""
        found = {}
        for operation_id, member in self.actor.snapshot.members.items():
            operation = member.operation
            number = operation.execution_config["concurrency"]
            assert isinstance(number, int)
            found[operation_id] = Version(number, operation.name, str(operation.tool_description))
        return found

    def _believed(self) -> None:
        before, after = self.served, self._serving()
        published = self.published
        taken = [version.name for version in after.values()]
        assert len(set(taken)) == len(taken), "two operations have one name"
        assert after.keys() <= published.keys(), "something is served that is not published"
        owner = {version.name: operation_id for operation_id, version in before.items()}
        for operation_id, version in published.items():
            now, was = after.get(operation_id), before.get(operation_id)
            assert now in {version, was}, "neither what is published nor what was good"
            if was is not None:
                assert now is not None, "what was served is gone though it is published"
            if version.fault:
                assert now == was
                continue
            # A good version is held up by others who claim its name, and by nothing else.
            holder = owner.get(version.name)
            rivals = [
                i
                for i, other in published.items()
                if i != operation_id and not other.fault and other.name == version.name
            ]
            held = [
                i for i, other in after.items() if i != operation_id and other.name == version.name
            ]
            if holder == operation_id:
                assert now == version, "the owner of a name lost it"
            elif rivals:
                # One of them may have been the owner; none of the others wins.
                assert now != version, "a new claim won over another"
            else:
                assert (now == version) == (not held), "a free name was not given, or a taken one"
        if listing_of(after) != self.listings[0]:
            self.listings = [listing_of(after), *self.listings[:2]]
            self.notices -= 1
        self.served, self.accepted = after, dict(published)

    # -- what always holds ----------------------------------------------------------------

    @invariant()
    def the_status_tells_the_truth(self) -> None:
        assert self.notices == 0, "not one notice for each listing"
        if not hasattr(self, "client"):
            return
        status = self.actor.status()
        assert status.ready == self.read_once
        assert status.operations == len(self.served)
        assert status.published == len(self.accepted)
        assert status.awaiting_confirmation == (self.doubtful is not None)
        assert status.consecutive_failures == self.failures
        assert (status.last_error is None) == (self.failures == 0)
        assert sorted(self.actor.tools.entries) == [name for name, _ in listing_of(self.served)]
        assert list(self.actor.tools.entries) == sorted(self.actor.tools.entries)
        if self.failures:
            assert (status.state, self.actor.ttl) == ("failing", 0)

    @invariant()
    def a_call_gets_what_is_served_now(self) -> None:
        for operation_id, version in self.served.items():
            found = self.server.tools.find(version.name)
            assert isinstance(found, GatedEntry)
            assert found.operation.operation_id == operation_id
            assert found.operation.execution_config["concurrency"] == version.number

    @invariant()
    def whatever_is_not_served_as_published_is_reported(self) -> None:
        told = {record.operation_id: record for record in self.actor.status().quarantine}
        missing = {i for i, version in self.accepted.items() if self.served.get(i) != version}
        assert missing <= told.keys()
        owners = {version.name: i for i, version in self.served.items()}
        for record in list(told.values()):
            if record.fault == "duplicate":
                assert owners.get(record.name, record.operation_id) in told
        for operation_id, record in told.items():
            serving = self.served.get(operation_id)
            assert (record.serving is None) == (serving is None)
            assert record.reason
            if operation_id not in missing:
                # The owner of a name that others want is told, too.
                assert record.fault == "duplicate"
                assert serving is not None
                assert any(
                    version.name == serving.name and not version.fault
                    for other, version in self.accepted.items()
                    if other != operation_id
                )

    @invariant()
    def the_same_operations_have_the_same_revision(self) -> None:
        served = frozenset((i, version) for i, version in self.served.items())
        known = self.__dict__.setdefault("revisions", {})
        snapshot = self.actor.snapshot
        pair = known.setdefault(served, (snapshot.revision, snapshot.listing_revision))
        assert pair == (snapshot.revision, snapshot.listing_revision)
        assert len({revision for revision, _ in known.values()}) == len(known)


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What is logged is judged by other tests; here it would be megabytes."""
    caplog.set_level(logging.CRITICAL, "mcp_trio.catalog")


@pytest.mark.usefixtures("quiet")
def test_the_actor_keeps_its_promises_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    # Worker threads go by the clock on the wall; tests of their own have them.
    monkeypatch.setattr(actor_module, "FEW", 1_000_000)
    run_state_machine_as_test(
        CatalogMachine,
        settings=settings(
            max_examples=60,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            # Making a failure smaller takes minutes; add Phase.shrink to look into one.
            phases=[Phase.reuse, Phase.generate],
        ),
    )
