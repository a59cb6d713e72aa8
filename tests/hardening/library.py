"""A server of the library in a process of its own, with the tools that the soak's service has.

`python library.py FOLDER UPSTREAM_PORT sockets` serves one message per line on a Unix socket and
on a TCP port, says where on standard output, and drains at SIGTERM; with `stdio` it is the program
of one client. Its calls are written into `audit.log` of the folder as they end; when it has ended,
its metrics stand in `metrics.NUMBER`.
"""

import functools
import json
import os
import signal
import sys
from pathlib import Path

import trio

from mcp_trio import Context, MCPServer, ToolError
from mcp_trio.telemetry.audit import AuditLog
from mcp_trio.telemetry.line_writer import LineWriter
from mcp_trio.telemetry.prometheus import Prometheus

ASKING = ("keep", "bulk", "half", "junk", "slow", "late")
KEY = bytes(range(32))


async def fetch(port, tool, mark):
    """What the upstream says."""
    request = f"GET /{tool}?mark={mark} HTTP/1.1\r\nHost: upstream\r\n\r\n"
    try:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(request.encode())
            data = b"".join([part async for part in stream])
    except (OSError, trio.BrokenResourceError) as error:
        raise ToolError(f"the upstream is gone: {error}") from error
    return data.partition(b"\r\n\r\n")[2]


def asking(server, port, tool):
    """Offer a tool that asks the upstream."""

    @server.tool(name=tool)
    async def ask(mark: str) -> str:
        body = await fetch(port, tool, mark)
        try:
            json.loads(body)
        except ValueError as error:
            raise ToolError("the upstream gave no answer") from error
        return body.decode()


def made(folder, port):
    """The server."""
    server = MCPServer("library")
    server.add_middleware(AuditLog(LineWriter(folder / "audit.log", "the audit log"), key=KEY))

    @server.tool
    async def hello(mark: str) -> str:
        return mark

    @server.tool
    async def told(ctx: Context, mark: str) -> str:
        body = await fetch(port, "told", mark)
        if b"data" not in body:
            raise ToolError("the upstream told nothing")
        for number, _ in enumerate(body.split(b"data: ")[1:]):
            await ctx.progress(number)
        return mark

    for tool in ASKING:
        asking(server, port, tool)
    return server


async def sockets(server, folder):
    """Serve both until SIGTERM, and what runs to its end."""
    async with trio.open_nursery() as nursery:
        unix = await nursery.start(server.serve_unix, folder / "lines.sock")
        (tcp,) = await nursery.start(server.serve_tcp, "127.0.0.1", 0)
        print(unix, tcp, flush=True)  # noqa: T201 - what the parent reads
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            async for _ in signals:
                break
        server.drain()


def main():
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    server, counts = made(folder, port), Prometheus()
    try:
        with server.events.attach(counts):
            if sys.argv[3] == "stdio":
                server.run()
            else:
                trio.run(functools.partial(sockets, server, folder))
    finally:
        (folder / f"metrics.{os.getpid()}").write_bytes(counts.show())


if __name__ == "__main__":
    main()
