"""What goes on right now: Trio's own tree of tasks, with the sessions and requests in it.

Read from the tree itself, so it shows what is there and not what somebody counted. It shows
names of functions, methods and tools, times and flags: no argument, no result, no credential,
and nothing that would let anybody into a session.
"""

from __future__ import annotations

import math
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

import attrs
import trio
import trio.lowlevel

from mcp_trio.session.context import REQUEST, Context
from mcp_trio.session.serving import SESSION, ServerSide
from mcp_trio.telemetry.callers import client_name
from mcp_trio.telemetry.plain_text import cut
from mcp_trio.wire import JSONObject
from mcp_trio.wire.prompts import GetPromptParams
from mcp_trio.wire.tools import CallToolParams

MAX_TASKS = 2000
"""Tasks that are described; further ones are counted."""
MAX_SESSIONS = 1000
"""Sessions that are described; further ones are counted."""

_UNTOLD = frozenset(
    {"trio", "outcome", "contextlib", "hypercorn", "importlib", "httpx2", "httpcore2"}
)
"""Packages whose functions say little about where a task waits."""


def tree(limit: int = MAX_TASKS) -> JSONObject:
    """Describe every task of this Trio run, the ones nearest to the root first.

    Must be called in the Trio thread; it does not wait. The size of the answer is bounded,
    the walk counts every task.

    Args:
        limit: tasks to describe.

    Returns:
        `tasks`, `left_out` and `cancelled` count; `root` is the tree: each task has `id` (no
        other task of the process ever has it), `name`, `waits_in`, `cancelled`, `shielded`,
        `deadline_seconds`, `nurseries` (one list of tasks for each that it has open, those left
        out missing), and where one begins `session` and `request`.
    """
    root = trio.lowlevel.current_root_task()
    if root is None:
        return {"tasks": 0, "left_out": 0, "cancelled": 0, "root": None}
    now = trio.current_time()
    shown = count = cancelled = 0
    top: list[JSONObject] = []
    # With each task goes the session that it runs in. A task that a connection starts in a session
    # has the context of the connection, which is in none.
    queue: deque[tuple[trio.lowlevel.Task, list[JSONObject], ServerSide | None]]
    queue = deque([(root, top, None)])
    while queue:
        task, place, around = queue.popleft()
        side = task.context.get(SESSION) or around
        count += 1
        cancelled += _status(task).effectively_cancelled
        node: JSONObject = {}
        if shown < limit:
            shown += 1
            node = _task(task, side, around, now)
            place.append(node)
        nurseries: list[list[JSONObject]] = []
        for nursery in task.child_nurseries:
            inside: list[JSONObject] = []
            nurseries.append(inside)
            queue.extend((child, inside, side) for child in _oldest_first(nursery))
        node["nurseries"] = nurseries
    return {
        "tasks": count,
        "left_out": count - shown,
        "cancelled": cancelled,
        "root": top[0] if top else None,
    }


def sessions(limit: int = MAX_SESSIONS) -> JSONObject:
    """Describe every session of every server in this Trio run, the oldest first.

    Args:
        limit: sessions to describe.

    Returns:
        `count`, `left_out` and `sessions`.
    """
    now = trio.current_time()
    found = sorted(_sessions(), key=lambda side: side.began)
    return {
        "count": len(found),
        "left_out": max(0, len(found) - limit),
        "sessions": [_session(side, now) for side in found[:limit]],
    }


def _sessions() -> Iterator[ServerSide]:
    root = trio.lowlevel.current_root_task()
    queue = [] if root is None else [root]
    seen: set[int] = set()
    while queue:
        task = queue.pop()
        side = task.context.get(SESSION)
        if side is not None and id(side) not in seen:
            seen.add(id(side))
            yield side
        for nursery in task.child_nurseries:
            queue.extend(nursery.child_tasks)


def _oldest_first(nursery: trio.Nursery) -> list[trio.lowlevel.Task]:
    """The tasks of a nursery in an order that stays the same from one look to the next."""
    return sorted(nursery.child_tasks, key=_number)


def _number(task: trio.lowlevel.Task) -> int:
    return task._counter  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _status(task: trio.lowlevel.Task) -> Any:
    # Trio tells a task about its own scopes only; decision 0003 says what we read and why.
    return task._cancel_status  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _task(
    task: trio.lowlevel.Task, side: ServerSide | None, around: ServerSide | None, now: float
) -> JSONObject:
    status = _status(task)
    node: JSONObject = {
        "id": _number(task),
        "name": task.name,
        "waits_in": _waits_in(task),
        "cancelled": bool(status.effectively_cancelled),
        "shielded": _shielded(task),
        "deadline_seconds": _left(status.effective_deadline(), now),
    }
    request = task.context.get(REQUEST)
    parent = None if task.parent_nursery is None else task.parent_nursery.parent_task
    if side is not None and side is not around:
        node["session"] = _session(side, now)
    if request is not None and (parent is None or parent.context.get(REQUEST) is not request):
        node["request"] = _request(request, side, now)
    return node


def _shielded(task: trio.lowlevel.Task) -> bool:
    """Whether something of its own keeps cancellation from outside away from a task."""
    nursery = task.parent_nursery
    inherited = None if nursery is None else nursery._cancel_status  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    status = _status(task)
    while status is not None and status is not inherited:
        if status._scope.shield:  # noqa: SLF001
            return True
        status = status._parent  # noqa: SLF001
    return False


def _waits_in(task: trio.lowlevel.Task) -> str | None:
    """The innermost function that is nobody's plumbing; None for the task that asks."""
    known = None
    try:
        for frame, line in task.iter_await_frames():
            module = str(frame.f_globals.get("__name__", ""))
            if module.partition(".")[0] not in _UNTOLD:
                known = _Place(module, frame.f_code, line)
    except (TypeError, RuntimeError):  # what it awaits has no frames
        pass
    return None if known is None else str(known)


@attrs.frozen
class _Place:
    module: str
    code: types.CodeType
    line: int

    def __str__(self) -> str:
        return f"{self.module}.{self.code.co_qualname}:{self.line}"


def _left(deadline: float, now: float) -> float | None:
    return None if deadline == math.inf else round(max(deadline - now, 0.0), 3)


def _request(context: Context, side: ServerSide | None, now: float) -> JSONObject:
    params = context.params
    target = params.name if isinstance(params, CallToolParams | GetPromptParams) else None
    return {
        "id": cut(str(context.request_id)),
        "method": cut(context.method),
        "target": cut(target),
        "revision": context.revision.date,
        "session": None if side is None else side.label,
        "principal": None if context.principal is None else cut(context.principal.subject),
        "age_seconds": round(now - context.began, 3),
        "deadline_seconds": _left(context.scope.deadline, now),
        "cancelled": context.scope.cancel_called,
    }


def _session(side: ServerSide, now: float) -> JSONObject:
    handshake, principal = side.handshake, side.principal
    named = handshake.client_info is not None
    return {
        "id": side.label,
        "kind": side.kind,
        "server": side.service.facts.info.name,
        "revision": handshake.revision.date if named else None,
        "client": client_name(handshake.client_info),
        "principal": None if principal is None else cut(principal.subject),
        "age_seconds": round(max(now - side.began, 0.0), 3),
        "in_flight": side.in_flight,
    }
