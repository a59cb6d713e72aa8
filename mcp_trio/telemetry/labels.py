"""Labels for what a peer has chosen: few, and known beforehand."""

from __future__ import annotations

from mcp_trio.wire import METHODS

OTHER = "other"
"""The label of every method that the protocol does not have: a peer may send any text."""


def method_label(method: str) -> str:
    """The method as a label: one of the protocol's, or `other`."""
    return method if method in METHODS else OTHER
