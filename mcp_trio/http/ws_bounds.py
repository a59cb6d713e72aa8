"""The bounds on what a WebSocket peer can make Hypercorn's stream hold, in either HTTP version.

Hypercorn tells a peer that its message is too big, and then goes on collecting what that peer
sends; and it inflates whatever arrives without a limit. So here the message is dropped at the
limit, its connection ends, and compression is never agreed to (RFC 7692, section 5: a server may
decline it), which also keeps its parameters from being read.
"""

from typing import Any

from hypercorn.protocol.ws_stream import FrameTooLargeError, WebsocketBuffer, WSStream
from wsproto.events import Message


class BoundedMessage(WebsocketBuffer):
    """The message under way, of which nothing is kept once it is too big."""

    full = False
    """The peer has gone over the limit; its connection is to end."""

    def extend(self, event: Message[Any]) -> None:
        """Add a fragment.

        Raises:
            FrameTooLargeError: the message is over the limit, or an earlier one was.
        """
        if self.full or self.length + len(event.data) > self.max_length:
            self.full = True
            self.clear()
            raise FrameTooLargeError
        super().extend(event)  # pyright: ignore[reportUnknownMemberType]  # generic there, unsaid


def bound(stream: WSStream) -> None:
    """Put the bounds on a stream whose request has been read, before it is accepted."""
    stream.buffer = BoundedMessage(stream.config.websocket_max_message_size)
    stream.handshake.extensions = None


def overrun(stream: object) -> bool:
    """Whether a stream is a WebSocket whose peer has gone over the limit."""
    return (
        isinstance(stream, WSStream)
        and isinstance(stream.buffer, BoundedMessage)
        and stream.buffer.full
    )
