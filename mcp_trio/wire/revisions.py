"""The five protocol revisions and what each has, as one table.

The only place with revision dates. Everything else asks a `Revision` for a
property, or compares two `Revision` values inside `wire` and `eras`; strings from
a peer are looked up here and never ordered.
"""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True, eq=False)
class Revision:
    """One published revision of the protocol. Compared by age."""

    date: str
    """The wire name, such as it appears in `protocolVersion`."""
    age: int
    """Position in history, oldest is 0."""
    stateless: bool = False
    """Every request carries version and capabilities; no handshake, no session."""
    batches: bool = False
    """JSON-RPC arrays are accepted."""
    version_header: bool = False
    """HTTP requests after the opening one carry `MCP-Protocol-Version`."""
    resumable: bool = False
    """SSE streams carry event ids and can be resumed with `Last-Event-ID`."""
    priming: bool = False
    """An SSE stream opens with an empty event that carries an id."""
    resource_not_found: int = -32002
    """JSON-RPC code for a missing resource."""

    def __ge__(self, other: Revision) -> bool:
        """Tell whether this revision is as new as `other`."""
        return self.age >= other.age

    def __lt__(self, other: Revision) -> bool:
        """Tell whether this revision is older than `other`."""
        return self.age < other.age

    def __str__(self) -> str:
        return self.date


R2024_11_05 = Revision(date="2024-11-05", age=0)
R2025_03_26 = Revision(date="2025-03-26", age=1, batches=True, resumable=True)
R2025_06_18 = Revision(date="2025-06-18", age=2, version_header=True, resumable=True)
R2025_11_25 = Revision(
    date="2025-11-25",
    age=3,
    version_header=True,
    resumable=True,
    priming=True,
)
R2026_07_28 = Revision(
    date="2026-07-28",
    age=4,
    stateless=True,
    version_header=True,
    resource_not_found=-32602,
)

REVISIONS: tuple[Revision, ...] = (
    R2026_07_28,
    R2025_11_25,
    R2025_06_18,
    R2025_03_26,
    R2024_11_05,
)
"""Newest first, the order in which a server advertises them."""

BY_DATE: dict[str, Revision] = {revision.date: revision for revision in REVISIONS}
STATELESS: tuple[Revision, ...] = tuple(r for r in REVISIONS if r.stateless)
HANDSHAKE: tuple[Revision, ...] = tuple(r for r in REVISIONS if not r.stateless)
ASSUMED_OVER_HTTP = R2025_03_26
"""What a handshake-era HTTP request without a version header means (2025-06-18, transports)."""
