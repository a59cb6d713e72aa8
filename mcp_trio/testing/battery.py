"""The battery: run every check on a transport, and say which one fails and how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import trio

from mcp_trio.testing.bench import Bench, HalfClose, Pair
from mcp_trio.testing.checks import CHECKS

HUGE = 4_000_000


async def check_transport(
    make: Pair,
    *,
    half_close: HalfClose | None = None,
    without: Mapping[str, str] | None = None,
    huge: int = HUGE,
    timeout: float = 30,  # noqa: ASYNC109 - of each check, and then it is an AssertionError
) -> None:
    """Run the battery.

    The first end of a pair is the one that is checked; the second one is its peer and has to
    work. Where the two ends are of different kinds, run it a second time with both exchanged.

    Works on Trio's real clock and, where no sockets are used, on an autojump clock.

    Args:
        make: makes a fresh connected pair each time it is called. Their pumps are run by the
            battery, and both ends are closed by it.
        half_close: stops the sending half of either end, and leaves what it hears; None where
            that cannot be done, which `without` has to say, too.
        without: names of the checks that do not apply, each with the reason why.
        huge: bytes of the huge message.
        timeout: seconds for each check.

    Raises:
        AssertionError: names a check and says what the transport does wrong.
        ValueError: `without` names what is no check, or gives no reason.
    """
    spared = without or {}
    names = [check.__name__ for check in CHECKS]
    for name, reason in spared.items():
        if name not in names or not reason.strip():
            raise ValueError(
                f"`without` takes a reason for each of {', '.join(names)}: {name!r}, {reason!r}"
            )
    bench = Bench(make, half_close, huge)
    for check in CHECKS:
        if check.__name__ in spared:
            continue
        try:
            with trio.fail_after(timeout):
                await check(bench)
        except Exception as error:
            what = "; ".join(_told(error, timeout))
            rule = (check.__doc__ or "").rstrip(".")
            raise AssertionError(f"{check.__name__}: {what} ({rule})") from error


def _told(error: Exception, timeout: float) -> Iterator[str]:
    """What went wrong, in words: each failure of a group is told."""
    match error:
        case ExceptionGroup(exceptions=inner):
            for one in inner:
                yield from _told(one, timeout)
        case trio.TooSlowError():
            yield f"it did not get that far within {timeout:g} s"
        case AssertionError():
            yield str(error) or repr(error)
        case _:
            yield f"the transport raised {error!r}"
