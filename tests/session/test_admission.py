"""The one place that says who may run: shares, turns in the queue, rates, and nothing kept."""

import contextlib
from collections import deque

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio import LoadLimits, Principal, Rate, ToolLimits
from mcp_trio.errors import OverloadedError
from mcp_trio.session import admission as module
from mcp_trio.session.admission import Admission, caller_of
from mcp_trio.session.places import SessionLoad

CALL = "tools/call"
LISTEN = "subscriptions/listen"


def refused(admission, method=CALL, caller=None, session=None):
    """The limit by which a request is refused."""
    with pytest.raises(OverloadedError) as caught:
        admission.enter(method, caller, session)
    return caught.value


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        ({"max_in_flight": 2}, "requests"),
        ({"max_in_flight_per_caller": 2}, "caller_requests"),
        ({"max_in_flight_per_session": 2}, "session_requests"),
    ],
)
def test_as_many_as_allowed_run_and_one_more_does_not(limits, limit):
    admission = Admission(LoadLimits(**limits))
    session = SessionLoad(admission.limits.max_in_flight_per_session)
    places = [admission.enter(CALL, "ann", session) for _ in range(2)]
    error = refused(admission, caller="ann", session=session)
    assert (error.limit, error.data["limit"], error.retry_after) == (limit, limit, 1.0)
    places[0].release()
    places[0].release()  # which gives nothing back twice
    places[0] = admission.enter(CALL, "ann", session)
    refused(admission, caller="ann", session=session)
    for place in places:
        place.release()
    assert admission.statistics().refusals == {limit: 2}
    assert admission.statistics().in_flight == 0


def test_the_bound_of_one_caller_or_session_leaves_the_others_alone():
    admission = Admission(LoadLimits(max_in_flight_per_caller=1))
    with admission.enter(CALL, "ann"), admission.enter(CALL, "bob"):
        assert refused(admission, caller="ann").limit == "caller_requests"
        assert admission.statistics().counted == 2
    one, other = SessionLoad(1), SessionLoad(1)
    with admission.enter(CALL, "ann", one), admission.enter(CALL, "bob", other):
        assert refused(admission, caller="zoe", session=one).limit == "session_requests"


def test_who_is_not_known_is_the_session_and_without_one_all_are_one():
    admission = Admission(LoadLimits(max_in_flight_per_caller=1))
    with (
        admission.enter(CALL, None, SessionLoad(None)),
        admission.enter(CALL, None, SessionLoad(None)),
        admission.enter(CALL, None),
    ):
        assert refused(admission).limit == "caller_requests"


def test_listeners_are_counted_apart_and_a_ping_is_never_refused():
    admission = Admission(LoadLimits(max_in_flight=1, max_listeners=3, max_listeners_per_caller=2))
    with contextlib.ExitStack() as held:
        for caller in ("ann", "ann", "bob"):
            held.enter_context(admission.enter(LISTEN, caller))
        assert refused(admission, LISTEN, "ann").limit == "caller_listeners"
        assert refused(admission, LISTEN, "bob").limit == "listeners"
        held.enter_context(admission.enter(CALL, "ann"))
        refused(admission, CALL, "bob")
        for _ in range(10):
            held.enter_context(admission.enter("ping", "ann"))
        load = admission.statistics()
        assert (load.in_flight, load.listeners) == (1, 3)


def test_callers_are_told_apart_by_identity_and_else_by_address():
    ann = Principal(subject="ann")
    assert caller_of(ann, "10.0.0.1") == caller_of(ann, None)
    assert caller_of(ann, None) != caller_of(Principal(subject="ann", issuer="x"), None)
    assert caller_of(None, "10.0.0.1") != caller_of(None, "10.0.0.2")
    assert caller_of(None, None) is None


# -- the queue -------------------------------------------------------------------------


async def waiting(place, into, name):
    with place:
        error = await place.turn()
        into.append(name if error is None else error.limit)
        if error is None:
            await trio.lowlevel.checkpoint()


async def test_callers_take_turns_and_of_each_the_first_comes_first():
    admission = Admission(LoadLimits(max_in_flight=1, queue_length=100))
    done = []
    async with trio.open_nursery() as nursery:
        with admission.enter(CALL, "busy"):
            for caller, count in (("ann", 4), ("bob", 2), ("zoe", 1)):
                for number in range(count):
                    place = admission.enter(CALL, caller)
                    assert place.waiting
                    nursery.start_soon(waiting, place, done, f"{caller} {number}")
            await trio.testing.wait_all_tasks_blocked()
            assert done == []
            assert admission.statistics().waiting == 7
    assert done == ["ann 0", "bob 0", "zoe 0", "ann 1", "bob 1", "ann 2", "ann 3"]


