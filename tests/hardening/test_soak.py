"""The soak, for as long as the size says."""

import contextlib
import gc
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import trio

from tests.hardening.ledger import (
    ANSWERED,
    FAILED,
    LEFT,
    UNSENT,
    Ledger,
    judge_callers,
    judge_place,
    read_journal,
)
from tests.hardening.places import TLS, ProgramPlace, ServicePlace, SocketsPlace
from tests.hardening.soak import break_things, conversation, plays_of, soak
from tests.hardening.target import Upstream, size


@pytest.fixture
def upstream(tmp_path):
    """One that writes a journal."""
    (tmp_path / "registry.json").write_text("{}")
    upstream = Upstream(tmp_path / "registry.json", tmp_path / "journal")
    upstream.start()
    yield upstream
    upstream.kill()


@pytest.fixture
def places(tmp_path, upstream):
    """Every kind of process that can be asked."""
    makers = (
        lambda: ServicePlace("one", tmp_path / "1", upstream),
        lambda: ServicePlace("two", tmp_path / "2", upstream, server="workers = 2", more=TLS),
        lambda: ServicePlace("unix", tmp_path / "3", upstream, server='unix_socket = "mcp.sock"'),
        lambda: SocketsPlace(tmp_path / "4", upstream),
        lambda: ProgramPlace(tmp_path / "5", upstream),
    )
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        begun = [pool.submit(make) for make in makers]
        for future in begun:
            with contextlib.suppress(Exception):
                stack.callback(future.result().close)
        yield [future.result() for future in begun]


# httpcore2 leaves the socket of a TLS handshake that is cancelled to the garbage collector.
@pytest.mark.filterwarnings("ignore:.*unclosed <socket:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
async def test_each_call_by_every_way_is_answered_or_given_up_once_whatever_breaks(
    tmp_path, upstream, places
):
    ledger = Ledger()
    plays = plays_of(places, ledger)
    services = [place for place in places if isinstance(place, ServicePlace)]
    conversations = [play for play in plays if play.func is conversation]
    await soak(conversations, ledger, 0, seed="warm")  # before anything is broken
    for place in places:
        place.begin()
    seconds, pause = size((4, 1), (600, 10))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: soak(plays, ledger, seconds, seed="mixed"))
        nursery.start_soon(
            lambda: break_things(upstream, services, ledger, seconds, seed="faults", pause=pause)
        )
    books = []

    async def end(place):
        books.append(await place.end())

    async with trio.open_nursery() as nursery:
        for place in places:
            nursery.start_soon(end, place)
    gc.collect()  # here, where its warnings are expected

    begun, faults = read_journal(tmp_path / "journal", upstream.killed)
    faults += judge_callers(ledger)
    for each in books:
        faults += judge_place(ledger, each, begun)
    sys.stdout.write(report(ledger, books, faults))  # shown if something is wrong, or by -s
    assert not faults

    told = ledger.told()
    ways = {door.way for place in places for door in place.doors(ledger)}
    assert [way for way in ways if not (told[way][ANSWERED] and ledger.streamed[way])] == []
    ends = sum(told.values(), Counter())
    assert ends.keys() == {ANSWERED, FAILED, LEFT, UNSENT}
    assert ledger.outages


def report(ledger, books, faults):
    """The numbers, for who reads along."""
    lines = [f"{len(ledger.calls)} calls, {len(ledger.outages)} outages"]
    for way, ends in sorted(ledger.told().items()):
        lines.append(f"{way}: {dict(ends)}, as streams {ledger.streamed[way]}")
    for each in books:
        ended = {outcome: count for (outcome,), count in each.ended.items()}
        outcomes = Counter(line["outcome"] for line in each.audit)
        lines.append(f"{each.place}: requests {ended}, audit {dict(outcomes)}")
    return "\n".join([*lines, *faults, ""])
