"""The reaper: who is bounded when, and how seldom it has to look."""

import pytest
import trio
import trio.testing

from mcp_trio.session.reaper import Reaper


class Shielded:
    """A request that was cancelled, and whose cleanup takes for ever."""

    def __init__(self, name):
        self.label = name
        self.scope = trio.CancelScope()
        self.over = None

    async def run(self, reaper, task_status):
        self.task = trio.lowlevel.current_task()
        reaper.add(self)
        with self.scope:
            task_status.started()
            with trio.CancelScope(shield=True):
                await trio.sleep_forever()
        reaper.remove(self)
        self.over = trio.current_time()


class Turns(trio.abc.Instrument):
    """Counts how often a task has its turn."""

    def __init__(self, name):
        self.taken = 0
        self._name = name

    def before_task_step(self, task):
        self.taken += task.name.endswith(self._name)


async def test_each_request_has_its_own_time_whatever_the_reaper_waits_for(autojump_clock):
    reaper = Reaper(4)
    early, late, limited = (Shielded(name) for name in ("early", "late", "limited"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reaper.run)
        for request in (early, late, limited):
            await nursery.start(request.run, reaper)
        early.scope.cancel()
        reaper.doom(early)
        await trio.sleep(1)
        late.scope.cancel()
        reaper.doom(late)
        limited.scope.deadline = trio.current_time() - 2  # its clock runs out first of all
        reaper.limit(limited, limited.scope.deadline)
        await trio.sleep(9)
        nursery.cancel_scope.cancel()
    assert [limited.over, early.over, late.over] == [pytest.approx(t) for t in (3, 4, 5)]
    assert reaper.lifted == 3


async def test_cancelled_requests_that_end_in_time_wake_it_together(autojump_clock):
    reaper = Reaper(4)
    turns = Turns("Reaper.run")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reaper.run)
        await trio.testing.wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(turns)
        for number in range(100):
            request = Shielded(str(number))
            reaper.add(request)
            reaper.doom(request)
            reaper.remove(request)
            await trio.sleep(0.01)
        assert turns.taken == 0
        await trio.sleep(3.5)
        trio.lowlevel.remove_instrument(turns)
        nursery.cancel_scope.cancel()
    assert turns.taken == 1
