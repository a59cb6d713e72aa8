"""`[rates]` and `[tools."NAME"]`: how often things may be asked for, and what one tool may take."""

from __future__ import annotations

import attrs

from mcp_trio.config.limits import LimitsSection
from mcp_trio.config.server import ServerSection
from mcp_trio.session.limits import LoadLimits, ToolLimits
from mcp_trio.session.rates import Rate
from mcp_trio.setting_rules import POSITIVE


@attrs.frozen(kw_only=True)
class RateSection:
    """`[rates.all]`, `[rates.caller]`: how often requests may come.

    Of all callers together, and of each one. Without a table there is no bound.
    """

    per_minute: float = attrs.field(validator=POSITIVE)
    """So many a minute, in the long run."""
    burst: int | None = attrs.field(default=None, validator=POSITIVE)
    """So many may come at once after silence; as many as in a minute if not given."""

    def rate(self, server: ServerSection | None = None) -> Rate:
        """The rate, or the part of it that one of the processes of a server has."""
        if server is None:
            return Rate(per_minute=self.per_minute, burst=self.burst)
        burst = None if self.burst is None else server.share(self.burst)
        return Rate(per_minute=self.per_minute / server.workers, burst=burst)


@attrs.frozen(kw_only=True)
class RatesSection:
    """`[rates]`: of requests."""

    all: RateSection | None = None
    """Of all callers together."""
    caller: RateSection | None = None
    """Of each caller."""


@attrs.frozen(kw_only=True)
class ToolRateSection(RateSection):
    """`[tools."NAME".rate]`: how often a tool may be called. Without it there is no bound."""

    per_caller: bool = False
    """Whether each caller has them, or all together."""

    def rate(self, server: ServerSection | None = None) -> Rate:
        """The rate, or the part of one process, which is all of it for each caller."""
        whole = super().rate(None if self.per_caller else server)
        return attrs.evolve(whole, per_caller=self.per_caller)


@attrs.frozen(kw_only=True)
class ToolSection:
    """`[tools."NAME"]`: what calls of a tool may take; `*` in the name stands for anything.

    A tool with a table of its own name has what that says, and for the rest what the patterns say,
    in their order.
    """

    timeout: float | None = attrs.field(default=None, validator=POSITIVE)
    """Seconds a call may take, in place of `server.request_timeout`; the time that an operation
    sets itself ends within."""
    max_in_flight: int | None = attrs.field(default=None, validator=POSITIVE)
    """Calls that run at once."""
    rate: ToolRateSection | None = None
    """How often it may be called."""

    def limits(self, server: ServerSection) -> ToolLimits:
        """The limits, as each process of a server has them."""
        most = self.max_in_flight
        return ToolLimits(
            timeout=self.timeout,
            max_in_flight=None if most is None else server.share(most),
            rate=None if self.rate is None else self.rate.rate(server),
        )


def load_limits(
    server: ServerSection,
    limits: LimitsSection,
    rates: RatesSection,
    tools: dict[str, ToolSection],
) -> LoadLimits:
    """What each process of a server with these sections does at once, and how often.

    What is said of all together is shared out; what is said of one caller or session is whole in
    each process, because their requests may all come to the same one, up to half of what all may
    have there.
    """
    per_caller = server.of_one(limits.max_in_flight_per_caller, server.max_in_flight)
    listeners = server.of_one(limits.max_listeners_per_caller, limits.max_listeners)
    return LoadLimits(
        max_in_flight=server.share(server.max_in_flight),
        max_in_flight_per_session=limits.max_in_flight_per_session,
        max_in_flight_per_caller=per_caller,
        max_listeners=server.share(limits.max_listeners),
        max_listeners_per_caller=listeners,
        queue_length=server.share(limits.queue_length),
        queue_timeout=limits.queue_timeout,
        rate=None if rates.all is None else rates.all.rate(server),
        rate_per_caller=None if rates.caller is None else rates.caller.rate(),
        tools={name: section.limits(server) for name, section in tools.items()},
    )
