import contextlib
import math

import pytest
import trio
import trio.testing

from mcp_trio import (
    Dispatcher,
    FunctionHandler,
    MCPClient,
    MCPServer,
    MemoryTransport,
    RemoteError,
    SessionLimits,
)
from mcp_trio.engine.envelope import Envelope
from mcp_trio.errors import (
    AlreadyConnectedError,
    InvalidParamsError,
    ProtocolError,
    RequestTimeoutError,
    TransportClosedError,
    TransportError,
)
from mcp_trio.events import NotificationReceived
from mcp_trio.jsonrpc.messages import Batch, Error, Notification, Request, Result
from mcp_trio.session.session import AT_ONCE
from mcp_trio.testing import FaultyTransport, ScriptedPeer


class Handlers:
    """A side with methods that tests need, and a record of what happened in them."""

    def __init__(self):
        self.events = []
        self.notified = []
        self.release = trio.Event()

    async def request(self, method, params, inbound):
        match method:
            case "echo":
                return params
            case "wait":
                self.events.append("started")
                try:
                    await self.release.wait()
                finally:
                    self.events.append("over")
                return {"released": True}
            case "fail":
                raise RuntimeError("the password is hunter2")
            case "unspeakable":
                return {"text": "\ud800"}
            case "refuse":
                raise InvalidParamsError("not like this", data={"why": "because"})
            case "progress":
                for value in params["values"]:
                    await inbound.notify(
                        "notifications/progress",
                        {"progressToken": params["_meta"]["progressToken"], "progress": value},
                    )
                return {}
        raise AssertionError(method)

    def handler(self):
        return FunctionHandler(
            self.request, lambda method, params: self.notified.append((method, params))
        )


@contextlib.asynccontextmanager
async def two_dispatchers(left=None, right=None, **options):
    a, b = MemoryTransport.pair()
    one = Dispatcher(a, left.handler() if left else None, **options)
    two = Dispatcher(b, right.handler() if right else None, **options)
    async with trio.open_nursery() as nursery:
        await nursery.start(one.run)
        await nursery.start(two.run)
        yield one, two
        nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def scripted(handlers=None, wrap=lambda transport: transport, *, batches=False, **options):
    """Our dispatcher on one end, a script on the other."""
    a, b = MemoryTransport.pair()
    handler = handlers.handler() if handlers else None
    if batches:
        handler.batches = True
    dispatcher = Dispatcher(wrap(a), handler, **options)
    async with trio.open_nursery() as nursery:
        await nursery.start(dispatcher.run)
        yield dispatcher, ScriptedPeer(b)
        nursery.cancel_scope.cancel()
    await b.aclose()


async def test_both_sides_call_each_other_at_once():
    async with two_dispatchers(Handlers(), Handlers()) as (one, two):
        assert await one.call("echo", {"from": "one"}) == {"from": "one"}
        assert await two.call("echo", {"from": "two"}) == {"from": "two"}


async def test_concurrent_calls_get_their_own_answers():
    async with two_dispatchers(None, Handlers()) as (one, _):
        got = {}

        async def ask(number):
            got[number] = await one.call("echo", {"number": number})

        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(ask, number)
        assert got == {number: {"number": number} for number in range(50)}


async def test_an_unexpected_exception_is_masked_with_a_reference():
    async with two_dispatchers(None, Handlers()) as (one, _):
        with pytest.raises(RemoteError) as caught:
            await one.call("fail")
        assert caught.value.rpc_code == -32603
        assert "hunter2" not in str(caught.value)
        assert caught.value.data["reference"] in str(caught.value)


async def test_an_error_of_ours_travels_with_code_and_data():
    async with two_dispatchers(None, Handlers()) as (one, _):
        with pytest.raises(RemoteError, match="not like this") as caught:
            await one.call("refuse")
        assert caught.value.rpc_code == -32602
        assert caught.value.data == {"code": "MCP.INVALID_PARAMS", "why": "because"}


async def test_a_side_without_a_handler_knows_no_method():
    async with two_dispatchers() as (one, _):
        with pytest.raises(RemoteError) as caught:
            await one.call("anything")
        assert caught.value.rpc_code == -32601


