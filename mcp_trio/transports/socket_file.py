"""A listening Unix socket and the file that names it, made and removed with care.

Whoever listens on such a socket does it this way; what is said on it is not known here.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import time
from typing import Self

PATIENCE = 2.0
"""Seconds to wait for others that start in the same folder."""
PAUSE = 0.005
"""Seconds until the folder is tried again."""


class SocketFile:
    """A listening Unix socket and its file, which is removed on leaving the block.

    Two servers that start at the same time cannot take each other's file away: the folder is
    locked meanwhile, for as long as it takes to bind. Making it waits for that, `PATIENCE` seconds
    at most, and for nothing else.
    """

    def __init__(self, path: str | os.PathLike[str], mode: int, backlog: int) -> None:
        """Listen, in the place of a file that nobody serves any more.

        Args:
            path: of the socket file.
            mode: its permissions.
            backlog: connections the kernel holds until they are accepted.

        Raises:
            OSError: somebody serves that path, the file is no socket (a symbolic link is none),
                the path cannot be bound, or somebody keeps the folder locked.
        """
        self.path = os.path.abspath(path)  # noqa: PTH100 - a name, links are not followed
        self.socket = _bind(self.path, mode, backlog)
        self._identity = _identity(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        if self._identity is not None and _identity(self.path) == self._identity:
            os.unlink(self.path)  # noqa: PTH108 - text


def _bind(path: str, mode: int, backlog: int) -> socket.socket:
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)  # noqa: PTH120 - text
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        try:
            _lock(folder)
        except BlockingIOError as error:
            raise OSError(errno.EADDRINUSE, "another server is starting there", path) from error
        _clear(path)
        server.bind(path)
        os.chmod(path, mode)  # noqa: PTH101 - text
        server.listen(backlog)
    except BaseException:
        server.close()
        raise
    finally:
        os.close(folder)
    return server


def _lock(folder: int) -> None:
    """Lock a folder. Not in the kernel's queue: whoever may read the folder could keep us there.

    Raises:
        BlockingIOError: it was never free.
    """
    until = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
        time.sleep(PAUSE)


def _clear(path: str) -> None:
    """Remove a socket file that nobody serves."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(errno.EEXIST, "a file that is no socket is there", path)
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)  # noqa: PTH108 - text
            return
        except BlockingIOError:
            pass  # its queue is full: somebody serves it, and is busy
    raise OSError(errno.EADDRINUSE, "somebody serves this socket", path)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
