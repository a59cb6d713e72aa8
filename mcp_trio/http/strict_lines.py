"""Lines of HTTP/1.1 as the letter of RFC 9112 has them: each ends with CRLF, none is folded.

h11 also takes a bare LF for an end of line, and a line that begins with a blank for the rest of the
one before. A proxy that does not can then see another request in the same bytes, which is how one
is smuggled past it; RFC 9112, 2.2 and 5.2, lets a server refuse both. h11 has no setting for that,
so its buffer is replaced, which is private to it: `tests/hardening/test_smuggling.py` tells when
that no longer works.
"""

import h11
from h11._receivebuffer import ReceiveBuffer

_BLANKS = (b" ", b"\t")


class StrictBuffer(ReceiveBuffer):
    """The buffer of a connection whose heads and trailers are read strictly."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Take the lines up to an empty one, if they are there.

        Raises:
            h11.RemoteProtocolError: they are not as they have to be.
        """
        before = len(self)
        lines = super().maybe_extract_lines()
        if lines is None:
            return None
        if before - len(self) != sum(len(line) + 2 for line in lines) + 2:
            raise h11.RemoteProtocolError("a line does not end with CRLF")
        if any(line.startswith(_BLANKS) for line in lines):
            raise h11.RemoteProtocolError("a line is folded")
        return lines


def read_strictly(connection: h11.Connection) -> None:
    """Have a connection that has received nothing yet read heads and trailers strictly."""
    connection._receive_buffer = StrictBuffer()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
