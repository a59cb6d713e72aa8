"""Clients on Unix sockets and TCP: one session per connection, bounded, and cleaned up."""

import contextlib
import json
import socket
import stat

import pytest
import trio
import trio.testing

from mcp_trio import ClientOptions, MCPClient
from mcp_trio.errors import ConfigurationError, TransportError
from mcp_trio.server.line_servers import MAX_REFUSALS, LineOptions
from mcp_trio.wire import REVISIONS
from tests.http.serving_tools import LockstepListener, MemoryListener
from tests.http.tools import make_server
from tests.messages import PING, PONG, initialize

INITIALIZE = initialize()


class Peer:
    """A client that writes and reads lines."""

    def __init__(self, stream):
        self.stream = stream
        self._read = b""

    async def say(self, *messages):
        lines = [m if isinstance(m, bytes) else json.dumps(m).encode() for m in messages]
        await self.stream.send_all(b"".join(line + b"\n" for line in lines))

    async def hear(self):
        """The next message; None at the end."""
        while b"\n" not in self._read:
            data = await self.stream.receive_some()
            if not data:
                assert not self._read
                return None
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return json.loads(line)

    async def ask(self, message):
        await self.say(message)
        return await self.hear()

    async def call(self, name, *, id_=1, **arguments):
        params = {"name": name, "arguments": arguments}
        await self.say({"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params})


@contextlib.asynccontextmanager
async def serving(server, listener=None, **options):
    """Serve a memory listener; gives a function that connects. Nothing may be left."""
    listener = listener or MemoryListener()
    returned = trio.Event()

    async def serve(*, task_status):
        await server.serve_lines(
            [listener], options=LineOptions(**options), task_status=task_status
        )
        returned.set()

    async def connect(*, initialized=True):
        peer = Peer(await listener.connect())
        if initialized:
            assert (await peer.ask(INITIALIZE))["result"]
            await peer.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return peer

    async with trio.open_nursery() as nursery:
        await nursery.start(serve)
        connect.returned = returned
        with trio.fail_after(5000):
            yield connect
        nursery.cancel_scope.cancel()
    assert server._services == []
    assert len(server.notices) == 0


# -- sessions -------------------------------------------------------------------------


async def test_each_connection_is_a_session_of_its_own():
    server, record = make_server()
    async with serving(server) as connect:
        one, two = await connect(), await connect()
        await one.call("wait", label="one")
        await two.call("wait", label="two")
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(record.events) == ["one started", "two started"]
        await one.say(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        )
        await trio.testing.wait_all_tasks_blocked()
        assert "one over" in record.events
        record.release.set()
        assert (await two.hear())["result"]["structuredContent"] == {"result": "two"}
        assert await one.ask(PING) == PONG


async def test_one_connection_too_many_is_told_so_and_closed():
    server, _ = make_server()
    async with serving(server, max_sessions=1) as connect:
        first = await connect()
        refused = await connect(initialized=False)
        told = await refused.hear()
        assert told.get("id") is None
        assert "sessions" in told["error"]["message"]
        assert await refused.hear() is None
        await refused.stream.aclose()
        await first.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        await connect()


async def test_a_flood_of_refusals_costs_a_bounded_number_of_tasks(autojump_clock):
    server, _ = make_server()
    async with serving(server, max_sessions=0) as connect:
        peers = [await connect(initialized=False) for _ in range(MAX_REFUSALS + 5)]
        await trio.testing.wait_all_tasks_blocked()
        told = [await peer.hear() for peer in peers]
        assert told.count(None) == 5
        await trio.sleep(3)
        assert [await peer.hear() for peer in peers] == [None] * len(peers)


async def test_a_client_that_stops_sending_still_gets_the_answers_that_come_soon(autojump_clock):
    server, record = make_server()
    async with serving(server, eof_grace=5) as connect:
        peer = await connect()
        await peer.call("wait")
        await record.until("wait started")
        await peer.stream.send_eof()
        await trio.sleep(4)
        record.release.set()
        assert (await peer.hear())["result"]
        assert await peer.hear() is None


async def test_a_client_that_leaves_ends_its_calls(autojump_clock):
    server, record = make_server()
    async with serving(server) as connect:
        peer = await connect()
        await peer.call("wait")
        await record.until("wait started")
        began = trio.current_time()
        await peer.stream.aclose()
        await record.until("wait started", "wait over")
        assert trio.current_time() - began == pytest.approx(0.5)


async def test_bad_lines_are_answered_and_the_session_goes_on():
    server, _ = make_server()
    async with serving(server, max_line=1000) as connect:
        peer = await connect()
        for bad in (b"{", b"[]", b"\xff", b"x" * 2000):
            assert (await peer.ask(bad))["error"]["code"] in {-32700, -32600}
        assert await peer.ask(PING) == PONG


@pytest.mark.parametrize("first", [b"POST / HTTP/1.1", b"\x16\x03\x01\x02", b"[]", b"x" * 2000])
async def test_a_web_page_cannot_hide_messages_in_its_request(first):
    server, record = make_server()
    async with serving(server, max_line=1000) as connect:
        peer = await connect(initialized=False)
        await peer.say(first, b"host: 127.0.0.1", b"", INITIALIZE)
        await peer.call("wait")
        assert (await peer.hear())["error"]["code"] in {-32700, -32600}
        assert await peer.hear() is None
        assert record.events == []


async def test_a_client_that_reads_nothing_stops_only_itself():
    server, _ = make_server()

    @server.tool
    async def flood() -> str:
        return "x" * 400_000

    async with (
        serving(server, LockstepListener()) as connect,
        trio.open_nursery() as nursery,
    ):
        slow, quick = await connect(), await connect()

        async def ask():
            for id_ in range(20):
                await slow.call("flood", id_=id_)

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        await quick.call("add", a=1, b=2)
        assert (await quick.hear())["result"]["structuredContent"] == {"result": 3}
        for _ in range(20):
            assert "result" in await slow.hear()


async def test_a_silent_session_ends_where_that_is_asked_for(autojump_clock):
    server, record = make_server()
    async with serving(server, idle_timeout=10) as connect:
        peer = await connect()
        await peer.call("wait")
        await trio.sleep(100)
        record.release.set()
        assert (await peer.hear())["result"]
        began = trio.current_time()
        assert await peer.hear() is None
        assert trio.current_time() - began == pytest.approx(10)


async def test_draining_lets_calls_finish_and_returns(autojump_clock):
    server, record = make_server()
    async with serving(server) as connect:
        idle, busy = await connect(), await connect()
        await busy.call("wait", id_=7)
        await record.until("wait started")
        server.drain()
        server.drain()
        assert await idle.hear() is None
        assert not connect.returned.is_set()
        record.release.set()
        assert (await busy.hear())["id"] == 7
        assert await busy.hear() is None
        await connect.returned.wait()


async def test_draining_does_not_wait_for_ever(autojump_clock):
    server, record = make_server()
    async with serving(server, grace_period=7) as connect:
        peer = await connect()
        await peer.call("wait")
        await record.until("wait started")
        began = trio.current_time()
        server.drain()
        await connect.returned.wait()
        assert trio.current_time() - began == pytest.approx(7)
        assert record.events == ["wait started", "wait over"]


async def test_a_server_that_was_told_to_go_down_before_it_was_up_does_not_stay():
    server, _ = make_server()
    server.drain()
    async with serving(server) as connect:
        await connect.returned.wait()


async def test_a_session_that_fails_ends_no_other(caplog):
    server, _ = make_server()

    async def fail():
        raise RuntimeError("a fault of ours")

    class Faulty(MemoryListener):
        async def connect_faulty(self):
            client, theirs = trio.testing.memory_stream_pair()
            theirs.receive_stream.receive_some_hook = fail
            await self._send.send(theirs)
            return Peer(client)

    listener = Faulty()
    async with serving(server, listener) as connect:
        peer = await connect()
        broken = await listener.connect_faulty()
        assert await broken.hear() is None
        assert await peer.ask(PING) == PONG
    assert "a session failed" in caplog.text


@pytest.mark.parametrize("step", range(1, 40, 2))
async def test_the_service_can_be_cancelled_at_any_step(step):
    server, record = make_server()

    async def use(connect):
        with contextlib.suppress(TypeError, AssertionError, trio.BrokenResourceError):
            peer = await connect()
            await peer.call("wait")
            await peer.hear()

    async with trio.open_nursery() as clients:
        async with serving(server) as connect:
            clients.start_soon(use, connect)
            for _ in range(step):
                await trio.lowlevel.checkpoint()
        assert record.events in ([], ["wait started", "wait over"])
        clients.cancel_scope.cancel()


@pytest.mark.parametrize("step", range(1, 40, 2))
async def test_a_connection_lost_at_any_step_leaves_nothing(autojump_clock, step):
    server, record = make_server()
    async with serving(server) as connect:
        peer = await connect()
        await peer.call("wait")
        for _ in range(step):
            await trio.lowlevel.checkpoint()
        await peer.stream.aclose()
        await trio.sleep(1)
        assert record.events in ([], ["wait started", "wait over"])
        assert len(server._services[0]) == 0


# -- sockets --------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def unix(server, path, **options):
    async with trio.open_nursery() as nursery:

        async def serve(*, task_status):
            await server.serve_unix(path, task_status=task_status, **options)

        yield await nursery.start(serve)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("revision", REVISIONS, ids=str)
async def test_the_client_connects_by_url(tmp_path, revision):
    server, _ = make_server()
    options = ClientOptions(revisions=(revision,))
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(server.serve_tcp, "127.0.0.1", 0)
        async with unix(server, tmp_path / "a b%20c.sock") as url:
            for target in (url, *urls):
                async with MCPClient(target, options=options) as client:
                    result = await client.call_tool("add", {"a": 1, "b": 2})
                    assert result.content[0].text == "3"
                    assert client.revision is revision
        nursery.cancel_scope.cancel()
    assert urls[0].startswith("tcp://127.0.0.1:")


async def test_nobody_else_may_connect_and_the_file_goes_with_the_server(tmp_path):
    server, _ = make_server()
    path = tmp_path / "s"
    async with unix(server, path) as url:
        assert url == f"unix://{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()
    async with unix(server, path, mode=0o660):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
    with pytest.raises(TransportError):
        async with MCPClient(url):
            raise AssertionError("connected to nothing")


async def test_a_stale_socket_is_replaced_and_a_served_one_is_not(tmp_path):
    server, _ = make_server()
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    async with unix(server, path) as url:
        with pytest.raises(OSError, match="serves"):
            await server.serve_unix(path)
        async with MCPClient(url) as client:
            assert await client.list_tools()
    assert not path.exists()


async def test_a_server_whose_queue_is_full_is_served(tmp_path):
    server, _ = make_server()
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(path))
        busy.listen(0)
        waiting = []
        with contextlib.suppress(BlockingIOError):
            while True:
                client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
                waiting.append(client)
                client.connect(str(path))
        with pytest.raises(OSError, match="serves"):
            await server.serve_unix(path)
        for client in waiting:
            client.close()
    assert path.exists()


async def test_what_is_no_socket_is_left_alone(tmp_path):
    server, _ = make_server()
    path = tmp_path / "precious"
    path.write_text("data")
    link = tmp_path / "link"
    link.symlink_to(path)
    for each in (path, link):
        with pytest.raises(FileExistsError):
            await server.serve_unix(each)
    assert path.read_text() == "data"
    with pytest.raises(FileNotFoundError):
        await server.serve_unix(tmp_path / "no folder" / "s")
    with pytest.raises(OSError, match="too long"):
        await server.serve_unix(tmp_path / ("x" * 200))


async def test_a_file_that_somebody_has_replaced_is_not_removed(tmp_path):
    server, _ = make_server()
    path = tmp_path / "s"
    async with unix(server, path):
        path.unlink()
        path.write_text("another's")
    assert path.read_text() == "another's"


async def test_two_servers_that_start_together_do_not_take_each_others_file(tmp_path):
    first, _ = make_server()
    second, _ = make_server()
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    async with unix(first, path):
        async with trio.open_nursery() as nursery:
            results = []

            async def attempt():
                with contextlib.suppress(OSError):
                    await second.serve_unix(path)
                    results.append("served")

            for _ in range(5):
                nursery.start_soon(attempt)
        assert results == []
        assert path.exists()


async def test_the_second_server_takes_over_when_the_first_one_drains(tmp_path, autojump_clock):
    first, record = make_server()
    second, _ = make_server()
    path = tmp_path / "s"
    async with unix(first, path), MCPClient(f"unix://{path}") as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "wait")
            await record.until("wait started")
            first.drain()
            await trio.testing.wait_all_tasks_blocked()
            async with unix(second, path):
                record.release.set()
                async with MCPClient(f"unix://{path}") as other:
                    assert await other.list_tools()
            assert not path.exists()


@pytest.mark.parametrize(
    "url",
    [
        "unix://",
        "unix:relative",
        "unix://host/path",
        "tcp://host",
        "tcp://:1",
        "tcp://h:x",
        "ws://",
    ],
)
async def test_urls_that_lead_nowhere_are_refused(url):
    with pytest.raises(ConfigurationError):
        MCPClient(url)
    await trio.lowlevel.checkpoint()


async def test_what_cannot_be_reached_is_one_plain_error(tmp_path):
    for url in (f"unix://{tmp_path}/none", "tcp://127.0.0.1:1"):
        with pytest.raises(TransportError, match="cannot connect"):
            async with MCPClient(url):
                raise AssertionError("connected to nothing")