async def test_leaving_a_call_tells_the_peer_and_ends_its_task():
    handlers = Handlers()
    async with two_dispatchers(None, handlers) as (one, two):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.call, "wait")
                await trio.testing.wait_all_tasks_blocked()
                assert two.statistics().in_flight == 1
                scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert handlers.events == ["started", "over"]
        assert two.statistics().in_flight == one.statistics().pending == 0


async def test_a_timeout_is_an_error_of_its_own_and_cancels_the_peer(autojump_clock):
    handlers = Handlers()
    async with two_dispatchers(None, handlers) as (one, _):
        with pytest.raises(RequestTimeoutError, match="wait was not answered within 3 s"):
            await one.call("wait", timeout=3)
        assert trio.current_time() == pytest.approx(3)
        await trio.testing.wait_all_tasks_blocked()
        assert handlers.events == ["started", "over"]


async def test_cancelled_is_sent_once_with_the_id_of_the_call(autojump_clock):
    async with scripted() as (dispatcher, peer):
        with trio.move_on_after(1):
            await dispatcher.call("slow")
        request = await peer.hear()
        assert isinstance(request, Request)
        told = await peer.hear()
        assert told == Notification(
            "notifications/cancelled",
            {"requestId": request.id, "reason": "the caller went away"},
        )
        await peer.hear_nothing()


async def test_initialize_is_never_cancelled_on_the_wire(autojump_clock):
    async with scripted() as (dispatcher, peer):
        with pytest.raises(RequestTimeoutError):
            await dispatcher.call("initialize", timeout=1)
        assert isinstance(await peer.hear(), Request)
        await peer.hear_nothing()


async def test_telling_a_stuck_peer_of_a_cancel_takes_a_second_at_most(autojump_clock):
    faulty = []

    def wrap(transport):
        faulty.append(FaultyTransport(transport))
        return faulty[0]

    async with scripted(wrap=wrap) as (dispatcher, peer):
        async with trio.open_nursery() as nursery:

            async def call():
                with trio.move_on_after(1):
                    await dispatcher.call("slow")

            nursery.start_soon(call)
            await trio.testing.wait_all_tasks_blocked()
            faulty[0].stall()
        assert trio.current_time() == pytest.approx(2)
        assert dispatcher.statistics().pending == 0
        assert isinstance(await peer.hear(), Request)


async def test_a_late_answer_is_dropped_and_counted(autojump_clock):
    async with scripted() as (dispatcher, peer):
        with trio.move_on_after(1):
            await dispatcher.call("slow")
        request = await peer.hear()
        await peer.hear()
        await peer.say(Result(request.id, {}))
        await trio.testing.wait_all_tasks_blocked()
        assert dispatcher.statistics().late_answers == 1


async def test_a_cancelled_request_gets_no_answer_and_others_go_on():
    handlers = Handlers()
    async with scripted(handlers) as (dispatcher, peer):
        await peer.ask(1, "wait")
        await trio.testing.wait_all_tasks_blocked()
        await peer.tell("notifications/cancelled", {"requestId": 1, "reason": "enough"})
        await peer.hear_nothing()
        assert handlers.events == ["started", "over"]
        await peer.ask(2, "echo", {"still": "there"})
        assert (await peer.hear_result()).result == {"still": "there"}
        assert dispatcher.statistics().in_flight == 0


@pytest.mark.parametrize(
    "params",
    [{}, {"requestId": 99}, {"requestId": "1"}, {"requestId": None}, {"requestId": [1]}, None],
)
async def test_a_cancel_of_nothing_is_ignored(params):
    handlers = Handlers()
    async with scripted(handlers) as (_, peer):
        await peer.ask(1, "wait")
        await peer.tell("notifications/cancelled", params)
        await peer.hear_nothing()
        handlers.release.set()
        assert (await peer.hear_result()).id == 1


async def test_number_and_string_ids_are_two_requests():
    handlers = Handlers()
    async with scripted(handlers) as (_, peer):
        await peer.ask(7, "wait")
        await peer.ask("7", "wait")
        await trio.testing.wait_all_tasks_blocked()
        await peer.tell("notifications/cancelled", {"requestId": "7"})
        await trio.testing.wait_all_tasks_blocked()
        handlers.release.set()
        answer = await peer.hear_result()
        assert answer.id == 7
        assert type(answer.id) is int
        await peer.hear_nothing()


