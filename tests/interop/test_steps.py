"""The hot paths take no more instructions than `benchmarks/steps.json` says that they did."""

from functools import partial

import pytest
import trio

from benchmarks import steps

OURS, EVERY = 0.03, 0.15
"""How far from what is kept; libraries may change without us."""


@pytest.fixture(scope="module")
def kept():
    found = steps.kept()
    if not found:
        pytest.skip(f"no numbers are kept for the instructions of Python {steps.VERSION}")
    return found


@pytest.mark.parametrize("name", steps.PATHS)
def test_a_hot_path_takes_as_many_instructions_as_is_kept(kept, name):
    now, before = trio.run(steps.measure, name), kept[name]
    told = "if that is meant to be, keep it: python -m benchmarks.steps --write"
    assert now.ours == pytest.approx(before.ours, rel=OURS), told
    assert now.every <= before.every * (1 + EVERY), told


def test_what_is_counted_is_what_is_done(kept):
    """A path that does a little more takes more."""

    async def more():
        async with steps.PATHS["tools/call in memory, 2026-07-28"]() as way:
            plain = await steps.counted(way)

            async def twice():
                await way.once()
                await way.once()

            return plain, await steps.counted(steps.Way(twice))

    plain, both = trio.run(more)
    assert both.ours == pytest.approx(2 * plain.ours, rel=OURS)


def test_every_path_has_a_number_and_no_other(kept):
    assert kept.keys() == steps.PATHS.keys()


@pytest.mark.parametrize(
    "path",
    [steps.of_listeners, partial(steps.of_storm, "cancel"), partial(steps.of_storm, "timeout")],
    ids=["listeners", "cancel", "timeout"],
)
def test_one_of_many_takes_the_same_however_many_there_are(path):
    few, many = trio.run(path, 20), trio.run(path, 120)
    assert many.ours <= few.ours * 1.02
    assert many.every <= few.every * 1.06  # Trio puts deadlines and tasks in order
