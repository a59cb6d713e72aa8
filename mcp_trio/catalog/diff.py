"""What changed between two snapshots, told by name and split into seen and unseen.

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
    listing_changed: bool = False
    """Whether a client that lists tools may see any difference."""

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
    listing = bool(added or removed) or any(
        before[name].to_tool() != after[name].to_tool()
        or before[name].audience != after[name].audience
        for name in changed
    )
    return Difference(added=added, changed=changed, removed=removed, listing_changed=listing)


def _same(one: Operation, other: Operation) -> bool:
    return one is other or one.revision == other.revision
