"""When a client comes back to a stream, and from where: numbers."""

import pytest

from mcp_trio.engine.returning import LONGEST_PAUSE, SHORTEST_PAUSE, Place


def place(*connections):
    made = Place()
    for last_id, retry, brought in connections:
        made.note(last_id, retry, brought=brought)
    return made


@pytest.mark.parametrize(
    ("ids", "last"),
    [
        ([None], None),
        (["1"], "1"),
        (["1", None], "1"),
        (["1", None, "2"], "2"),
        (["1", ""], None),  # an empty id takes it back, as the standard has it
        (["1", "", None], None),
        (["1", "", "2"], "2"),
    ],
)
def test_the_last_id_is_the_one_that_counts_over_all_connections(ids, last):
    assert place(*[(id_, None, False) for id_ in ids]).last_id == last


@pytest.mark.parametrize(
    ("retry", "pause"),
    [
        (500, 0.5),
        (0, SHORTEST_PAUSE),
        (1, SHORTEST_PAUSE),
        (3_600_000, LONGEST_PAUSE),
        (7_200_000, LONGEST_PAUSE),
        (999_999_999_999, LONGEST_PAUSE),
    ],
)
@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_a_server_that_says_when_is_obeyed_within_reason(retry, pause, chance):
    assert place(("1", retry, True)).pause(chance) == pause
    assert place(("1", retry, True), ("2", None, True)).pause(chance) == pause


@pytest.mark.parametrize(
    ("failures", "shortest", "longest"),
    [(0, 0.5, 1), (1, 0.5, 1), (2, 1, 2), (3, 2, 4), (6, 15, 30), (50, 15, 30), (10**9, 15, 30)],
)
def test_failures_make_it_patient_and_spread_it_out(failures, shortest, longest):
    made = place((None, None, True))
    made.failures = failures
    assert (made.pause(0.0), made.pause(1.0)) == (shortest, longest)
    assert shortest < made.pause(0.5) < longest


def test_a_server_that_fails_is_not_asked_sooner_than_it_said_it_wanted():
    made = place(("1", 5000, True), (None, None, False))
    assert made.failures == 1
    assert made.pause(0.0) == 5
    for _ in range(10):
        made.note(None, None, brought=False)
    assert made.pause(0.0) == 15


def test_the_same_place_again_is_no_step_further():
    made = place(("1", None, False), ("1", None, False), ("1", None, False))
    assert (made.last_id, made.failures) == ("1", 2)


@pytest.mark.parametrize("good", [("2", None, False), (None, 10, False), (None, None, True)])
def test_what_brings_something_is_no_failure(good):
    made = place(("1", None, True), *[(None, None, False)] * 4)
    assert made.failures == 4
    made.note(good[0], good[1], brought=good[2])
    assert made.failures == 0
