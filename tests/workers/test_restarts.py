"""When workers that ended are started again: a table of numbers."""

import pytest

from mcp_trio.workers.restarts import BACKOFF, HOPELESS, SETTLED, Restarts


def test_each_further_end_doubles_the_pause_up_to_a_limit():
    restarts = Restarts(2)
    pauses = [restarts.pause(1, 1.0, 1.0) for _ in range(12)]
    assert pauses[:4] == [0.25, 0.5, 1.0, 2.0]
    assert pauses == sorted(pauses)
    assert pauses[-1] == pauses[-2] <= BACKOFF.longest


@pytest.mark.parametrize(("chance", "pause"), [(0.0, 0.125), (0.5, 0.1875), (1.0, 0.25)])
def test_a_pause_is_spread_by_chance(chance, pause):
    assert Restarts(1).pause(1, 1.0, chance) == pause


def test_a_worker_that_has_served_long_enough_has_no_past():
    restarts = Restarts(1)
    for _ in range(5):
        restarts.pause(1, 1.0, 1.0)
    assert restarts.pause(1, SETTLED - 0.01, 1.0) == 8.0
    assert restarts.pause(1, SETTLED, 1.0) == 0.25


def test_one_worker_does_not_pay_for_another():
    restarts = Restarts(2)
    restarts.pause(1, None, 1.0)
    restarts.pause(1, None, 1.0)
    assert restarts.pause(2, 1.0, 1.0) == 0.25


def test_it_is_given_up_once_no_worker_has_started_several_times_in_a_row():
    restarts = Restarts(2)
    ends = [restarts.pause(number, None, 1.0) for _ in range(HOPELESS) for number in (1, 2)]
    assert ends[-1] is None
    assert None not in ends[:-1]


def test_one_worker_that_serves_is_hope_for_the_others():
    restarts = Restarts(2)
    assert restarts.pause(2, 1.0, 1.0)
    assert None not in [restarts.pause(1, None, 1.0) for _ in range(20)]


def test_a_worker_that_serves_in_between_begins_to_count_anew():
    restarts = Restarts(1)
    for _ in range(HOPELESS - 1):
        assert restarts.pause(1, None, 1.0)
    assert restarts.pause(1, 0.5, 1.0)
    for _ in range(HOPELESS - 1):
        assert restarts.pause(1, None, 1.0)
    assert restarts.pause(1, None, 1.0) is None
