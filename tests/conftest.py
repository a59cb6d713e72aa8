"""What holds for every test: afterwards no books are open and no task is left."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest
import trio

from mcp_trio.http.app import HTTPApp
from mcp_trio.session.admission import Admission
from mcp_trio.session.session import Dispatcher

# A busy machine is no fault of the code.
hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")


def _package_tasks() -> list[str]:
    """Every living task that runs code of the package, seen from Trio's root."""
    found = []
    root = trio.lowlevel.current_root_task()
    queue = [root] if root is not None else []
    while queue:
        task = queue.pop()
        if "mcp_trio/" in task.coro.cr_code.co_filename:  # type: ignore[union-attr]
            found.append(task.name)
        for nursery in task.child_nurseries:
            queue.extend(nursery.child_tasks)
    return found


def _checked(function: Any) -> Any:
    """Wrap an async test so that it fails if it leaves a task of ours running."""

    @functools.wraps(function)
    async def run(**arguments: Any) -> None:
        await function(**arguments)
        # A task that was told to end may need a turn or two to do so.
        for _ in range(10):
            if not _package_tasks():
                break
            await trio.lowlevel.checkpoint()
        assert _package_tasks() == []

    return run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = _checked(item.obj)


@pytest.fixture(autouse=True)
def books_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """After each test: nothing in flight or in a queue, nothing pending, no session or stream.

    A test that wants to know in between calls the value.
    """
    dispatchers: weakref.WeakSet[Dispatcher] = weakref.WeakSet()
    apps: weakref.WeakSet[HTTPApp] = weakref.WeakSet()
    admissions: weakref.WeakSet[Admission] = weakref.WeakSet()

    def track(cls: type, into: weakref.WeakSet[Any]) -> None:
        original = cls.__init__  # type: ignore[misc]

        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            into.add(self)

        monkeypatch.setattr(cls, "__init__", init)

    track(Dispatcher, dispatchers)
    track(HTTPApp, apps)
    track(Admission, admissions)

    def check() -> None:
        for dispatcher in dispatchers:
            counted = dispatcher.statistics()
            assert (counted.in_flight, counted.pending, dispatcher._tasks) == (0, 0, 0)
            assert not dispatcher.reaper.running
        for admission in admissions:
            load = admission.statistics()
            assert (load.in_flight, load.listeners, load.waiting, load.counted) == (0, 0, 0, 0)
        for app in apps:
            gauges = app.statistics()
            assert (gauges.sessions, gauges.in_flight) == (0, 0)

    yield check
    check()
