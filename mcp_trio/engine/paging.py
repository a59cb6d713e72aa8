"""Cursors: opaque to the client, checked by us (K1).

A cursor names the listing it belongs to and a position in it. It is encrypted and
authenticated (AES-SIV), so that a made-up one is refused instead of read, and nobody reads in
it how many entries were left out because they are not for him. The same place always has
the same cursor.
"""

from __future__ import annotations

import base64
import binascii
import hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from mcp_trio.errors import InvalidParamsError

_DIGITS = 12
"""Of a position, which is not to be guessed from a cursor's length either."""


class CursorKey:
    """Makes and reads the cursors of one server. Share the secret between replicas."""

    def __init__(self, secret: bytes) -> None:
        self._cipher = AESSIV(hmac.digest(secret, b"mcp_trio cursor", "sha512"))

    def make(self, listing: str, position: int) -> str:
        """A cursor for what follows `position` in the listing with this revision."""
        body = f"{position:0{_DIGITS}}:{listing}".encode()
        sealed = self._cipher.encrypt(body, None)
        return base64.urlsafe_b64encode(sealed).decode("ascii").rstrip("=")

    def read(self, cursor: str) -> tuple[str, int]:
        """The listing and position of a cursor.

        Raises:
            InvalidParamsError: not one of ours.
        """
        try:
            data = base64.b64decode(
                cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True
            )
            body = self._cipher.decrypt(data, None)
        except (binascii.Error, ValueError, InvalidTag) as error:
            raise InvalidParamsError("Invalid cursor") from error
        position, _, listing = body.decode().partition(":")
        return listing, int(position)
