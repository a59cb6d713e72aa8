"""The actor on a clock that jumps: when it reads, what it believes, whom it tells."""

from __future__ import annotations

import logging
import threading
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcp_trio import MCPServer
from mcp_trio.abc import Reading, RegistryError, Trouble
from mcp_trio.catalog.actor import LIGHT, CatalogActor
from mcp_trio.catalog.snapshot import Fault
from mcp_trio.catalog.status import MAX_SHOWN
from mcp_trio.testing import cancelled_after


@pytest.fixture
def running(compiler, host):
    """Run an actor without jitter, from the end of its first look on."""

    @asynccontextmanager
    async def run(registry, **options):
        actor = CatalogActor(registry, compiler, chance=lambda: 0.5, **options)
        actor.bind(host)
        async with trio.open_nursery() as nursery:
            await nursery.start(actor.run)
            await wait_all_tasks_blocked()
            yield actor
            nursery.cancel_scope.cancel()

    return run


async def test_the_first_look_is_at_once_and_makes_it_ready(
    running, registry, view, host, autojump_clock
):
    async with running(registry(view("a"))) as actor:
        assert actor.ready.is_set()
        assert list(actor.tools.entries) == ["a"]
        assert host.changes == 1
        status = actor.status()
        assert (status.ready, status.operations, status.swaps) == (True, 1, 1)
        assert status.age_seconds == 0.0
        assert status.next_refresh_seconds == pytest.approx(30)
        assert actor.ttl == pytest.approx(30)


async def test_a_change_shows_within_the_interval_with_one_event(
    running, registry, view, host, autojump_clock
):
    source = registry(view("a"), view("b"), view("c"))
    async with running(source) as actor:
        for change, names in (
            (lambda: source.put(view("d")), ["a", "b", "c", "d"]),
            (lambda: source.put(view("a", tool_description="New.")), ["a", "b", "c", "d"]),
            (lambda: source.drop("b"), ["a", "c", "d"]),
            (lambda: source.put(view("e"), view("f")), ["a", "c", "d", "e", "f"]),
        ):
            before, revision = host.changes, actor.tools.revision
            change()
            await trio.sleep(30.5)
            assert list(actor.tools.entries) == names
            assert host.changes == before + 1
            assert actor.tools.revision != revision
            await trio.sleep(300)
            assert host.changes == before + 1


async def test_nothing_new_costs_one_token_and_no_read(
    running, registry, view, host, compiler, autojump_clock
):
    source = registry(view("a"))
    async with running(source):
        reads, compiled = source.reads, len(compiler.compiled)
        await trio.sleep(30 * 10 + 1)
        assert source.reads == reads
        assert source.tokens == 10
        assert len(compiler.compiled) == compiled
        assert host.changes == 1


async def test_a_change_of_drafts_tells_nobody(running, registry, view, host, autojump_clock):
    source = registry(view("a"))
    async with running(source) as actor:
        revision = actor.snapshot.revision
        source.touch()
        await trio.sleep(31)
        assert (host.changes, actor.snapshot.revision) == (1, revision)


async def test_a_change_of_execution_swaps_without_a_notice(
    registry, view, compiler, autojump_clock
):
    source = registry(view("a"))
    actor = CatalogActor(source, compiler)
    server = MCPServer("one")
    server.add_provider(actor)
    notices = []
    async with trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        await actor.ready.wait()
        tools = actor.tools
        source.put(view("a", execution_config={"concurrency": 9}))
        with server.notices.listening(notices.append):
            await actor.refresh()
        nursery.cancel_scope.cancel()
        assert notices == []
        assert actor.tools.revision == tools.revision
        assert actor.tools.entries["a"] is not tools.entries["a"]
        assert actor.status().swaps == 2


async def test_a_call_keeps_the_entry_it_took_across_a_swap(
    running, registry, view, autojump_clock
):
    source = registry(view("a"))
    async with running(source) as actor:
        entry, revision = actor.tools.entries["a"], actor.snapshot.members["a"].operation.revision
        source.put(view("a", tool_description="New."))
        await trio.sleep(31)
        assert (await entry.call(None, {})).content[0].text == revision
        assert (await actor.tools.entries["a"].call(None, {})).content[0].text != revision


