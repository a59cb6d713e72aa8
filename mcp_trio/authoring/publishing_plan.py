"""What publishing has to write: the difference between what is published and what should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.catalog.operation import Operation
from mcp_trio.catalog.registries.rows import to_row
from mcp_trio.wire import JSONObject


@attrs.frozen(kw_only=True)
class Outcome:
    """What was written, or would be; operation ids, sorted."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()
    same: int = 0
    created: bool = False
    """Whether there was no registry before."""

    def as_json(self) -> JSONObject:
        """For programs."""
        return {
            "added": list(self.added),
            "changed": list(self.changed),
            "withdrawn": list(self.withdrawn),
            "same": self.same,
            "created": self.created,
        }

    def as_text(self) -> str:
        """For people."""
        lines = [
            *(f"+ {each}" for each in self.added),
            *(f"~ {each}" for each in self.changed),
            *(f"- {each}" for each in self.withdrawn),
        ]
        lines.append(
            f"{len(self.added)} added, {len(self.changed)} changed, "
            f"{len(self.withdrawn)} withdrawn, {self.same} the same"
        )
        return "\n".join(lines)


Row = tuple[str | None, ...]
"""The columns of one operation, in the order of `VIEW_COLUMNS`."""


@attrs.frozen(kw_only=True)
class Plan:
    """What has to be written to get from what is published to what should be."""

    outcome: Outcome
    write: tuple[Row, ...]


def plan(
    held: Mapping[str, Row | None], operations: Sequence[Operation], *, prune: bool, created: bool
) -> Plan:
    """Find out what differs.

    Args:
        held: what is published now, by operation id; None for what cannot be read.
        operations: what should be.
        prune: whether everything else should go.
        created: whether the registry is new.

    Raises:
        AuthoringError: a name would belong to two operations.
    """
    wanted = {operation.operation_id: to_row(operation.view()) for operation in operations}
    added = sorted(wanted.keys() - held.keys())
    changed = sorted(i for i in wanted.keys() & held.keys() if wanted[i] != held[i])
    others = sorted(held.keys() - wanted.keys())
    if not prune:
        names = {operation.name: operation.operation_id for operation in operations}
        for other in others:
            row = held[other]
            if row is not None and row[1] in names:
                raise AuthoringError(
                    f"{names[row[1] or '']} and {other}, which is published already, are both "
                    f"named {row[1]}; rename one, withdraw the other, or publish with --prune"
                )
    return Plan(
        outcome=Outcome(
            added=tuple(added),
            changed=tuple(changed),
            withdrawn=tuple(others) if prune else (),
            same=len(wanted) - len(added) - len(changed),
            created=created,
        ),
        write=tuple(wanted[i] for i in (*added, *changed)),
    )
