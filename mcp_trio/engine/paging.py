"""Cursors: opaque to the client, checked by us (K1).

A cursor names the listing it belongs to and a position in it, signed so that a made-up
one is refused instead of read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from mcp_trio.errors import InvalidParamsError

_TAG = 12


class CursorKey:
    """Signs and reads the cursors of one server. Share the secret between replicas."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def _sign(self, body: bytes) -> bytes:
        return hmac.new(self._secret, body, hashlib.sha256).digest()[:_TAG]

    def make(self, listing: str, position: int) -> str:
        """A cursor for what follows `position` in the listing with this revision."""
        body = f"{position}:{listing}".encode()
        return base64.urlsafe_b64encode(self._sign(body) + body).decode("ascii").rstrip("=")

    def read(self, cursor: str) -> tuple[str, int]:
        """The listing and position of a cursor.

        Raises:
            InvalidParamsError: not one of ours.
        """
        try:
            data = base64.b64decode(
                cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True
            )
        except (binascii.Error, ValueError) as error:
            raise InvalidParamsError("Invalid cursor") from error
        tag, body = data[:_TAG], data[_TAG:]
        if not hmac.compare_digest(tag, self._sign(body)):
            raise InvalidParamsError("Invalid cursor")
        position, _, listing = body.decode().partition(":")
        return listing, int(position)
