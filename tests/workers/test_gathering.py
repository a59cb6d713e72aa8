"""The pages of several workers as one: sums, lists that say whose, and workers that say nothing."""

import contextlib
import json
from contextlib import asynccontextmanager

import pytest
import trio

from mcp_trio.http.seats import socket_path
from mcp_trio.http.serving import HTTPService
from mcp_trio.transports.socket_file import SocketFile
from mcp_trio.workers import gathering
from mcp_trio.workers.gathering import (
    Gathering,
    merge_catalog,
    merge_errors,
    merge_metrics,
    merge_rates,
    merge_sessions,
    merge_tasks,
)


def catalog(state, age, **more):
    return {"state": state, "age_seconds": age, "quarantine": [{"name": "x"}], **more}


@pytest.mark.parametrize(
    ("states", "worst"),
    [
        ([("fresh", 1.0), ("failing", 2.0)], 2),
        ([("stale", 1.0), ("fresh", 2.0)], 1),
        ([("stopped", 1.0), ("starting", None)], 1),
        ([("fresh", 1.0), ("fresh", 9.0)], 2),
        ([("unheard of", 1.0), ("failing", 9.0)], 1),
    ],
)
def test_the_catalog_is_that_of_the_worker_that_is_worst_off(states, worst):
    answers = {
        number: catalog(state, age, revision=f"r{number}")
        for number, (state, age) in enumerate(states, 1)
    }
    told = merge_catalog(answers)
    assert told["revision"] == f"r{worst}"
    assert told["quarantine"] == [{"name": "x"}]
    assert [(each["worker"], each["revision"]) for each in told["workers"]] == [
        (1, "r1"),
        (2, "r2"),
    ]
    assert not any("quarantine" in each for each in told["workers"])


def test_sessions_are_listed_together_the_oldest_first(monkeypatch):
    monkeypatch.setattr(gathering, "MAX_SESSIONS", 3)
    ages = {1: [9.0, 1.0], 2: [5.0, 2.0]}
    answers = {
        number: {
            "count": len(own) + 10,
            "left_out": 10,
            "sessions": [{"id": str(age), "age_seconds": age} for age in own],
        }
        for number, own in ages.items()
    }
    told = merge_sessions(answers)
    assert [(s["worker"], s["id"]) for s in told["sessions"]] == [
        (1, "9.0"),
        (2, "5.0"),
        (2, "2.0"),
    ]
    assert (told["count"], told["left_out"]) == (24, 21)


def test_the_trees_of_tasks_stand_below_one_root():
    def tree(tasks, name):
        return {"tasks": tasks, "left_out": 1, "cancelled": 2, "root": name and {"name": name}}

    told = merge_tasks({1: tree(5, "a"), 2: tree(7, "b"), 3: tree(0, None)})
    assert (told["tasks"], told["left_out"], told["cancelled"]) == (12, 3, 6)
    assert told["root"]["nurseries"] == [[{"worker": 1, "name": "a"}, {"worker": 2, "name": "b"}]]
    keys = {"name", "waits_in", "cancelled", "shielded", "deadline_seconds", "nurseries"}
    assert told["root"].keys() == keys


def test_rates_are_added_second_by_second_and_class_by_class():
    def rates(number):
        histogram = {"bounds": [1, 2], "counts": [number, 0, 1]}
        return {
            "total": {"success": number, "error": 0, "cancelled": 1},
            "seconds": [[number, 0, 0], [0, number, 0]],
            "window_seconds": 300,
            "latency_ms": histogram,
            "cancel_ms": histogram,
        }

    told = merge_rates({1: rates(2), 2: rates(5)})
    assert told["total"] == {"success": 7, "error": 0, "cancelled": 2}
    assert told["seconds"] == [[7, 0, 0], [0, 7, 0]]
    assert told["latency_ms"] == told["cancel_ms"] == {"bounds": [1, 2], "counts": [7, 0, 2]}
    assert told["window_seconds"] == 300


