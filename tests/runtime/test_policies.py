"""Retries, budgets, deadlines and places, on a clock that jumps: sockets are in memory."""

from __future__ import annotations

import httpcore2
import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from mcp_trio.runtime.policies import Gatekeeper, Retry, RetryBudget, pause_before

GET = {"max_attempts": 4, "backoff_ms": 1000, "max_backoff_ms": 60_000}


class MemoryStream(httpcore2.AsyncNetworkStream):
    def __init__(self, stream):
        self.stream = stream

    async def read(self, max_bytes, timeout=None):  # noqa: ASYNC109
        return await self.stream.receive_some(max_bytes)

    async def write(self, buffer, timeout=None):  # noqa: ASYNC109
        await self.stream.send_all(buffer)

    async def aclose(self):
        await self.stream.aclose()

    def get_extra_info(self, info):
        return False if info == "is_readable" else None


class MemoryUpstream(httpcore2.AsyncNetworkBackend):
    """Answers each request with the next of `script`: a status, headers, or `"hang"`."""

    def __init__(self, nursery, script):
        self.nursery = nursery
        self.script = list(script)
        self.times: list[float] = []
        self.now = 0
        self.most = 0
        self.keys: list[bytes] = []

    async def connect_tcp(self, host, port, timeout=None, local_address=None, socket_options=None):  # noqa: ASYNC109
        await trio.lowlevel.checkpoint()
        if self.script and self.script[0] == "refuse":
            self.times.append(trio.current_time())
            self.script.pop(0)
            raise httpcore2.ConnectError("refused")
        ours, theirs = memory_stream_pair()
        self.nursery.start_soon(self.serve, theirs)
        return MemoryStream(ours)

    async def serve(self, stream):
        while True:
            data = b""
            while b"\r\n\r\n" not in data:
                part = await stream.receive_some(65536)
                if not part:
                    return
                data += part
            self.times.append(trio.current_time())
            self.keys += [
                line for line in data.lower().split(b"\r\n") if line.startswith(b"idempotency-key")
            ]
            self.now += 1
            self.most = max(self.most, self.now)
            said = self.script.pop(0) if self.script else 200
            if said == "hang":
                await stream.receive_some(1)
                return
            if said == "slow":
                await trio.sleep(1)
                said = 200
            status, headers = said if isinstance(said, tuple) else (said, b"")
            self.now -= 1
            await stream.send_all(
                b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\n%scontent-length: 2\r\n\r\n{}"
                % (status, headers)
            )


@pytest.fixture
def memory(nursery, make_bench):
    def make(*script, **options):
        sockets = MemoryUpstream(nursery, script)
        return make_bench("http://10.0.0.1", sockets=sockets, **options), sockets

    return make


def retrying(**changes):
    return {"retry": {**GET, **changes}, "timeout_ms": {"total": 3_000_000}}


async def test_a_read_is_sent_again_until_it_succeeds(memory, autojump_clock):
    bench, upstream = memory(503, 429, 200)
    async with bench.connections:
        result = await bench.call(execution_config=retrying())
    assert result.is_error is None
    assert [t - upstream.times[0] for t in upstream.times] == pytest.approx([0, 1, 3])


async def test_the_last_failure_is_told_when_attempts_run_out(memory, failure, autojump_clock):
    bench, upstream = memory(*[503] * 9)
    async with bench.connections:
        _, told = failure(await bench.call(execution_config=retrying()))
    assert told["code"] == 503
    assert len(upstream.times) == 4


async def test_connecting_is_tried_again_too(memory, autojump_clock):
    bench, upstream = memory("refuse", "refuse", 200)
    async with bench.connections:
        assert (await bench.call(execution_config=retrying())).is_error is None
    assert len(upstream.times) == 3


async def test_a_write_is_sent_once_unless_it_is_declared_idempotent(
    memory, failure, autojump_clock
):
    post = {"connection": "crm", "method": "POST", "path": "/leads/{id}"}
    bench, upstream = memory(503, 200)
    async with bench.connections:
        failure(await bench.call(target=post, execution_config=retrying()))
        assert len(upstream.times) == 1
    bench, upstream = memory(503, 200)
    async with bench.connections:
        config = {**retrying(), "idempotent": True, "idempotency_key_header": "Idempotency-Key"}
        assert (await bench.call(target=post, execution_config=config)).is_error is None
        await bench.call(target=post, execution_config=config)
    first, second, third = upstream.keys
    assert first == second != third


async def test_a_read_declared_not_idempotent_is_sent_once(memory, failure, autojump_clock):
    bench, upstream = memory(503, 200)
    async with bench.connections:
        failure(await bench.call(execution_config={**retrying(), "idempotent": False}))
    assert len(upstream.times) == 1


