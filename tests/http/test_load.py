"""The limits of load at the door: each one on each transport, and what gives a place back."""

import contextlib
import json
import tracemalloc
from collections import Counter

import pytest
import trio
import trio.testing

from mcp_trio import HTTPOptions, LoadLimits, MCPServer, Principal, Rate, ServerOptions, ToolLimits
from mcp_trio.catalog.searching import SearchableTools
from mcp_trio.errors import MCPError, ToolError
from mcp_trio.events import RequestRefused
from mcp_trio.server.providers import ToolSet
from tests.cases.speakers import each_channel, each_session, speaking, text_of
from tests.http.asgi import BASE, META, STATELESS, serving
from tests.http.tools import make_server
from tests.messages import PING, PONG, initialize


def identify(head):
    """Whoever says a name is believed."""
    name = head.headers.get("x-name")
    return None if name is None else Principal(subject=name)


KNOWN = HTTPOptions(identify=identify)


def names(name):
    return {"x-name": name}


def overload(answer, limit):
    """Insist that a JSON-RPC answer refuses for a limit; gives the time to wait, in seconds."""
    data = answer["error"]["data"]
    assert (data["reason"], data["limit"]) == ("overloaded", limit)
    return data["retryAfterMs"] / 1000


# -- how many at once ------------------------------------------------------------------

CAPS = [
    ({"max_in_flight": 3}, "requests", 503),
    ({"max_in_flight_per_caller": 3}, "caller_requests", 429),
    ({"max_in_flight_per_session": 3}, "session_requests", 429),
]


@each_channel
@pytest.mark.parametrize(("limits", "limit", "status"), CAPS, ids=[c[1] for c in CAPS])
async def test_as_many_as_allowed_run_at_once_and_one_more_is_told_to_come_back(
    channel, limits, limit, status
):
    if channel == "stateless" and limit == "session_requests":
        return  # there are none
    server, record = make_server(load=LoadLimits(**limits))
    async with speaking(server, channel) as speaker:
        for number in range(3):
            await speaker.say(speaker.call(number, "wait"))
        await trio.testing.wait_all_tasks_blocked()
        assert server.admission.statistics().in_flight == 3
        answer = await speaker.ask(speaker.call("more", "add", a=1, b=2))
        assert answer["id"] == "more"
        assert overload(answer, limit) == 1
        assert server.admission.statistics().refusals == {limit: 1}
        record.release.set()
        assert {(await speaker.hear())["id"] for _ in range(3)} == {0, 1, 2}
        assert server.admission.statistics().in_flight == 0
        await speaker.works()
    if channel in {"http", "stateless"}:
        await _status_is(status, limits, stateless=channel == "stateless")


async def _status_is(status, limits, *, stateless):
    server, record = make_server(load=LoadLimits(**limits))
    async with serving(server) as client:
        session = None if stateless else await client.open_session()

        def start():
            if session is None:
                return client.start_stateless("tools/call", {"name": "wait"})
            return session.start_call("wait", id_=len(record.events))

        for _ in range(3):
            start()
            await trio.testing.wait_all_tasks_blocked()
        refused = start()
        await refused.ended.wait()
        assert (refused.status, refused.headers["retry-after"]) == (status, "1")


async def test_the_address_of_an_unknown_caller_is_the_caller_in_both_eras():
    server, record = make_server(load=LoadLimits(max_in_flight_per_caller=1))
    async with serving(server) as client:
        client.address = ("2001:db8::1", 1000)
        session = await client.open_session()
        running = session.start_call("wait")
        await record.until("wait started")
        for address, status in (
            ("2001:db8::1", 429),
            ("2001:db8::ffff", 429),  # the same /64
            ("2001:db8:0:1::1", 200),
            ("10.0.0.1", 200),
        ):
            client.address = (address, 2000)
            arguments = {"name": "add", "arguments": {"a": 1, "b": 1}}
            assert (await client.stateless("tools/call", arguments)).status == status
        record.release.set()
        await running.ended.wait()


