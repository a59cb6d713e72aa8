"""Scopes that hold others: a broader one implies narrower ones, and these still narrower ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs


def _frozen(implies: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    return {scope: frozenset(narrower) for scope, narrower in implies.items()}


@attrs.frozen
class ScopeHierarchy:
    """Which scopes imply which. What is implied may imply more; circles mean equality."""

    implies: Mapping[str, frozenset[str]] = attrs.field(
        factory=dict[str, frozenset[str]], converter=_frozen
    )

    def expand(self, held: Iterable[str]) -> frozenset[str]:
        """Everything that somebody with these scopes holds."""
        found: set[str] = set()
        waiting = list(held)
        while waiting:
            scope = waiting.pop()
            if scope not in found:
                found.add(scope)
                waiting += self.implies.get(scope, ())
        return frozenset(found)

    def least(self, needed: Iterable[str]) -> tuple[str, ...]:
        """The scopes to ask for so that all of these are held: without those that others imply."""
        left = set(needed)
        for scope in sorted(left):
            if scope in self.expand(left - {scope}):
                left.discard(scope)
        return tuple(sorted(left))
