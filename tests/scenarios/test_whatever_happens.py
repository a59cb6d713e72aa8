"""Whatever happens to the line between a client and a server, calls end and nothing is left.

Hypothesis makes up what the two do and what goes wrong meanwhile; Trio runs as a guest, on a
clock that jumps, so that a minute costs nothing.
"""

import contextlib
import functools
import logging
from pathlib import Path

import hypothesis
import pytest
import trio
import trio.testing
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mcp_trio import (
    ClientCallbacks,
    ClientOptions,
    Context,
    MCPClient,
    MCPError,
    MCPServer,
    MemoryTransport,
)
from mcp_trio.engine.peer import Peer
from mcp_trio.server.server import EOF_GRACE
from mcp_trio.session import session
from mcp_trio.session.call import TimeLimit
from mcp_trio.testing import Fault, Faults, FaultyStream, FaultyTransport
from mcp_trio.transports.lines import LineTransport
from mcp_trio.wire.elicitation import ElicitResult
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28
from tests.scenarios.guest import Guest

TELLING = 1.0
"""Seconds that a caller who leaves may be held up, to tell the server."""
SHIELDED = 2.0
"""Seconds that a stubborn handler cleans up."""
OPENING = 30.0
"""Seconds in which a client is connected, or knows that it cannot be."""
SLACK = 0.001
NOTE = "note:///one"
SIDES = ("client", "server")
HARM = [fault for fault in Fault if fault is not Fault.CUT]


class Alive:
    """Counts the handlers that run."""

    def __init__(self):
        self.handlers = 0

    def counted(self, function):
        @functools.wraps(function)
        async def run(*args, **kwargs):
            self.handlers += 1
            try:
                return await function(*args, **kwargs)
            finally:
                self.handlers -= 1

        return run


def make_server(alive):
    server = MCPServer("whatever")

    @server.tool
    @alive.counted
    async def quick(number: int) -> int:
        return number

    @server.tool
    @alive.counted
    async def slow(number: int) -> int:
        await trio.sleep(3)
        return number

    @server.tool
    @alive.counted
    async def endless(number: int) -> int:
        await trio.sleep_forever()
        return number

    @server.tool
    @alive.counted
    async def stubborn(number: int) -> int:
        try:
            await trio.sleep(5)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(SHIELDED)
        return number

    @server.tool
    @alive.counted
    async def talkative(number: int, ctx: Context) -> int:
        async with trio.open_nursery() as nursery:
            for step in range(1, 6):
                await ctx.progress(step, 5)
                await trio.sleep(0.5)
                nursery.start_soon(ctx.log, "info", f"step {step} of {number}")
        return number

    @server.tool
    @alive.counted
    async def asking(number: int, ctx: Context) -> int:
        answer = await ctx.elicit(f"{number}", {"type": "object", "properties": {}})
        return number if answer.action == "accept" else -1

    @server.resource(NOTE)
    def one() -> str:
        return "one"

    return server


TOOLS = ("quick", "slow", "endless", "stubborn", "talkative", "asking")


class Call:
    """One call, from its beginning to whatever end it has."""

    def __init__(self, tool, number, timeout):
        self.tool = tool
        self.number = number
        self.began = trio.current_time()
        self.due = self.began + timeout
        self.timeout = timeout
        self.scope = trio.CancelScope()
        self.outcome = None
        self.ended = None

    async def run(self, client):
        heard = []
        try:
            with self.scope:
                result = await client.call_tool(
                    self.tool,
                    {"number": self.number},
                    timeout=self.timeout,
                    on_progress=lambda value, *_: heard.append(value),
                )
                self.outcome = result
        except MCPError as error:
            self.outcome = error
        if self.outcome is None:
            assert self.scope.cancelled_caught
            self.outcome = "cancelled"
        self.ended = trio.current_time()
        assert heard == sorted(set(heard))

    def cancel(self):
        self.scope.cancel()
        self.due = min(self.due, trio.current_time())

    def check_answer(self):
        """It is the answer to this call and no other; a failed one says so."""
        if not isinstance(self.outcome, MCPError | str) and not self.outcome.is_error:
            assert self.outcome.structured_content == {"result": self.number}


