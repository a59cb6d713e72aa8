"""The bounds of a session and of a server, and what a session counts; see `admission`."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping

import attrs

from mcp_trio.session.rates import Rate
from mcp_trio.setting_rules import NOT_NEGATIVE, POSITIVE

UNTIMED = frozenset({"subscriptions/listen"})
"""Requests that are meant to stay open. They are no work, so they are counted apart."""


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
class ToolLimits:
    """The bounds of one tool, beside those of the server. None leaves it to the server."""

    timeout: float | None = attrs.field(default=None, validator=POSITIVE)
    """Seconds a call may take, in place of the server's `request_timeout`, shorter or longer."""
    rate: Rate | None = None
    """How often it may be called; one more is refused, and told when to come back."""
    max_in_flight: int | None = attrs.field(default=None, validator=POSITIVE)
    """Calls of it that run at once; one more is refused."""

    def over(self, others: ToolLimits) -> ToolLimits:
        """These, and what they leave open as the others say."""
        return ToolLimits(
            timeout=others.timeout if self.timeout is None else self.timeout,
            rate=self.rate or others.rate,
            max_in_flight=self.max_in_flight or others.max_in_flight,
        )


@attrs.frozen(kw_only=True)
class LoadLimits:
    """How much a server does at once, and how often, whoever asks on whatever transport.

    A caller is a principal or, if nobody in particular, an address (of IPv6 its /64). Where neither
    is known, over HTTP all are one caller, and on lines each connection is one. `ping` is always
    answered.
    """

    max_in_flight: int = attrs.field(default=1000, validator=POSITIVE)
    """Requests that run at once, of all clients."""
    max_in_flight_per_session: int | None = attrs.field(default=None, validator=POSITIVE)
    """The same of one session; None: only the others count."""
    max_in_flight_per_caller: int | None = attrs.field(default=None, validator=POSITIVE)
    """The same of one caller, in all sessions and without one."""
    max_listeners: int = attrs.field(default=10_000, validator=POSITIVE)
    """`subscriptions/listen` requests open at once. They do not count as requests that run."""
    max_listeners_per_caller: int | None = attrs.field(default=None, validator=POSITIVE)
    """The same of one caller."""
    queue_length: int = attrs.field(default=0, validator=NOT_NEGATIVE)
    """Requests that may wait for their turn when too many run; 0 refuses at once. Callers take
    turns, and of each the first comes first. A full queue refuses the last one of who has most."""
    queue_timeout: float = attrs.field(default=5.0, validator=POSITIVE)
    """Seconds that a request waits at most; they count as its own time, too."""
    rate: Rate | None = None
    """How often requests may come, of all clients."""
    rate_per_caller: Rate | None = None
    """The same of each caller."""
    tools: Mapping[str, ToolLimits] = attrs.field(factory=dict[str, ToolLimits])
    """By name of the tool; `*` stands for anything. The name itself counts first, then the
    patterns in their order, then what the tool was registered with."""

    @property
    def most_of_session(self) -> int:
        """Requests that one session can have running at once."""
        return min(self.max_in_flight, self.max_in_flight_per_session or self.max_in_flight)

    def of_tool(self, name: str, own: ToolLimits) -> ToolLimits:
        """The limits of one tool.

        Args:
            name: of the tool.
            own: what it was registered with.
        """
        if not self.tools:
            return own
        found = self.tools.get(name) or ToolLimits()
        for pattern, limits in self.tools.items():
            if fnmatch.fnmatchcase(name, pattern):
                found = found.over(limits)
        return found.over(own)


@attrs.frozen(kw_only=True)
class SessionStatistics:
    """Counters of one session."""

    in_flight: int
    """Requests of the peer that run now, or wait for their turn."""
    pending: int
    """Requests of ours without an answer."""
    late_answers: int
    """Answers to requests given up before."""
    malformed: int
    """Messages that were none."""
    shields_lifted: int
    """Shields taken away from requests that would not end."""