async def test_an_outage_keeps_everything_and_backs_off(  # noqa: PLR0917  # fixtures
    running, registry, view, host, missing, caplog, autojump_clock
):
    caplog.set_level(logging.INFO, "mcp_trio.catalog")
    source = registry(view("a"))
    async with running(source) as actor:
        source.trouble = missing
        await trio.sleep(30.5)
        assert actor.status().consecutive_failures == 1
        tokens = source.tokens
        await trio.sleep(3600 * 4)
        # One every five minutes once the backoff has grown; hours of it.
        assert 48 <= source.tokens - tokens <= 60
        assert list(actor.tools.entries) == ["a"]
        assert actor.ready.is_set()
        assert actor.ttl == 0.0
        status = actor.status()
        assert status.last_error == "there is no registry at /x"
        assert status.age_seconds == pytest.approx(3600 * 4 + 30.5)
        assert caplog.text.count("there is no registry at /x") == 1
        source.trouble = None
        source.put(view("b"))
        await trio.sleep(301)
        assert list(actor.tools.entries) == ["a", "b"]
        assert actor.status().last_error is None
        assert host.changes == 2
        assert "can be read again" in caplog.text


async def test_a_registry_that_never_answers_is_an_outage_too(
    running, registry, view, host, autojump_clock
):
    source = registry(view("a"))
    async with running(source, read_timeout=20) as actor:
        source.gate = trio.Event()  # nobody sets it
        await trio.sleep(30.5)
        assert actor.status().state == "fresh"  # one slow look is no trouble yet
        await trio.sleep(20)
        status = actor.status()
        assert (status.state, status.consecutive_failures) == ("failing", 1)
        assert status.last_error == "the registry gave no answer in 20 seconds"
        assert list(actor.tools.entries) == ["a"]
        source.gate = None
        source.put(view("b"))
        await trio.sleep(2)
        assert list(actor.tools.entries) == ["a", "b"]
        assert actor.status().state == "fresh"


async def test_the_state_says_the_whole_in_a_word(
    registry, view, compiler, missing, autojump_clock
):
    source = registry(view("a"))
    source.gate = trio.Event()
    actor = CatalogActor(source, compiler, chance=lambda: 0.5, read_timeout=20)
    assert actor.status().state == "stopped"
    async with trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        await wait_all_tasks_blocked()
        assert actor.status().state == "starting"
        source.gate.set()
        await actor.ready.wait()
        assert actor.status().state == "fresh"
        source.trouble = missing
        await actor.refresh()
        assert actor.status().state == "failing"
        nursery.cancel_scope.cancel()
    assert actor.status().state == "stopped"


async def test_a_catalog_that_is_not_seen_to_match_for_long_is_stale(
    running, registry, view, raw, autojump_clock
):
    source = registry(*(view(f"op{i}") for i in range(3)))
    async with running(source, read_timeout=1, interval=10) as actor:
        asked = 0

        async def flicker(_since):
            # Two thirds gone, another one each time: never said twice, so never believed.
            nonlocal asked
            asked += 1
            keep = f"op{asked % 3}"
            source.put(view(keep, tool_description=str(asked)))
            gone = tuple(f"op{i}" for i in range(3) if f"op{i}" != keep)
            return Reading(
                token=str(source.counter),
                entries=(raw(source.rows[keep]),),
                removed=gone,
                complete=False,
            )

        source.read = flicker
        source.put(view("op0", tool_description="New."))
        await trio.sleep(20)
        assert actor.status().state == "fresh"
        assert actor.status().awaiting_confirmation
        await trio.sleep(2)
        assert actor.status().state == "stale"
        assert len(actor.tools.entries) == 3


async def test_the_status_as_json_holds_plain_values_and_a_bounded_quarantine(
    running, registry, view, autojump_clock
):
    bad = [view(f"op{i:04}", execution_config={"circuit": {}}) for i in range(MAX_SHOWN + 5)]
    async with running(registry(view("a"), *bad)) as actor:
        await actor.ready.wait()
        told = msgspec.json.decode(msgspec.json.encode(actor.status().as_json()))
        assert set(told) == {
            "state",
            "ready",
            "revision",
            "listing_revision",
            "counts",
            "quarantine",
            "age_seconds",
            "next_refresh_seconds",
            "consecutive_failures",
            "last_error",
            "awaiting_confirmation",
            "swaps",
        }
        assert told["counts"] == {
            "served": 1,
            "published": MAX_SHOWN + 6,
            "quarantined": MAX_SHOWN + 5,
        }
        assert len(told["quarantine"]) == MAX_SHOWN
        assert told["quarantine"][0] == {
            "operation_id": "op0000",
            "fault": "compile",
            "reason": "execution_config.circuit is not supported by this version",
            "name": "op0000",
            "serving": None,
        }