async def test_connections_of_one_address_are_one_caller_on_lines_and_sockets():
    server, record = make_server(load=LoadLimits(max_in_flight_per_caller=1))

    async def hear(stream, data=b""):
        while b"\n" not in data:
            data += await stream.receive_some()
        return json.loads(data)

    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    wait = {**call, "params": {"name": "wait", "_meta": META}}
    add = {**call, "params": {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": META}}
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(server.serve_tcp, "127.0.0.1", 0)
        port = int(url.rpartition(":")[2])
        async with (
            await trio.open_tcp_stream("127.0.0.1", port) as one,
            await trio.open_tcp_stream("127.0.0.1", port) as other,
        ):
            await one.send_all(json.dumps(wait).encode() + b"\n")
            await record.until("wait started")
            await other.send_all(json.dumps(add).encode() + b"\n")
            assert overload(await hear(other), "caller_requests") == 1
            record.release.set()
            assert (await hear(one))["result"]
            await other.send_all(json.dumps(add).encode() + b"\n")
            assert (await hear(other))["result"]
        nursery.cancel_scope.cancel()


async def test_a_batch_is_judged_one_by_one_and_answered_together():
    server, record = make_server(load=LoadLimits(max_in_flight=2))
    async with serving(server) as client:
        session = await client.open_session("2025-03-26")
        call = {"jsonrpc": "2.0", "method": "tools/call"}
        waits = [{**call, "id": n, "params": {"name": "wait"}} for n in range(4)]
        response = session.start_post([*waits, {**PING, "id": "p"}])
        await trio.testing.wait_all_tasks_blocked()
        assert server.admission.statistics().in_flight == 2
        record.release.set()
        await response.ended.wait()
        answers = {each["id"]: each for each in response.message()}
        assert [text_of(answers[n]) for n in (0, 1)] == ["wait", "wait"]
        assert [overload(answers[n], "requests") for n in (2, 3)] == [1, 1]
        assert answers["p"] == {**PONG, "id": "p"}


async def test_two_principals_do_not_starve_each_other():
    server, record = make_server(load=LoadLimits(max_in_flight=10, max_in_flight_per_caller=6))
    async with serving(server, KNOWN) as client:

        def flood(name, count):
            arguments = {"name": "wait", "arguments": {"label": name}}
            return [
                client.start_stateless("tools/call", arguments, headers=names(name))
                for _ in range(count)
            ]

        greedy = flood("greedy", 50)
        await trio.testing.wait_all_tasks_blocked()
        modest = flood("modest", 4)
        await trio.testing.wait_all_tasks_blocked()
        assert [each.status for each in greedy if each.ended.is_set()] == [429] * 44
        assert not any(each.ended.is_set() for each in modest)
        record.release.set()
        for each in modest:
            await each.ended.wait()
            assert each.status == 200


# -- how often -------------------------------------------------------------------------


@each_channel
async def test_a_rate_says_truly_when_to_come_back(channel, autojump_clock):
    server, _ = make_server(load=LoadLimits(rate_per_caller=Rate(per_minute=6, burst=4)))
    async with speaking(server, channel) as speaker:
        spent = server.admission.statistics()
        assert spent.refusals == {}
        allowed = 4 if channel == "stateless" else 3  # initialize took one
        for number in range(allowed):
            assert (await speaker.ask(speaker.call(number, "add", a=1, b=2)))["result"]
        wait = overload(await speaker.ask(speaker.call(9, "add", a=1, b=2)), "caller_rate")
        assert 9.9 < wait <= 10
        if not speaker.stateless:
            assert await speaker.ask({**PING, "id": "p"}) == {**PONG, "id": "p"}
        await trio.sleep(wait)
        await speaker.works()


async def test_retry_after_is_the_time_of_the_rate_in_whole_seconds(autojump_clock):
    limits = LoadLimits(
        rate=Rate(per_minute=30, burst=3), rate_per_caller=Rate(per_minute=8, burst=1)
    )
    server, _ = make_server(load=limits)
    async with serving(server, KNOWN) as client:

        async def ask(name):
            answer = await client.stateless("server/discover", headers=names(name))
            return answer.status, answer.headers.get("retry-after")

        assert await ask("ann") == (200, None)
        assert await ask("ann") == (429, "8")  # 7.5
        assert await ask("bob") == (200, None)
        assert await ask("cid") == (200, None)
        assert await ask("dan") == (503, "2")
        await trio.sleep(2)
        assert await ask("dan") == (200, None)


async def test_a_session_is_not_opened_over_the_rate(autojump_clock):
    server, _ = make_server(load=LoadLimits(rate=Rate(per_minute=1, burst=1)))
    async with serving(server) as client:
        assert (await client.post(initialize())).status == 200
        refused = await client.post(initialize())
        assert (refused.status, refused.headers["retry-after"]) == (503, "60")
        assert client.app.statistics().sessions == 1


# -- the queue -------------------------------------------------------------------------


def queueing(**limits):
    return make_server(load=LoadLimits(max_in_flight=1, queue_timeout=5, **limits))


@each_channel
async def test_a_request_waits_for_its_turn_and_is_served(channel):
    server, record = queueing(queue_length=2)
    async with speaking(server, channel) as speaker:
        for id_ in (1, 2, 3):
            await speaker.say(speaker.call(id_, "wait"))
        await trio.testing.wait_all_tasks_blocked()
        load = server.admission.statistics()
        assert (load.in_flight, load.waiting) == (1, 2)
        assert record.events == ["wait started"]
        assert overload(await speaker.ask(speaker.call(4, "wait")), "requests") == 1
        record.release.set()
        assert [(await speaker.hear())["id"] for _ in range(3)] == [1, 2, 3]
        assert record.events == ["wait started", "wait over"] * 3


@each_channel
async def test_a_turn_that_does_not_come_is_a_refusal(channel, autojump_clock):
    server, record = queueing(queue_length=2)
    async with speaking(server, channel) as speaker:
        await speaker.say(speaker.call(1, "wait"))
        await record.until("wait started")
        began = trio.current_time()
        answer = await speaker.ask(speaker.call(2, "wait"))
        assert trio.current_time() - began == pytest.approx(5, abs=0.1)
        assert (answer["id"], overload(answer, "requests")) == (2, 1)
        record.release.set()
        assert text_of(await speaker.hear()) == "wait"


@each_session
async def test_a_waiting_request_can_be_cancelled_and_leaves_the_queue_at_once(channel):
    server, record = queueing(queue_length=1)
    async with speaking(server, channel) as speaker:
        await speaker.say(speaker.call(1, "wait"))
        await speaker.say(speaker.call(2, "wait"))
        await record.until("wait started")
        await speaker.cancel(2)
        await trio.testing.wait_all_tasks_blocked()
        assert server.admission.statistics().waiting == 0
        await speaker.say(speaker.call(3, "wait"))
        await trio.testing.wait_all_tasks_blocked()
        assert server.admission.statistics().waiting == 1
        record.release.set()
        assert [(await speaker.hear())["id"] for _ in range(2)] == [1, 3]


async def test_a_waiting_post_whose_client_leaves_frees_its_turn_at_once():
    server, record = queueing(queue_length=1)
    async with serving(server) as client:
        running = client.start_stateless("tools/call", {"name": "wait"})
        await record.until("wait started")
        for extension in (True, False):
            client.extension = extension
            left = client.start_stateless("tools/call", {"name": "wait"})
            await trio.testing.wait_all_tasks_blocked()
            assert server.admission.statistics().waiting == 1
            left.disconnect()
            await trio.testing.wait_all_tasks_blocked()
            assert server.admission.statistics().waiting == 0
            assert left.status is None
        record.release.set()
        await running.ended.wait()
        assert record.events == ["wait started", "wait over"]


async def test_the_time_in_the_queue_is_time_of_the_request(autojump_clock):
    server, record = make_server(
        request_timeout=3, load=LoadLimits(max_in_flight=1, queue_length=1, queue_timeout=100)
    )
    async with serving(server) as client:
        for start in (client.start_stateless, (await client.open_session()).start_call):
            begin = [("tools/call", {"name": "wait"})] if start == client.start_stateless else []
            running = start(*(begin[0] if begin else ("wait",)))
            await trio.sleep(1)
            waiting = start(*(begin[0] if begin else ("wait",)), id_=2)
            await waiting.ended.wait()
            await running.ended.wait()
            # The first one gave its place up when its time was over, one second before.
            told = waiting.message()["error"]["data"]
            assert told == {"code": "MCP.TIMEOUT"}
            assert record.events[-2:] == ["wait started", "wait over"]


async def test_callers_take_turns_in_the_queue():
    server, record = queueing(queue_length=10)
    served = []
    async with serving(server, KNOWN) as client:

        async def ask(name, number):
            arguments = {"name": "wait", "arguments": {"label": f"{name}{number}"}}
            await client.stateless("tools/call", arguments, headers=names(name))
            served.append(f"{name}{number}")

        async with trio.open_nursery() as nursery:
            for name, number in [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0)]:
                nursery.start_soon(ask, name, number)
                await trio.testing.wait_all_tasks_blocked()
            record.release.set()
    assert served == ["a0", "a1", "b0", "c0", "a2", "b1"]


# -- a place is given back once, whatever happens ---------------------------------------


def add_troubles(server):
    @server.tool
    async def broken() -> str:
        raise RuntimeError("broken")

    @server.tool
    async def refusing() -> str:
        raise MCPError("no")

    @server.tool
    async def telling() -> str:
        raise ToolError("no")

    @server.tool
    async def leaving() -> str:
        raise SystemExit

    @server.tool
    async def slow() -> str:
        await trio.sleep_forever()
        return ""

    @server.tool
    async def shielded() -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1000)
        return ""