async def test_an_id_that_is_still_running_is_refused_and_can_be_used_again_later():
    handlers = Handlers()
    async with scripted(handlers) as (_, peer):
        await peer.ask(1, "wait")
        await peer.ask(1, "echo")
        refused = await peer.hear_error()
        assert (refused.id, refused.code) == (1, -32600)
        handlers.release.set()
        assert (await peer.hear_result()).result == {"released": True}
        await peer.ask(1, "echo", {"again": True})
        assert (await peer.hear_result()).result == {"again": True}


async def test_one_request_too_many_is_refused_with_a_hint():
    handlers = Handlers()
    async with scripted(handlers, limits=SessionLimits(max_in_flight=2)) as (_, peer):
        for number in range(3):
            await peer.ask(number, "wait")
        refused = await peer.hear_error()
        assert (refused.id, refused.code) == (2, -32603)
        assert refused.data["reason"] == "overloaded"
        handlers.release.set()
        assert {(await peer.hear_result()).id for _ in range(2)} == {0, 1}


async def test_progress_reaches_the_caller_in_order_and_before_the_answer():
    seen = []
    async with two_dispatchers(None, Handlers()) as (one, _):
        await one.call(
            "progress",
            {"values": [1, 2, 2, 1, 3.5]},
            on_progress=lambda value, total, message: seen.append((value, total, message)),
        )
    assert seen == [(1, None, None), (2, None, None), (3.5, None, None)]


async def test_a_progress_callback_may_be_async_and_may_raise():
    async def callback(value, _total, _message):
        await trio.lowlevel.checkpoint()
        if value == 2:
            raise ValueError("I do not like this number")

    handlers = Handlers()
    async with two_dispatchers(None, handlers) as (one, two):
        with pytest.raises(ValueError, match="do not like"):
            await one.call("progress", {"values": [1, 2, 3]}, on_progress=callback)
        assert one.statistics().pending == 0
        assert await one.call("echo", {"a": 1}) == {"a": 1}
        assert two.statistics().in_flight == 0


@pytest.mark.parametrize(
    "params",
    [{}, {"progressToken": 1}, {"progressToken": "1", "progress": 1}, {"progress": True}, None],
)
async def test_malformed_progress_is_ignored(params):
    async with scripted() as (dispatcher, peer):
        async with trio.open_nursery() as nursery:
            seen = []

            async def call():
                await dispatcher.call("m", on_progress=lambda *report: seen.append(report))

            nursery.start_soon(call)
            request = await peer.hear()
            await peer.tell("notifications/progress", params)
            await peer.say(Result(request.id, {}))
        assert seen == []


async def test_a_closing_peer_fails_what_waits_for_it():
    async with scripted() as (dispatcher, peer):
        failures = []

        async def call():
            try:
                await dispatcher.call("m")
            except TransportError as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            nursery.start_soon(call)
            await trio.testing.wait_all_tasks_blocked()
            await peer.transport.aclose()
        assert len(failures) == 2
        with pytest.raises(TransportError):
            await dispatcher.call("m")
        with pytest.raises(TransportError):
            await dispatcher.notify("m")


async def test_a_call_that_is_being_sent_when_the_peer_closes_says_who_did():
    class Narrow:
        """Takes nothing, until it is closed."""

        def __init__(self):
            self.gone, self.closed = trio.Event(), trio.Event()

        async def send(self, envelope):
            await self.closed.wait()
            raise TransportClosedError("this end is closed")

        async def receive(self):
            await self.gone.wait()
            raise trio.EndOfChannel("the peer is gone")

        async def pump(self):
            await trio.sleep_forever()

        def abandon(self, request_id):
            return False

        async def aclose(self):
            self.closed.set()
            await trio.lowlevel.checkpoint()

    line = Narrow()
    session = Dispatcher(line)

    async def call():
        with pytest.raises(TransportError, match="the peer is gone"):
            await session.call("any")

    async with trio.open_nursery() as nursery:
        await nursery.start(session.run)
        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        line.gone.set()


async def test_a_closing_peer_ends_its_requests_here():
    handlers = Handlers()
    async with scripted(handlers) as (_, peer):
        await peer.ask(1, "wait")
        await trio.testing.wait_all_tasks_blocked()
        await peer.transport.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert handlers.events == ["started", "over"]


