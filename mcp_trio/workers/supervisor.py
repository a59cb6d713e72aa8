"""The parent's work: it starts the workers, looks after them, and starts those again that end.

A worker that ends, or does not answer whether it lives, costs its own requests and nothing else. No
worker outlives the parent: it ends by the leash if the parent cannot tell it. Whether it lives is
asked and answered over the leash, too: whoever uses up the descriptors of a process, this one or
that, cannot make it look dead.
"""

from __future__ import annotations

import contextlib
import logging
import math
import random
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence

import attrs
import trio

from mcp_trio.errors import ConfigurationError
from mcp_trio.wire import JSONObject
from mcp_trio.workers.leash import ASK, DRAIN, LOOK, RELOAD, Handover, ParentsEnd, Report
from mcp_trio.workers.restarts import Restarts

logger = logging.getLogger("mcp_trio.workers")

START_TIMEOUT = 180.0
"""Seconds in which a worker has to begin to serve. Before, it looks at its registry, which may take
two minutes where that hangs: then it serves without tools, and is not to be killed for it."""
CHECK_INTERVAL = 1.0
"""Seconds between questions to a worker whether it lives and is ready."""
READY_FOR = 5.0
"""Seconds for which an answer to that counts."""
MARGIN = 5.0
"""Seconds that a worker may take to end beyond the grace period of its requests."""
LAST_WORDS = 1.0
"""Seconds for which a worker that has ended is still listened to."""


@attrs.define(eq=False)
class Worker:
    """What the parent knows of one worker. Changed by the supervisor only."""

    number: int
    """From 1. The one that takes the place of another has its number."""
    state: str = "starting"
    """`starting`, `serving`, `ending`, or `waiting` to be started again."""
    process: trio.Process | None = None
    leash: ParentsEnd | None = None
    since: float = 0.0
    """When the present state began, on Trio's clock."""
    started: trio.Event = attrs.field(factory=trio.Event)
    """Set once the present process serves."""
    fault: str | None = None
    """Why the present process cannot serve, as it says itself."""
    killed: str | None = None
    """Why the present process was killed by us."""
    listing: str | None = None
    """The revision of what it lists."""
    heard: trio.Event = attrs.field(factory=trio.Event)
    """Set by its answer to the latest question."""
    answered: float | None = None
    """When it last said that it is ready."""
    ends: int = 0
    """How often a process of this number has ended unasked."""
    last_end: str | None = None
    """How the last one did."""

    def enter(self, state: str) -> None:
        """Change the state."""
        self.state, self.since = state, trio.current_time()

    def renew(self) -> None:
        """Forget what was about the process before."""
        self.enter("starting")
        self.started, self.answered = trio.Event(), None
        self.fault = self.killed = self.listing = None

    @property
    def ready(self) -> bool:
        """Whether it has said so lately."""
        return self.answered is not None and trio.current_time() - self.answered <= READY_FOR

    def kill(self, reason: str) -> None:
        """End its process now, if there is one."""
        if self.process is not None and self.process.returncode is None:
            logger.error("worker %d (process %d) %s", self.number, self.process.pid, reason)
            self.killed = reason
            self.process.kill()

    def describe(self) -> JSONObject:
        """What operators see."""
        return {
            "worker": self.number,
            "pid": None if self.process is None else self.process.pid,
            "state": self.state,
            "ready": self.ready,
            "seconds": round(trio.current_time() - self.since, 3),
            "ends": self.ends,
            "last_end": self.last_end,
        }


