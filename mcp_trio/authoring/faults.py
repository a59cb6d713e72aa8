"""What goes wrong while authoring, and is told without a traceback."""

from __future__ import annotations


class AuthoringError(Exception):
    """A file, a source or a registry that cannot be used; the text says why and what to do."""
