"""Check operations before they are published: every fault at once, and what looks unwise.

The judgement is the server's own: `find_faults` of the format, and the compiler. Both stop
somewhere, the compiler at its first fault; so what was found is put aside, by something
harmless in its place, and the rest is judged again.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import attrs

from mcp_trio.authoring.findings import Finding, advice_for, path_of
from mcp_trio.authoring.lint import lint
from mcp_trio.authoring.sources import Entry, Source
from mcp_trio.authoring.stand_ins import StandIns
from mcp_trio.authoring.values import as_object
from mcp_trio.catalog.operation import Operation, OperationError, find_faults, parse
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.pipeline import CompiledOperation
from mcp_trio.wire import JSONObject

ROUNDS = 50
"""Faults of the compiler that are told of one operation."""

_OPEN: JSONObject = {"type": "object", "allOf": [{}]}
"""A schema that says nothing, so that no mapping can be at odds with it."""
_NEUTRAL: JSONObject = {
    "operation_id": "none",
    "name": "none",
    "input_schema": _OPEN,
    "output_schema": None,
    "input_mapping": {},
    "output_mapping": {},
    "execution_config": {},
    "tool_description": "",
}
_TOP = re.compile(r"(target|input_mapping|output_mapping|execution_config)[.\w]*")
_STRANGER = re.compile(r"args\.(.*) is used but is not in")


@attrs.frozen(kw_only=True)
class Checked:
    """What checking a source gave."""

    operations: tuple[Operation, ...]
    """Those without a fault, in their order."""
    findings: tuple[Finding, ...]
    """Faults and warnings, in the order of the source."""

    @property
    def faults(self) -> tuple[Finding, ...]:
        """What forbids publishing."""
        return tuple(each for each in self.findings if each.severity == "fault")


def check(source: Source, config: Path | None = None) -> Checked:
    """Check all that was read.

    Args:
        source: what was read.
        config: settings of the service, whose connections are the only ones then; their secrets
            need not be there.

    Raises:
        AuthoringError: the settings cannot be used.
    """
    checker = Checker(StandIns(config))
    return checker.check(source)


class Checker:
    """Checks one operation after the other with one compiler."""

    def __init__(self, connections: StandIns) -> None:
        self._connections = connections
        self._compiler = Compiler(connections)

    def check(self, source: Source) -> Checked:
        """Check all entries, and what they have to do with each other."""
        findings = list(source.findings)
        sound: list[tuple[Entry, Operation]] = []
        for entry in source.entries:
            found = list(self.entry(entry))
            findings += found
            if not any(each.severity == "fault" for each in found):
                sound.append((entry, parse(cast("JSONObject", entry.view))))
        clashes = list(_clashes(source.entries))
        findings += clashes
        clashing = {(each.source, each.path[:-1]) for each in clashes}
        return Checked(
            operations=tuple(
                operation
                for entry, operation in sound
                if (entry.source, entry.path) not in clashing
            ),
            findings=tuple(findings),
        )

    def entry(self, entry: Entry) -> Iterator[Finding]:
        """Everything about one entry by itself."""
        faults = find_faults(entry.view)
        for fault in faults:
            yield _told(entry, fault)
        view = _put_aside(entry.view, faults)
        if view is None:
            return
        compiled = None
        for told in self._compiler_faults(view):
            if isinstance(told, CompiledOperation):
                compiled = told
            else:
                yield _told(entry, told)
        if compiled is not None and not faults:
            for warning in lint(compiled):
                yield entry.finding("warning", warning.reason, warning.advice, warning.path)

    def _compiled(self, operation: Operation) -> CompiledOperation:
        """Compile; without settings a statement may be for either kind of database.

        Raises:
            OperationError: the server would refuse it.
        """
        self._connections.expect(operation)
        try:
            return self._compiler.compile(operation)
        except OperationError as error:
            if error.place == "target.statement" and self._connections.turn(operation):
                try:
                    return self._compiler.compile(operation)
                except OperationError:
                    self._connections.turn(operation)
            raise

    def _compiler_faults(self, view: JSONObject) -> Iterator[OperationError | CompiledOperation]:
        """Every fault of the compiler; then what it made, which is the view if all is well."""
        seen: set[str] = set()
        for _ in range(ROUNDS):
            operation = parse(view)
            try:
                compiled = self._compiled(operation)
            except OperationError as error:
                if str(error) in seen:
                    return
                seen.add(str(error))
                yield error
                if error.place == "target.connection":
                    self._connections.waive(cast("str", operation.target["connection"]))
                    continue
                mended = _without(view, error)
                if mended is None:
                    return
                view = mended
            else:
                if not seen:
                    yield compiled
                return


def _told(entry: Entry, fault: OperationError) -> Finding:
    place = fault.place or _place_in(fault.reason)
    inner = path_of(entry.view, place)
    if fault.key is not None:
        inner = (*inner, fault.key)
    return entry.finding("fault", fault.reason, advice_for(fault.reason), inner)


def _place_in(reason: str) -> str:
    """The place that a reason begins with, where it has none beside it."""
    found = _TOP.match(reason)
    return "" if found is None else found[0]


def _put_aside(view: object, faults: Sequence[OperationError]) -> JSONObject | None:
    """The view with what is faulty replaced, to find out about the rest; None if none is left."""
    if not faults:
        return cast("JSONObject", view)
    if not isinstance(view, dict):
        return None
    if not _is_shallow(faults):
        return None
    held = copy.deepcopy(cast("JSONObject", view))
    for fault in faults:
        path = path_of(held, fault.place)
        if fault.key is not None:
            _at(held, path).pop(fault.key, None)
            continue
        for key in [str(path[0])] if path else list(_NEUTRAL):
            if key in _NEUTRAL and (path or key not in held):
                held[key] = _NEUTRAL[key]
    return None if find_faults(held) else held


def _is_shallow(faults: Sequence[OperationError]) -> bool:
    """Whether a view may be copied: one that is too deep has that for its only fault."""
    return not (len(faults) == 1 and faults[0].reason.startswith("the view "))


def _at(held: JSONObject, path: Sequence[str | int]) -> JSONObject:
    node: Any = held
    for part in path:
        node = node[part]
    return as_object(node)


def _without(view: JSONObject, error: OperationError) -> JSONObject | None:
    """The view with one fault of the compiler put aside; None if that is not possible."""
    made = copy.deepcopy(view)
    stranger = _STRANGER.match(error.reason)
    if stranger is not None:
        schema = cast("JSONObject", made["input_schema"])
        schema["properties"] = {
            **cast("JSONObject", schema.get("properties") or {}),
            stranger[1]: {},
        }
        return made
    path = path_of(made, error.place or _place_in(error.reason))
    match path:
        case ("input_mapping", "path", *inner):
            _drop_path_name(made, inner)
        case ("input_mapping" | "output_mapping", str(section), *_):
            _drop(cast("JSONObject", made[cast("str", path[0])]), path[1:], section)
        case (str(key), *_) if key in _NEUTRAL:
            made[key] = _NEUTRAL[key]
        case ("target", "styles" | "media_type" as key, *_):
            del cast("JSONObject", made["target"])[key]
        case _:
            return None
    return made


def _drop_path_name(view: JSONObject, inner: list[str | int]) -> None:
    mapping = cast("JSONObject", view["input_mapping"])
    if inner:
        # A literal keeps the name mapped.
        cast("JSONObject", mapping["path"])[cast("str", inner[0])] = "x"
        return
    mapping.pop("path", None)
    cast("JSONObject", view["target"])["path"] = "/"


def _drop(mapping: JSONObject, path: Sequence[str | int], section: str) -> None:
    """Take away the smallest named part that the fault stands in."""
    if section in {"query", "headers", "cookies", "variables", "params", "error"} and len(path) > 1:
        del cast("JSONObject", mapping[section])[cast("str", path[1])]
    elif section in {"body", "message", "result"} and len(path) > 1:
        _blank(mapping[section], path[1:])
    elif section == "result":
        mapping[section] = "x"
    else:
        mapping.pop(section)


def _blank(tree: object, path: Sequence[str | int]) -> None:
    """Put null where the path leads."""
    for part in path[:-1]:
        tree = cast("Any", tree)[part]
    cast("Any", tree)[path[-1]] = None


def _clashes(entries: Iterable[Entry]) -> Iterator[Finding]:
    """Names and identities that several claim: all of them are told."""
    for key in ("operation_id", "name"):
        claims: dict[str, list[Entry]] = {}
        for entry in entries:
            value = as_object(entry.view).get(key)
            if isinstance(value, str):
                claims.setdefault(value, []).append(entry)
        for value, claimants in claims.items():
            for entry in claimants if len(claimants) > 1 else ():
                others = [each for each in claimants if each is not entry]
                where = ", ".join(_where(each) for each in others[:3])
                reason = f"{where} claims the {key} too: {value[:80]!r}"
                yield entry.finding("fault", reason, advice_for(reason), (key,))


def _where(entry: Entry) -> str:
    if entry.document is None:
        return entry.operation_id or entry.source
    return f"{entry.source}:{entry.document.line(entry.path)}"
