"""What a service does to its process: garbage collector, free memory, descriptors."""

import errno
import gc
import weakref

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcp_trio.catalog.operation import parse
from mcp_trio.cli import collector
from mcp_trio.cli.demo import CREATE_LEAD, GET_PROFILE, LIST_ITEMS
from mcp_trio.config import make_connections
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.http_sections import HttpSection
from tests.programs import run


@pytest.fixture
def restored():
    """Undo what is done to the collector of this process."""
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.usefixtures("restored")
async def test_full_rounds_wait_for_the_catalog_and_then_leave_it_out():
    full = []

    def note(phase, facts):
        if phase == "start" and facts["generation"] == 2:
            full.append(facts)

    loaded = trio.Event()
    gc.callbacks.append(note)
    try:
        async with trio.open_nursery() as nursery:
            collector.relax()
            nursery.start_soon(collector.settle, loaded)
            await wait_all_tasks_blocked()
            catalog = [[[]] for _ in range(500_000)]  # many young rounds
            assert full == []
            assert gc.get_freeze_count() == 0
            loaded.set()
    finally:
        gc.callbacks.remove(note)
    assert gc.get_freeze_count() > len(catalog)
    assert gc.get_threshold() == collector.SERVING


def test_a_compiled_operation_goes_without_the_collector(tmp_path):
    upstreams = {"demo": HttpSection(base_url="http://127.0.0.1:9", vars={"tenant": "acme"})}
    compiler = Compiler(Connections(make_connections(upstreams, tmp_path)))
    guarded = {**GET_PROFILE, "execution_config": {"required_scopes": ["read"]}}
    gc.disable()
    try:
        for view in (CREATE_LEAD, GET_PROFILE, LIST_ITEMS, guarded):
            entry = compiler.compile(parse(view))
            gone = [weakref.ref(entry), weakref.ref(entry.validator), weakref.ref(entry.operation)]
            assert entry.definition
            del entry
            assert [ref() for ref in gone] == [None] * 3
    finally:
        gc.enable()


PIECES = """
import pathlib, trio
from mcp_trio.cli import collector

def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4 // 1024

async def main():
    collector.LOOKS = 0.1
    large, small = [], []
    for _ in range(10_000):
        large.append(bytearray(20_000))
        small.append(bytearray(600))
    high = resident()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(collector.give_back)
        large.clear()
        kept = resident()
        with trio.move_on_after(20):
            while resident() > high - 100:
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    print(high - kept, high - resident())

trio.run(main)
"""


def test_memory_that_is_free_in_pieces_goes_back_to_the_system():
    kept, given = map(int, run("-c", PIECES).stdout.split())
    assert kept < 50  # or else there is nothing to show
    assert given >= 100


async def test_memory_that_was_in_use_at_one_look_is_given_back_at_a_later_one(
    monkeypatch, autojump_clock
):
    held = {"used": 80, "free": 0}

    def trim(_pad):
        held["free"] = 0
        return 1

    async def at_once(function, *arguments):  # the clock would not wait for a thread
        return function(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", at_once)
    monkeypatch.setattr(collector, "_trimmer", lambda: trim)
    monkeypatch.setattr(collector, "_resident", lambda: sum(held.values()) * 1024 * 1024)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(collector.give_back)
        await trio.sleep(7)
        held["used"] = 900
        await trio.sleep(60)
        held.update(used=90, free=810)
        await trio.sleep(collector.FEWEST)
        assert held["free"] == 0
        held["free"] = 500
        await trio.sleep(2 * collector.LOOKS)
        assert held["free"] == 0
        nursery.cancel_scope.cancel()


async def test_a_process_without_a_descriptor_left_goes_on(monkeypatch, autojump_clock):
    """Who has taken all of them must not end it, which each look would."""

    class NoneLeft:
        looks = 0

        def read_text(self):
            self.looks += 1
            raise OSError(errno.EMFILE, "Too many open files")

    left = NoneLeft()
    monkeypatch.setattr(collector, "_trimmer", lambda: lambda _pad: 1)
    monkeypatch.setattr(collector, "_STATM", left)
    with trio.move_on_after(3.5 * collector.LOOKS):
        await collector.give_back()
    assert left.looks == 3


def test_a_service_allows_itself_every_descriptor_that_the_system_does():
    program = (
        "import resource\n"
        "from mcp_trio.cli import descriptors\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))\n"
        "descriptors.allow_all()\n"
        "print(*resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    assert run("-c", program).stdout.split() == ["512", "512"]
