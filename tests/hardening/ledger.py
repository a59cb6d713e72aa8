"""What became of each call, as every party has it, and whether they agree.

A call has a mark of its own among its arguments. By it the same call is found in the ledger of the
callers, in the journal of the upstream, and in the audit log and access log of the service in
between, so that one call too many does not make up for one that was lost. Nothing here talks to
anybody; the books are given as they were written.
"""

import hashlib
import hmac
import json
import os
from collections import Counter, defaultdict

import attrs
import trio

ANSWERED, FAILED, LEFT, UNSENT = "answered", "failed", "left", "unsent"
"""How a call ended for its caller: a result, a result that is an error, given up by himself, or
broken off before all of the request was sent."""
BROKEN_TOOLS = frozenset({"half", "junk"})
"""Their upstream never gives a good answer."""
AUDIT_KEY = bytes(range(32))


@attrs.define(eq=False)
class Call:
    """One call of a tool, as its caller has it."""

    mark: str
    place: str
    """The process that is asked, or the processes."""
    way: str
    """How it is reached."""
    tool: str
    began: float
    ended: float = 0.0
    end: str | None = None

    def close(self, how):
        """Note the end. There is one."""
        assert self.end is None, f"{self} has ended twice, now {how}"
        self.end, self.ended = how, trio.current_time()


@attrs.define(eq=False)
class Ledger:
    """The callers' own book."""

    calls: dict[str, Call] = attrs.field(factory=dict)
    outages: list[tuple[float, float]] = attrs.field(factory=list)
    """When the upstream was killed, and when it was back."""
    sockets: Counter = attrs.field(factory=Counter)
    """WebSockets that were opened, by place."""
    streamed: Counter = attrs.field(factory=Counter)
    """Answers that came as a stream, by way."""

    def ask(self, place, way, tool):
        """Enter a call that is about to be made."""
        mark = f"{way.replace(' ', '-')}.{len(self.calls)}"
        call = self.calls[mark] = Call(mark, place, way, tool, trio.current_time())
        return call

    def at(self, place):
        """The calls of one place."""
        return [call for call in self.calls.values() if call.place == place]

    def told(self):
        """How many calls ended in which way, by way."""
        told = defaultdict(Counter)
        for call in self.calls.values():
            told[call.way][call.end] += 1
        return told


def digest_of(call):
    """What the audit log has in place of the call's arguments."""
    text = json.dumps({"mark": call.mark}, separators=(",", ":"))
    return hmac.new(AUDIT_KEY, text.encode(), hashlib.sha256).hexdigest()


@attrs.frozen(kw_only=True)
class Books:
    """What one place has written of its calls."""

    place: str
    audit: list
    """Its lines."""
    ended: Counter
    """`mcp_request_total` of calls that were received, by outcome."""
    tools: Counter
    """`mcp_tool_call_total` by tool and outcome."""
    open: dict
    """Gauges of what runs, waits and listens."""
    access: list | None = None
    """Its lines; None where nothing is HTTP."""
    relays: bool = False
    """Whether exchanges may be answered by another process than the one that logs them."""

    def entries(self, ledger):
        """Outcomes in the audit log by mark, under None those of calls that nobody made."""
        known = {digest_of(call): call.mark for call in ledger.calls.values()}
        found = defaultdict(list)
        for line in self.audit:
            found[known.get(line["arguments_hmac"])].append(line["outcome"])
        return found


def read_journal(path, killed):
    """What the upstream saw: begins by mark, and marks of begins that have no end.

    Args:
        path: of the journal.
        killed: numbers of processes that had no time to write an end.
    """
    begun, open_, faults = Counter(), Counter(), []
    for line in path.read_text().splitlines():
        number, what, _, mark = line.split(" ")
        if what == "begun":
            begun[mark] += 1
            open_[number, mark] += 1
        else:
            open_[number, mark] -= 1
    for (number, mark), count in open_.items():
        if count < 0 or (count > 0 and int(number) not in killed):
            faults.append(f"upstream: {mark} was begun, but for {count} times ended")
    return begun, faults