async def test_each_distinct_error_is_logged_once(
    running, registry, view, missing, caplog, autojump_clock
):
    source = registry()
    source.trouble = missing
    async with running(source) as actor:
        await trio.sleep(100)
        source.trouble = RegistryError(Trouble.LOCKED, "it is locked")
        await trio.sleep(1000)
        warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
        assert len(warnings) == 2
        assert not actor.ready.is_set()


async def test_a_missing_registry_is_waited_for(
    running, registry, view, missing, host, autojump_clock
):
    source = registry(view("a"))
    source.trouble = missing
    async with running(source) as actor:
        assert not actor.ready.is_set()
        assert actor.tools.entries == {}
        assert host.changes == 0
        source.trouble = None
        await actor.ready.wait()
        assert trio.current_time() > 0
        assert actor.status().consecutive_failures == 0
        assert list(actor.tools.entries) == ["a"]


async def test_a_bug_in_a_registry_does_not_take_the_tools_away(
    running, registry, view, caplog, autojump_clock
):
    source = registry(view("a"))
    async with running(source) as actor:
        source.trouble = KeyError("secret")
        await trio.sleep(31)
        assert actor.status().last_error == "internal fault: KeyError"
        assert list(actor.tools.entries) == ["a"]


async def test_an_error_that_names_no_character_can_be_shown(
    running, registry, view, autojump_clock
):
    source = registry(view("a"))
    async with running(source) as actor:
        source.trouble = RegistryError(Trouble.MISSING, "there is no registry at /\udcff")
        status = await actor.refresh()
        assert msgspec.json.encode(status.as_json())
        assert status.last_error == r"there is no registry at /\udcff"


async def test_empty_counts_only_the_second_time(running, registry, view, host, autojump_clock):
    source = registry(view("a"), view("b"))
    async with running(source) as actor:
        source.drop("a", "b")
        await trio.sleep(30.1)
        assert list(actor.tools.entries) == ["a", "b"]
        assert actor.status().awaiting_confirmation
        assert host.changes == 1
        await trio.sleep(1.1)
        assert actor.tools.entries == {}
        assert not actor.status().awaiting_confirmation
        assert host.changes == 2


async def test_an_empty_answer_that_was_a_mistake_is_never_believed(
    running, registry, view, host, autojump_clock
):
    source = registry(view("a"), view("b"))
    async with running(source) as actor:
        source.drop("a", "b")
        await trio.sleep(30.1)
        source.put(view("a"), view("b"))
        await trio.sleep(300)
        assert list(actor.tools.entries) == ["a", "b"]
        assert host.changes == 1


async def test_shrinking_by_half_counts_only_the_second_identical_time(
    running, registry, view, host, autojump_clock
):
    source = registry(*(view(f"op{i}") for i in range(10)))
    async with running(source) as actor:
        # Ten are compiled in a thread, which this clock does not wait for.
        await actor.ready.wait()
        source.drop("op0", "op1", "op2", "op3")
        await trio.sleep(30.1)
        assert len(actor.tools.entries) == 6
        source.drop("op4", "op5", "op6")
        await trio.sleep(30.1)
        assert len(actor.tools.entries) == 6
        # The second look sees another state: it counts as a first one.
        source.drop("op7")
        await trio.sleep(1.05)
        assert len(actor.tools.entries) == 6
        await trio.sleep(1.05)
        assert list(actor.tools.entries) == ["op8", "op9"]
        assert host.changes == 3


async def test_shrinking_in_small_steps_is_doubted_once_half_is_gone(
    running, registry, view, autojump_clock
):
    source = registry(*(view(f"op{i}") for i in range(10)))
    async with running(source) as actor:
        await actor.ready.wait()
        served = []
        # Row after row goes, as when a table is emptied without a transaction.
        for i in range(9):
            source.drop(f"op{i}")
            await actor.refresh()
            served.append(len(actor.tools.entries))
        assert served == [9, 8, 7, 6, 6, 6, 6, 6, 6]
        await actor.refresh()
        assert list(actor.tools.entries) == ["op9"]