class Pair:
    """A client and a server on a line of which every end can go wrong."""

    def __init__(self, nursery, line, revision):
        self.nursery = nursery
        self.alive = Alive()
        self.server = make_server(self.alive)
        self.streams = {}
        self.ends = dict(zip(SIDES, self._ends(line), strict=True))
        self.options = ClientOptions(revisions=(revision,), probe_timeout=5)
        self.callbacks = ClientCallbacks(elicitation=self._elicit)
        self.client = None
        self.session = None
        self.sessions = []
        self.leave = trio.Event()
        self.left = trio.Event()
        self.refused = None
        self.served = trio.Event()
        self.serving = trio.CancelScope()
        self.listening = trio.CancelScope()
        self.listens = False

    def _ends(self, line):
        if line == "memory":
            return map(FaultyTransport, MemoryTransport.pair())
        for side, stream in zip(SIDES, trio.testing.lockstep_stream_pair(), strict=True):
            self.streams[side] = FaultyStream(stream)
        return [FaultyTransport(LineTransport(each, each)) for each in self.streams.values()]

    async def _elicit(self, params):
        await trio.sleep(0.5)
        return ElicitResult(action="accept", content={})

    async def open(self):
        await self.nursery.start(self._serve)
        await self.nursery.start(self._connect)

    async def _serve(self, *, task_status):
        try:
            with self.serving:
                await self.server.serve(
                    self.ends["server"],
                    eof_grace=EOF_GRACE,
                    task_status=_Keeping(self, task_status),
                )
        finally:
            self.served.set()

    async def _connect(self, *, task_status):
        try:
            client = MCPClient(self.ends["client"], callbacks=self.callbacks, options=self.options)
            async with client:
                self.client = client
                self.sessions.append(client.session)
                task_status.started()
                await self.leave.wait()
        except MCPError as error:
            self.refused = error
            task_status.started()
        finally:
            self.left.set()

    async def listen(self):
        self.listens = True
        self.listening = trio.CancelScope()
        try:
            with self.listening, contextlib.suppress(MCPError):
                async with self.client.listen(tools=True, resource=NOTE) as changes:
                    async for _ in changes:
                        pass
        finally:
            self.listens = False

    def check_nothing_is_left(self):
        assert self.left.is_set()
        assert self.served.is_set()
        assert self.alive.handlers == 0
        assert not self.listens
        for each in self.sessions:
            counted = each.statistics()
            assert (counted.pending, counted.in_flight, each._tasks) == (0, 0, 0)
            assert not each.reaper.running
        assert len(self.server.notices) == 0


class _Keeping:
    def __init__(self, pair, status):
        self._pair = pair
        self._status = status

    def started(self, session):
        self._pair.sessions.append(session)
        self._status.started()


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


class Whatever(RuleBasedStateMachine):
    """What a client, a server and the line between them may do."""

    line = "memory"
    revision = R2025_11_25

    def __init__(self):
        super().__init__()
        self.descriptors = open_descriptors()
        self.guest = Guest()
        self.calls = []
        self.pair = None
        self.spoilt = False
        """Whether bytes were changed, after which an answer may say anything."""

    def do(self, action, *args):
        """Do something and let everybody react to it, without any time passing."""

        async def job():
            result = action(*args)
            if hasattr(result, "__await__"):
                await result
            await trio.testing.wait_all_tasks_blocked()

        self.guest.run(job)

    @property
    def connected(self):
        return self.pair is not None and self.pair.client is not None

    @property
    def open(self):
        return self.connected and not self.pair.leave.is_set()

    @initialize(seed=st.integers(0, 2**16), troubled=st.booleans())
    def begin(self, seed, troubled):
        self.spoilt = False
        self.calls = []

        async def job():
            self.tasks = trio.lowlevel.current_statistics().tasks_living
            self.pair = Pair(self.guest.nursery, self.line, self.revision)
            if troubled:
                rates = dict.fromkeys((Fault.DROP, Fault.DELAY, Fault.DUPLICATE), 0.08)
                for number, end in enumerate(self.pair.ends.values()):
                    end.faults = Faults(seed + number, rates=rates)
            with trio.fail_after(OPENING):
                await self.pair.open()

        self.do(job)

    # -- what is done -------------------------------------------------------------------

    @precondition(lambda self: self.open)
    @rule(tool=st.sampled_from(TOOLS), timeout=st.sampled_from([0.5, 0, 2, 4, 10, 30]))
    def call(self, tool, timeout):
        def start():
            call = Call(tool, len(self.calls), timeout)
            self.calls.append(call)
            self.guest.nursery.start_soon(call.run, self.pair.client)

        self.do(start)

    @precondition(lambda self: any(call.ended is None for call in self.calls))
    @rule(data=st.data())
    def cancel(self, data):
        running = [call for call in self.calls if call.ended is None]
        self.do(data.draw(st.sampled_from(running)).cancel)

    @precondition(lambda self: self.open and not self.pair.listens)
    @rule()
    def listen(self):
        self.do(self.guest.nursery.start_soon, self.pair.listen)

    @precondition(lambda self: self.pair.listens)
    @rule()
    def listen_no_more(self):
        self.do(self.pair.listening.cancel)

    @rule(what=st.sampled_from(["resource", "tools"]))
    def change(self, what):
        def tell():
            if what == "resource":
                self.pair.server.notify_resource_updated(NOTE)
            else:
                self.pair.server.add_tool(lambda: "new", name=f"new{len(self.pair.sessions)}")
                self.pair.server.remove_tool(f"new{len(self.pair.sessions)}")

        self.do(tell)

    @rule(seconds=st.sampled_from([0.1, 1, 5, 20]))
    def wait(self, seconds):
        self.do(trio.sleep, seconds)

    # -- what goes wrong ----------------------------------------------------------------

    @rule(side=st.sampled_from(SIDES), fault=st.sampled_from(HARM))
    def hurt_a_message(self, side, fault):
        self.spoilt = self.spoilt or fault is Fault.CORRUPT
        self.pair.ends[side].faults.inject(fault)

    @precondition(lambda self: self.pair.streams)
    @rule(side=st.sampled_from(SIDES), fault=st.sampled_from(HARM))
    def hurt_some_bytes(self, side, fault):
        self.spoilt = self.spoilt or fault is not Fault.DELAY
        self.pair.streams[side].faults.inject(fault)

    @rule(side=st.sampled_from(SIDES), seconds=st.sampled_from([0.5, 3, 15]))
    def stall(self, side, seconds):
        async def for_a_while():
            self.pair.ends[side].stall()
            await trio.sleep(seconds)
            self.pair.ends[side].go_on()

        self.do(for_a_while)

    @precondition(lambda self: self.open)
    @rule(side=st.sampled_from(SIDES), how=st.sampled_from(["cut", "cut in a message", "close"]))
    def end(self, side, how):
        match how:
            case "cut":
                self.do(self.pair.ends[side].cut)
            case "cut in a message":
                self.spoilt = True
                self.pair.streams.get(side, self.pair.ends[side]).faults.inject(Fault.CUT)
            case _:
                self.do(self.pair.leave.set if side == "client" else self.pair.serving.cancel)

    @precondition(lambda self: not self.open or self.pair.client.session.closed)
    @rule(seed=st.integers(0, 2**16), troubled=st.booleans())
    def connect_anew(self, seed, troubled):
        self.guest.run(self._end)
        self.begin(seed, troubled)

    # -- what has to hold ---------------------------------------------------------------

    @invariant()
    def calls_end_in_time_with_their_own_answer(self):
        if self.pair is None:
            return

        async def check():
            now = trio.current_time()
            for call in self.calls:
                if call.ended is None:
                    assert now <= call.due + TELLING + SLACK, (call.tool, call.timeout)
                else:
                    assert call.ended <= call.due + TELLING + SLACK, (call.tool, call.timeout)
                    if not self.spoilt:
                        call.check_answer()

        self.guest.run(check)

    def teardown(self):
        try:
            if self.pair is not None:
                self.guest.run(self._end)
        finally:
            self.guest.close()
        assert open_descriptors() == self.descriptors

    async def _end(self):
        """Everybody leaves; a minute later nothing is left."""
        self.pair.leave.set()
        for call in self.calls:
            if call.ended is None:
                call.cancel()
        await trio.sleep(60)
        assert all(call.ended is not None for call in self.calls)
        self.pair.check_nothing_is_left()
        assert trio.lowlevel.current_statistics().tasks_living == self.tasks


