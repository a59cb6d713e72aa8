"""What changed between two snapshots, told by name.

Pure comparison of frozen values; who acts on it lives elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from mcp_trio.catalog.operation import Operation


@attrs.frozen(kw_only=True)
class Difference:
    """The step from one snapshot to the next."""

    added: tuple[str, ...] = ()
    """Names that are served now and were not."""
    changed: tuple[str, ...] = ()
    """Names served in both, by another version."""
    removed: tuple[str, ...] = ()
    """Names that are not served any more."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


def compare(before: Mapping[str, Operation], after: Mapping[str, Operation]) -> Difference:
    """Compare operations by name. Pass only what was touched, to pay only for that."""
    added = tuple(sorted(after.keys() - before.keys()))
    removed = tuple(sorted(before.keys() - after.keys()))
    changed = tuple(
        sorted(
            name
            for name, operation in after.items()
            if name in before and not _same(before[name], operation)
        )
    )
    return Difference(added=added, changed=changed, removed=removed)


def _same(one: Operation, other: Operation) -> bool:
    return one is other or one.revision == other.revision
