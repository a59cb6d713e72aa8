"""When to try again what failed: numbers in, numbers out.

No clock and no randomness of its own: a chance between 0 and 1 is an argument.
"""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Backoff:
    """How patiently something is tried again. All times are in seconds."""

    first: float = 0.5
    """At most this long before the second try; each further failure doubles it."""
    longest: float = 30.0
    """No pause is longer."""
    attempts: int = 10
    """Failures in a row after which it is given up."""

    def pause(self, failures: int, chance: float) -> float | None:
        """Seconds to wait after so many failures in a row, 1 or more; None to give up.

        Between half of the time and all of it, so that those who failed together do not come
        back together.
        """
        if failures > self.attempts:
            return None
        # The exponent is capped: a float overflows long before a patient client gives up.
        whole = min(self.first * 2.0 ** min(failures - 1, 32), self.longest)
        return whole * (0.5 + chance / 2)
