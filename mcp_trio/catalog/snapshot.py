"""The immutable catalog: every served operation, compiled, and why some are not served.

`Snapshot.advance` makes the next snapshot from a reading. Only entries whose raw text
changed are parsed and compiled; all else is shared with the snapshot before. It is pure
and may run in a worker thread. When to read, and when to believe, is the actor's business.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, cast

import attrs

from mcp_trio.abc import RawEntry, Reading
from mcp_trio.catalog.diff import Difference, compare
from mcp_trio.catalog.operation import MAX_NAME, Operation, OperationError, canonical, parse
from mcp_trio.server.providers import ToolEntry

MAX_REASON = 1_000
"""Characters of a reason that is kept."""
RIVALS = 5
"""Operations that are named to one that claims the same name."""

_log = logging.getLogger("mcp_trio.catalog")


def told(text: str) -> str:
    """A text as it is kept and shown: bounded, and of what every encoding has.

    It may repeat names of files and keys of a view, and so hold what is no character at all.
    """
    return text[:MAX_REASON].encode("utf-8", "backslashreplace").decode()


class Compiler(Protocol):
    """Turns an operation into something that can be called."""

    def compile(self, operation: Operation) -> ToolEntry:
        """Compile, without doing any input or output.

        Raises:
            OperationError: this installation cannot run the operation; the text says why.
        """
        ...


Reserved: TypeAlias = Callable[[str], bool]
"""Tells whether a name belongs to somebody outside the catalog."""


class Fault(enum.StrEnum):
    """Why an operation is in quarantine."""

    UNREADABLE = "unreadable"
    """The registry could not make a view of it."""
    VIEW = "view"
    """The view breaks the format."""
    COMPILE = "compile"
    """This installation cannot run it."""
    DUPLICATE = "duplicate"
    """Another operation has the name."""
    RESERVED = "reserved"
    """The program itself owns the name."""


@attrs.frozen(kw_only=True)
class Quarantined:
    """A published version that is not served."""

    operation_id: str
    fault: Fault
    reason: str
    """One sentence, naming the place in the view."""
    name: str | None = None
    """The name it asks for, where that could be read."""
    serving: str | None = None
    """Revision of its last good version, which is served instead; None if there is none."""


@attrs.frozen(kw_only=True)
class Member:
    """One operation that is served, or would be if its name were free."""

    operation: Operation
    entry: ToolEntry


@attrs.frozen(kw_only=True)
class Step:
    """The next snapshot and how it differs."""

    snapshot: Snapshot
    difference: Difference


_MODULUS = 1 << 256


@attrs.frozen(kw_only=True)
class Snapshot:
    """All that a catalog holds at one moment. Never changed; calls may keep it."""

    members: Mapping[str, Member] = attrs.field(factory=dict[str, Member])
    """What is served, by operation id."""
    owners: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """Operation id by name, sorted by name."""
    entries: Mapping[str, ToolEntry] = attrs.field(factory=dict[str, ToolEntry])
    """What is served, by name, sorted by name."""
    quarantine: Mapping[str, Quarantined] = attrs.field(factory=dict[str, Quarantined])
    """What is published and not served, by operation id."""
    fingerprints: Mapping[str, bytes] = attrs.field(factory=dict[str, bytes])
    """What was last read of every published operation, served or not."""
    waiting: Mapping[str, Member] = attrs.field(factory=dict[str, Member])
    """Compiled operations whose name is taken; they come in once it is free."""
    guarded: int = 0
    """How many of what is served have an authorizer."""
    operations_sum: int = 0
    """Sum of the hashes of all served operations, so that a change costs a change."""
    listing_sum: int = 0
    """The same over what is listed of them."""

    @property
    def revision(self) -> str:
        """Changes exactly when anything that is served changes."""
        return _revision(self.operations_sum)

    @property
    def listing_revision(self) -> str:
        """Changes exactly when what is listed changes."""
        return _revision(self.listing_sum)

    @functools.cached_property
    def report(self) -> tuple[Quarantined, ...]:
        """Every operation in quarantine, and every owner of a name others claim too, by id."""
        found = list(self.quarantine.values())
        claims = [q for q in found if q.fault is Fault.DUPLICATE and q.name in self.owners]
        for claim in claims:
            owner = self.owners[cast("str", claim.name)]
            found.append(
                Quarantined(
                    operation_id=owner,
                    fault=Fault.DUPLICATE,
                    reason=f"{claim.operation_id} claims the name too; this one keeps it",
                    name=claim.name,
                    serving=self.members[owner].operation.revision,
                )
            )
        return tuple(sorted(found, key=lambda q: (q.operation_id, q.reason)))

    def published_after(self, reading: Reading) -> int:
        """How many operations would be published once the reading is taken in."""
        ids = {entry.operation_id for entry in reading.entries}
        if reading.complete:
            return len(ids)
        gone = sum(operation_id in self.fingerprints for operation_id in reading.removed)
        return len(self.fingerprints) - gone + sum(i not in self.fingerprints for i in ids)

    def left_by(self, reading: Reading) -> dict[str, bytes]:
        """What would be published once the reading is taken in: fingerprints by id."""
        left = {} if reading.complete else dict(self.fingerprints)
        for operation_id in reading.removed:
            left.pop(operation_id, None)
        for entry in reading.entries:
            left[entry.operation_id] = entry.fingerprint
        return left

    def advance(self, reading: Reading, compiler: Compiler, reserved: Reserved) -> Step:
        """Make the next snapshot. Pure; takes time in proportion to what changed.

        Args:
            reading: what the registry said, relative to what this snapshot was made from.
            compiler: used for changed entries only.
            reserved: must be callable from the thread this runs in.
        """
        return _Advance(self, reading, compiler, reserved).run()


def _revision(total: int) -> str:
    return hashlib.sha256(total.to_bytes(32, "big")).hexdigest()


def _operation_hash(operation: Operation) -> int:
    return int(operation.revision, 16)


def _listing_hash(operation: Operation) -> int:
    said = operation.tool_description
    if isinstance(said, str):
        said = {"text": said}
    # What `Operation.to_tool` shows and to whom, no more: tags and empty parts make no difference.
    shown = [
        operation.name,
        operation.input_schema,
        operation.promise,
        *(said.get(part) or None for part in ("text", "title", "annotations", "icons")),
        operation.audience,
    ]
    return int.from_bytes(hashlib.sha256(canonical(shown)).digest(), "big")


class _Advance:
    """One step in the making; lives as long as `Snapshot.advance` runs."""

    def __init__(
        self, before: Snapshot, reading: Reading, compiler: Compiler, reserved: Reserved
    ) -> None:
        self.before = before
        self.reading = reading
        self.compiler = compiler
        self.reserved = reserved
        self.members = dict(before.members)
        self.quarantine = dict(before.quarantine)
        self.fingerprints = dict(before.fingerprints)
        self.waiting = dict(before.waiting)
        self.touched: set[str] = set()
        """Ids whose member may differ from before."""

    def run(self) -> Step:
        for operation_id in self._gone():
            self._forget(operation_id)
        # Whoever waits for a name is a candidate each time: the name may be free now.
        candidates = dict(self.waiting)
        repeated = Counter(entry.operation_id for entry in self.reading.entries)
        for entry in self.reading.entries:
            operation_id = entry.operation_id
            if repeated[operation_id] > 1:
                candidates.pop(operation_id, None)
                self._refuse(operation_id, Fault.UNREADABLE, "operation_id: appears more than once")
                self.fingerprints[operation_id] = b""
            elif self.fingerprints.get(operation_id) != entry.fingerprint:
                candidates.pop(operation_id, None)
                self.fingerprints[operation_id] = entry.fingerprint
                made = self._make(entry)
                if made is not None:
                    candidates[operation_id] = made
        self._settle(candidates)
        return self._finish()

    def _gone(self) -> list[str]:
        if not self.reading.complete:
            return [i for i in self.reading.removed if i in self.fingerprints]
        present = {entry.operation_id for entry in self.reading.entries}
        return [i for i in self.fingerprints if i not in present]

    def _forget(self, operation_id: str) -> None:
        self.touched.add(operation_id)
        self.members.pop(operation_id, None)
        self.quarantine.pop(operation_id, None)
        self.waiting.pop(operation_id, None)
        self.fingerprints.pop(operation_id, None)

    def _refuse(
        self, operation_id: str, fault: Fault, reason: str, name: str | None = None
    ) -> None:
        if fault not in {Fault.DUPLICATE, Fault.RESERVED}:
            self.waiting.pop(operation_id, None)
        last_good = self.members.get(operation_id)
        self.quarantine[operation_id] = Quarantined(
            operation_id=operation_id,
            fault=fault,
            reason=told(reason),
            name=None if name is None else told(name[:MAX_NAME]),
            serving=None if last_good is None else last_good.operation.revision,
        )

    def _make(self, entry: RawEntry) -> Member | None:
        """Parse and compile one changed entry; None and a quarantine record if it is bad."""
        if entry.view is None:
            self._refuse(entry.operation_id, Fault.UNREADABLE, entry.fault or "no view")
            return None
        fault = Fault.VIEW
        try:
            operation = parse(entry.view)
            if operation.operation_id != entry.operation_id:
                raise OperationError("differs from the registry's", place="operation_id")
            current = self.members.get(entry.operation_id)
            if current is not None and current.operation.revision == operation.revision:
                return current
            fault = Fault.COMPILE
            return Member(operation=operation, entry=self.compiler.compile(operation))
        except OperationError as error:
            name = entry.view.get("name")
            self._refuse(
                entry.operation_id, fault, str(error), name if isinstance(name, str) else None
            )
            return None
        except Exception as error:  # noqa: BLE001  # the boundary of one operation
            # A bug in an adapter, or a view that nobody thought of, costs its own operation.
            _log.warning("catalog: internal fault", exc_info=error)
            self._refuse(entry.operation_id, fault, f"internal fault: {type(error).__name__}")
            return None

    def _settle(self, candidates: dict[str, Member]) -> None:
        """Give names out: who had a name keeps it, and nobody wins a new one over another."""
        claims: dict[str, list[str]] = {}
        for operation_id, candidate in candidates.items():
            claims.setdefault(candidate.operation.name, []).append(operation_id)
        lost: dict[str, tuple[Fault, str]] = {}
        names = set(claims)
        # Losing sends a candidate back to its last good version and so to its old name,
        # which another candidate may just have taken. Each round adds losers: it ends.
        while names:
            more: dict[str, tuple[Fault, str]] = {}
            for name in names:
                more |= self._losers(name, claims[name], candidates, lost)
            lost |= more
            kept = {self.members[i].operation.name for i in more if i in self.members}
            names = kept & claims.keys()
        for operation_id, candidate in candidates.items():
            if operation_id in lost:
                fault, reason = lost[operation_id]
                self.waiting[operation_id] = candidate
                self._refuse(operation_id, fault, reason, candidate.operation.name)
                continue
            self.waiting.pop(operation_id, None)
            self.quarantine.pop(operation_id, None)
            if self.members.get(operation_id) is not candidate:
                self.members[operation_id] = candidate
                self.touched.add(operation_id)

    def _losers(
        self,
        name: str,
        claimants: Sequence[str],
        candidates: Mapping[str, Member],
        lost: Mapping[str, object],
    ) -> dict[str, tuple[Fault, str]]:
        """Who else of those who claim a name cannot have it, and why."""
        holder = self._holder(name)
        # The name is in use as long as its holder does not give it up in this step.
        staying = holder is not None and (
            holder not in candidates or holder in lost or candidates[holder].operation.name == name
        )
        losers = [i for i in claimants if i != holder and i not in lost]
        if self.reserved(name):
            reason = f"name: {name!r} belongs to a tool of the program itself"
            return dict.fromkeys(losers, (Fault.RESERVED, reason))
        if holder is not None and staying:
            reason = f"name: {name!r} is also claimed by {holder}"
            return dict.fromkeys(losers, (Fault.DUPLICATE, reason))
        if len(claimants) == 1:
            return {}
        first = sorted(claimants)[: RIVALS + 1]
        more = ", ..." if len(claimants) > RIVALS + 1 else ""
        reasons: dict[str, tuple[Fault, str]] = {}
        for loser in losers:
            others = ", ".join([i for i in first if i != loser][:RIVALS])
            reasons[loser] = Fault.DUPLICATE, f"name: {name!r} is also claimed by {others}{more}"
        return reasons

    def _holder(self, name: str) -> str | None:
        owner = self.before.owners.get(name)
        return owner if owner in self.members else None

    def _finish(self) -> Step:
        old = {i: self.before.members[i] for i in self.touched if i in self.before.members}
        new = {i: self.members[i] for i in self.touched if i in self.members}
        difference = compare(
            {member.operation.name: member.operation for member in old.values()},
            {member.operation.name: member.operation for member in new.values()},
        )
        owners, entries = self._names(old, new)
        snapshot = Snapshot(
            members=self.members,
            owners=owners,
            entries=entries,
            quarantine=self.quarantine,
            fingerprints=self.fingerprints,
            waiting=self.waiting,
            guarded=self.before.guarded + _guarded(new) - _guarded(old),
            operations_sum=_moved(self.before.operations_sum, old, new, _operation_hash),
            listing_sum=_moved(self.before.listing_sum, old, new, _listing_hash),
        )
        return Step(snapshot=snapshot, difference=difference)

    def _names(
        self, old: Mapping[str, Member], new: Mapping[str, Member]
    ) -> tuple[dict[str, str], dict[str, ToolEntry]]:
        owners = dict(self.before.owners)
        entries = dict(self.before.entries)
        for operation_id, member in old.items():
            name = member.operation.name
            if operation_id not in new or new[operation_id].operation.name != name:
                del owners[name], entries[name]
        kept = len(owners)
        for operation_id, member in new.items():
            owners[member.operation.name] = operation_id
            entries[member.operation.name] = member.entry
        if len(owners) == kept:
            return owners, entries  # what has its name from before has its place, too
        # Nearly sorted already, which is the case Python's sort is fastest at.
        order = sorted(owners)
        return {name: owners[name] for name in order}, {name: entries[name] for name in order}


def _guarded(members: Mapping[str, Member]) -> int:
    return sum(member.entry.authorize is not None for member in members.values())


def _moved(
    total: int,
    old: Mapping[str, Member],
    new: Mapping[str, Member],
    measure: Callable[[Operation], int],
) -> int:
    for member in old.values():
        total -= measure(member.operation)
    for member in new.values():
        total += measure(member.operation)
    return total % _MODULUS
