"""The parent of workers: it starts them, looks after them, and leaves none behind."""

import contextlib
import inspect
import os
import resource
import signal
import socket
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from mcp_trio import ConfigurationError
from mcp_trio.catalog.actor import CatalogActor
from mcp_trio.config import parse_settings
from mcp_trio.engine.backoff import Backoff
from mcp_trio.workers import restarts, supervisor
from mcp_trio.workers.leash import Handover
from mcp_trio.workers.supervisor import Supervisor

FAKE = Path(__file__).with_name("fake_worker.py")
SETTINGS = parse_settings({"catalog": {"registry": "r"}})


def make(rooms, mode, *, count=2, patience=5.0, grace=1.0):
    def hand_over(number):
        return Handover(
            number=number,
            count=count,
            rooms=rooms,
            listeners=(),
            settings=SETTINGS,
            folder=Path(f"number-{number}"),
            state_key=b"",
            cursor_key=b"",
            nonce_key="",
            audit_key=b"",
        )

    command = [sys.executable, "-S", "-E", str(FAKE), str(rooms), mode]
    return Supervisor(command, hand_over, count=count, patience=patience, grace=grace)


async def until(condition):
    """Wait until something is so that other processes decide."""
    with trio.fail_after(10):
        while not condition():  # noqa: ASYNC110 - nothing here is told of it
            await trio.sleep(0.02)


