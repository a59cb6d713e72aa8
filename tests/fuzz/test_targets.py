"""The targets of the fuzzing hold for their seeds, for what was found, and for a few at random."""

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.targets import SEEDS, TARGETS

FOUND = [
    *((name, seed) for name, seeds in SEEDS.items() for seed in seeds),
]
"""The seeds, and each input that fuzzing found a fault with."""


@pytest.mark.parametrize(("name", "data"), FOUND)
def test_what_was_found_once_holds(name, data):
    TARGETS[name](data)


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_are_taken(name):
    @hypothesis.settings(max_examples=100, derandomize=True, database=None)
    @given(st.binary(max_size=200))
    def run(data):
        TARGETS[name](data)

    run()
