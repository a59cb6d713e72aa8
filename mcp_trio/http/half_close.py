"""How to learn that a peer is really gone, although its FIN has already been read.

A FIN says only that the peer will not write any more: ``shutdown(SHUT_WR)`` and ``close()`` look
the same on our read side. They differ when *we* write: a closed peer answers with RST, a
half-closed one does not. The connection writes the probe; this module looks for the RST, or waits
for it, without polling and without reading: an epoll set in which the socket is registered for no
event reports only ``EPOLLHUP`` and ``EPOLLERR``, and an epoll set is itself a descriptor Trio can
wait for.

Nothing here knows HTTP.
"""

import select
import sys

import trio

CAN_WATCH = sys.platform == "linux"
"""Whether this platform has the epoll set that `wait_hangup` needs."""


def hung_up(fileno: int) -> bool:
    """Whether the socket ``fileno`` is reset, or shut down in both directions.

    A peer on the same machine has answered a probe by the time the write of it returns.
    """
    watch = select.poll()
    watch.register(fileno, 0)
    return bool(watch.poll(0))


async def wait_hangup(fileno: int) -> None:
    """Return once the socket ``fileno`` is reset, or shut down in both directions.

    Waits for ever otherwise; cancelling it is the usual way out and has no effect on the socket.
    Bytes waiting to be read do not wake it. The caller must cancel the wait before it closes the
    socket: a closed descriptor leaves an epoll set silently.

    Raises:
        OSError: no descriptor is left for the epoll set.
    """
    if sys.platform != "linux":  # pragma: no cover - decided by the platform
        await trio.sleep_forever()
        return
    with select.epoll() as watch:
        watch.register(fileno, 0)
        await trio.lowlevel.wait_readable(watch.fileno())
