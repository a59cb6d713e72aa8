"""When to try again, in numbers."""

import pytest

from mcp_trio.engine.backoff import Backoff


def test_each_failure_doubles_the_pause_up_to_the_longest():
    backoff = Backoff(first=0.5, longest=30, attempts=9)
    assert [backoff.pause(n, 1.0) for n in range(1, 10)] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert backoff.pause(10, 1.0) is None


@pytest.mark.parametrize("failures", [1, 5, 50])
def test_chance_spreads_the_pause_over_its_second_half(failures):
    backoff = Backoff(first=1, longest=20, attempts=100)
    whole = backoff.pause(failures, 1.0)
    assert backoff.pause(failures, 0.0) == whole / 2
    assert backoff.pause(failures, 0.5) == whole * 0.75


def test_a_very_patient_one_does_not_overflow():
    assert Backoff(longest=60, attempts=10**9).pause(10**8, 1.0) == 60


def test_no_attempts_is_giving_up_at_once():
    assert Backoff(attempts=0).pause(1, 0.5) is None
