"""How long does it take from leaving a call's scope until its handler ends, by each own client?

What users of a package feel: its client calls its server, and the task or scope of the call is
cancelled. Client and server are programs of their own, on a core each; in memory both are one
program. "Busy" is a client that has eight other tasks call `add` all the time, on the same
connection or pool of connections.
"""

from __future__ import annotations

import itertools

import attrs
import trio

from benchmarks.calls import STATELESS
from benchmarks.cancel_latency import GIVE_UP, OTHERS, PATIENCE, WARM_UP
from benchmarks.clients import Client, client
from benchmarks.contenders import PAIRS, Pair, Programs, programs
from benchmarks.findings import Finding, Waits
from benchmarks.moments import Moments
from benchmarks.processes import ProgramError, need
from benchmarks.servers.telling import BEGAN, ENDED, GAVE_UP


@attrs.define
class Ready:
    """A client that is connected to its server."""

    name: str
    client: Client
    moments: Moments
    taken: list[float | None] = attrs.field(factory=list)
    _names: itertools.count[int] = attrs.field(factory=itertools.count)

    def block(self, count: int, *, judged: bool = True) -> None:
        """Give up so many calls, one after the other."""
        for _ in range(count):
            if len(self.taken) >= GIVE_UP and not any(self.taken[-GIVE_UP:]):
                break
            waited = self._one(f"held-{id(self)}-{next(self._names)}")
            if judged:
                self.taken.append(waited)

    def _one(self, name: str) -> float | None:
        arguments = {"name": name, "port": self.moments.port, "talk": False}
        self.client.order("call", tool="hold", arguments=arguments)
        if self.moments.wait(name, BEGAN, PATIENCE) is None:
            raise ProgramError(f"{self.name} never began a call")
        self.client.order("cancel")
        given_up = self.moments.wait(name, GAVE_UP, PATIENCE)
        ended = self.moments.wait(name, ENDED, PATIENCE)
        self.moments.forget(name)
        return None if ended is None or given_up is None else ended - given_up


@attrs.frozen
class Plan:
    """How much is measured."""

    rounds: int
    count: int
    """Calls in a round."""
    others: int


def compare(title: str, pairs: dict[str, Pair], there: Programs, plan: Plan) -> Finding:
    """Measure round by round in turn; nobody else is connected meanwhile."""
    moments = Moments()
    known = there.commands
    figures: dict[str, list[float | None]] = {name: [] for name in pairs}
    failures: dict[str, str] = {}
    try:
        for _ in range(plan.rounds):
            for name, pair in pairs.items():
                if name in failures:
                    continue
                try:
                    url = "" if pair.server in {"memory", "stdio"} else there.url(pair.server)
                    command, target = known.clients[pair.client], known.target(pair, url)
                    with client(command, target, pair.revision, plan.others) as connected:
                        ready = Ready(name, connected, moments)
                        ready.block(WARM_UP, judged=False)
                        ready.block(plan.count)
                except (ProgramError, OSError) as error:
                    failures[name] = str(error)
                    figures[name].clear()
                else:
                    figures[name] += [v and v * 1000 for v in ready.taken]
    finally:
        moments.close()
    return Waits(title=title, figures=figures, failures=failures)


async def measure(quick: bool) -> list[Finding]:  # noqa: FBT001
    """Give up by every client."""
    need("taskset")
    idle, busy = (
        (Plan(1, 5, 0), Plan(1, 5, OTHERS)) if quick else (Plan(2, 400, 0), Plan(2, 100, OTHERS))
    )
    findings: list[Finding] = []
    async with programs() as there:
        for plan, told in ((idle, "idle"), (busy, f"busy with {OTHERS} other calls")):
            for between in PAIRS if not quick else ("stdio", f"HTTP, {STATELESS}"):
                pairs = PAIRS[between]
                title = f"Scope of the own client's call cancelled, {between}, {told}"
                found = await trio.to_thread.run_sync(compare, title, pairs, there, plan)
                findings.append(found)
    return findings
