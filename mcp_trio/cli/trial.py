"""`mcp-trio call TARGET --operation NAME`: one operation of a registry or a file, and no server.

The operation is judged, compiled and run by what a server would use; the connections are those
of the settings, secrets and all.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import cast

import attrs
import trio

from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.authoring.findings import advice_for
from mcp_trio.authoring.sources import Entry, read_source
from mcp_trio.authoring.values import as_object
from mcp_trio.catalog.operation import Operation, OperationError, find_faults, parse
from mcp_trio.config import load_settings, make_connections
from mcp_trio.engine.envelope import Principal
from mcp_trio.errors import ConfigurationError, MCPError, sole_cause
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.session.context import Context
from mcp_trio.session.middleware import demand
from mcp_trio.wire import REVISIONS, CallToolResult, JSONObject
from mcp_trio.wire.converter import to_wire

Report = Callable[[float, "float | None", "str | None"], None]


@attrs.frozen(kw_only=True)
class Trial:
    """What to try, with what."""

    place: str
    """A file, a folder or a registry."""
    name: str
    """Name or id of the operation."""
    config: Path | None = None
    """Settings with the connections."""
    principal: JSONObject | None = None
    """Claims of who asks; None for nobody."""
    timeout: float = 60.0
    """Seconds."""


def find(trial: Trial) -> Operation:
    """Find and read the operation.

    Raises:
        AuthoringError: there is none of that name, several, or a faulty one.
    """
    entries = [
        entry
        for entry in read_source(trial.place).entries
        if trial.name in {entry.operation_id, _named(entry)}
    ]
    if not entries:
        raise AuthoringError(f"{trial.place}: there is no operation {trial.name[:80]!r}")
    if len(entries) > 1:
        ids = ", ".join(entry.operation_id for entry in entries[:5])
        raise AuthoringError(f"{trial.place}: several operations are {trial.name[:80]!r}: {ids}")
    faults = find_faults(entries[0].view)
    if faults:
        raise AuthoringError(f"{trial.name} is faulty; mcp-trio check tells where\n{faults[0]}")
    return parse(cast("JSONObject", entries[0].view))


def _named(entry: Entry) -> object:
    return as_object(entry.view).get("name")


async def run(
    trial: Trial, operation: Operation, arguments: Mapping[str, object], report: Report
) -> JSONObject | None:
    """Call the operation; None if a signal cancelled it.

    Raises:
        AuthoringError: it cannot be compiled, takes too long, may not be called by who asks, or
            the settings cannot be used.
    """
    connections = _connections(trial.config)
    try:
        compiled = Compiler(connections).compile(operation)
    except OperationError as error:
        hint = " Give --config." if trial.config is None else ""
        raise AuthoringError(f"{trial.name}: {error}. {advice_for(error.reason)}{hint}") from error
    results: list[CallToolResult] = []

    async def call() -> None:
        with trio.fail_after(trial.timeout) as scope:
            context = _context(trial, scope, report)
            await demand(compiled.authorize, context)
            results.append(await compiled.call(context, dict(arguments)))

    try:
        async with connections:
            await _until_signalled(call)
    except BaseException as error:
        cause = sole_cause(error)
        if isinstance(cause, trio.TooSlowError):
            raise AuthoringError(f"{trial.name}: no answer in {trial.timeout:g} s") from error
        if isinstance(cause, MCPError):
            raise AuthoringError(f"{trial.name}: {cause.message}; give --principal") from error
        raise
    return to_wire(results[0], REVISIONS[0]) if results else None


async def _until_signalled(work: Callable[[], Awaitable[None]]) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:

            async def obey() -> None:
                async for _ in signals:
                    nursery.cancel_scope.cancel()

            nursery.start_soon(obey)
            await work()
            nursery.cancel_scope.cancel()


def _connections(config: Path | None) -> Connections:
    if config is None:
        return Connections()
    try:
        sections = load_settings(config).connections
        return Connections(make_connections(sections, config.parent, os.environ))
    except ConfigurationError as error:
        raise AuthoringError(str(error)) from error


def _context(trial: Trial, scope: trio.CancelScope, report: Report) -> Context:
    claims = trial.principal
    principal = None
    if claims is not None:
        scopes = claims.get("scopes", [])
        if not isinstance(scopes, list):
            raise AuthoringError("scopes of the principal must be an array")
        principal = Principal(
            subject=str(claims.get("sub", "")),
            scopes=frozenset(map(str, cast("list[object]", scopes))),
            claims=claims,
        )
    return Context(
        request_id="trial",
        method="tools/call",
        revision=REVISIONS[0],
        exchange=_Terminal(report),
        scope=scope,
        principal=principal,
        progress_token="trial",  # noqa: S106  # a name for reports, no secret
    )


class _Terminal:
    """The line to whoever sits at the terminal. Implements `Exchange` for a call."""

    cuts_cleanly = True

    def __init__(self, report: Report) -> None:
        self._report = report

    async def notify(self, method: str, params: JSONObject) -> None:
        """Show progress; drop what is said beside it."""
        await trio.lowlevel.checkpoint()
        if method == "notifications/progress":
            self._report(
                cast("float", params["progress"]),
                cast("float | None", params.get("total")),
                cast("str | None", params.get("message")),
            )

    async def ask(self, method: str, params: JSONObject) -> JSONObject:  # noqa: ARG002
        """Nobody can be asked here.

        Raises:
            MCPError: always.
        """
        await trio.lowlevel.checkpoint()
        raise MCPError(f"{method} cannot be answered without a client")

    def bound_cleanup(self) -> None:
        """Nothing is bounded: the process ends with the call."""

    async def keep_alive(self) -> None:
        """There is no stream."""
        await trio.lowlevel.checkpoint()

    def close_stream(self, retry_ms: int) -> None:
        """There is no stream."""
