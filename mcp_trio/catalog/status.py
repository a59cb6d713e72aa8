"""How a catalog is doing, in one frozen value, and the same as JSON."""

from __future__ import annotations

import enum
from typing import cast

import attrs

from mcp_trio.catalog.snapshot import Quarantined
from mcp_trio.wire import JSONObject

MAX_SHOWN = 1_000
"""Records of the quarantine in the JSON; `counts` tells how many there are."""


class CatalogState(enum.StrEnum):
    """The whole status in a word."""

    STARTING = "starting"
    """The registry was never read, and nothing is wrong with it yet."""
    FRESH = "fresh"
    """The last look went well."""
    FAILING = "failing"
    """The last look failed; what was good last is served."""
    STALE = "stale"
    """No look failed, and yet it is too long ago that the registry was seen to match."""
    STOPPED = "stopped"
    """Nobody looks at the registry."""


@attrs.frozen(kw_only=True)
class CatalogStatus:
    """How a catalog is doing. All times are in seconds."""

    state: CatalogState
    """The whole in a word."""
    ready: bool
    """Whether the registry was read at least once."""
    revision: str
    """Of what is served; of the empty snapshot before the first read."""
    listing_revision: str
    """Of what is listed."""
    operations: int
    """How many are served."""
    published: int
    """How many are published in the registry, served or not."""
    quarantine: tuple[Quarantined, ...]
    """What is published and not served as published, and why."""
    age_seconds: float | None
    """Since the registry was last seen to match, None before the first time."""
    next_refresh_seconds: float | None
    """Until the timer, 0 when it is due, None while the actor is not running."""
    consecutive_failures: int
    """Failed reads since the last good one."""
    last_error: str | None
    """Of the newest read, None if that one went well."""
    awaiting_confirmation: bool
    """Whether a suspicious reading waits to be read a second time."""
    swaps: int
    """How many snapshots have been put in place since the start."""

    def as_json(self) -> JSONObject:
        """The form in which an admin listener shows it.

        The first `MAX_SHOWN` records of the quarantine.
        """
        told: JSONObject = attrs.asdict(self, recurse=False)
        for name in ("age_seconds", "next_refresh_seconds"):
            seconds = cast("float | None", told[name])
            told[name] = None if seconds is None else round(seconds, 3)
        told["counts"] = {
            "served": told.pop("operations"),
            "published": told.pop("published"),
            "quarantined": len(self.quarantine),
        }
        shown = self.quarantine[:MAX_SHOWN]
        told["quarantine"] = [attrs.asdict(record) for record in shown]
        return told
