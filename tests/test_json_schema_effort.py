"""What a pattern may cost, against an automaton that is followed character by character."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_trio.json_schema_characters import ALL, characters
from mcp_trio.json_schema_effort import effort
from mcp_trio.json_schema_patterns import MAX_COST, cost

COUNTS = [(0, 1), (1, None), (0, None), (1, 6), (2, 5), (0, 8), (3, 3), (1, 12)]
WRITTEN: dict[Any, str] = {(0, 1): "?", (1, None): "+", (0, None): "*"}

single = st.sampled_from(["a", "b", "c", "[ab]", "[bc]"])
trees = st.recursive(
    single,
    lambda inner: (
        st.tuples(st.just("then"), st.lists(inner, min_size=2, max_size=3))
        | st.tuples(st.just("or"), st.lists(inner, min_size=2, max_size=2))
        | st.tuples(st.sampled_from(COUNTS), inner)
    ),
    max_leaves=6,
)


def written(tree: Any) -> str:
    if isinstance(tree, str):
        return tree
    kind, inner = tree
    if kind == "then":
        return "".join(map(written, inner))
    if kind == "or":
        return f"(?:{'|'.join(map(written, inner))})"
    least, most = kind
    return f"(?:{written(inner)}){WRITTEN.get(kind, f'{{{least},{most}}}')}"


@attrs.define
class Automaton:
    """States, each with a character that leads on, or with others that are entered with it."""

    reads: list[tuple[str, int] | None] = attrs.Factory(list)
    enters: list[list[int]] = attrs.Factory(list)

    def state(self) -> int:
        self.reads.append(None)
        self.enters.append([])
        return len(self.reads) - 1

    def build(self, tree: Any, begin: int) -> int:
        """Add what matches the tree; give where it ends."""
        if isinstance(tree, str):
            place, end = self.state(), self.state()
            self.enters[begin].append(place)
            self.reads[place] = (tree.strip("[]"), end)
            return end
        kind, inner = tree
        if kind == "then":
            for each in inner:
                begin = self.build(each, begin)
            return begin
        end = self.state()
        if kind == "or":
            for each in inner:
                self.enters[self.build(each, begin)].append(end)
            return end
        least, most = kind
        for _ in range(least if most is not None else max(0, least - 1)):
            begin = self.build(inner, begin)
        if most is None:
            again = self.state()
            self.enters[begin].append(again)
            last = self.build(inner, again)
            self.enters[last] += [again, end]
            self.enters[again] += [end] if least == 0 else []
            return end
        self.enters[begin].append(end)
        for _ in range(most - least):
            begin = self.build(inner, begin)
            self.enters[begin].append(end)
        return end

    def entered(self, states: set[int]) -> set[int]:
        seen, todo = set(states), list(states)
        while todo:
            for other in self.enters[todo.pop()]:
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return seen


@settings(max_examples=200, deadline=None)
@given(trees, st.lists(st.integers(0, 5), min_size=40, max_size=40))
def test_no_more_places_of_a_pattern_are_live_at_once_than_told(tree, choices):
    automaton = Automaton()
    begin = automaton.state()
    automaton.build(tree, begin)
    told = effort(f"^{written(tree)}$").live
    states = automaton.entered({begin})
    for choice in choices:
        reading = [read for state in sorted(states) if (read := automaton.reads[state])]
        if not reading:
            break
        # A character that leads on from somewhere, so that the text goes far.
        wanted = reading[choice % len(reading)][0]
        character = wanted[choice % len(wanted)]
        after = {end for wanted, end in reading if character in wanted}
        assert len(after) <= told
        states = automaton.entered(after)


@pytest.mark.parametrize(
    ("piece", "some", "others"),
    [
        ("a", "a", "b\u00e9"),
        (".", "a\u00e9", ""),
        (r"\.", ".", "a"),
        (r"\d", "5", "a"),
        (r"\S", "a\u00e9", " "),
        (r"\p{L}", "a\u00e9", ""),
        ("[a-f]", "af", "g-"),
        ("[a-]", "a-", "b"),
        (r"[\w+]", "a+_", " ."),
        (r"[^\s/]", "a.", " /"),
        (r"[^\u0041]", "AB04", ""),
        ("[^a-c]", "d\u00e9", "abc"),
        ("[^-]", "a", "-"),
        (r"[^\d-]", "a", "5-"),
        (r"[\d-z]", "5-z", ""),
        ("[a-\u00ff]", "az\u00e9", "A"),
        ("[]a]", "]a", "b"),
    ],
)
def test_what_a_piece_may_stand_for_is_never_told_too_small(piece, some, others):
    held = characters(piece)
    assert all(min(ord(each), 128) in held for each in some)
    assert not any(min(ord(each), 128) in held for each in others)


def test_without_regard_to_case_nothing_is_known_of_characters():
    assert effort("^x+X{1,50}$").live < effort("(?i)^x+X{1,50}$").live
    assert len(ALL) == 129


@pytest.mark.parametrize("begun", ["[[]", "[(?]", "[]{]", r"[\]]", "[a&&b]"])
def test_a_class_hides_nothing_that_comes_after_it(begun):
    assert effort(f"^{begun}(a{{1,100}}){{1,100}}$").live == 10_000
    assert cost(f"^{begun}(a{{1000}}){{1000}}$") > MAX_COST