def judge_callers(ledger):
    """Every call has ended, and none badly but for what was broken on purpose."""
    faults = []
    for call in ledger.calls.values():
        if call.end is None:
            faults.append(f"{call} has no end")
        elif call.end == ANSWERED and call.tool in BROKEN_TOOLS:
            faults.append(f"{call} cannot have been answered")
        elif (
            call.end == FAILED
            and call.tool not in BROKEN_TOOLS
            and not any(a <= call.ended and call.began <= b for a, b in ledger.outages)
        ):
            faults.append(f"{call} failed, and nothing was broken")
    return faults


FITS = {ANSWERED: [["success"]], FAILED: [["error"]], UNSENT: [[]]}
"""What the audit log may have of a call. Of one that was given up it may have nothing, or
anything once."""


def judge_place(ledger, books, begun):
    """Hold the books of one place to those of its callers and of the upstream.

    Args:
        ledger: of all callers.
        books: of the place.
        begun: how often the upstream saw each mark.

    Returns:
        What does not agree.
    """
    faults = [f"{name} is {value}, not 0" for name, value in books.open.items() if value]
    entries = books.entries(ledger)
    faults += [f"a call that nobody made: {outcome}" for outcome in entries.pop(None, [])]
    unheard = 0
    for call in ledger.at(books.place):
        found = entries.pop(call.mark, [])
        if len(found) > 1 or (call.end in FITS and found not in FITS[call.end]):
            faults.append(f"{call} is {found} in the audit log")
        seen = begun[call.mark]
        if seen > len(found) or (seen == 0 and call.end == ANSWERED and call.tool != "hello"):
            faults.append(f"{call}: {found} in the audit log, and the upstream saw it {seen} times")
        unheard += call.end == LEFT and not found
    faults += [f"{mark} was called elsewhere" for mark in entries]
    faults += _judge_metrics(books, unheard)
    if books.access is not None:
        faults += _judge_access(ledger, books)
    return faults


def _judge_metrics(books, unheard):
    """A request that was cancelled before it began is in `ended`, and nowhere else."""
    lines = Counter((line["tool"], line["outcome"]) for line in books.audit)
    faults = []
    if lines != books.tools:
        faults.append(f"{books.place}: metrics {books.tools - lines}, audit {lines - books.tools}")
    surplus = books.ended.total() - len(books.audit)
    if not 0 <= surplus <= unheard:
        faults.append(
            f"{books.place}: {books.ended} requests ended, {len(books.audit)} calls; {unheard} may"
            " have been given up before they began"
        )
    return faults


def _judge_access(ledger, books):
    """Each exchange is there once: by id where the caller chose it, else by number."""
    faults = []
    calls = [line for line in books.access if line["call"] == "tools/call"]
    by_id = defaultdict(list)
    for line in calls:
        by_id[line["request_id"]].append(line)
    for call in ledger.at(books.place):
        if not call.way.startswith("raw"):
            continue
        found = by_id[call.mark]
        whole = [line for line in found if line["status"] == 200 and line["complete"]]
        ended = call.end in {ANSWERED, FAILED}
        if len(found) > 1 or (ended and not whole) or (call.end == UNSENT and found):
            faults.append(f"{call} is {found} in the access log")
    by_agent = Counter(line["agent"] for line in calls)
    for way in {call.way for call in ledger.at(books.place)}:
        ends = Counter(call.end for call in ledger.at(books.place) if call.way == way)
        if (count := by_agent[way]) and not books.relays:
            least = ends[ANSWERED] + ends[FAILED]
            if not least <= count <= least + ends[LEFT]:
                faults.append(f"{way}: {count} exchanges in the access log, {ends}")
    sockets = sum(line["method"] == "WEBSOCKET" for line in books.access)
    if sockets != ledger.sockets[books.place]:
        faults.append(f"{sockets} WebSockets in the access log, not {ledger.sockets}")
    return faults


def read_lines(path):
    """A file of JSON lines."""
    if not os.path.exists(path):  # noqa: PTH110 - a path or a text
        return []
    with open(path) as lines:  # noqa: PTH123 - as above
        return [json.loads(line) for line in lines]
