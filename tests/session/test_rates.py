"""Buckets of tokens, and the shelf that keeps those of many callers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio import ConfigurationError
from mcp_trio.session.idle import Shelf
from mcp_trio.session.rates import Bucket, Rate


@given(st.lists(st.floats(0, 30), max_size=80), st.integers(1, 20))
def test_never_more_than_twice_the_limit_in_any_minute(pauses, limit):
    now, taken = 0.0, []
    rate = Rate(per_minute=limit)
    bucket = Bucket(rate, now)
    for pause in pauses:
        now += pause
        if bucket.take(rate, now) is None:
            taken.append(now)
        assert sum(1 for at in taken if at > now - 60) <= 2 * limit


@given(st.floats(0.1, 10_000), st.integers(1, 50), st.integers(1, 200))
def test_who_waits_as_long_as_told_gets_the_next_one(per_minute, burst, times):
    rate = Rate(per_minute=per_minute, burst=burst)
    bucket, now = Bucket(rate, 0.0), 0.0
    for _ in range(burst):
        assert bucket.take(rate, now) is None
    for _ in range(times):
        wait = bucket.take(rate, now)
        assert wait == pytest.approx(60 / per_minute)
        now += wait
        assert bucket.take(rate, now) is None


def test_looking_takes_nothing_and_what_is_given_back_can_be_taken_again():
    rate = Rate(per_minute=60, burst=1)
    bucket = Bucket(rate, 0.0)
    assert bucket.look(rate, 0.0) is None
    assert bucket.take(rate, 0.0) is None
    assert bucket.look(rate, 0.0) == pytest.approx(1)
    bucket.give_back()
    assert bucket.take(rate, 0.0) is None


def test_a_burst_is_a_minute_long_unless_it_is_said():
    assert Rate(per_minute=7).depth == 7
    assert Rate(per_minute=0.5).depth == 1
    assert Rate(per_minute=600, burst=10).depth == 10


@pytest.mark.parametrize("faulty", [{"per_minute": 0}, {"per_minute": 1, "burst": 0}])
def test_a_rate_of_nothing_is_refused(faulty):
    with pytest.raises(ConfigurationError, match="must be greater than 0"):
        Rate(**faulty)


def test_what_is_idle_is_forgotten():
    shelf, rate = Shelf[int, Bucket](100_000), Rate(per_minute=5)
    for number in range(5000):
        now = number * 1000.0
        shelf.get(number, lambda now=now: Bucket(rate, now), now).take(rate, now)
    assert len(shelf) <= Shelf.LEAST + 1


def test_what_is_busy_is_bounded_and_the_one_that_asked_longest_ago_goes():
    shelf, rate = Shelf[int, Bucket](1000), Rate(per_minute=5)

    def get(number):
        return shelf.get(number, lambda: Bucket(rate, 0.0), 0.0)

    first = get(-1)
    first.take(rate, 0.0)
    for number in range(5000):
        assert get(number).take(rate, 0.0) is None
        if number % 100 == 0:
            assert get(-1) is first
    assert len(shelf) == 1000
    assert shelf.find(0) is None
    assert shelf.find(4999) is not None
