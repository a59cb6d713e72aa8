"""`mcp-trio serve` with several processes, as its user runs it: killed, stopped, drained."""

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess

import httpx2
import pytest
import trio

from mcp_trio import ConfigurationError
from mcp_trio.cli.several import worker_command
from mcp_trio.config import parse_settings
from mcp_trio.workers.leash import Handover
from mcp_trio.workers.supervisor import Supervisor
from tests.cli.test_serve import CONFIG, HELLO, PATIENCE, Service, registry_with, write
from tests.http.test_relay import Session, call, lines, text

SEVERAL = CONFIG.replace(
    "[catalog]", "workers = 2\nworker_timeout = 4\n[admin]\nport = 0\n[catalog]"
)


class Workers(Service):
    """A running service of two workers, with an admin listener."""

    def __init__(self, *arguments, env=None):
        super().__init__(*arguments, env=env)
        self.admin = re.search(r"admin on (\S+?);", self.opening)[1]
        for number in (1, 2):
            self.until_log(f"worker {number} serves")

    def page(self, path):
        answer = httpx2.get(self.admin + path, timeout=PATIENCE, trust_env=False, verify=False)
        return answer.json()

    def pids(self):
        return {each["worker"]: each["pid"] for each in self.page("/workers")["workers"]}

    def until_ready(self, ends=(0, 0)):
        """Wait until both workers are ready, after so many ends of each."""
        for _ in range(10 * PATIENCE):
            told = self.page("/workers")["workers"]
            if all(each["ready"] for each in told) and ends == tuple(w["ends"] for w in told):
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                raise AssertionError(self.process.wait(0.1))
        raise AssertionError(told)