async def test_a_turn_that_does_not_come_in_time_is_a_refusal(autojump_clock):
    admission = Admission(LoadLimits(max_in_flight=1, queue_length=1, queue_timeout=7))
    with admission.enter(CALL, "ann"):
        place = admission.enter(CALL, "bob")
        error = await place.turn()
        assert (error.limit, trio.current_time()) == ("requests", 7)
        assert admission.statistics().waiting == 0
        assert admission.statistics().refusals == {"requests": 1}
    with admission.enter(CALL, "bob") as now:
        assert not now.waiting


async def test_who_gives_up_leaves_the_queue_at_once():
    admission = Admission(LoadLimits(max_in_flight=1, queue_length=2))
    done = []
    async with trio.open_nursery() as nursery:
        with admission.enter(CALL, "busy"):
            async with trio.open_nursery() as leaving:
                leaving.start_soon(waiting, admission.enter(CALL, "ann"), done, "left")
                nursery.start_soon(waiting, admission.enter(CALL, "ann"), done, "stayed")
                await trio.testing.wait_all_tasks_blocked()
                refused(admission, caller="ann")
                leaving.cancel_scope.cancel()
            assert admission.statistics().waiting == 1
            nursery.start_soon(waiting, admission.enter(CALL, "ann"), done, "came later")
    assert done == ["stayed", "came later"]


async def test_nobody_fills_the_queue_alone():
    admission = Admission(LoadLimits(max_in_flight=1, queue_length=4))
    done = []
    async with trio.open_nursery() as nursery:
        with admission.enter(CALL, "busy"):
            for number in range(4):
                place = admission.enter(CALL, "greedy")
                nursery.start_soon(waiting, place, done, f"greedy {number}")
            refused(admission, caller="greedy")
            for number in range(2):
                place = admission.enter(CALL, "modest")
                nursery.start_soon(waiting, place, done, f"modest {number}")
            # Now both have the same, and the full queue is full for both.
            refused(admission, caller="greedy")
            refused(admission, caller="modest")
            await trio.testing.wait_all_tasks_blocked()
            assert done == ["requests", "requests"]
            done.clear()
    assert done == ["greedy 0", "modest 0", "greedy 1", "modest 1"]


async def test_a_caller_at_his_own_bound_does_not_hold_others_up():
    admission = Admission(LoadLimits(max_in_flight=2, max_in_flight_per_caller=1, queue_length=10))
    done = []
    async with trio.open_nursery() as nursery:
        with admission.enter(CALL, "ann"):
            nursery.start_soon(waiting, admission.enter(CALL, "ann"), done, "ann")
            with admission.enter(CALL, "bob") as place:
                assert not place.waiting
                nursery.start_soon(waiting, admission.enter(CALL, "zoe"), done, "zoe")
            await trio.testing.wait_all_tasks_blocked()
            assert done == ["zoe"]
    assert done == ["zoe", "ann"]


async def test_the_next_one_in_a_line_goes_on_when_the_first_is_held_up_and_leaves():
    admission = Admission(LoadLimits(max_in_flight=9, queue_length=9))
    one, other = SessionLoad(1), SessionLoad(1)
    done = []
    async with trio.open_nursery() as nursery:
        with admission.enter(CALL, "ann", one):
            async with trio.open_nursery() as leaving:
                leaving.start_soon(waiting, admission.enter(CALL, "ann", one), done, "first")
                # It could run, and may not overtake.
                place = admission.enter(CALL, "ann", other)
                assert place.waiting
                nursery.start_soon(waiting, place, done, "second")
                await trio.testing.wait_all_tasks_blocked()
                leaving.cancel_scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert done == ["second"]


def test_initialize_and_listening_never_wait():
    admission = Admission(LoadLimits(max_in_flight=1, max_listeners=1, queue_length=9))
    with admission.enter(CALL, "ann"), admission.enter(LISTEN, "ann"):
        refused(admission, "initialize", "bob")
        refused(admission, LISTEN, "bob")


STEPS = st.lists(
    st.tuples(st.sampled_from(["enter", "leave"]), st.integers(0, 3), st.integers(0, 5)),
    max_size=80,
)


@given(STEPS)
def test_whatever_comes_and_goes_the_bounds_hold_and_nobody_is_forgotten(steps):
    limits = LoadLimits(
        max_in_flight=4,
        max_in_flight_per_caller=3,
        max_in_flight_per_session=2,
        queue_length=5,
    )
    admission = Admission(limits)
    sessions = [SessionLoad(2) for _ in range(6)]
    callers = ["ann", "bob", "zoe", None]
    places, order = [], {}
    for step, caller, session in steps:
        if step == "enter":
            try:
                place = admission.enter(CALL, callers[caller], sessions[session])
            except OverloadedError:
                continue
            places.append(place)
            order.setdefault(place.caller, deque()).append(place)
        elif places:
            gone = places.pop((caller * 6 + session) % len(places))
            gone.release()
            order[gone.caller].remove(gone)
        # Those whom the queue has given up are out of it.
        lost = [p for p in places if p.waiting and not admission._queue.has(p.caller)]
        waits = [p for p in places if p.waiting and p not in lost]
        runs = [p for p in places if not p.waiting]
        load = admission.statistics()
        assert load.in_flight == len(runs) <= 4
        assert load.waiting <= 5
        for each in callers:
            assert sum(1 for p in runs if p.caller == each) <= 3
        assert all(session.requests.held <= 2 for session in sessions)
        for line in admission._queue._lines.values():
            first = next(iter(line))
            assert first.blocked is not None, "it could run and was not let"
            mine = [p for p in order[first.caller] if p.waiting and p in line]
            assert mine == list(line), "somebody was overtaken"
        assert load.waiting <= len(waits)
    for place in places:
        place.release()
    load = admission.statistics()
    assert (load.in_flight, load.waiting, load.counted) == (0, 0, 0)