TROUBLES = ("broken", "refusing", "telling", "leaving", "slow", "shielded", "unknown")


@each_channel
async def test_whatever_a_tool_does_its_place_is_given_back(channel, autojump_clock):
    server, _ = make_server(request_timeout=2, cleanup_timeout=1, load=LoadLimits(max_in_flight=1))
    add_troubles(server)
    async with speaking(server, channel, options=HTTPOptions(cleanup_timeout=1)) as speaker:
        for name in TROUBLES:
            await speaker.ask(speaker.call(name, name))
            assert server.admission.statistics().in_flight == 0, name
            await speaker.works()


@each_channel
async def test_what_is_no_proper_request_leaves_no_place_behind(channel):
    server, _ = make_server(load=LoadLimits(max_in_flight=1))
    async with speaking(server, channel) as speaker:
        meta = {"_meta": META} if speaker.stateless else {}
        for method, params in (
            ("nonsense", {}),
            ("tools/call", {"name": "add", "arguments": 7}),
            ("tools/call", {}),
            ("resources/read", {"uri": "x"}),
        ):
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, **meta}}
            assert (await speaker.ask(message))["error"]
            assert server.admission.statistics().in_flight == 0
        await speaker.works()


@pytest.mark.parametrize("queued", [False, True], ids=["runs", "waits"])
@pytest.mark.parametrize("stateless", [False, True], ids=["session", "stateless"])
async def test_what_ends_a_request_at_any_step_leaves_no_place_behind(stateless, queued):
    """Its client leaves, its session ends, or it is cancelled."""
    server, record = make_server(load=LoadLimits(max_in_flight=1, queue_length=1))
    async with serving(server) as client:
        holding = await client.open_session()
        for step in range(16):
            running = holding.start_call("wait", id_=step) if queued else None
            await trio.testing.wait_all_tasks_blocked()
            session = None
            if stateless:
                response = client.start_stateless("tools/call", {"name": "wait"})
            elif not queued:
                session = await client.open_session()
                response = session.start_call("wait")
            else:
                response = holding.start_call("wait", id_=f"q{step}")
            for _ in range(step):
                await trio.lowlevel.checkpoint()
            if session is None:
                response.disconnect()
            else:
                await session.delete()
            if running is not None:
                for id_ in (step, f"q{step}"):
                    params = {"requestId": id_}
                    told = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
                    await holding.post({**told, "params": params})
            await trio.testing.wait_all_tasks_blocked()
            load = server.admission.statistics()
            assert (load.in_flight, load.waiting) == (0, 0), step
        assert record.events == ["wait started", "wait over"] * (len(record.events) // 2)


@each_session
async def test_a_session_that_ends_gives_all_its_places_back(channel):
    server, record = make_server(load=LoadLimits(max_in_flight=3, queue_length=3))
    async with speaking(server, channel) as speaker:
        for id_ in range(6):
            await speaker.say(speaker.call(id_, "wait"))
        await trio.testing.wait_all_tasks_blocked()
        load = server.admission.statistics()
        assert (load.in_flight, load.waiting) == (3, 3)
        assert len(record.events) == 3
        # Leaving the block ends it; the fixture that closes the books looks at the places.


# -- tools -----------------------------------------------------------------------------


def slow_tools(**load):
    server = MCPServer("tools", options=ServerOptions(request_timeout=10, load=LoadLimits(**load)))

    @server.tool(timeout=2)
    async def short() -> str:
        await trio.sleep_forever()
        return ""

    @server.tool(timeout=100)
    async def long(seconds: float) -> str:
        await trio.sleep(seconds)
        return "done"

    @server.tool(max_in_flight=1)
    async def single(seconds: float = 5) -> str:
        await trio.sleep(seconds)
        return "done"

    @server.tool(rate=Rate(per_minute=6, burst=1, per_caller=True))
    async def rare() -> str:
        return "done"

    @server.tool(rate=6)
    async def shared() -> str:
        return "done"

    return server


@each_channel
async def test_a_tool_has_a_time_of_its_own_shorter_or_longer(channel, autojump_clock):
    server = slow_tools(tools={"long": ToolLimits(timeout=50)})
    async with speaking(server, channel) as speaker:
        for name, arguments, seconds in (
            ("short", {}, 2),
            ("long", {"seconds": 49}, None),
            ("long", {"seconds": 51}, 50),
            ("single", {"seconds": 11}, 10),
        ):
            began = trio.current_time()
            answer = await speaker.ask(speaker.call(1, name, **arguments))
            if seconds is None:
                assert text_of(answer) == "done"
            else:
                assert answer["error"]["data"]["code"] == "MCP.TIMEOUT"
                assert trio.current_time() - began == pytest.approx(seconds, abs=0.1)


async def test_the_cleanup_of_a_short_tool_is_bounded_while_a_long_one_runs(autojump_clock):
    server = slow_tools()

    @server.tool(timeout=2)
    async def stubborn() -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1000)
        return ""

    async with serving(server, HTTPOptions(cleanup_timeout=1)) as client:
        long = client.start_stateless("tools/call", {"name": "long", "arguments": {"seconds": 90}})
        await trio.testing.wait_all_tasks_blocked()
        refused = await client.stateless("tools/call", {"name": "stubborn"})
        assert refused.message()["error"]["data"]["code"] == "MCP.TIMEOUT"
        assert trio.current_time() == pytest.approx(3, abs=0.1)
        await long.ended.wait()
        assert text_of(long.message()) == "done"


