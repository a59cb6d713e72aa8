"""Which operations of a source are wanted: `tag=pets`, `path=/users/*`, `method=get`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import attrs

from mcp_trio.authoring.faults import AuthoringError


@attrs.frozen
class Filters:
    """What to include and what to exclude; upper and lower case are the same."""

    include: Sequence[str] = ()
    """Of each kind that is named, one pattern has to fit."""
    exclude: Sequence[str] = ()
    """No pattern may fit."""

    def check(self, kinds: Sequence[str]) -> None:
        """Refuse filters of kinds that a source does not have.

        Raises:
            AuthoringError: naming the filter.
        """
        for rule in (*self.include, *self.exclude):
            kind, equals, _ = rule.partition("=")
            if kind not in kinds or not equals:
                known = ", ".join(f"{each}=" for each in kinds)
                raise AuthoringError(f"{rule!r} is no filter; write {known} and a pattern")

    def wants(self, facts: Mapping[str, Sequence[str]]) -> bool:
        """Tell whether an operation is wanted.

        Args:
            facts: what is true of it, by kind.
        """
        wanted: dict[str, bool] = {}
        for rule in self.include:
            kind = rule.partition("=")[0]
            wanted[kind] = wanted.get(kind, False) or _fits(facts, rule)
        return all(wanted.values()) and not any(_fits(facts, rule) for rule in self.exclude)


def _fits(facts: Mapping[str, Sequence[str]], rule: str) -> bool:
    kind, _, pattern = rule.partition("=")
    return any(fnmatchcase(fact.lower(), pattern.lower()) for fact in facts[kind])
