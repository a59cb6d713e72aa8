"""The admin pages of all workers in one: asked at the same time, and put together.

Each page keeps the form that it has with one process: what is counted is summed, what is listed
says which `worker` it is from. `silent` names the workers that did not answer in time and why: one
that hangs is reported and not waited for. Putting together is done by pure functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec
import trio

from mcp_trio.http.admin import Document, Page
from mcp_trio.http.seats import ask, socket_path
from mcp_trio.wire import JSONObject

ANSWER_TIMEOUT = 3.0
"""Seconds that a worker has to answer."""
MAX_SESSIONS = 1000
"""Sessions that are shown, of all workers together."""
MAX_ERRORS = 200
"""Failures that are shown, likewise."""

Answers: TypeAlias = Mapping[int, JSONObject]
"""What the workers have said, by their numbers."""
Merge: TypeAlias = Callable[[Answers], JSONObject]

JSONDict: TypeAlias = dict[str, Any]

METRICS = "/metrics"
MEDIA = b"text/plain; version=0.0.4; charset=utf-8"
NO_PAGE = "has no such page"

_STATES = ("stopped", "starting", "failing", "stale", "fresh")
"""Of a catalog, the worst first."""


class Gathering:
    """Asks the workers for their pages."""

    def __init__(
        self, count: int, rooms: Path, own_metrics: Callable[[], str] = lambda: ""
    ) -> None:
        """Take note of where they are.

        Args:
            count: of workers.
            rooms: where they have their sockets.
            own_metrics: what the parent adds to the metrics, in their text form.
        """
        self._own_metrics = own_metrics
        self._numbers = range(1, count + 1)
        self._rooms = rooms

    def pages(self) -> dict[str, Page]:
        """The pages for an admin listener, by path."""
        made = {path: self._page(path, merge) for path, merge in MERGES.items()}
        return {**made, METRICS: self._metrics}

    def _page(self, path: str, merge: Merge) -> Page:
        async def page() -> Document:
            answers, silent = await self.ask(path)
            unheard = {"silent": {str(number): why for number, why in silent.items()}}
            if not answers:
                return Document.of({"error": "no worker answers", **unheard}, 503)
            read = {n: msgspec.json.decode(body, type=JSONDict) for n, body in answers.items()}
            return Document.of({**merge(read), **unheard})

        return page

    async def _metrics(self) -> Document:
        answers, silent = await self.ask(METRICS)
        if not answers and set(silent.values()) == {NO_PAGE}:
            return Document.of({"error": "the workers have no such page"}, 404)
        own = self._own_metrics()
        told = merge_metrics({n: body.decode() for n, body in answers.items()})
        return Document((own + told).encode(), MEDIA)

    async def ask(self, path: str) -> tuple[dict[int, bytes], dict[int, str]]:
        """Ask all of them, `ANSWER_TIMEOUT` seconds at most.

        Returns:
            What they say, and why the others say nothing, both by number and in its order.
        """
        answers: dict[int, bytes] = {}
        silent: dict[int, str] = {}

        async def one(number: int) -> None:
            silent[number] = f"no answer within {ANSWER_TIMEOUT:g} s"
            with trio.move_on_after(ANSWER_TIMEOUT):
                try:
                    status, body = await ask(socket_path(self._rooms, number), path)
                    if status == 200:
                        answers[number] = body
                        del silent[number]
                    else:
                        silent[number] = NO_PAGE if status == 404 else f"status {status}"
                except OSError:
                    silent[number] = "does not run"

        async with trio.open_nursery() as nursery:
            for number in self._numbers:
                nursery.start_soon(one, number)
        return dict(sorted(answers.items())), dict(sorted(silent.items()))


def merge_catalog(answers: Answers) -> JSONObject:
    """The catalog of the worker that is worst off, and in short those of all."""
    worst = min(answers.values(), key=_badness)
    own = [
        {"worker": number, **{key: told[key] for key in told if key != "quarantine"}}
        for number, told in answers.items()
    ]
    return {**worst, "workers": own}


def _badness(told: JSONObject) -> tuple[int, float]:
    state = str(told.get("state"))
    age = cast("float | None", told.get("age_seconds"))
    return (_STATES.index(state) if state in _STATES else 0, -(age or 0.0))


def merge_sessions(answers: Answers) -> JSONObject:
    """All sessions, the oldest first."""
    every = list(_each(answers, "sessions"))
    every.sort(key=lambda session: -cast("float", session["age_seconds"]))
    shown = every[:MAX_SESSIONS]
    count = sum(cast("int", told["count"]) for told in answers.values())
    return {"count": count, "left_out": count - len(shown), "sessions": shown}


def merge_tasks(answers: Answers) -> JSONObject:
    """The trees of all workers below one root."""
    sums = {
        key: sum(cast("int", told[key]) for told in answers.values())
        for key in ("tasks", "left_out", "cancelled")
    }
    roots = [
        {"worker": number, **cast("JSONObject", told["root"])}
        for number, told in answers.items()
        if told["root"] is not None
    ]
    root: JSONObject = {
        "name": "workers",
        "waits_in": None,
        "cancelled": False,
        "shielded": False,
        "deadline_seconds": None,
        "nurseries": [roots],
    }
    return {**sums, "root": root}


def merge_rates(answers: Answers) -> JSONObject:
    """Sums, second by second and class by class."""
    every = list(answers.values())
    return {
        "total": _added(cast("Mapping[str, int]", told["total"]) for told in every),
        "seconds": [
            _sums(second)
            for second in zip(
                *(cast("list[list[int]]", told["seconds"]) for told in every), strict=True
            )
        ],
        "window_seconds": every[0]["window_seconds"],
        "latency_ms": _histogram([cast("JSONObject", told["latency_ms"]) for told in every]),
        "cancel_ms": _histogram([cast("JSONObject", told["cancel_ms"]) for told in every]),
    }


def merge_errors(answers: Answers) -> JSONObject:
    """The latest failures of all, newest first."""
    every = sorted(_each(answers, "errors"), key=lambda error: str(error["at"]), reverse=True)
    counts = [cast("Mapping[str, int]", told["by_stage"]) for told in answers.values()]
    return {"by_stage": dict(sorted(_added(counts).items())), "errors": every[:MAX_ERRORS]}


def merge_metrics(texts: Mapping[int, str]) -> str:
    """The metrics of all workers in the text form, each sample with a label `worker`.

    What belongs to one family stands together, as the form demands.
    """
    families: dict[str, list[str]] = {}
    for number, text in texts.items():
        samples: list[str] = []
        for line in text.splitlines():
            if line.startswith("# HELP "):
                samples = families.setdefault(line, [])
            elif line.startswith("#"):
                if line not in samples:
                    samples.append(line)
            elif line:
                samples.append(_labelled(line, number))
    return "".join(f"{line}\n" for head, lines in families.items() for line in (head, *lines))


def _labelled(sample: str, number: int) -> str:
    name, space, value = sample.partition(" ")
    bare, brace, _ = name.partition("{")
    if not brace:
        return f'{name}{{worker="{number}"}}{space}{value}'
    return f'{bare}{{worker="{number}",{sample[len(bare) + 1 :]}'


def _each(answers: Answers, key: str) -> Iterable[JSONObject]:
    for number, told in answers.items():
        for item in cast("list[JSONObject]", told[key]):
            yield {"worker": number, **item}


def _added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for each in counts:
        total.update(each)
    return dict(total)


def _histogram(every: list[JSONObject]) -> JSONObject:
    counts = [cast("list[int]", one["counts"]) for one in every]
    return {"bounds": every[0]["bounds"], "counts": _sums(counts)}


def _sums(rows: Iterable[list[int]]) -> list[int]:
    """Rows of the same length, added column by column."""
    return [sum(column) for column in zip(*rows, strict=True)]


MERGES: Mapping[str, Merge] = {
    "/catalog": merge_catalog,
    "/sessions": merge_sessions,
    "/tasks": merge_tasks,
    "/rates": merge_rates,
    "/errors": merge_errors,
}
"""By path of the page."""