async def test_what_may_take_long_to_compile_leaves_the_loop_to_others(
    running, registry, view, compiler
):
    begun, gate, compiled = trio.Event(), threading.Event(), compiler.compile

    def slowly(operation):
        trio.from_thread.run_sync(begun.set)
        assert gate.wait(5)
        return compiled(operation)

    compiler.compile = slowly
    source = registry()
    async with running(source) as actor, trio.open_nursery() as nursery:
        source.put(view("a", tool_description="x" * LIGHT))
        nursery.start_soon(actor.refresh)
        with trio.fail_after(5):
            await begun.wait()
        assert actor.tools.entries == {}
        gate.set()
        await actor.refresh()
        assert list(actor.tools.entries) == ["a"]


async def test_an_outage_between_two_looks_starts_the_count_again(
    running, registry, view, missing, autojump_clock
):
    source = registry(view("a"))
    async with running(source) as actor:
        source.drop("a")
        await trio.sleep(30.1)
        assert actor.status().awaiting_confirmation
        source.trouble = missing
        await trio.sleep(2)
        source.trouble = None
        await actor.refresh()
        assert list(actor.tools.entries) == ["a"]
        await actor.refresh()
        assert actor.tools.entries == {}


async def test_a_registry_that_begins_empty_is_believed_the_second_time(
    running, registry, host, autojump_clock
):
    async with running(registry()) as actor:
        assert not actor.ready.is_set()
        await trio.sleep(1.1)
        assert actor.ready.is_set()
        assert host.changes == 0


async def test_a_name_of_the_server_waits_until_it_is_free(
    running, registry, view, host, autojump_clock
):
    host.owned.add("a")
    source = registry(view("a"), view("b"))
    async with running(source) as actor:
        assert list(actor.tools.entries) == ["b"]
        [record] = actor.status().quarantine
        assert record.fault is Fault.RESERVED
        reads = source.reads
        host.owned.clear()
        await trio.sleep(31)
        assert list(actor.tools.entries) == ["a", "b"]
        assert source.reads == reads
        assert host.changes == 2


async def test_a_quarantined_entry_is_logged_once_and_shown(
    running, registry, view, caplog, host, autojump_clock
):
    source = registry(view("a"), view("b"))
    async with running(source) as actor:
        source.put(view("a", execution_config={"circuit": {}}))
        await trio.sleep(31)
        source.put(view("b", tool_description="New."))
        await trio.sleep(300)
        [record] = actor.status().quarantine
        assert (record.operation_id, record.fault) == ("a", Fault.COMPILE)
        assert record.serving is not None
        assert caplog.text.count("operation a: execution_config.circuit") == 1
        assert list(actor.tools.entries) == ["a", "b"]
        assert host.changes == 2


async def test_freshen_does_nothing_while_the_snapshot_is_fresh(
    running, registry, view, autojump_clock
):
    source = registry(view("a"))
    async with running(source) as actor:
        tokens = source.tokens
        await actor.freshen()
        assert source.tokens == tokens


async def test_many_who_freshen_share_one_read(running, registry, view, autojump_clock):
    source = registry(view("a"))
    async with running(source, stale_after=5) as actor:
        await trio.sleep(6)
        source.put(view("b"))
        source.gate = trio.Event()
        tokens = source.tokens
        async with trio.open_nursery() as callers:
            for _ in range(100):
                callers.start_soon(actor.freshen)
            await wait_all_tasks_blocked()
            source.gate.set()
        assert source.tokens == tokens + 1
        assert list(actor.tools.entries) == ["a", "b"]


async def test_freshen_waits_a_bounded_time(running, registry, view, autojump_clock):
    source = registry(view("a"))
    async with running(source, stale_after=5, freshen_timeout=1.0) as actor:
        await trio.sleep(6)
        source.gate = trio.Event()
        begun = trio.current_time()
        await actor.freshen()
        assert trio.current_time() - begun == pytest.approx(1.0)
        source.gate.set()


