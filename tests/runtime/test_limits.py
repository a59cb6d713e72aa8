"""Circuits, rates, the cache and the limits of results, on a clock that jumps."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from mcp_trio.catalog.operation import OperationError, parse
from mcp_trio.config import make_connections, parse_settings
from mcp_trio.engine.envelope import Principal
from mcp_trio.errors import ConfigurationError
from mcp_trio.runtime.circuit import Circuit, CircuitPolicy
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.result_cache import ResultCache
from mcp_trio.runtime.stages import WARNING_KEY
from tests.runtime.test_policies import MemoryUpstream

ANN, BOB = Principal(subject="ann"), Principal(subject="bob")


@pytest.fixture
def memory(nursery, make_bench):
    def make(*script, **options):
        sockets = MemoryUpstream(nursery, script)
        return make_bench("http://10.0.0.1", sockets=sockets, **options), sockets

    return make


# -- circuit ---------------------------------------------------------------------------

CIRCUIT = {"circuit": {"failure_rate": 0.5, "min_calls": 4, "window_s": 60, "cooldown_s": 30}}


async def test_an_upstream_that_keeps_failing_is_left_alone(memory, failure, autojump_clock):
    bench, upstream = memory(200, 200, 500, 500, 200)
    async with bench.connections:
        for _ in range(4):
            await bench.call(execution_config=CIRCUIT)
        text, told = failure(await bench.call(execution_config=CIRCUIT))
        assert (told["stage"], told["sub"]) == ("adapter_execution", "circuit_open")
        assert told["retryable"] is True
        assert told["retry_after_ms"] == 30_000
        assert "left alone" in text
        assert len(upstream.times) == 4
        await trio.sleep(30)
        assert (await bench.call(execution_config=CIRCUIT)).is_error is None
        assert (await bench.call(execution_config=CIRCUIT)).is_error is None


async def test_one_trial_decides_whether_it_opens_again(memory, failure, autojump_clock):
    bench, upstream = memory("refuse", "refuse", "refuse", "refuse", 503, 200)
    async with bench.connections:
        for _ in range(4):
            assert failure(await bench.call(execution_config=CIRCUIT))[1]["sub"] == "connect"
        await trio.sleep(30)
        assert failure(await bench.call(execution_config=CIRCUIT))[1]["upstream_status"] == 503
        told = failure(await bench.call(execution_config=CIRCUIT))[1]
        assert (told["sub"], told["retry_after_ms"]) == ("circuit_open", 30_000)
        assert len(upstream.times) == 5


async def test_while_the_trial_runs_nobody_else_gets_through(memory, failure, autojump_clock):
    bench, upstream = memory(*[500] * 4, "slow", 200)
    async with bench.connections:
        for _ in range(4):
            await bench.call(execution_config=CIRCUIT)
        await trio.sleep(30)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: bench.call(execution_config=CIRCUIT))
            while len(upstream.times) < 5:
                await trio.lowlevel.checkpoint()
            told = failure(await bench.call(execution_config=CIRCUIT))[1]
            assert told["sub"] == "circuit_open"
        assert (await bench.call(execution_config=CIRCUIT)).is_error is None


async def test_a_trial_that_the_caller_gives_up_is_no_verdict(memory, failure, autojump_clock):
    bench, _ = memory(*[500] * 4, "hang", 200)
    async with bench.connections:
        for _ in range(4):
            await bench.call(execution_config=CIRCUIT)
        await trio.sleep(30)
        with trio.move_on_after(1) as scope:
            await bench.call(execution_config=CIRCUIT)
        assert scope.cancelled_caught
        assert (await bench.call(execution_config=CIRCUIT)).is_error is None


async def test_a_trial_that_is_too_slow_opens_it_again(memory, failure, autojump_clock):
    config = {**CIRCUIT, "timeout_ms": {"total": 1000}}
    bench, upstream = memory(*[500] * 4, "hang", 200)
    async with bench.connections:
        for _ in range(4):
            await bench.call(execution_config=config)
        await trio.sleep(30)
        assert failure(await bench.call(execution_config=config))[1]["code"] == "total"
        told = failure(await bench.call(execution_config=config))[1]
        assert (told["sub"], told["retry_after_ms"]) == ("circuit_open", 30_000)
        assert len(upstream.times) == 5
        await trio.sleep(30)
        assert (await bench.call(execution_config=config)).is_error is None


async def test_what_began_before_it_opened_is_no_verdict_on_the_trial(
    memory, failure, autojump_clock
):
    bench, upstream = memory("slow", *[500] * 4, "hang", 200)
    config = {"circuit": {**CIRCUIT["circuit"], "cooldown_s": 0.5}}
    early = []

    async def call(into):
        into.append(await bench.call(execution_config=config))

    async with bench.connections, trio.open_nursery() as nursery:
        nursery.start_soon(call, early)
        await wait_all_tasks_blocked()
        for _ in range(4):
            await bench.call(execution_config=config)
        await trio.sleep(0.6)
        nursery.start_soon(call, [])  # the trial, which hangs
        await wait_all_tasks_blocked()
        assert not early
        await trio.sleep(1)
        assert early[0].is_error is None
        assert failure(await bench.call(execution_config=config))[1]["sub"] == "circuit_open"
        assert len(upstream.times) == 6
        nursery.cancel_scope.cancel()


def test_an_attempt_of_an_earlier_age_changes_nothing():
    circuit = Circuit(CircuitPolicy(failure_rate=0.5, min_calls=1, cooldown=10))
    early, late = circuit.enter(), circuit.enter()
    circuit.record(early, 0, good=False)
    assert circuit.refusal(0) == 10
    given_up = circuit.enter()
    circuit.abandon(given_up)
    trial = circuit.enter()
    for old in (late, given_up):
        circuit.abandon(old)
        circuit.record(old, 10, good=True)
    assert circuit.refusal(10) == 10
    circuit.record(trial, 10, good=True)
    assert circuit.refusal(10) is None
    circuit.record(late, 10, good=False)
    assert circuit.refusal(10) is None


async def test_an_upstream_that_is_too_slow_opens_it_and_a_caller_in_a_hurry_does_not(
    memory, failure, autojump_clock
):
    config = {**CIRCUIT, "timeout_ms": {"total": 1000}}
    bench, _ = memory(*["hang"] * 8)
    async with bench.connections:
        for _ in range(4):
            with trio.move_on_after(0.5):
                await bench.call(execution_config=config)
        for _ in range(4):
            assert failure(await bench.call(execution_config=config))[1]["code"] == "total"
        assert failure(await bench.call(execution_config=config))[1]["sub"] == "circuit_open"


async def test_what_the_caller_did_wrong_never_opens_it(memory, autojump_clock):
    bench, upstream = memory(*[404] * 20)
    async with bench.connections:
        for _ in range(20):
            await bench.call(execution_config=CIRCUIT)
    assert len(upstream.times) == 20


async def test_old_failures_are_forgotten(memory, autojump_clock):
    bench, upstream = memory(*[500] * 12)
    async with bench.connections:
        for _ in range(4):
            for _ in range(3):
                await bench.call(execution_config=CIRCUIT)
            await trio.sleep(67)
    assert len(upstream.times) == 12


async def test_a_retry_stops_when_the_circuit_opens_and_tells_the_failure(
    memory, failure, autojump_clock
):
    config = {**CIRCUIT, "retry": {"max_attempts": 8, "backoff_ms": 1}}
    bench, upstream = memory(*[503] * 20)
    async with bench.connections:
        told = failure(await bench.call(execution_config=config))[1]
    assert (told["stage"], told["upstream_status"]) == ("external_service", 503)
    assert len(upstream.times) == 4


async def test_operations_have_circuits_of_their_own(memory, failure, autojump_clock):
    bench, _ = memory(*[500] * 4, 200)
    async with bench.connections:
        for _ in range(4):
            await bench.call(execution_config=CIRCUIT)
        assert failure(await bench.call(execution_config=CIRCUIT))[1]["sub"] == "circuit_open"
        other = {"operation_id": "other", "execution_config": CIRCUIT}
        assert (await bench.call(**other)).is_error is None


@given(st.lists(st.tuples(st.floats(0, 20), st.booleans()), max_size=60))
def test_a_circuit_is_open_only_after_enough_failures_and_for_its_cooldown(steps):
    policy = CircuitPolicy(failure_rate=0.5, min_calls=5, window=30, cooldown=10)
    circuit, now, outcomes, opened = Circuit(policy), 0.0, [], None
    for pause, good in steps:
        now += pause
        wait = circuit.refusal(now)
        if opened is not None and now < opened + policy.cooldown:
            assert wait == pytest.approx(opened + policy.cooldown - now)
            continue
        assert wait is None
        trial = opened is not None
        circuit.record(circuit.enter(), now, good=good)
        if trial:
            outcomes, opened = [], None if good else now
            continue
        outcomes.append((now, good))
        is_open = circuit.refusal(now) is not None
        counted = [ok for at, ok in outcomes if now - at <= policy.window * 1.1]
        if is_open:
            assert len(counted) >= policy.min_calls
            outcomes, opened = [], now
        else:
            sure = [ok for at, ok in outcomes if now - at < policy.window]
            assert len(sure) < policy.min_calls or sure.count(False) < 0.5 * len(counted)


# -- rates -----------------------------------------------------------------------------


async def test_more_calls_than_the_rate_are_told_when_to_come_back(memory, failure, autojump_clock):
    config = {"rate_per_minute": {"limit": 3}}
    bench, upstream = memory()
    async with bench.connections:
        for who in (ANN, BOB, None):
            assert (await bench.call(principal=who, execution_config=config)).is_error is None
        told = failure(await bench.call(principal=ANN, execution_config=config))[1]
        assert (told["stage"], told["sub"]) == ("adapter_execution", "rate_limited")
        assert (told["retryable"], told["retry_after_ms"]) == (True, 20_000)
        await trio.sleep(20)
        assert (await bench.call(execution_config=config)).is_error is None
        failure(await bench.call(execution_config=config))
    assert len(upstream.times) == 4


async def test_a_rate_of_each_principal(memory, failure, autojump_clock):
    config = {"rate_per_minute": {"limit": 1, "per": "principal"}}
    bench, _ = memory()
    async with bench.connections:
        for who in (ANN, BOB, None):
            assert (await bench.call(principal=who, execution_config=config)).is_error is None
        for who in (ANN, BOB, None):
            assert failure(await bench.call(principal=who, execution_config=config))


# -- cache -----------------------------------------------------------------------------

CACHED = {"cache": {"ttl_s": 60}}


async def test_a_result_is_kept_for_its_time_and_its_arguments(memory, autojump_clock):
    bench, upstream = memory()
    async with bench.connections:
        for arguments in ({"id": "1"}, {"id": "1"}, {"id": 1}, {"id": "2"}):
            await bench.call(arguments, execution_config=CACHED)
        assert len(upstream.times) == 3
        await trio.sleep(59.9)
        await bench.call({"id": "1"}, execution_config=CACHED)
        assert len(upstream.times) == 3
        await trio.sleep(0.2)
        await bench.call({"id": "1"}, execution_config=CACHED)
        assert len(upstream.times) == 4


async def test_nobody_gets_what_was_answered_to_another(memory, autojump_clock):
    bench, upstream = memory()
    async with bench.connections:
        callers = [ANN, BOB, None, Principal(subject="")]
        callers += [
            Principal(subject="ann", issuer=each) for each in ("https://a", "https://b", "")
        ]
        for who in callers:
            for _ in range(2):
                await bench.call(principal=who, execution_config=CACHED)
    assert len(upstream.times) == len(callers)


async def test_what_a_mapping_reads_of_the_caller_tells_answers_apart(memory, autojump_clock):
    bench, upstream = memory()
    mapping = {"path": {"id": "=args.id"}, "query": {"t": "=principal.tenant"}}
    async with bench.connections:
        for tenant in ("a", "b", "a"):
            who = Principal(subject="ann", claims={"tenant": tenant, "iat": tenant * 2})
            await bench.call(principal=who, input_mapping=mapping, execution_config=CACHED)
        assert len(upstream.times) == 2
        vary = {"cache": {"ttl_s": 60, "vary": ["principal.iat"]}}
        for issued in (1, 2, 1):
            who = Principal(subject="ann", claims={"iat": issued})
            await bench.call(principal=who, execution_config=vary)
        assert len(upstream.times) == 4


async def test_a_new_version_has_results_of_its_own_and_failures_are_never_kept(
    memory, autojump_clock
):
    bench, upstream = memory(500, 200, 200)
    async with bench.connections:
        assert (await bench.call(execution_config=CACHED)).is_error
        assert (await bench.call(execution_config=CACHED)).is_error is None
        await bench.call(execution_config=CACHED)
        assert len(upstream.times) == 2
        await bench.call(execution_config=CACHED, tool_description="Another text.")
        assert len(upstream.times) == 3


async def test_nobody_can_change_what_the_next_one_gets(memory, autojump_clock):
    bench, _ = memory()
    mapping = {"result": {"list": [1, 2]}}
    async with bench.connections:
        for _ in range(3):
            result = await bench.call(execution_config=CACHED, output_mapping=mapping)
            assert result.structured_content == {"list": [1, 2]}
            result.structured_content["list"].append("changed")


async def test_the_cache_is_bounded(memory, monkeypatch, autojump_clock):
    monkeypatch.setattr(ResultCache, "MAX_ENTRIES", 5)
    bench, upstream = memory()
    async with bench.connections:
        for number in [*range(20), 19, 15, 14]:
            await bench.call({"id": number}, execution_config=CACHED)
        results = bench.compile().sender.gatekeeper.results
    assert len(results) == 5
    assert len(upstream.times) == 21


# -- results ---------------------------------------------------------------------------

LONG = {"result": {"list": list(range(9)), "in/side": [{"more": ["a", "b", "c"]}]}}


async def test_a_longer_result_than_the_limit_is_an_error(bench, upstream, failure):
    limits = {"limits": {"items": 5}}
    text, told = failure(await bench.call(execution_config=limits, output_mapping=LONG))
    assert (told["stage"], told["sub"]) == ("adapter_execution", "response_items")
    assert "9 items at /list, more than 5" in text
    whole = {"limits": {"items": 9}}
    assert (await bench.call(execution_config=whole, output_mapping=LONG)).is_error is None


async def test_a_longer_result_is_cut_and_says_so(bench, upstream):
    limits = {"limits": {"items": 2, "on_exceed": "truncate"}}
    result = await bench.call(execution_config=limits, output_mapping=LONG)
    assert result.structured_content == {"list": [0, 1], "in/side": [{"more": ["a", "b"]}]}
    assert result.meta[WARNING_KEY]["truncated"] == [
        {"pointer": "/list", "of": 9},
        {"pointer": "/in~1side/0/more", "of": 3},
    ]
    assert "Only the first 2 items" in result.content[-1].text


async def test_a_schema_with_room_is_kept_to_when_a_result_is_cut(bench, upstream, failure):
    schema = {
        "type": "object",
        "properties": {
            "list": {"type": "array", "minItems": 2},
            "truncated": {"type": "boolean"},
        },
        "additionalProperties": False,
    }
    mapping = {"result": {"list": [1, 2, 3]}}

    async def call(items):
        limits = {"limits": {"items": items, "on_exceed": "truncate"}}
        return await bench.call(
            execution_config=limits, output_mapping=mapping, output_schema=schema
        )

    assert (await call(3)).structured_content == {"list": [1, 2, 3]}
    assert (await call(2)).structured_content == {"list": [1, 2], "truncated": True}
    assert failure(await call(1))[1]["stage"] == "schema_validation"


# -- deadlines, defaults ---------------------------------------------------------------


async def test_what_is_left_of_the_time_goes_upstream(upstream, make_bench):
    bench = make_bench(upstream.url, deadline_header="X-Time-Left")
    async with bench.connections:
        with trio.fail_after(7):
            await bench.call(execution_config={"timeout_ms": {"total": 60_000}})
        assert 6000 < int(upstream.last.header("x-time-left")) <= 7000
        await bench.call(execution_config={"timeout_ms": {"total": 60_000}})
        assert 59_000 < int(upstream.last.header("x-time-left")) <= 60_000
        with pytest.raises(OperationError, match="not for an operation to set"):
            bench.compile(input_mapping={"path": {"id": "1"}, "headers": {"x-time-left": "1"}})


async def test_the_defaults_of_a_connection_are_below_those_of_an_operation(memory, failure):
    defaults = {
        "rate_per_minute": {"limit": 7},
        "circuit": {"min_calls": 3},
        "limits": {"items": 9, "response_bytes": 100},
    }
    bench, _ = memory(defaults=defaults)
    settings = bench.compile(execution_config={"limits": {"items": 4}}).settings
    assert settings.rate.per_minute == 7
    assert settings.circuit == CircuitPolicy(min_calls=3)
    assert (settings.items, settings.response_bytes) == (4, 100)


def test_the_settings_of_a_connection_say_the_same(tmp_path):
    section = {
        "base_url": "http://127.0.0.1:1",
        "concurrency": 4,
        "first_byte_timeout": 2.5,
        "max_connections": 8,
        "deadline_header": "X-Left",
        "defaults": {"retry": {"max_attempts": 3}},
    }
    values = {"catalog": {"registry": "r"}, "connections": {"crm": section}}
    (made,) = make_connections(parse_settings(values).connections, tmp_path)
    view = {
        "operation_id": "o",
        "name": "o",
        "protocol": "rest",
        "target": {"connection": "crm", "method": "GET", "path": "/"},
        "input_schema": {"type": "object"},
        "output_schema": None,
        "input_mapping": {},
        "output_mapping": {},
        "execution_config": {},
        "tool_description": "",
    }
    settings = Compiler(Connections([made])).compile(parse(view)).settings
    assert (settings.concurrency, settings.retry.max_attempts) == (4, 3)
    assert settings.timeouts.first_byte == 2.5
    assert (made.max_connections, made.deadline_header) == (8, "X-Left")
    section["defaults"] = {"retries": 3, "concurrency": 0}
    values = {"catalog": {"registry": "r"}, "connections": {"crm": section}}
    with pytest.raises(ConfigurationError, match=r"defaults: unknown key 'retries'.*concurrency"):
        make_connections(parse_settings(values).connections, tmp_path)
