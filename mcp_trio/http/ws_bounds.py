"""The bounds on what a WebSocket peer can make Hypercorn's stream hold, in either HTTP version.

Hypercorn tells a peer that its message is too big, and then goes on collecting what that peer
sends; and it inflates whatever arrives without a limit. So here the message is dropped at the
limit, its connection ends, and compression is never agreed to (RFC 7692, section 5: a server may
decline it), which also keeps its parameters from being read. Frames that cost their sender nothing
are counted before Hypercorn reads them: pings, pongs, and fragments of one message.
"""

from typing import Any

from hypercorn.protocol.ws_stream import FrameTooLargeError, WebsocketBuffer, WSStream
from wsproto.events import CloseConnection, Event, Message
from wsproto.frame_protocol import CloseReason, Opcode

from .allowance import Allowance
from .budget import Budget, Claim
from .frame_heads import FrameHeads
from .serving_settings import ServingSettings


class BoundedMessage(WebsocketBuffer):
    """The message under way, of which nothing is kept once it is too big."""

    full = False
    """The peer has gone over the limit; its connection is to end."""

    def __init__(self, max_length: int, claim: Claim) -> None:
        super().__init__(max_length)
        self.why = f"a message may have {max_length} bytes"
        """What the peer is told with the code 1009."""
        self._claim = claim

    def clear(self) -> None:
        """Let go of the message."""
        super().clear()
        self._claim.release()

    def extend(self, event: Message[Any]) -> None:
        """Add a fragment.

        Raises:
            FrameTooLargeError: the message is over the limit, or an earlier one was, or there is
                no room for it beside those of others.
        """
        size = len(event.data)
        too_large = self.full or self.length + size > self.max_length
        if too_large or not self._claim.grow(size):
            if not too_large:
                self.why = "too many messages are on their way"
            self.full = True
            self.clear()
            raise FrameTooLargeError
        super().extend(event)  # pyright: ignore[reportUnknownMemberType]  # generic there, unsaid


class SocketMeter(FrameHeads[CloseReason]):
    """The frames of one WebSocket (RFC 6455, section 5.2); gives the reason to close it."""

    def __init__(self, settings: ServingSettings, now: float) -> None:
        super().__init__()
        self._max_fragments = settings.max_websocket_fragments
        self._pings = Allowance(settings.max_websocket_pings, settings.flood_window, now)
        self._fragments = 0  # of the message under way

    def _wanted(self) -> int:
        """How long the head of this frame is: flags, length, mask."""
        if len(self._head) < 2:
            return 2
        length = self._head[1]
        return 2 + {126: 2, 127: 8}.get(length & 0x7F, 0) + (4 if length & 0x80 else 0)

    def _count(self, now: float) -> CloseReason | None:
        head = self._head
        short = head[1] & 0x7F
        wide = {126: 2, 127: 8}.get(short, 0)
        self._skip = int.from_bytes(head[2 : 2 + wide], "big") if wide else short
        match head[0] & 0x0F:
            case Opcode.PING | Opcode.PONG:
                return None if self._pings.take(now) else CloseReason.POLICY_VIOLATION
            case Opcode.CONTINUATION:
                self._fragments += 1
            case _:
                self._fragments = 1
        return CloseReason.MESSAGE_TOO_BIG if self._fragments > self._max_fragments else None


def bound(stream: WSStream, messages: Budget) -> None:
    """Put the bounds on a stream whose request has been read, before it is accepted."""
    message = BoundedMessage(stream.config.websocket_max_message_size, messages.claim())
    stream.buffer = message
    stream.handshake.extensions = None
    send = stream._send_wsproto_event  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001

    async def send_with_reason(event: Event) -> None:
        if isinstance(event, CloseConnection) and event.code == CloseReason.MESSAGE_TOO_BIG:
            event = CloseConnection(code=event.code, reason=event.reason or message.why)
        await send(event)

    # Hypercorn closes without a word about the limit.
    stream._send_wsproto_event = send_with_reason  # type: ignore[method-assign]  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001


def let_go(stream: object) -> None:
    """Forget the message under way, if the stream that ends is a WebSocket."""
    if isinstance(stream, WSStream):
        stream.buffer.clear()


async def cut_off(stream: WSStream, reason: CloseReason) -> None:
    """Tell a peer that it has gone over a limit; from now on `overrun` says so, too."""
    if isinstance(stream.buffer, BoundedMessage):
        stream.buffer.full = True
        stream.buffer.why = "a message has too many fragments"
    await stream._send_wsproto_event(  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
        CloseConnection(code=reason)
    )


def overrun(stream: object) -> bool:
    """Whether a stream is a WebSocket whose peer has gone over the limit."""
    return (
        isinstance(stream, WSStream)
        and isinstance(stream.buffer, BoundedMessage)
        and stream.buffer.full
    )