def alive(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def starts(rooms):
    """Numbers and processes of all workers that were ever started."""
    with contextlib.suppress(FileNotFoundError):
        lines = (rooms / "starts").read_text().splitlines()
        return [tuple(map(int, line.split())) for line in lines]
    return []


@asynccontextmanager
async def running(made, rooms):
    """A supervisor at work; in the end no process may be left."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        yield made
        nursery.cancel_scope.cancel()
    assert not [pid for _, pid in starts(rooms) if alive(pid)]


async def test_all_workers_are_started_and_the_first_one_is_announced_once(tmp_path):
    made = make(tmp_path, "serve", count=3)
    told = []
    made.on_start = told.append
    async with running(made, tmp_path):
        assert not made.ready
        await until(lambda: all(worker.ready for worker in made.workers))
        assert made.ready
        assert told == [["http://fake"]]
        told_of = made.describe()["workers"]
        assert [each["worker"] for each in told_of] == [1, 2, 3]
        assert {each["state"] for each in told_of} == {"serving"}
        assert sorted(each["pid"] for each in told_of) == sorted(p for _, p in starts(tmp_path))


async def test_a_worker_that_is_killed_is_replaced_and_the_others_stay(tmp_path):
    made = make(tmp_path, "serve")
    async with running(made, tmp_path):
        await until(lambda: made.workers[0].ready and made.workers[1].ready)
        first, other = (worker.process.pid for worker in made.workers)
        os.kill(first, signal.SIGKILL)
        await until(lambda: made.workers[0].ends == 1)
        assert made.ready
        await until(lambda: made.workers[0].ready)
        assert made.workers[0].process.pid != first
        assert made.workers[0].last_end == "was ended by SIGKILL"
        assert made.workers[1].process.pid == other
        assert 'mcp_worker_ends_total{worker="1"} 1' in made.metrics()
        assert 'mcp_worker_serving{worker="2"} 1' in made.metrics()


@pytest.mark.parametrize("stopped", [True, False])
async def test_a_worker_that_gives_no_sign_of_life_is_killed_and_replaced(tmp_path, stopped):
    made = make(tmp_path, "serve" if stopped else "hang", count=1, patience=0.4)
    async with running(made, tmp_path):
        await until(lambda: made.workers[0].state == "serving")
        pid = made.workers[0].process.pid
        if stopped:
            os.kill(pid, signal.SIGSTOP)
        await until(lambda: made.workers[0].ends == 1)
        assert made.workers[0].last_end == "gave no sign of life for 0.4 s; it is killed"
        assert not alive(pid)
        await until(lambda: len(starts(tmp_path)) == 2)


async def test_a_worker_that_never_begins_to_serve_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "START_TIMEOUT", 0.3)
    made = make(tmp_path, "mute", count=1)
    async with running(made, tmp_path):
        await until(lambda: made.workers[0].ends == 1)
        assert made.workers[0].last_end == "did not start within 0.3 s"
        assert not made.ready


def test_a_registry_that_hangs_costs_no_worker_its_start():
    """It serves once the first look has ended, which has this long."""
    look = inspect.signature(CatalogActor).parameters["read_timeout"].default
    assert look + 30 <= supervisor.START_TIMEOUT


async def test_a_reason_not_to_start_is_told_once_and_ends_it(tmp_path):
    made = make(tmp_path, "fault", count=4)
    with trio.fail_after(10), pytest.raises(ConfigurationError, match=r"^the moon is not full$"):
        await made.run()
    assert not [pid for _, pid in starts(tmp_path) if alive(pid)]


async def test_workers_that_die_before_they_serve_are_given_up_after_some_tries(tmp_path):
    made = make(tmp_path, "die")
    with trio.fail_after(20), pytest.raises(ConfigurationError, match="exited with 3"):
        await made.run()
    assert sorted(number for number, _ in starts(tmp_path)) == [1, 1, 1, 2, 2, 2]


async def test_a_program_that_cannot_be_started_is_given_up_too(tmp_path):
    made = make(tmp_path, "serve")
    made._command = (str(tmp_path / "nothing"),)
    with trio.fail_after(20), pytest.raises(ConfigurationError, match="No such file"):
        await made.run()


async def test_a_start_that_is_cancelled_leaves_no_socket_open(tmp_path):
    made = make(tmp_path, "serve")
    # Sockets that nobody closes are warned of, which fails a test.
    with trio.CancelScope() as scope:
        scope.cancel()
        await made.run()
    assert starts(tmp_path) == []


async def test_workers_that_have_served_are_never_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(restarts, "BACKOFF", Backoff(first=0.01, longest=0.01))
    made = make(tmp_path, "late", count=1)
    async with running(made, tmp_path):
        await until(lambda: made.workers[0].ends == 5)


async def test_a_drain_tells_every_worker_and_ends_when_they_have_ended(tmp_path):
    made = make(tmp_path, "serve")
    async with running(made, tmp_path):
        await until(lambda: made.workers[0].ready and made.workers[1].ready)
        made.drain()
        made.drain()
        assert not made.ready
        await until(lambda: all(not alive(pid) for _, pid in starts(tmp_path)))
    assert sorted((tmp_path / "commands").read_text().split()) == ["1d", "2d"]
    assert len(starts(tmp_path)) == 2


async def test_a_worker_that_does_not_end_is_killed_after_its_grace(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "MARGIN", 0.1)
    made = make(tmp_path, "deaf", grace=0.1)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.run)
            await until(lambda: made.workers[0].ready and made.workers[1].ready)
            made.drain()
    assert not [pid for _, pid in starts(tmp_path) if alive(pid)]


async def test_a_drain_during_the_start_waits_for_nothing(tmp_path):
    made = make(tmp_path, "mute", grace=100.0)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.run)
            await until(lambda: len(starts(tmp_path)) == 2)
            made.drain()
    assert not [pid for _, pid in starts(tmp_path) if alive(pid)]


async def test_a_change_that_one_worker_has_seen_sends_those_that_have_not_to_look(tmp_path):
    made = make(tmp_path, "serve", count=3)
    async with running(made, tmp_path):
        await until(lambda: all(worker.ready for worker in made.workers))
        made.workers[0].leash.tell(b"r")  # upon which this one reports another revision
        await until(lambda: made.workers[0].listing == "second")
        await until(lambda: (tmp_path / "commands").read_text().count("l") == 2)
        told = sorted((tmp_path / "commands").read_text().split())
        assert told == ["1r", "2l", "3l"]


async def test_a_reload_is_told_to_all(tmp_path):
    made = make(tmp_path, "serve")
    async with running(made, tmp_path):
        await until(lambda: made.workers[0].ready and made.workers[1].ready)
        made.reload()
        commands = tmp_path / "commands"
        await until(lambda: commands.exists() and commands.read_text().count("r") == 2)


async def test_who_uses_up_the_descriptors_of_the_parent_ends_no_worker(tmp_path):
    """Such as by connections to the admin listener."""
    made = make(tmp_path, "serve", patience=0.4)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as taken:
        async with running(made, tmp_path):
            await until(lambda: made.workers[0].ready and made.workers[1].ready)
            taken.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
            used = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names, it does not wait
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + 3, hard))
            with pytest.raises(OSError, match="Too many open files"):
                for _ in range(used):
                    taken.enter_context(socket.socket())
            before = made.workers[0].answered
            await until(lambda: made.workers[0].answered > before + 1)
            assert [worker.ends for worker in made.workers] == [0, 0]
            taken.close()


async def test_a_parent_that_stood_still_does_not_hold_it_against_its_workers(
    tmp_path, autojump_clock
):
    """All of a container may be paused: its clock goes on, and nobody answers meanwhile."""
    made = make(tmp_path, "serve", patience=5.0)
    worker, asked = made.workers[0], []

    class Leash:
        def tell(self, command):
            asked.append(command)
            if len(asked) == 3:
                worker.heard.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(made._answers, worker, Leash(), 1.0)
        await trio.testing.wait_all_tasks_blocked()
        autojump_clock.jump(60.0)
    assert asked == [b"a"] * 3