@each_channel
async def test_a_tool_has_places_of_its_own(channel, autojump_clock):
    server = slow_tools()
    async with speaking(server, channel) as speaker:
        await speaker.say(speaker.call(1, "single"))
        await trio.testing.wait_all_tasks_blocked()
        assert overload(await speaker.ask(speaker.call(2, "single")), "tool_requests") == 1
        assert text_of(await speaker.ask(speaker.call(3, "rare"))) == "done"
        assert text_of(await speaker.hear()) == "done"
        assert text_of(await speaker.ask(speaker.call(4, "single"))) == "done"


async def test_the_rate_of_a_tool_is_of_each_caller_or_of_all(autojump_clock):
    server = slow_tools(tools={"sha*": ToolLimits(rate=Rate(per_minute=30, burst=1))})
    async with serving(server, KNOWN) as client:
        session = await client.open_session()

        async def ask(tool, name=None):
            fields = {} if name is None else names(name)
            answer = await client.stateless("tools/call", {"name": tool}, headers=fields)
            return answer.status, answer.headers.get("retry-after")

        assert await ask("rare", "ann") == (200, None)
        assert await ask("rare", "ann") == (429, "10")
        assert await ask("rare", "bob") == (200, None)
        assert await ask("rare") == (200, None)
        assert await ask("shared", "ann") == (200, None)
        assert await ask("shared", "bob") == (503, "2")
        answer = await session.call("shared")
        assert (answer.status, answer.headers["retry-after"]) == (503, "2")
        assert overload(answer.json(), "tool_rate") == 2
        refusals = server.admission.statistics().refusals
        assert refusals == {"caller_tool_rate": 1, "tool_rate": 2}


