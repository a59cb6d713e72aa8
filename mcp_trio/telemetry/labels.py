"""Labels for what a peer has chosen: few, and known beforehand or bounded in number."""

from __future__ import annotations

from mcp_trio.telemetry.plain_text import cut
from mcp_trio.wire import METHODS

OTHER = "other"
"""The label of every method that the protocol does not have: a peer may send any text."""

MAX_STAGES = 64
"""Names of stages that are counted apart: a tool may put any into its results."""
MAX_KINDS = 64
"""Kinds of failure that have a label of their own."""


def method_label(method: str) -> str:
    """The method as a label: one of the protocol's, or `other`."""
    return method if method in METHODS else OTHER


class Bounded:
    """Gives the first so many different names as labels, and `other` for all further ones."""

    def __init__(self, limit: int) -> None:
        """Begin without names.

        Args:
            limit: names that become labels.
        """
        self._limit = limit
        self._known: set[str] = set()

    def __call__(self, name: str) -> str:
        """The label for a name, which is cut."""
        name = cut(name)
        if name in self._known:
            return name
        if len(self._known) >= self._limit:
            return OTHER
        self._known.add(name)
        return name