async def test_after_the_end_of_input_requests_have_the_time_they_are_given(autojump_clock):
    handlers = Handlers()

    class HalfClosed:
        """A line whose incoming half ends after one request."""

        def __init__(self):
            self.sent = []
            self.incoming = [Request(1, "wait")]

        async def send(self, envelope):
            self.sent.append(envelope.message)
            await trio.lowlevel.checkpoint()

        async def receive(self):
            from mcp_trio.engine.envelope import Envelope

            await trio.lowlevel.checkpoint()
            if not self.incoming:
                raise trio.EndOfChannel
            return Envelope(self.incoming.pop())

        def abandon(self, request_id):
            return False

        async def pump(self):
            await trio.lowlevel.checkpoint()

        async def aclose(self):
            await trio.lowlevel.checkpoint()

    for grace, released_after, answers in ((0.5, 0.2, 1), (0.5, 0.8, 0), (0, 0.2, 0)):
        handlers = Handlers()
        line = HalfClosed()
        dispatcher = Dispatcher(line, handlers.handler(), limits=SessionLimits(drain_on_eof=grace))
        began = trio.current_time()
        async with trio.open_nursery() as nursery:

            async def release(event=handlers.release, after=released_after):
                await trio.sleep(after)
                event.set()

            nursery.start_soon(release)
            await dispatcher.run()
            assert trio.current_time() - began == pytest.approx(min(grace, released_after))
            nursery.cancel_scope.cancel()
        assert len(line.sent) == answers
        assert handlers.events == ["started", "over"]


async def test_using_a_dispatcher_that_does_not_run_is_an_error():
    a, b = MemoryTransport.pair()
    dispatcher = Dispatcher(a)
    with pytest.raises(TransportClosedError):
        await dispatcher.call("m")
    await a.aclose()
    await b.aclose()


async def test_running_twice_is_an_error():
    async with two_dispatchers() as (one, _):
        with pytest.raises(AlreadyConnectedError):
            await one.run()


async def test_bad_input_is_answered_and_the_session_goes_on():
    handlers = Handlers()
    async with scripted(handlers) as (dispatcher, peer):
        # The memory line carries bytes, so a test can put any there.
        for raw, code in (
            (b"{not json", -32700),
            (b'"\xff"', -32700),
            (b'{"jsonrpc":"2.0","id":null,"method":"m"}', -32600),
            (b"[]", -32600),
            (b"[" * 100_000, -32600),
        ):
            await peer.transport._outgoing.send(raw)
            answer = await peer.hear_error()
            assert (answer.id, answer.code) == (None, code)
        await peer.ask(1, "echo", {"fine": True})
        assert (await peer.hear_result()).result == {"fine": True}
        assert dispatcher.statistics().malformed == 5


async def test_a_malformed_answer_is_not_answered():
    async with scripted(Handlers()) as (dispatcher, peer):
        await peer.transport._outgoing.send(b'{"jsonrpc":"2.0","id":1,"result":3}')
        await peer.hear_nothing()
        assert dispatcher.statistics().malformed == 1


async def test_a_batch_is_refused_as_a_whole_where_there_are_none():
    async with scripted(Handlers()) as (_, peer):
        await peer.say(Batch((Request(1, "echo"), Notification("n"))))
        answer = await peer.hear_error()
        assert (answer.id, answer.code) == (None, -32600)
        await peer.hear_nothing()


async def test_batches_are_answered_by_one_batch():
    handlers = Handlers()
    async with scripted(handlers, batches=True) as (_, peer):
        await peer.say(
            Batch((Request(1, "echo", {"n": 1}), Notification("n"), Request(2, "refuse")))
        )
        answer = await peer.hear()
        assert isinstance(answer, Batch)
        assert {item.id: type(item) for item in answer.items} == {1: Result, 2: Error}
        assert handlers.notified == [("n", {})]
        await peer.say(Batch((Notification("n"), Notification("n"))))
        await peer.hear_nothing()
        await peer.transport._outgoing.send(b'[1, {"jsonrpc":"2.0","id":5,"method":"echo"}]')
        answer = await peer.hear()
        assert {item.id for item in answer.items} == {None, 5}
        await peer.say(Batch((Request(1, "initialize"),)))
        assert (await peer.hear()).items[0].code == -32600
        await peer.say(Batch((Request(8, "wait"), Request(9, "echo"))))
        await trio.testing.wait_all_tasks_blocked()
        await peer.tell("notifications/cancelled", {"requestId": 8})
        assert [item.id for item in (await peer.hear()).items] == [9]