async def test_who_may_not_call_a_tool_uses_nothing_of_its_rate():
    server = slow_tools()

    @server.authorize
    async def only_ann(context):
        return context.principal is not None and context.principal.subject == "ann"

    async with serving(server, KNOWN) as client:
        for name, status in (("bob", 403), ("ann", 200), ("ann", 429)):
            answer = await client.stateless("tools/call", {"name": "rare"}, headers=names(name))
            assert answer.status == status


async def test_a_tool_that_is_called_through_the_search_has_its_own_limits(autojump_clock):
    class Few:
        """A provider of two tools."""

        ttl = 0

        def __init__(self, tools):
            self.tools = tools

        def bind(self, host):
            pass

        async def freshen(self):
            pass

    inner = slow_tools()
    entries = {name: inner.tools.find(name) for name in ("rare", "single", "short")}
    server = MCPServer("searching", options=ServerOptions(request_timeout=10))
    tools = ToolSet(revision="1", entries=entries)
    server.add_provider(SearchableTools(Few(tools), above=1))
    async with serving(server, KNOWN) as client:

        def start(name, who="ann"):
            call = {"name": "call_tool", "arguments": {"name": name}}
            return client.start_stateless("tools/call", call, headers=names(who))

        async def ask(name, who="ann"):
            answer = start(name, who)
            await answer.ended.wait()
            return answer

        assert (await ask("rare")).status == 200
        assert (await ask("rare")).headers["retry-after"] == "10"
        assert (await ask("rare", "bob")).status == 200
        running = start("single")
        await trio.testing.wait_all_tasks_blocked()
        assert (await ask("single", "bob")).status == 503
        await running.ended.wait()
        began = trio.current_time()
        assert (await ask("short")).message()["error"]["data"]["code"] == "MCP.TIMEOUT"
        assert trio.current_time() - began == pytest.approx(2, abs=0.1)