def test_failures_are_listed_together_the_newest_first(monkeypatch):
    monkeypatch.setattr(gathering, "MAX_ERRORS", 2)
    one = {"by_stage": {"mapping": 1, "handler": 2}, "errors": [{"at": "05"}, {"at": "01"}]}
    two = {"by_stage": {"handler": 3}, "errors": [{"at": "07"}]}
    told = merge_errors({1: one, 2: two})
    assert told["by_stage"] == {"handler": 5, "mapping": 1}
    assert told["errors"] == [{"worker": 2, "at": "07"}, {"worker": 1, "at": "05"}]


ONE = """# HELP calls_total Calls.
# TYPE calls_total counter
calls_total{tool="a {b} c"} 1.0
# HELP up Whether.
# TYPE up gauge
up 1.0
"""
TWO = """# HELP up Whether.
# TYPE up gauge
up 0.0
# HELP calls_total Calls.
# TYPE calls_total counter
calls_total{tool="x"} 2.0
calls_total{tool=""} 3.0
"""


def test_metrics_stand_by_family_with_the_number_of_the_worker():
    assert merge_metrics({1: ONE, 2: TWO}) == (
        "# HELP calls_total Calls.\n"
        "# TYPE calls_total counter\n"
        'calls_total{worker="1",tool="a {b} c"} 1.0\n'
        'calls_total{worker="2",tool="x"} 2.0\n'
        'calls_total{worker="2",tool=""} 3.0\n'
        "# HELP up Whether.\n"
        "# TYPE up gauge\n"
        'up{worker="1"} 1.0\n'
        'up{worker="2"} 0.0\n'
    )


def worker(answers):
    """An application that answers with one of these by path, or never."""

    async def app(scope, _receive, send):
        status, body = answers.get(scope["path"], (404, b""))
        if body is None:
            await trio.sleep_forever()
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})

    return app


@asynccontextmanager
async def rooms(folder, *workers):
    """Workers 1, 2, ... that answer so."""
    with contextlib.ExitStack() as stack:
        async with trio.open_nursery() as nursery:
            for number, answers in enumerate(workers, 1):
                file = stack.enter_context(SocketFile(socket_path(folder, number), 0o600, 10))
                listener = trio.SocketListener(trio.socket.from_stdlib_socket(file.socket))
                await nursery.start(HTTPService(worker(answers)).run_listeners, [listener])
            yield
            nursery.cancel_scope.cancel()


SESSIONS = json.dumps({"count": 1, "left_out": 0, "sessions": [{"age_seconds": 1.0}]}).encode()


async def test_a_worker_that_hangs_or_is_not_there_is_reported_and_not_waited_for(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(gathering, "ANSWER_TIMEOUT", 0.2)
    path = "/sessions"
    workers = {path: (200, SESSIONS)}, {path: (200, None)}, {path: (500, b"")}
    async with rooms(tmp_path, *workers):
        with trio.fail_after(5):
            document = await Gathering(4, tmp_path).pages()[path]()
    told = json.loads(document.body)
    assert document.status == 200
    assert told["sessions"] == [{"worker": 1, "age_seconds": 1.0}]
    assert told["silent"] == {
        "2": "no answer within 0.2 s",
        "3": "status 500",
        "4": "does not run",
    }


async def test_where_no_worker_answers_the_page_says_so(tmp_path):
    document = await Gathering(2, tmp_path).pages()["/catalog"]()
    assert document.status == 503
    assert json.loads(document.body) == {
        "error": "no worker answers",
        "silent": {"1": "does not run", "2": "does not run"},
    }


async def test_metrics_are_gathered_behind_those_of_the_parent(tmp_path):
    workers = [{"/metrics": (200, text.encode())} for text in (ONE, TWO)]
    async with rooms(tmp_path, *workers):
        document = await Gathering(3, tmp_path, lambda: "own 1\n").pages()["/metrics"]()
    assert document.body.decode() == "own 1\n" + merge_metrics({1: ONE, 2: TWO})
    assert document.media.startswith(b"text/plain; version=0.0.4")


async def test_there_is_no_page_of_metrics_where_the_workers_have_none(tmp_path):
    async with rooms(tmp_path, {}, {}):
        document = await Gathering(2, tmp_path).pages()["/metrics"]()
    assert document.status == 404
