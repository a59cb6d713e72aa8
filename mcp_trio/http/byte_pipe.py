"""Bytes in and out of one accepted connection, with every wait bounded or cancellable.

`SocketPipe` drives a plain TCP socket by its descriptor: a write that the kernel takes at once
costs one system call and no task switch, which is most of what a small answer costs. `StreamPipe`
does the same work through any other Trio stream (TLS, memory). Nothing here knows HTTP, keeps a
buffer, or decides when to close.
"""

import os
import socket
import struct
import sys
from typing import Protocol

import trio

from .half_close import CAN_WATCH, hung_up, wait_hangup

READ_SIZE = 65536
WRITE_SLICE = 65536
"""Bytes given to a `StreamPipe`'s stream at a time: the unit in which it sees progress."""

LEAST_PROGRESS = 4096
"""Bytes that have to go within each stall timeout: taking one now and then is no reading."""

_GONE = "the peer is gone"


class Stall:
    """A scope around a write, cancelled when too little of it goes in its time."""

    def __init__(self, timeout: float) -> None:
        """Begin to wait.

        Args:
            timeout: seconds within which `LEAST_PROGRESS` bytes have to go, or all there is.
        """
        self.scope = trio.CancelScope(deadline=trio.current_time() + timeout)
        self._timeout = timeout
        self._gone = 0

    def moved(self, size: int) -> None:
        """Note that so many bytes have gone."""
        self._gone += size
        if self._gone >= LEAST_PROGRESS:
            self._gone = 0
            self.scope.deadline = trio.current_time() + self._timeout


class Pipe(Protocol):
    """What the connection loop needs of a byte stream."""

    probeable: bool
    """Whether `hung_up` and `wait_hangup` can tell a closed peer from a half-closed one."""

    def send_nowait(self, data: bytes) -> int:
        """Give the kernel what it takes at once; return how many bytes that was, often 0.

        Raises:
            trio.BrokenResourceError: the peer is gone, or the pipe was closed.
        """
        ...

    async def send(self, data: memoryview, stall_timeout: float) -> None:
        """Send all of ``data``.

        Cancelled or failed, an unknown part has been sent: only closing is left.

        Raises:
            trio.TooSlowError: next to nothing was taken for ``stall_timeout`` seconds (`Stall`).
            trio.BrokenResourceError: the peer is gone, or the pipe was closed meanwhile.
        """
        ...

    async def receive(self, most: int = READ_SIZE) -> bytes:
        """Return the next bytes, ``b""`` after the peer's end of file. Cancelling loses nothing.

        Raises:
            trio.BrokenResourceError: the peer is gone, or the pipe was closed meanwhile.
        """
        ...

    def hung_up(self) -> bool:
        """Whether the peer has reset the connection; False if that cannot be seen."""
        ...

    async def wait_hangup(self) -> None:
        """Return when the peer has reset the connection; for ever if that cannot be seen."""
        ...

    async def send_eof(self) -> None:
        """Tell the peer that no more bytes will come, where the stream can say so."""
        ...

    async def aclose(self, *, abort: bool = False) -> None:
        """Close. Idempotent; a wait in another task ends with `trio.BrokenResourceError`.

        Args:
            abort: say RST and not FIN, so that what was sent cannot pass for complete, and the
                kernel forgets what is still queued for a peer that does not read.
        """
        ...