def run(line, revision, **settings):
    machine = type("Whatever", (Whatever,), {"line": line, "revision": revision})
    given = {
        "max_examples": 40,
        "stateful_step_count": 30,
        "derandomize": True,
        "database": None,
        "deadline": None,
        "suppress_health_check": list(hypothesis.HealthCheck),
    }
    run_state_machine_as_test(machine, settings=hypothesis.settings(**{**given, **settings}))


@pytest.mark.parametrize("revision", [R2025_11_25, R2026_07_28], ids=str)
@pytest.mark.parametrize("line", ["memory", "lines"])
def test_calls_end_and_nothing_is_left(line, revision, caplog):
    run(line, revision)
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []


# -- the machine itself ------------------------------------------------------------------


def abandon_nothing(monkeypatch):
    """What was given up is still waited for."""
    peers = set()

    def abandon(peer, id_):
        peers.add(peer)
        return id_ in peer.pending

    def tidy():
        for peer in peers:
            peer.pending.clear()

    monkeypatch.setattr(Peer, "abandon", abandon)
    return tidy


def answer_another_call(monkeypatch):
    """The first answer goes to whoever has waited longest."""

    def resolve(peer, id_):
        return peer.pending.pop(min(peer.pending), None) if peer.pending else None

    monkeypatch.setattr(Peer, "resolve", resolve)


def forget_the_time(monkeypatch):
    monkeypatch.setattr(session, "time_limit", lambda given: TimeLimit())


def close_nothing(monkeypatch):
    """The line stays open when a session ends."""

    async def aclose(line):
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(FaultyTransport, "aclose", aclose)


@pytest.mark.parametrize(
    "spoil", [abandon_nothing, answer_another_call, forget_the_time, close_nothing]
)
def test_a_fault_of_the_engine_is_found(spoil, monkeypatch):
    tidy = spoil(monkeypatch)
    with pytest.raises((AssertionError, trio.TooSlowError)):
        run("memory", R2025_11_25, phases=[hypothesis.Phase.generate], max_examples=200)
    if tidy is not None:
        tidy()
