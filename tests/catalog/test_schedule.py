"""The timing policy, in numbers."""

from __future__ import annotations

import pytest

from mcp_trio.catalog.schedule import Schedule, is_stale, is_suspicious


@pytest.mark.parametrize(("chance", "delay"), [(0.0, 27.0), (0.5, 30.0), (1.0, 33.0)])
def test_the_interval_is_jittered_by_a_tenth(chance, delay):
    assert Schedule().after_success(100.0, chance) == pytest.approx(100.0 + delay)


def test_failures_double_the_delay_up_to_five_minutes():
    delays = [Schedule().after_failure(0.0, n, 0.5) for n in range(1, 12)]
    assert delays == pytest.approx([1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300])
    assert Schedule().after_failure(0.0, 10_000_000, 1.0) == 300.0


def test_a_short_interval_retries_no_slower_than_it_looks():
    assert Schedule(interval=0.1).after_failure(0.0, 1, 0.5) == pytest.approx(0.1)


def test_confirmation_comes_well_within_the_interval():
    assert Schedule().for_confirmation(5.0) == 6.0
    assert Schedule(interval=2.0).for_confirmation(5.0) == pytest.approx(5.2)


@pytest.mark.parametrize(
    ("before", "after", "suspicious"),
    [
        (None, 0, True),
        (None, 1, False),
        (0, 0, False),
        (0, 5, False),
        (1, 0, True),
        (2, 1, True),
        (3, 2, False),
        (100, 51, False),
        (100, 50, True),
        (100, 0, True),
        (100, 100, False),
        (100, 300, False),
    ],
)
def test_nothing_and_half_are_suspicious(before, after, suspicious):
    assert is_suspicious(before, after) is suspicious


def test_stale_is_at_the_bound_or_never_looked():
    assert is_stale(100.0, None, 30.0)
    assert not is_stale(100.0, 70.1, 30.0)
    assert is_stale(100.0, 70.0, 30.0)


@pytest.mark.parametrize(
    "options", [{"interval": 0}, {"interval": -1}, {"jitter": 1.0}, {"longest": 0}]
)
def test_a_policy_that_cannot_work_is_refused(options):
    with pytest.raises(ValueError, match="must be"):
        Schedule(**options)