def alive(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def until_gone(pids):
    for pid in pids:
        # Not our children: only their descriptor tells when they have ended.
        with contextlib.suppress(ProcessLookupError):
            watch = os.pidfd_open(pid)
            try:
                assert select.select([watch], [], [], PATIENCE)[0], pid
            finally:
                os.close(watch)


@contextlib.asynccontextmanager
async def started(*arguments, env=None):
    service = await trio.to_thread.run_sync(lambda: Workers(*arguments, env=env))
    try:
        yield service
    finally:
        await trio.to_thread.run_sync(service.close)


def client():
    kept = httpx2.Limits(keepalive_expiry=10 * PATIENCE)
    return httpx2.AsyncClient(trust_env=False, timeout=PATIENCE, verify=False, limits=kept)


class There:
    """The service, reached by connections of its own."""

    def __init__(self, url, http):
        self.url, self.http = url, http


@contextlib.asynccontextmanager
async def fresh(url):
    async with client() as http:
        yield There(url, http)


@contextlib.asynccontextmanager
async def pinned(service, number):
    """A client whose connection a certain worker has: the other one is stopped meanwhile."""
    other = service.pids()[3 - number]
    async with fresh(service.url) as there:
        os.kill(other, signal.SIGSTOP)
        try:
            probe = service.url.removesuffix("/mcp") + "/healthz"
            assert (await there.http.get(probe)).status_code == 200
        finally:
            os.kill(other, signal.SIGCONT)
        yield there


async def test_sessions_streams_pages_and_a_drain_of_two_workers():
    async with started("--demo", "--port", "0", "--workers", "2", "--admin-port", "0") as service:
        url = service.url
        await trio.to_thread.run_sync(service.until_ready)
        assert service.page("/catalog")["counts"]["served"] == 3
        look_up = call("user_get_profile", user_id="u-1")
        made = []
        async with pinned(service, 1) as one, pinned(service, 2) as two:
            for here, there in ((one, two), (two, one)):
                for _ in range(3):
                    made.append(await Session.begin(here))
                    for _ in range(3):
                        answer = await made[-1].post(there, look_up)
                        assert json.loads(text(answer))["name"] == "Ada"
        owners = [session.headers["mcp-session-id"][0] for session in made]
        assert owners == ["1", "1", "1", "2", "2", "2"]

        # Each request on a connection of its own.
        for session in made:
            for _ in range(2):
                async with fresh(url) as there:
                    assert (await session.post(there, look_up)).status_code == 200

        told = await trio.to_thread.run_sync(service.page, "/sessions")
        assert told["count"] == 6
        assert {each["worker"] for each in told["sessions"]} == {1, 2}
        rates = await trio.to_thread.run_sync(service.page, "/rates")
        assert rates["total"]["success"] == 6 + 18 + 12
        tasks = await trio.to_thread.run_sync(service.page, "/tasks")
        assert [root["worker"] for root in tasks["root"]["nurseries"][0]] == [1, 2]

        # A stream that breaks goes on at whichever worker its client comes back to.
        async def resume(session):
            waiting = call("inventory_list_items", 9, wait_seconds=2.5)
            async with fresh(url) as there:
                async with session.stream(there, "POST", waiting) as answer, lines(answer) as until:
                    seen = await until(b"id: ")
            async with fresh(url) as there:
                async with session.stream(there, **{"last-event-id": seen}) as resumed:
                    await resumed.aread()
            assert '"total"' in text(resumed)

        async with trio.open_nursery() as nursery:
            for session in made:
                nursery.start_soon(resume, session)

        # What runs may finish; nothing is left, and nothing new is begun.
        answers = []

        async def last(session):
            async with fresh(url) as there:
                answers.append(
                    await session.post(there, call("inventory_list_items", 10, wait_seconds=1.5))
                )

        pids = service.pids().values()
        async with trio.open_nursery() as nursery:
            for session in made:
                nursery.start_soon(last, session)
            for _ in range(200):
                told = await trio.to_thread.run_sync(service.page, "/sessions")
                if sum(each["in_flight"] for each in told["sessions"]) == 6:
                    break
            service.process.send_signal(signal.SIGTERM)
        assert all('"total"' in text(answer) for answer in answers)
        assert len(answers) == 6
        assert await trio.to_thread.run_sync(service.process.wait, PATIENCE) == 0
        assert not any(map(alive, pids))


META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
FIELDS = {
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "hello",
}


class Load:
    """Clients that call a tool over and over, each on a connection that it keeps."""

    def __init__(self, url):
        self.url = url
        self.sent = self.answered = 0
        self.failed = []
        self._more = trio.Event()

    async def until(self, answered):
        """Wait until so many requests have been answered."""
        with trio.fail_after(PATIENCE):
            while self.answered < answered:
                self._more = trio.Event()
                await self._more.wait()

    async def run(self, number):
        body = call("hello")
        body["params"]["_meta"] = META
        async with client() as http:
            while True:
                self.sent += 1
                try:
                    answer = await http.post(self.url, json=body, headers=FIELDS)
                    assert answer.json()["result"]["structuredContent"] == {"said": "hello"}
                    self.answered += 1
                    self._more.set()
                except httpx2.TransportError:
                    self.failed.append(number)
                except BaseException:
                    self.sent -= 1  # the end of the test, in the middle of it
                    raise


async def test_a_worker_that_dies_or_hangs_costs_its_own_requests_and_is_replaced(tmp_path):
    registry_with(tmp_path, HELLO)
    rooms = tmp_path / "run"
    rooms.mkdir()
    async with started(write(tmp_path, SEVERAL), env={"RUNTIME_DIRECTORY": str(rooms)}) as service:
        await trio.to_thread.run_sync(service.until_ready)
        assert [path.stat().st_mode & 0o777 for path in rooms.iterdir()] == [0o700]
        first = service.pids()
        load = Load(service.url)
        async with fresh(service.url) as there:
            sessions = {}
            for number in (1, 2):
                async with pinned(service, number) as new:
                    sessions[number] = await Session.begin(new)
            async with trio.open_nursery() as nursery:
                for number in range(8):
                    nursery.start_soon(load.run, number)
                await load.until(50)
                assert load.failed == []
                os.kill(first[1], signal.SIGKILL)
                await trio.to_thread.run_sync(service.until_ready, (1, 0))
                # At most the one that each had on its way, and not those at the other worker.
                failed = list(load.failed)
                assert len(failed) == len(set(failed)) < 8
                lost = await sessions[1].post(there, call("hello"))
                assert lost.status_code == 404
                kept = await sessions[2].post(there, call("hello"))
                assert kept.status_code == 200
                await load.until(load.answered + 50)
                assert load.failed == failed
                nursery.cancel_scope.cancel()
            assert load.sent == load.answered + len(failed)
        second = service.pids()
        assert second[1] != first[1]
        assert second[2] == first[2]

        # One that hangs is reported at once, and killed after `worker_timeout`.
        os.kill(second[2], signal.SIGSTOP)
        told = await trio.to_thread.run_sync(service.page, "/catalog")
        assert told["silent"] == {"2": "no answer within 3 s"}, told
        await trio.to_thread.run_sync(service.until_log, "gave no sign of life for 4 s")
        await trio.to_thread.run_sync(service.until_ready, (1, 1))
        assert not alive(second[2])
        third = service.pids()
        assert third[1] == second[1]

        # Whatever becomes of the parent, no worker is left.
        service.process.kill()
        await trio.to_thread.run_sync(until_gone, third.values())
        assert list(rooms.iterdir()) == []


async def test_what_keeps_every_worker_from_starting_is_told_once_by_the_parent(tmp_path, capfd):
    """Such as a file that has gone since the parent has judged the settings."""
    gone = {"cert_file": "gone.pem", "key_file": "gone.pem"}
    settings = parse_settings({"catalog": {"registry": "r"}, "tls": gone})
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hand_over(number):
            return Handover(
                number=number,
                count=2,
                rooms=tmp_path,
                listeners=(listener.fileno(),),
                settings=settings,
                folder=tmp_path,
                state_key=bytes(32),
                cursor_key=bytes(32),
                nonce_key="n",
                audit_key=bytes(32),
            )

        made = Supervisor(worker_command(), hand_over, count=2, patience=5, grace=1)
        with trio.fail_after(60), pytest.raises(ConfigurationError, match="cannot read") as caught:
            await made.run()
    assert str(caught.value).count("cannot read") == 1
    said = capfd.readouterr().err
    assert "gone.pem" not in said
    assert "Traceback" not in said
