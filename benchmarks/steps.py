"""How many bytecode instructions the hot paths take: what a change costs, on any machine.

Each path is run with a trace of every instruction of Python, ours and that of the libraries. The
numbers of a run are the same as those of the next one, so `steps.json` holds them and
`tests/interop/test_steps.py` compares. They say nothing of the work of C code. The numbers are
printed beside those that are kept; `--write` keeps them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import platform
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import attrs
import click
import trio
import trio.testing

import mcp_trio
from benchmarks.calls import HANDSHAKE, STATELESS, Dialect, Line, cancelled
from benchmarks.workers.fanout import Crowd, crowded
from benchmarks.workers.processor import Processor
from benchmarks.workers.storm import Storm
from mcp_trio.wire.revisions import BY_DATE

KEPT = Path(__file__).with_suffix(".json")
VERSION = ".".join(platform.python_version_tuple()[:2])
"""Of the interpreter: each has instructions of its own."""
WARM_UP, ROUNDS = 30, 7
SETTLING = 0.002
"""Seconds of silence after which nothing of an earlier request goes on."""
OURS = str(Path(mcp_trio.__file__).parent)
Once = Callable[[], Awaitable[object]]


@attrs.frozen
class Steps:
    """The instructions of one run of a path."""

    ours: int
    """In functions of this package."""
    every: int
    """In those of libraries as well."""


class Tracer:
    """Counts instructions while it is on."""

    def __init__(self) -> None:
        self.ours = 0
        self.others = 0

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Watch a frame that begins or goes on."""
        del event, arg
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._of_ours if frame.f_code.co_filename.startswith(OURS) else self._of_others

    def _of_ours(self, frame: FrameType, event: str, arg: Any) -> Any:
        del frame, arg
        self.ours += event == "opcode"
        return self._of_ours

    def _of_others(self, frame: FrameType, event: str, arg: Any) -> Any:
        del frame, arg
        self.others += event == "opcode"
        return self._of_others


@attrs.frozen
class Way:
    """One path, ready to be gone."""

    once: Once
    """What is counted, until it ends or turns tracing off."""
    before: Once = trio.lowlevel.checkpoint
    """What each round needs, and is not counted."""


async def counted(way: Way, *, warm_up: int = WARM_UP, rounds: int = ROUNDS) -> Steps:
    """Run a path until it is warm, and then count it: the least of some rounds.

    More than the least is the loop of Trio, which looks once more now and then.
    """
    for _ in range(warm_up):
        await way.before()
        await way.once()
    found: list[Steps] = []
    for _ in range(rounds):
        await way.before()
        tracer = Tracer()
        sys.settrace(tracer)
        try:
            await way.once()
        finally:
            sys.settrace(None)
        found.append(Steps(tracer.ours, tracer.ours + tracer.others))
    return min(found, key=lambda steps: (steps.ours, steps.every))


def bench_server() -> mcp_trio.MCPServer:
    """A server with a thousand tools of which one adds and one waits."""
    server = mcp_trio.MCPServer("bench", version="1.0.0")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def hold() -> None:
        await trio.sleep_forever()

    for number in range(1000):
        server.add_tool(add, name=f"add_{number}")
    return server


# The paths.


def over_http(revision: str) -> contextlib.AbstractAsyncContextManager[Way]:
    """`tools/call` over HTTP."""
    return asking(
        revision,
        lambda dialect: (dialect.headers("add"), dialect.call(1, "add", {"a": 2, "b": 40})),
        b'"result":42}',
    )


def opening(revision: str) -> contextlib.AbstractAsyncContextManager[Way]:
    """A session opened over HTTP, beside those that were opened before."""
    plain = Dialect(revision=revision)
    return asking(revision, lambda _: (plain.headers(), plain.hello()), b'"serverInfo"')


@contextlib.asynccontextmanager
async def asking(
    revision: str, request_of: Callable[[Dialect], tuple[dict[str, str], str]], answered: bytes
) -> AsyncIterator[Way]:
    """A request over HTTP, from a plain socket in the same process.

    Args:
        revision: to open a dialect of.
        request_of: the fields and the body to send.
        answered: what the answer has in it.
    """
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(bench_server().serve_http, "127.0.0.1", 0)
        dialect = await trio.to_thread.run_sync(_opened, url, revision)
        request = post(url, *request_of(dialect))
        with connected(url) as client:

            async def once() -> None:
                client.send(request)
                answer = b""
                while answered not in answer:
                    await trio.lowlevel.wait_readable(client)
                    answer += client.recv(65536)

            yield Way(once)
        nursery.cancel_scope.cancel()


