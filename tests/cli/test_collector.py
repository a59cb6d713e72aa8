"""The garbage collector of a service leaves a catalog alone, and a catalog does not need it."""

import gc
import weakref

import trio
from trio.testing import wait_all_tasks_blocked

from mcp_trio.catalog.operation import parse
from mcp_trio.cli import collector
from mcp_trio.cli.demo import CREATE_LEAD, GET_PROFILE, LIST_ITEMS
from mcp_trio.config import make_connections
from mcp_trio.runtime.compiler import Compiler
from mcp_trio.runtime.connections import Connections
from mcp_trio.runtime.http_connection import HttpSection


async def test_what_lives_when_the_catalog_is_loaded_is_left_out_of_later_rounds():
    loaded = trio.Event()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collector.settle, loaded)
            await wait_all_tasks_blocked()
            assert gc.get_freeze_count() == 0
            loaded.set()
        assert gc.get_freeze_count() > 1000
    finally:
        gc.unfreeze()


def test_rounds_are_rarer():
    before = gc.get_threshold()
    try:
        collector.relax()
        assert gc.get_threshold() == collector.THRESHOLDS > before
    finally:
        gc.set_threshold(*before)


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