async def test_a_result_that_json_cannot_carry_is_an_internal_error():
    async def request(_method, _params, _inbound):
        return {"text": "\ud800"}

    a, b = MemoryTransport.pair()
    dispatcher = Dispatcher(a, FunctionHandler(request))
    peer = ScriptedPeer(b)
    async with trio.open_nursery() as nursery:
        await nursery.start(dispatcher.run)
        await peer.ask(1, "m")
        answer = await peer.hear_error()
        assert (answer.id, answer.code) == (1, -32603)
        nursery.cancel_scope.cancel()
    await b.aclose()


async def test_a_peer_that_asks_and_never_reads_is_not_read_from_for_ever(autojump_clock):
    async with scripted(Handlers(), limits=SessionLimits(max_in_flight=10)) as (dispatcher, peer):
        sent = 0
        with trio.move_on_after(5):
            while True:
                await peer.ask(sent, "echo")
                sent += 1
        # 64 answers and 64 questions fit the line's buffers, the rest waits in bounded tasks.
        assert sent < 64 * 2 + 2 * 10 + 10
        assert dispatcher._tasks <= 2 * 10 + 1
        for _ in range(sent):
            await peer.hear()


async def test_ten_thousand_requests_cancelled_at_once_leave_nothing():
    handlers = Handlers()
    async with two_dispatchers(None, handlers, limits=SessionLimits(max_in_flight=20_000)) as (
        one,
        two,
    ):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                for _ in range(10_000):
                    nursery.start_soon(one.call, "wait")
                await trio.testing.wait_all_tasks_blocked()
                assert two.statistics().in_flight == 10_000
                scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert (one.statistics().pending, two.statistics().in_flight) == (0, 0)
        assert handlers.events.count("over") == 10_000
        assert two._tasks == 0


@pytest.mark.parametrize("step", range(1, 12))
async def test_a_call_cancelled_at_any_step_leaves_nothing(step):
    handlers = Handlers()
    async with two_dispatchers(None, handlers) as (one, two):
        handlers.release.set()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.call, "wait")
                for _ in range(step):
                    await trio.lowlevel.checkpoint()
                scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert (one.statistics().pending, two.statistics().in_flight) == (0, 0)
        assert await one.call("echo", {"a": 1}) == {"a": 1}


async def test_shielded_cleanup_is_bounded(autojump_clock):
    events = []

    async def request(_method, _params, _inbound):
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                try:
                    await trio.sleep(1000)
                finally:
                    events.append(trio.current_time())
        return {}

    a, b = MemoryTransport.pair()
    dispatcher = Dispatcher(a, FunctionHandler(request), limits=SessionLimits(cleanup_timeout=4))
    peer = ScriptedPeer(b)
    async with trio.open_nursery() as nursery:
        await nursery.start(dispatcher.run)
        await peer.ask(1, "m")
        await trio.testing.wait_all_tasks_blocked()
        await peer.tell("notifications/cancelled", {"requestId": 1})
        await trio.sleep(3)
        assert events == []
        await trio.sleep(2)
        assert events == [pytest.approx(4)]
        assert dispatcher.statistics().shields_lifted == 1
        await peer.hear_nothing()
        nursery.cancel_scope.cancel()
    await b.aclose()


@pytest.mark.parametrize("how", ["peer closes", "outer cancel", "session cancel"])
async def test_shielded_cleanup_is_bounded_however_the_session_ends(autojump_clock, how):
    async def child():
        with trio.CancelScope(shield=True):
            await trio.sleep(1000)

    async def request(_method, _params, _inbound):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
            await trio.sleep_forever()
        return {}

    a, b = MemoryTransport.pair()
    dispatcher = Dispatcher(a, FunctionHandler(request), limits=SessionLimits(cleanup_timeout=4))
    peer = ScriptedPeer(b)
    async with trio.open_nursery() as nursery:
        await nursery.start(dispatcher.run)
        await peer.ask(1, "m")
        await trio.testing.wait_all_tasks_blocked()
        match how:
            case "peer closes":
                await b.aclose()
            case "outer cancel":
                nursery.cancel_scope.cancel()
            case "session cancel":
                dispatcher.cancel()
    assert trio.current_time() == pytest.approx(4)
    assert dispatcher.statistics().shields_lifted == 1
    await b.aclose()


