"""A registry in memory, a compiler that counts, a host that takes notes."""

from __future__ import annotations

import attrs
import msgspec
import pytest
import trio

from mcp_trio.abc import RawEntry, Reading, RegistryError, Trouble
from mcp_trio.catalog.operation import Operation, OperationError
from mcp_trio.wire import CallToolResult, TextContent
from tests.canary import no_secret_is_logged  # noqa: F401  # a fixture of all


def make_view(operation_id: str = "a", **changes: object) -> dict[str, object]:
    view: dict[str, object] = {
        "operation_id": operation_id,
        "name": operation_id,
        "protocol": "static",
        "target": {},
        "input_schema": {"type": "object"},
        "output_schema": None,
        "input_mapping": {},
        "output_mapping": {"result": {"v": 1}},
        "execution_config": {},
        "tool_description": "A tool.",
    }
    view.update(changes)
    return view


@pytest.fixture
def view():
    return make_view


@attrs.frozen(eq=False)
class Entry:
    """A compiled operation that answers with its revision."""

    operation: Operation
    authorize = None

    @property
    def definition(self):
        return self.operation.to_tool()

    async def call(self, context, arguments):
        await trio.lowlevel.checkpoint()
        return CallToolResult(content=[TextContent(text=self.operation.revision)])


class CountingCompiler:
    """Refuses operations whose `execution_config` asks for a circuit."""

    def __init__(self) -> None:
        self.compiled: list[str] = []

    def compile(self, operation: Operation) -> Entry:
        self.compiled.append(operation.operation_id)
        if "circuit" in operation.execution_config:
            raise OperationError("execution_config.circuit is not supported by this version")
        return Entry(operation)


@pytest.fixture
def compiler():
    return CountingCompiler()


class MemoryRegistry:
    """Keeps views by id. `trouble` is raised instead of an answer while it is set."""

    def __init__(self, *views: dict[str, object]) -> None:
        self.rows: dict[str, dict[str, object] | None] = {}
        self.counter = 0
        self.changed_at: dict[str, int] = {}
        self.trouble: Exception | None = None
        self.tokens = 0
        self.reads = 0
        self.closed = 0
        self.gate: trio.Event | None = None
        self.put(*views)

    def put(self, *views: dict[str, object]) -> None:
        for view in views:
            self._change(str(view["operation_id"]), view)

    def drop(self, *ids: str) -> None:
        for i in ids:
            self._change(i, None)

    def touch(self) -> None:
        """Change something that is not published."""
        self._change("draft", None)

    def _change(self, i: str, view: dict[str, object] | None) -> None:
        self.counter += 1
        self.rows[i] = view
        self.changed_at[i] = self.counter

    async def _ask(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.gate is not None:
            await self.gate.wait()
        if self.trouble is not None:
            raise self.trouble

    async def change_token(self) -> str:
        self.tokens += 1
        await self._ask()
        return f"memory:{self.counter}"

    async def read(self, since: str | None) -> Reading:
        self.reads += 1
        await self._ask()
        kind, _, counter = (since or "").rpartition(":")
        after = int(counter) if kind == "memory" else 0
        ids = [i for i, at in self.changed_at.items() if at > after]
        return Reading(
            token=f"memory:{self.counter}",
            entries=tuple(entry(self.rows[i]) for i in ids if self.rows[i] is not None),
            removed=tuple(i for i in ids if self.rows[i] is None) if kind == "memory" else (),
            complete=kind != "memory",
        )

    async def aclose(self) -> None:
        self.closed += 1
        await trio.lowlevel.checkpoint()


def entry(view: dict[str, object]) -> RawEntry:
    return RawEntry(
        operation_id=str(view["operation_id"]),
        fingerprint=msgspec.json.encode(view, order="sorted"),
        view=view,
    )


@pytest.fixture
def registry():
    return MemoryRegistry


@pytest.fixture
def raw():
    return entry


class Host:
    """Counts changes; owns `owned`."""

    def __init__(self) -> None:
        self.owned: set[str] = set()
        self.changes = 0
        self.events = []
        self.next = trio.Event()

    def owns(self, name: str) -> bool:
        return name in self.owned

    def emit(self, event) -> None:
        self.events.append(event)

    def changed(self) -> None:
        self.changes += 1
        self.next.set()
        self.next = trio.Event()


@pytest.fixture
def host():
    return Host()


@pytest.fixture
def missing():
    return RegistryError(Trouble.MISSING, "there is no registry at /x")
