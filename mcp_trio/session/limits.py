"""The bounds of one session, and what it counts."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class SessionLimits:
    """The bounds of one session."""

    max_in_flight: int = 1000
    """Requests of the peer that run at once; one more is refused with a retry hint."""
    cleanup_timeout: float = 5.0
    """Seconds a cancelled request may shield itself for cleanup."""
    drain_on_eof: float = 0.0
    """Seconds that running requests may go on once the peer has stopped sending. For lines
    whose two directions close apart, as stdin and stdout do."""


@attrs.frozen(kw_only=True)
class SessionStatistics:
    """Counters of one session."""

    in_flight: int
    """Requests of the peer that run now."""
    pending: int
    """Requests of ours without an answer."""
    late_answers: int
    """Answers to requests given up before."""
    malformed: int
    """Messages that were none."""
    shields_lifted: int
    """Shields taken away from requests that would not end."""