# -- rates -----------------------------------------------------------------------------


async def test_a_rate_of_each_caller_and_one_of_all(autojump_clock):
    admission = Admission(
        LoadLimits(rate=Rate(per_minute=60, burst=5), rate_per_caller=Rate(per_minute=6, burst=2))
    )

    def ask(caller):
        admission.enter(CALL, caller).release()

    for _ in range(2):
        ask("ann")
    error = refused(admission, caller="ann")
    assert (error.limit, error.retry_after) == ("caller_rate", 10)
    for _ in range(2):
        ask("bob")
    ask("zoe")
    error = refused(admission, caller="zoe")
    assert (error.limit, error.retry_after) == ("rate", 1)
    admission.enter("ping", "ann").release()
    await trio.sleep(1)
    ask("zoe")  # who was not charged for what all together could not have
    await trio.sleep(9)
    ask("ann")
    refused(admission, caller="ann")


async def test_what_is_refused_for_want_of_room_costs_nothing_of_the_rate(autojump_clock):
    admission = Admission(LoadLimits(max_in_flight=1, rate=Rate(per_minute=1, burst=2)))
    with admission.enter(CALL, "ann"):
        for _ in range(5):
            assert refused(admission).limit == "requests"
    admission.enter(CALL, "ann").release()
    assert refused(admission).limit == "rate"


async def test_callers_without_number_are_remembered_in_bounds(monkeypatch):
    monkeypatch.setattr(module, "MAX_BUCKETS", 500)
    admission = Admission(LoadLimits(rate_per_caller=Rate(per_minute=1, burst=1)))
    for number in range(5000):
        admission.enter(CALL, f"address {number}").release()
    load = admission.statistics()
    assert (load.rated, load.counted) == (500, 0)
    assert refused(admission, caller="address 4999").limit == "caller_rate"


async def test_a_look_ahead_refuses_as_entering_would_and_counts_for_nothing(autojump_clock):
    admission = Admission(
        LoadLimits(max_in_flight_per_caller=1, rate_per_caller=Rate(per_minute=1, burst=2))
    )
    for _ in range(10):
        admission.foresee(CALL, "ann")
    with admission.enter(CALL, "ann"):
        with pytest.raises(OverloadedError) as caught:
            admission.foresee(CALL, "ann")
        assert caught.value.limit == "caller_requests"
        admission.foresee("ping", "ann")
        admission.foresee(CALL, "bob")
    admission.enter(CALL, "ann").release()
    with pytest.raises(OverloadedError) as caught:
        admission.foresee(CALL, "ann")
    assert caught.value.limit == "caller_rate"
    assert admission.statistics().refusals == {"caller_requests": 1, "caller_rate": 1}


# -- tools -----------------------------------------------------------------------------


async def test_a_tool_has_places_and_rates_of_its_own(autojump_clock):
    admission = Admission()
    limits = ToolLimits(max_in_flight=1, rate=Rate(per_minute=6, burst=2, per_caller=True))

    def enter(name="slow", caller="ann"):
        return admission.enter_tool(name, limits, caller)

    with enter(), enter("other"):
        with pytest.raises(OverloadedError) as caught:
            enter(caller="bob")
        assert caught.value.limit == "tool_requests"
    enter().release()
    with pytest.raises(OverloadedError) as caught:
        enter()
    assert (caught.value.limit, caught.value.retry_after) == ("caller_tool_rate", 10)
    enter(caller="bob").release()
    assert admission.statistics().counted == 0


def test_the_name_of_a_tool_counts_before_patterns_and_both_before_its_registration():
    limits = LoadLimits(
        tools={
            "crm_*": ToolLimits(timeout=5, max_in_flight=3),
            "*": ToolLimits(timeout=9, rate=Rate(per_minute=1)),
            "crm_slow": ToolLimits(timeout=60),
        }
    )
    own = ToolLimits(max_in_flight=7)
    assert limits.of_tool("crm_slow", own) == ToolLimits(
        timeout=60, max_in_flight=3, rate=Rate(per_minute=1)
    )
    assert limits.of_tool("else", own) == ToolLimits(
        timeout=9, max_in_flight=7, rate=Rate(per_minute=1)
    )
    assert LoadLimits().of_tool("else", own) is own
