"""When to read the registry next: numbers in, numbers out.

No clock and no randomness of its own: the time and a chance between 0 and 1 are arguments,
so the whole policy can be tested with numbers.
"""

from __future__ import annotations

import attrs


def _positive(_instance: object, field: attrs.Attribute[float], value: float) -> None:
    if not value > 0:
        raise ValueError(f"{field.name} must be greater than 0")


@attrs.frozen(kw_only=True)
class Schedule:
    """The policy of one catalog. All times are in seconds."""

    interval: float = attrs.field(default=30.0, validator=_positive)
    """Between two reads while all is well."""
    jitter: float = attrs.field(
        default=0.1, validator=[attrs.validators.ge(0.0), attrs.validators.lt(1.0)]
    )
    """How far a delay may lie off, as a part of it, so that many servers spread out."""
    first_retry: float = attrs.field(default=1.0, validator=_positive)
    """After the first failure; each further one doubles it."""
    longest: float = attrs.field(default=300.0, validator=_positive)
    """No delay after failures is longer."""
    confirm: float = attrs.field(default=1.0, validator=_positive)
    """Before a suspicious reading is read a second time; at most a tenth of the interval."""

    def after_success(self, now: float, chance: float) -> float:
        """The next deadline after a read that went well."""
        return now + self._spread(self.interval, chance)

    def after_failure(self, now: float, failures: int, chance: float) -> float:
        """The next deadline after `failures` failed reads in a row, 1 or more."""
        # The exponent is capped: a float overflows long before a patient server gives up.
        delay = min(self.first_retry, self.interval) * 2.0 ** min(failures - 1, 32)
        return now + min(self._spread(min(delay, self.longest), chance), self.longest)

    def for_confirmation(self, now: float) -> float:
        """The deadline of the second look at a suspicious reading."""
        return now + min(self.confirm, self.interval / 10)

    def _spread(self, delay: float, chance: float) -> float:
        return delay * (1 - self.jitter + 2 * self.jitter * chance)


def is_suspicious(before: int | None, after: int) -> bool:
    """Tell whether a number of published operations should be read twice to be believed.

    That is: none at all, or half of what was there, or less.

    Args:
        before: how many there were, None if nothing was read yet.
        after: how many there would be.
    """
    if before is None:
        return after == 0
    return after < before and after * 2 <= before


def is_stale(now: float, looked: float | None, bound: float) -> bool:
    """Tell whether the last look at the registry is longer ago than the bound allows."""
    return looked is None or now - looked >= bound
