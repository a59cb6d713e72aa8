"""Several processes: sessions forged, descriptors taken, workers killed under load."""

import contextlib
import itertools
import os
import random
import resource
import signal

import h2.connection
import httpx2
import pytest
import trio

from tests.cli.test_serve import PATIENCE
from tests.cli.test_several import alive
from tests.hardening.attackers import (
    ask,
    connect,
    crowd,
    each,
    head,
    is_served,
    opening,
    post,
    reset,
)
from tests.hardening.target import Target, descriptors, size, until

WORKERS = 2
SILENCE = 1.5
"""Seconds that a worker may say nothing."""
SEVERAL = f"workers = {WORKERS}\nworker_timeout = {SILENCE}\n"


class Several(Target):
    """A service of several workers."""

    def __init__(self, folder):
        super().__init__(folder, server=SEVERAL)
        for number in range(1, WORKERS + 1):
            self.until_log(f"worker {number} serves")
        self.seen = set(self.pids())
        """The processes of all workers so far."""

    def workers(self):
        return self.page("/workers")["workers"]

    def pids(self):
        return [each["pid"] for each in self.workers() if each["pid"] is not None]

    def all_ready(self):
        return all(each["ready"] for each in self.workers())

    def files(self):
        """Descriptors of each worker."""
        return [len(os.listdir(f"/proc/{pid}/fd")) for pid in self.pids()]  # noqa: PTH208 - names

    async def within(self, files):
        """Wait until no worker has more descriptors than it had."""
        await until(
            lambda: all(now <= then for now, then in zip(self.files(), files, strict=True)),
            PATIENCE,
        )


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """All processes; in the end none of them is left, nor a socket of theirs."""
    descriptors(4000)
    rooms = tmp_path_factory.mktemp("rooms")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUNTIME_DIRECTORY", str(rooms))
        service = Several(tmp_path_factory.mktemp("several"))
    yield service
    (room,) = rooms.iterdir()
    assert sorted(path.name for path in room.iterdir()) == ["1", "2"]
    service.seen.update(service.pids())
    assert service.stop() == 0
    assert not any(map(alive, service.seen))
    assert list(rooms.iterdir()) == []


@pytest.fixture
def target(several):
    """The same, with a fresh log; whatever happens, the same workers are there afterwards."""
    del several.lines[:]
    pids = several.pids()
    yield several
    assert several.pids() == pids
    assert [line for line in several.faults() if "cannot accept" not in line] == []


def forged(number, *more):
    """The head of a request in a session that the worker of that number would have."""
    return [
        (":method", "POST"),
        (":path", "/mcp"),
        (":scheme", "http"),
        (":authority", "127.0.0.1"),
        ("content-type", "application/json"),
        ("accept", "application/json"),
        ("mcp-session-id", f"{number}.forged"),
        *more,
    ]


@contextlib.asynccontextmanager
async def flood(target, connections, streams=100):
    """Requests over HTTP/2, in sessions of every worker, whose bodies do not come."""
    async with crowd(target, connections) as made:
        for index, stream in enumerate(made):
            client = h2.connection.H2Connection()
            client.initiate_connection()
            for turn in range(streams):
                stream_id = client.get_next_available_stream_id()
                client.send_headers(stream_id, forged(1 + (index + turn) % WORKERS))
            await stream.send_all(client.data_to_send())
        yield


async def test_forged_sessions_by_the_thousand_end_no_worker(target):
    """Each one is asked about at the worker that would have it, over a connection of its own."""
    before = target.files()
    async with flood(target, size(10, 100)):
        await is_served(target)
        await until(target.all_ready)
    await target.within(before)


@contextlib.contextmanager
def allowed(pids, count):
    """Let processes have so many descriptors only."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    for pid in pids:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (count, limits[1]))
    try:
        yield
    finally:
        for pid in pids:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


async def test_whoever_takes_all_descriptors_ends_neither_worker_nor_parent(target):
    before = target.files()
    everybody = [*target.pids(), target.process.pid]
    admin = httpx2.URL(target.admin).port
    with allowed(everybody, 60), contextlib.ExitStack() as taken:
        async with flood(target, 4), crowd(target, 200):
            for _ in range(100):
                taken.callback((await trio.open_tcp_stream("127.0.0.1", admin)).socket.close)
            most = dict.fromkeys(everybody, 0)
            with trio.move_on_after(2 * SILENCE):
                while True:
                    for pid in everybody:
                        now = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - names
                        most[pid] = max(most[pid], now)
                    await trio.sleep(0.02)
            assert min(most.values()) >= 59
    await is_served(target, within=20)
    await until(target.all_ready)
    await target.within(before)


def hello(id_):
    """A call in a session."""
    return {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": {"name": "hello"}}


async def opened(target):
    """The fields of a session, of any worker."""
    _, fields, _ = await ask(target, opening())
    return f"Mcp-Session-Id: {fields['mcp-session-id']}"


async def test_what_is_passed_on_may_break_off_anywhere(target):
    """By turns the request is cut, or its answer not read."""
    sessions = [await opened(target) for _ in range(8)]
    before = target.files()

    async def one(index):
        session = sessions[index % len(sessions)]
        whole = post(hello(index), session) if index % 2 else head(None, session, method="GET")
        stream = await connect(target)
        await stream.send_all(whole[: index % (len(whole) + 1)])
        if index % 3:
            reset(stream)
        else:
            stream.socket.close()

    await each(range(size(600, 12_000)), one)
    await target.within(before)
    for session in sessions:
        status, _, body = await ask(target, post(hello("last"), session))
        assert status == 200, body


SIGNS = signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL, signal.SIGTERM


class Load:
    """Callers who go on whatever happens, and what they heard."""

    def __init__(self, target):
        self.target = target
        self.answered = 0
        self.sessions = []
        self._ids = itertools.count()

    async def run(self):
        while True:
            with trio.move_on_after(2), contextlib.suppress(OSError, trio.BrokenResourceError):
                await self._one()

    async def _one(self):
        if random.random() < 0.3 or not self.sessions:
            request = opening()
        else:
            request = post(hello(next(self._ids)), random.choice(self.sessions[-20:]))
        async with await connect(self.target) as stream:
            await stream.send_all(request)
            answer = await stream.receive_some(65536)
        if not answer:
            return  # its worker was killed
        status = int(answer.split(b" ")[1])
        assert status in {200, 404, 502, 503}, answer
        self.answered += status == 200
        for line in answer.split(b"\r\n"):
            if line.lower().startswith(b"mcp-session-id:"):
                self.sessions.append(line.decode())


async def test_workers_killed_and_stopped_at_random_are_replaced(several):
    load = Load(several)
    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(load.run)
        for sign in itertools.islice(itertools.cycle(SIGNS), size(len(SIGNS), 12)):
            # Workers that never serve are given up by their parent, and rightly.
            await until(lambda: any(each["ready"] for each in several.workers()), 60)
            await trio.sleep(random.random() / 2)
            several.seen.update(pids := await trio.to_thread.run_sync(several.pids))
            with contextlib.suppress(ProcessLookupError, IndexError):
                os.kill(random.choice(pids), sign)
            for _ in range(50):
                several.process.send_signal(signal.SIGHUP)
        await until(several.all_ready, 60)
        before = load.answered
        await until(lambda: load.answered > before + 50)
        nursery.cancel_scope.cancel()
    assert "Traceback" not in "".join(several.lines)