class Supervisor:
    """Keeps as many workers as are wanted. One `run` per object."""

    def __init__(
        self,
        command: Sequence[str],
        hand_over: Callable[[int], Handover],
        *,
        count: int,
        patience: float,
        grace: float,
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            command: starts a worker, with the number of its end of the leash behind it.
            hand_over: what a worker is given.
            count: of workers.
            patience: seconds in which a worker has to answer whether it lives.
            grace: seconds that running requests have to finish in a drain.
        """
        self._command = tuple(command)
        self._hand_over = hand_over
        self._patience = patience
        self._grace = grace
        self._restarts = Restarts(count)
        self._drained = trio.Event()
        self._announced = False
        self._keeping = trio.CancelScope()
        self._hopeless: str | None = None
        self.workers = tuple(Worker(number) for number in range(1, count + 1))
        self.on_start: Callable[[list[str]], None] = lambda _urls: None
        """Told the URLs of the service when the first worker serves; it is called once."""

    @property
    def draining(self) -> bool:
        """Whether `drain` has been called."""
        return self._drained.is_set()

    @property
    def ready(self) -> bool:
        """Whether any worker is, and nobody has said that it is over."""
        return not self.draining and any(worker.ready for worker in self.workers)

    async def run(self) -> None:
        """Keep the workers until `drain`, and return when they have ended.

        Cancelling kills them at once.

        Raises:
            ConfigurationError: none of them can start, and why.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_in_time)
            with self._keeping:
                async with trio.open_nursery() as keeping:
                    for worker in self.workers:
                        keeping.start_soon(self._keep, worker)
            nursery.cancel_scope.cancel()
        if self._hopeless is not None:
            raise ConfigurationError(self._hopeless)

    def drain(self) -> None:
        """Have the workers go down gently, and start none again. Idempotent; never waits."""
        if self.draining:
            return
        self._drained.set()
        for worker in self.workers:
            self._let_go(worker)

    def _let_go(self, worker: Worker) -> None:
        if worker.process is None:
            return
        if worker.state == "serving" and worker.leash is not None:
            worker.enter("ending")
            worker.leash.tell(DRAIN)
        elif worker.state == "starting":
            worker.process.kill()  # nobody waits for an answer of it

    def reload(self) -> None:
        """Have the workers read again what files hold, such as certificates. Never waits."""
        for worker in self.workers:
            if worker.leash is not None:
                worker.leash.tell(RELOAD)

    def describe(self) -> JSONObject:
        """How the workers are doing, for operators."""
        return {"ready": self.ready, "workers": [worker.describe() for worker in self.workers]}

    def metrics(self) -> str:
        """The same in numbers, in the text form of Prometheus."""
        serving = [(each.number, int(each.state == "serving")) for each in self.workers]
        ends = [(each.number, each.ends) for each in self.workers]
        lines = [
            "# HELP mcp_worker_serving Whether a worker serves.",
            "# TYPE mcp_worker_serving gauge",
            *(f'mcp_worker_serving{{worker="{number}"}} {value}' for number, value in serving),
            "# HELP mcp_worker_ends_total Processes of a worker that ended unasked.",
            "# TYPE mcp_worker_ends_total counter",
            *(f'mcp_worker_ends_total{{worker="{number}"}} {value}' for number, value in ends),
        ]
        return "".join(f"{line}\n" for line in lines)

    async def _end_in_time(self) -> None:
        await self._drained.wait()
        await trio.sleep(self._grace + MARGIN)
        for worker in self.workers:
            worker.kill("does not end; it is killed")

    async def _keep(self, worker: Worker) -> None:
        """Have a process of this number until the end."""
        while True:
            served = await self._live(worker)
            if self._drained.is_set():
                return
            worker.ends += 1
            if worker.fault is not None and not self._announced:
                # The same for all of them, and nothing that waiting would mend.
                self._give_up(worker.fault)
                return
            pause = self._restarts.pause(worker.number, served, random.random())  # noqa: S311
            if pause is None:
                self._give_up(f"no worker can start: the last one {worker.last_end}")
                return
            told = worker.fault or worker.last_end
            logger.error(
                "worker %d %s; another one is started in %.1f s", worker.number, told, pause
            )
            worker.enter("waiting")
            with trio.move_on_after(pause):
                await self._drained.wait()
                return

    def _give_up(self, reason: str) -> None:
        self._hopeless = self._hopeless or reason
        self._keeping.cancel()

    async def _live(self, worker: Worker) -> float | None:
        """Be one process from its start to its end.

        Returns:
            Seconds for which it has served; None if it never did.
        """
        worker.renew()
        handover = self._hand_over(worker.number)
        ours, theirs = socket.socketpair()
        with contextlib.closing(ParentsEnd(ours)) as leash:
            try:
                with theirs:
                    process = await self._spawn(handover, theirs)
            except OSError as error:
                worker.last_end = f"cannot be started: {error.strerror}"
                return None
            worker.process, worker.leash = process, leash
            try:
                await self._attend(worker, process, leash, handover)
            finally:
                worker.leash = worker.answered = None
                process.kill()
                with trio.move_on_after(LAST_WORDS, shield=True):  # SIGKILL takes no time
                    await process.wait()
        worker.process = None
        worker.last_end = worker.killed or _ending(process.returncode)
        return trio.current_time() - worker.since if worker.started.is_set() else None

    async def _spawn(self, handover: Handover, theirs: socket.socket) -> trio.Process:
        """Start a process.

        A fresh interpreter, not a fork of this one; in a process group of its own, so that Ctrl-C
        on a terminal is for the parent alone.

        Raises:
            OSError: the system says no.
        """
        return await trio.lowlevel.open_process(
            [*self._command, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), *handover.listeners),
            process_group=0,
        )

    async def _attend(
        self, worker: Worker, process: trio.Process, leash: ParentsEnd, handover: Handover
    ) -> None:
        """Look after a process until it has ended."""
        heard = trio.Event()

        async def listen() -> None:
            try:
                await leash.hand_over(handover)
                async for report in leash.reports():
                    self._heed(worker, process.pid, report)
            except trio.BrokenResourceError:
                pass
            heard.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            nursery.start_soon(self._check, worker, leash)
            if self.draining:
                self._let_go(worker)
            await process.wait()
            with trio.move_on_after(LAST_WORDS):
                await heard.wait()
            nursery.cancel_scope.cancel()

    def _heed(self, worker: Worker, pid: int, report: Report) -> None:
        if report.fault is not None:
            worker.fault = report.fault
        if report.ready is not None:
            worker.answered = trio.current_time() if report.ready else None
            worker.heard.set()
        if report.urls is not None:
            self._serves(worker, pid, report.urls)
        if report.listing is not None:
            worker.listing = report.listing
            for other in self.workers:
                # One that has not looked yet will see it anyway.
                behind = other.listing is not None and other.listing != report.listing
                if behind and other.leash is not None:
                    other.leash.tell(LOOK)

    def _serves(self, worker: Worker, pid: int, urls: list[str]) -> None:
        worker.enter("serving")
        worker.started.set()
        logger.info("worker %d serves (process %d)", worker.number, pid)
        if self.draining:
            self._let_go(worker)
        elif not self._announced:
            self._announced = True
            self.on_start(urls)

    async def _check(self, worker: Worker, leash: ParentsEnd) -> None:
        """Ask a process whether it lives; kill one that does not say so."""
        with trio.move_on_after(START_TIMEOUT):
            await worker.started.wait()
        if not worker.started.is_set():
            worker.kill(f"did not start within {START_TIMEOUT:g} s")
            return
        interval = min(CHECK_INTERVAL, self._patience / 3)
        while await self._answers(worker, leash, interval):  # noqa: ASYNC110 - of its process
            await trio.sleep(interval)
        if worker.state != "ending":
            worker.kill(f"gave no sign of life for {self._patience:g} s; it is killed")

    async def _answers(self, worker: Worker, leash: ParentsEnd, interval: float) -> bool:
        """Whether a process says that it lives.

        Questions are counted, not seconds: time in which this process stood still itself, such as
        in a container that is paused, is not held against the worker.
        """
        worker.heard = trio.Event()
        for _ in range(math.ceil(self._patience / interval)):
            leash.tell(ASK)
            with trio.move_on_after(interval):
                await worker.heard.wait()
                return True
        return False


def _ending(code: int | None) -> str:
    """How a process has ended, in words."""
    if code is None:
        return "does not end"
    if code >= 0:
        return f"exited with {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
