"""The command on a terminal of its own, or on pipes; what it said and how it ended."""

import contextlib
import os
import pty
import subprocess
import sys

import attrs
import trio

COMMAND = [sys.executable, "-m", "mcp_trio"]
LIMIT = 60.0


@attrs.define
class Running:
    """A command that runs on a terminal."""

    process: trio.Process
    screen: int
    said: bytes = b""

    async def until(self, text):
        """Read until something was said."""
        while text.encode() not in self.said:
            part = await self._read()
            assert part, self.said
            self.said += part

    async def end(self):
        """Read all, and the exit status."""
        while part := await self._read():
            self.said += part
        return await self.process.wait()

    async def _read(self):
        await trio.lowlevel.wait_readable(self.screen)
        try:
            return os.read(self.screen, 65536)
        except OSError:
            return b""  # how Linux says that nobody has the other end any more


@contextlib.asynccontextmanager
async def on_terminal(*arguments, **environment):
    """Run the command on a terminal."""
    screen, end = pty.openpty()
    settings = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    try:
        process = await trio.lowlevel.open_process(
            [*COMMAND, *map(str, arguments)],
            stdin=end,
            stdout=end,
            stderr=end,
            start_new_session=True,
            env={**settings, "TERM": "xterm", **environment},
        )
        os.close(end)
        with trio.fail_after(LIMIT):
            try:
                yield Running(process, screen)
            finally:
                if process.poll() is None:
                    process.kill()
                    with trio.CancelScope(shield=True):
                        await process.wait()
    finally:
        os.close(screen)


async def shown(*arguments, **environment):
    """What a terminal gets, and the exit status."""
    async with on_terminal(*arguments, **environment) as running:
        status = await running.end()
    return running.said.decode(), status


@contextlib.asynccontextmanager
async def on_pipes(*arguments, **environment):
    """Have the command running, with pipes for what it says."""
    process = await trio.lowlevel.open_process(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "NO_COLOR": "1", "TERM": "dumb", **environment},
    )
    with trio.fail_after(LIMIT):
        try:
            async with process.stdout, process.stderr:
                yield process
        finally:
            if process.poll() is None:
                process.kill()
                with trio.CancelScope(shield=True):
                    await process.wait()


async def said_by(stream):
    """All that comes, until it is closed."""
    return b"".join([part async for part in stream]).decode()
