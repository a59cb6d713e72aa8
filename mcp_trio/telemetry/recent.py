"""What went on lately: rates, latencies and failures of the last minutes, kept in memory.

A listener of event hubs. It keeps numbers and names, bounded whatever happens, and forgets them
after `WINDOW` seconds. No argument, no result and no text of an error is kept.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable

import attrs
import trio

from mcp_trio.events import Event, Outcome, RequestCompleted, ToolCompleted
from mcp_trio.telemetry.failures import HANDLER, Failure
from mcp_trio.telemetry.labels import MAX_STAGES, Bounded, method_label
from mcp_trio.telemetry.plain_text import cut
from mcp_trio.wire import JSONObject

WINDOW = 300
"""Seconds that are remembered."""
SHOWN = 120
"""Seconds that are shown one by one."""
MAX_ERRORS = 200
"""Failures that are remembered, the latest ones."""
BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
"""Upper bounds of the classes of the histograms; one more class is for what is slower."""


def _classes() -> list[int]:
    return [0] * (len(BOUNDS_MS) + 1)


@attrs.define
class _Second:
    """What was counted in one second of Trio's clock."""

    number: int
    outcomes: Counter[Outcome] = attrs.field(factory=Counter[Outcome])
    latency: list[int] = attrs.field(factory=_classes)
    cancelling: list[int] = attrs.field(factory=_classes)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Recent:
    """Attach it to the hubs of servers: `server.events.attach(recent)`."""

    def __init__(self, clock: Callable[[], dt.datetime] = _now) -> None:
        """Make one.

        Args:
            clock: tells the time of day, for the failures.
        """
        self._clock = clock
        self._seconds: deque[_Second] = deque(maxlen=WINDOW)
        self._errors: deque[JSONObject] = deque(maxlen=MAX_ERRORS)
        self._stages: Counter[str] = Counter()
        self._stage = Bounded(MAX_STAGES)
        self._total: Counter[Outcome] = Counter()

    def __call__(self, event: Event) -> None:
        """Count one event."""
        if isinstance(event, ToolCompleted):
            self._tool(event)
        elif isinstance(event, RequestCompleted) and event.direction == "inbound":
            self._request(event)

    def _request(self, event: RequestCompleted) -> None:
        second = self._second()
        second.outcomes[event.outcome] += 1
        self._total[event.outcome] += 1
        second.latency[bisect_left(BOUNDS_MS, event.duration_ms)] += 1
        if event.cancel_ms is not None:
            second.cancelling[bisect_left(BOUNDS_MS, event.cancel_ms)] += 1
        # Calls of tools are told with more by an event of their own.
        if event.outcome == "error" and event.method != "tools/call":
            self._failed({"method": method_label(event.method), "stage": HANDLER}, event)

    def _tool(self, event: ToolCompleted) -> None:
        if event.outcome != "error":
            return
        told = Failure.of(event)
        failure: JSONObject = {
            "method": "tools/call",
            "tool": cut(event.tool),
            "stage": self._stage(told.stage),
            "sub": told.sub,
            "code": told.code,
            "upstream_status": told.upstream_status,
            "operation_id": told.operation_id,
            "principal": cut(event.subject),
        }
        self._failed(failure, event)

    def _failed(self, failure: JSONObject, event: RequestCompleted | ToolCompleted) -> None:
        self._stages[str(failure["stage"])] += 1
        self._errors.append(
            {
                "at": self._clock().isoformat(timespec="milliseconds"),
                **failure,
                "request_id": cut(str(event.id)),
                "duration_ms": round(event.duration_ms, 3),
            }
        )

    def _second(self) -> _Second:
        number = int(trio.current_time())
        if not self._seconds or self._seconds[-1].number != number:
            self._seconds.append(_Second(number))
        return self._seconds[-1]

    def rates(self) -> JSONObject:
        """Requests by outcome and second, and the two histograms.

        Returns:
            `total` since the start by outcome; `seconds`, the latest last, each a list of
            success, error and cancelled, the running second left out; `latency_ms` and
            `cancel_ms` over the last `window_seconds`: `counts` of the classes up to each of
            `bounds`, and of what is above. `cancel_ms` is the time from the moment that a
            request was cancelled, by whatever, to its end.
        """
        now = int(trio.current_time())
        kept = [second for second in self._seconds if second.number > now - WINDOW]
        by_number = {second.number: second for second in kept}
        nothing = _Second(0)
        series = [by_number.get(number, nothing).outcomes for number in range(now - SHOWN, now)]
        return {
            "total": _outcomes(self._total),
            "seconds": [list(_outcomes(each).values()) for each in series],
            "window_seconds": WINDOW,
            "latency_ms": _histogram([second.latency for second in kept]),
            "cancel_ms": _histogram([second.cancelling for second in kept]),
        }

    def errors(self) -> JSONObject:
        """The latest failures, newest first, and how many there were by stage since the start."""
        return {"by_stage": dict(sorted(self._stages.items())), "errors": list(self._errors)[::-1]}


def _outcomes(counts: Counter[Outcome]) -> dict[str, int]:
    return {
        "success": counts["success"],
        "error": counts["error"],
        "cancelled": counts["cancelled"],
    }


def _histogram(classes: list[list[int]]) -> JSONObject:
    counts = [sum(column) for column in zip(*classes, strict=True)] if classes else _classes()
    return {"bounds": list(BOUNDS_MS), "counts": counts}
