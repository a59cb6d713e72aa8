"""The POSTs that are under way, as far as closing is concerned. The piece that HTTP ends share."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import trio

from mcp_trio.errors import TransportClosedError


class Posts:
    """Lets messages be posted until it is closed, which ends those that are under way."""

    def __init__(self) -> None:
        self._scopes: set[trio.CancelScope] = set()
        self._closed = False

    @contextlib.contextmanager
    def one(self) -> Generator[None, None, None]:
        """Post a message inside the block.

        Raises:
            TransportClosedError: closed, before or meanwhile.
        """
        if self._closed:
            raise TransportClosedError("the transport is closed")
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)
        if scope.cancelled_caught:
            raise TransportClosedError("the transport was closed while the message was sent")

    def close(self) -> None:
        """End every post. The second call does nothing."""
        self._closed = True
        for scope in tuple(self._scopes):
            scope.cancel()