async def test_freshen_does_not_hammer_a_registry_in_trouble(
    running, registry, view, missing, autojump_clock
):
    source = registry(view("a"))
    async with running(source, stale_after=5) as actor:
        source.trouble = missing
        # Into the long pauses of the backoff.
        await trio.sleep(1000)
        tokens = source.tokens
        begun = trio.current_time()
        for _ in range(1000):
            await actor.freshen()
            await trio.sleep(0.02)
        assert source.tokens - tokens <= (trio.current_time() - begun) / 5 + 2


async def test_freshen_returns_at_once_when_nobody_runs(registry, view, compiler, autojump_clock):
    actor = CatalogActor(registry(view("a")), compiler)
    await actor.freshen()
    assert actor.ttl == 0.0
    assert actor.status().next_refresh_seconds is None


async def test_refresh_needs_a_look_that_began_after_it(running, registry, view, autojump_clock):
    source = registry(view("a"))
    async with running(source) as actor:
        source.gate = trio.Event()
        async with trio.open_nursery() as callers:
            callers.start_soon(actor.refresh)
            await wait_all_tasks_blocked()
            # The look that is going on may have passed this change by.
            tokens = source.tokens
            done: list[int] = []

            async def second():
                status = await actor.refresh()
                done.append(status.operations)

            callers.start_soon(second)
            callers.start_soon(second)
            await wait_all_tasks_blocked()
            source.put(view("b"))
            source.gate.set()
        assert done == [2, 2]
        assert source.tokens == tokens + 1


async def test_refresh_reports_trouble_in_the_status(
    running, registry, view, missing, autojump_clock
):
    source = registry(view("a"))
    async with running(source) as actor:
        source.trouble = missing
        assert (await actor.refresh()).last_error == "there is no registry at /x"


async def test_run_ends_on_cancel_closes_the_registry_and_can_run_again(
    registry, view, compiler, host, autojump_clock
):
    source = registry(view("a"))
    actor = CatalogActor(source, compiler)
    actor.bind(host)
    for turn in (1, 2):
        async with trio.open_nursery() as nursery:
            await nursery.start(actor.run)
            with pytest.raises(RuntimeError, match="already"):
                await actor.run()
            await actor.ready.wait()
            nursery.cancel_scope.cancel()
        assert source.closed == turn
        assert list(actor.tools.entries) == ["a"]
    with pytest.raises(RuntimeError, match="already belongs"):
        actor.bind(host)


async def test_cancelling_in_the_middle_of_a_read_lets_waiters_go(
    registry, view, compiler, autojump_clock
):
    source = registry(view("a"))
    source.gate = trio.Event()
    actor = CatalogActor(source, compiler, stale_after=0, freshen_timeout=1000)
    async with trio.open_nursery() as waiters:
        async with trio.open_nursery() as nursery:
            await nursery.start(actor.run)
            await wait_all_tasks_blocked()
            waiters.start_soon(actor.freshen)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        begun = trio.current_time()
    assert trio.current_time() == begun


async def test_a_look_that_hangs_costs_a_thousand_lists_one_bounded_wait_each(
    running, registry, view, autojump_clock
):
    source = registry(view("a"))
    async with running(source) as actor:
        source.gate = trio.Event()
        await trio.sleep(65)
        looks, begun, left = source.tokens, trio.current_time(), []

        async def ask(number):
            # Every third one leaves, which is nothing to the others or to the look.
            with trio.move_on_after(0.3 if number % 3 == 0 else 10):
                await actor.freshen()
                left.append(trio.current_time() - begun)

        async with trio.open_nursery() as nursery:
            for number in range(1_000):
                nursery.start_soon(ask, number)
        assert (set(left), len(left), source.tokens) == ({1.0}, 666, looks)
        source.put(view("b"))
        source.gate.set()
        await actor.refresh()
        assert list(actor.tools.entries) == ["a", "b"]


async def test_who_asks_may_leave_at_any_step_and_the_look_goes_on(
    running, registry, view, autojump_clock
):
    source = registry(view("a"))
    async with running(source, stale_after=0) as actor:
        for ask in (actor.freshen, actor.refresh):
            step = 1
            while await cancelled_after(step, ask):
                source.put(view("a", tool_description=f"v{step}"))
                await actor.refresh()
                assert actor.tools.entries["a"].definition.description == f"v{step}"
                assert actor.status().consecutive_failures == 0
                step += 1
            assert step > 2