async def test_retry_after_is_honoured(memory, autojump_clock):
    bench, upstream = memory((503, b"retry-after: 20\r\n"), 200)
    async with bench.connections:
        await bench.call(execution_config=retrying())
    assert upstream.times[1] - upstream.times[0] == pytest.approx(20)


async def test_an_upstream_that_asks_for_too_long_is_not_asked_again(
    memory, failure, autojump_clock
):
    bench, upstream = memory((503, b"retry-after: 3600\r\n"), 200)
    async with bench.connections:
        _, told = failure(await bench.call(execution_config=retrying()))
    assert told["retry_after_ms"] == 3_600_000
    assert len(upstream.times) == 1


async def test_a_pause_that_outlasts_the_deadline_is_not_begun(memory, failure, autojump_clock):
    bench, upstream = memory((503, b"retry-after: 20\r\n"), 200)
    start = trio.current_time()
    async with bench.connections:
        with trio.fail_after(10):
            _, told = failure(await bench.call(execution_config=retrying()))
    assert told["upstream_status"] == 503
    assert trio.current_time() - start < 1
    assert len(upstream.times) == 1


async def test_only_the_reasons_given_are_retried(memory, failure, autojump_clock):
    bench, upstream = memory(503, 500, 200)
    async with bench.connections:
        failure(await bench.call(execution_config=retrying(on=[500])))
        assert len(upstream.times) == 1
        assert (await bench.call(execution_config=retrying(on=[500]))).is_error is None


async def test_the_budget_of_a_connection_stops_a_flood_of_retries(memory, failure, autojump_clock):
    bench, upstream = memory(*[503] * 100)
    async with bench.connections:
        for _ in range(10):
            failure(await bench.call(execution_config=retrying()))
    # Ten calls and the ten retries of a full budget; a call earns a tenth of one.
    assert len(upstream.times) == 20


async def test_a_first_byte_timeout_can_be_retried_and_the_total_cannot(
    memory, failure, autojump_clock
):
    bench, upstream = memory("hang", 200)
    config = {**retrying(), "timeout_ms": {"first_byte": 2000, "total": 60_000}}
    async with bench.connections:
        assert (await bench.call(execution_config=config)).is_error is None
    assert upstream.times[1] - upstream.times[0] == pytest.approx(3)
    bench, upstream = memory("hang", 200)
    async with bench.connections:
        _, told = failure(
            await bench.call(execution_config={**retrying(), "timeout_ms": {"total": 2000}})
        )
    assert told["code"] == "total"
    assert len(upstream.times) == 1


async def test_concurrency_holds_calls_back_and_leaves_nothing_behind(memory, autojump_clock):
    bench, upstream = memory(*["slow"] * 5)
    config = {"concurrency": 2}
    start = trio.current_time()
    async with bench.connections:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(lambda: bench.call(execution_config=config))
        assert upstream.most == 2
        assert trio.current_time() - start == pytest.approx(3)
        assert bench.compile(execution_config=config).sender.gatekeeper.limited == 0


async def test_waiting_for_a_place_counts_against_the_total(memory, failure, autojump_clock):
    bench, _ = memory("hang", 200)
    config = {"concurrency": 1, "timeout_ms": {"total": 1000}}
    results: list[object] = []
    async with bench.connections:
        async with trio.open_nursery() as nursery:

            async def one():
                results.append(await bench.call(execution_config=config))

            nursery.start_soon(one)
            await wait_all_tasks_blocked()
            nursery.start_soon(one)
        assert [failure(result)[1]["code"] for result in results] == ["total", "total"]
        assert bench.compile().sender.gatekeeper.limited == 0


async def test_a_new_version_shares_the_places_of_the_old_one():
    gate = Gatekeeper(lambda: 0.5)
    async with gate.place("c", "o", 1):
        with trio.move_on_after(0) as scope:
            async with gate.place("c", "o", 1):
                pytest.fail("there was one place only")
        assert scope.cancelled_caught
        async with gate.place("c", "o", 2):
            assert gate.limited == 1
    assert gate.limited == 0


@pytest.mark.parametrize(
    ("attempt", "retry_after", "chance", "pause"),
    [
        (1, None, 0.0, 0.1),
        (1, None, 1.0, 0.2),
        (2, None, 1.0, 0.4),
        (3, None, 1.0, 0.8),
        (9, None, 1.0, 5.0),
        (1, 3.0, 1.0, 3.0),
        (1, 5.1, 1.0, None),
        (10, None, 1.0, None),
    ],
)
def test_pauses_in_numbers(attempt, retry_after, chance, pause):
    got = pause_before(Retry(max_attempts=10), attempt, retry_after, chance)
    assert got == (None if pause is None else pytest.approx(pause))


def test_a_budget_starts_full_and_grows_with_calls():
    budget = RetryBudget()
    assert sum(budget.take() for _ in range(20)) == 10
    for _ in range(9):
        budget.note_call()
    assert not budget.take()
    for _ in range(2):
        budget.note_call()
    assert budget.take()