# -- seen by who watches ---------------------------------------------------------------


@each_channel
async def test_every_refusal_is_an_event_with_its_limit(channel, autojump_clock):
    limits = LoadLimits(max_in_flight=1, queue_length=1, queue_timeout=1)
    server, record = make_server(load=limits)

    @server.tool(rate=Rate(per_minute=1, burst=1))
    async def seldom() -> str:
        return "done"

    seen = []

    def listen(event):
        if isinstance(event, RequestRefused):
            seen.append((event.side, event.method, event.limit))

    with server.events.attach(listen):
        async with speaking(server, channel) as speaker:
            for id_ in (1, 2, 3):
                await speaker.say(speaker.call(id_, "wait"))
            heard = [await speaker.hear() for _ in range(2)]
            assert [(each["id"], overload(each, "requests")) for each in heard] == [(3, 1), (2, 1)]
            record.release.set()
            assert (await speaker.hear())["id"] == 1
            assert (await speaker.ask(speaker.call(4, "seldom")))["result"]
            assert overload(await speaker.ask(speaker.call(5, "seldom")), "tool_rate") == 60
    told = [("server", "tools/call", limit) for limit in ("requests", "requests", "tool_rate")]
    assert seen == told
    assert server.admission.statistics().refusals == {"requests": 2, "tool_rate": 1}


async def test_servers_that_share_an_admission_have_one_limit_together():
    one, record = make_server(load=LoadLimits(max_in_flight=1))
    other, _ = make_server()
    other.admission = one.admission
    async with serving(one) as first, serving(other) as second:
        running = first.start_stateless("tools/call", {"name": "wait"})
        await record.until("wait started")
        assert (await second.stateless("server/discover")).status == 503
        record.release.set()
        await running.ended.wait()
        assert (await second.stateless("server/discover")).status == 200


# -- cheap, and flat -------------------------------------------------------------------


FULL = LoadLimits(max_in_flight_per_session=1, max_in_flight_per_caller=1)


@contextlib.contextmanager
def flat(limit):
    """Insist that the block keeps no more memory than it had.

    Trio keeps up to 1000 deadlines that are over, some hundred bytes each.
    """
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - before < limit


