"""The standard streams of this process as a transport (section 4 of the checklist).

The protocol gets the two descriptors to itself: they are moved away, and 0 and 1 are
replaced by the null device and standard error. So a `print()` of a handler, or a child
process that reads or writes, cannot reach the line.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import AsyncGenerator

import trio
import trio.abc
import trio.lowlevel

from mcp_trio.transports.lines import MAX_LINE, LineTransport


def _pollable(descriptor: int) -> bool:
    """Tell whether the event loop can wait for it; regular files and devices cannot be."""
    with select.epoll() as poll:
        try:
            poll.register(descriptor, select.EPOLLIN)
        except PermissionError:
            return False
    return True


class _FileReceiveStream(trio.abc.ReceiveStream):
    """A descriptor that never makes anybody wait long, read in a worker thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._closed = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if self._closed:
            raise trio.ClosedResourceError
        return await trio.to_thread.run_sync(os.read, self._descriptor, max_bytes or 65536)

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self._descriptor)
        await trio.lowlevel.checkpoint()


class _FileSendStream(trio.abc.SendStream):
    """The same for writing."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._closed = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            if self._closed:
                raise trio.ClosedResourceError
            written = await trio.to_thread.run_sync(os.write, self._descriptor, rest)
            rest = rest[written:]

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self._descriptor)
        await trio.lowlevel.checkpoint()


class StdioTransport(LineTransport):
    """A line over the standard streams."""

    kind = "stdio"
    output: int | None = None
    """The descriptor that is written to, where the event loop can wait for it."""


@contextlib.asynccontextmanager
async def stdio_transport(*, max_line: int = MAX_LINE) -> AsyncGenerator[StdioTransport, None]:
    """Take the standard streams over for as long as the block runs.

    On leaving, the descriptors are put back, also when cancelled.

    Args:
        max_line: bytes of the longest line accepted.
    """
    sys.stdout.flush()
    stdin, stdout = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    # The transport closes its own copies; these two put the originals back.
    reading, writing = os.dup(stdin), os.dup(stdout)
    incoming: trio.abc.ReceiveStream = (
        trio.lowlevel.FdStream(reading) if _pollable(reading) else _FileReceiveStream(reading)
    )
    watched = _pollable(writing)
    outgoing: trio.abc.SendStream = (
        trio.lowlevel.FdStream(writing) if watched else _FileSendStream(writing)
    )
    try:
        line = StdioTransport(incoming, outgoing, max_line=max_line)
        line.output = writing if watched else None
        yield line
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
            await incoming.aclose()
            await outgoing.aclose()
        sys.stdout.flush()
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.close(stdin)
        os.close(stdout)