async def test_cleanup_that_ends_in_time_is_left_alone(autojump_clock):
    done = []

    async def request(_method, _params, _inbound):
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)
                done.append(True)
        return {}

    a, b = MemoryTransport.pair()
    dispatcher = Dispatcher(a, FunctionHandler(request), limits=SessionLimits(cleanup_timeout=4))
    async with trio.open_nursery() as nursery:
        await nursery.start(dispatcher.run)
        await ScriptedPeer(b).ask(1, "m")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert done == [True]
    assert dispatcher.statistics().shields_lifted == 0
    await b.aclose()


async def test_infinity_is_the_default_timeout(autojump_clock):
    handlers = Handlers()
    async with two_dispatchers(None, handlers) as (one, _):
        with trio.move_on_after(1e6) as limit:
            await one.call("wait", timeout=math.inf)
        assert limit.cancelled_caught


async def test_an_answer_that_cannot_be_read_fails_its_call():
    async with scripted() as (dispatcher, peer):
        async with trio.open_nursery() as nursery:
            failures = []

            async def call():
                try:
                    await dispatcher.call("m")
                except ProtocolError as error:
                    failures.append(error)

            nursery.start_soon(call)
            request = await peer.hear()
            await peer.transport._outgoing.send(
                b'{"jsonrpc":"2.0","id":%d,"result":null}' % request.id
            )
        assert len(failures) == 1
        await peer.hear_nothing()


async def test_in_a_batch_only_the_result_that_json_cannot_carry_is_lost():
    async with scripted(Handlers(), batches=True) as (_, peer):
        await peer.say(Batch((Request(1, "unspeakable"), Request(2, "echo", {"n": 1}))))
        answer = await peer.hear()
        assert {item.id: type(item) for item in answer.items} == {1: Error, 2: Result}


async def test_a_session_that_has_ended_takes_no_request_any_more():
    a, b = MemoryTransport.pair()
    dispatcher = Dispatcher(a, Handlers().handler())
    await b.aclose()
    await dispatcher.run()
    dispatcher.feed(Envelope(Request(1, "echo")))
    assert dispatcher.statistics().in_flight == 0


@pytest.mark.parametrize("meta", [7, "x", [1]])
async def test_a_call_whose_meta_is_none_fails_here_and_leaves_nothing(meta):
    server = MCPServer("s")
    seen = []
    async with MCPClient(server) as client:
        with server.events.attach(seen.append), pytest.raises((TypeError, ValueError)):
            await client.call("tools/list", {"_meta": meta}, on_progress=lambda *_: None)
        await trio.testing.wait_all_tasks_blocked()
        assert client.session.statistics().pending == 0
    assert not any(isinstance(each, NotificationReceived) for each in seen)


class Flood:
    """A peer that sends `ping` without end and reads no answer."""

    kind = "flood"

    def __init__(self):
        self.sent = 0

    async def receive(self):
        await trio.lowlevel.checkpoint()
        self.sent += 1
        return Envelope(Request(self.sent, "ping"))

    async def send(self, envelope):
        await trio.sleep_forever()

    def abandon(self, request_id):
        return False

    async def pump(self):
        await trio.sleep_forever()

    async def aclose(self):
        await trio.lowlevel.checkpoint()


async def never(method, params, inbound):
    await trio.sleep_forever()


@pytest.mark.parametrize("handler", [FunctionHandler(never), None])
async def test_a_flood_that_takes_no_place_is_read_no_faster_than_it_is_answered(handler):
    """Whether its requests still run or their answers wait: each is a task among all others."""
    flood = Flood()
    async with trio.open_nursery() as nursery:
        await nursery.start(Dispatcher(flood, handler).run)
        with trio.move_on_after(2):
            await trio.testing.wait_all_tasks_blocked()
        assert flood.sent == AT_ONCE + 1
        nursery.cancel_scope.cancel()