class SocketPipe:
    """A `Pipe` on a TCP socket of a POSIX system."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.probeable = CAN_WATCH
        self._socket = stream.socket

    def send_nowait(self, data: bytes) -> int:
        """See `Pipe`."""
        try:
            return os.write(self._socket.fileno(), data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise trio.BrokenResourceError(_GONE) from error

    async def send(self, data: memoryview, stall_timeout: float) -> None:
        """See `Pipe`."""
        stall = Stall(stall_timeout)
        with stall.scope:
            while data:
                try:
                    await trio.lowlevel.wait_writable(self._socket)
                    sent = os.write(self._socket.fileno(), data)
                    stall.moved(sent)
                    data = data[sent:]
                except BlockingIOError:
                    continue
                except (OSError, trio.ClosedResourceError) as error:
                    raise trio.BrokenResourceError(_GONE) from error
        if stall.scope.cancelled_caught:
            raise trio.TooSlowError

    async def receive(self, most: int = READ_SIZE) -> bytes:
        """See `Pipe`."""
        while True:
            try:
                # Waiting first is right most of the time: the loop comes back here just after
                # it has emptied the socket.
                await trio.lowlevel.wait_readable(self._socket)
                return os.read(self._socket.fileno(), most)
            except BlockingIOError:
                continue
            except (OSError, trio.ClosedResourceError) as error:
                raise trio.BrokenResourceError(_GONE) from error

    def hung_up(self) -> bool:
        """See `Pipe`."""
        return CAN_WATCH and hung_up(self._socket.fileno())

    async def wait_hangup(self) -> None:
        """See `Pipe`."""
        if not CAN_WATCH:  # pragma: no cover - decided by the platform
            await trio.sleep_forever()
        try:
            await wait_hangup(self._socket.fileno())
        except OSError as error:
            raise trio.BrokenResourceError("cannot watch the peer") from error

    async def send_eof(self) -> None:
        """See `Pipe`."""
        await trio.lowlevel.checkpoint()
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise trio.BrokenResourceError(_GONE) from error

    async def aclose(self, *, abort: bool = False) -> None:
        """See `Pipe`."""
        if abort and self._socket.fileno() != -1:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # No checkpoint: this runs in `finally` blocks and has nothing to wait for.
        self._socket.close()


class StreamPipe:
    """A `Pipe` on any other Trio stream. A half-closed peer counts as gone here."""

    def __init__(self, stream: trio.abc.Stream, *, close_timeout: float) -> None:
        self.probeable = False
        self._stream = stream
        self._close_timeout = close_timeout

    def send_nowait(self, data: bytes) -> int:
        """See `Pipe`."""
        del data
        return 0

    async def send(self, data: memoryview, stall_timeout: float) -> None:
        """See `Pipe`."""
        try:
            while data:
                with trio.fail_after(stall_timeout):
                    await self._stream.send_all(data[:WRITE_SLICE])
                data = data[WRITE_SLICE:]
        except trio.ClosedResourceError as error:
            raise trio.BrokenResourceError(_GONE) from error

    async def receive(self, most: int = READ_SIZE) -> bytes:
        """See `Pipe`."""
        try:
            return bytes(await self._stream.receive_some(most))
        except trio.ClosedResourceError as error:
            raise trio.BrokenResourceError(_GONE) from error

    def hung_up(self) -> bool:
        """See `Pipe`."""
        return False

    async def wait_hangup(self) -> None:
        """See `Pipe`."""
        await trio.sleep_forever()

    async def send_eof(self) -> None:
        """See `Pipe`."""
        # TLS cannot say "no more" and go on reading, so the answer's own framing has to.
        if isinstance(self._stream, trio.abc.HalfCloseableStream):
            await self._stream.send_eof()

    async def aclose(self, *, abort: bool = False) -> None:
        """See `Pipe`."""
        if abort:
            await trio.aclose_forcefully(self._stream)
            return
        # TLS says goodbye, which takes a peer that reads.
        with trio.move_on_after(self._close_timeout):
            await self._stream.aclose()


def open_pipe(stream: trio.abc.Stream, *, close_timeout: float) -> Pipe:
    """Return the cheapest pipe for an accepted ``stream``, which the pipe then owns.

    Args:
        stream: from a listener.
        close_timeout: seconds a polite close may take, where closing means talking (TLS).
    """
    if isinstance(stream, trio.SocketStream) and sys.platform != "win32":
        return SocketPipe(stream)
    return StreamPipe(stream, close_timeout=close_timeout)