async def test_ten_thousand_refusals_over_http_leave_memory_flat_and_others_are_served(
    autojump_clock,
):
    server, record = make_server(load=FULL)
    params = {"name": "wait", "arguments": {}, "_meta": META}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    message = {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}
    fields = {**BASE, "mcp-protocol-version": STATELESS, "mcp-method": "tools/call"}
    fields["mcp-name"] = "wait"
    statuses = Counter()

    async def receive():
        await trio.lowlevel.checkpoint()
        return message

    async def send(event):
        await trio.lowlevel.checkpoint()
        if event["type"] == "http.response.start":
            statuses[event["status"]] += 1

    async with serving(server, KNOWN) as client:
        running = client.start_stateless("tools/call", {"name": "wait"})
        await record.until("wait started")
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
            "client": None,
        }

        async def flood(count):
            for _ in range(count):
                await client.app(dict(scope), receive, send)

        await flood(100)
        with flat(1_000_000):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(flood, 10_000)
                arguments = {"name": "add", "arguments": {"a": 1, "b": 1}}
                bob = await client.stateless("tools/call", arguments, headers=names("bob"))
                assert bob.status == 200
                served_after = statuses[429]
        assert statuses == {429: 10_100}
        assert served_after < 1000  # nobody waits behind those who are refused
        assert trio.current_time() < 1
        load = server.admission.statistics()
        assert (load.in_flight, load.waiting, load.rated) == (1, 0, 0)
        record.release.set()
        await running.ended.wait()


async def test_thousands_of_refusals_on_a_line_leave_memory_flat(autojump_clock):
    server, record = make_server(load=FULL)
    async with speaking(server, "lines") as speaker:
        await speaker.say(speaker.call("first", "wait"))
        await record.until("wait started")

        async def flood(rounds):
            for _ in range(rounds):
                await speaker.peer.say(*[speaker.call(id_, "wait") for id_ in range(100)])
                for _ in range(100):
                    assert overload(await speaker.hear(), "session_requests") == 1

        await flood(1)
        with flat(300_000):
            await flood(30)
        assert trio.current_time() < 1
        record.release.set()
        assert (await speaker.hear())["id"] == "first"


async def test_a_large_body_over_the_limit_is_refused_unread_with_its_id(monkeypatch):
    server, record = make_server(load=LoadLimits(max_in_flight_per_caller=1))
    read = []
    async with serving(server, KNOWN) as client:
        decode = __import__("mcp_trio.jsonrpc.codec", fromlist=["decode"]).decode
        monkeypatch.setattr(
            "mcp_trio.http.app.codec.decode", lambda *args: read.append(1) or decode(*args)
        )

        def start(size, name="ann", method="tools/call"):
            params = {"name": "wait", "arguments": {"label": "x" * size}, "_meta": META}
            body = {"jsonrpc": "2.0", "id": "big", "method": method, "params": params}
            fields = {
                "mcp-protocol-version": STATELESS,
                "mcp-method": method,
                "mcp-name": "wait",
            }
            return client.start_post(body, {**fields, **names(name)})

        running = start(100_000)
        await trio.testing.wait_all_tasks_blocked()
        assert read == [1]
        refused = start(100_000)
        await refused.ended.wait()
        assert (refused.status, refused.json()["id"]) == (429, "big")
        assert read == [1]
        assert server.admission.statistics().refusals == {"caller_requests": 1}
        small = start(10)
        await small.ended.wait()
        assert (small.status, read) == (429, [1, 1])
        bob = start(100_000, "bob")
        await trio.testing.wait_all_tasks_blocked()
        assert read == [1, 1, 1]
        record.release.set()
        for each in (running, bob):
            await each.ended.wait()
            assert each.status == 200


async def test_ten_thousand_slow_calls_on_one_connection_are_bounded():
    server, record = make_server(load=LoadLimits(max_in_flight_per_session=100, queue_length=50))
    async with speaking(server, "lines") as speaker:
        refused = 0
        for chunk in range(100):
            calls = [speaker.call(chunk * 100 + id_, "wait") for id_ in range(100)]
            await speaker.peer.say(*calls)
            await trio.testing.wait_all_tasks_blocked()
            load = server.admission.statistics()
            assert (load.in_flight, load.waiting) == (100, min(50, chunk * 100))
            while refused < (chunk + 1) * 100 - 150:
                overload(await speaker.hear(), "session_requests")
                refused += 1
        assert record.events == ["wait started"] * 100
        record.release.set()
        assert all([(await speaker.hear())["result"] for _ in range(150)])