def post(url: str, sent: dict[str, str], text: str) -> bytes:
    """A request on the wire."""
    place, body = urlsplit(url), text.encode()
    fields = {**sent, "Host": place.netloc, "Content-Length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {place.path} HTTP/1.1\r\n{head}\r\n".encode() + body


def connected(url: str) -> socket.socket:
    """A socket that never blocks."""
    place = urlsplit(url)
    client = socket.create_connection((str(place.hostname), place.port or 0))
    client.setblocking(False)
    return client


def _opened(url: str, revision: str) -> Dialect:
    line = Line(url)
    try:
        return line.open(revision)
    finally:
        line.close()


@contextlib.asynccontextmanager
async def given_up(revision: str, *, talk: bool = False) -> AsyncIterator[Way]:
    """A call over HTTP until its `finally`: from its notification, or the end of its connection.

    Args:
        revision: tells which of both.
        talk: whether the answer has begun as a stream.
    """
    server, begun, ended = bench_server(), trio.Event(), trio.Event()

    @server.tool
    async def held(ctx: mcp_trio.Context) -> None:
        if talk:
            await ctx.progress(1)
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            sys.settrace(None)
            ended.set()

    ids = itertools.count(1)
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(server.serve_http, "127.0.0.1", 0)
        dialect = await trio.to_thread.run_sync(_opened, url, revision)
        with connected(url) as control, contextlib.ExitStack() as clients:
            note = b""

            async def before() -> None:
                nonlocal begun, ended, note
                clients.close()
                id_, begun, ended = next(ids), trio.Event(), trio.Event()
                token = f"token-{id_}" if talk else None
                call = dialect.call(id_, "held", {}, token=token)
                client = clients.enter_context(connected(url))
                client.send(post(url, dialect.headers("held"), call))
                note = post(url, dialect.headers(), cancelled(id_))
                await begun.wait()
                await trio.testing.wait_all_tasks_blocked(SETTLING)
                for each in (control, client):
                    with contextlib.suppress(BlockingIOError):
                        each.recv(65536)

            async def once() -> None:
                if revision == STATELESS:
                    clients.close()
                else:
                    control.send(note)
                await ended.wait()

            yield Way(once, before)
        nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def in_memory(revision: str) -> AsyncIterator[mcp_trio.MCPClient]:
    """A client of a server in the same process."""
    options = mcp_trio.ClientOptions(revisions=(BY_DATE[revision],))
    async with mcp_trio.MCPClient(bench_server(), options=options) as client:
        yield client


@contextlib.asynccontextmanager
async def call(revision: str) -> AsyncIterator[Way]:
    """`tools/call` in memory, both sides."""
    async with in_memory(revision) as client:
        yield Way(lambda: client.call_tool("add", {"a": 2, "b": 40}))


@contextlib.asynccontextmanager
async def page(revision: str) -> AsyncIterator[Way]:
    """One page of two hundred of a thousand tools, both sides."""
    async with in_memory(revision) as client:
        yield Way(lambda: client.call("tools/list", cache=False))


@contextlib.asynccontextmanager
async def typed_page(revision: str) -> AsyncIterator[Way]:
    """The same page, read into objects."""
    async with in_memory(revision) as client:
        yield Way(lambda: client.list_tools(cache=False))


@contextlib.asynccontextmanager
async def cancel(revision: str) -> AsyncIterator[Way]:
    """A call that is given up at once, both sides."""
    async with in_memory(revision) as client:

        async def once() -> None:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(client.call_tool, "hold")
                    await trio.testing.wait_all_tasks_blocked()
                    scope.cancel()
            await trio.testing.wait_all_tasks_blocked()

        yield Way(once)


PATHS: dict[str, Callable[[], contextlib.AbstractAsyncContextManager[Way]]] = {
    f"{name}, {revision}": lambda make=make, revision=revision: make(revision)
    for name, make in (
        ("tools/call over HTTP", over_http),
        ("tools/call in memory", call),
        ("a page of tools/list in memory", page),
        ("the same page as objects", typed_page),
        ("a call given up in memory", cancel),
    )
    for revision in (STATELESS, HANDSHAKE)
} | {
    f"a session opened over HTTP, {HANDSHAKE}": lambda: opening(HANDSHAKE),
    f"a call cancelled over HTTP until its end, {HANDSHAKE}": lambda: given_up(HANDSHAKE),
    f"a call dropped over HTTP until its end, {STATELESS}": lambda: given_up(STATELESS),
    f"a stream dropped over HTTP until its end, {STATELESS}": lambda: given_up(
        STATELESS, talk=True
    ),
}
"""By name."""


async def of_listeners(size: int) -> Steps:
    """A change that so many listeners hear of in memory, both sides: of each of them."""
    server, crowd = crowded(size), Crowd(size)
    async with mcp_trio.MCPClient(server) as client, trio.open_nursery() as nursery:
        await crowd.gather(client, nursery)
        steps = await counted(Way(lambda: crowd.hear(server)), warm_up=2, rounds=2)
        nursery.cancel_scope.cancel()
    return Steps(steps.ours // size, steps.every // size)


async def of_storm(what: str, size: int) -> Steps:
    """So many calls in memory that begin and are ended at once, both sides: of each of them.

    Args:
        what: `cancel` or `timeout`.
        size: calls.
    """
    storm = Storm(what, size)
    async with mcp_trio.MCPClient(storm.server) as client:

        async def once() -> None:
            await storm.once(client, Processor())
            await client.ping()  # what was sent before it has been dealt with

        steps = await counted(Way(once), warm_up=1, rounds=2)
    return Steps(steps.ours // size, steps.every // size)


async def measure(name: str) -> Steps:
    """Count one path."""
    async with PATHS[name]() as way:
        return await counted(way)


def kept() -> dict[str, Steps]:
    """What was kept for this version of Python, by path; empty if nothing was."""
    found: dict[str, dict[str, int]] = json.loads(KEPT.read_text()).get(VERSION, {})
    return {name: Steps(**numbers) for name, numbers in found.items()}


@click.command()
@click.option("--write", is_flag=True, help="Keep the numbers in steps.json.")
def command(*, write: bool) -> None:
    """Count the instructions of each hot path."""
    before, found = kept(), {}
    click.echo(f"| Python {VERSION} | ours | kept | with libraries | kept |\n|---|---|---|---|---|")
    for name in PATHS:
        now = found[name] = trio.run(measure, name)
        old = before.get(name, Steps(0, 0))
        click.echo(f"| {name} | {now.ours} | {old.ours} | {now.every} | {old.every} |")
    if write:
        every = json.loads(KEPT.read_text()) if KEPT.exists() else {}
        every[VERSION] = {name: attrs.asdict(steps) for name, steps in found.items()}
        KEPT.write_text(json.dumps(every, indent=2) + "\n")


if __name__ == "__main__":
    command()
